"""Call the program of a bucket, each time for as many groups of seeds as run for a moment.

The first call has one group on each device. Later calls have as many as take `CALL_SECONDS`, by the
time of the last call that ended. Groups begin at multiples of their size, whatever is missing and
however long calls are, so a seed is always computed beside the same others, and has the same bits.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import ceil
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.sweep._devices import Machine, agreed, on_devices, on_host
from specjax.sweep._grid import Grid
from specjax.sweep._measurement import Measurement, seed_ids

# A call takes much longer than its start, and little enough to lose on interruption.
CALL_SECONDS = 0.25
# The first groups may be quick and later ones slow, if the length of a loop depends on the data.
_GROWTH = 4

Calls = Iterator[tuple[int, int, dict[str, np.ndarray], float]]
"""For each call its first seed, the one behind its last, its host outputs, and its seconds."""


@dataclass(frozen=True)
class CompiledBucket:
    """The compiled program of a bucket `grid`, ready to be called.

    At most `calls` calls are under way. Each has at most `chunk` seeds, of which a device computes
    `vmapped` at once, and takes `bytes` bytes.
    """

    measurement: Measurement
    grid: Grid
    machine: Machine
    compiled: jax.stages.Compiled
    bytes: int
    chunk: int
    vmapped: int
    calls: int


def calls(ready: CompiledBucket, ranges: Sequence[tuple[int, int]]) -> Calls:
    """Run the calls for ranges (start, stop) of seeds, in order.

    Calls under way have a thread each: XLA runs the calls of one thread one after the other.
    """
    size, in_float64 = ready.vmapped * ready.machine.devices, jnp.result_type(float) == jnp.float64
    groups, most = 1, ready.chunk // size
    under_way: deque[tuple[int, int, int, int, Future[tuple[dict[str, Array], float]]]] = deque()

    def finished() -> tuple[int, int, dict[str, np.ndarray], float]:
        nonlocal groups
        start, stop, begin, number, future = under_way.popleft()
        results, seconds = future.result()
        groups = agreed(paced(number, seconds, most))
        seeds = slice(start - begin, stop - begin)
        return start, stop, _host_outputs(ready, results, number, seeds), seconds

    threads = ThreadPoolExecutor(ready.calls)
    try:
        for start, stop in ranges:
            # Whole groups are computed; seeds outside of the range are discarded.
            begin = start // size * size
            while begin < stop:
                left = ceil((stop - begin) / size)
                # The last calls are shorter, so that they end together.
                number = min(
                    groups, left, max(ceil(left / ready.machine.side_by_side), groups // _GROWTH)
                )
                behind = begin + number * size
                future = threads.submit(computed, ready, begin, number, in_float64)
                under_way.append((max(start, begin), min(stop, behind), begin, number, future))
                begin = behind
                if len(under_way) == ready.calls:
                    yield finished()
        while under_way:
            yield finished()
    finally:
        threads.shutdown(cancel_futures=True)


def paced(groups: int, seconds: float, most: int) -> int:
    """The groups of the next call, at most `most`, after one of `groups` that took `seconds`."""
    enough = groups * CALL_SECONDS / max(seconds, 1e-9)
    return max(int(min(enough, _GROWTH * groups, most)), 1)


def computed(
    ready: CompiledBucket, begin: int, groups: int, in_float64: bool
) -> tuple[dict[str, Array], float]:
    """The results of `groups` groups from seed `begin` on, on the devices, and their seconds."""
    devices, own = ready.machine.devices, groups * ready.vmapped
    ids = np.zeros((devices, ready.chunk // devices), np.uint32)
    ids[:, :own] = seed_ids(begin, begin + own * devices).reshape(devices, own)
    # enable_x64 is thread-local.
    with jax.enable_x64(in_float64):
        seeds, start = on_devices(ids.ravel(), ready.machine.mesh), perf_counter()
        arguments = ready.measurement.key_data, seeds, ready.grid.coordinates, np.int32(groups)
        return jax.block_until_ready(ready.compiled(*arguments)), perf_counter() - start


def _host_outputs(
    ready: CompiledBucket, results: dict[str, Array], groups: int, seeds: slice
) -> dict[str, np.ndarray]:
    """The outputs of a call at some of its seeds, on the host."""
    axes, devices, own = ready.grid.shape, ready.machine.devices, groups * ready.vmapped
    every = (slice(None),) * len(axes)
    outputs = {}
    for name, output in on_host(results).items():
        trailing = output.shape[len(ready.grid.axes) + 1 :]
        # Each device has its groups at the beginning of its seeds.
        array = output.reshape(*axes, devices, ready.chunk // devices, *trailing)
        array = array[(*every, slice(None), slice(own))]
        outputs[name] = array.reshape(*axes, devices * own, *trailing)[(*every, seeds)]
    return outputs
