"""A sweep as it was asked for, planned, and run bucket by bucket."""

from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any

import jax
import numpy as np

from specjax.sweep import memory, padding_check
from specjax.sweep.bucketing import Bucket, Plan
from specjax.sweep.compilation_cache import persistent
from specjax.sweep.cost_model import CostModel
from specjax.sweep.devices import Machine, is_first, shared
from specjax.sweep.dispatch import Calls, Ready, calls
from specjax.sweep.grid import Grid
from specjax.sweep.measurement import Measurement, Shapes, bytes_of, compile_program
from specjax.sweep.progress import Progress
from specjax.sweep.reduction import Sampling
from specjax.sweep.store import Block, Store

Ranges = Sequence[tuple[int, int]]
"""Ranges (start, stop) of samples."""

# A block bounds the work lost on interruption, beside the calls under way; at this length, storing
# and logging it cost little beside computing it.
BLOCK_SECONDS = 2.0
# A chunk is cut to this share of the memory, since XLA's analysis leaves some out.
_MARGIN = 0.9


@dataclass(frozen=True)
class Request:
    """What was asked for, and what tracing told of it: the `shapes` of the outputs, and what they
    cost.
    """

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
        return self.model.seconds.cost(bucket) * bucket.points


@dataclass(frozen=True)
class Planned:
    """A request with its plan, and with what is kept of its seeds."""

    request: Request
    plan: Plan
    sampling: Sampling

    @property
    def variables(self) -> Shapes:
        """Shape and dtype of each variable of the dataset, without dimensions of the grid and
        samples.
        """
        return self.sampling.variables(self.request.shapes)

    def everything(self) -> list[Ranges]:
        """All samples of each bucket."""
        return [[(0, self.sampling.count(bucket.grid.seeds))] for bucket in self.plan.buckets]

    def run_seeds(self, ranges: Ranges) -> int:
        """The seeds in ranges of samples."""
        return sum(
            last - first for first, last in (self.sampling.seeds(*samples) for samples in ranges)
        )


def execute(
    planned: Planned, opened: Store | None, missing: Sequence[Ranges], progress: bool | None
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Runs the `missing` samples of each bucket, and returns all variables and, for each bucket, a
    row on how it went.
    """
    request, buckets = planned.request, planned.plan.buckets
    ahead = [*map(planned.run_seeds, missing)]
    total, left = sum(map(planned.run_seeds, planned.everything())), sum(ahead)
    nothing_yet = {"bytes": 0, "compile_seconds": 0.0, "run_seconds": 0.0}
    table: list[dict[str, Any]] = [
        {
            "label": b.grid.label,
            "points": b.grid.points,
            "seeds": b.grid.seeds,
            "chunk": b.chunk,
            **nothing_yet,
        }
        for b in buckets
    ]
    if opened is not None:
        outputs = opened.read()
    else:
        shape = (*request.grid.shape, planned.sampling.samples)
        outputs = {
            name: np.zeros((*shape, *v.shape), v.dtype) for name, v in planned.variables.items()
        }
    if left < total:
        outputs = shared(outputs)  # what is stored already
    estimated = sum(
        request.seconds(bucket.grid) * seeds for bucket, seeds in zip(buckets, ahead, strict=True)
    )
    visible = progress if is_first() else False
    with closing(Progress(total, total - left, estimated, len(buckets), visible)) as shown:
        try:
            _Run(planned, opened, outputs, table, shown).every(missing)
        except KeyboardInterrupt:
            if opened is None:
                raise
            raise KeyboardInterrupt(
                f"Interrupted; the {len(opened.blocks)} finished blocks are kept, and the same call"
                f" with store={str(opened.path)!r} continues from them."
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
        """Runs what is missing of each bucket, while the programs of later ones compile."""
        planned, table, shown = self.planned, self.table, self.shown
        checked = _most_padded(planned, missing)
        # The bucket that is checked comes first, before any other is computed and kept.
        order = sorted(
            (i for i, ranges in enumerate(missing) if ranges), key=lambda i: i != checked
        )
        buckets, start = [planned.plan.buckets[i] for i in order], perf_counter()
        for i in order[:1]:
            shown.bucket(i, table[i]["label"])
        with closing(_programs(planned, buckets, checked is not None)) as programs:
            for i, (ready, check) in zip(order, programs, strict=True):
                seconds = perf_counter() - start
                table[i] |= {"chunk": ready.chunk, "bytes": ready.bytes, "compile_seconds": seconds}
                shown.bucket(i, table[i]["label"])
                shown.compiled(seconds)
                self.bucket(i, ready, missing[i], check)
                start = perf_counter()

    def bucket(
        self, index: int, ready: Ready, missing: Ranges, check: jax.stages.Compiled | None
    ) -> None:
        """Runs what is missing of a bucket, block by block, the first call compared with that of
        the program `check`.
        """
        kept, row, axes = self.planned.sampling, self.table[index], len(ready.grid.shape)
        ranges = [kept.seeds(*samples) for samples in missing]
        found = calls(ready, ranges)
        if check is not None:
            found = padding_check.checked(found, ready.measurement, ready.grid, ranges[0][0], check)
        start = perf_counter()
        for first, last, arrays in kept.blocks(
            self._shown(found, ready), axes, BLOCK_SECONDS, ready.chunk
        ):
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


def _programs(
    planned: Planned, buckets: Sequence[Bucket], checked: bool
) -> Generator[tuple[Ready, jax.stages.Compiled | None]]:
    """The program of each bucket, as soon as it is compiled; with the first, if it is `checked`,
    that which checks its padding.

    They are lowered one after the other, by this thread's settings, and compiled side by side.
    """
    machine, left = planned.request.machine, iter(buckets)
    with persistent(machine.platform):
        compilers = ThreadPoolExecutor(machine.side_by_side)
        compiling, check = deque[Future[jax.stages.Compiled]](), None
        try:
            for bucket in buckets:
                # Twice the cores, so that none is idle while the longest compiles; not all, so that
                # the first results come soon.
                for later in islice(left, 2 * machine.side_by_side - len(compiling)):
                    lowered = _lowered(planned, later)
                    compiling.append(compilers.submit(compile_program, lowered))
                    if checked:
                        unpadded = padding_check.unpadded(planned.request.measurement, later.grid)
                        check, checked = (
                            compilers.submit(compile_program, unpadded, is_kept=False),
                            False,
                        )
                compiled = compiling.popleft().result()
                yield _fitted(planned, bucket, compiled), None if check is None else check.result()
                check = None
        finally:
            compilers.shutdown(cancel_futures=True)


def _lowered(planned: Planned, bucket: Bucket) -> jax.stages.Lowered:
    measurement, mesh = planned.request.measurement, planned.request.machine.mesh
    return measurement.traced(bucket.grid, bucket.chunk, mesh=mesh, vmapped=bucket.vmapped).lower()


def _fitted(planned: Planned, bucket: Bucket, compiled: jax.stages.Compiled) -> Ready:
    """The program, compiled anew for fewer seeds at a time or in a call until XLA's memory analysis
    finds that it fits.

    Raises:
        ValueError: one seed does not fit.
    """
    request, machine = planned.request, planned.request.machine
    budget, under_way, devices = machine.budget, machine.calls, machine.devices
    while True:
        (each, scratch), chunk, vmapped = bytes_of(compiled), bucket.chunk, bucket.vmapped
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
                f"The bucket {bucket.grid.label or 'of all points'} needs {memory.described(each)}"
                f" for one seed on each device, more than the {memory.described(budget)} of memory;"
                " raise memory, take plan='exact', or sweep fewer values at a time."
            )
        bucket = replace(bucket, chunk=groups * vmapped * devices, vmapped=vmapped)
        compiled = compile_program(_lowered(planned, bucket))
    return Ready(
        request.measurement, bucket.grid, machine, compiled, each, chunk, vmapped, under_way
    )


def _most_padded(planned: Planned, missing: Sequence[Ranges]) -> int | None:
    """Which of the buckets that have something missing pads its narrowest point most; None if none
    pads, or that is not to be checked.
    """
    if not planned.request.check_padding:
        return None
    ratios = {i: bucket.grid.padding for i, bucket in enumerate(planned.plan.buckets) if missing[i]}
    return max(
        (i for i, ratio in ratios.items() if ratio > 1), key=ratios.__getitem__, default=None
    )
