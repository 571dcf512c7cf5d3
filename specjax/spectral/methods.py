"""Solver objects for the polar factor, one class per method.

A method maps a wide or square matrix `(m, n)`, m <= n, to its orthogonal polar factor; `specjax.spectral.polar` transposes tall
inputs, maps over leading axes and rescales, so a method sees one matrix whose largest entry has absolute value 1.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


class Quintic(NamedTuple):
    """The odd polynomial a s + b s³ + c s⁵ that one Newton–Schulz step applies to each singular value s."""

    a: float
    b: float
    c: float


MUON = Quintic(3.4445, -4.7750, 2.0315)
"""Keller Jordan's coefficients (Muon, 2024): steep at 0, singular values end in about [0.68, 1.13] and never converge to 1."""

CUBIC = Quintic(1.5, -0.5, 0.0)
"""The classical Newton–Schulz iteration (Higham, Functions of Matrices, eq. 8.20): converges to 1 quadratically from (0, √3)."""


class AbstractPolar(eqx.Module):
    """A method for the polar factor: a small frozen object that `polar(x, method=...)` calls on each matrix."""

    def __call__(self, x: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """The polar factor of one matrix with m <= n whose largest entry has absolute value 1 (or which is zero)."""
        raise NotImplementedError


class SVD(AbstractPolar):
    """U Vᵀ of the compact singular value decomposition: exact to rounding at every condition number up to 1/rtol.

    Singular values up to `rtol` times the largest count as zero, so a rank-deficient matrix goes to its partial isometry.
    The default, 64 times the machine epsilon (7.6e-6 in float32, 1.4e-14 in float64), does not depend on the shape: zero padding
    must not move the cut. Half precision, which LAPACK and cuSOLVER do not know, is computed in float32 and rounded at the end.
    """

    rtol: float | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        if self.rtol is not None and not 0 <= self.rtol < 1:
            raise ValueError(f"SVD needs 0 <= rtol < 1, got rtol={self.rtol}.")

    def __call__(self, x: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """See the class."""
        if jnp.finfo(x.dtype).bits < 32:
            return self(x.astype(jnp.float32)).astype(x.dtype)
        rtol = 64 * jnp.finfo(x.dtype).eps if self.rtol is None else self.rtol
        u, s, vt = jnp.linalg.svd(x, full_matrices=False)
        kept = (s > rtol * s[0]) & (s > 0)
        factor = jnp.matmul(jnp.where(kept[None, :], u, 0), vt, precision=jax.lax.Precision.HIGHEST)
        # A zero row (column) of x is a zero row (column) of the factor; the computed singular vectors leave rounding noise there.
        rows, columns = jnp.any(x != 0, axis=1), jnp.any(x != 0, axis=0)
        return jnp.where(rows[:, None] & columns[None, :], factor, 0)


class NewtonSchulz(AbstractPolar):
    """`steps` odd polynomial steps from x / ‖x‖_F, matrix products only; zero padding stays zero exactly.

    With the default coefficients it is what Muon runs: singular values from 1e-2 ‖x‖_F up end in [0.681, 1.135], none ends above
    1.21, and those far below 1e-3 ‖x‖_F only grow 485-fold, so the result is not the polar factor but a matrix near it. With
    `CUBIC` it converges to the polar factor, with about log(‖x‖_F / s_min) / log(1.5) steps to start and quadratically then.

    `coefficients` is one polynomial for all steps, or one for each step.
    """

    steps: int = eqx.field(static=True, default=5)
    coefficients: Quintic | tuple[Quintic, ...] = eqx.field(static=True, default=MUON)

    def __check_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"NewtonSchulz needs steps >= 1, got steps={self.steps}.")
        if not isinstance(self.coefficients, Quintic) and len(self.coefficients) != self.steps:
            raise ValueError(
                f"NewtonSchulz needs one polynomial or one for each of its {self.steps} steps, got {len(self.coefficients)}; "
                f"set steps={len(self.coefficients)}."
            )

    def polynomials(self) -> tuple[Quintic, ...]:
        """The polynomial of each step."""
        return (self.coefficients,) * self.steps if isinstance(self.coefficients, Quintic) else self.coefficients

    def __call__(self, x: Float[Array, "m n"]) -> Float[Array, "m n"]:
        """See the class."""
        norm = jnp.linalg.norm(x)
        x = x / jnp.where(norm > 0, norm, 1)
        for a, b, c in self.polynomials():
            gram = _product(x, x.T)
            x = a * x + _product(b * gram + c * _product(gram, gram), x)
        return x


def _product(left: Array, right: Array) -> Array:
    # On a GPU float32 products may otherwise run in TF32, whose error is larger than the distance between the methods.
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
