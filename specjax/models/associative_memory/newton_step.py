"""Newton's method at W = 0 (associative-memory, Lemma G.2 and eq. 6) and at any W."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.programs import is_traced
from specjax.programs.one_at_a_time import compiled_one_at_a_time

_HIGHEST = jax.lax.Precision.HIGHEST


class HessianAtZero(NamedTuple):
    """∇²L(0)[Δ] = Σ_u Δ M_v; Σ_u = Σ_i u_i u_iᵀ/N - ū ūᵀ and M_v = Σ_i q_i v_i v_iᵀ are (d, d)."""

    left: Float[Array, "d d"]
    right: Float[Array, "d d"]


def hessian_at_zero(
    u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"]
) -> HessianAtZero:
    """The two factors of the Hessian at W = 0, in O(N d²)."""
    centred = u - jnp.mean(u, axis=0)[None, :]
    left = jnp.matmul(centred.T, centred, precision=_HIGHEST) / len(u)
    return HessianAtZero(left, jnp.matmul(v.T, v * q[:, None], precision=_HIGHEST))


def newton_step(
    gradient: Float[Array, "d d"], hessian: HessianAtZero, ridge: float | Float[Array, ""] = 0.0
) -> Float[Array, "d d"]:
    """-(Σ_u + ρ I)⁻¹ ∇L (M_v + ρ I)⁻¹ with the ridge ρ >= 0; ρ = 0 is the Newton step.

    Zero rows and columns, such as padding, stay zero. Without a ridge both factors need full rank
    (N > d, and at least d items with q_i > 0); otherwise the step is infinite or NaN.

    Raises:
        ValueError: a negative ridge.
    """
    if not is_traced(ridge) and not float(ridge) >= 0:
        raise ValueError(f"The ridge of a Newton step must not be negative, got {ridge}.")
    left, right = (_regular(factor, ridge) for factor in hessian)
    return -_solved(right, _solved(left, gradient).T).T


def newton_direction(
    w: Float[Array, "d d"],
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    ridge: float | Float[Array, ""] = 0.0,
) -> Float[Array, "d d"]:
    """-(∇²L(W) + ρ I)⁻¹[∇L(W)] at any W, for small memories: O(N² d² + N d⁴ + d⁶).

    ρ is the ridge. ∇²L(W)[Δ] = Σ_i q_i Cov_i Δ v_i v_iᵀ, with Cov_i the covariance of the
    unembeddings under the scores of item i. Padding stays zero.
    """
    d = u.shape[1]
    scores = jax.nn.softmax(
        jnp.matmul(jnp.matmul(v, w.T, precision=_HIGHEST), u.T, precision=_HIGHEST), axis=1
    )
    means = jnp.matmul(scores, u, precision=_HIGHEST)
    covariances = jnp.matmul(scores, _squares(u), precision=_HIGHEST) - _squares(means)
    paired = jnp.matmul((covariances * q[:, None]).T, _squares(v), precision=_HIGHEST)
    hessian = paired.reshape(d, d, d, d).transpose(0, 2, 1, 3).reshape(d * d, d * d)
    down = jnp.matmul(((u - means) * q[:, None]).T, v, precision=_HIGHEST)
    padding = jnp.diagonal(hessian) == 0
    regular = hessian + jnp.diag(jnp.where(padding, 1, jnp.asarray(ridge, hessian.dtype)))
    return _solved(regular, down.reshape(d * d, 1)).reshape(d, d)


def _squares(x: Array) -> Array:
    """x_i x_iᵀ as rows."""
    return (x[:, :, None] * x[:, None, :]).reshape(len(x), -1)


def _regular(factor: Array, ridge: float | Array) -> Array:
    padding = jnp.all(factor == 0, axis=0)
    return factor + jnp.diag(jnp.where(padding, 1, jnp.asarray(ridge, factor.dtype)))


def _solved(factor: Array, b: Array) -> Array:
    return compiled_one_at_a_time(_solve, factor, b)


def _solve(factor: Array, b: Array) -> Array:
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(factor, lower=True), b)
