"""Several optimizers from one start on the same batches, inside one program: for measurements of
sweeps, where every run is a small one.
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
    moments: tuple[PyTree, ...]
    alive: Bool[Array, " optimizers"]


@checked
def train_side_by_side(
    optimizers: Sequence[optax.GradientTransformation],
    params: PyTree,
    loss: Callable[[PyTree, Any], Array],
    batch: Callable[[Int[Array, ""]], Any],
    lengths: Sequence[int],
    record: Callable[[PyTree], PyTree],
) -> tuple[PyTree, Bool[Array, "lengths optimizers"]]:
    """Trains with each optimizer from `params`; a run whose loss is not finite stops there, alone.

    The models of all optimizers lie along the first axis of every leaf, so that forward and
    backward passes compile once. Pure, to be called under `jax.jit` and `jax.vmap`.

    Args:
        optimizers: One for each run.
        params: Where all start: a tree of arrays.
        loss: Of the parameters of one run and a batch, a scalar.
        batch: The batch of step t, which is traced, from 0 on.
        lengths: After how many steps `record` is called, ascending, 0 for the start.
        record: Of the parameters of all runs, stacked, a tree of arrays.

    Returns:
        What `record` has returned, stacked along a first axis of `lengths`; and which runs had
        stopped by then.

    Raises:
        ValueError: no optimizer, or lengths that do not ascend from 0 or more.
    """
    if not optimizers:
        raise ValueError("Runs side by side need one or more optimizers, got none.")
    if not all(isinstance(one, optax.GradientTransformation) for one in optimizers):
        raise ValueError(f"Runs side by side need optimizers of optax, got {shown(optimizers)}.")
    if not all(isinstance(length, Integral) for length in lengths):
        raise ValueError(f"lengths needs numbers of steps, got {shown(lengths)}.")
    if list(lengths) != sorted(set(lengths)) or min(lengths, default=-1) < 0:
        raise ValueError(
            "lengths needs different numbers of steps in ascending order from 0 on, got"
            f" {tuple(lengths)}."
        )

    def step(t: Int[Array, ""], state: _State) -> _State:
        found = batch(t)
        losses, gradients = jax.vmap(jax.value_and_grad(loss), (0, None))(state.params, found)
        alive = state.alive & jnp.isfinite(losses)
        moved, moments = [], []
        for i, (one, before) in enumerate(zip(optimizers, state.moments, strict=True)):
            weights, gradient = (
                jax.tree.map(lambda leaf, i=i: leaf[i], tree) for tree in (state.params, gradients)
            )
            updates, after = one.update(gradient, before, weights)
            moved.append(optax.apply_updates(weights, updates))
            moments.append(after)

        def kept(old: Array, *new: Array) -> Array:
            return jnp.where(alive.reshape((-1,) + (1,) * (old.ndim - 1)), jnp.stack(new), old)

        return _State(jax.tree.map(kept, state.params, *moved), tuple(moments), alive)

    def stretch(state: _State, ends: tuple[Array, Array]) -> tuple[_State, tuple[PyTree, Array]]:
        state = jax.lax.fori_loop(*ends, step, state)
        return state, (record(state.params), ~state.alive)

    start = _State(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * len(optimizers)), params),
        tuple(one.init(params) for one in optimizers),
        jnp.ones(len(optimizers), bool),
    )
    ends = jnp.asarray((0, *lengths))
    return jax.lax.scan(stretch, start, (ends[:-1], ends[1:]))[1]
