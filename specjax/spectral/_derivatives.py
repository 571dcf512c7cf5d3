"""The derivative of the polar factor in closed form. It stays finite where the derivative through a
singular value decomposition is NaN.

For x = U S Vᴴ with m <= n and A = Uᴴ dx V the derivative is (Daleckii–Krein; Kenney and Laub, Polar
decomposition and matrix sign function condition estimates, 1991)

    dP = U [(A - Aᴴ)_ij / (s_i + s_j)] Vᴴ + (I - UUᴴ) dx V S⁻¹ Vᴴ + U S⁻¹ Uᴴ dx (I - VVᴴ).

No difference s_i - s_j occurs. In terms of P and H = x Pᴴ = (x xᴴ)^{1/2} it reads dP = W P + E,
where W solves the Sylvester equation H W + W H = dx Pᴴ - P dxᴴ and E solves H E = dx (I - PᴴP).
Both solutions are differentiated implicitly, so that derivatives of every order are finite at
repeated singular values too. For complex x the factor is differentiable in the real and imaginary
parts but not holomorphic: dP depends on dx and its conjugate.

Where x is rank-deficient its polar factor is not continuous. The derivative is then taken along the
kept singular subspaces: singular values that the method drops count as exactly zero, and the block
of A between the two null spaces, which would move them, is ignored. Perturbations that keep the
rank are thus differentiated exactly, to first order.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Inexact

from specjax.linalg import eigh
from specjax.programs.one_at_a_time import compiled_one_at_a_time, one_at_a_time
from specjax.spectral.methods import ExactPolar
from specjax.spectral.products import adjoint, product

Linear = Callable[[Array], Array]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def differentiable_factor(method: ExactPolar, x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
    """method(x) for m <= n, with the derivative of the exact polar factor, however the method
    computes it.
    """
    # A compiled method must be hashable, and a method that holds arrays is not.
    call = one_at_a_time if jax.tree.leaves(method) else compiled_one_at_a_time
    return call(method, x)


@differentiable_factor.defjvp
def _derivative(
    method: ExactPolar, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    p = differentiable_factor(method, x)
    h = product(x, adjoint(p))
    rotate, divide = _solvers(0.5 * (h + adjoint(h)))
    across = product(dx, adjoint(p))
    return p, product(rotate(across - adjoint(across)), p) + divide(dx - product(across, p))


def _solvers(h: Array) -> tuple[Linear, Linear]:
    """The solutions W of H W + W H = C and E of H E = B for H Hermitian positive semidefinite, zero
    on its null space.
    """
    values, q = eigh(jax.lax.stop_gradient(h), symmetrize_input=False)
    kept = values > 32 * jnp.finfo(h.dtype).eps * values[-1]
    values = jnp.where(kept, values, 0)
    sums = values[:, None] + values[None, :]
    over_sums = jnp.where(sums > 0, 1 / jnp.where(sums > 0, sums, 1), 0).astype(h.dtype)
    over_values = jnp.where(kept, 1 / jnp.where(kept, values, 1), 0).astype(h.dtype)

    def rotated(_: Linear, c: Array) -> Array:
        return product(q, product(over_sums * product(adjoint(q), product(c, q)), adjoint(q)))

    def divided(_: Linear, b: Array) -> Array:
        return product(q, over_values[:, None] * product(adjoint(q), b))

    return (
        lambda c: _linear_solve(lambda w: product(h, w) + product(w, h), rotated, c),
        lambda b: _linear_solve(lambda e: product(h, e), divided, b),
    )


def _linear_solve(operator: Linear, solve: Callable[[Linear, Array], Array], b: Array) -> Array:
    """The solution for a Hermitian operator, differentiated implicitly. The transpose of the
    operator is its conjugate.
    """

    def transpose_solve(operator: Linear, b: Array) -> Array:
        return jnp.conj(solve(operator, jnp.conj(b)))

    return jax.lax.custom_linear_solve(operator, b, solve, transpose_solve)
