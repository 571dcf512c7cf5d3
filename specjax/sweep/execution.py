"""A sweep as it was asked for, planned, and run bucket by bucket."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import numpy as np

from specjax.sweep import memory, padding_check
from specjax.sweep.calls import Calls, Ready, calls
from specjax.sweep.compilation_cache import persistent
from specjax.sweep.cost import CostModel
from specjax.sweep.devices import Machine, is_first, shared
from specjax.sweep.grid import Grid
from specjax.sweep.plan import Bucket, Plan
from specjax.sweep.program import Measurement, Shapes, bytes_of, compile_program
from specjax.sweep.progress import Progress
from specjax.sweep.sampling import Sampling
from specjax.sweep.store import Block, Store

Ranges = Sequence[tuple[int, int]]
"""Ranges (start, stop) of samples."""

# A block is what an interruption can cost at most, beside the calls under way, and its storing and logging is to cost nothing beside its
# computing.
BLOCK_SECONDS = 2.0
# What XLA's analysis leaves out, when a chunk is cut down to fit.
_MARGIN = 0.9


@dataclass(frozen=True)
class Request:
    """What was asked for, and what tracing told of it: the `shapes` of the outputs, and what they cost."""

    measurement: Measurement
    grid: Grid
    machine: Machine
    shapes: Shapes
    model: CostModel
    plan: str
    chunk: int | None
    reduce: str | None
    check_padding: bool

    def seconds(self, bucket: Grid) -> float:
        """The estimated seconds to run one seed at all points of a bucket."""
        return self.model.seconds.of(bucket) * bucket.points


@dataclass(frozen=True)
class Planned:
    """A request with its plan, and with what is kept of its seeds."""

    request: Request
    plan: Plan
    sampling: Sampling

    @property
    def variables(self) -> Shapes:
        """Shape and dtype of each variable of the dataset, without dimensions of the grid and samples."""
        return self.sampling.variables(self.request.shapes)

    def everything(self) -> list[Ranges]:
        """All samples of each bucket."""
        return [[(0, self.sampling.of(bucket.grid.seeds))] for bucket in self.plan.buckets]

    def run_seeds(self, ranges: Ranges) -> int:
        """The seeds in ranges of samples."""
        return sum(last - first for first, last in (self.sampling.seeds(*samples) for samples in ranges))


def execute(
    planned: Planned, opened: Store | None, missing: Sequence[Ranges], progress: bool | None
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Runs the `missing` samples of each bucket, and returns all variables and, for each bucket, a row on how it went."""
    request, buckets = planned.request, planned.plan.buckets
    ahead = [*map(planned.run_seeds, missing)]
    total, left = sum(map(planned.run_seeds, planned.everything())), sum(ahead)
    table: list[dict[str, Any]] = [
        {
            "label": bucket.grid.label,
            "points": bucket.grid.points,
            "seeds": bucket.grid.seeds,
            "chunk": bucket.chunk,
            "bytes": 0,
            "compile_seconds": 0.0,
            "run_seconds": 0.0,
        }
        for bucket in buckets
    ]
    if opened is not None:
        outputs = opened.read()
    else:
        shape = (*request.grid.shape, planned.sampling.samples)
        outputs = {name: np.zeros((*shape, *v.shape), v.dtype) for name, v in planned.variables.items()}
    if left < total:
        outputs = shared(outputs)  # what is stored already
    estimated = sum(request.seconds(bucket.grid) * seeds for bucket, seeds in zip(buckets, ahead, strict=True))
    visible = progress if is_first() else False
    with closing(Progress(total, total - left, estimated, len(buckets), visible)) as shown:
        try:
            _Run(planned, opened, outputs, table, shown).every(missing)
        except KeyboardInterrupt:
            if opened is None:
                raise
            raise KeyboardInterrupt(
                f"Interrupted; the {len(opened.blocks)} finished blocks are kept, and the same call with "
                f"store={str(opened.path)!r} continues from them."
            ) from None
    return outputs, table


@dataclass(frozen=True)
class _Run:
    planned: Planned
    opened: Store | None
    outputs: dict[str, np.ndarray]
    table: list[dict[str, Any]]
    shown: Progress

    def every(self, missing: Sequence[Ranges]) -> None:
        """Compiles as many buckets at a time as there are cores, and runs what is missing of them."""
        planned, table, shown = self.planned, self.table, self.shown
        checked = _most_padded(planned, missing)
        # The bucket that is checked comes first, before any other is computed and kept.
        order = sorted((i for i, ranges in enumerate(missing) if ranges), key=lambda i: i != checked)
        # Twice the cores, so that none is idle while the longest compiles; not all, so that the first results come soon.
        at_a_time = 2 * planned.request.machine.side_by_side
        for some in (order[i : i + at_a_time] for i in range(0, len(order), at_a_time)):
            shown.bucket(some[0], table[some[0]]["label"])
            start = perf_counter()
            programs = _compile(planned, [planned.plan.buckets[i] for i in some])
            seconds = (perf_counter() - start) / len(some)
            for i, ready in zip(some, programs, strict=True):
                table[i] |= {"chunk": ready.chunk, "bytes": ready.bytes, "compile_seconds": seconds}
                shown.bucket(i, table[i]["label"])
                shown.compiled(seconds)
                self.bucket(i, ready, missing[i], check=i == checked)

    def bucket(self, index: int, ready: Ready, missing: Ranges, *, check: bool) -> None:
        """Runs what is missing of a bucket, block by block."""
        kept, row, axes = self.planned.sampling, self.table[index], len(ready.grid.shape)
        ranges = [kept.seeds(*samples) for samples in missing]
        found, start = calls(ready, ranges), perf_counter()
        if check:
            found = padding_check.checked(found, ready.measurement, ready.grid, ranges[0][0])
            # What is compiled for the check, and runs for one seed.
            row["compile_seconds"] += perf_counter() - start
            start = perf_counter()
        for first, last, arrays in kept.blocks(self._shown(found, ready), axes, BLOCK_SECONDS, ready.chunk):
            seconds, start = perf_counter() - start, perf_counter()
            row["run_seconds"] += seconds
            for name, array in arrays.items():
                target = self.outputs[name][(slice(None),) * axes + (slice(first, last),)]
                target[np.ix_(*ready.grid.places)] = array
            if self.opened is not None:
                self.opened.write(Block(index, first, last), arrays, seconds)
            self.shown.block(*kept.seeds(first, last), seconds)

    def _shown(self, found: Calls, ready: Ready) -> Calls:
        """The same calls, counted by the progress bar."""
        estimated = self.planned.request.seconds(ready.grid)
        for first, last, outputs, seconds in found:
            self.shown.seeds(last - first, (last - first) * estimated)
            yield first, last, outputs, seconds


def _compile(planned: Planned, buckets: Sequence[Bucket]) -> list[Ready]:
    """The programs of some buckets: lowered one after the other, by this thread's settings, and compiled side by side."""
    machine = planned.request.machine
    with persistent(machine.platform), ThreadPoolExecutor(machine.side_by_side) as compilers:
        compiling = [
            compilers.submit(_compiled, planned, bucket, _lowered(planned, bucket, bucket.chunk, bucket.vmapped))
            for bucket in buckets
        ]
        return [_fitted(planned, bucket, future.result()) for bucket, future in zip(buckets, compiling, strict=True)]


def _lowered(planned: Planned, bucket: Bucket, chunk: int, vmapped: int) -> jax.stages.Lowered:
    request = planned.request
    return request.measurement.traced(bucket.grid, chunk, mesh=request.machine.mesh, vmapped=vmapped).lower()


def _compiled(planned: Planned, bucket: Bucket, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    request = planned.request
    seconds, compiling = request.seconds(bucket.grid) * bucket.grid.seeds, request.model.compile_seconds
    return compile_program(lowered, seconds=seconds, compiling=compiling)


def _fitted(planned: Planned, bucket: Bucket, compiled: jax.stages.Compiled) -> Ready:
    """The program, compiled anew for fewer seeds at a time or in a call until XLA's memory analysis finds that it fits.

    Raises:
        ValueError: one seed does not fit.
    """
    request, machine = planned.request, planned.request.machine
    budget, under_way, devices = machine.budget, machine.calls, machine.devices
    chunk, vmapped = bucket.chunk, bucket.vmapped
    while True:
        each, scratch = bytes_of(compiled)
        if under_way * each <= budget:
            break
        share, groups = _MARGIN * budget / (under_way * each), chunk // (vmapped * devices)
        if groups > 1 and under_way * scratch < budget and (vmapped == 1 or 2 * scratch <= each):
            groups = max(int(groups * share), 1)
        elif vmapped > 1:
            vmapped = max(int(vmapped * share), 1)
        elif each <= budget:
            under_way = budget // each
            break
        else:
            raise ValueError(
                f"The bucket {bucket.grid.label or 'of all points'} needs {memory.described(each)} for one seed on each device, "
                f"more than the {memory.described(budget)} of memory; raise memory, take plan='exact', or sweep fewer values at a time."
            )
        chunk = groups * vmapped * devices
        compiled = _compiled(planned, bucket, _lowered(planned, bucket, chunk, vmapped))
    return Ready(request.measurement, bucket.grid, machine, compiled, each, chunk, vmapped, under_way)


def _most_padded(planned: Planned, missing: Sequence[Ranges]) -> int | None:
    """Which of the buckets that have something missing pads its narrowest point most; None if none pads, or that is not to be checked."""
    if not planned.request.check_padding:
        return None
    ratios = {i: bucket.grid.padding for i, bucket in enumerate(planned.plan.buckets) if missing[i]}
    most = max(ratios, key=ratios.__getitem__, default=None)
    return most if most is not None and ratios[most] > 1 else None
