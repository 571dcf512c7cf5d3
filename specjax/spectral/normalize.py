"""Row and column normalization, and how far they are from the polar factor."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def normalize_rows(x: Float[Array, "*batch m n"]) -> Float[Array, "*batch m n"]:
    """Each row divided by its Euclidean norm; a zero row stays zero (outer-product, eq. 53)."""
    # Divided by the largest entry first: squares of very small or large gradients would leave the range of float32.
    largest = jnp.max(jnp.abs(x), axis=-1, keepdims=True)
    unit = x / jnp.where(largest > 0, largest, 1)
    norms = jnp.sqrt(jnp.sum(unit**2, axis=-1, keepdims=True))
    return unit / jnp.where(norms > 0, norms, 1)


def normalize_columns(x: Float[Array, "*batch m n"]) -> Float[Array, "*batch m n"]:
    """Each column divided by its Euclidean norm; a zero column stays zero."""
    return jnp.swapaxes(normalize_rows(jnp.swapaxes(x, -1, -2)), -1, -2)


def direction_error(x: Float[Array, "*batch m n"], target: Float[Array, "*batch m n"]) -> Float[Array, "*batch"]:
    """min_c ‖c x - target‖_F / ‖target‖_F = √(1 - cos²), the distance of two steps when the step size is free.

    0 when x is a multiple of the target, 1 when they are orthogonal.
    """
    axes = (-2, -1)
    inner = jnp.sum(x * target, axis=axes)
    cosine_squared = inner**2 / (jnp.sum(x**2, axis=axes) * jnp.sum(target**2, axis=axes))
    return jnp.sqrt(jnp.maximum(1 - cosine_squared, 0))
