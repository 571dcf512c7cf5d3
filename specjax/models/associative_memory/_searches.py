"""`jnp.nonzero` and `jnp.searchsorted` for functions with their own 64-bit scope.

From JAX 0.11 on, those two are expanded at lowering, after the scope has ended, which cuts their
64-bit integers to 32 bits.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


def true_places(mask: Bool[Array, " n"], size: int) -> Int[Array, " {size}"]:
    """Indices where the mask holds, in order, at most `size`, padded with n to that length."""
    n, whole = len(mask), jnp.result_type(int)
    place = jnp.where(mask, jnp.cumsum(mask, dtype=whole) - 1, size)
    return jnp.full(size, n, whole).at[place].set(jnp.arange(n, dtype=whole), mode="drop")


def passed(thresholds: Float[Array, " n"], values: Float[Array, " m"]) -> Int[Array, " m"]:
    """Count the thresholds up to each value by sorting: `searchsorted` with side="right"."""
    # The sort is stable, so a threshold comes before equal values.
    order = jnp.argsort(jnp.concatenate([thresholds, values]), stable=True)
    counts = jnp.cumsum(order < len(thresholds), dtype=jnp.int32)
    return jnp.zeros(len(order), jnp.int32).at[order].set(counts)[len(thresholds) :]
