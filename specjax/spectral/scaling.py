"""Division by the largest entry, over the whole range of a floating dtype."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def divided_by(x: Float[Array, "..."], largest: Float[Array, "..."]) -> Float[Array, "..."]:
    """X / largest, and x itself where `largest`, a nonnegative array that broadcasts against x, is zero, infinite or NaN.

    An infinite entry is thus left in place: x / inf would be zero almost everywhere, a silent zero instead of NaN.
    """
    # XLA turns the division by one scalar into a product with its reciprocal, which is subnormal, hence 0, for the largest floats.
    headroom = jnp.where(largest > 1, 0.125, 1).astype(x.dtype)
    usable = (largest > 0) & jnp.isfinite(largest)
    return jnp.where(usable, x * headroom / jnp.where(usable, largest * headroom, 1), x)
