"""The derivative of the polar factor in closed form, finite where the one through a singular value decomposition is NaN.

For x = U S Vᵀ with m <= n and A = Uᵀ dx V the derivative is (Daleckii–Krein; Kenney and Laub, Polar decomposition and matrix
sign function condition estimates, 1991)

    dP = U [(A - Aᵀ)_ij / (s_i + s_j)] Vᵀ + (I - UUᵀ) dx V S⁻¹ Vᵀ + U S⁻¹ Uᵀ dx (I - VVᵀ).

No difference s_i - s_j occurs. In terms of P and H = x Pᵀ = (x xᵀ)^{1/2} it reads dP = W P + E, where W solves the Sylvester
equation H W + W H = dx Pᵀ - P dxᵀ and E solves H E = dx (I - PᵀP). Both solutions are differentiated implicitly, so that
derivatives of every order are finite at repeated singular values too.

Where x is rank-deficient its polar factor is not continuous. The derivative is then taken along the kept singular subspaces:
singular values that the method drops count as exactly zero, and the block of A between the two null spaces, which would move
them, is ignored. Perturbations that keep the rank are thus differentiated exactly, to first order.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.methods import ExactPolar
from specjax.spectral.products import product


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def differentiable_factor(method: ExactPolar, x: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """method(x), with the derivative of the exact polar factor whatever the method does inside; m <= n."""
    return method(x)


@differentiable_factor.defjvp
def _derivative(method: ExactPolar, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    p = differentiable_factor(method, x)
    h = product(x, p.T)
    rotate, divide = _solvers(0.5 * (h + h.T))
    across = product(dx, p.T)
    return p, product(rotate(across - across.T), p) + divide(dx - product(across, p))


def _solvers(h: Array) -> tuple[Callable[[Array], Array], Callable[[Array], Array]]:
    """The solutions W of H W + W H = C and E of H E = B for H symmetric positive semidefinite, zero on its null space."""
    values, q = jnp.linalg.eigh(jax.lax.stop_gradient(h), symmetrize_input=False)
    kept = values > 32 * jnp.finfo(h.dtype).eps * values[-1]
    values = jnp.where(kept, values, 0)
    sums = values[:, None] + values[None, :]

    def rotated(_: Callable[[Array], Array], c: Array) -> Array:
        inner = product(q.T, product(c, q))
        return product(q, product(jnp.where(sums > 0, inner / jnp.where(sums > 0, sums, 1), 0), q.T))

    def divided(_: Callable[[Array], Array], b: Array) -> Array:
        inner = product(q.T, b)
        return product(q, jnp.where(kept[:, None], inner / jnp.where(kept, values, 1)[:, None], 0))

    def anticommutator(w: Array) -> Array:
        return product(h, w) + product(w, h)

    return (
        lambda c: jax.lax.custom_linear_solve(anticommutator, c, rotated, symmetric=True),
        lambda b: jax.lax.custom_linear_solve(lambda e: product(h, e), b, divided, symmetric=True),
    )
