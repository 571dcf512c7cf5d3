"""Dynamically weighted Halley iteration (Nakatsukasa, Bai and Gygi, Optimizing Halley's iteration,
2010).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from specjax.arguments import check_fields
from specjax.spectral.methods.base import ExactPolar, zero_where_zero
from specjax.spectral.products import adjoint, product


class Halley(NamedTuple):
    """The odd rational function s (a + b s²) / (1 + c s²) that one step applies to each singular
    value s.
    """

    a: float
    b: float
    c: float


@jax.tree_util.register_static
@dataclass(frozen=True)
class QDWH(ExactPolar):
    """A fixed sequence of weighted Halley steps that sends [rtol, 1] ‖x‖_F near 1, then five steps
    to 1 or, from below, to 0.

    It uses QR and Cholesky factorizations, with the same operations for every matrix, so that a
    batch takes no more steps than its members; the weights are computed on the host for the given
    `rtol` (four steps in float64, three in float32). The factor is as accurate as that of `SVD`;
    wide matrices are reduced by a QR factorization first.

    Rank: the map is odd, so zero singular values stay zero. Those from rtol ‖x‖_F up go to 1 and
    those below a tenth of that to 0; in between lies one point of discontinuity. The default rtol
    is 64 times the machine epsilon. The cut is relative to the Frobenius norm here, and to the
    largest singular value in `SVD`.
    """

    rtol: float | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.rtol is not None and not 0 < self.rtol < 1:
            raise ValueError(f"QDWH needs 0 < rtol < 1, got rtol={self.rtol}.")

    def __call__(self, x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
        """See the class."""
        eps = float(jnp.finfo(x.dtype).eps)
        q, r = jnp.linalg.qr(adjoint(x))
        norm = jnp.linalg.norm(r)
        core = r / jnp.where(norm > 0, norm, 1).astype(x.dtype)
        for weights in halley_weights(64 * eps if self.rtol is None else self.rtol, 0.01):
            core = _step(core, weights)
        for _ in range(5):
            # s³ (5 - 3 s²) / 2: 1 is a double fixed point, 0 a triple one, 0.82 the watershed.
            gram = product(core, adjoint(core))
            core = product(2.5 * gram - 1.5 * product(gram, gram), core)
        return zero_where_zero(product(adjoint(core), adjoint(q)), x)


def halley_weights(lower: float, tolerance: float) -> tuple[Halley, ...]:
    """The weights of the steps that take [lower, 1] into [1 - tolerance, 1], each the best for the
    interval it starts from.
    """
    steps = []
    while 1 - lower > tolerance:
        d = (4 * (1 - lower**2) / lower**4) ** (1 / 3)
        root = math.sqrt(1 + d)
        a = root + 0.5 * math.sqrt(8 - 4 * d + 8 * (2 - lower**2) / (lower**2 * root))
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        steps.append(Halley(a, b, c))
        lower = min(lower * (a + b * lower**2) / (1 + c * lower**2), 1.0)
    return tuple(steps)


def _step(x: Array, weights: Halley) -> Array:
    """X (a + b XᴴX) (1 + c XᴴX)⁻¹ for a square matrix of norm at most 1, without forming XᴴX where
    c is large.
    """
    a, b, c = weights
    eye = jnp.eye(x.shape[0], dtype=x.dtype)
    if c > 100:
        q, _ = jnp.linalg.qr(jnp.concatenate([math.sqrt(c) * x, eye]))
        upper, lower = jnp.split(q, 2)
        return b / c * x + (a - b / c) / math.sqrt(c) * product(upper, adjoint(lower))
    root = jnp.linalg.cholesky(eye + c * product(adjoint(x), x))
    half = jax.lax.linalg.triangular_solve(root, adjoint(x), left_side=True, lower=True)
    whole = jax.lax.linalg.triangular_solve(
        root, half, left_side=True, lower=True, transpose_a=True, conjugate_a=True
    )
    return b / c * x + (a - b / c) * adjoint(whole)
