"""Symmetric factorization L(U) = ¼ ‖U Uᵀ - M‖_F² (outer-product, eq. 5; preconditioning, eq. 5)."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float, Key

from specjax.models.factorization_spectra import orthonormal
from specjax.models.targets import check_symmetric, check_target
from specjax.sizes import AnySize, normal


def init(key: Key[Array, ""], d: AnySize, k: AnySize) -> Float[Array, "d k"]:
    """U with independent N(0, 1) entries (outer-product, Assumption 1)."""
    return normal(key, (d, k))


def orthonormal_init(key: Key[Array, ""], d: int, k: int, scale: ArrayLike) -> Float[Array, "d k"]:
    """A start scale · V with V Haar distributed: V Vᵀ = I where k >= d, Vᵀ V = I where k <= d
    (preconditioning, Theorem 1).

    For k >= d any such start is aligned with every target: U_0 U_0ᵀ = scale² I.
    """
    v = orthonormal(key, d, k)
    return v * jnp.asarray(scale, v.dtype)


def loss(u: Float[Array, "d k"], target: Float[Array, "d d"]) -> Float[Array, ""]:
    """¼ ‖U Uᵀ - M‖_F²; ValueError for a target of another shape, not symmetric, or not finite."""
    return jnp.sum(_residual(u, target) ** 2) / 4


def sampled_loss(
    u: Float[Array, "d k"],
    target: Float[Array, "d d"],
    x: Float[Array, "n d"],
    y: Float[Array, "n d"],
) -> Float[Array, ""]:
    """¼ mean_i (x_iᵀ (U Uᵀ - M) y_i)²; unbiased for `loss` if x, y are independent N(0, I)."""
    return jnp.mean(jnp.einsum("ni,ij,nj->n", x, _residual(u, target), y) ** 2) / 4


def gradient(u: Float[Array, "d k"], target: Float[Array, "d d"]) -> Float[Array, "d k"]:
    """G = (U Uᵀ - M) U, exact (outer-product, eq. 6). Raises as `loss`."""
    return _residual(u, target) @ u


def _residual(u: Array, target: Array) -> Array:
    check_target(target, (u.shape[0], u.shape[0]), "The target of a factorization U Uᵀ")
    check_symmetric(target, "The target of a factorization U Uᵀ")
    return u @ u.T - target
