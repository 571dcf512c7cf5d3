"""A causal transformer: pre-normalization without gains, learned positions, an optional multilayer perceptron in every block.

X ← E[tokens] + P, then in block ℓ X ← X + W_O attention(W_Q A, W_K A, W_V A) with A = RMSNorm(X), and X ← X + W_2 σ(W_1 RMSNorm(X)), gated
σ(W_g B) ∘ (W_1 B) for gated activations; logits W_head RMSNorm(X). This is the architecture of spectral-criterion, Section 2.2.2, and of
the recall task of associative-memory, Appendix D.2. Sequences have tokens in rows, weights are (outputs, inputs).

The blocks lie stacked along a leading axis and are scanned, so that a deep model compiles as fast as a shallow one, and an
orthogonalizing step takes all of a kind in one batched call: `optim.muon(rate, labels=transformer.labels, dimension_numbers=optim.OUT_IN)`.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from specjax.models.mlp import GATED
from specjax.sizes import AnySize, Size, active, normal, padded, times
from specjax.theory.activations import ACTIVATIONS


@dataclass(frozen=True)
class Architecture:
    """Sizes and choices of a transformer.

    Args:
        vocabulary: Tokens.
        width: d, the residual stream; a `Size` where it is swept, with one head.
        context: The longest sequence.
        blocks: Their number.
        heads: Heads of every attention, a divisor of the width.
        activation: σ of the perceptrons, a name of `theory.activations` or "swiglu"; None for attention only.
        expansion: Hidden units of a perceptron over d.
        tied: Whether the head is the embedding, over √d.
        project: Whether attention has W_O; without it the heads' values are added to the stream as they are.

    Raises:
        ValueError: for sizes below 1, heads that do not divide the width, several heads of a `Size`, or an unknown activation.

    """

    vocabulary: int
    width: AnySize
    context: int
    blocks: int = 2
    heads: int = 1
    activation: str | None = "relu"
    expansion: int = 4
    tied: bool = False
    project: bool = True

    def __post_init__(self) -> None:
        counts = (self.vocabulary, self.context, self.blocks, self.heads, self.expansion, padded(self.width))
        if min(counts) < 1:
            raise ValueError(f"All sizes of a transformer must be at least 1, got {self}.")
        if isinstance(self.width, Size):
            if self.heads != 1:
                raise ValueError(
                    f"A width that is swept as a Size needs heads=1, got {self.heads}; sweep it by values."
                )
        elif self.width % self.heads:
            raise ValueError(f"The heads must divide the width, got heads={self.heads} and width={self.width}.")
        if self.activation is not None and self.activation not in ACTIVATIONS and self.activation not in GATED:
            known = ", ".join([*ACTIVATIONS, *GATED])
            raise ValueError(f"There is no activation {self.activation!r}; there are None, {known}.")

    @property
    def hidden(self) -> AnySize:
        """Hidden units of a perceptron."""
        return times(self.width, self.expansion)


class Blocks(eqx.Module):
    """The weights of all blocks, which the first axis counts; None for what an architecture does without."""

    query: Float[Array, "blocks d d"]
    key: Float[Array, "blocks d d"]
    value: Float[Array, "blocks d d"]
    output: Float[Array, "blocks d d"] | None
    up: Float[Array, "blocks h d"] | None
    gate: Float[Array, "blocks h d"] | None
    down: Float[Array, "blocks d h"] | None


class Transformer(eqx.Module):
    """A transformer; every inexact leaf is trained."""

    embedding: Float[Array, "vocabulary d"]
    positions: Float[Array, "context d"]
    blocks: Blocks
    head: Float[Array, "vocabulary d"] | None
    heads: int = eqx.field(static=True)
    activation: str | None = eqx.field(static=True)

    def __call__(self, tokens: Int[Array, " n"], width: AnySize | None = None) -> Float[Array, "n vocabulary"]:
        """Logits of the next token at every position; `width` is the `Size` of a padded model.

        Raises:
            ValueError: for more tokens than the context.

        """
        context, d = self.positions.shape
        if len(tokens) > context:
            raise ValueError(f"A sequence of {len(tokens)} tokens is longer than the context of {context}.")
        width = d if width is None else width

        def block(x: Array, weights: Blocks) -> tuple[Array, None]:
            x = x + self._attention(weights, rms_norm(x, width), width)
            if weights.up is not None and weights.down is not None:
                x = x + self._hidden(weights, rms_norm(x, width)) @ weights.down.T
            return x, None

        x, _ = jax.lax.scan(block, self.embedding[tokens] + self.positions[: len(tokens)], self.blocks)
        head = self.embedding / jnp.sqrt(jnp.asarray(active(width), x.dtype)) if self.head is None else self.head
        return rms_norm(x, width) @ head.T

    def _attention(self, weights: Blocks, a: Float[Array, "n d"], width: AnySize) -> Float[Array, "n d"]:
        n, d = a.shape
        query, key, value = (
            (a @ w.T).reshape(n, self.heads, d // self.heads) for w in (weights.query, weights.key, weights.value)
        )
        scale = jnp.sqrt(jnp.asarray(active(width), a.dtype) / self.heads)
        mixed = jax.nn.dot_product_attention(query / scale, key, value, scale=1.0, is_causal=True).reshape(n, d)
        return mixed if weights.output is None else mixed @ weights.output.T

    def _hidden(self, weights: Blocks, b: Float[Array, "n d"]) -> Float[Array, "n h"]:
        assert weights.up is not None
        assert self.activation is not None
        up = b @ weights.up.T
        if weights.gate is not None:
            return ACTIVATIONS[GATED[self.activation]].function(b @ weights.gate.T) * up
        return ACTIVATIONS[self.activation].function(up)


class Sequences(NamedTuple):
    """Training data: tokens, and whether each of those after the first is to be predicted (None: all)."""

    tokens: Int[Array, "batch n+1"]
    counted: Bool[Array, "batch n"] | None = None


def init(key: Key[Array, ""], architecture: Architecture) -> Transformer:
    """Independent entries: N(0, 1) in the embedding and the positions, N(0, 1/fan_in) in all matrices (Assumption A)."""
    d, hidden = architecture.width, architecture.hidden
    shapes = dict.fromkeys(("query", "key", "value"), (d, d))
    if architecture.project:
        shapes["output"] = (d, d)
    if architecture.activation is not None:
        shapes |= {"up": (hidden, d), "down": (d, hidden)}
        if architecture.activation in GATED:
            shapes["gate"] = (hidden, d)
    block_key, table_key = jax.random.split(key)
    keys = {name: jax.random.fold_in(block_key, i) for i, name in enumerate(Blocks.__dataclass_fields__)}

    def stack(name: str) -> Array:
        rows, columns = shapes[name]
        draws = jax.vmap(lambda one: normal(one, (rows, columns)))(jax.random.split(keys[name], architecture.blocks))
        return draws / jnp.sqrt(jnp.asarray(active(columns), draws.dtype))

    tables = [
        normal(jax.random.fold_in(table_key, i), (rows, d))
        for i, rows in enumerate((architecture.vocabulary, architecture.context, architecture.vocabulary))
    ]
    head = None if architecture.tied else tables[2] / jnp.sqrt(jnp.asarray(active(d), tables[2].dtype))
    weights: dict[str, Any] = {name: stack(name) if name in shapes else None for name in keys}
    return Transformer(tables[0], tables[1], Blocks(**weights), head, architecture.heads, architecture.activation)


def loss(model: Transformer, batch: Sequences, width: AnySize | None = None) -> Float[Array, ""]:
    """The mean cross-entropy, in nats, of the tokens that count; NaN if there are none."""
    # Here, since the models are to load without optax.
    import optax

    logits, targets, counted = _predictions(model, batch, width)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
    return jnp.sum(jnp.where(counted, losses, 0)) / jnp.sum(counted, dtype=losses.dtype)


def accuracy(model: Transformer, batch: Sequences, width: AnySize | None = None) -> Float[Array, ""]:
    """The share of the tokens that count that have the largest logit; NaN if there are none."""
    logits, targets, counted = _predictions(model, batch, width)
    right = counted & (jnp.argmax(logits, axis=-1) == targets)
    return jnp.sum(right, dtype=logits.dtype) / jnp.sum(counted, dtype=logits.dtype)


def labels(model: PyTree) -> PyTree:
    """For `optim.muon`: the matrices of the blocks are "matrix"; embedding, positions and head are "other"."""
    everything = jax.tree.map(lambda _: "other", model)
    return eqx.tree_at(lambda m: m.blocks, everything, jax.tree.map(lambda _: "matrix", model.blocks))


def rms_norm(x: Float[Array, "n d"], width: AnySize | None = None) -> Float[Array, "n d"]:
    """√d x_t/‖x_t‖ for every token, d the active width; zero stays zero."""
    count = jnp.asarray(x.shape[-1] if width is None else active(width), x.dtype)
    squares = jnp.sum(x**2, axis=-1, keepdims=True) / count
    return x / jnp.sqrt(jnp.where(squares > 0, squares, 1))


def _predictions(model: Transformer, batch: Sequences, width: AnySize | None) -> tuple[Array, Array, Array]:
    tokens, counted = batch
    logits = jax.vmap(lambda one: model(one, width))(tokens[:, :-1])
    targets = tokens[:, 1:]
    return logits, targets, jnp.ones(targets.shape, bool) if counted is None else counted
