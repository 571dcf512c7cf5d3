"""How the benchmarks time: medians or minima over rounds of all sides, compilation apart, and a
plain table.
"""

import os
import platform
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import jax


class Timing(NamedTuple):
    """Seconds of calls: medians over the rounds of the first call, which compiles, and of the
    second; range of the second.
    """

    first: float
    again: float
    low: float
    high: float

    @property
    def compiling(self) -> float:
        """What the first call took longer than the second."""
        return max(self.first - self.again, 0.0)


def seconds(call: Callable[[], Any], clock: Callable[[], float] = perf_counter) -> float:
    """Seconds of one call, until every JAX array in its result is there; elapsed ones, unless
    another clock is given.
    """
    start = clock()
    jax.block_until_ready(call())
    return clock() - start


def measure(
    makers: Mapping[str, Callable[[], Callable[[], Any]]],
    repeats: int,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, Timing]:
    """Times, in `repeats` rounds of all sides, the first and second call of what each maker
    returns, from empty JAX caches.

    Rounds rather than one side after the other, so that a slow minute of the machine meets every
    side. `time.process_time` for a clock counts what all threads of the process compute, and on a
    machine that others use as well not what they take.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    for _ in range(repeats):
        for name, make in makers.items():
            jax.clear_caches()
            call = make()
            taken[name].append((seconds(call, clock), seconds(call, clock)))
    timings = {}
    for name, pairs in taken.items():
        first, again = zip(*pairs, strict=True)
        timings[name] = Timing(
            statistics.median(first), statistics.median(again), min(again), max(again)
        )
    return timings


@contextmanager
def compiled_before(folder: str) -> Iterator[None]:
    """Within the block a sweep reads the programs that it has compiled before from a folder: none
    compiles beside those that run.
    """
    before = os.environ["SPECJAX_COMPILATION_CACHE"]
    os.environ["SPECJAX_COMPILATION_CACHE"] = folder
    try:
        yield
    finally:
        os.environ["SPECJAX_COMPILATION_CACHE"] = before


def minima(
    calls: Mapping[str, Callable[[], Any]], rounds: int, clock: Callable[[], float] = perf_counter
) -> dict[str, float]:
    """The least seconds of each call over `rounds` rounds of all of them in turn, after one call of
    each that is not timed; for the clock see `measure`.
    """
    for call in calls.values():
        seconds(call)
    taken = [{name: seconds(call, clock) for name, call in calls.items()} for _ in range(rounds)]
    return {name: min(times[name] for times in taken) for name in calls}


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned columns, the first row being the header; the first column is text, the others
    are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def machine(*packages: str) -> str:
    """One line that says what the times were taken on: processor, cores, load at the start, device,
    versions.
    """
    cpuinfo = Path("/proc/cpuinfo")
    models = (
        [line for line in cpuinfo.read_text().splitlines() if "model name" in line]
        if cpuinfo.exists()
        else []
    )
    processor = (
        models[0].split(":", 1)[1].strip() if models else platform.processor() or platform.machine()
    )
    versions = ", ".join(f"{package} {version(package)}" for package in packages)
    return (
        f"{processor}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the start, "
        f"JAX device {jax.devices()[0].device_kind}; Python {platform.python_version()}, {versions}"
    )
