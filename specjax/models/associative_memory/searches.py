"""`jnp.nonzero` and `jnp.searchsorted` for functions with a scope of 64 bits of their own.

JAX from 0.11 on expands its own two when a program is lowered, when such a scope has ended: their
integers of 64 bits are then cut to 32.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def true_places(mask: Bool[Array, " n"], size: int) -> Int[Array, " {size}"]:
    """The indices where the mask holds, in order, at most `size` of them, followed by n up to that
    length.
    """
    n, whole = len(mask), jnp.result_type(int)
    place = jnp.where(mask, jnp.cumsum(mask, dtype=whole) - 1, size)
    return jnp.full(size, n, whole).at[place].set(jnp.arange(n, dtype=whole), mode="drop")


def passed(thresholds: Float[Array, " n"], values: Float[Array, " m"]) -> Int[Array, " m"]:
    """How many of the ascending thresholds are at most each value: `searchsorted` with
    side="right", by sorting.
    """
    # Stable, so that a threshold comes before the values that equal it.
    order = jnp.argsort(jnp.concatenate([thresholds, values]), stable=True)
    counts = jnp.cumsum(order < len(thresholds), dtype=jnp.int32)
    return jnp.zeros(len(order), jnp.int32).at[order].set(counts)[len(thresholds) :]
