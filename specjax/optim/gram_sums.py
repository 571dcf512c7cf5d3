"""Weighted sums of G Gᵀ and Gᵀ G over the whole range of a floating dtype.

The squares of float32 numbers below 1e-19 vanish in such a sum and those above 1e19 are infinite.
So each sum is kept in units of p², with a power of two p that follows the gradients: the sum is p²
times what is kept, and the division rounds nothing.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.float_range import power_of_two, scaled
from specjax.spectral.products import product


class GramSums(NamedTuple):
    """Both sums of each matrix of a stack in units of `power`²: left² and right² have their largest
    entry near 1.
    """

    left: Float[Array, "batch m m"]
    right: Float[Array, "batch n n"]
    power: Float[Array, "batch 1 1"]


def no_sums(stack: Float[Array, "batch m n"]) -> GramSums:
    """The sums of no gradients, for matrices like those of a stack. Every array has memory of its
    own, so that all can be donated.
    """
    batch, m, n = stack.shape
    return GramSums(
        jnp.zeros((batch, m, m), stack.dtype),
        jnp.zeros((batch, n, n), stack.dtype),
        jnp.full((batch, 1, 1), jnp.finfo(stack.dtype).tiny, stack.dtype),
    )


def added(
    sums: GramSums,
    g: Float[Array, "batch m n"],
    kept: Float[Array, ""],
    weight: Float[Array, ""] | float,
) -> GramSums:
    """kept · (the sums) + weight · (G Gᵀ, Gᵀ G); NaN for a matrix G that is not finite."""
    tiny = jnp.asarray(jnp.finfo(g.dtype).tiny, g.dtype)
    unit, of_gradient = scaled(g, (1, 2))
    # A zero matrix has no size: the power 1 would make what is kept of others vanish.
    of_gradient = jnp.where(jnp.any(unit != 0, axis=(1, 2), keepdims=True), of_gradient, tiny)
    power = jnp.maximum(sums.power, of_gradient)
    old, new = kept * (sums.power / power) ** 2, weight * (of_gradient / power) ** 2
    left = old * sums.left + new * product(unit, unit.mT)
    right = old * sums.right + new * product(unit.mT, unit)
    return _normalized(left, right, power, tiny)


def _normalized(left: Array, right: Array, power: Array, tiny: Array) -> GramSums:
    """The sums in units in which their largest entry, on a diagonal as they are positive, is in [1,
    4).
    """
    if not left.size or not right.size:
        return GramSums(left, right, power)
    _, size = scaled(left, (1, 2))
    root = jnp.maximum(power_of_two(jnp.sqrt(size)), tiny / power)
    return GramSums(left / root**2, right / root**2, power * root)
