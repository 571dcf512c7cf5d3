"""Rhee, Simon and Karkada 2026, arXiv 2606.30509: rates and order of Muon's learning of modes."""

import math

import jax
import jax.numpy as jnp
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
    spectrum,
    values,
)
from specjax.experiments.field.mode_order import LARGER, SMALLER, judge_order
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, MARKERS

LEAST = 0.2
"""The smallest mode; the largest is 1."""
RATES, TIMES = {"Muon": 0.003, "gradient descent": 0.05}, {"Muon": 1.2, "gradient descent": 80.0}
"""Lengths of steps, and their sum."""


class Config(lab.Config):
    """Starts and seeds."""

    seed: int = lab.config.root_seed(
        2, help="root of all randomness, a fresh one for what was changed"
    )
    small: float = lab.config.number(
        0.03, above=0, below=0.3, help="√n times the scale of the weights at the start"
    )
    seeds: int = lab.config.seeds(160, help="samples of the start")


def learning(key: Key[Array, ""], start: Array) -> dict[str, Array]:
    """Time of half learning of every mode, and growth of its root from a quarter to a half."""
    modes, weights, found = spectrum(LEAST), gaussian(key, 2, 1.0), []
    for name, rate in RATES.items():
        path = descend(
            tuple(start * w for w in weights),
            modes,
            jnp.full(round(TIMES[name] / rate), rate),
            name,
        )
        value = values(path)
        quarter, half = (first_above(value, share * modes) for share in (0.25, 0.5))
        rise = jnp.sqrt(value[half - 1, jnp.arange(N)]) - jnp.sqrt(
            value[quarter - 1, jnp.arange(N)]
        )
        # For a mode that is never half learned both are the last step.
        half, between = (
            count.astype(modes.dtype) for count in (half, jnp.maximum(half - quarter, 1))
        )
        found.append((half * rate, rise / (between * rate)))
    time, speed = map(jnp.stack, zip(*found, strict=True))
    return {"time": time, "speed": speed}


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """The learning of all modes by both optimizers, in float64."""
    with jax.enable_x64(True):
        over = {"start": sweep.values(config.small)}
        found = lab.seeded_sweep(key, "starts", learning, config.seeds, **over).isel(start=0)
    return sweep.labelled(found, "optimizer", "mode", optimizer=list(OPTIMIZERS))


states = lab.Statements()
EXCHANGED = exchange("optimizer", *OPTIMIZERS)
APART = -math.log(LEAST) / (N - 1)
"""The logarithm of the ratio of successive modes. At one rate the times are as the roots."""
LESS = {"0.4 of the difference": lab.controls.replacing("time", lambda data: data["time"] ** 0.4)}
NUMBERED = "By the order alone at first; half of what the rates predict is asked on a fresh seed."


def true_modes(data: xr.Dataset) -> xr.DataArray:
    """The modes themselves."""
    return LEAST ** (data["mode"] / (N - 1))


@states(
    "one-rate",
    "Between a quarter and a half of its value the root of every mode grows by the length of the"
    " steps, to 2 % in the median sample.",
    rivals={"gradient descent's, the mode": lambda config, data: true_modes(data)},
    controls=EXCHANGED,
    post_hoc=(
        "By the mean over samples a few whose smallest mode aligns late left that mode open; judged"
        " by the median of fresh samples."
    ),
)
def one_rate(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.near(data["speed"].sel(optimizer="Muon", drop=True), 1.0, 0.02, "2 %", by="median")


@states(
    "one-rate",
    "Muon half learns every smaller mode before the next larger one, by more than half of the"
    " logarithm that the ratio of their roots has.",
    controls=EXCHANGED | LESS,
    post_hoc=NUMBERED,
)
def smaller_first(config: Config, data: xr.Dataset) -> lab.Relation:
    time = data["time"].sel(optimizer="Muon", drop=True)
    return judge_order(time, SMALLER, LARGER, APART / 4)


@states(
    "one-rate",
    "Gradient descent learns them in the other order, by more than half of the logarithm of their"
    " ratio.",
    controls=EXCHANGED | LESS,
    post_hoc=NUMBERED,
)
def larger_first(config: Config, data: xr.Dataset) -> lab.Relation:
    time = data["time"].sel(optimizer="gradient descent", drop=True)
    return judge_order(time, LARGER, SMALLER, APART / 2)


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot rates of growth, and times to half of every mode."""
    drawn = Figure(figsize=(9.5, 3.8), layout="constrained")
    speed, time = drawn.subplots(1, 2)
    for name, color, marker in zip(OPTIMIZERS, COLORS, MARKERS, strict=False):
        for axes, quantity in ((speed, data["speed"]), (time, data["time"])):
            middle = quantity.sel(optimizer=name).median("seed")
            axes.plot(true_modes(data), middle, marker + "-", color=color, label=name)
    speed.set(ylabel="growth of √mode per length of steps", ylim=(0, 1.1))
    time.set(ylabel="time to half of the mode", yscale="log")
    for axes in (speed, time):
        axes.set(xlabel="singular value of the target")
        axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-rate",
    ledger("field"),
    title="Muon learns all modes of a factorization at one rate, the smaller ones first",
    summary=(
        "From a small start the root of every mode grows by the length of Muon's steps, so that"
        " small modes are learned first; under gradient descent it grows as the mode itself, and"
        " large ones are."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={"smoke": {"seeds": 8}, "paper": {"seeds": 4000}},
    figure=figure,
)
