"""A sweep as it was asked for, planned, and run bucket by bucket."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from time import perf_counter
from typing import Any

import jax
import numpy as np

from specjax.sweep import memory, padding_check
from specjax.sweep.calls import Ready, calls
from specjax.sweep.compilation_cache import persistent
from specjax.sweep.cost import CostModel
from specjax.sweep.devices import Machine, is_first, shared
from specjax.sweep.grid import Grid
from specjax.sweep.plan import Bucket, Plan
from specjax.sweep.program import Measurement, Shapes, bytes_of, compile_program
from specjax.sweep.progress import Progress
from specjax.sweep.sampling import Outputs, Sampling
from specjax.sweep.store import Block, Store

Ranges = Sequence[tuple[int, int]]
"""Ranges (start, stop) of samples."""

Missing = Sequence[Sequence[Ranges]]
"""The ranges of each part of each bucket that are to be computed."""

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
    memory: str | int | None
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

    def everything(self) -> Missing:
        """All samples of all buckets."""
        return [[[(0, self.sampling.of(part.seeds))] for part in bucket.parts] for bucket in self.plan.buckets]

    def run_seeds(self, ranges: Ranges) -> int:
        """The seeds in ranges of samples."""
        return sum(last - first for first, last in (self.sampling.seeds(*samples) for samples in ranges))


def execute(
    planned: Planned, opened: Store | None, missing: Missing, progress: bool | None
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Runs the `missing` samples of each part of each bucket, and returns all variables and, for each bucket, a row on how it went."""
    request, buckets = planned.request, planned.plan.buckets
    seeds = [[planned.run_seeds(ranges) for ranges in parts] for parts in planned.everything()]
    ahead = [[planned.run_seeds(ranges) for ranges in parts] for parts in missing]
    each = [request.seconds(bucket.parts[0]) for bucket in buckets]
    table: list[dict[str, Any]] = [
        {
            "label": bucket.grid.label,
            "points": bucket.grid.points,
            "parts": len(bucket.parts),
            "seeds": bucket.grid.seeds,
            "chunk": bucket.chunk,
            "bytes": 0,
            "compile_seconds": 0.0,
            "run_seconds": 0.0,
        }
        for bucket in buckets
    ]
    total, left = (sum(map(sum, of)) for of in (seeds, ahead))
    if opened is not None:
        outputs = opened.read()
    else:
        shape = (*request.grid.shape, planned.sampling.samples)
        outputs = {name: np.zeros((*shape, *v.shape), v.dtype) for name, v in planned.variables.items()}
    if left < total:
        outputs = shared(outputs)  # what is stored already
    estimated = float(np.dot(each, [sum(parts) for parts in ahead]))
    visible = progress if is_first() else False
    with Progress(total, total - left, estimated, len(buckets), visible) as shown:
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

    def every(self, missing: Missing) -> None:
        """Compiles as many buckets at a time as there are cores, and runs what is missing of them."""
        planned, table, shown = self.planned, self.table, self.shown
        checked = _most_padded(planned, missing)
        # The bucket that is checked comes first, before any other is computed and kept.
        order = sorted((i for i, parts in enumerate(missing) if any(parts)), key=lambda i: i != checked)
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

    def bucket(self, index: int, ready: Ready, missing: Sequence[Ranges], *, check: bool) -> None:
        """Runs what is missing of a bucket, block by block."""
        planned, buckets, row = self.planned, self.planned.plan.buckets, self.table[index]
        parts, number = buckets[index].parts, sum(len(bucket.parts) for bucket in buckets[:index])
        todo = [(i, *planned.sampling.seeds(*samples)) for i, ranges in enumerate(missing) for samples in ranges]
        start = perf_counter()
        if check:
            # The part that is checked comes first, and alone: calls for its seeds are made until they suffice for the check.
            todo.sort(key=lambda asked: -parts[asked[0]].padding)
            (i, begin, stop), *todo = todo
            alone = ((a, b, found, took) for _, a, b, found, took in calls(ready, parts, [(i, begin, stop)]))
            checked = padding_check.checked(alone, planned.request.measurement, parts[i], begin)
            # What is compiled for the check, and runs for one seed.
            row["compile_seconds"] += perf_counter() - start
            start = self.blocks(row, number + i, parts[i], ready, checked, perf_counter())
        for place, some in groupby(calls(ready, parts, todo), lambda call: call[0]):
            i = todo[place][0]
            outputs = ((first, last, found, took) for _, first, last, found, took in some)
            start = self.blocks(row, number + i, parts[i], ready, outputs, start)

    def blocks(
        self, row: dict[str, Any], number: int, part: Grid, ready: Ready, outputs: Outputs, start: float
    ) -> float:
        """Keeps what calls, begun at `start`, give for the part of this number among those of all buckets; returns when it ended."""
        kept, axes, estimated = self.planned.sampling, len(part.shape), self.planned.request.seconds(part)

        def told() -> Outputs:
            for first, last, found, seconds in outputs:
                self.shown.seeds(last - first, (last - first) * estimated)
                yield first, last, found, seconds

        for first, last, arrays in kept.blocks(told(), axes, BLOCK_SECONDS, ready.chunk):
            seconds, start = perf_counter() - start, perf_counter()
            row["run_seconds"] += seconds
            for name, array in arrays.items():
                target = self.outputs[name][(slice(None),) * axes + (slice(first, last),)]
                target[np.ix_(*part.places)] = array
            if self.opened is not None:
                self.opened.write(Block(number, first, last), arrays, seconds)
            self.shown.block(*kept.seeds(first, last), seconds)
        return start


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
    return request.measurement.traced(bucket.parts[0], chunk, mesh=request.machine.mesh, vmapped=vmapped).lower()


def _compiled(planned: Planned, bucket: Bucket, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    request = planned.request
    seconds, compiling = request.seconds(bucket.grid) * bucket.grid.seeds, request.model.compile_seconds
    return compile_program(lowered, seconds=seconds, compiling=compiling)


def _fitted(planned: Planned, bucket: Bucket, compiled: jax.stages.Compiled) -> Ready:
    """The program, compiled anew for fewer seeds at a time or in a call until XLA's memory analysis finds that it fits.

    Raises:
        ValueError: one seed does not fit, or the chunk that was asked for does not.
    """
    request, machine = planned.request, planned.request.machine
    budget, under_way, devices = machine.budget, machine.calls, machine.devices
    chunk, vmapped, paced = bucket.chunk, bucket.vmapped, request.chunk is None
    while True:
        each, scratch = bytes_of(compiled)
        if under_way * each <= budget or not (paced or request.memory):
            return Ready(request.measurement, machine, compiled, each, chunk, vmapped, under_way, paced)
        share, groups = _MARGIN * budget / (under_way * each), chunk // (vmapped * devices)
        if vmapped > 1 and 2 * scratch > each:
            vmapped = max(int(vmapped * share), 1)
            groups = max(chunk // (vmapped * devices), 1)
        elif paced and chunk > devices and under_way * scratch < budget:
            vmapped, groups = (vmapped, int(groups * share)) if groups > 1 else (max(int(vmapped * share), 1), 1)
        elif each <= budget:
            return Ready(request.measurement, machine, compiled, each, chunk, vmapped, budget // each, paced)
        else:
            asked = "one seed" if paced or chunk == devices else f"a chunk of {chunk} seeds"
            raise ValueError(
                f"The bucket {bucket.grid.label or 'of all points'} needs {memory.described(each)} for {asked} on each "
                f"device, more than the {memory.described(budget)} of memory; "
                "raise memory, take a smaller chunk or plan='exact', or sweep fewer values at a time."
            )
        chunk = max(groups, 1) * vmapped * devices
        compiled = _compiled(planned, bucket, _lowered(planned, bucket, chunk, vmapped))


def _most_padded(planned: Planned, missing: Missing) -> int | None:
    """Which of the buckets that have something missing pads its narrowest point most; None if none pads, or that is not to be checked."""
    if not planned.request.check_padding:
        return None
    ratios = {i: bucket.grid.padding for i, bucket in enumerate(planned.plan.buckets) if any(missing[i])}
    most = max(ratios, key=ratios.__getitem__, default=None)
    return most if most is not None and ratios[most] > 1 else None
