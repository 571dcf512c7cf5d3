"""The experiment of `specjax scaling`: transfer of rates, and growth of updates, by width."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import fits, lab, scaling, sizes
from specjax.experiments.scaling import builtin_models
from specjax.optim import SCALES
from specjax.scaling.transfer_loss import cost_of_narrowest, costs_less, optima_of

LEDGER = lab.ledger.Ledger.from_conjectures(
    "scaling-of-a-model",
    transfer="The rate that is best at the narrowest width is right at wider ones.",
    updates="What a layer's update does to its inputs does not depend on the width.",
)
CHECKED_STEPS = 3
HALFWAY = 0.25
"""Exponents are halves; a smaller deviation does not change one."""
LARGEST = 1e30
"""Cap on sizes, also for those that are not finite; its inverse replaces smaller ones and zero."""


class Config(lab.Config):
    """Widths, rates and trainings."""

    widths: tuple[int, ...] = lab.config.sizes(
        32, 64, 128, 256, points=4, help="hidden units, or a transformer's stream"
    )
    rates: tuple[float, ...] = lab.config.numbers(
        0.01,
        0.02,
        0.04,
        above=0,
        help="learning rates, best in equal ratios; more are added at an end",
    )
    parametrization: str = lab.config.text(
        "standard", help=f"one of {', '.join(builtin_models.PARAMETRIZATIONS)}"
    )
    steps: int = lab.config.integer(100, most=lab.config.MOST_COUNT, help="steps of a training")
    seeds: int = lab.config.seeds(12, least=10, help="trainings at every width and rate")
    widen: int = lab.config.integer(
        8, least=0, help="rates that may be added beyond each end of the grid"
    )
    tolerance: float = lab.config.number(
        0.01, above=0, below=1, help="the share of the loss that counts as a cost"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parametrization not in builtin_models.PARAMETRIZATIONS:
            known = " or ".join(builtin_models.PARAMETRIZATIONS)
            raise ValueError(f"parametrization is {known}, got {self.parametrization!r}.")
        if len(self.rates) < 3:
            raise ValueError(
                f"rates needs three different numbers or more, got {self.rates}; take e.g. powers"
                " of 2."
            )


class MuonConfig(Config):
    """Configuration with the scale of Muon's steps."""

    muon_scale: str = lab.config.text(
        "sqrt_out_over_in", help=f"of Muon's steps, one of {', '.join(SCALES)}"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.muon_scale not in SCALES:
            raise ValueError(f"muon_scale is one of {', '.join(SCALES)}, got {self.muon_scale!r}.")


def slopes(values: xr.DataArray) -> xr.DataArray:
    """The slope over widths in logarithms, by seed."""
    return fits.log_slopes(xr.ufuncs.log(values), "width").rename("exponent")


def _losses(data: Mapping[str, xr.Dataset]) -> xr.DataArray:
    return data["trainings"]["loss"].sortby(["width", "rate"])


@lab.statement(
    "transfer",
    "The rate that is best at the narrowest width costs less than the tolerance at every wider"
    " one.",
    controls={
        "losses of the wider ones at other rates": lambda config, data: {
            **data,
            "trainings": data["trainings"].assign(loss=_moved(_losses(data))),
        }
    },
    holds=None,
)
def rate_transfers(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """A training that diverges costs all of the loss."""
    found = optima_of(_losses(data), "width")
    cost = cost_of_narrowest(_losses(data), found).clip(max=1.0)
    return costs_less(cost, found, config.tolerance)


def _moved(loss: xr.DataArray) -> xr.DataArray:
    """A control in which wider networks have losses from a third of the grid further."""
    places = max(loss.sizes["rate"] // 3, 1)
    return loss.where(loss["width"] == loss["width"][0], loss.roll(rate=places))


@lab.statement(
    "updates",
    "After the first steps every layer's ΔW x is of one size at all widths.",
    controls={
        "a rate that grows as √width": lambda config, data: {
            **data,
            "layers": data["layers"] * data["layers"]["width"].astype(float) ** 0.5,
        }
    },
    holds=None,
)
def updates_are_stable(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """Their exponents are nearer to 0 than to ±1/2. In a network that is dead or has diverged they
    are far from it.
    """
    update = data["layers"]["update_output"].isel(step=-1, drop=True)
    found = slopes(update.fillna(LARGEST).clip(1 / LARGEST, LARGEST))
    return lab.below(
        xr.concat([found, -found], xr.Variable("side", ["grows", "vanishes"])), HALFWAY, "1/4"
    )


def _exponent(row: scaling.Row) -> tuple[str, str]:
    """The exponent, undefined for seeds with zero or infinite values, as in dead networks."""
    low, high = row.interval
    return (
        (f"{row.exponent:.2f}", f"{low:.2f} to {high:.2f}")
        if np.isfinite(row.exponent)
        else ("–", "–")
    )


def _tables(config: Config, data: Mapping[str, xr.Dataset]) -> list[lab.Table]:
    found = scaling.Transfer.from_data(data["trainings"], config.tolerance)
    best = found.optimum
    costs = ["–", *(f"{100 * cost:.2g} %" for cost in found.costs.values())]
    rates = tuple(
        (f"{width:g}", f"{rate:.3g}", f"{low:.3g} to {high:.3g}", f"{least:.4g}", cost)
        for width, rate, (low, high), least, cost in zip(
            best.sizes, best.optima, best.intervals, best.minima, costs, strict=True
        )
    )
    layers = scaling.CoordinateCheck.from_data(data["layers"])
    rows = tuple(
        (row.layer, row.quantity, *_exponent(row), row.verdict)
        for row in layers.rows
        if row.quantity in ("output", "output_change", "update_output")
    )
    return [
        lab.Table(
            "Rates of least loss",
            ("width", "rate", "interval", "loss", "the narrowest's costs"),
            rates,
        ),
        lab.Table(
            f"Layers after {CHECKED_STEPS} steps at the narrowest's rate",
            ("layer", "quantity", "exponent", "interval", "verdict"),
            rows,
        ),
    ]


def _figure(config: Config, data: Mapping[str, xr.Dataset]) -> Figure:
    figure = Figure(figsize=(12.0, 4.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    scaling.Transfer.from_data(data["trainings"], config.tolerance).plot(left)
    scaling.CoordinateCheck.from_data(data["layers"]).plot("update_output", right)
    return figure


def experiment(model: str, optimizer: str) -> lab.Experiment[Any]:
    """The experiment of a model and an optimizer; ValueError for unknown names."""
    for what, name, known in (
        ("model", model, builtin_models.MODELS),
        ("optimizer", optimizer, builtin_models.OPTIMIZERS),
    ):
        if name not in known:
            raise ValueError(f"There is no {what} {name!r}; there are {', '.join(known)}.")
    middle = builtin_models.OPTIMIZERS[optimizer].middle
    rates = tuple(middle * 2.0**k for k in range(-3, 4))

    def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
        multiple = builtin_models.MODELS[model].multiple
        if wrong := [width for width in config.widths if width % multiple]:
            raise ValueError(
                f"The widths of this {model} need to be multiples of {multiple}, got {wrong[0]}."
            )
        settings = {"scale": config.muon_scale} if isinstance(config, MuonConfig) else {}
        of = builtin_models.problem(
            model, optimizer, config.parametrization, config.widths[0], **settings
        )
        common: dict[str, Any] = {
            "widths": config.widths,
            "batch": of.batch,
            "num_seeds": config.seeds,
        }
        trained = scaling.transfer(
            of.build,
            of.loss,
            of.optimizer,
            rates=config.rates,
            steps=config.steps,
            tolerance=config.tolerance,
            widen=config.widen,
            key=sizes.stream(key, "trainings"),
            **common,
        )
        layers = scaling.coordinate_check(
            of.build,
            of.loss,
            of.optimizer,
            rate=float(trained.optimum.grid[trained.optimum.best[0]]),
            steps=CHECKED_STEPS,
            key=sizes.stream(key, "first steps"),
            **common,
        )
        return {"trainings": trained.data, "layers": layers.data}

    return lab.Experiment(
        f"scaling-{model}-{optimizer}",
        LEDGER,
        title=f"Widths and rates: {model} by {optimizer}",
        summary=(
            "Losses over width × rate, the best rate of each width and what the narrowest's costs"
            " at the others; and the exponents in the width of what the first steps do to every"
            " layer, at that rate."
        ),
        config=MuonConfig if optimizer == "muon" else Config,
        measure=run,
        statements=(rate_transfers, updates_are_stable),
        scales={
            "smoke": {
                "widths": (16, 32, 48, 64),
                "rates": rates[1:-1],
                "steps": 10,
                "seeds": 10,
                "widen": 0,
            },
            "quick": {"rates": rates},
            "paper": {"widths": (32, 64, 128, 256, 512), "rates": rates, "steps": 500, "seeds": 16},
        },
        figure=_figure,
        tables=_tables,
    )
