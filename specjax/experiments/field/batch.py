"""Paquette et al. 2026, arXiv 2605.09552 (“Phases of Muon”): its preconditioner by batch size."""

from itertools import accumulate, pairwise

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.field.bilinear import (
    MUON,
    SGD,
    SIGN,
    SIGN_DIAGONAL,
    SVD,
    direction,
    gradient,
    power_law,
)
from specjax.experiments.field.controls import exchange
from specjax.experiments.field.mode_exponents import edges, exponents
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, MARKERS
from specjax.models.factorization_spectra import orthonormal
from specjax.sweep.axes import Over

OPTIMIZERS = [SVD, MUON, SIGN, SIGN_DIAGONAL, SGD]
SAMPLED = {"n/8": (0.125, 64), "n": (1, 8), "4n": (4, 4), "16n": (16, 2)}
"""Batches over n, and the number averaged: smaller batches have more noise."""
SMALL, LARGE, ALL = "n/8", "4n", "all data"
BATCHES = [*SAMPLED, ALL]
EIGHTH, QUARTER = (
    (1 / 8, "half way to the next quarter power"),
    (
        1 / 4,
        "half way to the square root",
    ),
)


class Config(lab.Config):
    """Sizes, exponents and seeds."""

    seed: int = lab.config.root_seed(
        1, help="root of all randomness; bounds were set on other samples"
    )
    widths: tuple[int, ...] = lab.config.sizes(
        32, 48, 64, least=16, points=2, help="rows and columns of W, multiples of 16"
    )
    alphas: tuple[float, ...] = lab.config.numbers(
        0.75, 1.5, above=0, help="exponents of the eigenvalues of the covariance"
    )
    seeds: int = lab.config.seeds(32, help="samples of the target")

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(width % 16 for width in self.widths):
            raise ValueError(f"widths needs multiples of 16, got {self.widths}.")


def response(key: Key[Array, ""], width: int, alpha: Array) -> dict[str, Array]:
    """Mean step of each optimizer along the error, over its norm, by part of modes and batch."""
    eigenvalues, basis = (
        power_law(width, alpha),
        orthonormal(sizes.stream(key, "basis"), width, width),
    )
    error = jax.random.normal(sizes.stream(key, "target"), (width, width))

    def along(g: Float[Array, "n n"]) -> Float[Array, "optimizers parts"]:
        inner = jnp.stack(
            [jnp.sum(direction(g, name, basis) * error, axis=0) for name in OPTIMIZERS]
        )
        norms, parts = jnp.sum(error**2, axis=0), [slice(*cut) for cut in pairwise(edges(width))]
        return jnp.stack(
            [jnp.sum(inner[:, part], axis=1) / jnp.sum(norms[part]) for part in parts], axis=1
        )

    def sampled(name: str, ratio: float | int, samples: int) -> Float[Array, "samples n n"]:
        keys = jax.random.split(sizes.stream(key, name), samples)
        return jax.lax.map(
            lambda key: gradient(key, error, eigenvalues, round(ratio * width)), keys
        )

    gradients = [sampled(name, *of) for name, of in SAMPLED.items()]
    gradients.append((error * eigenvalues[None, :])[None])
    # One program for all gradients: each optimizer is compiled once.
    found = jax.lax.map(along, jnp.concatenate(gradients))
    ends = list(accumulate(len(part) for part in gradients))
    return {"response": jnp.stack([jnp.mean(part, axis=0) for part in jnp.split(found, ends[:-1])])}


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """The responses at every width and exponent."""
    over: Over = {"width": sweep.widths(*config.widths), "alpha": sweep.values(*config.alphas)}
    found = lab.seeded_sweep(key, "responses", response, config.seeds, **over)
    return sweep.labelled(found, "batch", "optimizer", "part", batch=BATCHES, optimizer=OPTIMIZERS)


states = lab.Statements()


ROOTS = {"the inverse": 0.0, "its power 3/4": 0.25, "its power 1/4": 0.75, "none": 1.0}
"""Exponents q of preconditioners other than the square root."""
SMALLER = {
    "a batch of n/8": lab.controls.changing(
        lambda data: lab.controls.at_labels(data, "batch", {LARGE: SMALL})
    )
}


@states(
    "square-root",
    rivals=ROOTS,
    controls=SMALLER | exchange("optimizer", SVD, SGD) | exchange("optimizer", SVD, SIGN),
)
def square_root(config: Config, data: xr.Dataset) -> lab.Relation:
    """With batches of 4n the mean step of SignSVD is the error times K^q with q = 1/2, to 1/8, at
    every width and exponent.
    """
    return lab.near(exponents(data, SVD, LARGE), 0.5, *EIGHTH)


@states("square-root", rivals=ROOTS, controls=SMALLER | exchange("optimizer", MUON, SGD))
def square_root_of_muon(config: Config, data: xr.Dataset) -> lab.Relation:
    """So is that of Muon's 5 Newton–Schulz steps."""
    return lab.near(exponents(data, MUON, LARGE), 0.5, *EIGHTH)


@states("small-batch", rivals={"the square root": -0.5}, controls=exchange("batch", SMALL, LARGE))
def as_descent(config: Config, data: xr.Dataset) -> lab.Relation:
    """With batches of n/8 its q is that of SGD on the same batches, to 1/4, in the modes beyond
    half of the batch's size.
    """
    beyond = slice(1, None)
    less = exponents(data, SVD, SMALL, beyond) - exponents(data, SGD, SMALL, beyond)
    return lab.near(less.rename("q of SignSVD less that of SGD"), 0.0, *QUARTER)


@states(
    "no-preconditioning",
    rivals={"the square root": 0.5},
    controls=exchange("optimizer", SIGN, SVD),
)
def none_by_signs(config: Config, data: xr.Dataset) -> lab.Relation:
    """SignSGD in a generic basis has q = 1, to 1/4, at every batch: it performs no preconditioning
    and has no transition.
    """
    return lab.near(exponents(data, SIGN, BATCHES), 1.0, *QUARTER)


@states(
    "diagonal-covariance",
    controls=exchange("optimizer", SIGN, SIGN_DIAGONAL)
    | lab.controls.without_lead("optimizer", SIGN_DIAGONAL, SIGN),
)
def signs_in_the_eigenbasis(config: Config, data: xr.Dataset) -> lab.Relation:
    """In the eigenbasis of the covariance SignSGD does precondition: with batches of 4n q is below
    3/4.
    """
    return lab.below(
        exponents(data, SIGN_DIAGONAL, LARGE), 0.75, "half way from none to the square root"
    )


@states(
    "all-data",
    rivals={"the square root": 0.5, "none": 1.0},
    controls=exchange("batch", ALL, LARGE) | exchange("optimizer", SVD, SGD),
)
def inverse(config: Config, data: xr.Dataset) -> lab.Relation:
    """On the exact gradient SignSVD has q = 0, to 1/4: beyond the window of the square root it is
    the inverse preconditioner.
    """
    return lab.near(exponents(data, SVD, ALL), 0.0, *QUARTER)


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot the exponents by batch at every width, at the largest α."""
    drawn = Figure(figsize=(7.6, 4.6), layout="constrained")
    axes = drawn.subplots()
    for name, color in zip((SIGN, SVD), COLORS, strict=False):
        found = exponents(data, name, BATCHES).isel(alpha=-1)
        for width, marker in zip(config.widths, MARKERS, strict=False):
            mean, stderr = sweep.mean_and_stderr(found.sel(width=width))
            label = f"{name}, n = {width}"
            axes.errorbar(
                BATCHES,
                mean,
                2 * stderr,
                fmt=marker + "-",
                color=color,
                linewidth=1,
                capsize=2,
                label=label,
            )
    for q, text in ((0.0, "inverse"), (0.5, "square root"), (1.0, "none")):
        axes.axhline(q, color="black", linewidth=0.8, linestyle=":")
        axes.text(len(BATCHES) - 0.85, q, text, va="bottom", fontsize="small")
    axes.set(
        xlabel="batch, in units of the width n",
        ylabel="q: the mean step is error · $K^q$",
        xlim=(-0.3, len(BATCHES) - 0.1),
        title=(
            "SignSVD preconditions by the square root near batches of 4 n (α ="
            f" {max(config.alphas):g})"
        ),
    )
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


EXPERIMENT = lab.Experiment(
    "field-batch",
    ledger("field"),
    title=(
        "Muon is a square-root preconditioner with batches near four times the width, gradient"
        " descent below and the inverse above"
    ),
    summary=(
        "Least squares with a power law in the covariance. With batches of a few times the width"
        " the mean step of SignSVD and of Muon is that of gradient descent with the square root of"
        " the covariance; smaller batches leave the small modes to plain gradient descent, and"
        " exact gradients give the inverse. SignSGD preconditions only in the eigenbasis of the"
        " covariance."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 24, "widths": (32, 48)},
        "smoke": {"widths": (16, 32), "seeds": 6},
        "paper": {"widths": (32, 64, 128, 256), "seeds": 64},
    },
    figure=figure,
)
