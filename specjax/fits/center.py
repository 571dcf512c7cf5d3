"""Draws whose mean is another center of a law: its median, or its geometric mean.

Each draw is replaced by its pseudo-value, center + influence (Hampel 1974): what the draw adds to
the center, to the order 1/√n. Their mean is the center and their covariances are those of the
center between widths, so that every fit and test of means is one of it.
"""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

By = Literal["mean", "median", "log"]
"""What is estimated of a law: its mean, its median, or its geometric mean, the exponential of the
mean logarithm.
"""


def centered(
    y: Float[np.ndarray, "n replicates"],
    present: Bool[np.ndarray, "n replicates"],
    by: By,
    name: str,
) -> Float[np.ndarray, "n replicates"]:
    """Pseudo-values of the median ("median") or the geometric mean ("log") at each width; 0 where a
    draw is not present.

    Raises:
        ValueError: a draw that is not positive, which has no logarithm.
    """
    if by == "log" and not (y[present] > 0).all():
        raise ValueError(
            f"A mean logarithm needs positive draws, and {name!r} has others; take by='median'."
        )
    found = np.zeros_like(y)
    for width, there in enumerate(present):
        draws = y[width, there]
        found[width, there] = _of_logarithm(draws) if by == "log" else _of_median(draws)
    return found


def _of_logarithm(draws: Float[np.ndarray, " replicates"]) -> Float[np.ndarray, " replicates"]:
    logs = np.log(draws)
    mean = np.mean(logs)
    return np.exp(mean) * (1 + logs - mean)


def _of_median(draws: Float[np.ndarray, " replicates"]) -> Float[np.ndarray, " replicates"]:
    """Median ± its standard error · √n: the error from the two draws that lie one of its own
    standard deviations from the middle.
    """
    n, median, ordered = len(draws), np.median(draws), np.sort(draws)
    # Of n draws the number below the median has the standard deviation √n/2.
    ranks = (n - 1) / 2 + np.array([-0.5, 0.5]) * np.sqrt(n)
    low, high = np.interp(ranks, np.arange(n), ordered)
    sides = np.sign(draws - median)
    sides = sides - np.mean(sides)
    size = np.sqrt(np.mean(sides**2))
    return median + sides * ((high - low) / 2 * np.sqrt(n) / size if size > 0 else 0.0)
