"""What draws say: an estimate at each point with its interval, which has one width everywhere in
the lab.

An interval leaves out as much as four standard deviations of a normal variable do, 6·10⁻⁵: with
hundreds of statements in a report a 95 % interval would miss some dozen true ones. For a mean it is
four standard errors to either side, more where draws are few, by Student's t, and more to the side
to which they are skewed; for a quantile it is made of two of the draws (order statistics), whatever
their law; for a share it is Clopper and Pearson's. So few draws make an interval wide, and a
statement inconclusive, never refuted.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from scipy import stats

from specjax import fits, sweep

STANDARD_ERRORS = 4.0
TAIL = float(stats.norm.sf(STANDARD_ERRORS))
"""What an interval leaves out at either end."""

Number = xr.DataArray | float | int
"""A number, or one for each point."""

Estimator = Literal["mean", "median", "log"] | tuple[Literal["quantile"], float]
"""What is estimated of a law by its draws.

"log" is the geometric mean; `("quantile", 0.9)` is the value below which nine draws in ten lie.
"""

_NO_DIMENSIONS = (
    "Give draws as a DataArray with the dimension 'seed' (or 'batch'), as sweep.run returns them"
)


@dataclass(frozen=True)
class Estimate:
    """Estimates with the ends of their intervals: three arrays with the dimensions and coordinates
    of the points.

    An end is infinite where the draws are too few to have one. `draws` is their number at the point
    with fewest.
    """

    value: xr.DataArray
    low: xr.DataArray
    high: xr.DataArray
    draws: int

    def contains(self, number: Number) -> xr.DataArray:
        """Whether a number lies in the interval, at each point."""
        compared = self._compared(number)
        return self._at_points(
            (self.low.variable <= compared) & (self.high.variable >= compared), number
        )

    def distance(self, number: Number) -> xr.DataArray:
        """How far a number is from the estimate at each point, in standard errors: 4 at either end
        of the interval.
        """
        compared = self._compared(number)
        value, low, high = self.value.variable, self.low.variable, self.high.variable
        half = xr.where(value <= compared, high - value, value - low)
        away = STANDARD_ERRORS * abs(value - compared) / half.where(half > 0, np.nextafter(0, 1))
        # Without noise a number is the estimate or infinitely far from it.
        return self._at_points(xr.where(value == compared, 0.0, away), number)

    def _compared(self, number: Number) -> xr.Variable:
        """A number at these points, without its labels: to match them in every operation takes
        longer than all else of a verdict.
        """
        self.require_points_of(number)
        return number.variable if isinstance(number, xr.DataArray) else xr.Variable((), number)

    def _at_points(self, found: xr.Variable, number: Number) -> xr.DataArray:
        """With the labels of the points again, and with those of the number in dimensions that it
        has besides.
        """
        points = self.value
        if isinstance(number, xr.DataArray) and not set(found.dims) <= set(points.dims):
            points, _ = xr.broadcast(points, number)
        return points.copy(deep=False, data=found.transpose(*points.dims).values)

    def require_points_of(self, number: Number) -> None:
        """Raises ValueError for numbers at other points: arithmetic would leave points out that
        only one of both has.
        """
        if not isinstance(number, xr.DataArray):
            return
        try:
            xr.align(self.value, number, join="exact", copy=False)
        except ValueError as error:
            raise ValueError(
                f"{self.value.name!r} is compared with numbers at other points"
                f" ({' '.join(str(error).split())}); take the coordinates of the data."
            ) from error


def require_number(number: Any, what: str) -> None:
    """Raises ValueError for a prediction that is no finite real number and no labelled array of
    them: an interval excludes NaN.
    """
    values = np.asarray(number.values if isinstance(number, xr.DataArray) else number)
    labelled = isinstance(number, xr.DataArray) or values.ndim == 0
    if not labelled or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise ValueError(
            f"{what} needs to be a finite number, or an xarray.DataArray of one for each point, got"
            f" {number!r}."
        )


def student(draws: int) -> float:
    """How many standard errors an interval of so many draws has to either side: four, and more
    where they are few (Student's t).
    """
    return float(stats.t.isf(TAIL, draws - 1))


def estimate(draws: xr.DataArray, by: Estimator = "mean") -> Estimate:
    """Estimates a law at each point from its draws along "seed", or its mean from those along
    "batch".

    Raises:
        ValueError: not draws, fewer than 2 of them, numbers that are not finite, or a quantile
            outside (0, 1).
    """
    dim = draw_dim(draws)
    fits.require_real(draws)
    if not np.isfinite(draws.values.astype(float)).all() and "seeds" not in draws.coords:
        failed = int((~np.isfinite(draws.values.astype(float))).sum())
        raise ValueError(
            f"{draws.name!r} has {failed} numbers that are not finite; say what they mean for the"
            " statement, or leave them out with sweep.without_failed."
        )
    if by == "mean":
        return _mean(draws)
    _require_single_draws(draws, f"The estimator {by!r}")
    if by == "log":
        return _geometric_mean(draws)
    q = 0.5 if by == "median" else by[1]
    if not 0 < q < 1:
        raise ValueError(
            f"A quantile needs to be between 0 and 1, got {q}; write e.g. ('quantile', 0.9)."
        )
    return _quantile(draws, dim, q)


def known(value: float, low: float, high: float, draws: int) -> Estimate:
    """An estimate of one number that was made otherwise, by a fit say."""
    return Estimate(xr.DataArray(value), xr.DataArray(low), xr.DataArray(high), draws)


def share(happened: xr.DataArray) -> Estimate:
    """The share of draws in which something happened, at each point, by Clopper and Pearson's
    interval.

    Raises:
        ValueError: not draws, or not truth values.
    """
    dim = draw_dim(happened)
    _require_single_draws(happened, "A share")
    if happened.dtype != bool:
        raise ValueError(
            f"A share is of draws that are true or false, got {happened.dtype}; compare"
            f" {happened.name!r} with something."
        )
    n = happened.sizes[dim]
    count = happened.sum(dim)
    low = xr.where(count > 0, stats.beta.ppf(TAIL, count.clip(min=1), n - count + 1), 0.0)
    high = xr.where(count < n, stats.beta.isf(TAIL, count + 1, (n - count).clip(min=1)), 1.0)
    return Estimate(count / n, low, high, n)


def draw_dim(draws: xr.DataArray) -> str:
    """The dimension of the draws: "seed", or "batch" where moments were streamed; raises ValueError
    where there is none.
    """
    if not isinstance(draws, xr.DataArray):
        raise ValueError(f"{_NO_DIMENSIONS}, not a {type(draws).__name__}.")
    for dim in ("seed", "batch"):
        if dim in draws.dims:
            return dim
    raise ValueError(
        f"{_NO_DIMENSIONS}; {draws.name!r} has the dimensions {tuple(map(str, draws.dims))}."
    )


def _mean(draws: xr.DataArray) -> Estimate:
    value, stderr = sweep.mean_and_stderr(draws)
    dim = draw_dim(draws)
    n = draws.sizes[dim] if "seeds" not in draws.coords else int(draws["seeds"].min())
    half = student(n)
    # Of skewed draws the mean is too small, or too large, where its standard error is too small as
    # well (Cornish and Fisher 1938).
    lengthened = (2 * half**2 + 1) / 6 * _skewness(draws - value, dim) / math.sqrt(n)
    low, high = half + np.maximum(-lengthened, 0), half + np.maximum(lengthened, 0)
    return Estimate(value, value - low * stderr, value + high * stderr, n)


def _skewness(deviations: xr.DataArray, dim: str) -> xr.DataArray:
    """The mean cube of deviations over the cube of their root mean square; 0 where all are
    equal.
    """
    size = abs(deviations).max(dim)
    unit = deviations / size.where(size > 0, 1.0)
    squares = (unit**2).mean(dim)
    return (unit**3).mean(dim) / squares.where(squares > 0, 1.0) ** 1.5


def _geometric_mean(draws: xr.DataArray) -> Estimate:
    """The exponential of the mean logarithm, with the ends of its interval."""
    if not bool((draws > 0).all()):
        raise ValueError(
            f"A mean logarithm needs positive draws, and {draws.name!r} has others; take"
            " by='median'."
        )
    logs = _mean(xr.ufuncs.log(draws.astype(float)))
    value, low, high = (xr.ufuncs.exp(part) for part in (logs.value, logs.low, logs.high))
    return Estimate(value.rename(draws.name), low, high, logs.draws)


def _require_single_draws(draws: xr.DataArray, what: str) -> None:
    """Raises ValueError for means of batches, which are no draws, and for widths with numbers of
    seeds of their own.
    """
    if "seed" not in draws.dims:
        raise ValueError(
            f"{what} is of single draws, and {draws.name!r} has means of batches; keep the seeds"
            " (reduce=None)."
        )
    if "seeds" in draws.coords:
        raise ValueError(
            f"{what} needs as many seeds at every point, and {draws.name!r} has numbers of its own;"
            " take the same number."
        )


def _quantile(draws: xr.DataArray, dim: str, q: float) -> Estimate:
    ordered = np.sort(draws.transpose(..., dim).values.astype(float), axis=-1)
    n = ordered.shape[-1]
    # At most `below` draws lie under the quantile, and at most n - above over it, but for a
    # probability TAIL each.
    below, above = int(stats.binom.ppf(TAIL, n, q)), int(stats.binom.isf(TAIL, n, q))
    frame = draws.isel({dim: 0}, drop=True).astype(float)
    low = ordered[..., below - 1] if below > 0 else np.full(ordered.shape[:-1], -np.inf)
    high = ordered[..., above] if above < n else np.full(ordered.shape[:-1], np.inf)
    value = np.quantile(ordered, q, axis=-1)
    return Estimate(frame.copy(data=value), frame.copy(data=low), frame.copy(data=high), n)
