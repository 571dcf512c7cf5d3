"""Cross-entropy of a linear associative memory and its exact gradients, with blocks of logits.

L(W) = -Σ_i q_i log p̂_W(i | i), p̂_W(j | i) = exp(u_jᵀ W v_i) / Σ_k exp(u_kᵀ W v_i)
(associative-memory, eq. 1); q are the frequencies of the population or of a minibatch. u and v are
(N, d), q is (N,), W is (d, d).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Float, Int

from specjax.models.associative_memory._searches import true_places

ROWS, COLUMNS = 512, 1024
"""Items and competitors per block of logits, small enough for a core's cache."""

_HIGHEST = jax.lax.Precision.HIGHEST


class LossAndGradient(NamedTuple):
    """L(W), a scalar, and ∇L(W), (d, d)."""

    loss: Float[Array, "..."]
    gradient: Float[Array, "... d d"]


def init(u: Float[Array, "n d"], *runs: int) -> Float[Array, "*runs d d"]:
    """W = 0, one for each run along the leading axes."""
    return jnp.zeros((*runs, u.shape[1], u.shape[1]), u.dtype)


def gradient_at_zero(
    u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"]
) -> Float[Array, "d d"]:
    """∇L(0) = -Σ_i q_i (u_i - ū) v_iᵀ exactly, ū the mean of all u_j, in O(N d²)."""
    weighted = v * q[:, None]
    matched = jnp.matmul(u.T, weighted, precision=_HIGHEST)
    return jnp.outer(jnp.mean(u, axis=0), jnp.sum(weighted, axis=0)) - matched


def deflated_gradient(
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    stored: int | Int[Array, ""],
) -> Float[Array, "d d"]:
    """-Σ_{i > stored} q_i u_i v_iᵀ, without the first `stored` items (eq. 5)."""
    left = jnp.where(jnp.arange(len(q)) >= stored, q, 0)
    return -jnp.matmul(u.T, v * left[:, None], precision=_HIGHEST)


def loss(
    w: Float[Array, "*#batch d d"],
    u: Float[Array, "*#batch n d"],
    v: Float[Array, "*#batch n d"],
    q: Float[Array, "*#batch n"],
) -> Float[Array, "..."]:
    """L(W), streamed as in `loss_and_gradient`, in half its time."""
    # Arguments without batch axes are shared, not repeated.
    with jax.numpy_rank_promotion("allow"):
        return jnp.vectorize(_loss, signature="(d,d),(n,d),(n,d),(n)->()")(w, u, v, q)


def loss_and_gradient(
    w: Float[Array, "*#batch d d"],
    u: Float[Array, "*#batch n d"],
    v: Float[Array, "*#batch n d"],
    q: Float[Array, "*#batch n"],
) -> LossAndGradient:
    """L(W) and ∇L(W) = -Σ_i q_i (u_i - Σ_j p̂(j | i) u_j) v_iᵀ, exact, in O(M N d) time and O(N d)
    memory.

    M is the number of items with q_i > 0: all of them for a population, at most the batch for a
    minibatch. Each block of logits adds to Σ_j exp and Σ_j exp · u_j relative to the largest logit
    so far, so that nothing overflows and one pass is enough. Problems along leading axes, or under
    `jax.vmap`, are solved one after the other.
    """
    with jax.numpy_rank_promotion("allow"):
        return LossAndGradient(
            *jnp.vectorize(_streamed, signature="(d,d),(n,d),(n,d),(n)->(),(d,d)")(w, u, v, q)
        )


@sequential_vmap
def _loss(w: Array, u: Array, v: Array, q: Array) -> Array:
    def add(total: Array, y: Array, items: tuple[Array, Array, Array]) -> Array:
        own, _, weights = items
        largest, sums, _ = _softmax_sums(y, u, averaged=False)
        return total + _weighted_loss(y, own, weights, largest, sums)

    return _over_items(w, u, v, q, add, jnp.zeros((), w.dtype))


@sequential_vmap
def _streamed(w: Array, u: Array, v: Array, q: Array) -> tuple[Array, Array]:
    def add(
        state: tuple[Array, Array], y: Array, items: tuple[Array, Array, Array]
    ) -> tuple[Array, Array]:
        total, gradient = state
        own, embedded, weights = items
        largest, sums, averages = _softmax_sums(y, u, averaged=True)
        residual = (averages / sums[:, None] - own) * weights[:, None]
        gradient = gradient + jnp.matmul(residual.T, embedded, precision=_HIGHEST)
        return total + _weighted_loss(y, own, weights, largest, sums), gradient

    return _over_items(w, u, v, q, add, (jnp.zeros((), w.dtype), jnp.zeros_like(w)))


def _over_items(w: Array, u: Array, v: Array, q: Array, add: Callable[..., Any], start: Any) -> Any:
    """Apply `add` to blocks of items with q > 0, given queries W v_i and (u_i, v_i, q_i)."""
    n = len(q)
    items = true_places(q > 0, -(-n // ROWS) * ROWS)

    def step(block: Array, state: Any) -> Any:
        rows = jax.lax.dynamic_slice_in_dim(items, block * ROWS, ROWS)
        own, embedded = (jnp.take(a, rows, axis=0, mode="clip") for a in (u, v))
        weights = jnp.take(q, rows, mode="fill", fill_value=0)
        return add(state, jnp.matmul(embedded, w.T, precision=_HIGHEST), (own, embedded, weights))

    return jax.lax.fori_loop(0, -(-jnp.sum(q > 0) // ROWS), step, start)


def _softmax_sums(y: Array, u: Array, averaged: bool) -> tuple[Array, Array, Array]:
    """Per query the largest logit m, Σ_j e^(logit_j - m) and, if `averaged`, its sum with u_j."""
    n, d = u.shape
    columns = min(COLUMNS, n)

    def step(block: Array, state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        largest, sums, averages = state
        # The last block starts early enough to be full, and skips the items already counted.
        at = jnp.minimum(block * columns, n - columns)
        competitors = jax.lax.dynamic_slice_in_dim(u, at, columns)
        logits = jnp.matmul(y, competitors.T, precision=_HIGHEST)
        logits = jnp.where((at + jnp.arange(columns) >= block * columns)[None, :], logits, -jnp.inf)
        now = jnp.maximum(largest, jnp.max(logits, axis=1))
        exps, shrunk = jnp.exp(logits - now[:, None]), jnp.exp(largest - now)
        if averaged:
            averages = averages * shrunk[:, None] + jnp.matmul(
                exps, competitors, precision=_HIGHEST
            )
        return now, sums * shrunk + jnp.sum(exps, axis=1), averages

    start = (
        jnp.full(len(y), -jnp.inf, y.dtype),
        jnp.zeros(len(y), y.dtype),
        jnp.zeros((len(y), d), y.dtype),
    )
    return jax.lax.fori_loop(0, -(-n // columns), step, start)


def _weighted_loss(y: Array, own: Array, weights: Array, largest: Array, sums: Array) -> Array:
    return jnp.sum(weights * (largest + jnp.log(sums) - jnp.sum(own * y, axis=1)))
