"""`run`: a measurement over every seed, width and value, as a labelled dataset."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from math import ceil, prod
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
from specjax.sweep import bucketing as cutting
from specjax.sweep import dataset, reduction
from specjax.sweep import memory as bytes_of
from specjax.sweep.axes import Over
from specjax.sweep.bucketing import Bucket, Plan
from specjax.sweep.cost_model import cost_model
from specjax.sweep.devices import Machine, agreed, is_first
from specjax.sweep.executor import Planned, Ranges, Request, execute
from specjax.sweep.grid import Grid
from specjax.sweep.measurement import Measure, Measurement
from specjax.sweep.reduction import EverySeed, Sampling
from specjax.sweep.store import Description, Store, read_description
from specjax.sweep.validation import check_arguments, check_signature, traced

_RESULT_BYTES = 2**24  # of a call, which writes its whole result however few groups it has


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
            largest, "auto" weighs compile time against padding (see `specjax.sweep.bucketing`), and
            pads nothing if `measure` raises a TypeError for a `Size`.
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
        progress: True for a progress bar, False for none; by default only on a terminal.

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
    """
    grid = Grid.of(over, num_seeds)
    check_arguments(grid, key, plan, chunk, memory, reduce)
    check_signature(measure, grid)
    measurement, machine = Measurement(measure, key), Machine.here(memory)
    largest, narrow = traced(measurement, grid, reduce)
    request = Request(
        measurement,
        grid,
        machine,
        shapes=dict(largest.out_info),
        model=cost_model(grid, largest, narrow, machine.platform),
        plan=plan,
        chunk=None if chunk is None else int(chunk),
        reduce=reduce,
        check_padding=check_padding,
    )
    _require_room(request)
    with ExitStack() as stack:
        stack.enter_context(one_blas_thread())
        planned, opened, missing = _open(request, store, stack)
        outputs, table = execute(planned, opened, missing, progress)
        return dataset.assemble(
            outputs, grid, planned.sampling, _attributes(planned, opened, table)
        )


def _open(
    request: Request, path: str | Path | None, stack: ExitStack
) -> tuple[Planned, Store | None, Sequence[Ranges]]:
    """The plan, the store of the first process, and what is missing of each bucket."""
    if path is None and resume.folder() is None:
        planned = _planned(request, None)
        return planned, None, planned.everything()
    if not is_first():
        told = agreed(None)
        if "refused" in told:
            raise ValueError(told["refused"])
        return _planned(request, told["plan"]), None, told["missing"]
    try:
        planned, path, described = _described(request, None if path is None else Path(path))
        opened = stack.enter_context(Store.opened(path, described))
    except Exception as error:
        # The other processes wait for the word of the first.
        agreed({"refused": str(error)})
        raise
    missing = [
        [(start, min(stop, samples)) for start, stop in opened.missing(i) if start < samples]
        for i, ((_, samples),) in enumerate(planned.everything())
    ]
    agreed({"plan": _cut(planned), "missing": missing})
    return planned, opened, missing


def _described(request: Request, path: Path | None) -> tuple[Planned, Path, Description]:
    """The plan of a request, the path of its store, where None is for that which `resume` has for
    this very sweep, and what it says.
    """
    grid = request.grid
    stored = None if path is None else read_description(path)
    # The plan of a store of other axes, which is refused when it is opened, does not fit these.
    same = stored is not None and json.dumps(stored.config.get("over")) == json.dumps(_axes(grid))
    plan = stored.plan if stored is not None and same else None
    planned = _planned(request, plan)
    config, kept = _config(planned), planned.sampling
    if path is None:
        counted = {dim.name: dim.seeds for dim in grid.wide if dim.seeds}
        path = resume.subfolder(json.dumps([config, _cut(planned), counted or grid.seeds]))
    shape = (*grid.shape, kept.samples)
    # Zeros that take no memory.
    zeros = {
        n: np.broadcast_to(np.zeros((), v.dtype), (*shape, *v.shape))
        for n, v in planned.variables.items()
    }
    form = dataset.named(zeros, grid, kept)
    places = [bucket.grid.places for bucket in planned.plan.buckets]
    return (
        planned,
        path,
        Description.of(form, kept.dim, config=config, plan=_cut(planned), places=places),
    )


def _sampling(request: Request, stored: Mapping[str, Any] | None) -> Sampling:
    """What is kept of the seeds, in batches as a stored plan has them."""
    if request.reduce == "moments":
        return reduction.batches(
            request.grid.seeds, None if stored is None else stored["batch_size"]
        )
    return EverySeed(range(request.grid.seeds + 1))


def _planned(request: Request, stored: Mapping[str, Any] | None) -> Planned:
    """The plan of a request: the stored one, whose bits another would not reproduce, or a new
    one.
    """
    grid, kept = request.grid, _sampling(request, stored)
    if stored is not None:
        return Planned(request, Plan.from_json(stored, grid), kept)
    side_by_side = request.machine.side_by_side
    groups = cutting.group(
        grid, request.plan, request.model, checked=request.check_padding, side_by_side=side_by_side
    )
    pieces = cutting.pieces(grid, groups)
    padded = next(
        (piece for piece in pieces if set(piece.axes) & {dim.name for dim in piece.wide}), None
    )
    if (
        request.plan == "auto"
        and padded is not None
        and not request.measurement.takes_sizes(padded)
    ):
        groups = cutting.exact(groups)
        pieces = cutting.pieces(grid, groups)
    buckets = tuple(_bucket(request, piece) for piece in pieces)
    return Planned(request, Plan(groups, buckets), kept)


def _bucket(request: Request, piece: Grid) -> Bucket:
    """A piece of the grid with the seeds that are computed of it at a time, and in a call at
    most.
    """
    machine, devices = request.machine, request.machine.devices
    budget, asked = machine.budget // machine.calls, ceil((request.chunk or piece.seeds) / devices)
    result = piece.points * sum(
        prod(v.shape) * np.dtype(v.dtype).itemsize for v in request.shapes.values()
    )
    room = budget // max(2 * result, 1)
    vmapped = cutting.vmapped(
        piece, request.model, machine.platform, budget, machine.side_by_side * devices
    )
    vmapped = max(min(vmapped, room, asked), 1)
    most = min(room, asked, _RESULT_BYTES // max(result, 1))
    return Bucket(piece, cutting.chunk(piece.seeds, vmapped, most, devices), vmapped)


def _cut(planned: Planned) -> dict[str, Any]:
    """The plan as a store keeps it."""
    return {**planned.plan.to_json(), "batch_size": planned.sampling.size}


def _config(planned: Planned) -> dict[str, Any]:
    """What decides the numbers of a sweep. More seeds add numbers and change none."""
    request, measurement = planned.request, planned.request.measurement
    # The programs of all buckets, the same for every chunk and number of devices: other code at any
    # width, or other constants, give another digest. What a callback does on the host is no part of
    # a program, and not seen.
    programs = (measurement.traced(bucket.grid, 1) for bucket in planned.plan.buckets)
    return {
        "over": _axes(request.grid),
        "key": jax.random.key_data(measurement.key).tolist(),
        "key_impl": str(jax.random.key_impl(measurement.key)),
        "reduce": request.reduce,
        # Batches of unequal size are those of one number of seeds.
        "batches": (
            None if request.reduce is None else planned.sampling.size or [*planned.sampling.edges]
        ),
        "dtype": str(jnp.result_type(float)),
        "platform": request.machine.platform,
        "measure": resume.digest(programs),
        **{f"{package}_version": version(package) for package in ("specjax", "jax", "jaxlib")},
    }


def _axes(grid: Grid) -> dict[str, Any]:
    """The axes of a sweep, as JSON gives them back."""
    return {
        dim.name: {
            name: {"kind": member.kind, "points": [*member.points]}
            for name, member in dim.members.items()
        }
        for dim in grid.dims.values()
    }


def _require_room(request: Request) -> None:
    """Raises ValueError if the result, or one array of one seed, does not fit into memory."""
    grid, host = request.grid, bytes_of.host_memory()
    kept = _sampling(request, None)
    entry = sum(
        prod(v.shape) * np.dtype(v.dtype).itemsize for v in kept.variables(request.shapes).values()
    )
    # Each sample has a coordinate.
    needed = kept.samples * (grid.points * entry + np.dtype(int).itemsize)
    if needed > host:
        raise ValueError(
            f"The result takes {bytes_of.described(needed)}, more than this host's"
            f" {bytes_of.described(host)}; use reduce='moments', fewer seeds, or smaller outputs."
        )
    budget = max(request.machine.budget, host)
    if request.model.largest_product > budget:
        raise ValueError(
            f"One matrix of one seed takes {bytes_of.described(request.model.largest_product)},"
            f" more than the {bytes_of.described(budget)} of memory; sweep smaller sizes."
        )


def _attributes(
    planned: Planned, opened: Store | None, table: list[dict[str, Any]]
) -> dict[str, str | int | float]:
    request, groups, key = planned.request, planned.plan.groups, planned.request.measurement.key
    grid, machine = request.grid, request.machine
    return {
        **{
            f"{package}_version": version(package)
            for package in ("specjax", "jax", "jaxlib", "numpy")
        },
        "platform": machine.platform,
        "device_kind": jax.local_devices()[0].device_kind,
        "devices": machine.devices,
        "processes": jax.process_count(),
        "key": json.dumps(jax.random.key_data(key).tolist()),
        "key_impl": str(jax.random.key_impl(key)),
        "seeds": grid.seeds,
        "reduce": request.reduce or "none",
        "plan": request.plan,
        "buckets": json.dumps(
            {dim: [grid.dims[dim].at(g).labels for g in groups[dim]] for dim in groups}
        ),
        "padding": cutting.padding(grid, groups, request.model.seconds),
        "memory": machine.budget,
        "dtype": str(jnp.result_type(float)),
        "compile_seconds": sum(row["compile_seconds"] for row in table),
        "run_seconds": (
            sum(row["run_seconds"] for row in table) if opened is None else opened.seconds
        ),
        dataset.BUCKET_TABLE: json.dumps(table),
    }
