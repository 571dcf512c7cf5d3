"""Causal transformers: pre-normalization without gains, learned positions, optional perceptrons.

X ← E[tokens] + P, then in block ℓ X ← X + W_O attention(W_Q A, W_K A, W_V A) with A = RMSNorm(X),
and X ← X + W_2 σ(W_1 RMSNorm(X)), gated σ(W_g B) ∘ (W_1 B) for gated activations; logits W_head
RMSNorm(X). This is the architecture of spectral-criterion, Section 2.2.2, and of the recall task of
associative-memory, Appendix D.2. Sequences have tokens in rows, weights are (outputs, inputs).

`figure_19` adds the parts of spectral-criterion's Figure 19, each an option of its own: rotary
positions, QK norm, value embeddings, skips as in a U-net, outputs that start at zero, and a cap on
the logits, with the constants of the snapshot that the paper names (modded-nanogpt, commit
0d200742). Not included are windows of attention, a block without attention, and a normalized
embedding that is added in every block with a weight that starts at zero.

The blocks are stacked along a leading axis and scanned, so that a deep model compiles as fast as a
shallow one, and an orthogonalizing step handles all matrices of a kind in one batched call:
`optim.muon(rate, labels=transformer.labels, muon_weight_dimension_numbers=optim.OUT_IN)`.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from specjax.models._architecture import Architecture as Architecture
from specjax.models._architecture import figure_19 as figure_19
from specjax.models.mlp import GATED
from specjax.models.sequence_parts import capped, rms_norm, rotated
from specjax.sizes import AnySize, active, normal, normals
from specjax.theory.activations import ACTIVATIONS


class Blocks(eqx.Module):
    """Weights of all blocks, stacked along the first axis; None for absent parts."""

    query: Float[Array, "blocks d d"]
    key: Float[Array, "blocks d d"]
    value: Float[Array, "blocks d d"]
    output: Float[Array, "blocks d d"] | None
    up: Float[Array, "blocks h d"] | None
    gate: Float[Array, "blocks h d"] | None
    down: Float[Array, "blocks d h"] | None


class ValueEmbeddings(eqx.Module):
    """Token vectors that are added to the values of the first and the last blocks."""

    tables: Float[Array, "tables vocabulary d"]
    shares: Float[Array, "blocks 2"]
    """λ and λ' of every block."""

    def __call__(
        self, tokens: Int[Array, " n"], blocks: int
    ) -> tuple[Array, Float[Array, "blocks n d"]]:
        """The shares, and each block's sum: table k of t in blocks k and L - t + k, else zero."""
        embedded = self.tables[:, tokens]
        between = jnp.zeros((blocks - 2 * len(embedded), *embedded.shape[1:]), embedded.dtype)
        return self.shares, jnp.concatenate([embedded, between, embedded])


class Transformer(eqx.Module):
    """A transformer; every inexact leaf is trained."""

    embedding: Float[Array, "vocabulary d"]
    positions: Float[Array, "context d"] | None
    """None if queries and keys are rotated."""
    blocks: Blocks
    head: Float[Array, "vocabulary d"] | None
    heads: int = eqx.field(static=True)
    activation: str | None = eqx.field(static=True)
    values: ValueEmbeddings | None = None
    skips: Float[Array, " half"] | None = None
    """Weight of the input of block L/2, then L/2 + 1, …"""
    qk_norm: bool = eqx.field(static=True, default=False)
    cap: float | None = eqx.field(static=True, default=None)

    def __call__(
        self, tokens: Int[Array, " n"], width: AnySize | None = None
    ) -> Float[Array, "n vocabulary"]:
        """Logits of the next token at every position; `width` is the `Size` of a padded model.

        Raises:
            ValueError: more tokens than learned positions.

        """
        x = self.embedding[tokens]
        if self.positions is not None:
            if len(tokens) > len(self.positions):
                raise ValueError(
                    f"A sequence of {len(tokens)} tokens is longer than the context of"
                    f" {len(self.positions)}."
                )
            x = x + self.positions[: len(tokens)]
        width = x.shape[-1] if width is None else width
        blocks = len(self.blocks.query)
        added = None if self.values is None else self.values(tokens, blocks)
        skips = outputs = None
        if self.skips is not None:
            skips = jnp.arange(blocks), jnp.concatenate([jnp.zeros_like(self.skips), self.skips])
            outputs = jnp.zeros((blocks, *x.shape), x.dtype)

        def block(carry: tuple[Array, Any], over: Any) -> tuple[tuple[Array, Any], None]:
            (x, outputs), (weights, added, skip) = carry, over
            if skip is not None:
                number, weight = skip
                x = x + weight * outputs[blocks - 1 - number]
            x = x + self._attention(weights, rms_norm(x, width), width, added)
            if weights.up is not None and weights.down is not None:
                x = x + self._hidden(weights, rms_norm(x, width)) @ weights.down.T
            if skip is not None:
                outputs = outputs.at[number].set(x)
            return (x, outputs), None

        (x, _), _ = jax.lax.scan(block, (x, outputs), (self.blocks, added, skips))
        head = (
            self.embedding / jnp.sqrt(jnp.asarray(active(width), x.dtype))
            if self.head is None
            else self.head
        )
        logits = rms_norm(x, width) @ head.T
        return logits if self.cap is None else capped(logits, self.cap)

    def _attention(
        self,
        weights: Blocks,
        a: Float[Array, "n d"],
        width: AnySize,
        added: tuple[Array, Array] | None,
    ) -> Float[Array, "n d"]:
        n, d = a.shape
        query, key, value = (
            (a @ w.T).reshape(n, self.heads, d // self.heads)
            for w in (weights.query, weights.key, weights.value)
        )
        if added is not None:
            shares, embedded = added
            value = shares[0] * value + shares[1] * embedded.reshape(value.shape)
        if self.qk_norm:
            size = width if self.heads == 1 else d // self.heads
            query, key = rms_norm(query, size), rms_norm(key, size)
        if self.positions is None:
            query, key = rotated(query), rotated(key)
        scale = jnp.sqrt(jnp.asarray(active(width), a.dtype) / self.heads)
        mixed = jax.nn.dot_product_attention(
            query / scale, key, value, scale=1.0, is_causal=True
        ).reshape(n, d)
        return mixed if weights.output is None else mixed @ weights.output.T

    def _hidden(self, weights: Blocks, b: Float[Array, "n d"]) -> Float[Array, "n h"]:
        assert weights.up is not None
        assert self.activation is not None
        up = b @ weights.up.T
        if weights.gate is not None:
            return ACTIVATIONS[GATED[self.activation]].function(b @ weights.gate.T) * up
        return ACTIVATIONS[self.activation].function(up)


class Sequences(NamedTuple):
    """Training data: tokens, and whether to predict each one after the first (None: all)."""

    tokens: Int[Array, "batch n+1"]
    counted: Bool[Array, "batch n"] | None = None


def init(key: Key[Array, ""], architecture: Architecture) -> Transformer:
    """Independent N(0, 1) entries in tables and positions, N(0, 1/fan_in) or 0 in matrices."""
    d = architecture.width
    tables, weights, values_key = _draws(key, architecture)
    head = tables.get(2)
    model = Transformer(
        embedding=tables[0],
        positions=tables.get(1),
        blocks=Blocks(**weights),  # type: ignore[arg-type]
        head=None if head is None else head / jnp.sqrt(jnp.asarray(active(d), head.dtype)),
        heads=architecture.heads,
        activation=architecture.activation,
        values=_value_embeddings(values_key, architecture),
        skips=jnp.ones(architecture.blocks // 2) if architecture.skips else None,
        qk_norm=architecture.qk_norm,
        cap=architecture.cap,
    )
    if not architecture.zero_outputs:
        return model
    return eqx.tree_at(
        lambda m: [x for x in (m.blocks.output, m.blocks.down, m.head) if x is not None],
        model,
        replace_fn=jnp.zeros_like,
    )


def _draws(
    key: Key[Array, ""], architecture: Architecture
) -> tuple[dict[int, Array], dict[str, Array | None], Key[Array, ""]]:
    """The tables by their place among embedding, positions and head; the weights of the blocks; and
    the key of the value embeddings.
    """
    d, blocks = architecture.width, architecture.blocks
    shapes = _block_shapes(architecture)
    block_key, table_key = jax.random.split(key)
    names = [*Blocks.__dataclass_fields__]
    block_keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(block_key, i), blocks))(
        jnp.arange(len(names))
    )
    keys = dict(zip(names, block_keys, strict=True))
    rows = (architecture.vocabulary, architecture.context, architecture.vocabulary)
    table_keys = jax.vmap(lambda i: jax.random.fold_in(table_key, i))(jnp.arange(len(rows) + 1))
    kept = [0] + [1] * (not architecture.rotary) + [2] * (not architecture.tied)
    # All matrices with d columns at once: the generator takes longer to compile than a layer.
    wide = [name for name in shapes if name != "down"]
    matrices = iter(
        normals(
            jnp.concatenate([table_keys[np.array(kept)], *(keys[name] for name in wide)]),
            [*(rows[i] for i in kept), *(shapes[name][0] for name in wide for _ in range(blocks))],
            d,
        )
    )
    tables = {i: next(matrices) for i in kept}
    drawn = {name: jnp.stack([next(matrices) for _ in range(blocks)]) for name in wide}
    if "down" in shapes:
        drawn["down"] = jnp.stack(normals(keys["down"], [d] * blocks, architecture.hidden))
    weights = dict.fromkeys(names) | {
        name: x / jnp.sqrt(jnp.asarray(active(shapes[name][1]), x.dtype))
        for name, x in drawn.items()
    }
    return tables, weights, table_keys[len(rows)]


def _block_shapes(architecture: Architecture) -> dict[str, tuple[AnySize, AnySize]]:
    """The shapes of the matrices that each block has."""
    d, hidden = architecture.width, architecture.hidden
    shapes = dict.fromkeys(("query", "key", "value"), (d, d))
    if architecture.project:
        shapes["output"] = (d, d)
    if architecture.activation is not None:
        shapes |= {"up": (hidden, d), "down": (d, hidden)}
        if architecture.activation in GATED:
            shapes["gate"] = (hidden, d)
    return shapes


def _value_embeddings(key: Key[Array, ""], architecture: Architecture) -> ValueEmbeddings | None:
    if not architecture.value_tables:
        return None
    keys = jax.random.split(key, architecture.value_tables)
    tables = jax.vmap(lambda one: normal(one, (architecture.vocabulary, architecture.width)))(keys)
    return ValueEmbeddings(tables, jnp.full((architecture.blocks, 2), 0.5))


def loss(model: Transformer, batch: Sequences, width: AnySize | None = None) -> Float[Array, ""]:
    """The mean cross-entropy, in nats, of the counted tokens; NaN if there are none."""
    logits, targets, counted = _predictions(model, batch, width)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(jnp.where(counted, losses, 0)) / jnp.sum(counted, dtype=losses.dtype)


def accuracy(
    model: Transformer, batch: Sequences, width: AnySize | None = None
) -> Float[Array, ""]:
    """The share of counted tokens that have the largest logit; NaN if there are none."""
    logits, targets, counted = _predictions(model, batch, width)
    right = counted & (jnp.argmax(logits, axis=-1) == targets)
    return jnp.sum(right, dtype=logits.dtype) / jnp.sum(counted, dtype=logits.dtype)


def labels(model: PyTree) -> PyTree:
    """For `optim.muon`: block matrices are "matrix"; embedding, positions and head are "other"."""
    everything = jax.tree.map(lambda _: "other", model)
    return eqx.tree_at(
        lambda m: m.blocks, everything, jax.tree.map(lambda _: "matrix", model.blocks)
    )


def _predictions(
    model: Transformer, batch: Sequences, width: AnySize | None
) -> tuple[Array, Array, Array]:
    tokens, counted = batch
    logits = jax.vmap(lambda one: model(one, width))(tokens[:, :-1])
    targets = tokens[:, 1:]
    return logits, targets, jnp.ones(targets.shape, bool) if counted is None else counted
