"""In-context recall: each trigger has the same output all along (associative-memory, Appendix D.2).

Two disjoint vocabularies of N tokens: triggers Q are the tokens 0 to N - 1, outputs and noise V the
next N. A sequence samples K triggers from p^(t) without replacement and K outputs from p^(o) with
replacement, puts each bigram (q_k, o_k) at M places, and fills the rest with noise, uniform on V.
From its second occurrence on, a trigger's output can be known, and only these tokens count. p^(t)
and p^(o) are power laws p_i ∝ i^-α. The exponents may be traced, as may the number of tokens and of
sequences, as a `Size`.

Since a trigger always precedes its output, copying the token that followed it last is always right:
`oracle` does so, and so does `induction_head`, a two-layer transformer made of the associative
memories of Bietti et al. (2023).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int, Key

from specjax.models.transformer import Blocks, Sequences, Transformer
from specjax.sizes import AnySize, active, mask, padded, uniform


@dataclass(frozen=True)
class Recall:
    """Sizes of the task; all defaults are the paper's, except `items`.

    Args:
        items: N, the tokens of each vocabulary; a `Size` where it is swept.
        length: T, the tokens of a sequence.
        triggers: K, different triggers of a sequence.
        repeats: M, occurrences of each trigger.

    Raises:
        ValueError: fewer than one trigger, two repeats or K items, or a length below 2 K M.

    """

    items: AnySize
    length: int = 24
    triggers: int = 2
    repeats: int = 2

    def __post_init__(self) -> None:
        if self.triggers < 1 or self.repeats < 2:
            raise ValueError(
                "Recall needs triggers of at least 1 and repeats of at least 2, got"
                f" {self.triggers} and {self.repeats}."
            )
        if padded(self.items) < max(self.triggers, 2):
            raise ValueError(
                "Triggers are drawn without replacement, so items must be at least"
                f" {max(self.triggers, 2)}, got {padded(self.items)}."
            )
        if self.length < 2 * self.triggers * self.repeats:
            raise ValueError(
                f"A sequence of {self.triggers} triggers, each {self.repeats} times with its"
                f" output, needs a length of at least {2 * self.triggers * self.repeats}, got"
                f" {self.length}."
            )

    @property
    def vocabulary(self) -> int:
        """The number of tokens of both vocabularies, with padding."""
        return 2 * padded(self.items)


def sample(
    key: Key[Array, ""],
    task: Recall,
    batch: AnySize,
    trigger_exponent: ArrayLike = 0.0,
    output_exponent: ArrayLike = 0.0,
) -> Sequences:
    """Independent sequences; both exponents 0 make the paper's out-of-distribution data.

    Sequence i depends on the key and i alone, so that a smaller batch is the beginning of a larger
    one. Bigrams do not overlap, and all such placements are equally likely. With exponent 0
    triggers or outputs are uniform.

    Args:
        key: The key of the batch.
        task: Its sizes.
        batch: The number of sequences; those beyond the active ones do not count.
        trigger_exponent: α_t of p^(t).
        output_exponent: α_o of p^(o).

    Returns:
        Tokens `(batch, T)`, and whether each of the T - 1 after the first counts: K (M - 1) per
        sequence.

    """
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(padded(batch)))
    laws = _weights(task.items, trigger_exponent), _weights(task.items, output_exponent)
    tokens, counted = jax.vmap(lambda one: _sequence(one, task, *laws))(keys)
    return Sequences(tokens, counted & mask(batch)[:, None])


def oracle(tokens: Int[Array, " n"]) -> Int[Array, " n"]:
    """The token after the last earlier occurrence of each token, or -1."""
    n = len(tokens)
    before = jnp.tril(jnp.ones((n, n), bool), -1)
    same = before & (tokens[:, None] == tokens[None, :])
    last = n - 1 - jnp.argmax(same[:, ::-1], axis=1)
    return jnp.where(jnp.any(same, axis=1), tokens[jnp.minimum(last + 1, n - 1)], -1)


def memory_recall(model: Transformer, task: Recall) -> Float[Array, ""]:
    """R(W_V) of the last block: the share of tokens v ∈ V with argmax_v' u_v'ᵀ W_V e_v = v.

    W_V means W_O W_V if attention has W_O. u are rows of the head (of a tied embedding), v' is in
    V; 1/N by chance.
    """
    value = model.blocks.value[-1]
    if model.blocks.output is not None:
        value = model.blocks.output[-1] @ value
    head = model.embedding if model.head is None else model.head
    items = padded(task.items)
    found, among = model.embedding[items:] @ value.T @ head[items:].T, mask(task.items)
    right = jnp.argmax(jnp.where(among[None, :], found, -jnp.inf), axis=1) == jnp.arange(items)
    return jnp.sum(jnp.where(among, right, False)) / active(task.items)


def induction_head(task: Recall) -> Transformer:
    """A transformer of width 6N + T, without W_O and perceptrons, that solves the task.

    The stream has four parts: the token, its place, the token before, and the prediction. Block 1
    attends from each place to the one before and copies its token; block 2 attends to the place
    whose preceding token is this one, and W_V maps its token, if it is in V, to the prediction, the
    only part that the head reads.
    """
    v, t = task.vocabulary, task.length
    d = 3 * v + t
    token, place, before, prediction = (
        slice(0, v),
        slice(v, v + t),
        slice(v + t, d - v),
        slice(d - v, d),
    )
    sharp = (
        400 / d**0.5
        # normed parts of the stream are at least √(d/6) long, so that no other place gets e^-50 of
        # the attention
    )
    zero, one = jnp.zeros((d, d)), jnp.eye(v)
    is_output = (jnp.arange(v) >= v // 2).astype(
        zero.dtype
    )  # the first place uses itself as the one before
    weights = {
        "query": [
            zero.at[place, place].set(sharp * jnp.eye(t, k=1)),
            zero.at[token, token].set(sharp * one),
        ],
        "key": [zero.at[place, place].set(jnp.eye(t)), zero.at[token, before].set(one)],
        "value": [
            zero.at[before, token].set(one),
            zero.at[prediction, token].set(jnp.diag(is_output)),
        ],
    }
    blank = jnp.zeros((v, d))
    query, key, value = (jnp.stack(weights[name]) for name in ("query", "key", "value"))
    return Transformer(
        embedding=blank.at[:, token].set(one),
        positions=jnp.zeros((t, d)).at[:, place].set(jnp.eye(t)),
        blocks=Blocks(query, key, value, output=None, up=None, gate=None, down=None),
        head=blank.at[:, prediction].set(one),
        heads=1,
        activation=None,
    )


def _weights(items: AnySize, exponent: ArrayLike) -> Float[Array, " items"]:
    """i^-α, zero beyond the active items."""
    rank = jnp.arange(1, padded(items) + 1, dtype=jnp.result_type(float))
    return jnp.where(mask(items), rank ** -jnp.asarray(exponent, rank.dtype), 0)


def _sequence(
    key: Array,
    task: Recall,
    trigger_law: Float[Array, " items"],
    output_law: Float[Array, " items"],
) -> tuple[Int[Array, " T"], Bool[Array, " T-1"]]:
    k, m, t = task.triggers, task.repeats, task.length
    # One sample of all numbers compiles faster than four; those for the items come last, since
    # padding adds to them.
    units, among, n = t - k * m, mask(task.items), padded(task.items)
    numbers = uniform(key, (k + t + units + n,))
    for_outputs, for_noise, for_places, for_triggers = jnp.split(numbers, (k, k + t, k + t + units))
    # The first K of exponential clocks with these rates are K samples without replacement.
    clocks = -jnp.log1p(-for_triggers) / jnp.where(among, trigger_law, 1)
    _, triggers = jax.lax.top_k(jnp.where(among, -clocks, -jnp.inf), k)
    cumulative = jnp.cumsum(output_law)
    outputs = jnp.searchsorted(cumulative, for_outputs * cumulative[-1], side="right")
    last = jnp.asarray(active(task.items), jnp.int32) - 1
    noise = for_noise * jnp.asarray(active(task.items), cumulative.dtype)
    outputs, noise = (jnp.minimum(x.astype(jnp.int32), last) + n for x in (outputs, noise))
    # Bigrams and single tokens are t - k m units in a row; a random subset of them, in random
    # order, are bigrams.
    chosen = jnp.argsort(for_places)[: k * m]
    start = chosen + jnp.sum(chosen[None, :] < chosen[:, None], axis=1)
    which = jnp.repeat(jnp.arange(k), m)
    again = jnp.any((which[None, :] == which[:, None]) & (start[None, :] < start[:, None]), axis=1)
    here = jnp.arange(t)[:, None] == start[None, :]  # (place, bigram)
    there = jnp.arange(t)[:, None] == start[None, :] + 1
    tokens = jnp.where(here.any(1) | there.any(1), 0, noise)
    tokens = tokens + jnp.sum(
        jnp.where(here, triggers[which][None, :], 0) + jnp.where(there, outputs[which][None, :], 0),
        axis=1,
    )
    return tokens, jnp.any(here & again[None, :], axis=1)[:-1]
