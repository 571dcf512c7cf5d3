"""Applies a function of stacks of matrices over the devices of a mesh: each device computes its own
matrices, without collectives.

The compiler may choose a partition that cuts matrices and then communicates in every product of an
iteration (optax issue 1660). Here `jax.shard_map` cuts the stack axis, so each matrix stays on one
device. Stacks that are already sharded this way, with a length that is a multiple of the number of
devices, do not move; others are redistributed once before and once after.

On a mesh with explicit axes, the default of `jax.make_mesh`, the types of arrays say how they are
cut, and JAX refuses a product that would need communication. So the axes are automatic inside the
function, and the results are cut like the arguments.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec, Sharding
from jaxtyping import Array, Inexact, PyTree

from specjax.arguments import shown

Names = tuple[str, ...]
"""Axes of a mesh that cut one axis of an array, the outermost first."""


class Placement(NamedTuple):
    """Where the matrices of a stack (batch, in, out) are computed: the axes of the mesh over which
    the stack axis is cut meanwhile, and the axes that cut the stack before and after, where they
    are known.
    """

    mesh: Mesh
    axes: Names
    cut: tuple[Names, Names, Names] | None = None

    @property
    def path(self) -> list[NamedSharding]:
        """The shardings from that of the stack to that of the computation, which differ in one
        axis of the array each.

        In one go the compiler replicates a stack whose rows and columns are both cut.
        """
        if self.cut is None:
            return []
        batch, inputs, outputs = self.cut
        specs = [self.cut, (batch + inputs, (), outputs), (self.axes, (), ())]
        return [
            NamedSharding(self.mesh, PartitionSpec(*(names or None for names in spec)))
            for spec in dict.fromkeys(specs)
        ]


def check_sharding(sharding: Any) -> None:
    """Raises ValueError unless every entry is a sharding or None."""
    for entry in jax.tree.leaves(sharding, is_leaf=lambda x: isinstance(x, PartitionSpec)):
        if not isinstance(entry, Sharding):
            raise ValueError(
                "sharding must be NamedSharding(mesh, PartitionSpec(mesh.axis_names)) for the stack"
                f" axis, or the shardings of the parameters, got {shown(entry)}."
            )


def of_stack_axis(sharding: Any) -> bool:
    """Whether it is one sharding of the stack axis of all matrices."""
    return isinstance(sharding, NamedSharding) and len(sharding.spec) == 1


def placed(sharding: Any, order: Sequence[int], kinds: Sequence[int]) -> Placement | None:
    """Where a leaf with this sharding of its own is computed: on the devices that hold it; None for
    one that is not cut.

    `order` are its axes as (batch, inputs, outputs), and `kinds` the numbers of each.
    """
    if not isinstance(sharding, NamedSharding):
        return None
    spec = (*sharding.spec, *(None,) * (len(order) - len(sharding.spec)))
    names = [_names(spec[axis]) for axis in order]
    ends = list(accumulate(kinds, initial=0))
    of_kinds = [names[a:b] for a, b in pairwise(ends)]
    axes = tuple(name for each in names for name in each)
    if not axes:
        return None
    # A merged axis that is cut behind its first part does not lie in blocks.
    in_blocks = not any(any(each[1:]) for each in of_kinds)
    batch, inputs, outputs = (each[0] if each else () for each in of_kinds)
    return Placement(
        _automatic(sharding.mesh), axes, (batch, inputs, outputs) if in_blocks else None
    )


def on_stack_axis(sharding: NamedSharding, known: Placement | None) -> Placement:
    """Where a leaf is computed if the stack axis has this sharding; `known` is the placement of the
    leaf by its own sharding.
    """
    axes, mesh = _names(sharding.spec[0]), _automatic(sharding.mesh)
    if known is not None and {*known.axes} == {*axes}:
        return known._replace(mesh=mesh)
    return Placement(mesh, axes)


def _names(entry: Any) -> Names:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def _automatic(mesh: Any) -> Any:
    if AxisType.Explicit not in mesh.axis_types or not isinstance(mesh, Mesh):
        return mesh
    return Mesh(mesh.devices, mesh.axis_names)


def explicit_mesh(tree: PyTree) -> AbstractMesh | None:
    """The mesh with explicit axes that is set, or that the leaves lie on; None if there is none."""
    meshes = [
        jax.sharding.get_abstract_mesh(),
        *(jax.typeof(x).sharding.mesh for x in jax.tree.leaves(tree)),
    ]
    return next((mesh for mesh in meshes if AxisType.Explicit in mesh.axis_types), None)


def with_automatic_axes(function: Callable[[PyTree], PyTree], tree: PyTree) -> PyTree:
    """`function(tree)`, of the same shapes, while the compiler chooses how to cut explicit axes."""
    mesh = explicit_mesh(tree)
    if mesh is None:
        return function(tree)
    shardings = jax.tree.map(lambda x: NamedSharding(mesh, jax.typeof(x).sharding.spec), tree)
    explicit = [
        name
        for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True)
        if kind == AxisType.Explicit
    ]
    return jax.sharding.auto_axes(function, axes=tuple(explicit), out_sharding=shardings)(tree)


def call_sharded(
    function: Callable[[Array], Array],
    stacks: Sequence[Inexact[Array, "_ m n"]],
    placement: Placement,
) -> list[Inexact[Array, "_ ..."]]:
    """Calls `function` of stacks of one shape and dtype once on each device, for the matrices it
    holds.

    A stack whose length is a multiple of the number of devices keeps its partition. All others are
    joined and padded with zero matrices to such a multiple, so that many single matrices are spread
    over the devices too.
    """
    axes, path = placement.axes, placement.path
    devices = math.prod(placement.mesh.shape[axis] for axis in axes)
    even = [i for i, stack in enumerate(stacks) if stack.shape[0] % devices == 0]
    others = [i for i, stack in enumerate(stacks) if stack.shape[0] % devices]
    arguments = [stacks[i] for i in even]
    if others:
        joined = jnp.concatenate([stacks[i] for i in others])
        arguments.append(jnp.pad(joined, ((0, -joined.shape[0] % devices), (0, 0), (0, 0))))

    def on_one_device(*own: Array) -> list[Array]:
        return _split(function(jnp.concatenate(own)), [stack.shape[0] for stack in own])

    results = jax.shard_map(
        on_one_device,
        mesh=placement.mesh,
        in_specs=PartitionSpec(axes),
        out_specs=PartitionSpec(axes),
    )(*(_along(path, x) for x in arguments))
    results = [_along(path[::-1], x) if x.ndim == 3 else x for x in results]
    by_index = dict(zip(even, results, strict=False))
    if others:
        by_index |= zip(
            others, _split(results[-1], [stacks[i].shape[0] for i in others]), strict=True
        )
    return [by_index[i] for i in range(len(stacks))]


def _along(path: Sequence[NamedSharding], x: Array) -> Array:
    for sharding in path:
        x = jax.lax.with_sharding_constraint(x, sharding)
    return x


def _split(whole: Array, lengths: Sequence[int]) -> list[Array]:
    """The first `lengths[0]` matrices of a stack, the next `lengths[1]`, and so on."""
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [whole[start : start + length] for start, length in zip(starts, lengths, strict=True)]
