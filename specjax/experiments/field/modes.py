"""Dragutinović et al. 2026, arXiv 2603.00742: the order of modes in deep linear networks."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sweep
from specjax.experiments.field.controls import exchange
from specjax.experiments.field.dynamics import (
    OPTIMIZERS,
    N,
    descend,
    first_above,
    gaussian,
    product,
    spectrum,
    values,
)
from specjax.experiments.field.mode_order import LARGER, SMALLER, judge_order
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, MARKERS, log_axes
from specjax.sweep.axes import Over

LEAST, RATES, STEPS = (
    0.2,
    {"Muon": 0.005, "gradient descent": 0.05},
    {"Muon": 300, "gradient descent": 6000},
)
"""The smallest mode (the largest is 1), step lengths, and step counts."""
START, DEPTH, DRAWN = 0.1, 3, 60
"""The start of the depth sweep, the depth of the start sweep, and the points of a plotted curve."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Depths, starts and seeds."""

    seed: int = lab.config.root_seed(
        1, help="root of all randomness; bounds were set on other samples"
    )
    depths: tuple[int, ...] = lab.config.sizes(2, 3, least=2, help="layers")
    starts: tuple[float, ...] = lab.config.numbers(
        0.05,
        0.1,
        0.2,
        above=0,
        below=0.5,
        help="√n times the scale of the weights at the start, in a network of three layers",
    )
    seeds: int = lab.config.seeds(128, help="samples of the start")


def learning(key: Key[Array, ""], depth: int, start: Array) -> dict[str, Array]:
    """Times of half learning, the smallest mode's share then, time of half loss, and curves."""
    modes, found = spectrum(LEAST), []
    weights = gaussian(key, depth, 1.0)
    for name in OPTIMIZERS:
        path = descend(
            tuple(start * w for w in weights), modes, jnp.full(STEPS[name], RATES[name]), name
        )
        share = values(path) / modes[None]
        half = first_above(share, jnp.full_like(modes, 0.5))
        loss = jnp.sum((product(path) - jnp.diag(modes)[None]) ** 2, axis=(1, 2))[:, None]
        escape = first_above(-loss, -jnp.sum(modes**2)[None] / 2)[0]
        found.append((half, share[half[0] - 1, -1], escape, share[:: STEPS[name] // DRAWN]))
    names = ("half", "together", "escape", "curve")
    return {
        name: jnp.stack(part) for name, part in zip(names, zip(*found, strict=True), strict=True)
    }


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Both optimizers over the depth and over the start."""
    over: Over = {"depth": sweep.widths(*config.depths), "start": sweep.values(START)}
    depth = lab.seeded_sweep(key, "depth", learning, config.seeds, **over).isel(start=0)
    over = {"depth": sweep.widths(DEPTH), "start": sweep.values(*sorted(config.starts))}
    start = lab.seeded_sweep(key, "start", learning, config.seeds, **over).isel(depth=0)

    def named(data: xr.Dataset) -> xr.Dataset:
        data = sweep.labelled(
            data, "optimizer", "mode", outputs=("half",), optimizer=list(OPTIMIZERS)
        )
        data = sweep.labelled(data, "optimizer", outputs=("together", "escape"))
        return sweep.labelled(data, "optimizer", "point", "mode", outputs=("curve",))

    return {"depth": named(depth), "start": named(start)}


states = lab.Statements()


def select(data: Data, optimizer: str, quantity: str, where: str = "depth") -> xr.DataArray:
    """A quantity of one optimizer."""
    return data[where][quantity].sel(optimizer=optimizer, drop=True).astype(float)


EXCHANGED = exchange("optimizer", *OPTIMIZERS, of="depth")
LAW = float(np.log(1 / LEAST) / (N - 1))
"""The log of one mode over the next, and of their times if these are as 1 / mode (arXiv
1312.6120).
"""
SAME_DRAWS = "; it was set by theory when the data were known, and judged on them."


def nearer(optimizer: str, quantity: str, of: str, *, logs: bool = False) -> dict[str, Any]:
    """A control with one optimizer's quantity, or its log, moved half of the way to the other's."""
    (other,) = set(OPTIMIZERS) - {optimizer}

    def moved(data: xr.Dataset) -> xr.DataArray:
        values = data[quantity].astype(float)
        if logs:
            halfway = lab.controls.toward(xr.ufuncs.log(values), "optimizer", {optimizer: other})
            return xr.ufuncs.exp(halfway)
        return lab.controls.toward(values, "optimizer", {optimizer: other})

    return {f"half of the way to {other}": lab.controls.replacing(quantity, moved, of=of)}


def half_of_the_order(data: xr.Dataset) -> xr.DataArray:
    """Times whose logarithms differ half as much between modes."""
    return data["half"].astype(float) ** 0.5


@states(
    "gradient-descent-bias",
    controls=EXCHANGED
    | {"half of the lead": lab.controls.replacing("half", half_of_the_order, of="depth")},
    post_hoc="Any lead was enough, and half of it would be too" + SAME_DRAWS,
)
def larger_first(config: Config, data: Data) -> lab.Relation:
    """Gradient descent half learns every mode before the next smaller one, at every depth, by more
    than half of the lead, in logarithms of the steps, of times as one over the mode.
    """
    return judge_order(select(data, "gradient descent", "half"), LARGER, SMALLER, LAW / 2)


@states(
    "gradient-descent-bias", controls=EXCHANGED | nearer("gradient descent", "together", "depth")
)
def one_at_a_time(config: Config, data: Data) -> lab.Relation:
    """When gradient descent has half learned the largest mode it has learned less than a tenth of
    the smallest.
    """
    return lab.below(select(data, "gradient descent", "together"), 0.1, "a tenth")


@states("muon-loses-it", controls=EXCHANGED | nearer("Muon", "together", "depth"))
def all_at_once(config: Config, data: Data) -> lab.Relation:
    """When Muon has half learned the largest mode it has learned more than nine tenths of the
    smallest, at every depth.
    """
    return lab.above(select(data, "Muon", "together"), 0.9, "nine tenths")


def slowed(data: Data, optimizer: str) -> xr.DataArray:
    """The time to half of the loss from the smallest start over that from the largest."""
    escape = select(data, optimizer, "escape", "start")
    return (escape.isel(start=0, drop=True) / escape.isel(start=-1, drop=True)).rename(
        "time over time"
    )


OF_START = exchange("optimizer", *OPTIMIZERS, of="start")


@states("saddle", controls=OF_START | nearer("Muon", "escape", "start", logs=True))
def muon_avoids_the_saddle(config: Config, data: Data) -> lab.Relation:
    """From weights a quarter as large Muon needs less than one and a half times as many steps to
    halve the loss.
    """
    return lab.below(slowed(data, "Muon"), 1.5, "one and a half times")


@states(
    "saddle",
    controls=OF_START | nearer("gradient descent", "escape", "start", logs=True),
    post_hoc="Twice was enough, and the root of the ratio is more than that" + SAME_DRAWS,
)
def descent_waits(config: Config, data: Data) -> lab.Relation:
    """Gradient descent needs more than four times as many, as three layers leave zero in a time of
    one over the weights.
    """
    start = data["start"].start
    times = float(start[-1] / start[0]) ** (DEPTH - 2)
    return lab.above(slowed(data, "gradient descent"), times, "the ratio of the starts")


def figure(config: Config, data: Data) -> Figure:
    """Plot the learning of modes in the deepest network, and the time to half loss by start."""
    drawn = Figure(figsize=(13, 3.8), layout="constrained")
    *panels, escape = drawn.subplots(1, 3)
    curve = data["depth"]["curve"].isel(depth=-1).mean("seed")
    for axes, name, color, marker in zip(panels, OPTIMIZERS, COLORS, MARKERS, strict=False):
        x = curve.point * (STEPS[name] // DRAWN)
        for mode in curve.mode.values:
            axes.plot(
                x,
                curve.sel(optimizer=name, mode=mode),
                color=str(0.12 * mode),
                label=f"{LEAST ** (mode / 5):.2f}",
            )
        axes.set(
            xlabel="step", ylabel="share of the mode", title=f"{name}, {config.depths[-1]} layers"
        )
        mean = select(data, name, "escape", "start").mean("seed")
        escape.plot(mean.start, mean / mean.isel(start=-1), marker + "-", color=color, label=name)
    panels[0].legend(title="mode", fontsize="small")
    log_axes(escape, sorted(config.starts))
    escape.set(
        xlabel="scale of the start",
        ylabel="steps to half of the loss, relative",
        title="leaving the saddle",
    )
    escape.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-modes",
    ledger("field"),
    title=(
        "Muon learns all modes of a deep linear network at once, where gradient descent learns the"
        " largest first"
    ),
    summary=(
        "From a small start gradient descent learns one mode after the other and waits at the"
        " saddle the longer the smaller the start is; when Muon has half of the largest mode it has"
        " all of the smallest, and hardly waits."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"starts": (0.05, 0.2)},
        "smoke": {"seeds": 6},
        "paper": {"depths": (2, 3), "seeds": 500},
    },
    figure=figure,
)
