"""Transformers that learn to recall in context, by Muon, AdamW and SGD on the same batches (associative-memory, Appendix D.2).

The models of the three optimizers lie along one axis, so that forward and backward passes compile once. Batches are drawn inside the
training loop. What the paper leaves unsaid: W_O is folded into W_V, as in Bietti et al. (2023) and in R(W_V); Muon's steps have the root
mean square of AdamW's, 0.2 √max(out, in), so that its learning rate serves the AdamW of embedding, positions and head too; weight decay
is decoupled for Muon and AdamW, and part of the gradient for SGD, as in torch.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from specjax import optim, spectral
from specjax.models import recall, transformer
from specjax.models.recall import Recall
from specjax.models.transformer import Architecture, Sequences, Transformer
from specjax.optim.matrices import Fans
from specjax.sizes import AnySize, padded, stream, times

OPTIMIZERS = ("muon", "adamw", "sgd")
MOMENTUM, ADAM_DECAYS, WEIGHT_DECAY = 0.9, (0.9, 0.99), 0.01
NEWTON_SCHULZ_STEPS = 5
EXPANSION = Architecture.expansion
"""Hidden units of a perceptron over the width: the default of the architecture."""


class Trained(NamedTuple):
    """The runs of the three optimizers, at the records.

    Accuracies on sequences of the training distribution and of uniform triggers and outputs, both drawn for evaluation; R(W_V) of the
    second block, and with the items to be recalled moved on by one; whether the loss was once not finite: the run has stopped before.
    """

    inside: Float[Array, "records 3"]
    outside: Float[Array, "records 3"]
    recalled: Float[Array, "records 3"]
    shuffled: Float[Array, "records 3"]
    diverged: Bool[Array, "records 3"]


class _State(NamedTuple):
    params: PyTree
    moments: tuple[PyTree, ...]
    alive: Bool[Array, " 3"]


def train(
    key: Key[Array, ""],
    task: Recall,
    architecture: Architecture,
    rates: Float[Array, " 3"],
    batch: AnySize,
    exponents: tuple[Float[Array, ""], Float[Array, ""]],
    iterations: tuple[int, ...],
    evaluation: int,
) -> Trained:
    """Trains the three from one initialization, on one batch a step, and evaluates them at the start and after `iterations` steps.

    Args:
        key: Of weights, batches and evaluation; those of step t do not depend on the number of steps.
        task: The sizes of the sequences.
        architecture: The transformer, which has `task.vocabulary` tokens.
        rates: Constant learning rates of Muon, AdamW and SGD.
        batch: Sequences of a step.
        exponents: α_t and α_o of the training distribution.
        iterations: Steps of the records after the first, ascending.
        evaluation: Sequences of each distribution.
    """
    width = architecture.width
    params = transformer.init(stream(key, "weights"), architecture)
    steps = [_muon(rates[0], width), _adamw(rates[1]), _sgd(rates[2])]
    state = _State(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * len(steps)), params),
        tuple(one.init(params) for one in steps),
        jnp.ones(len(steps), bool),
    )
    held_out = jax.vmap(lambda one, trigger, output: recall.sample(one, task, evaluation, trigger, output))(
        jnp.stack([stream(key, "inside"), stream(key, "outside")]),
        *(jnp.stack([exponent, jnp.zeros_like(exponent)]) for exponent in exponents),
    )
    batches = stream(key, "batches")

    def step(t: Int[Array, ""], state: _State) -> _State:
        sequences = recall.sample(jax.random.fold_in(batches, t), task, batch, *exponents)
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
        return _State(kept, tuple(moments), alive)

    def record(state: _State, stretch: tuple[Int[Array, ""], Int[Array, ""]]) -> tuple[_State, Trained]:
        state = jax.lax.fori_loop(*stretch, step, state)
        # Not vmapped: batched products of more than eight axes fail on a CPU (jaxlib 0.10).
        inside, outside = jax.lax.map(lambda one: _each(transformer.accuracy, state.params, one, width), held_out)
        recalled, shuffled = (
            jax.vmap(lambda model, of=of: recall.memory_recall(of(model, task), task))(state.params)
            for of in (lambda model, _: model, moved_on)
        )
        return state, Trained(inside, outside, recalled, shuffled, ~state.alive)

    ends = jnp.asarray((0, *iterations))
    return jax.lax.scan(record, state, (jnp.concatenate([ends[:1], ends[:-1]]), ends))[1]


def moved_on(model: Transformer, task: Recall) -> Transformer:
    """The model that predicts, where it would predict an item of V, the next one in its place."""
    assert model.head is not None  # of an architecture that has one
    head = jnp.concatenate([model.head[: padded(task.items)], jnp.roll(model.head[padded(task.items) :], 1, axis=0)])
    return eqx.tree_at(lambda one: one.head, model, head)


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
