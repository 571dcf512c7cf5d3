"""The lines of whatever takes long, a sweep or a training, where the command has no terminal to
show a bar on.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

PATIENCE, PACE = 5.0, 10.0
"""Seconds before the first line, and from one line to the next."""


class PacedHandler(logging.StreamHandler):
    """Writes the lines of whatever takes more than five seconds, one in ten seconds: those with
    `taken`, the seconds since it began.
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
    """Within the block, where standard error is no terminal for a bar, it gets the lines of
    `PacedHandler`.
    """
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
