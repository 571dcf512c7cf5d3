"""The exact set of items that a memory recovers, without most of the N² logits.

Item i is recovered by W if u_iᵀ W v_i > max_{j≠i} u_jᵀ W v_i (associative-memory, eq. 3). Most
items that are not recovered lose to one of the first few competitors, so the test has stages: all
items meet the first competitors, the remaining ones meet more, and only the last few meet all N. A
stage decides the pairs that differ by more than rounding; the other pairs, including ties, are
decided in float64 by the sign of Σ_k (u_ik - u_jk) (W v_i)_k, which is exactly zero for equal u.
"""

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Float, Int

from specjax.models.associative_memory._searches import true_places
from specjax.spectral.float_range import exactly_scaled, scaled

FIRST = 128
"""Competitors that every item meets in the first stage."""
STAGES = (1024, 8192)
"""Competitors met after each later stage by the remaining items; the last stage has all N."""
ROWS, COLUMNS = 256, 1024
"""Items and competitors per block of logits."""
ALL_ROWS = 8192
"""Items per block of the first stage, which has few competitors."""
PAIRS = 32
"""Pairs of one item that are decided in float64 at a time."""


def queries(v: Float[Array, "n d"], w: Float[Array, "d d"]) -> Float[Array, "n d"]:
    """W v_i for each item, divided by its own power of two, which is exact and keeps recovery."""
    y = jnp.matmul(v, exactly_scaled(w).T, precision=jax.lax.Precision.HIGHEST)
    return scaled(y, axis=1)[0]


def recovered(
    u: Float[Array, "*#batch n d"], v: Float[Array, "*#batch n d"], w: Float[Array, "*#batch d d"]
) -> Bool[Array, "..."]:
    """Whether each item is recovered: u_iᵀ W v_i > u_jᵀ W v_i for every j ≠ i.

    The answer is that of exact inner products of u with `queries(v, w)`, whatever the rounding of
    logits. A tie is not a recovery, so W = 0 recovers nothing, and two items with the same u and v
    are not recovered. An item with a query or a u that is not finite is not recovered. Problems
    along leading axes, or under `jax.vmap`, are solved one after the other.

    Raises:
        ValueError: fewer than two items, or shapes that do not fit together.
    """
    n, d = u.shape[-2:]
    if n < 2:
        raise ValueError(f"Recovery compares items, so it needs N of at least 2, got N={n}.")
    if v.shape[-2:] != (n, d) or w.shape[-2:] != (d, d):
        raise ValueError(
            f"u and v need the shape (N, d) and w (d, d), got {u.shape[-2:]}, {v.shape[-2:]} and"
            f" {w.shape[-2:]}."
        )
    # Arguments without batch axes are shared, not repeated.
    with jax.numpy_rank_promotion("allow"):
        return jnp.vectorize(_recovered, signature="(n,d),(n,d),(d,d)->(n)")(u, v, w)


def count(mask: Bool[Array, "*batch n"]) -> Int[Array, "*batch"]:
    """The capacity: the number of recovered items."""
    return jnp.sum(mask, axis=-1, dtype=jnp.int32)


def prefix(mask: Bool[Array, "*batch n"]) -> Int[Array, "*batch"]:
    """The number of recovered items before the first that is not."""
    return jnp.sum(jnp.cumprod(mask, axis=-1, dtype=jnp.int32), axis=-1, dtype=jnp.int32)


def count_of_few(
    u: Float[Array, "n d"], v: Float[Array, "n d"], w: Float[Array, "d d"]
) -> Int[Array, ""]:
    """The count from all logits at once, which is fast for few items."""
    return _count_of_logits(v @ w.T @ u.T)


def count_of_descent(
    u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"], most: int
) -> Int[Array, ""]:
    """The count after one step of gradient descent from zero, for at most `most` nonzero q.

    Equals `count_of_few` at W = Σ_i q_i (u_i - ū) v_iᵀ, for q as in a minibatch, without forming W:
    its logits are sums over the items with q_i > 0.
    """
    # With fewer items, the last one is repeated with weight 0.
    seen = true_places(q != 0, most)
    share = jnp.take(q, seen, mode="fill", fill_value=0)
    of_v, of_u = (
        jnp.take(x, seen, axis=0, mode="clip") for x in (v, u - jnp.mean(u, axis=0)[None, :])
    )
    return _count_of_logits((v @ of_v.T * share[None, :]) @ (of_u @ u.T))


def _count_of_logits(logits: Array) -> Array:
    others = jnp.where(jnp.eye(len(logits), dtype=bool), -jnp.inf, logits)
    return jnp.sum(jnp.diagonal(logits) > jnp.max(others, axis=1))


@sequential_vmap
def _recovered(u: Array, v: Array, w: Array) -> Array:
    u, y = exactly_scaled(u), queries(v, w)
    n, d = u.shape
    norms = jnp.sqrt(jnp.sum(u * u, axis=1))
    lengths = jnp.sqrt(jnp.sum(y * y, axis=1))
    signal = jnp.sum(u * y, axis=1)
    # Two inner products of d terms, each within d roundings of |u|ᵀ|y| in any order; half as much
    # again for norms and sums.
    rounding = 1.5 * (d + 4) * jnp.finfo(u.dtype).eps / 2
    margin = rounding * (norms + jnp.max(norms)) * lengths + 2 * d * jnp.finfo(u.dtype).tiny
    usable = jnp.isfinite(margin) & jnp.isfinite(signal) & (lengths > 0)

    best = _against_first(u, y)
    met = min(FIRST, n)
    for end in (*(stage for stage in STAGES if met < stage < n), n):
        open_items, number = _compacted(usable & (best <= signal + margin))
        best = _against(u, y, best, open_items, number, met, end)
        met = end
    certain = usable & (best < signal - margin)
    close = usable & ~certain & (best <= signal + margin)
    return _decide(u, y, signal, margin, certain, close)


def _against_first(u: Array, y: Array) -> Array:
    """The largest logit of each item against the first competitors."""
    n, first = len(u), min(FIRST, len(u))
    rows = min(ALL_ROWS, n)
    competitors = u[:first]

    def step(block: Array, best: Array) -> Array:
        start = jnp.minimum(block * rows, n - rows)
        found = _largest(
            jax.lax.dynamic_slice_in_dim(y, start, rows),
            competitors,
            start + jnp.arange(rows),
            jnp.arange(first),
        )
        return jax.lax.dynamic_update_slice_in_dim(best, found, start, 0)

    return jax.lax.fori_loop(0, -(-n // rows), step, jnp.full(n, -jnp.inf, u.dtype))


def _against(
    u: Array, y: Array, best: Array, items: Array, number: Array, start: int, end: int
) -> Array:
    """Test the first `number` of `items` against the competitors from `start` to `end`.

    Returns the updated `best`. The last block of competitors starts early enough to be full;
    competitors met twice change nothing.
    """
    columns = min(COLUMNS, len(u))
    blocks = -(-(end - start) // columns)

    def rows_step(chunk: Array, best: Array) -> Array:
        rows = jax.lax.dynamic_slice_in_dim(items, chunk * ROWS, ROWS)
        queried = jnp.take(y, rows, axis=0, mode="clip")

        def columns_step(block: Array, found: Array) -> Array:
            at = jnp.minimum(start + block * columns, len(u) - columns)
            competitors = jax.lax.dynamic_slice_in_dim(u, at, columns)
            return jnp.maximum(
                found, _largest(queried, competitors, rows, at + jnp.arange(columns))
            )

        found = jax.lax.fori_loop(0, blocks, columns_step, jnp.full(ROWS, -jnp.inf, u.dtype))
        return best.at[rows].max(found, mode="drop")

    return jax.lax.fori_loop(0, -(-number // ROWS), rows_step, best)


def _largest(y: Array, competitors: Array, rows: Array, columns: Array) -> Array:
    """The largest logit of each row of y over competitors other than itself."""
    logits = jnp.matmul(y, competitors.T, precision=jax.lax.Precision.HIGHEST)
    return jnp.max(jnp.where(rows[:, None] == columns[None, :], -jnp.inf, logits), axis=1)


def _compacted(mask: Array) -> tuple[Array, Array]:
    """Indices where `mask` holds, padded with N to a whole number of blocks, and their number."""
    n = len(mask)
    return true_places(mask, -(-n // ROWS) * ROWS), jnp.sum(mask)


def _decide(
    u: Array, y: Array, signal: Array, margin: Array, certain: Array, close: Array
) -> Array:
    """Return `certain` and the `close` items that exceed all competitors within rounding."""
    items, number = _compacted(close)

    def step(k: Array, certain: Array) -> Array:
        item = items[k]
        logits = jnp.matmul(u, y[item], precision=jax.lax.Precision.HIGHEST)
        near = (logits >= signal[item] - margin[item]).at[item].set(False)
        return certain.at[item].set(_wins(u, y, item, near))

    return jax.lax.fori_loop(0, number, step, certain)


def _wins(u: Array, y: Array, item: Array, near: Array) -> Array:
    """Whether the logit of `item` exceeds those of `near` competitors, by float64 differences."""

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        near, _ = state
        js = true_places(near, min(PAIRS, len(u)))
        with jax.enable_x64(True):
            own, others, query = (
                a.astype(jnp.float64)
                for a in (u[item], jnp.take(u, js, axis=0, mode="clip"), y[item])
            )
            larger = jnp.sum((own[None] - others) * query[None], axis=1) > 0
        return near.at[js].set(False, mode="drop"), jnp.all(larger | (js == len(u)))

    def undecided(state: tuple[Array, Array]) -> Array:
        near, winning = state
        return winning & jnp.any(near)

    return jax.lax.while_loop(undecided, step, (near, jnp.ones((), bool)))[1]
