"""What a person sees of a running sweep: a bar on a terminal, and one log line per block for those who listen.

The lines go to the logger "specjax.sweep" at level INFO, which is silent unless the user configures logging.
"""

import logging
from types import TracebackType

from tqdm import tqdm

logger = logging.getLogger("specjax.sweep")


class Progress:
    """The progress through `total` seeds, counted in every bucket; `visible` None shows the bar on a terminal only."""

    def __init__(self, total: int, already: int, buckets: int, visible: bool | None) -> None:
        # tqdm's `disable=None` is: silent unless on a terminal.
        disable = None if visible is None else not visible
        self._bar = tqdm(total=total, initial=already, unit="seed", disable=disable, dynamic_ncols=True)
        self._buckets = buckets

    def bucket(self, index: int, label: str) -> None:
        """Names the bucket that is worked on."""
        self._label = f"bucket {index + 1}/{self._buckets}" + (f" ({label})" if label else "")
        self._bar.set_description(f"{self._label}: compiling")

    def compiled(self, seconds: float) -> None:
        """The bucket is compiled and starts to run."""
        logger.info("%s: compiled in %.1f s", self._label, seconds)
        self._bar.set_description(self._label)

    def seeds(self, number: int) -> None:
        """So many more seeds of the bucket are computed."""
        self._bar.update(number)

    def block(self, start: int, stop: int, seconds: float) -> None:
        """Seeds `start` to `stop - 1` of the bucket are finished, in `seconds`."""
        logger.info(
            "%s: seeds %d to %d in %.2f s, %.3g seeds/s",
            self._label,
            start,
            stop - 1,
            seconds,
            (stop - start) / seconds,
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()
