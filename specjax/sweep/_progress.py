"""The progress of a running sweep: a bar on a terminal, and a log line per block.

The lines go to the logger "specjax.sweep" at level INFO, which is silent unless the user configures
logging. With `progress=True` they are also printed to a standard error that is not a terminal.
"""

import logging
import sys
from time import perf_counter

from tqdm import tqdm

logger = logging.getLogger("specjax.sweep")

_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"


class Progress:
    """The progress through `total` seeds, counted in every bucket.

    `visible` None shows the bar on a terminal only. The time left follows the estimated seconds of
    the seeds, `ahead` at first, since a wide bucket takes longer than a narrow one.
    """

    def __init__(
        self, total: int, already: int, ahead: float, buckets: int, visible: bool | None
    ) -> None:
        # In tqdm `disable=None` shows the bar on a terminal only.
        self._in_lines = visible is True and not sys.stderr.isatty()
        disable = None if visible is None else not visible or self._in_lines
        self._bar = tqdm(
            total=total,
            initial=already,
            unit="seed",
            disable=disable,
            dynamic_ncols=True,
            bar_format=_BAR,
        )
        self._buckets = buckets
        self._ahead, self._done, self._began = ahead, 0.0, perf_counter()

    def bucket(self, index: int, label: str) -> None:
        """Name the bucket that compiles or runs."""
        self._label = f"bucket {index + 1}/{self._buckets}" + (f" ({label})" if label else "")
        self._bar.set_description(f"{self._label}: compiling")

    def compiled(self, seconds: float) -> None:
        """Log that the bucket is compiled and starts to run."""
        self._log("%s: compiled in %.1f s", self._label, seconds)
        self._bar.set_description(self._label)

    def seeds(self, number: int, estimated: float) -> None:
        """Count `number` seeds of the bucket, estimated to take `estimated` seconds."""
        self._done += estimated
        self._bar.set_postfix_str(self._left(), refresh=False)
        self._bar.update(number)

    def block(self, start: int, stop: int, seconds: float) -> None:
        """Log that seeds `start` to `stop - 1` of the bucket are finished, in `seconds`."""
        rate = f"{seconds:.2f} s, {(stop - start) / seconds:.3g} seeds/s"
        self._log("%s: seeds %d to %d in %s, %s", self._label, start, stop - 1, rate, self._left())

    def _left(self) -> str:
        if not self._done:  # the cost of the measurement is unknown
            return "? left"
        taken = perf_counter() - self._began
        return tqdm.format_interval(taken * max(self._ahead / self._done - 1, 0.0)) + " left"

    def _log(self, *message: object) -> None:
        logger.info(*message, extra={"taken": perf_counter() - self._began})
        if self._in_lines:
            text, *values = message
            print(str(text) % tuple(values), file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the bar."""
        self._bar.close()
