"""Train with several optimizers on the same batches inside one program, for sweeps of small
runs.
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Int, PyTree

from specjax.arguments import checked, shown


class _State(NamedTuple):
    params: PyTree
    optimizers: tuple[PyTree, ...]
    alive: Bool[Array, " optimizers"]


@checked
def train_many(
    loss: Callable[[PyTree, Any], Array],
    params: PyTree,
    batch: Callable[[Int[Array, ""]], Any],
    optimizers: Sequence[optax.GradientTransformation],
    lengths: Sequence[int],
    record: Callable[[PyTree], PyTree],
) -> tuple[PyTree, Bool[Array, "lengths optimizers"]]:
    """Train with each optimizer from `params`; a run whose loss is not finite stops there, alone.

    The parameters of all runs are stacked along the first axis of every leaf, so forward and
    backward passes compile once. Pure, to be called under `jax.jit` and `jax.vmap`.

    Args:
        loss: `loss(params, batch)` of one run, a scalar.
        params: The initial parameters of every run.
        batch: The function from a step, which is traced, to its batch.
        optimizers: One for each run.
        lengths: Numbers of steps after which `record` is called, ascending; 0 is the start.
        record: A tree of arrays, computed from the stacked parameters of all runs.

    Returns:
        The records, stacked along a first axis of `lengths`, and which runs had stopped by then.

    Raises:
        ValueError: no optimizer, or lengths that do not ascend from 0 or more.

    Examples:
        >>> from specjax import training
        >>> loss = lambda w, target: jnp.sum((w - target) ** 2)
        >>> rates = [optax.sgd(0.5), optax.sgd(0.25)]
        >>> ends, stopped = training.train_many(
        ...     loss, jnp.zeros(2), lambda step: jnp.ones(2), rates, (0, 1), lambda w: w)
        >>> ends[1].tolist(), stopped.any().tolist()
        ([[1.0, 1.0], [0.5, 0.5]], False)
    """
    if not optimizers:
        raise ValueError("train_many needs one or more optimizers, got none.")
    if not all(isinstance(one, optax.GradientTransformation) for one in optimizers):
        raise ValueError(f"train_many needs optimizers of optax, got {shown(optimizers)}.")
    if not all(isinstance(length, Integral) for length in lengths):
        raise ValueError(f"lengths needs numbers of steps, got {shown(lengths)}.")
    if list(lengths) != sorted(set(lengths)) or min(lengths, default=-1) < 0:
        raise ValueError(
            "lengths needs different numbers of steps in ascending order from 0 on, got"
            f" {tuple(lengths)}."
        )

    def step(t: Int[Array, ""], state: _State) -> _State:
        losses, gradients = jax.vmap(jax.value_and_grad(loss), (0, None))(state.params, batch(t))
        alive = state.alive & jnp.isfinite(losses)
        moved, optimizer_states = [], []
        for i, (optimizer, before) in enumerate(zip(optimizers, state.optimizers, strict=True)):
            weights, gradient = (
                jax.tree.map(lambda leaf, i=i: leaf[i], tree) for tree in (state.params, gradients)
            )
            updates, after = optimizer.update(gradient, before, weights)
            moved.append(optax.apply_updates(weights, updates))
            optimizer_states.append(after)

        def keep_stopped(old: Array, *new: Array) -> Array:
            return jnp.where(alive.reshape((-1,) + (1,) * (old.ndim - 1)), jnp.stack(new), old)

        params = jax.tree.map(keep_stopped, state.params, *moved)
        return _State(params, tuple(optimizer_states), alive)

    def stretch(state: _State, ends: tuple[Array, Array]) -> tuple[_State, tuple[PyTree, Array]]:
        state = jax.lax.fori_loop(*ends, step, state)
        return state, (record(state.params), ~state.alive)

    start = _State(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * len(optimizers)), params),
        tuple(optimizer.init(params) for optimizer in optimizers),
        jnp.ones(len(optimizers), bool),
    )
    ends = jnp.asarray((0, *lengths))
    return jax.lax.scan(stretch, start, (ends[:-1], ends[1:]))[1]
