"""Lemma 10 and eqs. 54, 55 and 158: the first step of Muon, and gradients near a root."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.preconditioning import runs
from specjax.linalg import singular_values, svd
from specjax.models import matrix_factorization
from specjax.models.factorization_spectra import orthonormal

RANK = 2
RARE, CONSTANT = 0.005, 1 / 200
"""The probability at which Lemma 10 allows a smaller singular value, and a c: P(√k σ_min ≤ t) ≤ t
for a square Gaussian matrix (Edelman 1988).
"""
NEAR, LOW, HIGH = 0.25, 21 / 16, 45 / 16
"""|d| over √λ in (158), and |2 + 3x + x²| at x = -1/4 and 1/4."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Dimensions and numbers of samples."""

    seed: int = lab.config.root_seed(
        4, help="root of all randomness; rules were set on the seeds 3 and 103"
    )
    dims: tuple[int, ...] = lab.config.sizes(8, 16, 32, least=4, help="dimensions d")
    alpha: float = lab.config.number(1e-4, above=0, help="α, the scale of the start")
    seeds: int = lab.config.seeds(40_000, least=64, help="samples of Lemma 10 at each d")
    starts: int = lab.config.seeds(1000, help="starts of (54) and points of (158)")


def problem(key: Key[Array, ""], d: int, k: int) -> tuple[Array, Array]:
    """M of rank 2 with the eigenvalues 1 and 1/2, and V of k orthonormal columns."""
    basis = orthonormal(sizes.stream(key, "M"), d, RANK)
    v = orthonormal(sizes.stream(key, "V"), d, k)
    return (basis * jnp.array([[1.0, 0.5]])) @ basis.T, v


def sample_start(key: Key[Array, ""], d: int) -> dict[str, Array]:
    """σ_2(M V) at k = 2 over λ_2/√(dk), and over λ_2."""
    m, v = problem(key, d, RANK)
    s = singular_values(m @ v)[RANK - 1] / 0.5
    return {"in units": s * (d * RANK) ** 0.5, "alone": s}


def sample_first(key: Key[Array, ""], k: int, config: Config) -> dict[str, Array]:
    """The distance of the first iterate from the auxiliary start, over α."""
    d = 6
    m, v = problem(key, d, k)
    gradient = matrix_factorization.gradient(config.alpha * v, m)
    first = config.alpha * v - spectral.polar(gradient)
    u, s, wt = svd(m @ v)
    left, right = u[:, :RANK], wt[:RANK]
    rest = -(gradient - left @ (left.T @ gradient))
    rest = rest - rest @ right.T @ right
    # Its rank is k - 2, and what rounding leaves of the others is no direction.
    a, _, bt = svd(rest)
    completion = a[:, : k - RANK] @ bt[: k - RANK]
    auxiliary = left @ right + completion
    apart = spectral.spectral_norm(first - auxiliary) / config.alpha
    alone = spectral.spectral_norm(first - left @ right) / config.alpha
    return {"apart": apart, "without": alone, "rank": s[RANK - 1] / s[0]}


def sample_near(key: Key[Array, ""], kappa: Array) -> dict[str, Array]:
    """Eigenvalues of the gradient over λ_i |d_i|, at d_i up to √λ_i/4, or twice as far."""
    roots = jnp.stack([jnp.ones(()), kappa**-0.5])
    basis = jnp.array([[1.0, 1.0], [1.0, -1.0]]) / jnp.sqrt(2.0)
    share = jax.random.uniform(key, (2,), minval=-1.0)
    # The ends are among the samples.
    cases = jnp.stack([share, jnp.ones(2), -jnp.ones(2)])

    def ratios(share: Array, far: float) -> Array:
        apart = far * NEAR * share * roots
        x, m = (basis @ jnp.diag(of) @ basis for of in (roots + apart, roots**2))
        found = jnp.diag(basis @ matrix_factorization.gradient(x, m) @ basis)
        return found / (roots**2 * apart)

    return {
        name: jax.vmap(lambda share, far=far: ratios(share, far))(cases)
        for name, far in {"near": 1.0, "far": 2.0}.items()
    }


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Samples of the three bounds, in float64."""

    def swept(name: str, measure: Callable[..., Any], seeds: int, **over: Any) -> xr.Dataset:
        return lab.seeded_sweep(key, name, measure, seeds, **over)

    with jax.enable_x64(True):
        return {
            "start": swept("start", sample_start, config.seeds, d=sweep.choices(*config.dims)),
            "first": swept(
                "first",
                partial(sample_first, config=config),
                config.starts,
                k=sweep.choices(2, 3, 4),
            ),
            "near": swept("near", sample_near, config.starts, kappa=sweep.values(1.0, 100.0)),
        }


states = lab.Statements()


def multiply_start(factor: float) -> lab.Control:
    return lab.controls.replacing("in units", lambda data: factor * data["in units"], of="start")


@states(
    "lemma-10",
    controls={
        "without √(dk)": lab.controls.replacing("in units", "alone", of="start"),
        "c of 1/100": multiply_start(0.5),
        "√(d/8) smaller": lab.controls.replacing(
            "in units", lambda data: data["in units"] * np.sqrt(8 / data.d), of="start"
        ),
    },
)
def smallest_of_start(config: Config, data: Data) -> lab.Relation:
    """At k = r = 2 σ_r(M V) is below c λ_r/√(dk) in less than 0.5 % of all V with c = 1/200, the
    number of square Gaussian matrices, at every d.
    """
    below = (data["start"]["in units"] < CONSTANT).astype(float).rename("below c λ_r/√(dk)")
    return lab.below(below, RARE, "0.5 %")


@states(
    ("eq-54", "eq-55"),
    controls={"without H": lab.controls.replacing("apart", "without", of="first")}
    | {
        "twice the distance": lab.controls.replacing(
            "apart", lambda data: 2.1 * data["apart"], of="first"
        )
    },
    post_hoc=(
        "The bound was asked of every sample first; one in 1000 of the root seed 3 had M V of rank"
        " nearly 1. Judged on fresh samples."
    ),
)
def first_iterate(config: Config, data: Data) -> lab.Relation:
    """The first iterate is farther than 2α from the auxiliary start for less than 1 % of V, for k
    from 2 to 4.
    """
    beyond = (data["first"]["apart"] > 2).astype(float).rename("beyond 2α")
    return lab.below(beyond, 0.01, "1 %")


FAR = {"twice as far": lab.controls.replacing("near", "far", of="near")}


@states("eq-158", controls=FAR)
def not_more(config: Config, data: Data) -> lab.Relation:
    """With |d_i| ≤ √λ_i/4 the eigenvalues of the gradient are at most 45/16 λ_i |d_i|, which is
    reached.
    """
    return lab.inequality(data["near"]["near"], xr.DataArray(HIGH), slack=0.01, rounding=1e-9)


@states("eq-158", controls=FAR)
def not_less(config: Config, data: Data) -> lab.Relation:
    """They are at least 21/16 λ_i |d_i|, which is reached, and have the sign of d_i."""
    return lab.inequality(
        xr.DataArray(LOW) + 0 * data["near"]["near"],
        data["near"]["near"],
        slack=0.01,
        rounding=1e-9,
    )


EXPERIMENT = lab.Experiment(
    "preconditioning-bounds",
    runs.LEDGER,
    title="The first step of Muon, and gradients near a root",
    summary="The bounds hold with the measured constants.",
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"dims": (4, 8), "seeds": 4000, "starts": 20},
        "paper": {"dims": (8, 16, 32, 64), "seeds": 200_000, "starts": 4000},
    },
)
