"""Newton's iteration for the polar factor (Higham, Computing the polar decomposition, 1986;
Functions of Matrices, eq. 8.24).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from specjax.arguments import check_fields
from specjax.spectral.methods.base import ExactPolar, zero_where_zero
from specjax.spectral.products import adjoint, product


@jax.tree_util.register_static
@dataclass(frozen=True)
class Newton(ExactPolar):
    """X ← (μ X + X⁻ᴴ / μ) / 2 with Higham's 1,∞-norm scaling μ, for matrices of full rank; wide
    ones by a QR factorization first.

    It converges quadratically, in at most nine steps up to the condition number 1e12, to an
    orthonormal factor with the same accuracy as `SVD`. `steps` bounds the number of steps; a matrix
    that has not converged by then becomes NaN.

    Rank: zero rows are set aside, so zero padding commutes as long as the nonzero rows are linearly
    independent. Any other matrix whose condition number ‖x‖_F ‖x⁻¹‖_F exceeds 1 / (16 machine
    epsilon) cannot be inverted reliably and becomes NaN: take `SVD` or `QDWH`, which return the
    partial isometry. A zero matrix goes to zero.
    """

    steps: int = 20

    def __post_init__(self) -> None:
        check_fields(self)
        if self.steps < 1:
            raise ValueError(f"Newton needs steps >= 1, got steps={self.steps}.")

    def __call__(self, x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
        """See the class."""
        zero = jnp.all(x == 0, axis=1)
        # Put zero rows last, where they make a zero block of the triangular factor, and replace
        # that by the identity.
        order = jnp.argsort(zero, stable=True)
        q, r = jnp.linalg.qr(adjoint(x[order]))
        core = self._square(adjoint(r) + jnp.diag(zero[order].astype(x.dtype)))
        return zero_where_zero(product(core, adjoint(q))[jnp.argsort(order)], x)

    def _square(self, x: Array) -> Array:
        """The factor of one nonsingular matrix."""
        eps = jnp.finfo(x.dtype).eps

        def unfinished(state: tuple[Array, Array, Array]) -> Array:
            step, _, change = state
            return (step < self.steps) & (change > eps**0.5)

        def advance(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            step, x, change = state
            inverse = jnp.linalg.inv(x)
            mu = jnp.where(
                change > 0.01, jnp.sqrt(jnp.sqrt(_size(inverse)) / jnp.sqrt(_size(x))), 1
            ).astype(x.dtype)
            new = 0.5 * (mu * x + adjoint(inverse) / mu)
            return step + 1, new, jnp.linalg.norm(new - x) / jnp.linalg.norm(new)

        condition = jnp.linalg.norm(x) * jnp.linalg.norm(jnp.linalg.inv(x))
        start = jnp.asarray(0), x, jnp.asarray(jnp.inf, jnp.finfo(x.dtype).dtype)
        _, factor, change = jax.lax.while_loop(unfinished, advance, start)
        return jnp.where((change <= eps**0.5) & (condition < 1 / (16 * eps)), factor, jnp.nan)


def _size(x: Array) -> Array:
    """‖x‖₁ ‖x‖_∞, within a factor m of ‖x‖²."""
    absolute = jnp.abs(x)
    return jnp.max(jnp.sum(absolute, axis=0)) * jnp.max(jnp.sum(absolute, axis=1))
