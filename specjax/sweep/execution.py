"""A sweep as it was asked for, planned, and run bucket by bucket.

A call takes as long as is measured: the first has one group of seeds on each device, and each further one as many as by the last that
ended last for a moment. Groups begin at multiples of their size, whatever is missing and however long calls are, so a seed is always
computed beside the same others, and has the same bits.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.sweep import memory, padding_check
from specjax.sweep.compilation_cache import persistent
from specjax.sweep.cost import CostModel
from specjax.sweep.devices import Machine, agreed, is_first, on_devices, on_host, shared
from specjax.sweep.grid import Grid
from specjax.sweep.plan import Bucket, Plan
from specjax.sweep.program import Measurement, Shapes, bytes_of, compile_program, seed_ids
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
# A call is long beside what starting it costs, and short beside what an interruption may cost.
CALL_SECONDS = 0.25
# The first groups may be quick and others not, where a loop is as long as its data say.
_GROWTH = 4
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


@dataclass(frozen=True)
class Ready:
    """The compiled program of a bucket, the bytes and the most seeds of a call, how many of these a device computes at a time, and how
    many calls may be under way.
    """

    compiled: jax.stages.Compiled
    bytes: int
    chunk: int
    vmapped: int
    calls: int


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
            (i, first, stop), *todo = todo
            calls = ((*seeds, found) for _, *seeds, found in _calls(planned, ready, parts, [(i, first, stop)]))
            outputs = padding_check.checked(calls, planned.request.measurement, parts[i], first)
            # What is compiled for the check, and runs for one seed.
            row["compile_seconds"] += perf_counter() - start
            start = self.blocks(row, number + i, parts[i], ready, outputs, perf_counter())
        for asked, some in groupby(_calls(planned, ready, parts, todo), lambda call: todo[call[0]]):
            i, _, _ = asked
            calls = ((*seeds, found) for _, *seeds, found in some)
            start = self.blocks(row, number + i, parts[i], ready, calls, start)

    def blocks(
        self, row: dict[str, Any], number: int, part: Grid, ready: Ready, outputs: Outputs, start: float
    ) -> float:
        """Keeps what calls, begun at `start`, give for the part of this number among those of all buckets; returns when it ended."""
        kept, axes, estimated = self.planned.sampling, len(part.shape), self.planned.request.seconds(part)

        def told() -> Outputs:
            for first, last, found in outputs:
                self.shown.seeds(last - first, (last - first) * estimated)
                yield first, last, found

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
    budget, calls, devices, chunk = machine.budget, machine.calls, machine.devices, bucket.chunk
    vmapped = bucket.vmapped
    while True:
        each, scratch = bytes_of(compiled)
        if calls * each <= budget or (request.chunk is not None and request.memory is None):
            return Ready(compiled, each, chunk, vmapped, calls)
        share, groups = _MARGIN * budget / (calls * each), chunk // (vmapped * devices)
        if vmapped > 1 and 2 * scratch > each:
            vmapped = max(int(vmapped * share), 1)
            groups = max(chunk // (vmapped * devices), 1)
        elif request.chunk is None and chunk > devices and calls * scratch < budget:
            vmapped, groups = (vmapped, int(groups * share)) if groups > 1 else (max(int(vmapped * share), 1), 1)
        elif each <= budget:
            return Ready(compiled, each, chunk, vmapped, budget // each)
        else:
            asked = "one seed" if request.chunk is None or chunk == devices else f"a chunk of {chunk} seeds"
            raise ValueError(
                f"The bucket {bucket.grid.label or 'of all points'} needs {memory.described(each)} for {asked} on each "
                f"device, more than the {memory.described(budget)} of memory; "
                "raise memory, take a smaller chunk or plan='exact', or sweep fewer values at a time."
            )
        chunk = max(groups, 1) * vmapped * devices
        compiled = _compiled(planned, bucket, _lowered(planned, bucket, chunk, vmapped))


@dataclass(frozen=True)
class _Call:
    """So many `groups` of a part, from the one that begins with seed `begin` on, of which the seeds `first` to `last - 1` are asked for."""

    place: int
    part: Grid
    begin: int
    groups: int
    first: int
    last: int


def _calls(
    planned: Planned, ready: Ready, parts: Sequence[Grid], todo: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int, dict[str, np.ndarray]]]:
    """The calls for ranges of seeds, each of a part, in order: the place of the range, the first seed, the one behind the last, and the
    outputs on the host.

    Calls under way have a thread each: XLA runs those of one thread one after the other.
    """
    size, in_float64 = ready.vmapped * planned.request.machine.devices, jnp.result_type(float) == jnp.float64
    most, at_a_time = ready.chunk // size, planned.request.machine.side_by_side
    groups = 1 if planned.request.chunk is None else most
    under_way: deque[tuple[_Call, Future[tuple[dict[str, Array], float]]]] = deque()

    def finished() -> tuple[int, int, int, dict[str, np.ndarray]]:
        nonlocal groups
        call, future = under_way.popleft()
        results, seconds = future.result()
        if planned.request.chunk is None:
            groups = agreed(paced(call.groups, seconds, most))
        return call.place, call.first, call.last, _asked(planned, ready, call, results)

    threads = ThreadPoolExecutor(ready.calls)
    try:
        for place, (i, start, stop) in enumerate(todo):
            begin = start // size * size
            while begin < stop:
                # Seeds behind the last one fill its group and are discarded, as are those before the first.
                left = ceil((stop - begin) / size)
                # The last calls get shorter, so that they end together.
                shared = left if planned.request.chunk is not None else max(ceil(left / at_a_time), groups // _GROWTH)
                number = min(groups, left, shared)
                behind = begin + number * size
                call = _Call(place, parts[i], begin, number, max(start, begin), min(stop, behind))
                under_way.append((call, threads.submit(_computed, planned, ready, call, in_float64)))
                begin = behind
                if len(under_way) == ready.calls:
                    yield finished()
        while under_way:
            yield finished()
    finally:
        threads.shutdown(cancel_futures=True)


def paced(groups: int, seconds: float, most: int) -> int:
    """The groups of the next call, at most so many, where the last one had `groups` and took `seconds`."""
    enough = groups * CALL_SECONDS / max(seconds, 1e-9)
    return max(int(min(enough, _GROWTH * groups, most)), 1)


def _computed(planned: Planned, ready: Ready, call: _Call, in_float64: bool) -> tuple[dict[str, Array], float]:
    """The results of a call on the devices, and the seconds that it took."""
    machine, own = planned.request.machine, call.groups * ready.vmapped
    ids = np.zeros((machine.devices, ready.chunk // machine.devices), np.uint32)
    ids[:, :own] = seed_ids(call.begin, call.begin + own * machine.devices).reshape(machine.devices, own)
    # The scope of this thread, which others do not have by themselves.
    with jax.enable_x64(in_float64):
        seeds, start = on_devices(ids.ravel(), machine.mesh), perf_counter()
        key_data, coordinates = planned.request.measurement.key_data, call.part.coordinates
        results = jax.block_until_ready(ready.compiled(key_data, seeds, coordinates, np.int32(call.groups)))
        return results, perf_counter() - start


def _asked(planned: Planned, ready: Ready, call: _Call, results: dict[str, Array]) -> dict[str, np.ndarray]:
    """The results of a call, on the host, for the seeds that it is asked for."""
    axes, devices, own = call.part.shape, planned.request.machine.devices, call.groups * ready.vmapped
    every, asked = (slice(None),) * len(axes), slice(call.first - call.begin, call.last - call.begin)
    found = {}
    for name, output in on_host(results).items():
        array = call.part.whole(output)
        trailing = array.shape[len(axes) + 1 :]
        array = array.reshape(*axes, devices, -1, *trailing)[(*every, slice(None), slice(own))]
        found[name] = array.reshape(*axes, devices * own, *trailing)[(*every, asked)]
    return found


def _most_padded(planned: Planned, missing: Missing) -> int | None:
    """Which of the buckets that have something missing pads its narrowest point most; None if none pads, or that is not to be checked."""
    if not planned.request.check_padding:
        return None
    ratios = {i: bucket.grid.padding for i, bucket in enumerate(planned.plan.buckets) if any(missing[i])}
    most = max(ratios, key=ratios.__getitem__, default=None)
    return most if most is not None and ratios[most] > 1 else None
