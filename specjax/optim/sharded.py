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

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Inexact, PyTree


def check_sharding(sharding: NamedSharding | None) -> None:
    """Raises ValueError for a sharding that is not of the stack axis alone; None passes."""
    if sharding is None:
        return
    spec = tuple(sharding.spec) if isinstance(sharding, NamedSharding) else sharding
    if not isinstance(spec, tuple) or len(spec) != 1 or not isinstance(spec[0], str | tuple):
        raise ValueError(
            "sharding must cut the stack axis alone, with one entry for the axes of the mesh, got"
            f" {spec}; pass NamedSharding(mesh, PartitionSpec(mesh.axis_names))."
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
    """Calls `function` of stacks of one shape and dtype once on each device, for the matrices it
    holds.

    A stack whose length is a multiple of the number of devices keeps its partition. All others are
    joined and padded with zero matrices to such a multiple, so that many single matrices are spread
    over the devices too.
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
