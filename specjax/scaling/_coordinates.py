"""Sizes of activations, of their changes and of ΔW x, and norms of W and ΔW, for each layer in the
first steps of a training.

The layers are the linear maps of the traced loss (`specjax.diagnostics.linear_maps`), so the model
needs no hooks. The inputs x are the factors of a parameter W, and the output is W x, times a later
output multiplier. All sizes are measured on the batch of the first step.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, Inexact, Int, Key, PyTree

from specjax.diagnostics.linear_maps import Kind, LinearMap
from specjax.diagnostics.probe import Probe, listed, shape_by_shape
from specjax.scaling.sweep_setup import Problem
from specjax.sizes import AnySize
from specjax.spectral import power_iteration
from specjax.spectral.float_range import at_least_float32

QUANTITIES = {
    "input": "RMS of x",
    "input_change": "RMS of x - x₀",
    "output": "RMS of W x",
    "output_change": "RMS of W x - W₀ x₀",
    "update_output": "RMS of ΔW x, ΔW = W - W₀",
    "weight_rms": "RMS of W",
    "update_rms": "RMS of ΔW",
    "weight_norm": "‖W‖_op",
    "update_norm": "‖ΔW‖_op",
}
"""Names and meanings of the quantities of a linear map; index 0 is before training."""
OTHERS = {"other_rms": "RMS of the parameter", "other_update_rms": "RMS of its change"}
"""Quantities of a parameter in no linear map, such as a bias or a gain."""
_IS_CHANGE = np.array([name in ("input_change", "output_change") for name in QUANTITIES])
_ITERATIONS = 24
"""Power iterations for a spectral norm, which for a Gaussian matrix is then within 2 % at any
width.
"""


class _Seen(NamedTuple):
    """What maps of one kind and shape multiply, and the numbers that multiply their outputs."""

    inputs: Inexact[Array, "_ ..."]
    after: Float[Array, " _"]


def measured(
    problem: Problem, key: Key[Array, ""], width: AnySize, rate: ArrayLike, steps: int
) -> dict[str, Float[Array, "{steps}+1 quantities _"]]:
    """The quantities of "layers" and "others" after 0, 1, …, `steps` steps, in the order of
    `QUANTITIES`, `OTHERS` and `names`.

    The loss enters the program twice, to be differentiated and to find the maps, and a statistic
    once for all maps of one kind and shape, since the program takes longer to compile than to run.
    So all that is compared with its value before training is carried from the first step.
    """
    weights, batches, _ = problem.streams(key)
    model = problem.build(weights, width)
    params, _ = eqx.partition(model, eqx.is_inexact_array)
    treedef = jax.tree.structure(params)
    # The batch of the first step gives only shapes: that of every step is made in the loop.
    probe = Probe(problem.loss, model, problem.batch_of(batches))
    transformation = problem.transformation(rate, width)
    start = probe.leaves

    def grouped(leaves: list[Array], batch: PyTree) -> tuple[list[list[LinearMap]], list[int]]:
        return _alike(probe.found(leaves, batch), leaves)

    def advance(
        carry: tuple[list[Array], optax.OptState, Any], step: Int[Array, ""]
    ) -> tuple[tuple[list[Array], Any, Any], dict[str, Array]]:
        leaves, state, (first_batch, first) = carry
        batch = eqx.filter(
            problem.batch_of(jax.random.fold_in(batches, step)),
            lambda x: isinstance(x, jax.Array | np.ndarray),
        )
        first_batch = _unless_first(step, first_batch, batch)
        groups, places = grouped(leaves, first_batch)
        first = _unless_first(step, first, [_seen(maps) for maps in groups])
        layers = _sizes_of_maps(groups, leaves, start, first)[:, np.argsort(places)]
        # Before training both sides are equal, but may be rounded in different operations.
        sizes = {"layers": jnp.where((step == 0) & _IS_CHANGE[:, None], 0, layers)}
        if others := _others([m for maps in groups for m in maps], len(leaves)):
            pairs = [(leaves[i], leaves[i] - start[i]) for i in others]
            squares = [_squares(*map(at_least_float32, pair)) for pair in pairs]
            sizes["others"] = jnp.sqrt(jnp.stack(squares, axis=1))
        gradients = jax.grad(probe.loss)(leaves, batch)
        updates, state = transformation.update(
            jax.tree.unflatten(treedef, gradients), state, jax.tree.unflatten(treedef, leaves)
        )
        moved = jax.tree.leaves(optax.apply_updates(jax.tree.unflatten(treedef, leaves), updates))
        return (moved, state, (first_batch, first)), sizes

    shapes = jax.eval_shape(
        lambda *given: [_seen(m) for m in grouped(*given)[0]], start, probe.batch
    )
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), (probe.batch, shapes))
    _, found = jax.lax.scan(
        advance, (start, transformation.init(params), nothing), jnp.arange(steps + 1)
    )
    return found


def names(problem: Problem, key: Key[Array, ""], width: int) -> tuple[list[str], list[str]]:
    """The paths of the parameters of the linear maps, numbered if used several times, and of the
    other parameters.
    """
    traced: list[tuple[list[str], list[str]]] = []

    def trace(key: Array) -> Array:
        weights, batches, _ = problem.streams(key)
        probe = Probe(problem.loss, problem.build(weights, width), problem.batch_of(batches))
        maps = probe.maps_of_this_trace()
        plain = [probe.name(m) for m in maps]
        numbered = [
            name if plain.count(name) == 1 else f"{name} (use {plain[: i + 1].count(name)})"
            for i, name in enumerate(plain)
        ]
        traced.append((numbered, [probe.names[i] for i in _others(maps, len(probe.leaves))]))
        return jnp.zeros(())

    jax.eval_shape(trace, key)
    return traced[0]


def _others(maps: Sequence[LinearMap], leaves: int) -> list[int]:
    return [i for i in range(leaves) if i not in {m.leaf for m in maps}]


def _unless_first(step: Int[Array, ""], then: PyTree, now: PyTree) -> PyTree:
    """`then`, or `now` in the first step."""
    return jax.tree.map(lambda old, new: jnp.where(step == 0, new, old), then, now)


def _alike(
    maps: Sequence[LinearMap], leaves: Sequence[Array]
) -> tuple[list[list[LinearMap]], list[int]]:
    """The maps, those of one kind and shape together, and their places among `maps`."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for place, m in enumerate(maps):
        matrices = jax.eval_shape(m.matrices, leaves[m.leaf])
        alike = m.kind, matrices.shape, m.inputs.shape, m.inputs.dtype
        found.setdefault(alike, []).append(place)
    groups = [[maps[place] for place in places] for places in found.values()]
    return groups, [place for places in found.values() for place in places]


def _seen(maps: Sequence[LinearMap]) -> _Seen:
    after = [at_least_float32(jnp.asarray(m.after)) for m in maps]
    return _Seen(jnp.stack([m.inputs for m in maps]), jnp.stack(after))


def _sizes_of_maps(
    groups: Sequence[Sequence[LinearMap]],
    leaves: Sequence[Array],
    start: Sequence[Array],
    first: Sequence[_Seen],
) -> Float[Array, "quantities maps"]:
    """`QUANTITIES` of all maps, group by group."""
    now, before = (
        [
            jnp.stack([at_least_float32(m.matrices(parameters[m.leaf])) for m in maps])
            for maps in groups
        ]
        for parameters in (leaves, start)
    )
    updates = [w - w0 for w, w0 in zip(now, before, strict=True)]
    squares = [
        jax.vmap(partial(_squares_of_map, maps[0].kind))(w, w0, _seen(maps), then)
        for maps, w, w0, then in zip(groups, now, before, first, strict=True)
    ]
    norms = _norms([*now, *updates]).reshape(2, -1)
    return jnp.concatenate([jnp.sqrt(jnp.concatenate(squares)).T, norms])


def _squares_of_map(
    kind: Kind,
    w: Float[Array, "*maps m k"],
    w0: Float[Array, "*maps m k"],
    now: _Seen,
    then: _Seen,
) -> Float[Array, " quantities"]:
    """The squares of all `QUANTITIES` but the norms."""
    if kind == "lookup":
        # The inputs are one-hot columns, of which only the counts are known, and the same at every
        # step.
        counts, rows = now.inputs, w.shape[-2]
        looked_up = jnp.stack(
            [now.after * w, now.after * w - then.after * w0, now.after * (w - w0)]
        )
        total = jnp.sum(counts * jnp.sum(looked_up**2, axis=-2), axis=-1)
        inputs = jnp.array([1 / w.shape[-1], 0.0], w.dtype)
        outputs = total / (rows * jnp.sum(counts))
    else:
        x, x0 = at_least_float32(now.inputs), at_least_float32(then.inputs)
        output, output0 = now.after * (w @ x), then.after * (w0 @ x0)
        inputs = _squares(x, x - x0)
        outputs = _squares(output, output - output0, now.after * ((w - w0) @ x))
    return jnp.concatenate([inputs, outputs, _squares(w, w - w0)])


def _norms(stacks: Sequence[Float[Array, "_ ..."]]) -> Float[Array, " maps"]:
    """The spectral norm of every map of some stacks, the largest of several heads."""

    def norms(matrices: Float[Array, "_ m k"]) -> Float[Array, " _"]:
        return jax.vmap(lambda w: power_iteration(w, jax.random.key(0), steps=_ITERATIONS).value)(
            matrices
        )

    # A matrix has the norm of its transpose, and the iteration is the shorter the fewer columns.
    tall = [x if x.shape[-2] >= x.shape[-1] else x.mT for x in stacks]
    found = shape_by_shape(norms, [listed(x) for x in tall])
    return jnp.concatenate(
        [jnp.max(of.reshape(len(x), -1), axis=1) for of, x in zip(found, stacks, strict=True)]
    )


def _squares(*arrays: Array) -> Float[Array, " arrays"]:
    """The mean square of each of some arrays of one shape."""
    return jnp.mean(jnp.stack(arrays).reshape(len(arrays), -1) ** 2, axis=1)
