"""The experiment `hard-rank`: what a width exponent of the hard rank of representations is made of,
the update's rank or the rule that scales it (docs/beyond/hard-rank.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import fits, lab
from specjax.experiments.beyond.hard_rank_network import NONE, OPTIMIZERS, RULE, run
from specjax.lab.drawing import draw_curves, label_axis

claim = lab.read_claim(__file__)
GAP = 0.58
"""Of Muon's exponent over AdamW's in the paper."""
POINTS = ("rule", "readout", "length")


class Config(lab.Config):
    """Sizes, lengths and networks."""

    seed: int = lab.config.root_seed(1, help="root of all randomness; post hoc rules saw 1 to 5")
    d: int = lab.config.integer(12, least=8, help="inputs and outputs; widths are 1, 2, 4, 8 d")
    lengths: tuple[int, ...] = lab.config.sizes(
        16, 64, 256, points=3, help="steps after which ranks are measured"
    )
    seeds: int = lab.config.seeds(20)


def after_relu(spread: xr.DataArray, overlap: xr.DataArray) -> xr.DataArray:
    """The exponent of the hard rank of relu units whose weights have a mean squared overlap."""
    pairs = (overlap + 3 * (overlap / np.pi) ** 2) / (4 * (1 - 1 / np.pi) ** 2)
    rank = 1 / (spread / spread.width + (1 - 1 / spread.width) * pairs)
    return fits.log_slopes(xr.ufuncs.log(rank), "width")


def from_update(config: Config, data: xr.Dataset, start: float = 1.0) -> xr.DataArray:
    """Exponents from the update's size and overlap, as were committed; `start` is 0 without it."""
    x, q = data["size"], data["overlap"]
    overlap = ((start**2 + 2 * x * start) / config.d + x**2 * q) / (start + x) ** 2
    return after_relu(1 + 2 * overlap, overlap)


def from_before(_: Config, data: xr.Dataset) -> xr.DataArray:
    """Exponents from the hard rank before relu, of units with equal norms."""
    inverse, width = xr.ufuncs.exp(-data["log before"]), data.width
    return after_relu(xr.ones_like(inverse), (inverse - 1 / width) / (1 - 1 / width))


def less(form: Callable[..., xr.DataArray], config: Config, data: xr.Dataset, rival: Any) -> Any:
    """The mean of another form, or a number, less the form: a rival of the difference."""
    other = rival(config, data) if callable(rival) else rival
    return (other - form(config, data)).mean("seed")


def lead(data: xr.Dataset, first: str, second: str, rule: str = RULE) -> xr.DataArray:
    """Of one optimizer's exponent over another's."""
    found = data["exponent"].sel(rule=rule, drop=True)
    difference = found.sel(optimizer=first, drop=True) - found.sel(optimizer=second, drop=True)
    return difference.rename("difference of exponents")


def with_means(data: xr.Dataset, means: xr.DataArray) -> xr.Dataset:
    """Other exponents with a hundredth of the noise."""
    found = data["exponent"]
    return data.assign(exponent=means + (found - found.mean("seed")) / 100)


def take_exponents(*exponents: float) -> dict[str, lab.Control]:
    """A control: the optimizers' exponents as the committed table has them, or nearly so."""
    means = xr.DataArray(list(exponents), {"optimizer": list(OPTIMIZERS)})
    return {"the committed exponents": lambda _, data: with_means(data, means)}


NUMBERS = {"AdamW's 0.44 of all": 0.44, "Muon's 1.02 of all": 1.02}
OF_UPDATE = NUMBERS | {
    "the start": lambda _, data: data["start"],
    "the update alone": partial(from_update, start=0.0),
}
OF_BEFORE = NUMBERS | {"that before relu": lambda _, data: data["before"]}
LOWERED, RAISED = take_exponents(0.2, 0.3, 0.2, 0.41), take_exponents(0.6, 0.5, 0.62, 0.41)


@claim.judges(
    "update-decides",
    rivals={name: partial(less, from_update, rival=rival) for name, rival in OF_UPDATE.items()},
    controls={
        "the committed exponents": lambda config, data: with_means(data, from_update(config, data))
    },
)
def update_decides(config: Config, data: xr.Dataset) -> lab.Relation:
    found = (data["exponent"] - from_update(config, data)).sel(readout="fixed", drop=True)
    return lab.near(found.rename("exponent less the form"), 0.0, 0.1, "0.1")


@claim.judges("low-rank-lowers", controls=LOWERED)
def low_rank_lowers(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.below(lead(data, "top eighth", "Muon"), -0.1, "-0.1")


@claim.judges("low-rank-raises", controls=RAISED)
def low_rank_raises(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.above(lead(data, "top eighth", "Muon", rule=NONE), 0.1, "0.1")


@claim.judges("muon-keeps", controls=LOWERED)
def muon_keeps(config: Config, data: xr.Dataset) -> lab.Relation:
    found = (data["exponent"] - data["start"]).sel(optimizer="Muon", drop=True)
    return lab.near(found.rename("exponent less the start's"), 0.0, 0.1, "0.1")


@claim.judges("adam-is-below", controls=LOWERED)
def adam_is_below(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.below(lead(data, "Adam", "Muon"), -0.05, "-0.05")


@claim.judges(
    "after-is-of-before",
    rivals={name: partial(less, from_before, rival=rival) for name, rival in OF_BEFORE.items()},
)
def after_is_of_before(config: Config, data: xr.Dataset) -> lab.Relation:
    found = (data["exponent"] - from_before(config, data)).rename("exponent less the form")
    return lab.near(found, 0.0, 0.1, "0.1")


@claim.judges("muon-leads-early", controls=lab.controls.without_lead("optimizer", "Muon", "Adam"))
def muon_leads_early(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.above(lead(data.isel(length=0, drop=True), "Muon", "Adam"), 0.05, "0.05")


@claim.judges("no-scale-raises", controls=lab.controls.without_lead("rule", NONE, RULE))
def no_scale_raises(config: Config, data: xr.Dataset) -> lab.Relation:
    found = data["exponent"].isel(length=1, drop=True)
    return lab.above(found.sel(rule=NONE) - found.sel(rule=RULE), 0.1, "0.1")


@claim.judges(
    "they-end-alike",
    rivals={"Muon's lead in the paper": -GAP, "half of it": -GAP / 2, "Muon behind": GAP},
)
def they_end_alike(config: Config, data: xr.Dataset) -> lab.Relation:
    found = data["exponent"].sel(rule=RULE, readout="trained", drop=True).isel(length=-1, drop=True)
    found = (found - found.sel(optimizer="Muon", drop=True)).drop_sel(optimizer="Muon")
    return lab.near(found.rename("exponent less Muon's"), 0.0, GAP / 4, f"{GAP / 4:g}")


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot exponents along trainings, and against the two formulas."""
    drawn = Figure(figsize=(12, 4.2), layout="constrained")
    along, *against = drawn.subplots(1, 3)
    trained = data["exponent"].sel(readout="trained")
    draw_curves(along, trained.sel(rule=RULE), "length", "optimizer", str)
    without = trained.sel(rule=NONE).mean("seed").transpose("length", "optimizer")
    along.plot(data.length, without, "--")
    along.axhline(float(data["start"].mean()), color="black", linewidth=1, label="start")
    label_axis(along, data.length)
    along.set(title="trained readout; dashed without a scale", xlabel="steps", ylabel="exponent")
    along.legend(fontsize="small")
    forms: dict[str, Callable[..., xr.DataArray]] = {
        "from the update, as committed": from_update,
        "from the rank before relu": from_before,
    }
    for axes, (title, form) in zip(against, forms.items(), strict=True):
        both = (each.mean("seed") for each in (form(config, data), data["exponent"]))
        axes.plot(*(each.stack(at=POINTS).transpose("at", "optimizer") for each in both), "o")
        axes.axline((0.3, 0.3), slope=1, color="black", linewidth=1)
        axes.set(title=title, xlabel="predicted exponent")
    return drawn


EXPERIMENT = claim.experiment(Config, run, figure=figure, headlines=("they-end-alike",))
