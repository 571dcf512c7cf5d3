"""The optimum of a scalar at each size, e.g. a learning rate at each width, and its power law.

The curve is the mean over seeds against the scalar. Its least point on the grid and the two
neighbours of that point lie on one parabola in the logarithm of the scalar, whose vertex is the
optimum. Whole seeds are resampled, all sizes and all points of the grid together, and the least
point is chosen anew each time. So the interval is that of the optimum of the mean, the right one
for a scalar tuned once for all seeds; the mean of the optima of single seeds is another number.

A curve is not exactly a parabola. Five other parabolas bound how far that may move the optimum:
through three points of which the middle one is a neighbour of the least, and all three of the
logarithms of the means, which have the same least point. An interval reaches over their vertices as
well, between the neighbours of the least point. The exponent is treated alike, with one kind of
parabola at all sizes: a common shift of all optima does not move the exponent.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int, Shaped

from specjax.arguments import checked_but
from specjax.fits import _resampling
from specjax.fits._resampling import (
    ROUNDING,
    Sample,
    degrees_of_freedom,
    describe_noise,
    format_interval,
    resample,
    sample_over,
    tail_of,
)

Place = Literal["inside", "smallest", "largest", "beside divergence"]
"""Where the least point lies: inside, at an end, or next to a point that some seed lacks."""
_ENDS: tuple[Place, ...] = ("smallest", "largest")
_IN_WORDS: dict[Place, str] = {
    "inside": "inside",
    "smallest": "the smallest: a better one may lie below",
    "largest": "the largest: a better one may lie above",
    "beside divergence": "next to one that is not finite in some seed",
}
_LEVEL = 0.95
_PARTS = 10


@dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """The scalar `over` of least `name` at each size `dim`, and its exponent in the size; prints in
    one line.

    At each of the `sizes`, ascending: `optima` and their 95 % `intervals`, lengthened by other
    parabolas; NaN, and open (0 or inf) to that side, if the least point is an end of the grid;
    `minima`, the least means on the grid, at its points `best`; and `places`, where those lie. An
    end of the grid that is the least point of more resamples than an interval leaves out counts as
    one. `means`, with their `stderrs`, are those at each size and value of the scalar on the
    `grid`, ascending; NaN if a seed is not finite.

    `exponent` is that of the optimum in the size, by least squares in logarithms with equal
    weights, over the sizes that have one; NaN if fewer than two do. `stderr` is its bootstrap
    standard error, `shift` the largest move by other parabolas, and `interval` its 95 % bootstrap
    interval, longer by `shift` at both ends. `labels` are those of scalar and data with their
    units.

    The mean at a point that is chosen and judged by the same seeds is too low. So `values` are
    means at points that are chosen without the seeds that judge them, a tenth of all at a time, and
    `biases` are the minima less the values. `value_exponent`, with its 95 % interval
    `value_interval`, is that of the values in the size, over the same sizes; NaN if one is not
    positive.
    """

    sizes: Float[np.ndarray, " n"]
    optima: Float[np.ndarray, " n"]
    intervals: Float[np.ndarray, "n 2"]
    minima: Float[np.ndarray, " n"]
    values: Float[np.ndarray, " n"]
    biases: Float[np.ndarray, " n"]
    value_exponent: float
    value_interval: tuple[float, float]
    places: tuple[Place, ...]
    best: Int[np.ndarray, " n"]
    grid: Float[np.ndarray, " points"]
    means: Float[np.ndarray, "n points"]
    stderrs: Float[np.ndarray, "n points"]
    exponent: float
    stderr: float
    shift: float
    interval: tuple[float, float]
    resampled: str
    name: str
    over: str
    dim: str
    labels: tuple[str, str]

    def __repr__(self) -> str:
        if np.isnan(self.exponent):
            return (
                f"{self.over} of least {self.name}: no exponent in {self.dim}, since fewer than two"
                f" sizes have their least point inside of the grid from {self.grid[0]:g} to"
                f" {self.grid[-1]:g}; sweep beyond its ends"
            )
        low, high = self.interval
        noise = describe_noise(self.stderr, _LEVEL, self.resampled)
        noise = f"{noise} and a shift of {self.shift:.2f}"
        exponent = format_interval(self.exponent, low, high, noise, rounding=ROUNDING)
        exponent = exponent.replace(" (", f" in {self.dim} (", 1)
        pairs = zip(self.sizes, self.places, strict=True)
        without = value = ""
        if left_out := [f"{size:g}" for size, place in pairs if place in _ENDS]:
            without = f", without {self.dim} {', '.join(left_out)}, where it is an end of the grid"
        if not np.isnan(self.value_exponent):
            found = format_interval(self.value_exponent, *self.value_interval, rounding=ROUNDING)
            value = f"; {self.name} there: exponent {found}"
        return f"{self.over} of least {self.name}: exponent {exponent}{without}{value}"

    def table(self) -> str:
        """A line for each size: optimum, interval, least mean, and place of the least point."""
        rows = [[self.dim, self.over, "interval", self.name, "least point of the grid"]]
        columns = self.sizes, self.optima, self.intervals, self.minima, self.places
        for size, optimum, (low, high), least, place in zip(*columns, strict=True):
            interval = f"{low:.3g} to {high:.3g}"
            rows.append([f"{size:g}", f"{optimum:.3g}", interval, f"{least:.4g}", _IN_WORDS[place]])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        ]
        return "\n".join(line.rstrip() for line in lines)


@checked_but("data")
def optimum(data: xr.DataArray, over: str, dim: str) -> Optimum:
    """Find where the mean of `data` is least along `over` at each size `dim`, and its power law.

    The mean is over seeds. A point of the grid at which some seed is NaN or infinite is never the
    best. A least point at an end of the grid has no optimum, and its size is left out of the
    exponent. To maximize, pass the negated data.

    Args:
        data: Dimensions exactly `over`, `dim` and "seed" or "batch"; e.g. `run(...)["loss"]`.
        over: The dimension of the scalar; its coordinate is positive, with at least 3 values, best
            in equal ratios.
        dim: The dimension of the size; its coordinate is positive.

    Raises:
        ValueError: other dimensions, fewer than 3 values of the scalar, a single seed, a coordinate
            that is not positive, or a size at which some seed is not finite at every value of the
            scalar.

    Warns:
        RoughFitWarning: fewer than 10 seeds or batches.

    Examples:
        >>> from specjax import fits
        >>> d, rate = np.array([8.0, 16.0, 32.0, 64.0]), 2.0 ** np.arange(-8, 1)
        >>> noise = np.random.default_rng(0).normal(0, 0.1, (20, 4, 9))
        >>> loss = np.log(np.outer(d, rate)) ** 2 + noise
        >>> data = xr.DataArray(loss, dims=("seed", "d", "rate"), coords={"d": d, "rate": rate})
        >>> round(fits.optimum(data, over="rate", dim="d").exponent, 1)
        -1.0
    """
    points = sample_over(data, dim, over, least=3)
    sizes, grid = (np.sort(data[name].values.astype(np.float64)) for name in (dim, over))
    usable = (np.isfinite(points.y).all(axis=1)).reshape(len(sizes), len(grid))
    _check_some_finite(usable, sizes, grid, over, dim)
    # The points of all sizes at which every seed is finite, as one sample, to be resampled
    # together.
    sample = points.select(usable.ravel())
    _resampling.warn_if_few(sample, stacklevel=4)
    means, stderrs = sample.means_and_stderrs()
    resampled, _ = resample(sample, 1000, 0)

    grid_means, sampled_means = _on_grid(means, usable), _on_grid(resampled, usable)
    best, middle, others = _vertices(np.log(grid), grid_means)
    sampled_best, sampled, _ = _vertices(np.log(grid), sampled_means)
    freedom = degrees_of_freedom(sample, resampled, sampled)
    places = _places(best, sampled_best, usable, tail_of(_LEVEL, freedom))
    known = ~np.isin(places, _ENDS)

    low, high = _resampling.intervals(sampled, freedom, _LEVEL)[1].T
    low, high = np.minimum(low, others.min(axis=0)), np.maximum(high, others.max(axis=0))
    low = np.where(places == "smallest", -np.inf, low)
    high = np.where(places == "largest", np.inf, high)

    exponent, stderr, shift, interval = np.nan, np.nan, np.nan, (-np.inf, np.inf)
    if known.sum() > 1:
        weights = _slope_weights(sizes, known)
        exponent = float(middle @ weights)
        shift = float(np.max(np.abs(others @ weights - exponent)))
        stderr, (lower, upper) = _interval(sampled @ weights, sample, resampled)
        interval = lower - shift, upper + shift
    minima, values = grid_means.min(axis=1), _judged_by_others(sample, usable)
    value_exponent, value_interval = _power(
        sizes, values, sampled_means.min(axis=2), known, sample, resampled
    )
    grid_stderrs = _on_grid(stderrs, usable)
    return Optimum(
        sizes=sizes,
        optima=np.where(known, np.exp(middle), np.nan),
        intervals=np.exp(np.stack([low, high], axis=1)),
        minima=minima,
        values=values,
        biases=minima - values,
        value_exponent=value_exponent,
        value_interval=value_interval,
        places=tuple(places.tolist()),
        best=best,
        grid=grid,
        means=np.where(usable, grid_means, np.nan),
        stderrs=np.where(usable, grid_stderrs, np.nan),
        exponent=exponent,
        stderr=stderr,
        shift=shift,
        interval=interval,
        resampled=sample.resampled,
        name=sample.name,
        over=over,
        dim=dim,
        labels=sample.labels,
    )


def _judged_by_others(
    sample: Sample, usable: Bool[np.ndarray, "n points"]
) -> Float[np.ndarray, " n"]:
    """The mean of seeds at the best point of the other seeds, over at most ten parts."""
    parts = min(_PARTS, int(sample.counts.min()))
    part = np.arange(sample.y.shape[1]) % parts
    total, count = sample.y.sum(axis=1), sample.counts
    found, judged, rows = np.zeros(len(usable)), np.zeros(len(usable)), np.arange(len(usable))
    for each in range(parts):
        own, number = (values[:, part == each].sum(axis=1) for values in (sample.y, sample.present))
        others = (total - own) / np.maximum(count - number, 1)
        best = np.argmin(_on_grid(others, usable), axis=1)
        # A point without a seed of the part is judged by none.
        found += np.where(usable, _on_grid(own, usable), 0.0)[rows, best]
        judged += np.where(usable, _on_grid(number.astype(float), usable), 0.0)[rows, best]
    return found / np.maximum(judged, 1)


def _slope_weights(
    sizes: Float[np.ndarray, " n"], known: Bool[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """Weights whose sum with y is the least-squares slope of y over log size, at known sizes."""
    centered = np.where(known, np.log(sizes) - np.log(sizes)[known].mean(), 0.0)
    return centered / np.sum(centered**2)


def _interval(
    slopes: Float[np.ndarray, " resamples"],
    sample: Sample,
    resampled: Float[np.ndarray, "resamples usable"],
) -> tuple[float, tuple[float, float]]:
    """The standard error of a slope and its interval."""
    column = slopes[:, None]
    freedom = degrees_of_freedom(sample, resampled, column)
    (stderr,), ((low, high),) = (
        part.tolist() for part in _resampling.intervals(column, freedom, _LEVEL)
    )
    return stderr, (low, high)


def _power(
    sizes: Float[np.ndarray, " n"],
    values: Float[np.ndarray, " n"],
    sampled: Float[np.ndarray, "resamples n"],
    known: Bool[np.ndarray, " n"],
    sample: Sample,
    resampled: Float[np.ndarray, "resamples usable"],
) -> tuple[float, tuple[float, float]]:
    """The exponent of values in the known sizes, and its interval.

    The interval is the spread of resampled minima about their mean. These are too low by choosing
    anew, which their mean removes.
    """
    if known.sum() < 2 or not (values[known] > 0).all() or not (sampled[:, known] > 0).all():
        return np.nan, (-np.inf, np.inf)
    weights = _slope_weights(sizes, known)
    exponent = float(np.log(np.where(known, values, 1.0)) @ weights)
    slopes = np.log(np.where(known, sampled, 1.0)) @ weights
    return exponent, _interval(slopes - slopes.mean() + exponent, sample, resampled)[1]


def _vertices(
    x: Float[np.ndarray, " points"], y: Float[np.ndarray, "*curves points"]
) -> tuple[Int[np.ndarray, "*curves"], Float[np.ndarray, "*curves"], Float[np.ndarray, "..."]]:
    """The least point of each curve, its vertex, and those of the other parabolas."""
    best = np.argmin(y, axis=-1)
    low, high = x[np.maximum(best - 1, 0)], x[np.minimum(best + 1, len(x) - 1)]
    middle = _vertex(x, y, best)
    beside = [_vertex(x, y, best + side) for side in (-1, 1)]
    sure = np.isfinite(middle)
    # Without a parabola about the least point, one beside it is the next best; at an end of the
    # grid there is none.
    nearest = np.where(
        np.isfinite(beside[0]), beside[0], np.where(np.isfinite(beside[1]), beside[1], x[best])
    )
    inside = (best > 0) & (best < len(x) - 1)
    middle = np.where(sure, middle, np.where(inside, np.clip(nearest, low, high), x[best]))
    positive = (y > 0).all(axis=-1, keepdims=True)
    logs = np.log(np.where(positive, y, 1.0))
    beside += [_vertex(x, logs, best + side) for side in (-1, 0, 1)]
    others = [
        np.clip(np.where(np.isfinite(vertex), vertex, middle), low, high) for vertex in beside
    ]
    # Without one, the optimum may lie anywhere between its neighbours.
    others[0], others[1] = np.where(sure, others[0], low), np.where(sure, others[1], high)
    return best, middle, np.stack(others)


def _vertex(
    x: Float[np.ndarray, " points"],
    y: Float[np.ndarray, "*curves points"],
    place: Int[np.ndarray, "*curves"],
) -> Float[np.ndarray, "*curves"]:
    """The vertex of the parabola through a point and its neighbours; NaN if it has none."""
    middle = np.clip(place, 1, len(x) - 2)
    x0, x1, x2 = (x[middle + side] for side in (-1, 0, 1))
    ys = [np.take_along_axis(y, (middle + side)[..., None], axis=-1)[..., 0] for side in (-1, 0, 1)]
    exists = (place == middle) & np.isfinite(ys).all(axis=0)
    y0, y1, y2 = (np.where(exists, part, 0.0) for part in ys)
    rise, next_rise = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    bend = (next_rise - rise) / (x2 - x0)
    convex = exists & (bend > 0)
    at = (x0 + x1) / 2 - rise / (2 * np.where(convex, bend, 1.0))
    return np.where(convex, at, np.nan)


def _places(
    best: Int[np.ndarray, " n"],
    sampled: Int[np.ndarray, "resamples n"],
    usable: Bool[np.ndarray, "n points"],
    tails: Float[np.ndarray, " n"],
) -> Shaped[np.ndarray, " n"]:
    last = usable.shape[1] - 1
    smallest, largest = (np.mean(sampled == end, axis=0) for end in (0, last))
    below = (best == 0) | ((best != last) & (smallest > np.maximum(largest, tails)))
    above = (best == last) | (largest > tails)
    beside = np.clip(best, 1, last - 1)[:, None] + np.arange(-1, 2)
    finite = np.take_along_axis(usable, beside, axis=1).all(axis=1)
    return np.select([below, above, finite], ["smallest", "largest", "inside"], "beside divergence")


def _check_some_finite(
    usable: np.ndarray, sizes: np.ndarray, grid: np.ndarray, over: str, dim: str
) -> None:
    some = usable.any(axis=1)
    if not some.all():
        nowhere = ", ".join(f"{size:g}" for size in sizes[~some])
        held = [f"{grid[usable[i]].max():g} at {dim} {sizes[i]:g}" for i in np.flatnonzero(some)]
        raise ValueError(
            f"At {dim} {nowhere} some seed is NaN or infinite at every {over!r} from {grid[0]:g} to"
            f" {grid[-1]:g}; sweep other values (the largest at which no seed is:"
            f" {', '.join(held) or 'none'})."
        )


def _on_grid(
    values: Float[np.ndarray, "*sets usable"], usable: Bool[np.ndarray, "n points"]
) -> Float[np.ndarray, "*sets n points"]:
    """The values at the usable points in their places, inf at the others."""
    whole = np.full((*values.shape[:-1], *usable.shape), np.inf)
    whole[..., usable] = values
    return whole
