"""Sizes of activations, of their changes and of ΔW x, and norms of W and ΔW, for each layer in the
first steps of a training.

The layers are the linear maps of the traced loss (`specjax.diagnostics.linear_maps`), so the model
needs no hooks. The inputs x are the factors of a parameter W, and the output is W x, times a later
output multiplier. All sizes are measured on the batch of the first step.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, ArrayLike, Float, Int, Key

from specjax.diagnostics.linear_maps import LinearMap
from specjax.diagnostics.probe import Probe
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
_ITERATIONS = 24
"""Power iterations for a spectral norm, which for a Gaussian matrix is then within 2 % at any
width.
"""


def measured(
    problem: Problem, key: Key[Array, ""], width: AnySize, rate: ArrayLike, steps: int
) -> dict[str, Float[Array, "{steps}+1 _"]]:
    """Every quantity after 0, 1, …, `steps` steps, of every map or other parameter in the order of
    `names`.
    """
    model = problem.model(key, width)
    params, _ = eqx.partition(model, eqx.is_inexact_array)
    treedef = jax.tree.structure(params)
    probe = _probe(problem, model, key)
    transformation = problem.transformation(rate, width)
    start = probe.leaves
    before = probe.maps_of_this_trace()
    others = _others(before, len(start))

    def sizes(leaves: list[Array], step: Int[Array, ""]) -> dict[str, Array]:
        now = probe.found(leaves, probe.batch)
        rows = [
            _of_map(m, m0, leaves[m.leaf], start[m.leaf]) for m, m0 in zip(now, before, strict=True)
        ]
        found = {name: jnp.stack([row[name] for row in rows]) for name in QUANTITIES}
        for name in ("input_change", "output_change"):
            # Before training both sides are equal, and one of them was rounded in
            # another part of the program.
            found[name] = jnp.where(step == 0, 0, found[name])
        if others:
            found["other_rms"] = jnp.stack([_rms(leaves[i]) for i in others])
            found["other_update_rms"] = jnp.stack([_rms(leaves[i] - start[i]) for i in others])
        return found

    def advance(
        carry: tuple[list[Array], optax.OptState], step: Int[Array, ""]
    ) -> tuple[tuple[list[Array], Any], dict[str, Array]]:
        leaves, state = carry
        batch = eqx.filter(
            problem.at_step(key, step), lambda x: isinstance(x, jax.Array | np.ndarray)
        )
        gradients = jax.grad(probe.loss)(leaves, batch)
        updates, state = transformation.update(
            jax.tree.unflatten(treedef, gradients), state, jax.tree.unflatten(treedef, leaves)
        )
        moved = jax.tree.leaves(optax.apply_updates(jax.tree.unflatten(treedef, leaves), updates))
        return (moved, state), sizes(leaves, step)

    _, found = jax.lax.scan(advance, (start, transformation.init(params)), jnp.arange(steps + 1))
    return found


def names(problem: Problem, key: Key[Array, ""], width: int) -> tuple[list[str], list[str]]:
    """The paths of the parameters of the linear maps, numbered if used several times, and of the
    other parameters.
    """
    traced: list[tuple[list[str], list[str]]] = []

    def trace(key: Array) -> Array:
        probe = _probe(problem, problem.model(key, width), key)
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


def _probe(problem: Problem, model: Any, key: Array) -> Probe:
    return Probe(problem.loss, model, problem.at_step(key, 0))


def _others(maps: Sequence[LinearMap], leaves: int) -> list[int]:
    return [i for i in range(leaves) if i not in {m.leaf for m in maps}]


def _of_map(now: LinearMap, before: LinearMap, leaf: Array, leaf_before: Array) -> dict[str, Array]:
    w, w0, update = (
        at_least_float32(now.matrices(x)) for x in (leaf, leaf_before, leaf - leaf_before)
    )
    norms = power_iteration(jnp.stack([w, update]), jax.random.key(0), steps=_ITERATIONS).value
    sizes = {
        "weight_rms": _rms(w),
        "update_rms": _rms(update),
        # The largest of several heads.
        "weight_norm": jnp.max(norms[0]),
        "update_norm": jnp.max(norms[1]),
    }
    if now.kind == "lookup":
        # The inputs are one-hot columns, of which only the counts are known, and the same at every
        # step.
        counts, rows = now.inputs, w.shape[-2]
        sizes |= {"input": jnp.sqrt(jnp.asarray(1 / w.shape[-1])), "input_change": jnp.zeros(())}
        for name, looked_up in (
            ("output", now.after * w),
            ("output_change", now.after * w - before.after * w0),
            ("update_output", now.after * update),
        ):
            sizes[name] = jnp.sqrt(
                jnp.sum(counts * jnp.sum(looked_up**2, axis=-2)) / (rows * jnp.sum(counts))
            )
        return sizes
    x, x0 = at_least_float32(now.inputs), at_least_float32(before.inputs)
    output, output0 = now.after * (w @ x), before.after * (w0 @ x0)
    return sizes | {
        "input": _rms(x),
        "input_change": _rms(x - x0),
        "output": _rms(output),
        "output_change": _rms(output - output0),
        "update_output": _rms(now.after * (update @ x)),
    }


def _rms(x: Array) -> Float[Array, ""]:
    return jnp.sqrt(jnp.mean(at_least_float32(x) ** 2))
