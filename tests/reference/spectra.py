"""Matrices with prescribed singular values, in float64 numpy."""

from collections.abc import Sequence

import numpy as np


def orthogonal(n: int, seed: int) -> np.ndarray:
    """A Haar-distributed orthogonal n×n matrix."""
    q, r = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return q * np.sign(np.diag(r))


def matrix_with(values: Sequence[float], shape: tuple[int, int], seed: int) -> np.ndarray:
    """A matrix of the given shape whose nonzero singular values are `values`, with random singular
    vectors.
    """
    m, n = shape
    u, v = orthogonal(m, seed), orthogonal(n, seed + 1)
    k = len(values)
    return (u[:, :k] * np.asarray(values)) @ v[:, :k].T


def polar(x: np.ndarray) -> np.ndarray:
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    return u @ vt


SHAPES = ((4, 4), (3, 7), (6, 2))
"""Square, wide and tall."""

SPECTRA = {
    "repeated": ((4, 4), (1.0, 1.0, 1.0, 1.0)),
    "repeated-pair": ((3, 7), (2.0, 2.0, 0.5)),
    "rank-deficient": ((4, 4), (3.0, 1.0)),
    "rank-deficient-tall": ((6, 3), (1.0, 0.2)),
    "tall": ((6, 2), (1.5, 0.3)),
    "wide": ((3, 7), (4.0, 1.0, 0.1)),
    "row": ((1, 5), (2.0,)),
    "column": ((5, 1), (0.7,)),
    "scalar": ((1, 1), (3.0,)),
    "zero": ((3, 4), ()),
}
"""Name to (shape, nonzero singular values)."""


def named(name: str, seed: int = 0) -> np.ndarray:
    """The matrix of one entry of `SPECTRA`."""
    shape, values = SPECTRA[name]
    return matrix_with(values, shape, seed)
