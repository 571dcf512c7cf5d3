"""Detect tails so heavy that a mean over replicates has no variance."""

import warnings

import numpy as np
from jaxtyping import Bool, Float

_FEWEST = 50  # replicates, of which the largest 7 are the tail


class HeavyTailWarning(UserWarning):
    """The largest replicates fall off so slowly that a mean over seeds has no standard error."""


def tail_index(
    y: Float[np.ndarray, "n replicates"], present: Bool[np.ndarray, "n replicates"]
) -> tuple[float, float] | None:
    """The power ξ of the growth n^ξ of the largest deviations from the median, and its standard
    error.

    None for few replicates. Hill's estimator (Hill 1975) of the √n largest of n, averaged over
    widths. At ξ of 1/2 and above a law has no variance, at 1 and above no mean. The standard error
    counts the widths as one, since they may move together.
    """
    n = int(present.sum(axis=1).min())
    if n < _FEWEST:
        return None
    k = int(np.sqrt(n))
    indices = []
    for row, there in zip(y, present, strict=True):
        tail = np.sort(np.abs(row[there] - np.median(row[there])))[-k - 1 :]
        if tail[0] > 0:
            indices.append(float(np.mean(np.log(tail[1:]) - np.log(tail[0]))))
    if not indices:
        return None
    index = float(np.mean(indices))
    return index, index / np.sqrt(k)


def warn_of_heavy_tails(
    y: Float[np.ndarray, "n replicates"],
    present: Bool[np.ndarray, "n replicates"],
    name: str,
    stacklevel: int,
) -> None:
    """Warn with a HeavyTailWarning if the tail index is above 1/2 by two standard errors."""
    found = tail_index(y, present) if np.isfinite(y).all() else None
    if found is None or found[0] - 2 * found[1] <= 0.5:
        return
    warnings.warn(
        f"The largest samples of {name!r} grow like (number of seeds)^{found[0]:.2g}, and from 1/2"
        " on a mean has no standard error; fit by='median' or by='log' (the geometric mean).",
        HeavyTailWarning,
        stacklevel=stacklevel,
    )
