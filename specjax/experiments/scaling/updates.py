"""Effect of one step on each layer, ΔW x, by width: textbook exponents, and Muon's scales."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import optax
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.scaling import perceptron
from specjax.experiments.scaling.perceptron import LAYERS, SETTINGS
from specjax.experiments.scaling.scaling_cli import HALFWAY, slopes
from specjax.lab.drawing import COLORS, MARKERS, draw_sweep
from specjax.scaling.sweep_setup import Problem

SMALL = 0.01
"""Rate over the best one: the step is then of first order, where the exponents hold."""


class Config(lab.Config):
    """Widths and networks."""

    widths: tuple[int, ...] = lab.config.sizes(
        32, 64, 128, 256, least=2, points=2, help="hidden units of both layers"
    )
    seeds: int = lab.config.seeds(48, least=10, help="networks at every width")


def run(config: Config, key: Key[Array, ""], part: str) -> xr.Dataset:
    """The RMS of ΔW x of every layer after a step, by setting of Muon or of all other optimizers;
    one program for each width.
    """
    settings = [name for name in SETTINGS if part_of(name) == part]

    def measure(key: Array, width: int) -> dict[str, Array]:
        return {
            "update": perceptron.measure_settings(
                lambda problem, rate: _rms(problem, key, width, SMALL * rate), width, settings
            )
        }

    over, of_networks = {"width": sweep.widths(*config.widths)}, sizes.stream(key, "networks")
    data = sweep.run(measure, over, num_seeds=config.seeds, key=of_networks)
    return sweep.labelled(data, "setting", "layer", setting=settings, layer=list(LAYERS))


def _rms(problem: Problem, key: Key[Array, ""], width: int, rate: Array) -> Float[Array, "3"]:
    before, batch = problem.model(key, width), problem.at_step(key, 0)
    transformation = problem.transformation(rate, width)
    step, _ = transformation.update(
        jax.grad(problem.loss)(before, batch), transformation.init(before), before
    )
    inputs = perceptron.layer_inputs(optax.apply_updates(before, step), batch[0])
    return jnp.stack([jnp.sqrt(jnp.mean((inputs[layer] @ step[layer].T) ** 2)) for layer in LAYERS])


Data = Mapping[str, xr.Dataset]


def part_of(setting: str) -> str:
    """The name of the dataset that has a setting."""
    return "muon" if SETTINGS[setting].optimizer == "Muon" else "others"


def together(data: Data) -> xr.Dataset:
    """All settings of a run as one dataset, in the order of `SETTINGS`."""
    both = xr.concat([part[["update"]] for part in data.values()], "setting")
    return both.sel(setting=[name for name in SETTINGS if name in both["setting"]])


def replace_updates(
    change: Callable[[xr.Dataset], xr.DataArray],
) -> Callable[[Config, Data], dict[str, xr.Dataset]]:
    """A control with other updates of all settings."""

    def control(config: Config, data: Data) -> dict[str, xr.Dataset]:
        changed = change(together(data))
        return {
            name: part.assign(update=changed.sel(setting=part["setting"]))
            for name, part in data.items()
        }

    return control


def off(data: Data, settings: Sequence[str]) -> xr.DataArray:
    """Excess of the exponents of some settings above and below theory's, by seed."""
    of_each = [data[part_of(each)]["update"].sel(setting=[each]) for each in settings]
    found = slopes(xr.concat(of_each, "setting"))
    expected = [SETTINGS[setting].updates for setting in settings]
    difference = found - xr.DataArray(expected, {"setting": list(settings), "layer": list(LAYERS)})
    return xr.concat([difference, -difference], xr.Variable("side", ["above", "below"])).rename(
        "exponent less theory's"
    )


def grown(power: float) -> Callable[[xr.Dataset], xr.DataArray]:
    """Updates times a power of the width."""
    return lambda data: data["update"] * data["width"].astype(float) ** power


states = lab.Statements()


def exponents(name: str, cites: str, says: str, *settings: str) -> None:
    """State that exponents are theory's to 1/4, not the previous setting's, nor 1/4 more or
    less.
    """

    def relation(config: Config, data: Data) -> lab.Relation:
        return lab.below(off(data, settings), HALFWAY, "half of the distance to the next exponent")

    controls = {
        "another setting in its place": replace_updates(lambda data: data["update"].roll(setting=1))
    }
    for power, called in ((HALFWAY, "grows as width^(1/4)"), (-HALFWAY, "falls as width^(-1/4)")):
        controls[f"a rate that {called}"] = replace_updates(grown(power))
    resolution = ", to 1/4 in the exponent, half of the distance to the next."
    states(cites, says.removesuffix(".") + resolution, name=name, controls=controls)(relation)


exponents(
    "gradient-descent",
    "standard-gradient-descent",
    "Under gradient descent in standard parametrization ΔW x follows width^-1/2, width^1/2 and"
    " width in the three layers.",
    "gradient descent",
)
exponents(
    "adam",
    "standard-adam",
    "Under Adam in standard parametrization ΔW x does not depend on the width in the first layer,"
    " and follows it in the two others.",
    "Adam",
)
exponents(
    "mup",
    "mup-updates",
    "In μP no layer's ΔW x depends on the width, under gradient descent and under Adam.",
    "gradient descent, μP",
    "Adam, μP",
)
exponents(
    "muon-none",
    "muon-scales",
    "Muon without a scale: ΔW x follows width^-1/2 in the first layer and width^1/2 in the last.",
    "Muon, none",
)
exponents(
    "muon-original",
    "muon-scales",
    "Muon with √max(1, out/in): ΔW x depends on the width in the last layer alone, as width^1/2.",
    "Muon, √max(1, out/in)",
)
exponents(
    "muon-spectral",
    "muon-scales",
    "Muon with √(out/in): no layer's ΔW x depends on the width.",
    "Muon, √(out/in)",
)
exponents(
    "muon-adamw-rms",
    "muon-scales",
    "Muon with 0.2 √max(out, in): ΔW x follows width^1/2 in the hidden layer and width in the"
    " last.",
    "Muon, 0.2 √max",
)


def table(config: Config, data: Data) -> list[lab.Table]:
    """Tabulate the exponents of all layers beside theory's."""
    found = slopes(together(data)["update"]).mean("seed")
    rows = tuple(
        (
            name,
            *(
                f"{float(found.sel(setting=name, layer=layer)):.2f} ({expected:g})"
                for layer, expected in zip(LAYERS, setting.updates, strict=True)
            ),
        )
        for name, setting in SETTINGS.items()
    )
    return [
        lab.Table(
            "Exponents of ΔW x in the width (in brackets those of theory)",
            ("setting", *LAYERS),
            rows,
        )
    ]


SHOWN = (
    "Adam",
    "Adam, μP",
    "Muon, none",
    "Muon, √max(1, out/in)",
    "Muon, √(out/in)",
    "Muon, 0.2 √max",
)


def figure(config: Config, data: Data) -> Figure:
    """Plot mean RMS over that at the narrowest width, for each layer and the settings in use."""
    drawn = Figure(figsize=(12.0, 4.8), layout="constrained")
    panels = drawn.subplots(1, len(LAYERS), sharey=True)
    update = together(data)["update"]
    relative = update / update.isel(width=0).mean("seed")
    for axes, layer in zip(panels, LAYERS, strict=True):
        for place, name in enumerate(SHOWN):
            style = {"color": COLORS[place], "marker": MARKERS[place]}
            # Many exponents are equal, so the curves are shifted slightly.
            curve = relative.sel(setting=name, layer=layer, drop=True) * 1.03 ** (
                place - len(SHOWN) // 2
            )
            draw_sweep(axes, curve, "width", label=name, line=True, **style)
        axes.set(title=f"{layer} layer", xlabel="width")
    panels[0].set_ylabel(f"RMS of ΔW x over that at width {config.widths[0]}")
    drawn.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(SHOWN),
        fontsize="small",
    )
    return drawn


EXPERIMENT = lab.Experiment(
    "update-exponents",
    ledger("scaling"),
    title=(
        "One step's updates have their textbook exponents; of Muon's four scales one keeps all"
        " layers' sizes"
    ),
    summary=(
        "The RMS of ΔW x after one step of a perceptron of three layers, over the width. Gradient"
        " descent and Adam in standard parametrization move the last layers more and more; μP moves"
        " all layers alike at every width. Of the four scales by which Muon is used, √(out/in) does"
        " too, and so do fixed norms; without a scale and with √max(1, out/in) the last layer's"
        " update grows as √width, and with 0.2 √max(out, in) the hidden layer's does and the last"
        " one's grows as the width."
    ),
    config=Config,
    measure={part: partial(run, part=part) for part in ("muon", "others")},
    paired="the settings of Muon and of other optimizers are those of the same networks",
    statements=states,
    headlines=("muon-spectral", "muon-original"),
    headlines_read=("muon",),
    scales={
        "quick": {"seeds": 24, "widths": (32, 128, 256)},
        "smoke": {"widths": (16, 64), "seeds": 10},
        "paper": {"widths": (64, 128, 256, 512)},
    },
    figure=figure,
    tables=table,
)
