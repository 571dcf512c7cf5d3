"""Arrays in eight bits: whole numbers from -127 to 127 and a scale for each block of 256 along the
last axis (Gupta et al. 2025, arXiv 2509.23106, "linear quantization" of Muon's momentum; blocks as
in Dettmers et al. 2022, arXiv 2110.02861).

With s the largest absolute value of a block, rounding to the nearest is off by s / 254 at most, and
rounding at random, whose mean is exact, by less than s / 127. An average m ← β m + (1 - β) g that
is rounded to the nearest stands still where (1 - β) |g - m| < s / 254: for β = 0.95 an entry below
0.079 s stays at zero under a constant gradient. Blocks along the last axis do not change with zero
padding, nor with a stack of matrices.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int8, Key

from specjax.spectral.float_range import at_least_float32

BLOCK = 256
MOST = 127
"""The largest code, so that the codes are symmetric about 0."""


class Int8Blocks(NamedTuple):
    """An array as codes · scale, with one scale for each block of the last axis."""

    codes: Int8[Array, "*rows n"]
    scale: Float[Array, "*rows blocks"]


def encoded(x: Float[Array, "..."], key: Key[Array, ""] | None = None) -> Int8Blocks:
    """x in eight bits, rounded at random with a key and to the nearest without; a NaN or an
    infinity makes its block NaN. A scalar is an array of one entry.
    """
    x = at_least_float32(x)
    blocks = _in_blocks(x)
    scale = jnp.max(jnp.abs(blocks), axis=-1, initial=0) / MOST
    units = blocks / jnp.where(scale > 0, scale, 1)[..., None]
    if key is None:
        codes = jnp.round(units)
    else:
        codes = jnp.floor(units + jax.random.uniform(key, units.shape, units.dtype))
    codes = jnp.clip(codes, -MOST, MOST).astype(jnp.int8)
    return Int8Blocks(_joined(codes, _length(x)), scale)


def decoded(x: Int8Blocks, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """The array of this shape, in the dtype of the scales."""
    blocks = _in_blocks(x.codes.astype(x.scale.dtype)) * x.scale[..., None]
    return _joined(blocks, x.codes.shape[-1]).reshape(shape)


def _length(x: Array) -> int:
    return x.shape[-1] if x.ndim else 1


def _joined(blocks: Array, length: int) -> Array:
    """The inverse of `_in_blocks` for an axis of this length."""
    *rows, count, block = blocks.shape
    return blocks.reshape(*rows, count * block)[..., :length]


def _in_blocks(x: Array) -> Array:
    """The last axis as (blocks, entries), the last block padded with zeros; a short axis is one
    block.
    """
    rows, length = x.shape[:-1], _length(x)
    block = max(1, min(BLOCK, length))
    count = -(-length // block)
    padded = jnp.pad(x.reshape(*rows, length), [(0, 0)] * len(rows) + [(0, count * block - length)])
    return padded.reshape(*rows, count, block)
