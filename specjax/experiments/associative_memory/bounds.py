"""Lemmas F.2, F.4, G.1, G.3, G.4, H.3, H.4 and H.8, Proposition F.9 and eq. 24.

Where a bound has a constant, the bound is judged with what reaches it. Where it has none, the order
of what it bounds is, as an exponent, and of Lemmas G.4 and H.4 the variance.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, spectral, sweep
from specjax.experiments.associative_memory import item_counts
from specjax.experiments.associative_memory.lemmas import NEAREST, has_exponent
from specjax.linalg import eigvalsh
from specjax.models import associative_memory as memory

SERIES = {"G^(1/2)": 0.5, "G^(-1/2)": -0.5, "G^(-1)": -1.0}
CASES = ("random", "near zero")
MATRIX = np.array([[2.0, 1.0, 0.0], [1.0, -1.0, 1.0], [0.0, 1.0, 2.0]])
"""The fixed matrix of Lemmas G.4 and H.4, with ‖A‖² = 13 and tr(A) = 3."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Dimensions, items and numbers of samples."""

    seed: int = lab.config.root_seed(5, help="root of all randomness")
    dims: tuple[int, ...] = lab.config.sizes(
        36, 64, 144, 256, least=4, points=3, help="dimensions d"
    )
    many: int = lab.config.integer(20_000, least=2, help="items of which batches are drawn")
    batches: tuple[int, ...] = lab.config.sizes(
        30, 100, 300, 1000, points=3, most=lab.config.MOST_COUNT, help="samples B of a batch"
    )
    radii: tuple[float, ...] = lab.config.numbers(
        0.1, 0.25, 0.5, above=0, help="ρ of Lemma F.4, below 1"
    )
    alpha: float = lab.config.number(1.5, above=1, help="exponent of the frequencies")
    seeds: int = lab.config.seeds(150, least=10, help="samples at each point")
    averaged: int = lab.config.seeds(100_000, least=64, help="samples of Lemmas G.4 and H.4")

    def __post_init__(self) -> None:
        super().__post_init__()
        if max(self.radii) >= 1:
            raise ValueError(f"radii must be below 1, where the series converge, got {self.radii}.")


def sample_norms(key: Key[Array, ""], d: int, config: Config) -> dict[str, Array]:
    """Norms at 2d items, with the first gradient, its centering, and the tail beyond d."""
    of_u, of_v, of_z = jax.random.split(key, 3)
    n, r = 2 * d, round(d**0.5)
    u, v = memory.isotropic(of_u, n, d), memory.isotropic(of_v, n, d)
    p = memory.power_law(n, config.alpha)
    center, mean = jnp.mean(u, 0), v.T @ p
    gram, z = u[:r] @ u[:r].T, jax.random.normal(of_z, (d, d))
    beyond = jnp.where(jnp.arange(n) >= d // 4, p, 0)
    roots = 2 * d**0.5
    return {
        "centering": jnp.linalg.norm(center) * jnp.linalg.norm(mean),
        "logit": jnp.max(abs(u @ center)) * jnp.max(abs(v @ mean)),
        "gram": jnp.max(abs(eigvalsh(gram - jnp.eye(r)))),
        "tail": jnp.linalg.norm(u.T @ (v * beyond[:, None])),
        "gaussian": jnp.stack(
            [spectral.spectral_norm(z) / roots, jnp.linalg.norm(z[:, 0]) / (d**0.5 + 1)]
        ),
    }


def sample_distinct(key: Key[Array, ""], drawn: int, config: Config) -> dict[str, Array]:
    p = memory.power_law(config.many, config.alpha)
    return {"distinct": jnp.sum(memory.minibatch(key, p, drawn) > 0).astype(float)}


def binomial(power: float, k: int) -> float:
    """The coefficient of x^k in (1 + x)^power."""
    return math.prod(((power - i) / (i + 1) for i in range(k)), start=1.0)


def sample_series(key: Key[Array, ""], rho: Array, terms: int) -> dict[str, Array]:
    """Errors of the series at I + E with ‖E‖ = ρ, over ρ^(K+1), for E random and -ρ I."""
    e = jax.random.normal(key, (3, 3))
    values = eigvalsh(e + e.T)
    eigenvalues = jnp.stack([rho * values / jnp.max(abs(values)), -rho * jnp.ones(3)])

    def error(power: float) -> Array:
        series = sum(binomial(power, k) * eigenvalues**k for k in range(terms + 1))
        return jnp.max(abs((1 + eigenvalues) ** power - series), axis=1) / rho ** (terms + 1)

    found = jnp.stack([error(power) for power in SERIES.values()])
    return {"series": found, "over": found * (1 - rho)}


def sample_maps(key: Key[Array, ""], d: int) -> dict[str, Array]:
    """‖h_λ(A) - h_λ(B)‖ λ/‖A - B‖ for random A and B, and for a pair near zero."""
    a, b = jax.random.normal(key, (2, d, d))
    lam = 0.3

    def ratio(a: Array, b: Array, h: Callable[[Array], Array]) -> Array:
        apart = spectral.spectral_map(a, h) - spectral.spectral_map(b, h)
        return lam * spectral.spectral_norm(apart) / spectral.spectral_norm(a - b)

    def smooth(z: Array) -> Array:
        return z / jnp.sqrt(z**2 + lam**2)

    pairs = ((a, b), (1e-3 * a, 1e-3 * b))
    return {
        name: jnp.stack([ratio(*pair, h) for pair in pairs])
        for name, h in {"h_λ": smooth, "polar": lambda z: jnp.ones_like(z)}.items()
    }


def sample_forms(key: Key[Array, ""], d: int) -> dict[str, Array]:
    """Squares of u·A v and of u·A u less its mean, with A in a corner of d × d entries."""
    u, v = jax.random.normal(key, (2, 3))
    a = jnp.asarray(MATRIX, float)
    return {"uAv": (u @ a @ v) ** 2 / d**2, "uAu": (u @ a @ u - jnp.trace(a)) ** 2 / d**2}


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Samples of every bound."""

    def swept(name: str, measure: Callable[..., Any], **over: Any) -> xr.Dataset:
        return lab.seeded_sweep(key, name, measure, config.seeds, **over)

    norms = swept("norms", partial(sample_norms, config=config), d=sweep.choices(*config.dims))
    distinct = swept(
        "distinct",
        partial(sample_distinct, config=config),
        drawn=sweep.choices(*config.batches),
    )
    with jax.enable_x64(True):
        series = swept(
            "series",
            sample_series,
            rho=sweep.values(*config.radii),
            terms=sweep.choices(1, 2, 4),
        )
        maps = swept("maps", sample_maps, d=sweep.choices(2, 4))
    forms = lab.seeded_sweep(key, "forms", sample_forms, config.averaged, d=sweep.choices(4, 8))
    return {
        "norms": sweep.labelled(norms, "matrix", matrix=["identity", "one row"]),
        # The exponent is fitted along "d".
        "distinct": distinct.rename(drawn="d"),
        "series": sweep.labelled(
            series, "root", "case", root=list(SERIES), case=["random", "-ρ I"]
        ),
        "maps": sweep.labelled(maps, "case", case=list(CASES)),
        "forms": forms,
    }


states = lab.Statements()


def order(cites: str, name: str, quantity: str, expected: float, within: float, says: str) -> None:
    """That a quantity has an exponent of d."""
    controls = item_counts.shift_exponents(2 * within, "norms", quantity, "d^({:+}) times it")

    @states(cites, says, name=name, controls=controls)
    def _(config: Config, data: Data) -> lab.Relation:
        return has_exponent(data["norms"][quantity], expected, within)


order(
    "lemma-f-2",
    "gram-of-embeddings",
    "gram",
    -0.25,
    NEAREST / 2,
    "At r = √d the Gram matrix of r embeddings is d^(-1/4) = √(r/d) from the identity, to 1/8.",
)
order(
    "eq-24",
    "centering",
    "centering",
    -0.5,
    NEAREST,
    "At N = 2d centering changes the first gradient by a norm of order d^(-1/2) = 1/√N, to 1/4.",
)
order(
    "lemma-g-1",
    "centered-logit",
    "logit",
    -1.0,
    NEAREST,
    "At N = 2d centering changes no logit of the SGD step by more than order 1/d, to 1/4.",
)


@states(
    "lemma-h-8", controls=item_counts.shift_exponents(0.5, "norms", "tail", "d^({:+}) times it")
)
def thresholded_norm(config: Config, data: Data) -> lab.Relation:
    """At d_t = d/4 the gradient beyond d_t has a norm of order d_t^(1/2-α), to 1/4: without the
    logarithm of the bound.
    """
    return has_exponent(data["norms"]["tail"], 0.5 - config.alpha, NEAREST)


@states(
    "lemma-g-3",
    controls=item_counts.shift_exponents(0.25, "distinct", "distinct", "B^({:+}) times it"),
)
def distinct_items(config: Config, data: Data) -> lab.Relation:
    """The number of distinct items grows as B^(1/α), to 1/8."""
    return has_exponent(data["distinct"]["distinct"], 1 / config.alpha, NEAREST / 2)


def multiply_norms(factor: float) -> lab.Control:
    return lab.controls.replacing("gaussian", lambda data: factor * data["gaussian"], of="norms")


@states(
    "lemma-h-3",
    controls={
        "nine tenths of it": multiply_norms(1 / 0.9),
        "half of it": multiply_norms(2.0),
    },
)
def gaussian_product(config: Config, data: Data) -> lab.Relation:
    """The mean of ‖Z A‖_op is below ‖A‖_F + √d ‖A‖_op, for the identity and for one row."""
    return lab.below(data["norms"]["gaussian"], 1.0, "‖A‖_F + √d ‖A‖_op")


def ratio(data: Data, quantity: str, slack: float) -> lab.Relation:
    return lab.inequality(data["series"][quantity], xr.DataArray(1.0), slack=slack, rounding=1e-9)


@states(
    "lemma-f-4",
    controls={
        "over 1 - ρ": lab.controls.replacing("series", "over", of="series"),
    },
    holds=False,
)
def series_as_printed(config: Config, data: Data) -> lab.Relation:
    """The series of three roots, cut after K terms, are off by at most ρ^(K+1)."""
    return ratio(data, "series", 0.05)


@states(
    "lemma-f-4",
    controls={
        "ρ^(K+1)": lab.controls.replacing("over", "series", of="series"),
        "ρ^(K+1)/√(1 - ρ)": lab.controls.replacing(
            "over", lambda data: data["series"] * np.sqrt(1 - data.rho), of="series"
        ),
    },
    corrected=True,
)
def series(config: Config, data: Data) -> lab.Relation:
    """They are off by at most ρ^(K+1)/(1 - ρ), which the inverse of (1 - ρ) I reaches."""
    return ratio(data, "over", 0.05)


@states(
    "proposition-f-9",
    controls={
        "half of 1/λ": lab.controls.replacing("h_λ", lambda data: 2 * data["h_λ"], of="maps"),
        "polar factors": lab.controls.replacing("h_λ", "polar", of="maps"),
    },
)
def lipschitz(config: Config, data: Data) -> lab.Relation:
    """‖h_λ(A) - h_λ(B)‖_op is at most ‖A - B‖_op/λ, which small A and B reach."""
    return lab.inequality(data["maps"]["h_λ"], xr.DataArray(1.0), slack=0.01, rounding=1e-9)


def variance(cites: str, name: str, quantity: str, factor: float, says: str) -> None:
    def form(data: Data, times: float) -> xr.DataArray:
        return times * np.sum(MATRIX**2) / data["forms"].d ** 2.0

    @states(
        cites,
        says,
        name=name,
        rivals={
            called: lambda config, data, other=other: form(data, factor * other)
            for called, other in {"half of it": 0.5, "twice it": 2.0}.items()
        },
    )
    def _(config: Config, data: Data) -> lab.Relation:
        return lab.equals(data["forms"][quantity], form(data, factor))


variance("lemma-h-4", "variance-of-pairs", "uAv", 1.0, "The variance of uᵀ A v is ‖A‖_F²/d².")
variance(
    "lemma-g-4",
    "variance-of-forms",
    "uAu",
    2.0,
    "The variance of uᵀ A u is 2 ‖A‖_F²/d² for a symmetric A.",
)

EXPERIMENT = lab.Experiment(
    "memory-bounds",
    item_counts.LEDGER,
    title="Bounds on norms, series and batches",
    summary=(
        "All have their orders; the series of an inverse, cut after K terms, is off by"
        " ρ^(K+1)/(1 - ρ), not by ρ^(K+1)."
    ),
    config=Config,
    measure=run,
    statements=states,
    figure=("gram-of-embeddings", "distinct-items", "series-as-printed", "lipschitz"),
    scales={
        "smoke": {"dims": (16, 36, 64), "seeds": 16, "averaged": 20_000},
        "paper": {"dims": (64, 144, 256, 400), "seeds": 400, "averaged": 1_000_000},
    },
)
