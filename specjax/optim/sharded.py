"""One function of stacks of matrices over the devices of a mesh: each device its own matrices, no
collective inside.

A partition that the compiler chooses may cut matrices, and then communicates in every product of an
iteration (optax issue 1660). Here the stack axis is cut, by `jax.shard_map`, so what happens to a
matrix happens on one device. Stacks whose length is a multiple of the number of devices and that
are sharded so already do not move at all; others are redistributed once before and once after.

On a mesh with explicit axes, the default of `jax.make_mesh`, the types of arrays say how they are
cut, and a product that would need communication is refused. So its axes are the compiler's in here,
and what comes out is cut as what came in.
"""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Inexact, PyTree


def check_sharding(sharding: NamedSharding | None) -> None:
    """Raises ValueError unless the sharding, if there is one, is of one axis, the stack's."""
    if sharding is None:
        return
    spec = tuple(sharding.spec) if isinstance(sharding, NamedSharding) else sharding
    if not isinstance(spec, tuple) or len(spec) != 1 or not isinstance(spec[0], str | tuple):
        raise ValueError(
            "sharding is that of the stack axis alone, one entry with the axes of the mesh it is"
            f" cut over, got {spec}; pass NamedSharding(mesh, PartitionSpec(mesh.axis_names))."
        )


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
    sharding: NamedSharding,
) -> list[Inexact[Array, "_ ..."]]:
    """`function` of the stacks of one shape and dtype, called once on each device for the matrices
    it holds.

    A stack whose length is a multiple of the number of devices stays as it is cut; all others are
    joined, with zero matrices up to such a multiple, so that many single matrices are spread over
    the devices too.
    """
    (axes,) = sharding.spec
    devices = math.prod(
        sharding.mesh.shape[axis] for axis in ((axes,) if isinstance(axes, str) else axes)
    )
    even = [i for i, stack in enumerate(stacks) if stack.shape[0] % devices == 0]
    others = [i for i, stack in enumerate(stacks) if stack.shape[0] % devices]
    arguments = [stacks[i] for i in even]
    if others:
        joined = jnp.concatenate([stacks[i] for i in others])
        arguments.append(jnp.pad(joined, ((0, -joined.shape[0] % devices), (0, 0), (0, 0))))

    def on_one_device(*own: Array) -> list[Array]:
        return _split(function(jnp.concatenate(own)), [stack.shape[0] for stack in own])

    mesh = sharding.mesh
    if AxisType.Explicit in mesh.axis_types:
        mesh = Mesh(mesh.devices, mesh.axis_names)
    results = jax.shard_map(
        on_one_device,
        mesh=mesh,
        in_specs=PartitionSpec(axes),
        out_specs=PartitionSpec(axes),
    )(*arguments)
    by_index = dict(zip(even, results, strict=False))
    if others:
        by_index |= zip(
            others, _split(results[-1], [stacks[i].shape[0] for i in others]), strict=True
        )
    return [by_index[i] for i in range(len(stacks))]


def _split(whole: Array, lengths: Sequence[int]) -> list[Array]:
    """The first `lengths[0]` matrices of a stack, the next `lengths[1]`, and so on."""
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    return [whole[start : start + length] for start, length in zip(starts, lengths, strict=True)]
