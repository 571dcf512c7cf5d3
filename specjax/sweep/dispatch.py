"""How the program of a bucket is called: for as many groups of seeds as take a moment, which is
measured.

The first call has one group on each device, and each further one as many as by the last that ended
take `CALL_SECONDS`. Groups begin at multiples of their size, whatever is asked for and however long
calls are, so a seed is always computed beside the same others, and has the same bits.
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

from specjax.sweep.devices import Machine, agreed, on_devices, on_host
from specjax.sweep.grid import Grid
from specjax.sweep.measurement import Measurement, seed_ids

# A call is long beside what starting it costs, and short beside what an interruption may cost.
CALL_SECONDS = 0.25
# The first groups may be quick and others not, where a loop is as long as its data say.
_GROWTH = 4

Calls = Iterator[tuple[int, int, dict[str, np.ndarray], float]]
"""For each call its first seed, the one behind its last, its outputs on the host, and the seconds
that it took.
"""


@dataclass(frozen=True)
class Ready:
    """The compiled program of a bucket `grid`, and how it is called: so many `calls` may be under
    way, each of at most `chunk` seeds, of which a device computes `vmapped` at a time. A call takes
    so many `bytes`.
    """

    measurement: Measurement
    grid: Grid
    machine: Machine
    compiled: jax.stages.Compiled
    bytes: int
    chunk: int
    vmapped: int
    calls: int


def calls(ready: Ready, ranges: Sequence[tuple[int, int]]) -> Calls:
    """The calls for ranges (start, stop) of seeds, in order.

    Calls under way have a thread each: XLA runs those of one thread one after the other.
    """
    size, in_float64 = ready.vmapped * ready.machine.devices, jnp.result_type(float) == jnp.float64
    groups, most = 1, ready.chunk // size
    under_way: deque[tuple[int, int, int, int, Future[tuple[dict[str, Array], float]]]] = deque()

    def finished() -> tuple[int, int, dict[str, np.ndarray], float]:
        nonlocal groups
        start, stop, begin, number, future = under_way.popleft()
        results, seconds = future.result()
        groups = agreed(paced(number, seconds, most))
        return (
            start,
            stop,
            _asked(ready, results, number, slice(start - begin, stop - begin)),
            seconds,
        )

    threads = ThreadPoolExecutor(ready.calls)
    try:
        for start, stop in ranges:
            # Seeds before the first of its group and behind the last are computed and discarded.
            begin = start // size * size
            while begin < stop:
                left = ceil((stop - begin) / size)
                # The last calls get shorter, so that they end together.
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
    """The groups of the next call, at most so many, where the last one had `groups` and took
    `seconds`.
    """
    enough = groups * CALL_SECONDS / max(seconds, 1e-9)
    return max(int(min(enough, _GROWTH * groups, most)), 1)


def computed(
    ready: Ready, begin: int, groups: int, in_float64: bool
) -> tuple[dict[str, Array], float]:
    """The results on the devices of so many groups from seed `begin` on, and the seconds that they
    took.
    """
    devices, own = ready.machine.devices, groups * ready.vmapped
    ids = np.zeros((devices, ready.chunk // devices), np.uint32)
    ids[:, :own] = seed_ids(begin, begin + own * devices).reshape(devices, own)
    # The scope of this thread, which others do not have by themselves.
    with jax.enable_x64(in_float64):
        seeds, start = on_devices(ids.ravel(), ready.machine.mesh), perf_counter()
        arguments = ready.measurement.key_data, seeds, ready.grid.coordinates, np.int32(groups)
        return jax.block_until_ready(ready.compiled(*arguments)), perf_counter() - start


def _asked(
    ready: Ready, results: dict[str, Array], groups: int, asked: slice
) -> dict[str, np.ndarray]:
    """What is asked for of the results of a call of so many groups, on the host."""
    axes, devices, own = ready.grid.shape, ready.machine.devices, groups * ready.vmapped
    every = (slice(None),) * len(axes)
    found = {}
    for name, output in on_host(results).items():
        # Each device has its groups at the beginning of its seeds.
        array = output.reshape(
            *axes, devices, ready.chunk // devices, *output.shape[len(ready.grid.axes) + 1 :]
        )
        array = array[(*every, slice(None), slice(own))]
        found[name] = array.reshape(*axes, devices * own, *array.shape[len(axes) + 2 :])[
            (*every, asked)
        ]
    return found
