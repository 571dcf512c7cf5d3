"""The one compiled program of a sweep: every bucket, vmapped over its widths, the values and a chunk of seeds.

The seed axis is the innermost vmap and the only one that maps the key. So the draws of a seed are made once and shared by all
the widths and values of a bucket, and seed s has the same key, `fold_in(key, s)`, at every point: widths are coupled, and more
seeds never change earlier ones.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, Shaped, UInt32

from specjax.sizes import Size
from specjax.sweep.axes import Over, Widths, as_array
from specjax.sweep.plan import Bucket

Measure = Callable[..., Mapping[str, Any]]
Shapes = Mapping[str, jax.ShapeDtypeStruct]
Grid = Mapping[str, Shaped[Array | np.ndarray, " _"]]
"""The traced coordinates of a bucket: its active widths and the values."""
Program = Callable[[Key[Array, ""], UInt32[Array, " chunk"], list[Grid]], list[dict[str, Shaped[Array, "..."]]]]


def flat_outputs(measure: Measure, key: Key[Array, ""], point: Mapping[str, Any]) -> dict[str, Shaped[Array, "..."]]:
    """The outputs of `measure` at one point, nested names joined by ".".

    Raises:
        ValueError: the result is no (nested) dict of arrays with string keys, is empty, or has a name twice.
    """
    outputs: dict[str, Array] = {}
    _flatten(measure(key, **point), "", outputs)
    return outputs


def grids(buckets: Sequence[Bucket], over: Over) -> list[Grid]:
    """The arrays that the program takes for each bucket.

    They are arguments of the program, not constants in it, so that XLA does not spend compile time folding them away.
    """
    shared = {name: as_array(name, axis) for name, axis in over.items() if not isinstance(axis, Widths)}
    return [
        {**{name: np.asarray(ns, jnp.result_type(int)) for name, ns in bucket.items() if len(ns) > 1}, **shared}
        for bucket in buckets
    ]


def build(measure: Measure, buckets: Sequence[Bucket], over: Over) -> Program:
    """The function of (key, seed ids, grids) that measures every bucket.

    Each output of a bucket has one axis per swept name whose points are traced in that bucket, in the order of `over`, then the
    seed axis, then its own axes. A width that is alone in its bucket is a Python int and has no axis.
    """

    def program(key: Array, seed_ids: Array, grids: list[Grid]) -> list[dict[str, Array]]:
        keys = jax.vmap(lambda s: jax.random.fold_in(key, s))(seed_ids)
        return [
            _over_bucket(measure, bucket, tuple(over))(keys, grid) for bucket, grid in zip(buckets, grids, strict=True)
        ]

    return program


# A batched LAPACK call (svd, eigh) of jaxlib 0.10 waits, on a thread of XLA's pool, for work it has put into the same pool. By default
# independent calls of one program run at the same time, and as many of them as there are cores then wait for ever: on two cores a
# sweep with one svd for each layer never ended. This scheduler runs a program's operations one after the other, each on all cores.
_ONE_AT_A_TIME: dict[str, str | bool] = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


def compile_program(program: Program, key: Key[Array, ""], chunk: int, grids: list[Grid]) -> jax.stages.Compiled:
    """Compiles `program` for chunks of `chunk` seeds, ahead of time.

    Matrix products are compiled at the highest precision: by default a GPU may round float32 factors to TF32, whose three
    digits would pass for physics in a fitted exponent.
    """
    with jax.default_matmul_precision("highest"):
        lowered = jax.jit(program).lower(key, jax.ShapeDtypeStruct((chunk,), np.uint32), grids)
    return lowered.compile(_ONE_AT_A_TIME if "@lapack_" in lowered.as_text() else None)


def _over_bucket(measure: Measure, bucket: Bucket, names: Sequence[str]) -> Callable[[Array, Grid], dict[str, Array]]:
    alone = {name: ns[0] for name, ns in bucket.items() if len(ns) == 1}
    traced = [name for name in names if name not in alone]

    def at_point(key: Array, coordinates: Mapping[str, Any]) -> dict[str, Array]:
        point = {name: Size(max(bucket[name]), c) if name in bucket else c for name, c in coordinates.items()}
        return flat_outputs(measure, key, {**alone, **point})

    batched = jax.vmap(at_point, in_axes=(0, None))
    for axis in reversed(traced):
        batched = jax.vmap(batched, in_axes=(None, {name: 0 if name == axis else None for name in traced}))
    return batched


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
