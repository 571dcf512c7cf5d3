"""Parts of a transformer, as functions of one sequence's features with tokens on the first axis."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from specjax.sizes import AnySize, active


def rms_norm(x: Float[Array, "*n d"], width: AnySize | None = None) -> Float[Array, "*n d"]:
    """√d x_t/‖x_t‖ for every token, d the active width; zero stays zero."""
    count = jnp.asarray(x.shape[-1] if width is None else active(width), x.dtype)
    squares = jnp.sum(x**2, axis=-1, keepdims=True) / count
    return x / jnp.sqrt(jnp.where(squares > 0, squares, 1))


def rotated(x: Float[Array, "n heads size"]) -> Float[Array, "n heads size"]:
    """Rotary positions: entries i and i + size/2 of token t, as a complex number, times exp(-i θ_i
    t).

    Half of the size/2 angles θ fall geometrically from 1 to 1/1024, and half are zero, as in the
    snapshot of Figure 19.
    """
    n, _, size = x.shape
    angles = np.concatenate([np.geomspace(1, 1 / 1024, size // 4), np.zeros(size // 4)])
    turned = np.arange(n)[:, None, None] * angles
    cos, sin = jnp.asarray(np.cos(turned), x.dtype), jnp.asarray(np.sin(turned), x.dtype)
    real, imaginary = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([real * cos + imaginary * sin, imaginary * cos - real * sin], axis=-1)


def capped(logits: Float[Array, "*n vocabulary"], cap: float) -> Float[Array, "*n vocabulary"]:
    """Logits z as cap · tanh(z/cap), which are below `cap` and nearly z where z is small."""
    return cap * jnp.tanh(logits / cap)
