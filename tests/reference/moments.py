"""Averages over Gaussian entries: exactly for polynomials, and by simulation with a standard
error.
"""

from collections.abc import Callable
from itertools import product
from math import prod

import jax
import numpy as np


def gaussian_average(
    f: Callable[..., np.ndarray], shapes: list[tuple[int, int]], degree: int
) -> np.ndarray:
    """E f(W_1, W_2, …) over independent N(0, 1) matrices, exact if f is a polynomial of at most
    `degree` in each entry.

    Full enumeration of a Gauss–Hermite grid: n nodes integrate the powers up to 2n - 1 exactly.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(degree // 2 + 1)
    weights = weights / weights.sum()
    sizes = [prod(shape) for shape in shapes]
    cuts = np.cumsum(sizes)[:-1]
    total = 0.0
    for choice in product(range(len(nodes)), repeat=sum(sizes)):
        index = np.asarray(choice)
        parts = np.split(nodes[index], cuts)
        total = total + weights[index].prod() * f(
            *(p.reshape(s) for p, s in zip(parts, shapes, strict=True))
        )
    return total


def wishart_diagonal(d: int, k: int, power: int) -> float:
    """E[(U Uᵀ)^power]_11 for U ∈ R^{d×k} of N(0, 1) entries, by writing out every product of
    entries (E z^2n = (2n-1)!!).
    """
    total = 0.0
    for middle in product(range(d), repeat=power - 1):
        rows = (0, *middle, 0)
        for columns in product(range(k), repeat=power):
            counts: dict[tuple[int, int], int] = {}
            for step, column in enumerate(columns):
                for row in (rows[step], rows[step + 1]):
                    counts[row, column] = counts.get((row, column), 0) + 1
            total += prod(0 if n % 2 else prod(range(1, n, 2)) for n in counts.values())
    return total


def simulate(
    f: Callable[[jax.Array], jax.Array], key: jax.Array, chunks: int, size: int = 4096
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error of f(key) over chunks × size independent keys; sums over chunks in
    float64.
    """

    @jax.jit
    def chunk(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = jax.vmap(f)(jax.random.split(jax.random.fold_in(key, index), size))
        return values.mean(0), (values**2).mean(0)

    parts = [chunk(index) for index in range(chunks)]
    mean, square = (np.mean([np.asarray(p[i], np.float64) for p in parts], axis=0) for i in (0, 1))
    return mean, np.sqrt((square - mean**2) / (chunks * size))


def wishart(rng, draws, d, k):
    """Samples of U Uᵀ by Bartlett's decomposition: at widths that no simulation of U reaches."""
    root = np.zeros((draws, d, d))
    low = np.tril_indices(d, -1)
    root[:, *low] = rng.standard_normal((draws, len(low[0])))
    for row in range(d):
        root[:, row, row] = np.sqrt(rng.chisquare(k - row, draws))
    return root @ root.transpose(0, 2, 1)
