"""The same function of many names, several at a time, each in a process of its own.

Processes and not threads: two decompositions at once in one process can wait for each other without
end, and tracing holds Python's lock.
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
    """Each name with what `function` makes of it, as they are finished, or None where its process
    ended before that.

    With one job, in this process and in order. An exception of `function` passes through, and ends
    the others; so does leaving the iterator early, as by an interrupt.

    Args:
        function: With several jobs one that can be pickled, as can its results; what it writes to
            standard error gets the name in front.
        names: In the order in which they are begun.
        jobs: How many at a time.
        begun: Called here with each name when it is begun.
    """
    waiting = list(names)
    if min(jobs, len(waiting)) <= 1:
        for name in waiting:
            begun(name)
            yield name, function(name)
        return
    # A process that ends, as by want of memory, breaks its pool: what is left gets another.
    while waiting:
        with _pool(jobs) as pool:
            running: dict[Future[T], str] = {}
            try:
                while waiting or running:
                    while waiting and len(running) < jobs:
                        # A pool that is broken refuses, and the name still waits.
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
    # Spawned: a fork would share the threads of an XLA that has started, which do not live on in
    # it.
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
    """In each process: an interrupt is its parent's, and it ends when its parent does."""
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
    """Standard error, no terminal, with a name in front of each line."""

    def __init__(self, name: str) -> None:
        self._name, self._line = name, ""

    def write(self, text: str) -> int:
        *whole, self._line = (self._line + text).split("\n")
        if whole and sys.__stderr__ is not None:
            # At once, so that lines of two processes do not mix.
            sys.__stderr__.write("".join(f"{self._name}: {line}\n" for line in whole))
            sys.__stderr__.flush()
        return len(text)
