"""Weighted sums of G Gᵀ and Gᵀ G over the whole range of a floating dtype.

The squares of float32 numbers below 1e-19 vanish in such a sum and those above 1e19 are infinite.
So each sum is stored divided by p², where p is a power of two that follows the size of the
gradients. This division rounds nothing.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.float_range import power_of_two, scaled
from specjax.spectral.products import product


class GramSums(NamedTuple):
    """Both sums of each matrix of a stack, divided by `power`², which brings the largest entry of
    `left` into [1, 4).
    """

    left: Float[Array, "batch m m"]
    right: Float[Array, "batch n n"]
    power: Float[Array, "batch 1 1"]


def no_sums(stack: Float[Array, "batch m n"]) -> GramSums:
    """Zero sums for matrices like those of a stack. Every array has its own memory, so that all can
    be donated.
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
    # `scaled` gives a zero matrix the power 1, at which stored sums of small gradients underflow.
    of_gradient = jnp.where(jnp.any(unit != 0, axis=(1, 2), keepdims=True), of_gradient, tiny)
    power = jnp.maximum(sums.power, of_gradient)
    old, new = kept * (sums.power / power) ** 2, weight * (of_gradient / power) ** 2
    left = old * sums.left + new * product(unit, unit.mT)
    right = old * sums.right + new * product(unit.mT, unit)
    return _normalized(left, right, power, tiny)


def _normalized(left: Array, right: Array, power: Array, tiny: Array) -> GramSums:
    """The sums with the power that brings the largest entry of `left` into [1, 4). That entry is on
    the diagonal, since the sums are positive semidefinite.
    """
    if not left.size or not right.size:
        return GramSums(left, right, power)
    _, size = scaled(left, (1, 2))
    root = jnp.maximum(power_of_two(jnp.sqrt(size)), tiny / power)
    return GramSums(left / root**2, right / root**2, power * root)
