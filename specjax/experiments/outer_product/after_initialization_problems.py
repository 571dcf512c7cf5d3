"""What is trained after initialization: a deep ReLU network that learns a linear map, and a small GPT that learns the bytes of a text.

Weights, target and inputs of the ReLU network are blocks of square draws, so that one generator and one decomposition serve all layers.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from specjax.experiments.outer_product.after_initialization_training import Extents, Problem
from specjax.models import mlp, transformer
from specjax.sizes import AnySize, Size, active, block_mask, normal, padded
from specjax.training import text

LAYERS = 4
RELU_MATRICES = ("input", "hidden 1", "hidden 2", "output")
HELD_OUT = 256
"""Inputs on which the loss of a ReLU network is recorded."""


def relu_network(
    key: Key[Array, ""], width: AnySize, d_in: AnySize, d_out: AnySize, *, batch: int, steps: int
) -> Problem:
    """Four layers, three hidden of `width` units, that learn y = Φ x, Φ and the weights N(0, 1/fan_in); new inputs in every step.

    The loss is half the mean squared error of an output, 1/2 at f = 0. All sizes are at most the width, so that one square array holds
    every layer.
    """
    extent = padded(width)
    dims = jnp.stack([jnp.asarray(active(size)) for size in (d_in, *[width] * (LAYERS - 1), d_out)])
    fan_in, fan_out = dims[:-1], dims[1:]
    extents = Extents(fan_in.astype(float), fan_out.astype(float))
    draws = jax.vmap(lambda one: normal(one, (width, width)))(jax.random.split(jax.random.fold_in(key, 0), LAYERS + 2))

    def block(draw: Array, rows: Array, columns: Array) -> Array:
        values = jnp.where(block_mask((Size(extent, rows), Size(extent, columns))), draw, 0)
        return values / jnp.sqrt(columns.astype(draw.dtype))

    target = block(draws[LAYERS], dims[-1], dims[0])
    x = normal(jax.random.fold_in(key, 1), (HELD_OUT + batch * steps, Size(extent, active(d_in))))
    samples = x, x @ target.T

    def loss(weights: Array, batch: tuple[Array, Array]) -> Array:
        return mlp.loss(tuple(weights), batch) / extents.fan_out[-1]

    return Problem(
        params=jax.vmap(block)(draws[:LAYERS], fan_out, fan_in),
        extents=extents,
        labels="matrix",
        loss=loss,
        batch=lambda t: jax.tree.map(
            lambda a: jax.lax.dynamic_slice_in_dim(a, HELD_OUT + t * batch, batch, 0), samples
        ),
        held_out=jax.tree.map(lambda a: a[:HELD_OUT], samples),
        noise=draws[LAYERS + 1],
        watched=lambda weights: [weights],
        sizes=[extents],
    )


GPT_KINDS = ("query", "key", "value", "output", "up", "down")
GPT_TABLES = ("embedding", "head")


@dataclass(frozen=True)
class Texts:
    """How batches are cut from a text."""

    train: np.ndarray
    held_out: np.ndarray
    context: int
    batch: int


def gpt(key: Key[Array, ""], width: AnySize, texts: Texts, *, blocks: int) -> Problem:
    """A byte-level transformer with one head and GELU perceptrons of 4 · width units; Muon's matrices are those of its blocks."""
    architecture = transformer.Architecture(text.VOCABULARY, width, texts.context, blocks=blocks, activation="gelu")
    params = transformer.init(jax.random.fold_in(key, 0), architecture)
    d, hidden = (jnp.asarray(active(size), float) for size in (width, architecture.hidden))
    one, vocabulary = jnp.ones(()), jnp.asarray(float(text.VOCABULARY))

    def in_blocks(fan_in: Array, fan_out: Array) -> Extents:
        return Extents(*(jnp.broadcast_to(n, (blocks,)) for n in (fan_in, fan_out)))

    in_block = [*[in_blocks(d, d)] * 4, in_blocks(d, hidden), in_blocks(hidden, d)]
    # An embedding maps one token to d units; as an array it has the tokens in rows.
    extents = [Extents(one, d), Extents(one, d), *in_block, Extents(d, vocabulary)]
    data, batch_key = jnp.asarray(texts.train), jax.random.fold_in(key, 1)
    rows = max(text.VOCABULARY, padded(architecture.hidden))
    return Problem(
        params=params,
        extents=jax.tree.unflatten(jax.tree.structure(params), extents),
        labels=transformer.labels(params),
        loss=lambda model, batch: transformer.loss(model, batch, width),
        batch=lambda t: transformer.Sequences(
            text.draw(data, jax.random.fold_in(batch_key, t), texts.batch, texts.context)
        ),
        held_out=transformer.Sequences(jnp.asarray(texts.held_out)),
        noise=normal(jax.random.fold_in(key, 2), (rows, padded(architecture.hidden))),
        watched=lambda model: [*(getattr(model.blocks, kind) for kind in GPT_KINDS), model.embedding, model.head],
        sizes=[*in_block, Extents(d, vocabulary), Extents(d, vocabulary)],
    )
