"""Parts of a transformer, as functions of the features of one sequence, whose tokens are the first axis."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from specjax.sizes import AnySize, active


def rms_norm(x: Float[Array, "*n d"], width: AnySize | None = None) -> Float[Array, "*n d"]:
    """√d x_t/‖x_t‖ for every token, d the active width; zero stays zero."""
    count = jnp.asarray(x.shape[-1] if width is None else active(width), x.dtype)
    squares = jnp.sum(x**2, axis=-1, keepdims=True) / count
    return x / jnp.sqrt(jnp.where(squares > 0, squares, 1))


def rotated(x: Float[Array, "n heads size"]) -> Float[Array, "n heads size"]:
    """Rotary positions: entries i and i + size/2 of token t, as a complex number, times exp(-i θ_i t).

    Of the size/2 angles θ half fall geometrically from 1 to 1/1024 and half are zero, as in the snapshot of Figure 19.
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


class ValueEmbeddings(eqx.Module):
    """Vectors of the tokens that the values of the first and of the last blocks have added."""

    tables: Float[Array, "tables vocabulary d"]
    shares: Float[Array, "blocks 2"]
    """λ and λ' of every block."""

    def __call__(self, tokens: Int[Array, " n"], blocks: int) -> tuple[Array, Float[Array, "blocks n d"]]:
        """The shares, and what is added in every block: of t tables number k in block k and in block L - t + k, zero between."""
        embedded = self.tables[:, tokens]
        between = jnp.zeros((blocks - 2 * len(embedded), *embedded.shape[1:]), embedded.dtype)
        return self.shares, jnp.concatenate([embedded, between, embedded])
