"""What one step does to the inputs of each layer, ΔW x, as the width grows: the textbook's exponents, with those of four scales of Muon."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, sweep
from specjax.experiments.scaling import perceptron
from specjax.experiments.scaling.ledger import LEDGER
from specjax.experiments.scaling.perceptron import LAYERS, SETTINGS
from specjax.scaling.problem import Problem

RATE = 1e-3
"""Small: a step is then to first order what it is at the start, from which the exponents follow."""
HALFWAY = 0.25
"""Exponents are halves, and one that is off by less is no other."""


class Config(lab.Config):
    """Widths and networks."""

    widths: tuple[int, ...] = lab.sizes(32, 64, 128, 256, least=2, points=4, help="hidden units of both layers")
    seeds: int = lab.seeds(24, least=10, help="networks at every width")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """The RMS of ΔW x of every layer after a step of every setting, x the layer's input after it; one program for each width."""

    def measure(key: Array, width: int) -> dict[str, Array]:
        return {"update": jnp.stack([_sizes(perceptron.problem(setting), key, width) for setting in SETTINGS.values()])}

    over, draws = {"width": sweep.widths(*config.widths)}, sizes.stream(key, "networks")
    data = sweep.run(measure, over, seeds=config.seeds, key=draws, plan="exact")
    dims = {"update_dim_0": "setting", "update_dim_1": "layer"}
    return data.rename(dims).assign_coords(setting=list(SETTINGS), layer=list(LAYERS))


def _sizes(problem: Problem, key: Key[Array, ""], width: int) -> Float[Array, " layers"]:
    before, batch = problem.model(key, width), problem.at_step(key, 0)
    transformation = problem.transformation(RATE, width)
    step, _ = transformation.update(jax.grad(problem.loss)(before, batch), transformation.init(before), before)
    inputs = perceptron.layer_inputs(optax.apply_updates(before, step), batch[0])
    return jnp.stack([jnp.sqrt(jnp.mean((inputs[layer] @ step[layer].T) ** 2)) for layer in LAYERS])


def slopes(values: xr.DataArray) -> xr.DataArray:
    """The slope of a line through the logarithms over the widths, in every seed."""
    x = np.log(values["width"].astype(float))
    x = x - x.mean()
    return ((x * xr.ufuncs.log(values)).sum("width") / (x**2).sum()).rename("exponent")


def off(data: xr.Dataset, expected: Mapping[str, perceptron.Exponents]) -> xr.DataArray:
    """By how much the exponents of some settings are above and below those expected."""
    found = slopes(data["update"]).sel(setting=list(expected))
    predicted = xr.DataArray(list(expected.values()), {"setting": list(expected), "layer": list(LAYERS)})
    sides = [found - predicted, predicted - found]
    return xr.concat(sides, xr.Variable("side", ["above", "below"])).rename("exponent less the textbook's")


def textbook(name: str, cites: str, says: str, *settings: str) -> lab.Statement:
    """The exponents of some settings are theirs, and not those of the setting before or of a rate that grows as √width."""

    def relation(config: Config, data: xr.Dataset) -> lab.Relation:
        expected = {setting: SETTINGS[setting].updates for setting in settings}
        return lab.below(off(data, expected), HALFWAY, "half of the distance to the next exponent")

    controls = {
        "another setting in its place": lab.replacing("update", lambda data: data["update"].roll(setting=1)),
        "a rate that grows as √width": lab.replacing(
            "update", lambda data: data["update"] * data["width"].astype(float) ** 0.5
        ),
    }
    return lab.statement(cites, says, name=name, controls=controls)(relation)


STATEMENTS = (
    textbook(
        "gradient-descent",
        "standard-gradient-descent",
        "Under gradient descent in standard parametrization ΔW x follows width^-1/2, width^1/2 and width in the three layers.",
        "gradient descent",
    ),
    textbook(
        "adam",
        "standard-adam",
        "Under Adam in standard parametrization ΔW x does not depend on the width in the first layer, and follows it in the two others.",
        "Adam",
    ),
    textbook(
        "mup",
        "mup-updates",
        "In μP no layer's ΔW x depends on the width, under gradient descent and under Adam.",
        "gradient descent, μP",
        "Adam, μP",
    ),
    textbook(
        "muon-none",
        "muon-scales",
        "Muon without a scale: ΔW x follows width^-1/2 in the first layer and width^1/2 in the last.",
        "Muon, none",
    ),
    textbook(
        "muon-original",
        "muon-scales",
        "Muon with √max(1, out/in): ΔW x depends on the width in the last layer alone, as width^1/2.",
        "Muon, sqrt_max_1_out_over_in",
    ),
    textbook(
        "muon-spectral",
        "muon-scales",
        "Muon with √(out/in): no layer's ΔW x depends on the width.",
        "Muon, sqrt_out_over_in",
    ),
    textbook(
        "muon-adamw-rms",
        "muon-scales",
        "Muon with 0.2 √max(out, in), the RMS of AdamW's steps: ΔW x follows width^1/2 in the hidden layer and width in the last.",
        "Muon, point_two_sqrt_max",
    ),
)


def table(config: Config, data: xr.Dataset) -> list[lab.Table]:
    """The exponents of all layers beside the textbook's."""
    found = slopes(data["update"]).mean("seed")
    rows = tuple(
        (
            name,
            *(
                f"{float(found.sel(setting=name, layer=layer)):.2f} ({of:g})"
                for layer, of in zip(LAYERS, setting.updates, strict=True)
            ),
        )
        for name, setting in SETTINGS.items()
    )
    return [lab.Table("Exponents of ΔW x in the width (in brackets the textbook's)", ("setting", *LAYERS), rows)]


EXPERIMENT = lab.Experiment(
    "update-exponents",
    LEDGER,
    title="One step's updates have their textbook exponents; of Muon's four scales one keeps all layers' sizes",
    summary="The RMS of ΔW x after one step of a perceptron of three layers, over the width. Gradient descent and Adam in standard "
    "parametrization move the last layers more and more; μP moves all layers alike at every width. Of the four scales by which Muon is "
    "used, √(out/in) does too; without a scale and with √max(1, out/in) the last layer's update grows as √width, and with the RMS of "
    "AdamW's steps the hidden layer's does and the last one's grows as the width.",
    config=Config,
    measure=run,
    statements=STATEMENTS,
    scales={"smoke": {"widths": (16, 24, 40, 64), "seeds": 10}, "paper": {"widths": (64, 128, 256, 512, 1024, 2048)}},
    tables=table,
)
