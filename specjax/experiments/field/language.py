"""Small transformers that learn a text by Muon with several polar methods, and their momenta."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, PyTree, UInt8

from specjax import optim, sizes
from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences, Transformer
from specjax.spectral.polar import Method
from specjax.training import text

KINDS = ("query", "key", "value", "output", "up", "down")
"""The matrices of a block, moved by Muon; embedding, positions and head use Adam."""
BLOCKS, CONTEXT, BATCH, DECAY, TABLE_RATE = 4, 32, 8, 0.95, 0.01
_ADAM = optax.scale_by_adam(b2=0.95)
_MOMENTUM = optim.momentum(DECAY)
Matrices = dict[str, Float[Array, "..."]]


def architecture(width: int) -> Architecture:
    """An architecture of four blocks with one head and a perceptron four times as wide."""
    return Architecture(text.VOCABULARY, width, CONTEXT, BLOCKS, activation="gelu")


def weights(width: int) -> int:
    """The number of weights of all blocks, called the model size here."""
    return 12 * BLOCKS * width**2


def matrices(model: Transformer) -> dict[str, Any]:
    """The matrices that Muon moves, by kind, of a model or a tree like it."""
    return {kind: getattr(model.blocks, kind) for kind in KINDS}


def train(
    key: Key[Array, ""],
    width: int,
    data: UInt8[Array, " n"],
    methods: Sequence[Method],
    rate: float,
    lengths: Sequence[int],
    look: Callable[[Transformer, Matrices], PyTree],
) -> PyTree:
    """Train a model with each method; `look` records models and momenta along the way.

    Args:
        key: Key of weights and batches; step t does not depend on the number of steps.
        width: d.
        data: Bytes of a text.
        methods: Methods for the polar factor of the momentum M ← 0.95 M + 0.05 G, without Nesterov.
        rate: The constant learning rate of the matrices, whose steps have the scale √max(1,
            outputs/inputs).
        lengths: Numbers of steps after which to record, ascending.
        look: A function of the models and the momenta by kind, (methods, blocks, outputs, inputs).

    Returns:
        The results of `look`, stacked along a first axis of `lengths`.
    """
    batches = sizes.stream(key, "batches")
    turns = [
        optim.orthogonalize(each, "sqrt_max_1_out_over_in", dimension_numbers=optim.OUT_IN)
        for each in methods
    ]

    def step(t: Int[Array, ""], state: PyTree) -> PyTree:
        models, adam, momenta = state
        tokens = Sequences(text.sample_batch(data, jax.random.fold_in(batches, t), BATCH, CONTEXT))
        gradients = jax.vmap(jax.grad(transformer.loss), (0, None))(models, tokens)
        tables, adam = jax.vmap(_ADAM.update)(gradients, adam)
        averages, momenta = jax.vmap(_MOMENTUM.update)(matrices(gradients), momenta)
        parts = [jax.tree.map(lambda m, i=i: m[i], averages) for i in range(len(methods))]
        turned = [
            turn.update(part, turn.init(part))[0] for turn, part in zip(turns, parts, strict=True)
        ]
        moves = [rate * jnp.stack([part[kind] for part in turned]) for kind in KINDS]
        updates = jax.tree.map(lambda update: TABLE_RATE * update, tables)
        updates = eqx.tree_at(lambda model: list(matrices(model).values()), updates, moves)
        return jax.tree.map(jnp.subtract, models, updates), adam, momenta

    def stretch(state: PyTree, ends: tuple[Array, Array]) -> tuple[PyTree, PyTree]:
        state = jax.lax.fori_loop(*ends, step, state)
        return state, look(state[0], state[2].mu)

    model = transformer.init(sizes.stream(key, "weights"), architecture(width))
    start: Any = model, _ADAM.init(model), _MOMENTUM.init(matrices(model))
    stacked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(methods), *leaf.shape)), start)
    ends = jnp.asarray((0, *lengths))
    return jax.lax.scan(stretch, stacked, (ends[:-1], ends[1:]))[1]
