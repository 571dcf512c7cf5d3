"""Transformers that learn to recall in context, by Muon, AdamW and SGD on the same batches (associative-memory, Appendix D.2).

The models of the three optimizers lie along one axis, so that forward and backward passes compile once. Batches are drawn inside the
training loop. What the paper leaves unsaid: W_O is folded into W_V, as in Bietti et al. (2023) and in R(W_V); Muon's steps have the root
mean square of AdamW's, 0.2 √max(out, in), so that its learning rate serves the AdamW of embedding, positions and head too; weight decay
is decoupled for Muon and AdamW, and part of the gradient for SGD, as in torch.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from specjax import optim, spectral
from specjax.models import recall, transformer
from specjax.models.recall import Recall
from specjax.models.transformer import Architecture, Sequences
from specjax.optim.matrices import Fans
from specjax.sizes import AnySize, times

OPTIMIZERS = {"muon": "Muon", "adamw": "AdamW", "sgd": "SGD"}
MOMENTUM, ADAM_DECAYS, WEIGHT_DECAY = 0.9, (0.9, 0.99), 0.01
NEWTON_SCHULZ_STEPS = 5
EXPANSION = Architecture.expansion
"""Hidden units of a perceptron over the width: the default of the architecture."""


class Trained(NamedTuple):
    """The runs of the three optimizers, at equally spaced records."""

    in_distribution: Float[Array, "records 3"]
    """Accuracy on sequences of the training distribution, drawn for evaluation."""
    out_of_distribution: Float[Array, "records 3"]
    """Accuracy on sequences of uniform triggers and outputs."""
    memory_recall: Float[Array, "records 3"]
    """R(W_V) of the second block."""
    loss: Float[Array, "records 3"]
    """Of the last batch; of a run that has diverged, its last finite one."""
    diverged: Bool[Array, "records 3"]
    """Whether the loss was NaN or infinite once; then the run has stopped before."""


class _State(NamedTuple):
    params: PyTree
    moments: tuple[PyTree, ...]
    loss: Float[Array, " 3"]
    alive: Bool[Array, " 3"]


def train(
    key: Key[Array, ""],
    task: Recall,
    architecture: Architecture,
    rates: Float[Array, " 3"],
    batch: AnySize,
    *,
    exponents: tuple[Float[Array, ""], Float[Array, ""]],
    records: int,
    every: int,
    evaluation: int,
) -> Trained:
    """Trains the three from one initialization, on one batch a step, and evaluates them after every `every` steps.

    Args:
        key: Of weights, batches and evaluation; those of step t do not depend on the number of steps.
        task: The sizes of the sequences.
        architecture: The transformer, which has `task.vocabulary` tokens.
        rates: Constant learning rates of Muon, AdamW and SGD.
        batch: Sequences of a step.
        exponents: α_t and α_o of the training distribution.
        records: How many times to evaluate.
        every: Steps between two evaluations.
        evaluation: Sequences of each distribution.

    """
    width = architecture.width
    init_key, batch_key, inside_key, outside_key = jax.random.split(key, 4)
    params = transformer.init(init_key, architecture)
    steps = [_muon(rates[0], width), _adamw(rates[1]), _sgd(rates[2])]
    state = _State(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * len(steps)), params),
        tuple(one.init(params) for one in steps),
        jnp.zeros(len(steps)),
        jnp.ones(len(steps), bool),
    )
    held_out = jax.vmap(lambda one, trigger, output: recall.sample(one, task, evaluation, trigger, output))(
        jnp.stack([inside_key, outside_key]),
        *(jnp.stack([exponent, jnp.zeros_like(exponent)]) for exponent in exponents),
    )

    def step(state: _State, t: Int[Array, ""]) -> tuple[_State, None]:
        sequences = recall.sample(jax.random.fold_in(batch_key, t), task, batch, *exponents)
        losses, gradients = _each(jax.value_and_grad(transformer.loss), state.params, sequences, width)
        alive = state.alive & jnp.isfinite(losses)
        moved, moments = [], []
        for i, (one, before) in enumerate(zip(steps, state.moments, strict=True)):
            weights, gradient = (jax.tree.map(lambda leaf, i=i: leaf[i], tree) for tree in (state.params, gradients))
            updates, after = one.update(gradient, before, weights)
            moved.append(optax.apply_updates(weights, updates))
            moments.append(after)
        stepped = jax.tree.map(lambda *leaves: jnp.stack(leaves), *moved)
        kept = jax.tree.map(
            lambda new, old: jnp.where(alive.reshape((-1,) + (1,) * (new.ndim - 1)), new, old), stepped, state.params
        )
        return _State(kept, tuple(moments), jnp.where(alive, losses, state.loss), alive), None

    def record(state: _State, first: Int[Array, ""]) -> tuple[_State, Trained]:
        state, _ = jax.lax.scan(step, state, first + jnp.arange(every))
        # Not vmapped: batched products of more than eight axes fail on a CPU (jaxlib 0.10).
        inside, outside = jax.lax.map(lambda one: _each(transformer.accuracy, state.params, one, width), held_out)
        return state, Trained(
            inside,
            outside,
            memory_recall=jax.vmap(lambda model: recall.memory_recall(model, task))(state.params),
            loss=state.loss,
            diverged=~state.alive,
        )

    return jax.lax.scan(record, state, every * jnp.arange(records))[1]


def _each(function: Callable, params: PyTree, sequences: Sequences, width: AnySize) -> PyTree:
    """`function` of the model of every optimizer."""
    return jax.vmap(lambda model: function(model, sequences, width))(params)


def _muon(rate: Float[Array, ""], width: AnySize) -> optax.GradientTransformation:
    return optim.muon(
        rate,
        decay=MOMENTUM,
        method=spectral.NewtonSchulz(NEWTON_SCHULZ_STEPS),
        scale="point_two_sqrt_max",
        weight_decay=WEIGHT_DECAY,
        dimension_numbers=optim.OUT_IN,
        sizes=lambda updates: _fans(updates, width),
        labels=transformer.labels,
        other=_adamw(rate),
    )


def _adamw(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.adamw(rate, *ADAM_DECAYS, weight_decay=WEIGHT_DECAY)


def _sgd(rate: Float[Array, ""]) -> optax.GradientTransformation:
    return optax.chain(optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate, momentum=MOMENTUM))


def _fans(model: PyTree, width: AnySize) -> PyTree:
    """The active inputs and outputs of each matrix."""
    hidden = times(width, EXPANSION)
    of = {"up": Fans(width, hidden), "down": Fans(hidden, width)}
    return jax.tree_util.tree_map_with_path(
        lambda path, _: of.get(getattr(path[-1], "name", ""), Fans(width, width)), model
    )
