"""Call a function of names in several processes at a time.

Not in threads, since two simultaneous decompositions in one process can deadlock, and tracing holds
Python's lock.
"""

import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr
from typing import TypeVar

T = TypeVar("T")


def each(
    function: Callable[[str], T], names: Sequence[str], jobs: int, begun: Callable[[str], None]
) -> Iterator[tuple[str, T | None]]:
    """Yield each name with the result of `function`, in the order of completion, or with None if
    its process died.

    One job runs in this process and in order. An exception of `function` passes through and ends
    the other processes; so does leaving the iterator early, such as by an interrupt.

    Args:
        function: For several jobs it and its results can be pickled; lines that it writes to
            standard error get the name in front.
        names: In the order of starting.
        jobs: Processes at a time.
        begun: Called here with each name when it is begun.
    """
    waiting = list(names)
    if min(jobs, len(waiting)) <= 1:
        for name in waiting:
            begun(name)
            yield name, function(name)
        return
    # A process that dies, such as for lack of memory, breaks its pool: the rest gets another.
    while waiting:
        with _pool(jobs) as pool:
            running: dict[Future[T], str] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        # A broken pool refuses, and the name still waits.
                        future = pool.submit(_named, function, waiting[0])
                        running[future] = waiting.pop(0)
                        begun(running[future])
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        result = future.result()
                        yield running.pop(future), result
            except BrokenProcessPool:
                for future, name in running.items():
                    yield (
                        name,
                        (
                            None
                            if isinstance(future.exception(), BrokenProcessPool)
                            else future.result()
                        ),
                    )


@contextmanager
def _pool(jobs: int) -> Iterator[ProcessPoolExecutor]:
    # Spawned: the threads of a started XLA do not survive a fork.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start)
    before = set(multiprocessing.active_children())
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    """Set up a worker process: it ignores interrupts, which its parent handles, and ends when the
    parent does.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _named(function: Callable[[str], T], name: str) -> T:
    with redirect_stderr(_Named(name)):
        return function(name)


class _Named(io.TextIOBase):
    """A standard error that puts a name in front of each line."""

    def __init__(self, name: str) -> None:
        self._name, self._line = name, ""

    def write(self, text: str) -> int:
        *whole, self._line = (self._line + text).split("\n")
        if whole and sys.__stderr__ is not None:
            # At once, so that lines of two processes do not mix.
            sys.__stderr__.write("".join(f"{self._name}: {line}\n" for line in whole))
            sys.__stderr__.flush()
        return len(text)
