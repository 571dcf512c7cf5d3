"""What a person sees of a running sweep: a bar on a terminal, and one log line per block for those
who listen.

The lines go to the logger "specjax.sweep" at level INFO, which is silent unless the user configures
logging.
"""

import logging
from time import perf_counter

from tqdm import tqdm

logger = logging.getLogger("specjax.sweep")

_BAR = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {rate_fmt}{postfix}]"


class Progress:
    """The progress through `total` seeds, counted in every bucket; `visible` None shows the bar on
    a terminal only.

    The time left goes by the seconds that the seeds are estimated to take, `ahead` of them at
    first: a wide bucket takes longer than a narrow one.
    """

    def __init__(
        self, total: int, already: int, ahead: float, buckets: int, visible: bool | None
    ) -> None:
        # tqdm's `disable=None` is: silent unless on a terminal.
        disable = None if visible is None else not visible
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
        """Names the bucket that is worked on."""
        self._label = f"bucket {index + 1}/{self._buckets}" + (f" ({label})" if label else "")
        self._bar.set_description(f"{self._label}: compiling")

    def compiled(self, seconds: float) -> None:
        """The bucket is compiled and starts to run."""
        self._log("%s: compiled in %.1f s", self._label, seconds)
        self._bar.set_description(self._label)

    def seeds(self, number: int, estimated: float) -> None:
        """So many more seeds of the bucket are computed, estimated to take so many seconds."""
        self._done += estimated
        self._bar.set_postfix_str(self._left(), refresh=False)
        self._bar.update(number)

    def block(self, start: int, stop: int, seconds: float) -> None:
        """Seeds `start` to `stop - 1` of the bucket are finished, in `seconds`."""
        rate = f"{seconds:.2f} s, {(stop - start) / seconds:.3g} seeds/s"
        self._log("%s: seeds %d to %d in %s, %s", self._label, start, stop - 1, rate, self._left())

    def _left(self) -> str:
        if not self._done:  # of a measurement in which nothing is counted
            return "? left"
        taken = perf_counter() - self._began
        return tqdm.format_interval(taken * max(self._ahead / self._done - 1, 0.0)) + " left"

    def _log(self, *message: object) -> None:
        logger.info(*message, extra={"taken": perf_counter() - self._began})

    def close(self) -> None:
        """Ends the bar."""
        self._bar.close()
