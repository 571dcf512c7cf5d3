"""The compiled program of one bucket of a sweep: a loop over small groups of seeds, each vmapped together with the widths and values.

Only the seeds map the key. So the draws of a seed are made once and shared by all the widths and values of a bucket, and seed s has
the same key, `fold_in(key, s)`, at every point: widths are coupled, and more seeds never change earlier ones.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Key, Shaped, UInt32

from specjax.sizes import Size, active
from specjax.sweep.axes import Over, Values, as_array, members, widths_of
from specjax.sweep.decompositions import in_turn
from specjax.sweep.effort import effort
from specjax.sweep.plan import Bucket

Measure = Callable[..., Mapping[str, Any]]
Shapes = Mapping[str, jax.ShapeDtypeStruct]
Coordinates = Mapping[str, Mapping[str, Shaped[Array | np.ndarray, "..."]]]
"""The traced coordinates of a bucket: for each dimension its active widths and its values, by the names of the arguments."""
Program = Callable[
    [UInt32[Array | np.ndarray, "..."], UInt32[Array | np.ndarray, " _"], Coordinates],
    dict[str, Shaped[Array, "..."]],
]

SEEDS = "seeds"
"""The name of the mesh axis over which seeds are sharded."""


def flat_outputs(measure: Measure, key: Key[Array, ""], point: Mapping[str, Any]) -> dict[str, Shaped[Array, "..."]]:
    """The outputs of `measure` at one point, nested names joined by ".".

    Raises:
        ValueError: the result is no (nested) dict of arrays with string keys, is empty, or has a name twice.
        TypeError: as `measure` raises it, with a note where a padded size may be the reason.
    """
    outputs: dict[str, Array] = {}
    try:
        measured = measure(key, **point)
    except TypeError as error:
        if padded := [name for name, value in point.items() if isinstance(value, Size)]:
            error.add_note(
                f"In this program {' and '.join(padded)} is a padded Size, not an int: draw with specjax.sizes.normal(key, (rows, "
                "columns)), write sizes.active(width) in formulas, or take plan='exact', which passes ints."
            )
        raise
    _flatten(measured, "", outputs)
    return outputs


def coordinates(bucket: Bucket, over: Over) -> Coordinates:
    """The arrays that the program of `bucket` takes: one axis where it has several points of a dimension, none where it has one.

    They are arguments of the program, not constants in it, so that XLA does not spend compile time folding them away.
    """
    traced: dict[str, dict[str, np.ndarray]] = {}
    for dim, axis in over.items():
        places = bucket.get(dim)
        traced[dim] = {}
        for name, member in members(dim, axis).items():
            if isinstance(member, Values):
                points = as_array(name, member)
                traced[dim][name] = points if places is None else points[list(places)]
            elif places is not None and len(places) > 1:
                traced[dim][name] = np.asarray([member.points[i] for i in places], jnp.result_type(int))
            if places is not None and len(places) == 1 and name in traced[dim]:
                traced[dim][name] = traced[dim][name].reshape(())
    return traced


def traced_dims(bucket: Bucket, over: Over) -> tuple[str, ...]:
    """The dimensions of which `bucket` has an axis: all but those of which it has one point with its widths as Python ints."""
    return tuple(dim for dim in over if dim not in bucket or len(bucket[dim]) > 1)


def build(
    measure: Measure,
    bucket: Bucket,
    over: Over,
    key_impl: str,
    *,
    couple: bool = True,
    mesh: Mesh | None = None,
    vmapped: int | None = None,
) -> Program:
    """The function of (key data, seed ids, coordinates) that measures one bucket.

    Each output has one axis for each of `traced_dims`, then the seed axis, then its own axes. With a `mesh`, of one axis
    `SEEDS`, every device runs its part of the seeds by itself, without communication. At most `vmapped` seeds of a device are
    computed at a time, one group after the other; None: all. No batch of matrices reaches LAPACK on a CPU.
    """
    dims = traced_dims(bucket, over)
    alone = {
        name: axis.points[places[0]]
        for dim, places in bucket.items()
        if len(places) == 1
        for name, axis in widths_of(dim, over[dim]).items()
    }
    extents = {
        name: max(axis.points[i] for i in places)
        for dim, places in bucket.items()
        if len(places) > 1
        for name, axis in widths_of(dim, over[dim]).items()
    }
    order = [name for dim in over for name in members(dim, over[dim])]

    def at_point(key: Array, coordinates: Mapping[str, Mapping[str, Any]]) -> dict[str, Array]:
        given = {name: c for by_name in coordinates.values() for name, c in by_name.items()}
        point: dict[str, Any] = {name: Size(extents[name], c) if name in extents else c for name, c in given.items()}
        point |= alone
        if not couple:
            for name in order:
                if name in extents or name in alone:
                    key = jax.random.fold_in(key, active(point[name]))
        return flat_outputs(measure, key, point)

    at_points = in_turn(at_point)
    for dim in reversed(dims):
        at_points = jax.vmap(at_points, in_axes=(None, {name: 0 if name == dim else None for name in over}))

    def program(
        key_data: Array | np.ndarray, seed_ids: Array | np.ndarray, coordinates: Coordinates
    ) -> dict[str, Array]:
        key = jax.random.wrap_key_data(jnp.asarray(key_data), impl=key_impl)
        outputs = in_groups(
            lambda seed: at_points(jax.random.fold_in(key, seed), coordinates), jnp.asarray(seed_ids), vmapped
        )
        return {name: jnp.moveaxis(output, 0, len(dims)) for name, output in outputs.items()}

    if mesh is None:
        return program
    on_seeds = PartitionSpec(*([None] * len(dims)), SEEDS)
    return jax.shard_map(
        program,
        mesh=mesh,
        in_specs=(PartitionSpec(), PartitionSpec(SEEDS), PartitionSpec()),
        out_specs=on_seeds,
        check_vma=False,
    )


def in_groups(
    of_seed: Callable[[Array], dict[str, Array]], seeds: UInt32[Array, " seeds"], size: int | None
) -> dict[str, Array]:
    """`of_seed` at every seed, vmapped over groups of at most `size` of them and looped over the groups; None is one group.

    A group of one is not vmapped at all: a batch of one matrix costs a decomposition more than the matrix.
    """
    number = len(seeds)
    if size == 1:
        return jax.lax.map(of_seed, seeds)
    if size is None or size >= number:
        return jax.vmap(of_seed)(seeds)
    turns = ceil(number / size)
    # Groups of nearly equal size, so that few seeds are computed to fill the last one.
    group = ceil(number / turns)
    rows = jnp.pad(seeds, (0, turns * group - number), mode="edge").reshape(turns, group)
    found = jax.lax.map(jax.vmap(of_seed), rows)
    return {name: a.reshape(turns * group, *a.shape[2:])[:number] for name, a in found.items()}


def trace_program(
    program: Program,
    key_data: UInt32[np.ndarray, "..."],
    chunk: int,
    coordinates: Coordinates,
    mesh: Mesh | None = None,
) -> jax.stages.Traced:
    """Traces `program` for chunks of `chunk` seeds.

    Matrix products are traced at the highest precision: by default a GPU may round float32 factors to TF32, whose three
    digits would pass for physics in a fitted exponent.
    """
    sharding = None if mesh is None else NamedSharding(mesh, PartitionSpec(SEEDS))
    with jax.default_matmul_precision("highest"):
        return jax.jit(program).trace(
            key_data, jax.ShapeDtypeStruct((chunk,), np.uint32, sharding=sharding), coordinates
        )


def compile_program(
    lowered: jax.stages.Lowered, *, seconds: float | None, compiling: float = 0.0
) -> jax.stages.Compiled:
    """Compiles what was lowered from `trace_program`, ahead of time.

    Args:
        lowered: The program of a bucket.
        seconds: How long its calls are estimated to take together, None for a program of which nothing is kept.
        compiling: How long it is estimated to compile.
    """
    return lowered.compile(effort(seconds, compiling))


def bytes_of(compiled: jax.stages.Compiled) -> tuple[int, int]:
    """What one call needs on one device by XLA's memory analysis, scratch memory, arguments and results, and the scratch memory alone."""
    memory = compiled.memory_analysis()
    # A platform may have no analysis.
    if memory is None:
        return 0, 0
    scratch = memory.temp_size_in_bytes
    return scratch + memory.argument_size_in_bytes + memory.output_size_in_bytes, scratch


def is_key(array: Any) -> bool:
    """Whether `array` holds typed keys."""
    return isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key)


def _flatten(result: object, prefix: str, outputs: dict[str, Array]) -> None:
    if isinstance(result, Mapping) and result:
        for name, value in result.items():
            # netCDF reads "/" as a group.
            if not isinstance(name, str) or not name or "/" in name:
                raise ValueError(f"measure needs to name its outputs by non-empty strings without '/', got {name!r}.")
            _flatten(value, f"{prefix}.{name}" if prefix else name, outputs)
        return
    if not prefix or not isinstance(result, jax.Array | np.ndarray | np.generic | int | float | complex):
        place = f" under {prefix!r}" if prefix else ""
        got = "an empty dict" if isinstance(result, Mapping) else f"a {type(result).__name__}"
        raise ValueError(f"measure needs to return a dict of arrays, got {got}{place}; write e.g. {{'loss': loss}}.")
    if prefix in outputs:
        raise ValueError(f"measure returns the output {prefix!r} twice, once nested and once with the dot; rename one.")
    array = jnp.asarray(result)
    if not (jnp.issubdtype(array.dtype, jnp.number) or array.dtype == jnp.bool_):
        raise ValueError(f"measure needs to return arrays of numbers, got dtype {array.dtype} under {prefix!r}.")
    # netCDF has no half precision; float32 holds both kinds exactly.
    outputs[prefix] = array.astype(jnp.float32) if array.dtype in (jnp.bfloat16, jnp.float16) else array
