"""Estimates of a law from its samples, with intervals of one width everywhere in the lab.

An interval covers as much as four standard deviations of a normal variable, all but 6·10⁻⁵: with
hundreds of statements in a report, 95 % intervals would miss some dozen true ones. The interval of
a mean is four standard errors to either side, more for few samples (Student's t), and more to the
side to which they are skewed. That of a quantile is made of two of the samples (order statistics),
for any law; that of a share is Clopper and Pearson's. So few samples make an interval wide and a
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
"""Probability that an interval leaves out at either end."""

SAMPLE_DIMS = ("seed", "batch")
"""Names of the dimension of samples: single ones, or means of batches."""

Number = xr.DataArray | float | int
"""A number, or one for each point."""

Estimator = Literal["mean", "median", "log"] | tuple[Literal["quantile"], float]
"""The estimated number of a law.

"log" is the geometric mean; `("quantile", 0.9)` is the value below which 90 % of samples lie.
"""

_NO_DIMENSIONS = (
    "Give samples as a DataArray with the dimension 'seed' (or 'batch'), as sweep.run returns them"
)


@dataclass(frozen=True)
class Estimate:
    """Estimates and the ends of their intervals: three arrays with the dimensions and coordinates
    of the points.

    An end is infinite if the samples are too few. `samples` is their number at the point with
    fewest.
    """

    value: xr.DataArray
    low: xr.DataArray
    high: xr.DataArray
    samples: int

    def contains(self, number: Number) -> xr.DataArray:
        """Whether a number lies in the interval, at each point."""
        compared = self._compared(number)
        return self._label_points(
            (self.low.variable <= compared) & (self.high.variable >= compared), number
        )

    def distance(self, number: Number) -> xr.DataArray:
        """Distance of a number from the estimate at each point, in standard errors: 4 at either end
        of the interval.
        """
        compared = self._compared(number)
        value, low, high = self.value.variable, self.low.variable, self.high.variable
        half = xr.where(value <= compared, high - value, value - low)
        away = STANDARD_ERRORS * abs(value - compared) / half.where(half > 0, np.nextafter(0, 1))
        # Without noise a number equals the estimate or is infinitely far from it.
        return self._label_points(xr.where(value == compared, 0.0, away), number)

    def _compared(self, number: Number) -> xr.Variable:
        """A number at these points, without its labels, whose matching takes longer than all else
        in a verdict.
        """
        self.require_points_of(number)
        return number.variable if isinstance(number, xr.DataArray) else xr.Variable((), number)

    def _label_points(self, found: xr.Variable, number: Number) -> xr.DataArray:
        """The values with the labels of the points, and of other dimensions of the number."""
        points = self.value
        if isinstance(number, xr.DataArray) and not set(found.dims) <= set(points.dims):
            points, _ = xr.broadcast(points, number)
        return points.copy(deep=False, data=found.transpose(*points.dims).values)

    def require_points_of(self, number: Number) -> None:
        """Raise ValueError for numbers at other points, which arithmetic would silently leave
        out.
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
    """Raise ValueError unless a prediction is a finite real number or a labelled array of them."""
    values = np.asarray(number.values if isinstance(number, xr.DataArray) else number)
    labelled = isinstance(number, xr.DataArray) or values.ndim == 0
    if not labelled or values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise ValueError(
            f"{what} needs to be a finite number, or an xarray.DataArray of one for each point, got"
            f" {number!r}."
        )


def student(samples: int) -> float:
    """Half-width of an interval in standard errors: four for many samples, more for few (Student's
    t).
    """
    return float(stats.t.isf(TAIL, samples - 1))


def estimate(samples: xr.DataArray, by: Estimator = "mean") -> Estimate:
    """Estimate a law at each point from its samples along "seed", or its mean from those along
    "batch".

    Raises:
        ValueError: not samples, fewer than 2 of them, numbers that are not finite, or a quantile
            outside (0, 1).
    """
    dim = sample_dim(samples)
    fits.require_real(samples)
    if not np.isfinite(samples.values.astype(float)).all() and "seeds" not in samples.coords:
        failed = int((~np.isfinite(samples.values.astype(float))).sum())
        raise ValueError(
            f"{samples.name!r} has {failed} numbers that are not finite; say what they mean for the"
            " statement, or leave them out with sweep.without_failed."
        )
    if by == "mean":
        return _mean(samples)
    _require_single_samples(samples, f"The estimator {by!r}")
    if by == "log":
        return _geometric_mean(samples)
    q = 0.5 if by == "median" else by[1]
    if not 0 < q < 1:
        raise ValueError(
            f"A quantile needs to be between 0 and 1, got {q}; write e.g. ('quantile', 0.9)."
        )
    return _quantile(samples, dim, q)


def known(value: float, low: float, high: float, samples: int) -> Estimate:
    """An estimate of one number with a given interval, such as one from a fit."""
    return Estimate(xr.DataArray(value), xr.DataArray(low), xr.DataArray(high), samples)


def share(happened: xr.DataArray) -> Estimate:
    """The share of samples that are true, at each point, with Clopper and Pearson's interval.

    Raises:
        ValueError: not samples, or not truth values.
    """
    dim = sample_dim(happened)
    _require_single_samples(happened, "A share")
    if happened.dtype != bool:
        raise ValueError(
            f"A share is of samples that are true or false, got {happened.dtype}; compare"
            f" {happened.name!r} with something."
        )
    n = happened.sizes[dim]
    count = happened.sum(dim)
    low = xr.where(count > 0, stats.beta.ppf(TAIL, count.clip(min=1), n - count + 1), 0.0)
    high = xr.where(count < n, stats.beta.isf(TAIL, count + 1, (n - count).clip(min=1)), 1.0)
    return Estimate(count / n, low, high, n)


def sample_dim(samples: xr.DataArray) -> str:
    """The dimension of the samples: "seed", or "batch" for streamed means; raises ValueError if
    there is neither.
    """
    if not isinstance(samples, xr.DataArray):
        raise ValueError(f"{_NO_DIMENSIONS}, not a {type(samples).__name__}.")
    for dim in SAMPLE_DIMS:
        if dim in samples.dims:
            return dim
    raise ValueError(
        f"{_NO_DIMENSIONS}; {samples.name!r} has the dimensions {tuple(map(str, samples.dims))}."
    )


def _mean(samples: xr.DataArray) -> Estimate:
    value, stderr = sweep.mean_and_stderr(samples)
    dim = sample_dim(samples)
    n = samples.sizes[dim] if "seeds" not in samples.coords else int(samples["seeds"].min())
    half = student(n)
    # For skewed samples the errors of the mean and of its standard error are correlated (Cornish
    # and Fisher 1938).
    lengthened = (2 * half**2 + 1) / 6 * _skewness(samples - value, dim) / math.sqrt(n)
    low, high = half + np.maximum(-lengthened, 0), half + np.maximum(lengthened, 0)
    return Estimate(value, value - low * stderr, value + high * stderr, n)


def sample_rows(values: xr.DataArray) -> np.ndarray:
    """The samples of an array as rows; one row if it has none."""
    dims = [dim for dim in SAMPLE_DIMS if dim in values.dims]
    rows = values.sizes[dims[0]] if dims else 1
    return values.transpose(*dims, ...).values.reshape(rows, -1)


def _skewness(deviations: xr.DataArray, dim: str) -> xr.DataArray:
    """The mean cube of deviations over the cube of their root mean square; 0 if all are equal."""
    size = abs(deviations).max(dim)
    unit = deviations / size.where(size > 0, 1.0)
    squares = unit * unit
    # NumPy takes a cube by its general power, twenty times as slowly as two products.
    spread = squares.mean(dim)
    return (squares * unit).mean(dim) / spread.where(spread > 0, 1.0) ** 1.5


def _geometric_mean(samples: xr.DataArray) -> Estimate:
    """The exponential of the mean logarithm, with the ends of its interval."""
    if not bool((samples > 0).all()):
        raise ValueError(
            f"A mean logarithm needs positive samples, and {samples.name!r} has others; take"
            " by='median'."
        )
    logs = _mean(xr.ufuncs.log(samples.astype(float)))
    value, low, high = (xr.ufuncs.exp(part) for part in (logs.value, logs.low, logs.high))
    return Estimate(value.rename(samples.name), low, high, logs.samples)


def _require_single_samples(samples: xr.DataArray, what: str) -> None:
    """Raise ValueError for means of batches, and for points with their own numbers of seeds."""
    if "seed" not in samples.dims:
        raise ValueError(
            f"{what} is of single samples, and {samples.name!r} has means of batches; keep the"
            " seeds (reduce=None)."
        )
    if "seeds" in samples.coords:
        raise ValueError(
            f"{what} needs as many seeds at every point, and {samples.name!r} has numbers of its"
            " own; take the same number."
        )


def _quantile(samples: xr.DataArray, dim: str, q: float) -> Estimate:
    ordered = np.sort(samples.transpose(..., dim).values.astype(float), axis=-1)
    n = ordered.shape[-1]
    # At most `below` samples lie under the quantile, and at most n - above over it, except with
    # probability TAIL each.
    below, above = int(stats.binom.ppf(TAIL, n, q)), int(stats.binom.isf(TAIL, n, q))
    frame = samples.isel({dim: 0}, drop=True).astype(float)
    low = ordered[..., below - 1] if below > 0 else np.full(ordered.shape[:-1], -np.inf)
    high = ordered[..., above] if above < n else np.full(ordered.shape[:-1], np.inf)
    value = np.quantile(ordered, q, axis=-1)
    return Estimate(frame.copy(data=value), frame.copy(data=low), frame.copy(data=high), n)
