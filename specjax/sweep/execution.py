"""A sweep as it was asked for, planned, and run bucket by bucket."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array

from specjax.sweep import dataset, memory, padding_check, plan
from specjax.sweep.axes import Over, length
from specjax.sweep.compilation_cache import persistent
from specjax.sweep.cost import CostModel
from specjax.sweep.devices import agreed, is_first, on_devices, on_host, shared
from specjax.sweep.padding_check import Unpadded
from specjax.sweep.plan import Bucket, Plan, Seeds
from specjax.sweep.program import Measure, Shapes, build, bytes_of, compile_program, coordinates, trace_program
from specjax.sweep.progress import Progress
from specjax.sweep.sampling import Sampling
from specjax.sweep.store import Block, Store

Ranges = Sequence[tuple[int, int]]
"""Ranges (start, stop) of samples."""
Calls = Iterator[tuple[int, int, dict[str, np.ndarray]]]
"""For each call its first seed, the one behind its last, and its outputs."""

# What XLA's analysis leaves out, when a chunk is cut down to fit.
_MARGIN = 0.9


@dataclass(frozen=True)
class Request:
    """What was asked for; `mesh` is None on one device."""

    measure: Measure
    over: Over
    seeds: Seeds
    key: Array
    plan: str
    chunk: int | None
    memory: str | int | None
    reduce: str | None
    couple: bool
    mesh: Mesh | None
    side_by_side: int  # calls that run at the same time
    budget: int  # bytes that each device may hold
    check_padding: bool

    @property
    def platform(self) -> str:
        """The platform of the devices, e.g. "cpu"."""
        return jax.local_devices()[0].platform

    @property
    def devices(self) -> int:
        """The number of devices, over all processes."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def calls(self) -> int:
        """Calls under way: the next is handed to the device before the results of the last are fetched, so that it never waits."""
        return max(self.side_by_side, 2)


@dataclass(frozen=True)
class Ready:
    """The compiled program of a bucket, the bytes and the seeds of a call, and how many calls may be under way."""

    compiled: jax.stages.Compiled
    bytes: int
    chunk: int
    calls: int


@dataclass(frozen=True)
class Prepared:
    """A request with its plan, and with the number of samples in a block of each bucket."""

    request: Request
    shapes: Shapes  # of the outputs of the measurement
    model: CostModel
    plan: Plan
    blocks: tuple[int, ...]
    sampling: Sampling

    @property
    def variables(self) -> Shapes:
        """Shape and dtype of each variable of the dataset, without axes and samples."""
        return self.sampling.variables(self.shapes)

    @property
    def extents(self) -> list[int]:
        """The number of points of each dimension."""
        return [length(axis) for axis in self.request.over.values()]

    def seconds(self, bucket: Bucket) -> float:
        """The estimated seconds to run one seed at all points of a bucket."""
        over, model = self.request.over, self.model.seconds
        shares = [plan.share(dim, places, over, 1, model.exponents[dim]) for dim, places in bucket.items()]
        return model.at_largest * prod(shares) * prod(length(a) for dim, a in over.items() if dim not in bucket)

    def samples(self, bucket: Bucket) -> int:
        """The samples of a bucket."""
        return self.sampling.of(plan.seeds_of(bucket, self.request.seeds))

    def place(self, bucket: Bucket) -> list[np.ndarray]:
        """The indices of a bucket along each dimension."""
        return [np.array(bucket.get(dim, range(length(axis)))) for dim, axis in self.request.over.items()]

    def label(self, bucket: Bucket) -> str:
        """The points of a bucket, as in "d1=16,32"."""
        labels = {dim: dataset.labels(self.request.over, dim, places) for dim, places in bucket.items()}
        return " ".join(f"{dim}={','.join(map(str, points))}" for dim, points in labels.items())


def execute(
    prepared: Prepared, opened: Store | None, missing: Sequence[Ranges], progress: bool | None
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Runs the `missing` samples of each bucket, and returns all variables and, for each bucket, a row on how it went."""
    kept, buckets = prepared.sampling, prepared.plan.buckets
    outputs = _outputs_so_far(prepared, opened, missing)
    seeds = [kept.seeds(0, prepared.samples(bucket))[1] for bucket in buckets]
    ahead = [sum(hi - lo for lo, hi in (kept.seeds(*r) for r in ranges)) for ranges in missing]
    table = [
        {
            "label": prepared.label(bucket),
            "points": prod(map(len, prepared.place(bucket))),
            "seeds": run,
            "chunk": prepared.plan.chunks[i],
            "bytes": 0,
            "compile_seconds": 0.0,
            "run_seconds": 0.0,
            "estimated_seconds": prepared.seconds(bucket) * run,
        }
        for i, (bucket, run) in enumerate(zip(buckets, seeds, strict=True))
    ]
    checked = _most_padded(prepared, missing) if prepared.request.check_padding else None
    estimated = sum(prepared.seconds(bucket) * run for bucket, run in zip(buckets, ahead, strict=True))
    visible = progress if is_first() else False
    with Progress(sum(seeds), sum(seeds) - sum(ahead), estimated, len(buckets), visible) as shown:
        # The bucket that is checked comes first, before any other is computed and kept.
        first = sorted(range(len(buckets)), key=lambda i: i != checked)
        work = [Block(i, *samples) for i in first for samples in kept.blocks(missing[i], prepared.blocks[i])]
        try:
            _run_blocks(prepared, work, outputs, opened, shown, table, checked)
        except KeyboardInterrupt:
            if opened is None:
                raise
            raise KeyboardInterrupt(
                f"Interrupted; the {len(opened.blocks)} finished blocks are kept, and the same call with "
                f"store={str(opened.path)!r} continues from them."
            ) from None
    return outputs, table


def _run_blocks(
    prepared: Prepared,
    work: Sequence[Block],
    outputs: dict[str, np.ndarray],
    opened: Store | None,
    shown: Progress,
    table: list[dict[str, Any]],
    checked: int | None,
) -> None:
    """Compiles as many buckets at a time as there are cores, and runs their blocks."""
    order = list(dict.fromkeys(block.bucket for block in work))
    # Twice the cores, so that none is idle while the longest compiles; not all, so that the first results come soon.
    at_a_time = 2 * prepared.request.side_by_side
    for some in (order[i : i + at_a_time] for i in range(0, len(order), at_a_time)):
        shown.bucket(some[0], table[some[0]]["label"])
        start = perf_counter()
        programs = _compile(prepared, some)
        seconds = (perf_counter() - start) / len(some)
        for i, ready in zip(some, programs, strict=True):
            table[i] |= {"chunk": ready.chunk, "bytes": ready.bytes, "compile_seconds": seconds}
            shown.bucket(i, table[i]["label"])
            shown.compiled(seconds)
            blocks = [block for block in work if block.bucket == i]
            _run_bucket(prepared, ready, blocks, outputs, opened, shown, table[i], check=i == checked)


def _run_bucket(
    prepared: Prepared,
    ready: Ready,
    blocks: Sequence[Block],
    outputs: dict[str, np.ndarray],
    opened: Store | None,
    shown: Progress,
    row: dict[str, Any],
    *,
    check: bool,
) -> None:
    kept, bucket = prepared.sampling, prepared.plan.buckets[blocks[0].bucket]
    place = prepared.place(bucket)
    ranges = [kept.seeds(block.start, block.stop) for block in blocks]
    calls = _calls(ready, prepared, bucket, ranges)
    start = perf_counter()
    if check:
        calls = _checked(calls, prepared, bucket, ranges[0][0])
        # What is compiled for the check, and runs for one seed.
        row["compile_seconds"] += perf_counter() - start
    start = perf_counter()
    for block in blocks:
        first, last = kept.seeds(block.start, block.stop)
        arrays = kept.collect(_until(calls, last, shown, prepared.seconds(bucket)), len(place), first)
        seconds, start = perf_counter() - start, perf_counter()
        row["run_seconds"] += seconds
        for name, array in arrays.items():
            target = outputs[name][(slice(None),) * len(place) + (slice(block.start, block.stop),)]
            target[np.ix_(*place)] = array
        if opened is not None:
            opened.write(block, arrays, seconds)
        shown.block(first, last, seconds)


def _compile(prepared: Prepared, buckets: Sequence[int]) -> list[Ready]:
    """The programs of some buckets: lowered one after the other, by this thread's settings, and compiled side by side."""
    cut = prepared.plan
    with persistent(prepared.request.platform), ThreadPoolExecutor(prepared.request.side_by_side) as compilers:
        compiling = [
            compilers.submit(
                _compiled,
                prepared,
                cut.buckets[i],
                _lowered(prepared, cut.buckets[i], cut.chunks[i], cut.vmapped[i]),
            )
            for i in buckets
        ]
        return [
            _fitted(prepared, cut.buckets[i], future.result(), cut.chunks[i], cut.vmapped[i])
            for i, future in zip(buckets, compiling, strict=True)
        ]


def _compiled(prepared: Prepared, bucket: Bucket, lowered: jax.stages.Lowered) -> jax.stages.Compiled:
    _, seeds = prepared.sampling.seeds(0, prepared.samples(bucket))
    return compile_program(lowered, seconds=prepared.seconds(bucket) * seeds, compiling=prepared.model.compile_seconds)


def _lowered(prepared: Prepared, bucket: Bucket, chunk: int, vmapped: int) -> jax.stages.Lowered:
    request = prepared.request
    impl, key_data = str(jax.random.key_impl(request.key)), np.asarray(jax.random.key_data(request.key))
    program = build(
        request.measure, bucket, request.over, impl, couple=request.couple, mesh=request.mesh, vmapped=vmapped
    )
    return trace_program(program, key_data, chunk, coordinates(bucket, request.over), request.mesh).lower()


def _fitted(prepared: Prepared, bucket: Bucket, compiled: jax.stages.Compiled, chunk: int, vmapped: int) -> Ready:
    """The program, compiled anew for fewer seeds at a time or in a call until XLA's memory analysis finds that it fits.

    Raises:
        ValueError: one seed does not fit, or the chunk that was asked for does not.
    """
    request = prepared.request
    vmapped = min(vmapped, chunk // request.devices)
    while True:
        calls, (each, scratch) = request.calls, bytes_of(compiled)
        if calls * each <= request.budget or (request.chunk is not None and request.memory is None):
            return Ready(compiled, each, chunk, calls)
        share = _MARGIN * request.budget / (calls * each)
        if vmapped > 1 and 2 * scratch > each:
            vmapped = max(int(vmapped * share), 1)
        elif request.chunk is None and chunk > request.devices and calls * scratch < request.budget:
            chunk = max(int(chunk * share) // request.devices, 1) * request.devices
        elif each <= request.budget:
            return Ready(compiled, each, chunk, request.budget // each)
        else:
            asked = "one seed" if request.chunk is None or chunk == request.devices else f"a chunk of {chunk} seeds"
            raise ValueError(
                f"The bucket {prepared.label(bucket) or 'of all points'} needs {memory.described(each)} for {asked} on each "
                f"device, more than the {memory.described(request.budget)} of memory; "
                "raise memory, take a smaller chunk or plan='exact', or sweep fewer values at a time."
            )
        compiled = _compiled(prepared, bucket, _lowered(prepared, bucket, chunk, vmapped))


def _calls(ready: Ready, prepared: Prepared, bucket: Bucket, ranges: Sequence[tuple[int, int]]) -> Calls:
    """The outputs of the calls for `ranges` of seeds, on the host and in order, each with its first seed and the one behind its last.

    Calls under way have a thread each: XLA runs those of one thread one after the other.
    """
    request, chunk = prepared.request, ready.chunk
    extents = [len(indices) for indices in prepared.place(bucket)]
    traced, key_data = coordinates(bucket, request.over), np.asarray(jax.random.key_data(request.key))
    in_float64 = jnp.result_type(float) == jnp.float64
    under_way: deque[tuple[int, int, Future[dict[str, Array]]]] = deque()

    def call(first: int) -> dict[str, Array]:
        # The scope of this thread, which others do not have by themselves.
        with jax.enable_x64(in_float64):
            seed_ids = on_devices(_ids(first, first + chunk), request.mesh)
            return jax.block_until_ready(ready.compiled(key_data, seed_ids, traced))

    def finished() -> tuple[int, int, dict[str, np.ndarray]]:
        first, last, results = under_way.popleft()
        # A dimension of which the bucket has one point has no axis yet.
        whole = {
            name: a.reshape(*extents, chunk, *prepared.shapes[name].shape)
            for name, a in on_host(results.result()).items()
        }
        return (
            first,
            last,
            {name: a[(slice(None),) * len(extents) + (slice(last - first),)] for name, a in whole.items()},
        )

    threads = ThreadPoolExecutor(ready.calls)
    try:
        for start, stop in ranges:
            for first in range(start, stop, chunk):
                # Seeds behind the last one fill the chunk and are discarded.
                under_way.append((first, min(first + chunk, stop), threads.submit(call, first)))
                if len(under_way) == ready.calls:
                    yield finished()
        while under_way:
            yield finished()
    finally:
        threads.shutdown(cancel_futures=True)


def _ids(start: int, stop: int) -> np.ndarray:
    """The seeds of a range as 32-bit words, around which they wrap."""
    return np.arange(start, stop, dtype=np.uint64).astype(np.uint32)


def _most_padded(prepared: Prepared, missing: Sequence[Ranges]) -> int | None:
    """Which of the buckets that have something missing pads its narrowest point most; None if none pads."""
    over, buckets = prepared.request.over, prepared.plan.buckets
    ratios = {i: padding_check.padding(bucket, over) for i, bucket in enumerate(buckets) if missing[i]}
    most = max(ratios, key=ratios.__getitem__, default=None)
    return most if most is not None and ratios[most] > 1 else None


def _checked(calls: Calls, prepared: Prepared, bucket: Bucket, first: int) -> Calls:
    """`calls`, of which the first is compared with what seed `first` gives without padding.

    Raises:
        ValueError: they differ beyond rounding.
    """
    request = prepared.request
    alone = Unpadded(request.measure, bucket, request.over, request.key, request.couple)
    exact = alone.outputs(_ids(first, first + 1))

    def compared() -> Calls:
        narrow = tuple(slice(0, 1) if dim in bucket else slice(None) for dim in request.over)
        axis = len(request.over)
        seen = [next(calls)]
        names = padding_check.differing({name: a[(*narrow, slice(1))] for name, a in seen[0][2].items()}, exact)
        told = None
        # Every process goes on, and refuses, if the first does.
        if agreed(bool(names)):
            # A call of one seed says too little: rounding alone may change what is counted in it.
            while seen[-1][1] - first < padding_check.SEEDS and (more := next(calls, None)) is not None:
                seen.append(more)
            ids = np.concatenate([_ids(start, stop) for start, stop, _ in seen])[: padding_check.SEEDS]
            whole = {name: np.concatenate([call[2][name] for call in seen], axis) for name in seen[0][2]}
            padded = {name: a[(*narrow, slice(len(ids)))] for name, a in whole.items()}
            told = agreed(padding_check.refusal(padded, alone, ids, names, bucket, request.over) if names else None)
        if told is not None:
            raise ValueError(told)
        yield from seen
        yield from calls

    return compared()


def _until(calls: Calls, last: int, shown: Progress, estimated: float) -> Iterator[dict[str, np.ndarray]]:
    """The outputs of the calls up to the one that ends at seed `last`, each seed estimated to take so many seconds."""
    for start, stop, outputs in calls:
        shown.seeds(stop - start, (stop - start) * estimated)
        yield outputs
        if stop == last:
            return


def _outputs_so_far(prepared: Prepared, opened: Store | None, missing: Sequence[Ranges]) -> dict[str, np.ndarray]:
    """The variables with the blocks that are stored already; in every process."""
    samples = prepared.sampling.samples
    if opened is not None:
        outputs = opened.read()
    else:
        outputs = {
            name: np.zeros((*prepared.extents, samples, *v.shape), v.dtype) for name, v in prepared.variables.items()
        }
    whole = all(
        [list(r) for r in ranges] == [[0, prepared.samples(bucket)]]
        for ranges, bucket in zip(missing, prepared.plan.buckets, strict=True)
    )
    return outputs if whole else shared(outputs)
