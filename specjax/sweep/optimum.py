"""The optimum of a scalar at each size, a learning rate at each width say, and the power of the size that it follows.

The curve is the mean over seeds against the scalar. Its least point on the grid and the two neighbours of that point lie on one
parabola in the logarithm of the scalar, and the vertex of it is the optimum. Whole seeds are resampled, all sizes and all points of the
grid together, and the least point is chosen anew each time. So the interval is that of the optimum of the mean, which is what one who
tunes a scalar once for all seeds wants; the mean of the optima of single seeds is another number.

A curve is no parabola. How far that may move the optimum is told by five other parabolas: through three points of which the middle one
is a neighbour of the least, and all three of the logarithms of the means, which have the same least point. An interval reaches over
their vertices as well, between the neighbours of the least point. Of the exponent the same is asked with one kind of parabola at all
sizes: what moves all optima alike moves no exponent.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int

from specjax.sweep import bootstrap
from specjax.sweep.bootstrap import Sample, check_level, check_resamples, degrees_of_freedom, resample, tail_of
from specjax.sweep.replicates import present, replicate_dim

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Place = Literal["inside", "smallest", "largest", "beside divergence"]
"""Where the least point lies: inside of the grid, at an end of it, or next to a point at which some seed is not finite."""
_LEAST_GRID = 3


@dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """The scalar `over` of least `name` at each size `dim`, and the exponent of its power law in the size; prints in one line.

    Attributes:
        sizes: The sizes, ascending.
        optima: The optimum at each; NaN where the least point is an end of the grid.
        intervals: Their intervals at `level`, longer by what other parabolas say; open (0 or inf) to the side of an end of the grid.
        minima: The least mean on the grid, at the point `best`.
        places: Where the least point of each size lies. An end of the grid that is the least point of more resamples than an interval
            leaves out counts as one.
        best: The least points, as places on the grid.
        grid: The values of the scalar, ascending.
        means: The means at each size and point, with `stderrs` of them; NaN where a seed is not finite.
        failed: How many seeds are not finite at each size and point.
        exponent: Of the optimum in the size, by least squares in logarithms with equal weights, over the sizes that have one; NaN where
            fewer than two do.
        stderr: Its bootstrap standard error.
        shift: How far other parabolas move it.
        interval: Its bootstrap interval at `level`, longer by `shift` at both ends.
        level: Coverage of the bootstrap's part of the intervals.
        resampled: What was drawn in each resample, such as "8 seeds".
        name: The name of the data; `over` and `dim` are those of the scalar and the size.
        over: See `name`.
        dim: See `name`.
        labels: What a picture has on its axes: the scalar and the data, with their units.
    """

    sizes: Float[np.ndarray, " n"]
    optima: Float[np.ndarray, " n"]
    intervals: Float[np.ndarray, "n 2"]
    minima: Float[np.ndarray, " n"]
    places: tuple[Place, ...]
    best: Int[np.ndarray, " n"]
    grid: Float[np.ndarray, " points"]
    means: Float[np.ndarray, "n points"]
    stderrs: Float[np.ndarray, "n points"]
    failed: Int[np.ndarray, "n points"]
    exponent: float
    stderr: float
    shift: float
    interval: tuple[float, float]
    level: float
    resampled: str
    name: str
    over: str
    dim: str
    labels: tuple[str, str]

    @property
    def largest_finite(self) -> Float[np.ndarray, " n"]:
        """The largest value of the scalar, at each size, at which no seed fails and at no smaller one."""
        whole = np.cumsum(self.failed, axis=1) == 0
        return np.where(whole.any(axis=1), self.grid[np.maximum(whole.sum(axis=1) - 1, 0)], np.nan)

    def __repr__(self) -> str:
        low, high = self.interval
        told = f"{self.over} of least {self.name}: exponent {self.exponent:.3g} in {self.dim} ({low:.3g} to {high:.3g}, {self._noise})"
        left_out = [f"{size:g}" for size, place in zip(self.sizes, self.places, strict=True) if place in _ENDS]
        if left_out:
            told += f", without {self.dim} {', '.join(left_out)}, where it is an end of the grid"
        return told

    def table(self) -> str:
        """A line for each size: the optimum, its interval, the least mean, and where the least point lies."""
        rows = [[self.dim, self.over, "interval", self.name, "least point of the grid"]]
        for size, optimum, (low, high), least, place in zip(
            self.sizes, self.optima, self.intervals, self.minima, self.places, strict=True
        ):
            rows.append([f"{size:g}", f"{optimum:.3g}", f"{low:.3g} to {high:.3g}", f"{least:.4g}", _TOLD[place]])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join(line.rstrip() for line in lines)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws the means against the scalar, one curve for each size, with their optima and intervals; in `ax` or a new figure.

        Needs matplotlib, which is imported here.
        """
        from specjax.sweep.optimum_plot import draw_optimum

        return draw_optimum(self, ax)

    @property
    def _noise(self) -> str:
        moved = f" and a shift of {self.shift:.2f}"
        return (
            f"{100 * self.level:g} %, bootstrap of {self.resampled}" if self.stderr > 0 else "no seed noise"
        ) + moved


_ENDS: tuple[Place, ...] = ("smallest", "largest")
_TOLD: dict[Place, str] = {
    "inside": "inside",
    "smallest": "the smallest: a better one may lie below",
    "largest": "the largest: a better one may lie above",
    "beside divergence": "next to one that is not finite in some seed",
}


class _Curves(NamedTuple):
    """Values (n, points, replicates) on an ascending grid at ascending sizes, and which of the replicates there are."""

    sizes: Float[np.ndarray, " n"]
    grid: Float[np.ndarray, " points"]
    y: Float[np.ndarray, "n points replicates"]
    present: Bool[np.ndarray, "n points replicates"]

    @property
    def failed(self) -> Int[np.ndarray, "n points"]:
        return (self.present & ~np.isfinite(self.y)).sum(axis=2)


class _Vertices(NamedTuple):
    """Of each curve: its least point, the vertex there in log(scalar), and those of the other parabolas."""

    best: Int[np.ndarray, "*curves"]
    middle: Float[np.ndarray, "*curves"]
    others: Float[np.ndarray, "..."]


def optimum(
    data: xr.DataArray, over: str, dim: str, *, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Optimum:
    """Where the mean of `data` over seeds is least along `over`, at each size `dim`, and the power of the size that it follows.

    A point of the grid at which some seed is NaN or infinite is not taken for the best: who tunes would not take it. A least point at an
    end of the grid has no optimum, and its size is left out of the exponent. For where something is largest, pass it negated.

    Args:
        data: Dimensions exactly `over`, `dim` and "seed" or "batch"; e.g. `run(...)["loss"]`.
        over: The dimension of the scalar; its coordinate is positive, with at least 3 values, best in equal ratios.
        dim: The dimension of the size; its coordinate is positive.
        resamples: Bootstrap resamples of the seeds.
        level: Coverage of the bootstrap's part of the intervals.
        seed: Seed of the resampling.

    Raises:
        ValueError: other dimensions, fewer than 3 values of the scalar, a single seed, a coordinate that is not positive, or a size at
            which some seed is not finite at every value of the scalar.

    Warns:
        RoughFitWarning: fewer than 10 seeds or batches.
    """
    check_resamples(resamples)
    check_level(level)
    curves = _curves(data, over, dim)
    failed = curves.failed
    usable = failed == 0
    _check_some_finite(curves, usable, over, dim)
    sample = _sample(data, curves, usable, over)
    bootstrap.warn_if_few(sample, stacklevel=3)
    means, stderrs = sample.means_and_stderrs()
    resampled, _ = resample(sample, resamples, seed)

    log_grid = np.log(curves.grid)
    found = _vertices(log_grid, _on_grid(means[None], usable))
    drawn = _vertices(log_grid, _on_grid(resampled, usable))
    freedom = degrees_of_freedom(sample, resampled, drawn.middle)
    places = _places(found.best[0], drawn.best, usable, tail_of(level, freedom))
    known = np.array([place not in _ENDS for place in places])

    low, high = bootstrap.intervals(drawn.middle, freedom, level).T
    others = found.others[:, 0]
    low, high = np.minimum(low, others.min(axis=0)), np.maximum(high, others.max(axis=0))
    low = np.where([place == "smallest" for place in places], -np.inf, low)
    high = np.where([place == "largest" for place in places], np.inf, high)

    exponent, stderr, shift, interval = np.nan, np.nan, np.nan, (-np.inf, np.inf)
    if known.sum() > 1:
        slope = _slope(np.log(curves.sizes), known)
        exponent = float(found.middle[0] @ slope)
        shift = float(np.max(np.abs(others @ slope - exponent)))
        slopes = drawn.middle @ slope[:, None]
        of_slope = degrees_of_freedom(sample, resampled, slopes)
        ((lower, upper),) = bootstrap.intervals(slopes, of_slope, level)
        stderr, interval = float(bootstrap.standard_errors(slopes, of_slope)[0]), (lower - shift, upper + shift)
    grid_means, grid_stderrs = (_on_grid(part[None], usable)[0] for part in (means, stderrs))
    return Optimum(
        sizes=curves.sizes,
        optima=np.where(known, np.exp(found.middle[0]), np.nan),
        intervals=np.exp(np.stack([low, high], axis=1)),
        minima=grid_means.min(axis=1),
        places=tuple(places),
        best=found.best[0],
        grid=curves.grid,
        means=np.where(usable, grid_means, np.nan),
        stderrs=np.where(usable, grid_stderrs, np.nan),
        failed=failed,
        exponent=exponent,
        stderr=stderr,
        shift=shift,
        interval=(float(interval[0]), float(interval[1])),
        level=level,
        resampled=sample.resampled,
        name=sample.name,
        over=over,
        dim=dim,
        labels=(bootstrap.label(data[over], over), sample.label),
    )


def _vertices(x: Float[np.ndarray, " points"], y: Float[np.ndarray, "*curves points"]) -> _Vertices:
    """The vertices of every curve; inf stands for what is not finite, which no parabola passes through."""
    best = np.argmin(y, axis=-1)
    low, high = x[np.maximum(best - 1, 0)], x[np.minimum(best + 1, len(x) - 1)]
    middle = _vertex(x, y, best)
    beside = [_vertex(x, y, best + side) for side in (-1, 1)]
    sure = np.isfinite(middle)
    # Without a parabola about the least point, one beside it is the next best; at an end of the grid there is none.
    nearest = np.where(np.isfinite(beside[0]), beside[0], np.where(np.isfinite(beside[1]), beside[1], x[best]))
    inside = (best > 0) & (best < len(x) - 1)
    middle = np.where(sure, middle, np.where(inside, np.clip(nearest, low, high), x[best]))
    positive = (y > 0).all(axis=-1, keepdims=True)
    logs = np.log(np.where(positive, y, 1.0))
    beside += [_vertex(x, logs, best + side) for side in (-1, 0, 1)]
    others = [np.clip(np.where(np.isfinite(vertex), vertex, middle), low, high) for vertex in beside]
    # Then nothing says where between its neighbours the optimum lies.
    others[0], others[1] = np.where(sure, others[0], low), np.where(sure, others[1], high)
    return _Vertices(best, middle, np.stack(others))


def _vertex(
    x: Float[np.ndarray, " points"], y: Float[np.ndarray, "*curves points"], place: Int[np.ndarray, "*curves"]
) -> Float[np.ndarray, "*curves"]:
    """The vertex of the parabola through a point and its neighbours; NaN where it has none."""
    exists = (place >= 1) & (place <= len(x) - 2)
    middle = np.clip(place, 1, len(x) - 2)
    (x0, x1, x2), (y0, y1, y2) = (
        [x[middle + side] for side in (-1, 0, 1)],
        [np.take_along_axis(y, (middle + side)[..., None], axis=-1)[..., 0] for side in (-1, 0, 1)],
    )
    exists = exists & np.isfinite(y0) & np.isfinite(y1) & np.isfinite(y2)
    y0, y1, y2 = (np.where(exists, part, 0.0) for part in (y0, y1, y2))
    rise, next_rise = (y1 - y0) / (x1 - x0), (y2 - y1) / (x2 - x1)
    bend = (next_rise - rise) / (x2 - x0)
    convex = exists & (bend > 0)
    at = (x0 + x1) / 2 - rise / (2 * np.where(convex, bend, 1.0))
    return np.where(convex, at, np.nan)


def _places(
    best: Int[np.ndarray, " n"],
    drawn: Int[np.ndarray, "resamples n"],
    usable: Bool[np.ndarray, "n points"],
    tails: Float[np.ndarray, " n"],
) -> list[Place]:
    places: list[Place] = []
    last = usable.shape[1] - 1
    for size, place in enumerate(best):
        smallest, largest = np.mean(drawn[:, size] == 0), np.mean(drawn[:, size] == last)
        if place == 0 or (place != last and smallest > max(largest, tails[size])):
            places.append("smallest")
        elif place == last or largest > tails[size]:
            places.append("largest")
        else:
            places.append("inside" if usable[size, place - 1 : place + 2].all() else "beside divergence")
    return places


def _slope(x: Float[np.ndarray, " n"], known: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """The weights of least squares: their sum with y is the slope over the `known` x."""
    centered = np.where(known, x - x[known].mean(), 0.0)
    weights: Float[np.ndarray, " n"] = centered / np.sum(centered**2)
    return weights


def _curves(data: xr.DataArray, over: str, dim: str) -> _Curves:
    if not isinstance(data, xr.DataArray):
        raise ValueError(
            f"An optimum is one of a single quantity, such as data['loss'], got a {type(data).__name__}; pass a DataArray."
        )
    replicate = replicate_dim(data)
    if sorted(map(str, data.dims)) != sorted([over, dim, replicate]):
        raise ValueError(
            f"An optimum over {over!r} at each {dim!r} needs exactly the dimensions ({over!r}, {dim!r}, 'seed'), or 'batch' in place of "
            f"'seed', got {tuple(data.dims)}; select or average the others first."
        )
    if data.sizes[over] < _LEAST_GRID:
        raise ValueError(
            f"An optimum needs at least {_LEAST_GRID} values of {over!r}, or none lies inside, got {data.sizes[over]}; sweep more."
        )
    data = data.sortby([over, dim])
    sizes, grid = (np.asarray(data[name].values, np.float64) for name in (dim, over))
    for name, values in ((dim, sizes), (over, grid)):
        if not (np.isfinite(values).all() and (values > 0).all()):
            raise ValueError(
                f"Optima are sought in logarithms, which need positive {name!r}, got {values.tolist()}; leave the others out."
            )
    y = data.transpose(dim, over, replicate).values.astype(np.float64)
    there = present(data, replicate)
    found = np.ones(y.shape, bool)
    if there is not None:
        found = there.broadcast_like(data).transpose(dim, over, replicate).values
    return _Curves(sizes, grid, y, found)


def _check_some_finite(curves: _Curves, usable: Bool[np.ndarray, "n points"], over: str, dim: str) -> None:
    if usable.any(axis=1).all():
        return
    nowhere = ", ".join(f"{size:g}" for size in curves.sizes[~usable.any(axis=1)])
    held = [
        f"{curves.grid[line].max():g} at {dim} {size:g}"
        for line, size in zip(usable, curves.sizes, strict=True)
        if line.any()
    ]
    raise ValueError(
        f"At {dim} {nowhere} some seed is NaN or infinite at every {over!r} from {curves.grid[0]:g} to {curves.grid[-1]:g}; sweep other "
        f"values (the largest at which no seed is: {', '.join(held) or 'none'})."
    )


def _sample(data: xr.DataArray, curves: _Curves, usable: Bool[np.ndarray, "n points"], over: str) -> Sample:
    """The usable points of all sizes as those of one sample, so that they are resampled together."""
    fewest = int(curves.present[usable].sum(axis=1).min())
    replicate = replicate_dim(data)
    if fewest < 2:
        raise ValueError(f"The interval of an optimum needs at least 2 seeds, got {fewest}; run more seeds.")
    name = "data" if data.name is None else str(data.name)
    there = curves.present[usable]
    return Sample(
        name=name,
        dim=over,
        label=bootstrap.label(data, name),
        dim_label=bootstrap.label(data[over], over),
        x=np.broadcast_to(curves.grid, usable.shape)[usable],
        y=np.where(there, curves.y[usable], 0.0),
        present=there,
        replicate=replicate,
    )


def _on_grid(
    values: Float[np.ndarray, "sets usable"], usable: Bool[np.ndarray, "n points"]
) -> Float[np.ndarray, "sets n points"]:
    """The values at the usable points in their places, inf at the others."""
    whole = np.full((len(values), *usable.shape), np.inf)
    whole[:, usable] = values
    return whole
