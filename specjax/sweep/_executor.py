"""Run a planned sweep bucket by bucket."""

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

from specjax.compilation_cache import persistent
from specjax.sweep import _padding_check, memory
from specjax.sweep._bucketing import Bucket, Plan
from specjax.sweep._devices import is_first, shared
from specjax.sweep._dispatch import Calls, CompiledBucket, calls
from specjax.sweep._measurement import bytes_of, compile_program
from specjax.sweep._progress import Progress
from specjax.sweep._spec import Spec
from specjax.sweep._store import Block, Store

Ranges = Sequence[tuple[int, int]]
"""Ranges (start, stop) of samples."""

# A block bounds the work lost on interruption, beside the calls under way; at this length, storing
# and logging it cost little beside computing it.
BLOCK_SECONDS = 2.0
# A chunk is cut to this share of the memory, since XLA's analysis leaves some out.
_MARGIN = 0.9


def execute(
    plan: Plan, opened: Store | None, missing: Sequence[Ranges], progress: bool | None
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Run the `missing` samples of each bucket.

    Returns all variables and, for each bucket, a row on how it ran.
    """
    spec, sampling, buckets = plan.spec, plan.sampling, plan.buckets
    table: list[dict[str, Any]] = [
        {
            "label": b.grid.label,
            "points": b.grid.points,
            "seeds": b.grid.seeds,
            "chunk": b.chunk,
            "bytes": 0,
            "compile_seconds": 0.0,
            "run_seconds": 0.0,
        }
        for b in buckets
    ]
    if opened is not None:
        outputs = opened.read()
    else:
        shape = (*spec.grid.shape, sampling.samples)
        outputs = {
            name: np.zeros((*shape, *v.shape), v.dtype) for name, v in plan.variables.items()
        }
    ahead = [
        sum(stop - start for start, stop in (sampling.seeds(*samples) for samples in ranges))
        for ranges in missing
    ]
    total, left = sum(bucket.grid.seeds for bucket in buckets), sum(ahead)
    if left < total:
        outputs = shared(outputs)  # the first process has read its store
    estimated = sum(spec.seconds(b.grid) * seeds for b, seeds in zip(buckets, ahead, strict=True))
    visible = progress if is_first() else False
    with closing(Progress(total, total - left, estimated, len(buckets), visible)) as shown:
        try:
            _Run(plan, opened, outputs, table, shown).run_missing(missing)
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
    plan: Plan
    opened: Store | None
    outputs: dict[str, np.ndarray]
    table: list[dict[str, Any]]
    shown: Progress

    def run_missing(self, missing: Sequence[Ranges]) -> None:
        """Run the missing samples of each bucket, while the programs of later ones compile."""
        plan, table, shown = self.plan, self.table, self.shown
        checked = _most_padded(plan, missing)
        # The bucket that is checked comes first, before any other is computed and kept.
        order = sorted(
            (i for i, ranges in enumerate(missing) if ranges), key=lambda i: i != checked
        )
        buckets, start = [plan.buckets[i] for i in order], perf_counter()
        for i in order[:1]:
            shown.bucket(i, table[i]["label"])
        with closing(_compile(plan.spec, buckets, checked is not None)) as programs:
            for i, (ready, check) in zip(order, programs, strict=True):
                seconds = perf_counter() - start
                table[i] |= {"chunk": ready.chunk, "bytes": ready.bytes, "compile_seconds": seconds}
                shown.bucket(i, table[i]["label"])
                shown.compiled(seconds)
                self._run_bucket(i, ready, missing[i], check)
                start = perf_counter()

    def _run_bucket(
        self, index: int, ready: CompiledBucket, missing: Ranges, check: jax.stages.Compiled | None
    ) -> None:
        """Run the missing samples of a bucket, and compare the first call with `check`."""
        sampling, row, axes = self.plan.sampling, self.table[index], len(ready.grid.shape)
        ranges = [sampling.seeds(*samples) for samples in missing]
        made = calls(ready, ranges)
        if check is not None:
            made = _padding_check.checked(made, ready.measurement, ready.grid, ranges[0][0], check)
        start = perf_counter()
        counted = self._count_seeds(made, ready)
        for first, last, arrays in sampling.blocks(counted, axes, BLOCK_SECONDS, ready.chunk):
            seconds, start = perf_counter() - start, perf_counter()
            row["run_seconds"] += seconds
            for name, array in arrays.items():
                target = self.outputs[name][(slice(None),) * axes + (slice(first, last),)]
                target[np.ix_(*ready.grid.places)] = array
            if self.opened is not None:
                self.opened.write(Block(index, first, last), arrays, seconds)
            self.shown.block(*sampling.seeds(first, last), seconds)

    def _count_seeds(self, made: Calls, ready: CompiledBucket) -> Calls:
        """The same calls, counted by the progress bar."""
        estimated = self.plan.spec.seconds(ready.grid)
        for first, last, outputs, seconds in made:
            self.shown.seeds(last - first, (last - first) * estimated)
            yield first, last, outputs, seconds


def _compile(
    spec: Spec, buckets: Sequence[Bucket], checked: bool
) -> Generator[tuple[CompiledBucket, jax.stages.Compiled | None]]:
    """Each bucket as soon as it is compiled; with the first, if `checked`, its unpadded program.

    They are lowered one after the other, under the settings of this thread, and compiled side by
    side.
    """
    machine, left = spec.machine, iter(buckets)
    with persistent(machine.platform):
        compilers = ThreadPoolExecutor(machine.side_by_side)
        compiling, check = deque[Future[jax.stages.Compiled]](), None
        try:
            for bucket in buckets:
                # Twice the cores, so that none is idle while the longest compiles; not all, so that
                # the first results come soon.
                for later in islice(left, 2 * machine.side_by_side - len(compiling)):
                    lowered = _lower(spec, later)
                    compiling.append(compilers.submit(compile_program, lowered))
                    if checked:
                        unpadded = _padding_check.unpadded(spec.measurement, later.grid)
                        check = compilers.submit(compile_program, unpadded, is_kept=False)
                        checked = False
                compiled = compiling.popleft().result()
                yield _fit_memory(spec, bucket, compiled), check.result() if check else None
                check = None
        finally:
            compilers.shutdown(cancel_futures=True)


def _lower(spec: Spec, bucket: Bucket) -> jax.stages.Lowered:
    mesh, vmapped = spec.machine.mesh, bucket.vmapped
    return spec.measurement.traced(bucket.grid, bucket.chunk, mesh=mesh, vmapped=vmapped).lower()


def _fit_memory(spec: Spec, bucket: Bucket, compiled: jax.stages.Compiled) -> CompiledBucket:
    """The bucket, compiled anew for fewer seeds at once or in a call until XLA finds that it fits.

    Raises:
        ValueError: one seed does not fit.
    """
    machine = spec.machine
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
        compiled = compile_program(_lower(spec, bucket))
    return CompiledBucket(
        spec.measurement, bucket.grid, machine, compiled, each, chunk, vmapped, under_way
    )


def _most_padded(plan: Plan, missing: Sequence[Ranges]) -> int | None:
    """The unfinished bucket with the most padding, for the padding check; None without padding."""
    if not plan.spec.check_padding:
        return None
    ratios = {i: bucket.grid.padding for i, bucket in enumerate(plan.buckets) if missing[i]}
    return max(
        (i for i, ratio in ratios.items() if ratio > 1), key=ratios.__getitem__, default=None
    )
