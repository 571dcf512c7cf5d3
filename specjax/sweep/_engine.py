"""`run`: a measurement over every seed, width and value, as a labelled dataset."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import resume
from specjax.arguments import checked_but
from specjax.blas import one_blas_thread
from specjax.sweep import _dataset
from specjax.sweep._bucketing import Plan, padding
from specjax.sweep._devices import agreed, is_first
from specjax.sweep._executor import Ranges, execute
from specjax.sweep._grid import Grid
from specjax.sweep._measurement import Measure
from specjax.sweep._spec import Spec
from specjax.sweep._store import Description, Store, read_description
from specjax.sweep.axes import Over


@checked_but("measure", "over", "num_seeds", "key", "plan", "chunk", "memory", "reduce")
def run(
    measure: Measure,
    over: Over,
    *,
    num_seeds: int | Mapping[str, Sequence[int]],
    key: Key[Array, ""],
    plan: str = "auto",
    chunk: int | None = None,
    memory: str | int | None = None,
    reduce: Literal["moments"] | None = None,
    check_padding: bool = True,
    store: str | Path | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Measure every seed at every point of the grid `over`, with one compiled program per bucket of
    widths.

    Seed s uses `jax.random.fold_in(key, s)` at every point. So more seeds never change earlier
    ones, and a measurement that samples through `specjax.sizes` has its widths coupled: the small
    sample is a block of the large one. The dataset is the same, to rounding, for every `plan`,
    `chunk`, `memory` and number of devices; the random samples are the same bit for bit.

    Seeds are shared among all devices, and among all processes after
    `jax.distributed.initialize()`; each process returns the whole dataset.

    Args:
        measure: A pure function `measure(key, **point)` that returns a dict of arrays; nested dicts
            give names like "loss.final". Widths arrive as Python ints or as `Size`s, values as
            scalar arrays, choices unchanged. No output may have a shape that depends on a width or
            a choice.
        over: The swept arguments of `measure` and their axes, `widths(...)`, `values(...)`,
            `choices(...)` or `zipped(...)`.
        num_seeds: The number of seeds, 0 to num_seeds - 1. Or a number for each width, as in
            `{"d1": (4000, 1000)}`: then the dataset has the coordinate `seeds`, and NaN where a
            width has no such seed.
        key: The typed key from which the key of every seed is folded.
        plan: How widths share compiled code: "exact" compiles each alone, "padded" pads all to the
            largest, "auto" weighs compile time against padding (see `specjax.sweep._bucketing`),
            and pads nothing if `measure` raises a TypeError for a `Size`.
        chunk: The largest number of seeds in a call of a program; by default as many as fit in
            `memory`. The time of a call is measured as the sweep runs and kept to a fraction of a
            second; the cache decides how many of its seeds are computed at once.
        memory: The memory of one device to use, in bytes or as "4GiB"; by default a quarter of a
            host's memory or three quarters of an accelerator's.
        reduce: None keeps every seed. "moments" keeps mean, variance, smallest and largest of at
            most 64 batches of seeds and forgets the seeds, so that memory does not grow with their
            number; see `specjax.sweep.total`.
        check_padding: Whether to measure one seed both padded and with its widths as ints, at the
            narrowest point of the bucket that is padded most, and to refuse outputs that differ
            beyond rounding. It costs the compilation of one program at that point.
        store: A folder to write to as the sweep runs. The same call continues an interrupted sweep,
            and a call for more seeds runs only the new ones. Without a store, a sweep within
            `specjax.resume.enabled` has its own there.
        progress: True for a progress bar, or a line for each stage where standard error is no
            terminal; False for none; by default a bar on a terminal only.

    Returns:
        A dataset with the dimensions `(*over, "seed")` and, for outputs that are not scalars,
        `{name}_dim_0`, ... behind them; with the boolean variable `failed` (see `without_failed`);
        and with attributes that say how it was made: versions, device, key, seeds, plan, buckets
        (JSON), padding, dtype, `compile_seconds`, `run_seconds`; `specjax.sweep.explain` prints
        them. With `reduce`, "batch" replaces "seed", each output has its `.variance`, `.min` and
        `.max` beside it, `count` counts the seeds of each batch and `failed` those left out.

    Raises:
        ValueError: an argument breaks one of the rules above, or the store holds another sweep;
            raised before compilation. Or one seed does not fit in `memory`; raised before its
            program runs. Or padding changes an output, or seems to because `measure` is not pure;
            raised after the first call of the first program, before anything is kept.
        StoreError: the store cannot be written. Finished blocks are intact.

    Warns:
        EqualSeedsWarning: no output of `measure` depends on its key.
        DamagedBlocksWarning: blocks in the store were damaged; they are computed again.
        FailedSeedsWarning: an output is NaN or infinite for some seed.

    Examples:
        >>> from specjax import sizes, sweep
        >>> measure = lambda key, d: {"norm": jnp.sum(sizes.normal(key, (d,)) ** 2)}
        >>> over = {"d": sweep.widths(8, 16)}
        >>> data = sweep.run(measure, over, num_seeds=400, key=jax.random.key(0))
        >>> dict(data["norm"].sizes)
        {'d': 2, 'seed': 400}
        >>> (data["norm"].mean("seed") / data["d"]).round(1).values.tolist()
        [1.0, 1.0]
    """
    spec = Spec.of(
        measure,
        over,
        num_seeds,
        key,
        plan=plan,
        chunk=chunk,
        memory=memory,
        reduce=reduce,
        check_padding=check_padding,
    )
    with ExitStack() as stack:
        stack.enter_context(one_blas_thread())
        cut, opened, missing = _open(spec, store, stack)
        outputs, table = execute(cut, opened, missing, progress)
        attributes = _attributes(cut, opened, table)
        return _dataset.assemble(outputs, spec.grid, cut.sampling, attributes)


def _open(
    spec: Spec, path: str | Path | None, stack: ExitStack
) -> tuple[Plan, Store | None, Sequence[Ranges]]:
    """The plan, the store of the first process, and the missing samples of each bucket."""
    if path is None and resume.folder() is None:
        plan = Plan.of(spec)
        return plan, None, [[(0, samples)] for samples in plan.samples]
    if not is_first():
        sent = agreed(None)
        if "refused" in sent:
            raise ValueError(sent["refused"])
        return Plan.from_json(sent["plan"], spec), None, sent["missing"]
    try:
        plan = Plan.of(spec) if path is None else _continued(spec, Path(path))
        described = _description(plan)
        folder = _resume_folder(spec.grid, described) if path is None else Path(path)
        opened = stack.enter_context(Store.opened(folder, described))
    except Exception as error:
        # The other processes wait for the word of the first.
        agreed({"refused": str(error)})
        raise
    missing = [
        [(start, min(stop, samples)) for start, stop in opened.missing(i) if start < samples]
        for i, samples in enumerate(plan.samples)
    ]
    agreed({"plan": plan.to_json(), "missing": missing})
    return plan, opened, missing


def _continued(spec: Spec, path: Path) -> Plan:
    """The plan of the store at `path`; a new one if the store is new or of other axes.

    A store of other axes is refused when it is opened.
    """
    stored = read_description(path)
    if stored and json.dumps(stored.config.get("over")) == json.dumps(_axes(spec.grid)):
        return Plan.from_json(stored.plan, spec)
    return Plan.of(spec)


def _resume_folder(grid: Grid, described: Description) -> Path:
    """The folder that `specjax.resume` has for a sweep."""
    counts = {dim.name: dim.seeds for dim in grid.wide if dim.seeds}
    return resume.subfolder(json.dumps([described.config, described.plan, counts or grid.seeds]))


def _description(plan: Plan) -> Description:
    grid, sampling = plan.spec.grid, plan.sampling
    shape = (*grid.shape, sampling.samples)
    # Zeros that take no memory.
    zeros = {
        name: np.broadcast_to(np.zeros((), v.dtype), (*shape, *v.shape))
        for name, v in plan.variables.items()
    }
    return Description.of(
        _dataset.named(zeros, grid, sampling),
        sampling.dim,
        config=_config(plan),
        plan=plan.to_json(),
        places=[bucket.grid.places for bucket in plan.buckets],
    )


def _config(plan: Plan) -> dict[str, Any]:
    """Everything that decides the numbers of a sweep. More seeds add numbers and change none."""
    spec, measurement, sampling = plan.spec, plan.spec.measurement, plan.sampling
    # The programs of all buckets, the same for every chunk and number of devices: other code at any
    # width, or other constants, give another digest. Host callbacks are not part of a program.
    programs = (measurement.traced(bucket.grid, 1) for bucket in plan.buckets)
    return {
        "over": _axes(spec.grid),
        "key": jax.random.key_data(measurement.key).tolist(),
        "key_impl": str(jax.random.key_impl(measurement.key)),
        "reduce": spec.reduce,
        # Batches of unequal size belong to one number of seeds.
        "batches": None if spec.reduce is None else sampling.size or [*sampling.edges],
        "dtype": str(jnp.result_type(float)),
        "platform": spec.machine.platform,
        "measure": resume.digest(programs),
        **_versions("specjax", "jax", "jaxlib"),
    }


def _versions(*packages: str) -> dict[str, str]:
    return {f"{package}_version": version(package) for package in packages}


def _axes(grid: Grid) -> dict[str, Any]:
    """The axes of a sweep as JSON."""
    return {
        dim.name: {
            name: {"kind": member.kind, "points": [*member.points]}
            for name, member in dim.members.items()
        }
        for dim in grid.dims.values()
    }


def _attributes(
    plan: Plan, opened: Store | None, table: list[dict[str, Any]]
) -> dict[str, str | int | float]:
    spec, groups, key = plan.spec, plan.groups, plan.spec.measurement.key
    grid, machine = spec.grid, spec.machine
    return {
        **_versions("specjax", "jax", "jaxlib", "numpy"),
        "platform": machine.platform,
        "device_kind": jax.local_devices()[0].device_kind,
        "devices": machine.devices,
        "processes": jax.process_count(),
        "key": json.dumps(jax.random.key_data(key).tolist()),
        "key_impl": str(jax.random.key_impl(key)),
        "seeds": grid.seeds,
        "reduce": spec.reduce or "none",
        "plan": spec.plan,
        "buckets": json.dumps(
            {dim: [grid.dims[dim].select(g).labels for g in groups[dim]] for dim in groups}
        ),
        "padding": padding(grid, groups, spec.model.seconds),
        "memory": machine.budget,
        "dtype": str(jnp.result_type(float)),
        "compile_seconds": sum(row["compile_seconds"] for row in table),
        "run_seconds": (
            sum(row["run_seconds"] for row in table) if opened is None else opened.seconds
        ),
        _dataset.BUCKET_TABLE: json.dumps(table),
    }
