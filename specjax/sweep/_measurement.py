"""The program of a grid, such as a bucket: a loop over groups of vmapped seeds, widths and values.

The number of groups in a call is an argument, since the time of a group is known only once one has
run. Only the seeds map the key. So random samples of a seed are made once and shared by all widths
and values of a bucket, and seed s has the same key, `fold_in(key, s)`, at every point: widths are
coupled, and more seeds never change earlier ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Key, Shaped, UInt32

from specjax import programs
from specjax.programs import one_at_a_time
from specjax.sizes import Size
from specjax.sweep import _concrete
from specjax.sweep._grid import Coordinates, Grid
from specjax.sweep._progress import logger
from specjax.sweep.xla_options import xla_options

Measure = Callable[..., Mapping[str, Any]]
Shapes = Mapping[str, jax.ShapeDtypeStruct]
Program = Callable[..., dict[str, Shaped[Array, "..."]]]
"""A function of key data, seed ids, coordinates, and the number of groups if there are groups."""

SEEDS = "seeds"
"""The name of the mesh axis over which seeds are sharded."""


@dataclass(frozen=True)
class Measurement:
    """A measurement and its root key, from which every program of a sweep is made."""

    measure: Measure
    key: Key[Array, ""]
    _at_point: dict[Any, "_AtPoint"] = field(default_factory=dict, repr=False, compare=False)

    @property
    def key_data(self) -> UInt32[np.ndarray, "..."]:
        """The first argument of every program."""
        return np.asarray(jax.random.key_data(self.key))

    def program(
        self, grid: Grid, *, mesh: Mesh | None = None, vmapped: int | None = None
    ) -> Program:
        """The function of (key data, seed ids, coordinates) that measures every point of a grid.

        Each output has one axis for each of `grid.axes`, then the seed axis, then its own axes. No
        batch of matrices reaches LAPACK on a CPU. With `vmapped`, that many seeds are computed at
        once, and a last argument is the number of such groups, from the first seed on; entries of
        other seeds are zero. With a `mesh`, of one axis `SEEDS`, every device does so with its part
        of the seeds, without communication.
        """
        impl, axes = str(jax.random.key_impl(self.key)), grid.axes
        at_points = self._trace_at(grid).mapped
        for axis in reversed(axes):
            at_points = jax.vmap(
                at_points, in_axes=(None, {name: 0 if name == axis else None for name in grid.dims})
            )

        def measure_seed(key_data: Array, coordinates: Coordinates, seed: Array) -> dict[str, Any]:
            return at_points(
                jax.random.fold_in(jax.random.wrap_key_data(key_data, impl=impl), seed), coordinates
            )

        def program(
            key_data: Array | np.ndarray,
            seed_ids: Array | np.ndarray,
            coordinates: Coordinates,
            groups: Array | None = None,
        ) -> dict[str, Array]:
            shared = jnp.asarray(key_data), coordinates
            if groups is None or vmapped is None:
                outputs = jax.vmap(partial(measure_seed, *shared))(jnp.asarray(seed_ids))
            else:
                outputs = in_groups(measure_seed, shared, jnp.asarray(seed_ids), vmapped, groups)
            return {name: jnp.moveaxis(output, 0, len(axes)) for name, output in outputs.items()}

        if mesh is None:
            return program
        return jax.shard_map(
            program,
            mesh=mesh,
            in_specs=(PartitionSpec(), PartitionSpec(SEEDS), PartitionSpec(), PartitionSpec()),
            out_specs=PartitionSpec(*([None] * len(axes)), SEEDS),
            check_vma=False,
        )

    def traced(
        self, grid: Grid, seeds: int, *, mesh: Mesh | None = None, vmapped: int | None = None
    ) -> jax.stages.Traced:
        """The program of a grid, traced for calls of at most `seeds` seeds."""
        program = self.program(grid, mesh=mesh, vmapped=vmapped)
        counted = () if vmapped is None else (np.int32(1),)
        return trace(program, self.key_data, seeds, grid, *counted, mesh=mesh)

    def traced_at_point(self, grid: Grid) -> jax.stages.Traced:
        """The measurement at one point of a grid's program, traced once for equal programs."""
        return self._trace_at(grid).traced

    def anew(self) -> "Measurement":
        """The same measurement without its cached traces."""
        return Measurement(self.measure, self.key)

    def _trace_at(self, grid: Grid) -> "_AtPoint":
        scalars = jax.tree.map(
            lambda array: jax.ShapeDtypeStruct((), array.dtype), grid.coordinates
        )
        taken = jax.tree.structure(scalars)
        dtypes = (scalar.dtype for scalar in jax.tree.leaves(scalars))
        largest = (max(points) for dim in grid.wide for points in dim.widths.values())
        chosen = (
            m.points
            for dim in grid.wide
            if dim.alone
            for m in dim.members.values()
            if m.kind == "choices"
        )
        kind = (taken, *dtypes, *largest, *chosen)
        if kind not in self._at_point:

            def measure_point(key: Array, coordinates: Coordinates) -> dict[str, Array]:
                return flat_outputs(self.measure, key, grid.point(coordinates))

            jitted = jax.jit(measure_point)
            with jax.default_matmul_precision("highest"):
                self._at_point[kind] = _AtPoint(jitted, jitted.trace(self.key, scalars))
        return self._at_point[kind]

    def takes_sizes(self, grid: Grid) -> bool:
        """Whether it can be traced with the padded sizes of the program of `grid`."""
        try:
            self.traced_at_point(grid)
        except TypeError as error:
            logger.info("every width alone, since measure takes no padded Size: %s", error)
            return False
        return True


@dataclass(frozen=True)
class _AtPoint:
    """The measurement at one point, a function of key and coordinates: jitted, and traced."""

    jitted: Callable[..., dict[str, Array]]
    traced: jax.stages.Traced

    @property
    def mapped(self) -> Callable[..., dict[str, Array]]:
        """The function to vmap, in which no batch reaches LAPACK where that may deadlock."""
        if one_at_a_time.IS_NEEDED:
            return one_at_a_time.without_batches(self.traced)
        try:
            program = programs.Program.from_traced(self.traced)
            has_scope = program.has_64_bits and jnp.result_type(float) != jnp.float64
        except programs.UnreadableProgramError:
            return self.jitted
        if not has_scope:
            return self.jitted
        scoped = programs.scoped(program, self.traced.out_info)

        def function(key: Array, coordinates: Coordinates) -> dict[str, Array]:
            try:
                return scoped(key, coordinates)
            except programs.UnreadableProgramError:
                return self.jitted(key, coordinates)

        return function


def flat_outputs(
    measure: Measure, key: Key[Array, ""], point: Mapping[str, Any]
) -> dict[str, Shaped[Array, "..."]]:
    """The outputs of `measure` at one point, nested names joined by ".".

    Raises:
        ValueError: the result is not a (nested) dict of arrays with string keys, is empty, or has a
            name twice.
        TypeError: as `measure` raises it, with a note if a padded size may be the reason.
        ConcreteValueError: `measure` uses a traced value as a number.
    """
    outputs: dict[str, Array] = {}
    try:
        measured = measure(key, **point)
    except _concrete.ERRORS as error:
        if padded := [name for name, value in point.items() if isinstance(value, Size)]:
            error.add_note(
                f"In this program {' and '.join(padded)} is a padded Size, not an int: draw with"
                " specjax.sizes.normal(key, (rows, columns)), write sizes.active(width) in"
                " formulas, or take plan='exact', which passes ints."
            )
        elif sentence := _concrete.refusal(error):
            raise _concrete.ConcreteValueError(sentence) from error
        raise
    _flatten(measured, "", outputs)
    return outputs


def in_groups(
    measure_seed: Callable[..., dict[str, Array]],
    shared: tuple[Any, ...],
    seeds: UInt32[Array, " seeds"],
    size: int,
    groups: Array,
) -> dict[str, Array]:
    """`measure_seed(*shared, seed)` at the seeds of the first `groups` groups of `size`, in turn;
    zeros behind.

    A group is vmapped, unless it is a single seed: a decomposition of a batch of one matrix costs
    more than of the matrix. `seeds` are whole groups.
    """

    @jax.jit  # traced once, for the shapes and for the loop
    def measure_group(shared: tuple[Any, ...], some: Array) -> dict[str, Array]:
        if size == 1:
            return {
                name: jnp.asarray(output)[None]
                for name, output in measure_seed(*shared, some[0]).items()
            }
        return jax.vmap(partial(measure_seed, *shared))(some)

    def step(i: Array, outputs: dict[str, Array]) -> dict[str, Array]:
        new = measure_group(shared, jax.lax.dynamic_slice_in_dim(seeds, i * size, size))
        return {
            name: jax.lax.dynamic_update_slice_in_dim(output, new[name], i * size, 0)
            for name, output in outputs.items()
        }

    shapes = jax.eval_shape(measure_group, shared, seeds[:size])
    nothing = {
        name: jnp.zeros((len(seeds), *output.shape[1:]), output.dtype)
        for name, output in shapes.items()
    }
    return jax.lax.fori_loop(0, groups, step, nothing)


def trace(
    program: Callable[..., Any],
    key_data: UInt32[np.ndarray, "..."],
    seeds: int,
    grid: Grid,
    *more: np.int32,
    mesh: Mesh | None = None,
) -> jax.stages.Traced:
    """Trace a function of the arguments of `grid`'s program, for `seeds` seeds.

    Matrix products are traced at the highest precision: by default a GPU may round float32 factors
    to TF32, whose three digits would pass for physics in a fitted exponent.
    """
    sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(SEEDS))
    with jax.default_matmul_precision("highest"):
        return jax.jit(program).trace(
            key_data,
            jax.ShapeDtypeStruct((seeds,), np.uint32, sharding=sharding),
            grid.coordinates,
            *more,
        )


def compile_program(lowered: jax.stages.Lowered, *, is_kept: bool = True) -> jax.stages.Compiled:
    """Compile a program ahead of time, with the options of `xla_options`."""
    return lowered.compile(xla_options(is_kept=is_kept))


def seed_ids(start: int, stop: int) -> UInt32[np.ndarray, " seeds"]:
    """The seeds of a range as 32-bit words, which wrap around."""
    return np.arange(start, stop, dtype=np.uint64).astype(np.uint32)


def bytes_of(compiled: jax.stages.Compiled) -> tuple[int, int]:
    """Bytes that one call needs on one device, and the scratch memory alone, by XLA's memory
    analysis.

    The first includes scratch memory, arguments and results.
    """
    memory = compiled.memory_analysis()
    # A platform may have no analysis.
    if memory is None:
        return 0, 0
    scratch = memory.temp_size_in_bytes
    return scratch + memory.argument_size_in_bytes + memory.output_size_in_bytes, scratch


def _flatten(result: object, prefix: str, outputs: dict[str, Array]) -> None:
    if isinstance(result, Mapping) and result:
        for name, value in result.items():
            # netCDF reads "/" as a group.
            if not isinstance(name, str) or not name or "/" in name:
                raise ValueError(
                    "measure needs to name its outputs by non-empty strings without '/', got"
                    f" {name!r}."
                )
            _flatten(value, f"{prefix}.{name}" if prefix else name, outputs)
        return
    if not prefix or not isinstance(
        result, jax.Array | np.ndarray | np.generic | int | float | complex
    ):
        place = f" under {prefix!r}" if prefix else ""
        got = "an empty dict" if isinstance(result, Mapping) else f"a {type(result).__name__}"
        raise ValueError(
            f"measure needs to return a dict of arrays, got {got}{place}; write e.g. {{'loss':"
            " loss}."
        )
    if prefix in outputs:
        raise ValueError(
            f"measure returns the output {prefix!r} twice, once nested and once with the dot;"
            " rename one."
        )
    array = jnp.asarray(result)
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == jnp.bool_):
        raise ValueError(
            f"measure needs to return arrays of numbers, got dtype {array.dtype} under {prefix!r}."
        )
    # netCDF has no half precision; float32 holds both kinds exactly.
    outputs[prefix] = (
        array.astype(jnp.float32) if array.dtype in (jnp.bfloat16, jnp.float16) else array
    )
