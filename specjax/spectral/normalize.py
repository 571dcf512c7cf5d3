"""Row and column normalization, and how far they are from the polar factor."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.scaling import divided_by


def normalize_rows(x: Float[Array, "*batch m n"]) -> Float[Array, "*batch m n"]:
    """Each row divided by its Euclidean norm; a zero row stays zero (outer-product, eq. 53)."""
    _check(x)
    # Divided by the largest entry first: squares of very small or large gradients would leave the range of float32.
    unit = divided_by(x, jnp.max(jnp.abs(x), axis=-1, keepdims=True))
    norms = jnp.sqrt(jnp.sum(unit**2, axis=-1, keepdims=True))
    return unit / jnp.where(norms > 0, norms, 1)


def normalize_columns(x: Float[Array, "*batch m n"]) -> Float[Array, "*batch m n"]:
    """Each column divided by its Euclidean norm; a zero column stays zero."""
    _check(x)
    return jnp.swapaxes(normalize_rows(jnp.swapaxes(x, -1, -2)), -1, -2)


def direction_error(x: Float[Array, "*batch m n"], target: Float[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """min_c ‖c x - target‖_F / ‖target‖_F = √(1 - cos²), the distance of two steps when the step size is free.

    0 when x is a multiple of the target, 1 when they are orthogonal or x is zero; NaN for a zero target.
    """
    # The residual itself is measured: 1 - cos² would lose half the digits where the two directions are close.
    x, target = _unit(x), _unit(target)
    inner = jnp.sum(x * target, axis=(-2, -1), keepdims=True)
    squares = jnp.sum(x**2, axis=(-2, -1), keepdims=True)
    residual = inner / jnp.where(squares > 0, squares, 1) * x - target
    return jnp.sqrt(jnp.sum(residual**2, axis=(-2, -1)) / jnp.sum(target**2, axis=(-2, -1)))


def _check(x: Array) -> None:
    if x.ndim < 2:
        raise ValueError(
            f"Rows and columns are those of matrices in the last two axes, got shape {x.shape}; add an axis with x[None, :]."
        )


def _unit(x: Array) -> Array:
    """Each matrix divided by its largest entry, so that squares neither overflow nor vanish."""
    return divided_by(x, jnp.max(jnp.abs(x), axis=(-2, -1), keepdims=True))
