"""How the program of a bucket is called: for as many groups of seeds as take a moment, which is measured.

The first call has one group on each device, and each further one as many as by the last that ended take `CALL_SECONDS`. Groups begin at
multiples of their size, whatever is asked for and however long calls are, so a seed is always computed beside the same others, and has
the same bits.
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
from specjax.sweep.program import Measurement, seed_ids

# A call is long beside what starting it costs, and short beside what an interruption may cost.
CALL_SECONDS = 0.25
# The first groups may be quick and others not, where a loop is as long as its data say.
_GROWTH = 4


@dataclass(frozen=True)
class Ready:
    """The compiled program of a bucket, and how it is called.

    Attributes:
        measurement: Of which it is the program.
        machine: On which it runs.
        compiled: The program.
        bytes: Of a call.
        chunk: The most seeds of a call.
        vmapped: How many of these a device computes at a time.
        calls: How many calls may be under way.
        paced: Whether calls are as long as is measured, and not all of `chunk` seeds.
    """

    measurement: Measurement
    machine: Machine
    compiled: jax.stages.Compiled
    bytes: int
    chunk: int
    vmapped: int
    calls: int
    paced: bool


@dataclass(frozen=True)
class Call:
    """So many `groups` of a part, from the one that begins with seed `begin` on, of which the seeds `first` to `last - 1` are asked for."""

    place: int
    part: Grid
    begin: int
    groups: int
    first: int
    last: int


def calls(
    ready: Ready, parts: Sequence[Grid], asked: Sequence[tuple[int, int, int]]
) -> Iterator[tuple[int, int, int, dict[str, np.ndarray], float]]:
    """The calls for what is asked, a part and a range of its seeds each, in order: the place of the range, the first seed, the one behind
    the last, the outputs on the host, and the seconds that it took.

    Calls under way have a thread each: XLA runs those of one thread one after the other.
    """
    size, in_float64 = ready.vmapped * ready.machine.devices, jnp.result_type(float) == jnp.float64
    most = ready.chunk // size
    groups = 1 if ready.paced else most
    under_way: deque[tuple[Call, Future[tuple[dict[str, Array], float]]]] = deque()

    def finished() -> tuple[int, int, int, dict[str, np.ndarray], float]:
        nonlocal groups
        call, future = under_way.popleft()
        results, seconds = future.result()
        if ready.paced:
            groups = agreed(paced(call.groups, seconds, most))
        return call.place, call.first, call.last, _asked(ready, call, results), seconds

    threads = ThreadPoolExecutor(ready.calls)
    try:
        for place, (i, start, stop) in enumerate(asked):
            # Seeds before the first of its group and behind the last are computed and discarded.
            begin = start // size * size
            while begin < stop:
                left = ceil((stop - begin) / size)
                # The last calls get shorter, so that they end together.
                fair = max(ceil(left / ready.machine.side_by_side), groups // _GROWTH) if ready.paced else left
                number = min(groups, left, fair)
                behind = begin + number * size
                call = Call(place, parts[i], begin, number, max(start, begin), min(stop, behind))
                under_way.append((call, threads.submit(computed, ready, call, in_float64)))
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


def computed(ready: Ready, call: Call, in_float64: bool) -> tuple[dict[str, Array], float]:
    """The results of a call on the devices, and the seconds that it took."""
    devices, own = ready.machine.devices, call.groups * ready.vmapped
    ids = np.zeros((devices, ready.chunk // devices), np.uint32)
    ids[:, :own] = seed_ids(call.begin, call.begin + own * devices).reshape(devices, own)
    # The scope of this thread, which others do not have by themselves.
    with jax.enable_x64(in_float64):
        seeds, start = on_devices(ids.ravel(), ready.machine.mesh), perf_counter()
        arguments = ready.measurement.key_data, seeds, call.part.coordinates, np.int32(call.groups)
        return jax.block_until_ready(ready.compiled(*arguments)), perf_counter() - start


def _asked(ready: Ready, call: Call, results: dict[str, Array]) -> dict[str, np.ndarray]:
    """The results of a call, on the host, for the seeds that it is asked for."""
    axes, devices, own = call.part.shape, ready.machine.devices, call.groups * ready.vmapped
    every, asked = (slice(None),) * len(axes), slice(call.first - call.begin, call.last - call.begin)
    found = {}
    for name, output in on_host(results).items():
        array = call.part.whole(output)
        trailing = array.shape[len(axes) + 1 :]
        array = array.reshape(*axes, devices, -1, *trailing)[(*every, slice(None), slice(own))]
        found[name] = array.reshape(*axes, devices * own, *trailing)[(*every, asked)]
    return found
