"""Division by the largest entry, over the whole range of a floating dtype."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact


def divided_by(x: Float[Array, "..."], largest: Float[Array, "..."]) -> Float[Array, "..."]:
    """X / largest, and x itself where `largest`, a nonnegative array that broadcasts against x, is zero, infinite or NaN.

    An infinite entry is thus left in place: x / inf would be zero almost everywhere, a silent zero instead of NaN.
    """
    # XLA turns the division by one scalar into a product with its reciprocal, which is subnormal, hence 0, for the largest floats.
    headroom = jnp.where(largest > 1, 0.125, 1).astype(x.dtype)
    usable = (largest > 0) & jnp.isfinite(largest)
    return jnp.where(usable, x * headroom / jnp.where(usable, largest * headroom, 1), x)


def exactly_scaled(x: Inexact[Array, "m n"]) -> Inexact[Array, "m n"]:
    """X divided by the power of two that brings its largest entry (real or imaginary part) into [1, 2): without rounding.

    A zero matrix and one with an infinite or NaN entry stay as they are. The power is held fixed under differentiation.
    """
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        parts = exactly_scaled(jnp.concatenate([x.real, x.imag]))
        return jax.lax.complex(*jnp.split(parts, 2))
    # float16 has powers of two whose reciprocals it lacks.
    wide = x.astype(jnp.float32) if jnp.finfo(x.dtype).bits < 32 else x
    largest = jnp.max(jnp.abs(jax.lax.stop_gradient(wide)), keepdims=True)
    mantissa, _ = jnp.frexp(jnp.where(jnp.isfinite(largest) & (largest > 0), largest, 1))
    return divided_by(wide, largest / (2 * mantissa)).astype(x.dtype)
