"""Paquette et al. 2026, arXiv 2605.09552 (“Phases of Muon”): SignSVD against SignSGD.

The model of `bilinear`, with a target whose column of mode j has entries N(0, j^-β).
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.field.bilinear import SIGN, SVD, direction, gradient, loss, power_law
from specjax.experiments.field.controls import exchange
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import draw_curves, log_axes
from specjax.models.factorization_spectra import orthonormal
from specjax.sweep.axes import Over

OPTIMIZERS = [SVD, SIGN]
POINTS = {
    "isotropic": (0.0, 0.0),
    "SignSGD": (0.5, 3.0),
    "trade-off": (1.25, 1.5),
    "SignSVD": (2.0, 0.0),
}
"""Exponents (α, β), by the expected leader there."""
BUDGETS = ["early", "middle", "late"]
TUNED, PER_WIDTH = 6, 4
"""Seeds for choosing lengths, and the batch size per width."""
CONSTANT = 1.5
"""A factor between two losses that counts."""


def budgets(width: int) -> tuple[int, ...]:
    """Early, middle and late steps at which losses are compared.

    Between the phases the two cross (on other seeds) after about 60 steps at width 48 and after
    more than 128 at 96; the last budget is far beyond.
    """
    return 8, 32, width**2 // 18


class Config(lab.Config):
    """Sizes and seeds."""

    seed: int = lab.config.root_seed(
        4, help="root of all randomness; points, lengths and budgets were set on other samples"
    )
    widths: tuple[int, ...] = lab.config.sizes(48, least=24, help="rows and columns of W")
    lengths: tuple[float, ...] = lab.config.grid(
        *(2.0**-k for k in range(8, -2, -1)),
        help="fixed Frobenius norms of steps over the target's, the best found on separate seeds",
    )
    seeds: int = lab.config.seeds(
        18,
        least=TUNED + 2,
        help="samples of target and data, of which 6 choose the lengths of the steps",
    )


def train(
    lengths: tuple[float, ...], key: Key[Array, ""], width: int, point: Array
) -> dict[str, Array]:
    """The log of the loss over the first, for every optimizer, step length and budget."""
    alpha, beta = (
        jnp.array(exponents)[point.astype(int)] for exponents in zip(*POINTS.values(), strict=True)
    )
    eigenvalues, basis = (
        power_law(width, alpha),
        orthonormal(sizes.stream(key, "basis"), width, width),
    )
    target = (
        jax.random.normal(sizes.stream(key, "target"), (width, width))
        * jnp.sqrt(power_law(width, beta))[None, :]
    )
    steps = budgets(width)
    keys = jax.random.split(sizes.stream(key, "batches"), steps[-1])

    def losses(optimizer: str, length: Array) -> Float[Array, " budgets"]:
        norm = width**0.5 if optimizer == SVD else float(width)
        rate = length * jnp.linalg.norm(target) / norm

        def step(error: Array, key: Key[Array, ""]) -> tuple[Array, Array]:
            g = gradient(key, error, eigenvalues, PER_WIDTH * width)
            error = error - rate * direction(g, optimizer, basis)
            return error, loss(error, eigenvalues)

        path = jax.lax.scan(step, -target, keys)[1]
        return jnp.log(path[jnp.array(steps) - 1] / loss(target, eigenvalues))

    found = [
        jax.vmap(lambda length, name=name: losses(name, length))(jnp.array(lengths))
        for name in OPTIMIZERS
    ]
    return {"log_loss": jnp.stack(found)}


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """All trainings, from W = 0."""
    over: Over = {
        "width": sweep.widths(*config.widths),
        "point": sweep.values(*map(float, range(len(POINTS)))),
    }
    found = lab.seeded_sweep(key, "trainings", partial(train, config.lengths), config.seeds, **over)
    found = found.assign_coords(point=list(POINTS))
    return sweep.labelled(
        found,
        "optimizer",
        "length",
        "budget",
        optimizer=OPTIMIZERS,
        length=list(config.lengths),
        budget=BUDGETS,
    )


states = lab.Statements()
EXCHANGED = exchange("optimizer", *OPTIMIZERS)
# Who is ahead is of a sign, which half of a lead has too: so the attack is a lead of zero.
POLAR_AHEAD = EXCHANGED | lab.controls.without_lead("optimizer", SVD, SIGN)
SIGNS_AHEAD = EXCHANGED | lab.controls.without_lead("optimizer", SIGN, SVD)


def best(data: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Losses of the last seeds at the lengths that are best for the first, and the indices."""
    log_loss = data["log_loss"]
    places = log_loss.isel(seed=slice(TUNED)).mean("seed").argmin("length")
    return log_loss.isel(seed=slice(TUNED, None)).isel(length=places).drop_vars("length"), places


def leads(data: xr.Dataset, first: str, second: str, **where: str) -> lab.Relation:
    """Judge that one optimizer has a lower loss than another, at best lengths, width by width."""
    losses, places = (part.sel(where, drop=True) for part in best(data))
    lower, higher = (
        losses.sel(optimizer=name, drop=True).rename(f"log loss of {name}")
        for name in (first, second)
    )
    return lab.within_grid(lab.ahead(higher, lower, least=0), places, data["length"].size)


WIDER = (
    "The grid of step lengths was widened, and six samples choose the length where three did, after"
    " runs had been seen; judged on fresh samples."
)


@states("phase-signsgd", controls=SIGNS_AHEAD, post_hoc=WIDER)
def signs_ahead(config: Config, data: xr.Dataset) -> lab.Relation:
    """At α = 0.5 and β = 3 SignSGD has the lower loss at every width and budget."""
    return leads(data, SIGN, SVD, point="SignSGD")


@states("phase-signsvd", controls=POLAR_AHEAD, post_hoc=WIDER)
def polar_factors_ahead(config: Config, data: xr.Dataset) -> lab.Relation:
    """At α = 2 and β = 0 SignSVD has the lower loss at every width and budget."""
    return leads(data, SVD, SIGN, point="SignSVD")


@states("phase-trade-off", controls=SIGNS_AHEAD, post_hoc=WIDER)
def signs_ahead_early(config: Config, data: xr.Dataset) -> lab.Relation:
    """At α = 1.25 and β = 1.5 SignSGD has the lower loss after 8 steps, at every width."""
    return leads(data, SIGN, SVD, point="trade-off", budget="early")


@states(
    "phase-trade-off",
    controls=POLAR_AHEAD,
    post_hoc=(
        "After 128 steps at every width at first, where at 96 SignSGD was still ahead; judged on"
        " fresh samples."
    ),
)
def polar_factors_ahead_late(config: Config, data: xr.Dataset) -> lab.Relation:
    """There SignSVD has the lower loss after n²/18 steps, at every width n: 128 at 48, 512 at
    96.
    """
    return leads(data, SVD, SIGN, point="trade-off", budget="late")


def doubled(optimizer: str) -> dict[str, lab.Control]:
    """A control with twice the losses of one optimizer."""

    def change(data: xr.Dataset) -> xr.DataArray:
        return data["log_loss"] + math.log(2) * (data["optimizer"] == optimizer)

    return {f"twice the loss of {optimizer}": lab.controls.replacing("log_loss", change)}


@states(
    "isotropic",
    controls={
        "α = 2": lab.controls.changing(
            lambda data: lab.controls.at_labels(data, "point", {"isotropic": "SignSVD"})
        ),
        **doubled(SIGN),
        **doubled(SVD),
    },
    post_hoc=WIDER,
)
def within_a_constant(config: Config, data: xr.Dataset) -> lab.Relation:
    """With isotropic data the two losses are within a factor of 1.5 of each other, at every width
    and budget.
    """
    losses, places = (part.sel(point="isotropic", drop=True) for part in best(data))
    ratio = (losses.sel(optimizer=SIGN) - losses.sel(optimizer=SVD)).rename(
        "log ratio of the losses"
    )
    return lab.within_grid(
        lab.near(ratio, 0.0, math.log(CONSTANT), f"a factor of {CONSTANT:g}"),
        places,
        data["length"].size,
    )


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot the ratio of the two losses by budget, at every point and the largest width."""
    drawn = Figure(figsize=(7.2, 4.6), layout="constrained")
    axes = drawn.subplots()
    steps = budgets(config.widths[-1])
    losses = best(data)[0].isel(width=-1).assign_coords(budget=list(steps))
    ratio = xr.ufuncs.exp(
        losses.sel(optimizer=SIGN, drop=True) - losses.sel(optimizer=SVD, drop=True)
    )
    named = {name: f"α = {alpha:g}, β = {beta:g}" for name, (alpha, beta) in POINTS.items()}
    draw_curves(axes, ratio, "budget", "point", named.__getitem__)
    log_axes(axes, steps)
    axes.axhline(1, color="black", linewidth=0.8)
    for place, text in ((0.97, "SignSVD ahead"), (0.03, "SignSGD ahead")):
        axes.text(
            0.02,
            place,
            text,
            transform=axes.transAxes,
            va="top" if place > 0.5 else "bottom",
            style="italic",
        )
    axes.set(
        xlabel="budget, in steps",
        ylabel="loss of SignSGD / loss of SignSVD",
        title=f"Who is ahead depends on data and target exponents (n = {config.widths[-1]})",
    )
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


EXPERIMENT = lab.Experiment(
    "field-phases",
    ledger("field"),
    title=(
        "SignSGD is ahead with flat data and steep targets, SignSVD with steep data and flat"
        " targets; between they cross"
    ),
    summary=(
        "Least squares with power laws in the covariance and the target, each optimizer with the"
        " best fixed step for each budget. All three phases of the paper are found, and the two"
        " match with isotropic data."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"lengths": (0.015625, 0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0), "seeds": 16},
        "smoke": {"widths": (24,), "seeds": 8},
        "paper": {"widths": (48, 96)},
    },
    figure=figure,
)
