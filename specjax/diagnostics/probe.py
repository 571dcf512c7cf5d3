"""The inner values of a model: its loss as a function of the leaves, its linear maps, their names,
inputs and gradients.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from specjax.diagnostics.linear_maps import (
    Inputs,
    Kind,
    LinearMap,
    inputs_of,
    linear_maps,
)
from specjax.jaxlib import cpu_options
from specjax.optim.fused_projections import Splits, by_leaf
from specjax.optim.leaf_names import leaf_names
from specjax.spectral.float_range import at_least_float32

Model = Callable[[PyTree, PyTree], Any]
"""A loss `model(params, batch)`: one number, or a tuple of one number and anything."""


class Probe:
    """Traces a model and computes quantities of its linear maps.

    Every trace finds the maps anew, since they close over values of that trace.
    """

    def __init__(
        self, model: Model, params: PyTree, batch: PyTree, splits: Splits | None = None
    ) -> None:
        self._model = model
        arrays, self._static = eqx.partition(params, eqx.is_inexact_array)
        self.leaves, self._treedef = jax.tree.flatten(arrays)
        self.names = leaf_names(arrays)
        self._splits = by_leaf(splits or {}, self.names)
        self.batch, self._batch_static = eqx.partition(
            batch, lambda x: isinstance(x, jax.Array | np.ndarray)
        )
        self.maps: list[tuple[LinearMap, tuple[int, ...]]] = []

    def loss(self, leaves: Sequence[Array], batch: PyTree) -> Array:
        """The loss as a function of the leaves, and of the arrays of the batch."""
        params = eqx.combine(jax.tree.unflatten(self._treedef, leaves), self._static)
        value = self._model(params, eqx.combine(batch, self._batch_static))
        return value[0] if isinstance(value, tuple) and value else value

    def found(self, leaves: Sequence[Array], batch: PyTree) -> list[LinearMap]:
        """The maps of the current trace. Raises ValueError if none is found."""
        found = linear_maps(lambda x: self.loss(x, batch), leaves)
        if not found:
            raise ValueError(
                "No parameter enters a matrix product in this model, so its table of layers would"
                " be empty."
            )
        return [
            part
            for m in found
            for part in (
                m.parts(self._splits[m.leaf], leaves[m.leaf]) if m.leaf in self._splits else [m]
            )
        ]

    def maps_of_this_trace(self) -> list[LinearMap]:
        """The maps, evaluated in the caller's trace."""
        return self.found(self.leaves, self.batch)

    def by_parameter(
        self,
        maps: Sequence[LinearMap],
        values: Sequence[Array],
        safer: Callable[[Array, Array], Array],
    ) -> PyTree:
        """Puts `values` (*maps), one array for each map, into a tree like the parameters; a
        parameter without a map has None.

        A parameter stacked over a scan's layers has the values of all layers. For several uses of a
        parameter `safer` chooses the value.
        """
        found: list[dict[tuple[int, ...], Array]] = [{} for _ in self.leaves]
        for linear_map, value in zip(maps, values, strict=True):
            earlier = found[linear_map.leaf].get(linear_map.layers)
            # A slice of a parameter has fewer batch axes than another use, so reduce both to one
            # safe number.
            if earlier is not None and earlier.shape != value.shape:
                earlier, value = (reduce(safer, x.ravel()) for x in (earlier, value))
            found[linear_map.leaf][linear_map.layers] = (
                value if earlier is None else safer(earlier, value)
            )
        return jax.tree.unflatten(self._treedef, [_assembled(by_index) for by_index in found])

    def gradients_and_inputs(self) -> tuple[list[Array], list[Inputs]]:
        """The gradient matrices (*maps, m, k) and the inputs of every map."""

        def everything(leaves: list[Array], batch: PyTree) -> tuple[list[Array], list[Inputs]]:
            found = self.found(leaves, batch)
            gradients = jax.grad(self.loss)(leaves, batch)
            matrices = [m.matrices(gradients[m.leaf]) for m in found]
            self.maps = [(m, g.shape) for m, g in zip(found, matrices, strict=True)]
            wide = [at_least_float32(g) for g in matrices]
            return wide, [inputs_of(m) for m in found]

        return jax.jit(everything, compiler_options=cpu_options())(self.leaves, self.batch)

    def name(self, found: LinearMap) -> str:
        """The path of its parameter, with the indices of stacked layers."""
        return self.names[found.leaf] + "".join(f"[{i}]" for i in found.layers)

    def labels(self) -> list[tuple[list[str], Kind, tuple[int, int]]]:
        """The names (one for each head), the kind and the shape of every map."""
        uses = [(m.leaf, m.layers) for m, _ in self.maps]
        labels: list[tuple[list[str], Kind, tuple[int, int]]] = []
        for position, ((found, shape), use) in enumerate(zip(self.maps, uses, strict=True)):
            name = self.name(found)
            parts = len(self._splits[found.leaf].widths) if found.leaf in self._splits else 1
            turn, part = divmod(uses[:position].count(use), parts)
            if uses.count(use) > parts:
                name += f" (use {turn + 1})"
            if parts > 1:
                name += f" (part {part + 1} of {parts})"
            heads = [
                f" (map {', '.join(map(str, head))})" if head else ""
                for head in np.ndindex(shape[:-2])
            ]
            labels.append(([name + head for head in heads], found.kind, (shape[-2], shape[-1])))
        return labels

    def others(self) -> tuple[str, ...]:
        """The parameters outside of all linear maps."""
        seen = {m.leaf for m, _ in self.maps}
        return tuple(name for i, name in enumerate(self.names) if i not in seen)


def listed(stack: Array) -> Array:
    """The matrices of a stack along one axis."""
    return stack.reshape(-1, *stack.shape[-2:])


def shape_by_shape(function: Callable[[Array], Array], stacks: Sequence[Array]) -> list[Array]:
    """Applies a function of stacks of matrices to each stack, with one call for all stacks of one
    shape, which compiles once.
    """
    alike: dict[tuple[tuple[int, ...], jnp.dtype], list[int]] = {}
    for place, stack in enumerate(stacks):
        alike.setdefault((stack.shape[1:], stack.dtype), []).append(place)
    found: dict[int, Array] = {}
    for places in alike.values():
        sizes = [len(stacks[place]) for place in places]
        values = function(jnp.concatenate([stacks[place] for place in places]))
        found.update(zip(places, jnp.split(values, np.cumsum(sizes)[:-1]), strict=True))
    return [found[place] for place in range(len(stacks))]


def _assembled(by_index: dict[tuple[int, ...], Array]) -> Array | None:
    """Stacks the values of one parameter's layers into an array."""
    if not by_index:
        return None
    if list(by_index) == [()]:
        return by_index[()]
    extents = tuple(
        max(index[axis] for index in by_index) + 1 for axis in range(len(next(iter(by_index))))
    )
    stacked = jnp.stack([by_index[index] for index in sorted(by_index)])
    return stacked.reshape(*extents, *stacked.shape[1:])
