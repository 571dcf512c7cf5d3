"""Lines of progress of sweeps and trainings on standard error, where no terminal shows a bar."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

PATIENCE, PACE = 5.0, 10.0
"""Seconds before the first line, and between lines."""


class PacedHandler(logging.StreamHandler):
    """Writes the lines of work that has taken five seconds, at most one in ten seconds. Such lines
    have `taken`, the seconds since the work began.
    """

    def __init__(self) -> None:
        super().__init__()
        self._last = -PACE

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this line is written."""
        now, taken = perf_counter(), getattr(record, "taken", None)
        if taken is None:
            return record.levelno >= logging.WARNING
        if taken < PATIENCE or now - self._last < PACE:
            return False
        self._last = now
        return True


@contextmanager
def log_progress() -> Iterator[None]:
    """Within the block, log progress by `PacedHandler` if standard error is not a terminal."""
    logger = logging.getLogger("specjax")
    handler, level = PacedHandler(), logger.level
    if not sys.stderr.isatty():
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
