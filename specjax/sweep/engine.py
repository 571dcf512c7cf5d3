"""`run`: a measurement over every seed, width and value, as a labelled dataset."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from math import ceil, prod
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import keeping
from specjax.sweep import dataset, sampling
from specjax.sweep import memory as bytes_of
from specjax.sweep import plan as cutting
from specjax.sweep.axes import Over, members
from specjax.sweep.checks import Probe, check_arguments, check_signature, probe
from specjax.sweep.cost import CostModel, cost_model
from specjax.sweep.devices import agreed, is_first, seed_mesh, side_by_side
from specjax.sweep.execution import Prepared, Ranges, Request, execute
from specjax.sweep.fingerprint import fingerprint
from specjax.sweep.plan import Bucket, Plan, Seeds
from specjax.sweep.program import Measure
from specjax.sweep.sampling import EverySeed, Sampling
from specjax.sweep.store import Description, Store, read_description

# A block is what an interruption can cost at most, and its storing and logging is to cost nothing beside its computing.
BLOCK_SECONDS = 2.0
_LEAST_SECONDS = 1e-4  # of one call, however little it computes


def run(
    measure: Measure,
    over: Over,
    *,
    seeds: int | Mapping[str, Sequence[int]],
    key: Key[Array, ""],
    plan: str = "auto",
    chunk: int | None = None,
    memory: str | int | None = None,
    reduce: Literal["moments"] | None = None,
    couple: bool = True,
    check_padding: bool = True,
    store: str | Path | None = None,
    units: Mapping[str, str] | None = None,
    progress: bool | None = None,
) -> xr.Dataset:
    """Measures every seed at every point of the grid `over`, with one compiled program for each bucket of widths.

    Seed s uses `jax.random.fold_in(key, s)` at every point. So more seeds never change earlier ones, and a measurement that draws
    through `specjax.sizes` has its widths coupled: the small one is a block of the large one. The dataset is the same, to
    rounding, for every `plan`, `chunk`, `memory` and number of devices; the draws are the same bit for bit.

    Seeds are shared among all devices, and among all processes after `jax.distributed.initialize()`; each process returns the whole.

    Args:
        measure: A pure function `measure(key, **point)` that returns a dict of arrays; nested dicts give names like "loss.final".
            Widths arrive as Python ints or as `Size`s, values as scalar arrays. No output may have a shape that depends on a width.
        over: The swept arguments of `measure` and their axes, `widths(...)`, `values(...)` or `zipped(...)`.
        seeds: How many seeds, 0 to seeds - 1. Or a number for each width, as in `{"d1": (4000, 1000)}`: then the dataset has the
            coordinate `seeds`, and NaN where a width has no such seed.
        key: The typed key from which the key of every seed is folded.
        plan: How widths share compiled code: "exact" compiles each alone, "padded" pads all to the largest, "auto" weighs compile
            time against padding (see `specjax.sweep.plan`).
        chunk: Seeds per call of a program; by default a fraction of a second's work, within `memory`. How many of them are computed at a
            time is chosen by the cache, whatever this is.
        memory: What one device may hold at a time, in bytes or as "4GiB"; by default a quarter of a host's memory or three quarters
            of an accelerator's.
        reduce: None keeps every seed. "moments" keeps mean, variance, smallest and largest of at most 64 batches of seeds and
            forgets the seeds, so that memory does not grow with their number; see `specjax.sweep.total`.
        couple: Whether a seed has the same key at all widths. False folds the widths into it, so that they are drawn independently.
        check_padding: Whether to measure one seed both ways, padded and with its widths as ints, at the narrowest point of the bucket that
            is padded most, and to refuse outputs that differ beyond rounding. It costs the compilation of one program at that point; a
            plan that pads nothing, and a stored sweep of which nothing is missing, cost nothing.
        store: A folder to write to as the sweep runs. An interrupted sweep is continued by the same call, and one of more seeds
            runs only those that are new. Without one, a sweep within `specjax.keeping.under` has one of its own there.
        units: Units of outputs by name.
        progress: True for a progress bar, False for none; by default there is one only on a terminal.

    Returns:
        A dataset with the dimensions `(*over, "seed")` and, for outputs that are not scalars, `{name}_dim_0`, ... behind them; with
        the boolean variable `failed` (see `without_failed`); and with attributes that say how it was made: versions, device,
        key, seeds, plan, buckets (JSON), padding, dtype, `compile_seconds`, `run_seconds`; `specjax.sweep.explain` prints them.
        With `reduce`, "batch" stands in place of "seed", each output has its `.variance`, `.min` and `.max` beside it, `count`
        counts the seeds of each batch and `failed` those left out.

    Raises:
        ValueError: anything above is violated, or the store holds another sweep; raised before compilation. Or one seed does not
            fit in `memory`; raised before the program that it does not fit runs. Or padding changes an output; raised after the first
            call of the first program, before anything is kept.
        StoreError: the store cannot be written. Finished blocks are intact.

    Warns:
        DamagedBlocksWarning: blocks in the store are not what was written; they are computed again.
        FailedSeedsWarning: an output is NaN or infinite for some seed.
    """
    check_arguments(over, seeds, key, plan, chunk, memory, reduce)
    counts: Seeds = (
        {dim: tuple(map(int, ns)) for dim, ns in seeds.items()} if isinstance(seeds, Mapping) else int(seeds)
    )
    chunk = None if chunk is None else int(chunk)
    check_signature(measure, over)
    probed = probe(measure, over, key, units or {}, reduce)
    local = jax.local_devices()
    budget = bytes_of.parse(memory) if memory is not None else bytes_of.default_budget(local[0], len(local))
    request = Request(
        measure,
        over,
        counts,
        key,
        plan,
        chunk,
        memory,
        reduce,
        couple,
        seed_mesh(),
        side_by_side(),
        agreed(budget),
        check_padding,
    )
    with ExitStack() as stack:
        prepared, opened, missing = _open(request, probed, units or {}, store, stack)
        _require_room(prepared)
        outputs, table = execute(prepared, opened, missing, progress)
        data = dataset.assemble(
            outputs, over, prepared.sampling, counts, units or {}, _attributes(prepared, opened, table)
        )
    return data


def _open(
    request: Request, probed: Probe, units: Mapping[str, str], path: str | Path | None, stack: ExitStack
) -> tuple[Prepared, Store | None, Sequence[Ranges]]:
    """The plan, the store of the first process, and what is missing of each bucket."""
    model = cost_model(probed.largest, probed.narrow, request.platform)
    if path is None and keeping.folder() is None:
        prepared = _prepare(request, probed, model, None)
        return prepared, None, [[(0, prepared.samples(bucket))] for bucket in prepared.plan.buckets]
    if not is_first():
        told = agreed(None)
        if "refused" in told:
            raise ValueError(told["refused"])
        missing = [[(start, stop) for start, stop in ranges] for ranges in told["missing"]]
        return _prepare(request, probed, model, told["plan"]), None, missing
    try:
        prepared, path, described = _describe(request, probed, model, units, None if path is None else Path(path))
        opened = stack.enter_context(Store.opened(path, described))
    except Exception as error:
        # The other processes wait for the word of the first.
        agreed({"refused": str(error)})
        raise
    missing = [
        [(start, min(stop, samples)) for start, stop in opened.missing(i) if start < samples]
        for i, samples in enumerate(map(prepared.samples, prepared.plan.buckets))
    ]
    agreed({"plan": _cut(prepared), "missing": missing})
    return prepared, opened, missing


def _describe(
    request: Request, probed: Probe, model: CostModel, units: Mapping[str, str], path: Path | None
) -> tuple[Prepared, Path, Description]:
    """The plan of a request, the path of its store, where None is for that which `keeping` has for this very sweep, and what it says."""
    stored = None if path is None else read_description(path)
    # The plan of a store of other axes, which is refused when it is opened, does not fit these.
    plan = stored.plan if stored is not None and stored.config.get("over") == _axes(request.over) else None
    prepared = _prepare(request, probed, model, plan)
    config, kept = _config(prepared), prepared.sampling
    if path is None:
        path = keeping.place(json.dumps([config, _cut(prepared), request.seeds], sort_keys=True))
    shape = (*prepared.extents, kept.samples)
    # Zeros that take no memory.
    zeros = {n: np.broadcast_to(np.zeros((), v.dtype), (*shape, *v.shape)) for n, v in prepared.variables.items()}
    form = dataset.named(zeros, request.over, kept, request.seeds, units)
    places = [[indices.tolist() for indices in prepared.place(bucket)] for bucket in prepared.plan.buckets]
    return prepared, path, Description.of(form, kept.dim, config=config, plan=_cut(prepared), places=places)


def _prepare(request: Request, probed: Probe, model: CostModel, stored: Mapping[str, Any] | None) -> Prepared:
    """The plan of a request: the stored one, whose bits another would not reproduce, or a new one."""
    over, seeds = request.over, request.seeds
    kept: Sampling = EverySeed(cutting.most(seeds))
    if request.reduce == "moments":
        kept = sampling.batches(cutting.most(seeds), None if stored is None else stored["batch_size"])
    if stored is not None:
        return Prepared(request, probed.shapes, model, Plan.from_json(stored), tuple(stored["blocks"]), kept)
    groups = cutting.group(
        over, request.plan, seeds, model, checked=request.check_padding, side_by_side=request.side_by_side
    )
    prepared = Prepared(request, probed.shapes, model, Plan(groups, (), ()), (), kept)
    buckets = prepared.plan.buckets
    cut = [_seeds_per_call(prepared, bucket) for bucket in buckets]
    prepared = replace(prepared, plan=Plan(groups, tuple(n for n, _ in cut), tuple(n for _, n in cut)))
    # Whole calls, so that only the last one of a bucket discards seeds.
    calls = [
        max(round(BLOCK_SECONDS / max(prepared.seconds(bucket) * n, _LEAST_SECONDS)), 1)
        for bucket, (n, _) in zip(buckets, cut, strict=True)
    ]
    totals = [ceil(cutting.seeds_of(bucket, seeds) / n) for (n, _), bucket in zip(cut, buckets, strict=True)]
    # As many blocks as that makes, of nearly equal size.
    blocks = tuple(
        kept.block(n * ceil(total / ceil(total / count)))
        for (n, _), count, total in zip(cut, calls, totals, strict=True)
    )
    return replace(prepared, blocks=blocks)


def _seeds_per_call(prepared: Prepared, bucket: Bucket) -> tuple[int, int]:
    """The chunk of a bucket, and how many of its seeds a device computes at a time."""
    request, model, kept = prepared.request, prepared.model, prepared.sampling
    budget = request.budget // request.calls
    group = cutting.vmapped(bucket, request.over, model, request.platform, budget)
    run = kept.longest(prepared.samples(bucket))
    if request.chunk is not None:
        return ceil(min(request.chunk, run) / request.devices) * request.devices, group
    points = prod(map(len, prepared.place(bucket)))
    result = sum(points * prod(v.shape) * np.dtype(v.dtype).itemsize for v in prepared.shapes.values())
    most = budget // max(2 * result, 1)
    chunk = cutting.chunk(run, group, prepared.seconds(bucket), most, request.side_by_side, request.devices)
    return chunk, group


def _cut(prepared: Prepared) -> dict[str, Any]:
    """The plan as a store keeps it."""
    return {**prepared.plan.to_json(), "blocks": [*prepared.blocks], "batch_size": prepared.sampling.size}


def _config(prepared: Prepared) -> dict[str, Any]:
    """What decides the numbers of a sweep. More seeds add numbers and change none."""
    request, kept = prepared.request, prepared.sampling
    return {
        "over": _axes(request.over),
        "key": jax.random.key_data(request.key).tolist(),
        "key_impl": str(jax.random.key_impl(request.key)),
        "reduce": request.reduce,
        "batches": kept.batches,
        "couple": request.couple,
        "dtype": str(jnp.result_type(float)),
        "platform": request.platform,
        "measure": fingerprint(
            request.measure, request.over, prepared.plan.buckets, request.key, couple=request.couple
        ),
        **{f"{package}_version": version(package) for package in ("specjax", "jax", "jaxlib")},
    }


def _axes(over: Over) -> dict[str, Any]:
    """The axes of a sweep, as JSON gives them back."""
    return {
        dim: {
            name: {"kind": type(member).__name__.lower(), "points": [*member.points]}
            for name, member in members(dim, axis).items()
        }
        for dim, axis in over.items()
    }


def _require_room(prepared: Prepared) -> None:
    """Raises ValueError if the result does not fit into the memory of the host."""
    needed = dataset.result_bytes(prepared.variables, prepared.request.over, prepared.sampling.samples)
    if needed > bytes_of.host_memory():
        raise ValueError(
            f"The result takes {bytes_of.described(needed)}, more than this host's {bytes_of.described(bytes_of.host_memory())}; "
            "use reduce='moments', fewer seeds, or smaller outputs."
        )


def _attributes(prepared: Prepared, opened: Store | None, table: list[dict[str, Any]]) -> dict[str, str | int | float]:
    request, groups = prepared.request, prepared.plan.groups
    return {
        **{f"{package}_version": version(package) for package in ("specjax", "jax", "jaxlib", "numpy")},
        "platform": request.platform,
        "device_kind": jax.local_devices()[0].device_kind,
        "devices": request.devices,
        "processes": jax.process_count(),
        "key": json.dumps(jax.random.key_data(request.key).tolist()),
        "key_impl": str(jax.random.key_impl(request.key)),
        "seeds": cutting.most(request.seeds),
        "reduce": request.reduce or "none",
        "couple": int(request.couple),
        "plan": request.plan,
        "buckets": json.dumps({dim: [dataset.labels(request.over, dim, g) for g in groups[dim]] for dim in groups}),
        "padding": cutting.padding(groups, request.over, request.seeds, prepared.model.flops.exponents),
        "memory": request.budget,
        "dtype": str(jnp.result_type(float)),
        "compile_seconds": sum(row["compile_seconds"] for row in table),
        "run_seconds": sum(row["run_seconds"] for row in table) if opened is None else opened.seconds,
        dataset.BUCKET_TABLE: json.dumps(table),
    }
