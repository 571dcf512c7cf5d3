"""Trainings over width × rate: whether the rate that is best at the narrowest width is right at wider ones, and what it costs where not.

The trainings are short, so that the first steps decide which rate is best, as they do what a step does to each layer (`updates.py`): where
some ΔW x grows with the width, the narrowest's rate is too large at wider ones.
"""

from collections.abc import Callable

import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.scaling import perceptron
from specjax.experiments.scaling.ledger import LEDGER
from specjax.experiments.scaling.perceptron import SETTINGS
from specjax.lab.relations import Relation
from specjax.scaling.cost import cost_of_narrowest, tuned
from specjax.sweep import Optimum

TOLERANCE = 0.1
"""The share of the loss that counts: a rate that is off by one place of the grid, a factor of 2, costs less."""
MUON = "Muon, "


class Config(lab.Config):
    """Widths, rates and trainings."""

    widths: tuple[int, ...] = lab.sizes(16, 128, least=2, points=2, help="hidden units of both layers")
    factors: tuple[float, ...] = lab.numbers(
        *(2.0**k for k in range(-6, 7)), above=0, help="rates, over one of the setting's own; three or more"
    )
    steps: int = lab.integer(10, help="steps of a training")
    seeds: int = lab.seeds(12, least=10, help="trainings at every width and rate")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.factors) < 3:
            raise ValueError(f"factors needs three different numbers or more, got {self.factors}.")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """The loss of every setting on a fresh batch after the last step; one program for each width."""

    def measure(key: Array, width: int, factor: Array) -> dict[str, Array]:
        final = [
            perceptron.problem(setting).final_loss(key, width, setting.rate * factor, config.steps)
            for setting in SETTINGS.values()
        ]
        # A training that diverges has the largest loss that there is: it is no seed that failed.
        return {"loss": jnp.minimum(jnp.nan_to_num(jnp.stack(final), nan=LARGEST), LARGEST)}

    over = {"width": sweep.widths(*config.widths), "factor": sweep.values(*sorted(config.factors))}
    data = sweep.run(measure, over, seeds=config.seeds, key=sizes.stream(key, "trainings"), plan="exact")
    return data.rename(loss_dim_0="setting").assign_coords(setting=list(SETTINGS))


LARGEST = 1e6
"""A loss counts as this where it is larger or not finite."""


def _tuned(data: xr.Dataset, setting: str) -> tuple[Optimum, xr.DataArray]:
    """The best factors of a setting, and what the narrowest's costs at the others, at most all of the loss."""
    loss = data["loss"].sel(setting=setting, drop=True)
    found = sweep.optimum(loss, over="factor", dim="width")
    return found, cost_of_narrowest(loss, found).clip(max=1.0)


def transfers(name: str, cites: str, says: str, setting: str, wrong: str) -> lab.Statement:
    """The narrowest's rate costs less than the tolerance at every other width, which it does not in the setting `wrong`."""

    def relation(config: Config, data: xr.Dataset) -> Relation:
        found, cost = _tuned(data, setting)
        return tuned(lab.below(cost, TOLERANCE, f"{100 * TOLERANCE:g} % of the loss"), found)

    return lab.statement(cites, says, name=name, controls={wrong: _in_place_of(setting, wrong)})(relation)


def costs(name: str, cites: str, says: str, setting: str, right: str) -> lab.Statement:
    """The narrowest's rate costs more than the tolerance at the widest, which it does not in the setting `right`."""

    def relation(config: Config, data: xr.Dataset) -> Relation:
        found, cost = _tuned(data, setting)
        return tuned(lab.above(cost.isel(width=[-1]), TOLERANCE, f"{100 * TOLERANCE:g} % of the loss"), found)

    return lab.statement(cites, says, name=name, controls={right: _in_place_of(setting, right)})(relation)


def _in_place_of(setting: str, other: str) -> Callable[[Config, xr.Dataset], xr.Dataset]:
    return lab.replacing(
        "loss",
        lambda data: data["loss"].where(data["setting"] != setting, data["loss"].sel(setting=other, drop=True)),
    )


def _says(what: str, transferring: bool) -> str:
    return f"{what}: the best rate at the narrowest width costs {'less' if transferring else 'more'} than 10 % of the loss at the widest."


STATEMENTS = (
    transfers(
        "mup-gradient-descent",
        "mup-transfer",
        _says("In μP, gradient descent", True),
        "gradient descent, μP",
        "gradient descent",
    ),
    transfers("mup-adam", "mup-transfer", _says("In μP, Adam", True), "Adam, μP", "Adam"),
    costs(
        "gradient-descent",
        "standard-transfer",
        _says("In standard parametrization, gradient descent", False),
        "gradient descent",
        "gradient descent, μP",
    ),
    costs("adam", "standard-transfer", _says("In standard parametrization, Adam", False), "Adam", "Adam, μP"),
    transfers(
        "muon-spectral",
        "muon-transfer",
        _says("Muon with √(out/in)", True),
        MUON + "sqrt_out_over_in",
        MUON + "point_two_sqrt_max",
    ),
    costs(
        "muon-none",
        "muon-transfer",
        _says("Muon without a scale", False),
        MUON + "none",
        MUON + "sqrt_out_over_in",
    ),
    costs(
        "muon-original",
        "muon-transfer",
        _says("Muon with √max(1, out/in)", False),
        MUON + "sqrt_max_1_out_over_in",
        MUON + "sqrt_out_over_in",
    ),
    costs(
        "muon-adamw-rms",
        "muon-transfer",
        _says("Muon with 0.2 √max(out, in)", False),
        MUON + "point_two_sqrt_max",
        MUON + "sqrt_out_over_in",
    ),
)


def table(config: Config, data: xr.Dataset) -> list[lab.Table]:
    """Best rates, their exponents, and what the narrowest's costs, of every setting."""
    rows = []
    for name, setting in SETTINGS.items():
        found, cost = _tuned(data, name)
        rates = [f"{setting.rate * factor:.3g}" if factor > 0 else "an end of the grid" for factor in found.optima]
        shares = [f"{100 * float(share):.2g} %" for share in cost.mean("seed")]
        rows.append((name, *rates, f"{found.exponent:.2f}" if found.exponent == found.exponent else "–", *shares))
    widths = [f"{width}" for width in config.widths]
    header = (
        "setting",
        *(f"best rate at {width}" for width in widths),
        "exponent",
        *(f"cost at {w}" for w in widths[1:]),
    )
    return [lab.Table("Best rates, and what the narrowest's costs", header, tuple(rows))]


EXPERIMENT = lab.Experiment(
    "rate-transfer",
    LEDGER,
    title="Rates transfer between widths where no layer's update grows",
    summary="Short trainings of a perceptron of three layers over width × rate. SUMMARY",
    config=Config,
    measure=run,
    statements=STATEMENTS,
    scales={
        "smoke": {"widths": (8, 16), "factors": tuple(4.0**k for k in range(-2, 3)), "steps": 2, "seeds": 10},
        "paper": {"widths": (32, 64, 128, 256, 512), "seeds": 24},
    },
    tables=table,
)
