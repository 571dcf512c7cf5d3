"""Four optimizers on the same batches, and along the way how far V Vᵀ of their momentum V is from diagonal.

All four average the gradients, V ← β V + (1 - β) G, and move W (out × in) by -rate · (1 - t/T) times

    gd      (out/in) V                                        adam    r V/√(second moment), both bias-corrected
    muon    √(out/in) orthogonalized V (five quintic steps)   rows    √(min(out, in)/in) V with normalized rows

where r = √(out/in)/√max(out, in) is the root mean square of an entry of Muon's step: the steps of the last three have one Frobenius
norm and differ in direction alone. Under muon and rows, leaves that are not labelled as matrices, such as embeddings, move as under
adam. The models of the four lie along one axis, so that gradients, momentum and measurements compile once.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from specjax import optim, spectral
from specjax.experiments.outer_product.statistics import gram
from specjax.optim.matrices import map_stacked
from specjax.optim.momentum import MomentumState
from specjax.sizes import Size, block_mask

OPTIMIZERS = {"gd": "GD", "adam": "Adam", "muon": "Muon", "rows": "row-normalized"}
GD, ADAM, MUON, ROWS = range(4)
NOISE = "noise"
"""What is measured beside the four: a matrix of the same size with independent normal entries."""
SECOND_DECAY = 0.99
"""Of Adam's second moment."""


class Extents(NamedTuple):
    """The inputs and outputs that count of a leaf (…, out, in), a number for each of its matrices."""

    fan_in: Float[Array, "..."]
    fan_out: Float[Array, "..."]


class Problem(NamedTuple):
    """A model to be trained; its leaves are matrices (out, in) or stacks of them, possibly with padding."""

    params: PyTree
    extents: PyTree
    """`Extents` in place of each leaf."""
    labels: PyTree
    """"matrix" in place of each leaf that Muon orthogonalizes, "other" for the rest."""
    loss: Callable[[PyTree, Any], Float[Array, ""]]
    batch: Callable[[Int[Array, ""]], Any]
    """The batch of a step."""
    held_out: Any
    """The batch of the losses that are recorded."""
    noise: Float[Array, "_ _"]
    """Independent normal entries, of as many rows and columns as any matrix that is watched."""
    watched: Callable[[PyTree], list[Array]]
    """The leaves to be measured, of a tree like `params`."""
    sizes: list[Extents]
    """Columns and rows of these that are not padding."""


class Run(NamedTuple):
    """Training runs of the four optimizers at the recorded steps; matrices are those of the watched leaves, one after the other."""

    loss: Float[Array, "records 4"]
    """Of the held-out batch; the limit if a run has diverged."""
    ratio: Float[Array, "records 5 matrices"]
    """Mean |off-diagonal| over mean diagonal of V Vᵀ, of the four and of noise."""
    error: Float[Array, "records 5 matrices"]
    """√(1 - cos²) of V with normalized rows and its polar factor."""


class _State(NamedTuple):
    params: PyTree
    average: PyTree
    adam: Any
    alive: Bool[Array, " 4"]


def train(
    problem: Problem, rates: Sequence[Float[Array, ""]], *, records: tuple[int, ...], decay: float, limit: float
) -> Run:
    """Trains the four optimizers for `records[-1]` steps on the same batches.

    A run whose loss on a batch exceeds `limit` stops there, with the V that it has; under `vmap` no other stops.

    Args:
        problem: The model and its data.
        rates: The step size of each optimizer at the start; all fall to zero linearly.
        records: Numbers of steps, ascending from 1, after which V is measured: it has as many gradients in it.
        decay: β, in [0, 1).
        limit: The loss above which a run has diverged.

    """
    steps, count = records[-1], len(OPTIMIZERS)
    momentum, adam = optim.momentum(decay), optax.scale_by_adam(decay, SECOND_DECAY)
    step_sizes = jnp.stack(list(rates))

    def step(state: _State, now: tuple[Int[Array, ""], Bool[Array, ""]]) -> tuple[_State, Run]:
        t, recorded = now
        losses, gradients = jax.vmap(jax.value_and_grad(problem.loss), (0, None))(state.params, problem.batch(t))
        alive = state.alive & (losses <= limit)  # also False for NaN
        average, _ = momentum.update(gradients, MomentumState(state.average, None))
        with jax.numpy_dtype_promotion("standard"):  # optax raises β to the number of steps, a float to an int
            adaptive, adam_state = adam.update(gradients, state.adam)
        rate = step_sizes * (1 - t.astype(step_sizes.dtype) / steps)
        moved = jax.tree.map(
            lambda w, move: w - _along(rate, move) * move, state.params, _moves(problem, average, adaptive)
        )
        params, average = jax.tree.map(
            lambda new, old: jnp.where(_along(alive, new), new, old), (moved, average), (state.params, state.average)
        )
        state = _State(params, average, adam_state, alive)
        # The predicate is the same for all runs, so that nothing is measured between two records.
        return state, jax.lax.cond(recorded, measure, lambda _: empty, state)

    def measure(state: _State) -> Run:
        losses = jax.vmap(problem.loss, (0, None))(state.params, problem.held_out)
        return Run(
            jnp.where(state.alive & (losses <= limit), losses, limit), *_dominance_and_error(problem, state.average)
        )

    params = jax.tree.map(lambda w: jnp.broadcast_to(w, (count, *w.shape)), problem.params)
    start = _State(params, jax.tree.map(jnp.zeros_like, params), adam.init(params), jnp.ones(count, bool))
    matrices = sum(int(np.prod(leaf.shape[:-2])) for leaf in problem.watched(problem.params))
    shapes = ((count,), (count + 1, matrices), (count + 1, matrices))
    empty = Run(*(jnp.zeros(shape, step_sizes.dtype) for shape in shapes))
    last = np.asarray(records) - 1
    _, everything = jax.lax.scan(step, start, (jnp.arange(steps), jnp.asarray(np.isin(np.arange(steps), last))))
    return jax.tree.map(lambda array: array[last], everything)


def _moves(problem: Problem, average: PyTree, adaptive: PyTree) -> PyTree:
    """What the rates multiply, of all four along the first axis of each leaf."""
    leaves, treedef = jax.tree.flatten(average)
    all_extents = jax.tree.leaves(problem.extents, is_leaf=lambda x: isinstance(x, Extents))
    is_matrix = [label == "matrix" for label in jax.tree.leaves(problem.labels)]
    orthogonal, _ = optim.orthogonalize().update(
        [v[MUON] for v, chosen in zip(leaves, is_matrix, strict=True) if chosen], optax.EmptyState()
    )
    moves = []
    for v, a, extents, chosen in zip(leaves, jax.tree.leaves(adaptive), all_extents, is_matrix, strict=True):
        fan_in, fan_out = (n[..., None, None] for n in extents)
        muon = jnp.sqrt(fan_out / fan_in)
        like_muon = muon / jnp.sqrt(jnp.maximum(fan_out, fan_in))
        by_matrix = [like_muon * a[MUON], like_muon * a[ROWS]]
        if chosen:
            by_rows = jnp.sqrt(jnp.minimum(fan_out, fan_in) / fan_in) * spectral.normalize_rows(v[ROWS])
            by_matrix = [muon * orthogonal.pop(0), by_rows]
        moves.append(jnp.stack([fan_out / fan_in * v[GD], like_muon * a[ADAM], *by_matrix]))
    return jax.tree.unflatten(treedef, moves)


def _dominance_and_error(problem: Problem, average: PyTree) -> tuple[Array, Array]:
    """Of every watched matrix, (5, matrices)."""
    stacks, rows = [], []
    for v, own in zip(problem.watched(average), problem.sizes, strict=True):
        m, n = v.shape[-2:]
        by_matrix = v.reshape(len(OPTIMIZERS), -1, m, n)
        active_columns, active_rows = (x.reshape(-1).astype(int) for x in own)
        masks = jax.vmap(lambda i, o, m=m, n=n: block_mask((Size(m, o), Size(n, i))))(active_columns, active_rows)
        noise = jnp.where(masks, problem.noise[:m, :n], 0)
        stacks.append(jnp.concatenate([by_matrix, noise[None]]))
        rows.append(jnp.broadcast_to(active_rows, stacks[-1].shape[:2]))
    flat = [stack.reshape(-1, *stack.shape[-2:]) for stack in stacks]
    ratios, errors = [], []
    for stack, x, polar, sizes in zip(stacks, flat, map_stacked(spectral.polar, flat), rows, strict=True):
        ratio = jax.vmap(lambda v, n: spectral.dominance_ratio(gram(v), Size(v.shape[0], n)))(x, sizes.reshape(-1))
        error = spectral.direction_error(spectral.normalize_rows(x), polar)
        ratios.append(ratio.reshape(stack.shape[:2]))
        errors.append(error.reshape(stack.shape[:2]))
    return jnp.concatenate(ratios, axis=1), jnp.concatenate(errors, axis=1)


def _along(values: Array, leaf: Array) -> Array:
    """One value for each optimizer, ready to meet a leaf."""
    return values.reshape(-1, *(1,) * (leaf.ndim - 1))
