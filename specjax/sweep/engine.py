"""`run`: a measurement over every seed, width and value, as a labelled dataset."""

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from time import perf_counter
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from tqdm import tqdm

from specjax.sweep.axes import Over
from specjax.sweep.checks import check_arguments, check_outputs, check_signature, trailing_dims
from specjax.sweep.failures import mark_failed
from specjax.sweep.plan import Bucket, buckets, group_axes
from specjax.sweep.program import Grid, Measure, Shapes, build, compile_program, grids

# Seeds per call of the program: enough that the call itself costs nothing, and few enough that one 1000 x 1000 float32 matrix
# for each of them takes 4 GB.
DEFAULT_CHUNK = 1024


class _Executed(NamedTuple):
    outputs: dict[str, np.ndarray]
    run_seconds: float
    device: jax.Device


def run(
    measure: Measure,
    over: Over,
    *,
    seeds: int,
    key: Key[Array, ""],
    plan: str = "auto",
    chunk: int | None = None,
    units: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Measures every seed at every point of the grid `over`, in one compiled program.

    Seed s uses `jax.random.fold_in(key, s)` at every point. So more seeds never change earlier ones, and a measurement that draws
    through :mod:`specjax.sizes` has its widths coupled: the small one is a block of the large one. The dataset is the same, to
    rounding, for every `plan` and `chunk`.

    Args:
        measure: A pure function `measure(key, **point)` that returns a dict of arrays; nested dicts give names like "loss.final".
            Widths arrive as Python ints or as `Size`s, values as scalar arrays. No output may have a shape that depends on a width.
        over: The swept arguments of `measure` and their axes, `widths(...)` or `values(...)`.
        seeds: How many seeds, 0 to seeds - 1.
        key: The typed key from which the key of every seed is folded.
        plan: How widths share compiled code: "exact" compiles each alone, "padded" pads all to the largest, "auto" weighs compile
            time against padding (see :mod:`specjax.sweep.plan`).
        chunk: Seeds per call of the program, 1024 by default, at most `seeds`. Memory grows with it; the last chunk is filled up
            with seeds that are discarded.
        units: Units of outputs by name.
        progress: True for a progress bar, False for none; by default there is one only on a terminal.

    Returns:
        A dataset with the dimensions `(*over, "seed")` and, for outputs that are not scalars, `{name}_dim_0`, ... behind them; with
        the boolean variable `failed` (see :func:`without_failed`); and with attributes that say how it was made: versions, device,
        key, seeds, plan, buckets (JSON), chunk, dtype, `compile_seconds` and `run_seconds`.

    Raises:
        ValueError: anything above is violated; raised before compilation.

    Warns:
        FailedSeedsWarning: an output is NaN or infinite for some seed.
    """
    check_arguments(over, seeds, key, plan, chunk)
    check_signature(measure, over)
    shapes = check_outputs(measure, over, key, units or {})

    groups = group_axes(over, plan, seeds)
    parts = buckets(groups)
    coordinates = grids(parts, over)
    chunk = min(chunk or DEFAULT_CHUNK, seeds)

    start = perf_counter()
    compiled = compile_program(build(measure, parts, over), key, chunk, coordinates)
    compile_seconds = perf_counter() - start
    executed = _execute(compiled, key, parts, coordinates, over, shapes, seeds, chunk, progress)

    attributes = {
        **{f"{package}_version": version(package) for package in ("specjax", "jax", "jaxlib", "numpy")},
        "platform": executed.device.platform,
        "device_kind": executed.device.device_kind,
        "key": json.dumps(jax.random.key_data(key).tolist()),
        "key_impl": str(jax.random.key_impl(key)),
        "seeds": seeds,
        "plan": plan,
        "buckets": json.dumps(groups),
        "chunk": chunk,
        "dtype": str(jnp.result_type(float)),
        "compile_seconds": compile_seconds,
        "run_seconds": executed.run_seconds,
    }
    return mark_failed(_assemble(executed.outputs, over, seeds, units or {}, attributes), tuple(over))


def _execute(
    compiled: jax.stages.Compiled,
    key: Array,
    parts: Sequence[Bucket],
    coordinates: list[Grid],
    over: Over,
    shapes: Shapes,
    seeds: int,
    chunk: int,
    progress: bool | None,
) -> _Executed:
    extents = [len(axis.points) for axis in over.values()]
    outputs = {name: np.empty((*extents, seeds, *s.shape), s.dtype) for name, s in shapes.items()}
    places = [_positions(part, over) for part in parts]
    run_seconds = 0.0
    # tqdm's `disable=None` is: silent unless on a terminal.
    with tqdm(total=seeds, unit="seed", disable=None if progress is None else not progress) as bar:
        for first in range(0, seeds, chunk):
            start = perf_counter()
            blocks = jax.block_until_ready(compiled(key, np.arange(first, first + chunk, dtype=np.uint32), coordinates))
            run_seconds += perf_counter() - start
            kept = min(chunk, seeds - first)
            for place, block in zip(places, blocks, strict=True):
                _write(outputs, place, slice(first, first + kept), block, chunk)
            bar.update(kept)
    device = next(iter(jax.tree.leaves(blocks)[0].devices()))
    return _Executed(outputs, run_seconds, device)


def _positions(part: Bucket, over: Over) -> list[np.ndarray]:
    """The indices of a bucket along each axis of the dataset."""
    return [
        np.array([axis.points.index(point) for point in part.get(name, axis.points)]) for name, axis in over.items()
    ]


def _write(
    outputs: dict[str, np.ndarray], place: list[np.ndarray], kept: slice, block: Mapping[str, Array], chunk: int
) -> None:
    extents = [len(indices) for indices in place]
    for name, target in outputs.items():
        own = target.shape[len(place) + 1 :]
        # A width that was alone in its bucket has no axis yet.
        points = np.asarray(block[name]).reshape(*extents, chunk, *own)
        view = target[(slice(None),) * len(place) + (kept,)]
        view[np.ix_(*place)] = points[(slice(None),) * len(place) + (slice(0, kept.stop - kept.start),)]


def _assemble(
    outputs: Mapping[str, np.ndarray],
    over: Over,
    seeds: int,
    units: Mapping[str, str],
    attributes: Mapping[str, str | int | float],
) -> xr.Dataset:
    variables = {
        name: (
            (*over, "seed", *trailing_dims(name, array.ndim - len(over) - 1)),
            array,
            {"units": units[name]} if name in units else {},
        )
        for name, array in outputs.items()
    }
    coordinates = {
        name: ((name,), np.asarray(axis.points), {"units": axis.unit} if axis.unit else {})
        for name, axis in over.items()
    }
    return xr.Dataset(variables, {**coordinates, "seed": np.arange(seeds)}, dict(attributes))
