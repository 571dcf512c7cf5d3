"""Means of independent draws with their intervals: what checks judge, tables print and figures draw."""

from typing import Any, NamedTuple

import numpy as np

STANDARD_ERRORS = 4.0
"""From an estimate to either end of its interval; `verdicts` says why so many."""


class Mean(NamedTuple):
    """A mean of independent draws, or another estimate, and its standard error: numbers, or arrays of one shape.

    Of numbers the text, for tables, is "0.123 ± 0.004", with one standard error.
    """

    mean: Any
    stderr: Any

    @property
    def low(self) -> Any:
        """The mean less 4 standard errors."""
        return self.mean - STANDARD_ERRORS * self.stderr

    @property
    def high(self) -> Any:
        """The mean plus 4 standard errors."""
        return self.mean + STANDARD_ERRORS * self.stderr

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.stderr:.1g}"


def mean_of(draws: np.ndarray, axis: int | None = None) -> Mean:
    """The mean of all `draws`, or over one axis, and its standard error s/√n, with s² the unbiased variance.

    The mean has the dtype of `draws`. Of labelled data `sweep.mean_and_stderr` takes both over "seed", in float64.

    Raises:
        ValueError: there are fewer than 2 draws.
    """
    n = draws.size if axis is None else draws.shape[axis]
    if n < 2:
        raise ValueError(f"A standard error needs at least 2 draws, got {n}; run more seeds.")
    return Mean(draws.mean(axis), draws.std(axis, ddof=1) / np.sqrt(n))
