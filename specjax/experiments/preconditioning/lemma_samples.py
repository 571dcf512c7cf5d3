"""Samples for Lemmas 17 to 22: pairs of matrices, the worst ones among them, and spectra."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.linalg import singular_values
from specjax.sizes import AnySize, active
from specjax.theory.preconditioning import perturbation

RANK, SHAPE = 2, (5, 3)
"""The rank of Lemmas 17 and 19, and a tall matrix; the others are 3 × 3."""
APART = (1e-3, 1e-2, 0.1, 1.0)
"""Distances of A and B, relative to their entries."""
ASPECT = 4
"""Rows for each column of the matrices of Lemma 20."""
COLUMNS, MORE = (1, 2), (0, 1, 2)
"""The columns K and the further rows N - K of Lemma 21."""
ROTATIONS = 181
"""Angles at which the completions of Lemma 22 are compared, on each side of O(2)."""
BENT = np.array([[0.0, -1 / 3, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, np.sqrt(8) / 3, 0.0]])
"""From [I; 0] in this direction the polar factor moves 2/√3 times as far as the matrix."""
Data = dict[str, xr.Dataset]
Pair = tuple[Array, Array]


class Config(lab.Config):
    """Numbers of pairs and of Gaussian matrices, and the columns of these."""

    seed: int = lab.config.root_seed(
        41, help="root of all randomness; rules were set on other samples"
    )
    dims: tuple[int, ...] = lab.config.sizes(
        2, 4, 16, least=2, help="columns d of the Gaussian matrices of Lemma 20"
    )
    pairs: int = lab.config.seeds(300, help="pairs of matrices at each distance")
    seeds: int = lab.config.seeds(20_000, least=64, help="Gaussian matrices of each size")
    least_seeds: int = lab.config.seeds(
        1_000_000, least=64, help="those of one and two columns, of which few are nearly singular"
    )
    drawn: int = lab.config.seeds(100, help="δ at which the tail is computed")


def haar(key: Key[Array, ""], n: int) -> Float[Array, "n n"]:
    return spectral.polar(jax.random.normal(key, (n, n)))


def turned(key: Key[Array, ""], pair: Pair) -> Pair:
    """The pair in random bases on both sides."""
    rows, columns = pair[0].shape
    left, right = haar(sizes.stream(key, "left"), rows), haar(sizes.stream(key, "right"), columns)
    return left @ pair[0] @ right, left @ pair[1] @ right


def gaussian(key: Key[Array, ""], shape: tuple[int, int], apart: Array) -> Pair:
    a, change = (jax.random.normal(sizes.stream(key, name), shape) for name in ("A", "A to B"))
    return a, a + apart * change


def flipped(shape: tuple[int, int], rank: int, apart: Array) -> Pair:
    """One singular value of 1 for A, and one of the other sign, of size `apart`, for B."""
    a = jnp.zeros(shape).at[jnp.arange(rank), jnp.arange(rank)].set(1.0)
    return a, a.at[rank - 1, rank - 1].set(-apart)


def exchanged(apart: Array) -> Pair:
    """Two singular values that are `apart`, exchanged between A and B, at the cut of Lemma 19."""
    n = SHAPE[1]
    lower, upper = 1 - apart / 2, 1 + apart / 2
    a, b = (
        jnp.zeros(n).at[:RANK].set(2.0).at[RANK - 1].set(x).at[RANK].set(y)
        for x, y in ((upper, lower), (lower, upper))
    )
    return jnp.diag(a), jnp.diag(b)


def polar_distances(pair: Pair) -> dict[str, Array]:
    """The distance of the polar factors over the bound of Lemma 18, and over parts of it."""
    a, b = pair
    moved = spectral.spectral_norm(spectral.polar(a) - spectral.polar(b))
    least = [singular_values(x)[-1] for x in pair]
    apart = spectral.spectral_norm(a - b)
    first, second = 2 * apart / sum(least), apart / jnp.maximum(*least)
    return {
        "bound": moved / perturbation.polar_operator_bound(a, b),
        "first": moved / first,
        "tenth": moved / (first + second / 10),
    }


def equal_rank(pair: Pair) -> dict[str, Array]:
    """The distance of the polar factors of best approximations over the bound of Lemma 17."""
    a, b = (perturbation.best_approximation(x, RANK) for x in pair)
    moved = jnp.linalg.norm(spectral.polar(a) - spectral.polar(b))
    return {"bound": moved / perturbation.polar_bound(a, b, RANK)}


def approximations(pair: Pair) -> dict[str, Array]:
    """The distance of best approximations over the bound of Lemma 19, and over parts of it."""
    a, b = pair
    low = [perturbation.best_approximation(x, RANK) for x in pair]
    moved, apart = (spectral.spectral_norm(x - y) for x, y in (low, pair))
    bound = perturbation.approximation_bound(a, b, RANK)
    gap_terms = bound - 3 * apart
    return {
        "bound": moved / bound,
        "without": moved / (3 * apart),
        "third": moved / (3 * apart + gap_terms / 3),
    }


def sample_pairs(key: Key[Array, ""], apart: Array) -> dict[str, Array]:
    """Ratios to the bounds for a Gaussian pair, and for the worst ones in random bases."""
    tall, square = SHAPE, (SHAPE[1], SHAPE[1])
    identity = jnp.eye(*tall)
    worst = {
        "tall": [
            (identity, identity.at[: len(BENT)].add(apart * BENT)),
            flipped(tall, tall[1], apart),
        ],
        "rank": [flipped(square, RANK, apart)],
        "low": [exchanged(apart)],
    }
    compared: dict[str, Callable[[Pair], dict[str, Array]]] = {
        "tall": polar_distances,
        "rank": equal_rank,
        "low": approximations,
    }
    found: dict[str, Array] = {}
    for name, pairs in worst.items():
        key_of = sizes.stream(key, name)
        bases = jax.random.split(sizes.stream(key_of, "bases"), len(pairs))
        drawn = gaussian(key_of, tall if name == "tall" else square, apart)
        every = [drawn, *(turned(base, pair) for base, pair in zip(bases, pairs, strict=True))]
        stacked = jax.tree.map(lambda *cases: jnp.stack(cases), *every)
        ratios = jax.vmap(compared[name])(stacked)
        found |= {f"{name}_{of}": values for of, values in ratios.items()}
    return found


def sample_completions(key: Key[Array, ""], apart: Array) -> dict[str, Array]:
    """Distances of completed orthogonal matrices over those of their first columns."""
    n, k = SHAPE[0], SHAPE[1]
    a = haar(sizes.stream(key, "first"), n)[:, :k]
    move = apart * jax.random.normal(sizes.stream(key, "A to B"), (n, k))
    b = spectral.polar(jax.lax.select(apart == APART[-1], 0 * a, a) + move)
    first, second = perturbation.matched_complements(a, b)
    norm = spectral.spectral_norm(a - b)

    def distance(complement: Array) -> Array:
        columns = jnp.concatenate([a - b, first - complement], axis=1)
        return spectral.spectral_norm(columns) / norm

    # The best turn is of the order of the distance of the columns.
    angles = jnp.minimum(3 * apart, 1) * jnp.pi * jnp.linspace(-1, 1, ROTATIONS)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)

    def sample_side(sign: float) -> Array:
        turns = jnp.stack(
            [jnp.stack([cosine, -sign * sine], 1), jnp.stack([sine, sign * cosine], 1)], 1
        )
        return jax.vmap(lambda turn: distance(second @ turn))(turns)

    every = jnp.concatenate([sample_side(1.0), sample_side(-1.0)])
    return {"matched": distance(second), "best": every.min(), "worst": every.max()}


def sample_spectra(key: Key[Array, ""], d: AnySize) -> dict[str, Array]:
    s = singular_values(sizes.normal(key, (sizes.times(d, ASPECT), d)))
    return {"largest": s[0], "smallest": s[active(d) - 1]}


def sample_least(key: Key[Array, ""], columns: int, more: int) -> dict[str, Array]:
    """σ_min over √N - √(K-1) of an N × K matrix with one or two columns."""
    n = columns + more
    x = jax.random.normal(key, (n, 2))
    if columns == 1:
        return {"least": jnp.linalg.norm(x[:, 0]) / np.sqrt(n)}
    # σ_min² is the determinant of the Gram matrix, a sum of squares of minors, over σ_max².
    minors = jnp.outer(x[:, 0], x[:, 1]) - jnp.outer(x[:, 1], x[:, 0])
    determinant = jnp.sum(minors**2) / 2
    (a, b), (_, c) = x.T @ x
    largest = (a + c) / 2 + jnp.hypot((a - c) / 2, b)
    return {"least": jnp.sqrt(determinant / largest) / (np.sqrt(n) - 1)}


def draw_tails(key: Key[Array, ""], number: int) -> xr.Dataset:
    """Logarithms of P(|g| ≥ 2 + δ) and of its bound, n = d = 1, at δ from 30 to 37."""
    delta = np.asarray(jax.random.uniform(key, (number,), minval=30.0, maxval=37.0), float)
    with jax.enable_x64(True):
        probability = np.log(2) + np.asarray(jax.scipy.special.log_ndtr(jnp.asarray(-2 - delta)))
        bound = np.log(np.asarray(perturbation.gaussian_tail(1, delta)))
    return xr.Dataset({"probability": ("seed", probability), "bound": ("seed", bound)})


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Ratios of both sides for pairs, singular values of Gaussian matrices, and exact tails."""

    def run_sweep(name: str, measure: Callable[..., dict[str, Array]]) -> xr.Dataset:
        return lab.seeded_sweep(key, name, measure, config.pairs, apart=sweep.values(*APART))

    with jax.enable_x64(True):
        pairs, completions = (
            run_sweep("pairs", sample_pairs),
            run_sweep("columns", sample_completions),
        )
    spectra = lab.seeded_sweep(
        key, "spectra", sample_spectra, config.seeds, d=sweep.widths(*config.dims)
    )
    of_size = {"columns": sweep.choices(*COLUMNS), "more": sweep.choices(*MORE)}
    least = lab.seeded_sweep(key, "least", sample_least, config.least_seeds, **of_size)
    return {
        "pairs": pairs,
        "completions": completions,
        "spectra": spectra,
        "least": least,
        "tails": draw_tails(sizes.stream(key, "tails"), config.drawn),
    }
