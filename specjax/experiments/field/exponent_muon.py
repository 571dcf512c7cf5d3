"""Ramani and Jain 2026, arXiv 2605.29387: the exponent of the loss in the width for exact Muon."""

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.field.controls import exchange, part_way
from specjax.experiments.field.power_law import (
    DESCENT,
    INPUTS,
    NATURAL,
    exchange_with_descent,
    exponent,
    lead,
    variances,
)
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import draw_curves, log_axes
from specjax.linalg import eigh
from specjax.sweep.axes import Over

STEPS, SPECTRA = 10, (1.5, 2.0)
MUON, ONE = "Muon", "Muon, one output"
SHARES = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.5, 7.0, 10.0)
"""Total lengths of Muon's steps over the solution's spectral norm; they fall linearly to zero."""
COUNTS, MOST = 0.05, 0.75
"""The smallest lead in the exponent that counts, and most of the natural gradient's lead."""


class Config(lab.Config):
    """Sizes and seeds."""

    seed: int = lab.config.root_seed(
        2, help="root of all randomness; bounds and lengths were set on other samples"
    )
    widths: tuple[int, ...] = lab.config.sizes(8, 16, 32, 64, least=4, points=4, help="features")
    seeds: int = lab.config.seeds(
        24, least=8, help="samples; the first quarter chooses the step lengths"
    )


def descend(
    solution: Float[Array, "m n"], curvatures: Float[Array, " n"], share: Array
) -> Float[Array, "m n"]:
    """The error of Muon from W = 0 along eigenvectors of H, with gradients error · curvature."""
    length = share * spectral.spectral_norm(solution)

    def step(error: Array, k: Array) -> tuple[Array, None]:
        rate = length * (STEPS - k) / (STEPS * (STEPS + 1) / 2)
        return error - rate * spectral.polar(error * curvatures[None]), None

    return jax.lax.scan(step, solution, jnp.arange(float(STEPS)))[0]


def losses(key: Key[Array, ""], n: int, outputs: int, s: Array) -> tuple[Array, Array]:
    """Losses over that of W = 0: gradient descent, natural gradient, and Muon at every length."""
    spread = variances(s, INPUTS, INPUTS)
    features = sizes.normal(sizes.stream(key, "features"), (n, INPUTS))
    target = sizes.normal(sizes.stream(key, "target"), (outputs, INPUTS))
    curvatures, vectors = eigh((features * spread[None]) @ features.T)
    solution = (target * spread[None]) @ features.T @ vectors / curvatures[None]
    start = jnp.sum(target**2 * spread[None])
    floor = start - jnp.sum(solution**2 * curvatures[None])

    def loss(error: Array) -> Array:
        return (floor + jnp.sum(error**2 * curvatures[None])) / start

    descent = solution * ((1 - curvatures / curvatures[-1]) ** STEPS)[None]
    muon = jax.vmap(lambda share: loss(descend(solution, curvatures, share)))(jnp.asarray(SHARES))
    return jnp.stack([loss(descent), floor / start]), muon


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Losses after 10 steps with N outputs, and with one."""

    def measure(key: Key[Array, ""], width: int, s: Array) -> dict[str, Array]:
        solved, muon = losses(key, width, width, s)
        return {"solved": solved, "muon": jnp.stack([muon, losses(key, width, 1, s)[1]])}

    with jax.enable_x64(True):
        over: Over = {"width": sweep.widths(*config.widths), "s": sweep.values(*SPECTRA)}
        found = sweep.run(
            measure, over, num_seeds=config.seeds, key=sizes.stream(key, "draws"), plan="exact"
        )
    found = sweep.labelled(found, "optimizer", outputs=("solved",), optimizer=[DESCENT, NATURAL])
    muon = (
        found["muon"]
        .rename(muon_dim_0="optimizer", muon_dim_1="share")
        .assign_coords(optimizer=[MUON, ONE])
    )
    first = config.seeds // 4
    place = muon.isel(seed=slice(first)).mean("seed").argmin("share")
    loss = xr.concat([found["solved"], muon.isel(share=place)], "optimizer").isel(
        seed=slice(first, None)
    )
    return xr.Dataset({"loss": loss, "place": place.rename(optimizer="tuned")})


states = lab.Statements()


def tuned(relation: lab.Relation, data: xr.Dataset, optimizer: str) -> lab.Relation:
    """The relation, unless a best length is an end of its grid."""
    return lab.within_grid(relation, data["place"].sel(tuned=optimizer, drop=True), len(SHARES))


@states(
    "exponent-muon",
    controls=exchange_with_descent(MUON) | lab.controls.without_lead("optimizer", MUON, DESCENT),
)
def muon_is_steeper(config: Config, data: xr.Dataset) -> lab.Relation:
    """With N outputs Muon's exponent after 10 steps is larger than gradient descent's by more than
    0.05, at s = 3/2 and 2, over all widths and over the three largest.
    """
    loss = data["loss"]
    parts = xr.concat(
        [exponent(loss), exponent(loss, slice(-3, None))],
        xr.Variable("part", ["all", "the three largest"]),
    )
    return tuned(lab.above(lead(parts, MUON), COUNTS, "0.05"), data, MUON)


def share_of_lead(data: xr.Dataset, optimizer: str, share: float) -> xr.DataArray:
    """The lead over gradient descent less a share of the natural gradient's."""
    exponents = exponent(data["loss"])
    return (lead(exponents, optimizer) - share * lead(exponents)).rename(
        f"lead less {share:g} of the natural gradient's"
    )


SWAPPED = exchange("optimizer", MUON, ONE)


@states("exponent-muon", controls=SWAPPED | part_way("optimizer", {MUON: DESCENT}))
def muon_has_most_of_the_lead(config: Config, data: xr.Dataset) -> lab.Relation:
    """It has more than 3/4 of the natural gradient's lead, without knowing H."""
    return tuned(lab.above(share_of_lead(data, MUON, MOST), 0.0, "3/4 of it"), data, MUON)


@states("exponent-muon-one-output", holds=False, controls=SWAPPED)
def with_one_output(config: Config, data: xr.Dataset) -> lab.Relation:
    """So has Muon with one output, where the polar factor is the gradient over its norm."""
    return tuned(lab.above(share_of_lead(data, ONE, MOST), 0.0, "3/4 of it"), data, ONE)


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot the losses by number of features, for every s."""
    drawn = Figure(figsize=(9.5, 4.2), layout="constrained")
    drawn.suptitle(
        "with N outputs Muon goes with the natural gradient, with one output as gradient descent"
    )
    for axes, s in zip(drawn.subplots(1, len(SPECTRA)), SPECTRA, strict=True):
        draw_curves(axes, data["loss"].sel(s=s, drop=True), "width", "optimizer", str)
        log_axes(axes, data.width.values)
        axes.set(xlabel="features N", title=f"variances i^-{s:g}")
    drawn.axes[0].set_ylabel(f"loss / loss of W = 0, {STEPS} steps")
    drawn.axes[0].legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-exponent-muon",
    ledger("field"),
    title=(
        "With as many outputs as features Muon has the natural gradient's exponent after ten steps"
    ),
    summary=(
        "Muon with the exact polar factor learns all eigenvectors of H at one rate. Of N outputs it"
        " keeps most of the natural gradient's lead in the exponent over gradient descent; of one"
        " output it is gradient descent with other step lengths."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"widths": (4, 8, 16, 32), "seeds": 12},
        "paper": {"widths": (8, 16, 32, 64, 128, 256), "seeds": 100},
    },
    figure=figure,
)
