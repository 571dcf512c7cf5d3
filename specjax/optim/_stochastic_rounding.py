"""Unbiased stochastic rounding to bfloat16 (Gupta et al. 2015, Section 3.2).

An average m ← β m + (1 - β) g that is rounded to the nearest bfloat16 number, 2⁻⁸ apart, stops
moving where (1 - β) |g - m| is below half a step; for β = 0.99 and a constant g this happens while
m is still a fifth below g. Rounded at random it keeps moving, and its mean is exact.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


def stochastic_bfloat16(key: Key[Array, ""], x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Rounds x to one of the two bfloat16 numbers around it, with probabilities whose mean is x;
    NaN and ±∞ stay.

    Float64 is rounded to float32 first. Beyond the largest number of bfloat16 the upper neighbour
    is ±∞.
    """
    # A bfloat16 is the upper half of a float32: with a random lower half added, the carry is the
    # rounding.
    bits = jax.lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    carried = bits + jax.random.bits(key, x.shape, jnp.uint16).astype(jnp.uint32)
    upper = jax.lax.shift_right_logical(carried, jnp.full_like(carried, 16)).astype(jnp.uint16)
    rounded = jax.lax.bitcast_convert_type(upper, jnp.bfloat16)
    return jnp.where(jnp.isfinite(x), rounded, x.astype(jnp.bfloat16))
