"""Item frequencies: a power law, a user's frequencies, and counts in a minibatch."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from specjax.models.associative_memory._searches import passed
from specjax.programs import is_traced


def power_law(n: int, alpha: float | Float[Array, ""]) -> Float[Array, " n"]:
    """p_i ∝ i^-α for i = 1, ..., n, of sum 1, for any finite α (the paper has α > 1).

    Raises:
        ValueError: n below 2, or α that is not finite.
    """
    check_items(n)
    if not is_traced(alpha) and not np.isfinite(float(alpha)):
        raise ValueError(f"The exponent α of a power law must be finite, got {alpha}.")
    i = jnp.arange(1, n + 1, dtype=jnp.result_type(float))
    weights = i ** -jnp.asarray(alpha, i.dtype)
    return weights / jnp.sum(weights)


def frequencies(p: Float[Array | np.ndarray, " n"]) -> Float[Array, " n"]:
    """Check a user's frequencies and return them in JAX's default float dtype.

    Raises:
        ValueError: fewer than two items, an entry that is negative or not finite, or a sum that is
            not 1 to within 1e-5.
    """
    exact = np.asarray(p, np.float64)
    check_items(len(exact))
    bad = exact[~(np.isfinite(exact) & (exact >= 0))]
    if len(bad):
        raise ValueError(
            f"Frequencies must be finite and not negative, got {bad[0]}; drop or correct such"
            " items."
        )
    if abs(exact.sum() - 1) > 1e-5:
        raise ValueError(
            f"Frequencies must sum to 1, these sum to {exact.sum():.6g}; divide them by their sum."
        )
    return jnp.asarray(exact, jnp.result_type(float))


def minibatch(key: Key[Array, ""], p: Float[Array, " n"], batch: int) -> Float[Array, " n"]:
    """Frequencies of `batch` independent samples from p, computed in O(N + batch) memory.

    Items are sampled in float64, since float32 cannot resolve items of probability below 1e-7. For
    one key, a smaller batch is the beginning of a larger one.

    Raises:
        ValueError: a batch below 1.
    """
    return minibatches(key, p, (batch,))[0]


def minibatches(
    key: Key[Array, ""], p: Float[Array, " n"], batches: Sequence[int]
) -> Float[Array, "batches n"]:
    """`minibatch` for several sizes; smaller batches are the beginnings of larger ones."""
    for batch in batches:
        if batch < 1:
            raise ValueError(
                f"A batch needs at least one sample, got batch={batch}; leave it out for the"
                " population."
            )
    items = _items_drawn(key, p, max(batches))

    def size_frequencies(batch: Array) -> Array:
        counts = (
            jnp.zeros(len(p), jnp.int32)
            .at[items]
            .add((jnp.arange(len(items)) < batch).astype(jnp.int32))
        )
        return counts.astype(p.dtype) / batch.astype(p.dtype)

    return jax.lax.map(size_frequencies, jnp.asarray(batches))


def _items_drawn(key: Array, p: Array, number: int) -> Array:
    # Bits depend on their place, so the first samples do not depend on the number that follows.
    bits = jax.random.bits(key, (number, 2), jnp.uint32)
    with jax.enable_x64(True):
        return _items(bits, p)


@jax.jit
def _items(bits: Array, p: Array) -> Array:
    """Items where the cumulative frequencies pass float64 samples from pairs of 32 bits."""
    high, low = bits.astype(jnp.float64).T
    uniform = (high + low * 2.0**-32) * 2.0**-32
    cumulative = jnp.cumsum(p.astype(jnp.float64))
    return jnp.minimum(passed(cumulative, uniform * cumulative[-1]), len(p) - 1)


def check_items(n: int) -> None:
    """Raise ValueError for fewer than two items."""
    if n < 2:
        raise ValueError(f"An associative memory needs N of at least 2 items, got N={n}.")
