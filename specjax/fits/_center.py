"""Replace replicates so that their mean is another center of their law: median or geometric mean.

Each replicate becomes its pseudo-value, center + influence (Hampel 1974): its contribution to the
center, to the order 1/√n. Their mean is the center and their covariances are those of the center
between widths, so that every fit and test of means applies.
"""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

By = Literal["mean", "median", "log"]
"""The center to estimate: mean, median or geometric mean, i.e. exp of the mean logarithm."""


def centered(
    y: Float[np.ndarray, "n replicates"],
    present: Bool[np.ndarray, "n replicates"],
    by: By,
    name: str,
) -> Float[np.ndarray, "n replicates"]:
    """Pseudo-values of the median ("median") or the geometric mean ("log") at each width; 0 where
    absent.

    Raises:
        ValueError: a replicate that is not positive, for a logarithm.
    """
    if by == "log" and not (y[present] > 0).all():
        raise ValueError(
            f"A mean logarithm needs positive samples, and {name!r} has others; take by='median'."
        )
    values, influence = np.zeros_like(y), _around_log_mean if by == "log" else _around_median
    for width, there in enumerate(present):
        values[width, there] = influence(y[width, there])
    return values


def _around_log_mean(y: Float[np.ndarray, " replicates"]) -> Float[np.ndarray, " replicates"]:
    logs = np.log(y)
    mean = np.mean(logs)
    return np.exp(mean) * (1 + logs - mean)


def _around_median(y: Float[np.ndarray, " replicates"]) -> Float[np.ndarray, " replicates"]:
    """Median ± its standard error · √n.

    The error comes from the two order statistics one of its own standard deviations from the
    middle.
    """
    n, median, ordered = len(y), np.median(y), np.sort(y)
    # The number of n replicates below the median has the standard deviation √n/2.
    ranks = (n - 1) / 2 + np.array([-0.5, 0.5]) * np.sqrt(n)
    low, high = np.interp(ranks, np.arange(n), ordered)
    sides = np.sign(y - median)
    sides = sides - np.mean(sides)
    size = np.sqrt(np.mean(sides**2))
    return median + sides * ((high - low) / 2 * np.sqrt(n) / size if size > 0 else 0.0)
