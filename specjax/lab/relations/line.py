"""Lines: statements without a curve in a figure share an axis, one line each."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax.lab.drawing import COLORS, apart, first_dim
from specjax.lab.estimates import STANDARD_ERRORS, Estimate, Number

_SPREAD = 0.3
"""Vertical spread of the points of a line, in distances of lines."""
_LEAST = 4
"""Least number of lines for which a panel has room."""
_APART = 0.15
"""Least distance of ticks, as a share of the axis, at which labels such as -1000 do not overlap."""
_MOST = 1000.0
"""Standard errors drawn for all larger distances, such as infinite ones without noise."""


@dataclass(frozen=True)
class Line:
    """Estimates on an axis that several statements share, and their limit."""

    axis: str
    found: Estimate
    limit: float
    linear_to: float | None = None
    """The axis is linear up to here and logarithmic beyond; None if it is linear throughout."""
    ticks: tuple[float | int, ...] = ()
    """Places of ticks."""


def draw_lines(axes: Axes, lines: Mapping[str, Line]) -> None:
    """Draw the lines of one axis from top to bottom: estimates with their intervals, and a bar at
    the limit.
    """
    heights = range(len(lines), 0, -1)
    for height, line in zip(heights, lines.values(), strict=True):
        middle, low, high = (
            part.values.ravel() for part in (line.found.value, line.found.low, line.found.high)
        )
        places = height + (
            np.linspace(_SPREAD, -_SPREAD, middle.size) if middle.size > 1 else np.zeros(1)
        )
        bars = np.stack([middle - low, high - middle]).clip(0)
        axes.errorbar(
            middle,
            places,
            xerr=bars,
            fmt="o",
            markersize=3.5,
            capsize=1.5,
            linewidth=1,
            color=COLORS[0],
        )
        axes.plot([line.limit] * 2, [height - 0.45, height + 0.45], color="black", linewidth=1.2)
    # A few lines are drawn together in the middle.
    blank = max(_LEAST - len(lines), 0) / 2
    axes.set_yticks(heights, list(lines))
    axes.set(xlabel=line.axis, ylim=(0.4 - blank, len(lines) + 0.6 + blank))
    # The line that reaches farthest sets the shared axis.
    far = next(
        ((line.linear_to, line.ticks) for line in lines.values() if line.linear_to is not None),
        None,
    )
    if far is not None:
        linear_to, wanted = far
        axes.set_xscale("symlog", linthresh=linear_to, linscale=1.0)
        ends = [
            (float(line.found.low.min()), float(line.found.high.max()), line.limit)
            for line in lines.values()
        ]
        axes.set_xlim(2 * min(0.0, *map(min, ends)) - linear_to / 2, 2 * max(map(max, ends)))
        ticks = apart(axes, wanted, _APART)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], minor=False)
        axes.minorticks_off()


def has_curve(values: xr.DataArray) -> bool:
    """Whether a dimension of numbers has three points or more."""
    dim = first_dim(values)
    return (
        dim is not None
        and values.sizes[dim] > 2
        and bool(np.issubdtype(values[dim].dtype, np.number))
    )


def beyond(found: Estimate, threshold: Number, upper: bool) -> Line:
    """Standard errors of an estimate on the right side of a threshold, at most `_MOST`."""
    lead = (found.value - threshold) * (1 if upper else -1)
    half = xr.where((lead > 0) == upper, found.value - found.low, found.high - found.value)
    errors = (STANDARD_ERRORS * lead / half.where(half > 0, np.nextafter(0, 1))).clip(-_MOST, _MOST)
    return Line(
        "standard errors on the right side",
        Estimate(errors, errors, errors, found.samples),
        limit=STANDARD_ERRORS,
        linear_to=10.0,
        ticks=(-1000, -100, -10, 0, 10, 100, 1000),
    )
