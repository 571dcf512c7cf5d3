"""Row and column normalization, and how far they are from the polar factor."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.scaling import frobenius, ratio, scaled


def normalize_rows(x: Float[Array, "*batch m n"]) -> Float[Array, "*batch m n"]:
    """Each row divided by its Euclidean norm; a zero row stays zero (outer-product, eq. 53). The dtype is kept.

    The derivative at a zero row is zero. A row with a NaN is NaN.
    """
    _check(x)
    return unit_rows(x).astype(x.dtype)


def normalize_columns(x: Float[Array, "*batch m n"]) -> Float[Array, "*batch m n"]:
    """Each column divided by its Euclidean norm; a zero column stays zero."""
    _check(x)
    return jnp.swapaxes(normalize_rows(jnp.swapaxes(x, -1, -2)), -1, -2)


def unit_rows(x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """Vectors divided by their norms, in at least float32; zero stays zero."""
    unit, _ = scaled(x, axis=-1)
    return ratio(unit, frobenius(unit, axis=-1)[..., None])


def direction_error(x: Float[Array, "*batch m n"], target: Float[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """min_c ‖c x - target‖_F / ‖target‖_F = √(1 - cos²), the distance of two steps when the step size is free.

    0 when x is a multiple of the target, 1 when they are orthogonal or x is zero; NaN for a zero target. In at least float32.
    """
    # The residual itself is measured: 1 - cos² would lose half the digits where the two directions are close.
    (x, _), (target, _) = scaled(x), scaled(target)
    inner = jnp.sum(x * target, axis=(-2, -1), keepdims=True)
    squares = jnp.sum(x**2, axis=(-2, -1), keepdims=True)
    residual = ratio(inner, squares) * x - target
    return jnp.sqrt(jnp.sum(residual**2, axis=(-2, -1)) / jnp.sum(target**2, axis=(-2, -1)))


def _check(x: Array) -> None:
    if x.ndim < 2:
        raise ValueError(
            f"Rows and columns are those of matrices in the last two axes, got shape {x.shape}; add an axis with x[None, :]."
        )
