"""The marks that figures share."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from specjax import fits, sweep
from specjax.fits.drawing import tick_label
from specjax.lab.estimates import Estimate, Number, estimate

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which colour-blind readers tell apart; where there are several curves, `MARKERS`
go with them.
"""
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLE: dict[Any, Any] = {"axes.prop_cycle": cycler(color=COLORS)}
"""Settings of Matplotlib under which figures are drawn: what no colour is chosen for has one of
these.
"""

_APART = 0.09
"""The least distance of ticks, as a share of the axis, at which numbers of three or four digits do
not touch.
"""
_LETTERS = 30
"""Labels of more letters, all together, would touch each other side by side."""
_TICKS = 8
"""Points of a dimension that all have a tick."""


def first_dim(values: xr.DataArray) -> str | None:
    """The dimension that becomes the horizontal axis: the first one of more than one point, None
    where there is none.
    """
    return next((str(dim) for dim in values.dims if values.sizes[dim] > 1), None)


def words(name: str) -> str:
    """A name of data as words; what an underscore makes an index of, as in V_L, stays."""
    return re.sub(r"(?<=[A-Za-z0-9]{2})[_.](?=[A-Za-z][A-Za-z0-9])", " ", name)


def draw_estimates(axes: Axes, found: Estimate, dim: str | None, scale: Number = 1.0) -> None:
    """Estimates with their intervals against `dim`, a curve for each of the other points, all over
    `scale`.
    """
    value, low, high = ((part / scale) for part in (found.value, found.low, found.high))
    for curve, (middle, lower, upper) in enumerate(
        zip(*(_curves(part, dim) for part in (value, low, high)), strict=True)
    ):
        x = [0] if dim is None else value[dim].values
        bars = [abs(middle - lower), abs(upper - middle)]
        axes.errorbar(
            x,
            middle,
            yerr=bars,
            fmt="o",
            capsize=2,
            markersize=4,
            color=COLORS[curve % len(COLORS)],
        )
    if dim is None:
        at = ", ".join(
            f"{words(str(name))} = {value[name].item()}"
            for name in value.dims
            if name in value.coords
        )
        axes.set_xticks([0], [at or "one estimate"])
        axes.set(xlim=(-1, 1), xlabel=f"{found.draws} draws")
        return
    axes.set_xlabel(words(dim))
    x = value[dim].values
    if not np.issubdtype(x.dtype, np.number):
        labels = [words(str(label)) for label in x]
        turned: dict[str, Any] = (
            {"rotation": 20, "ha": "right"} if sum(map(len, labels)) > _LETTERS else {}
        )
        axes.set_xticks(x, labels, **turned)
        return
    wide = x.min() > 0 and x.max() >= 8 * x.min()
    if wide:
        axes.set_xscale("log", base=2)
    if wide or x.size <= _TICKS:
        ticks = apart(axes, x.tolist(), _APART)
        axes.set_xticks(ticks, [tick_label(tick) for tick in ticks])
        axes.minorticks_off()


def apart(axes: Axes, ticks: Iterable[float | int], least: float) -> list[float | int]:
    """Of these ticks of x those in view that are as far apart as `least`, a share of the axis; the
    ones nearest to zero first.
    """
    places: dict[float | int, float] = {}
    for tick in sorted(ticks, key=abs):
        place = float(
            axes.transLimits.transform(axes.transScale.transform((tick, axes.get_ylim()[0])))[0]
        )
        if 0 <= place <= 1 and all(abs(place - other) >= least for other in places.values()):
            places[tick] = place
    return sorted(places)


def draw_power(axes: Axes, draws: xr.DataArray, dim: str, name: str | None = None) -> None:
    """Means against a size on logarithmic axes with the power law fitted to them, or the means
    alone where none can be fitted.

    A curve with a name, one of several, has a single entry in the legend.
    """
    try:
        fit = fits.fit_power_law(draws, dim)
        fits.draw_fit(replace(fit, name=name or words(fit.name)), axes)
        if name is not None:
            curve = axes.lines[-1]
            axes.containers[-1].set_label(f"{name}: {curve.get_label()}")
            curve.set_label("_")
        readable_decades(axes)
    except ValueError:
        draw_estimates(axes, estimate(draws), dim)
        axes.set_ylabel(str(name or draws.name or "mean"))


def draw_sweep(
    axes: Axes,
    data: xr.DataArray,
    dim: str,
    *,
    label: str,
    color: str,
    marker: str = "o",
    line: bool = False,
) -> None:
    """Means over seeds against `dim` on logarithmic axes, with bars of two standard errors (from 2
    seeds on).
    """
    mean, stderr = sweep.mean_and_stderr(data)
    x = data[dim].values
    style = marker + ("-" if line else "")
    axes.errorbar(
        x,
        mean,
        yerr=2 * stderr,
        fmt=style,
        markersize=5,
        capsize=2,
        linewidth=1,
        color=color,
        label=label,
    )
    log_axes(axes, x)


def draw_curves(
    axes: Axes,
    draws: xr.DataArray,
    dim: str,
    curves: str,
    label: Callable[[Any], str],
    *,
    fmt: str = "-",
    per_curve: bool = False,
) -> None:
    """Means over draws against `dim` with bars of two standard errors, a curve for each coordinate
    of `curves`.

    `label` names a coordinate. With `per_curve` x is multiplied by it: samples, where it is a batch
    and x are steps.
    """
    mean, stderr = sweep.mean_and_stderr(draws.astype(float))
    for k, at in enumerate(mean[curves].values):
        x = mean[dim].values * (at if per_curve else 1)
        y, bars = (part.isel({curves: k}).values for part in (mean, 2 * stderr))
        marker, color = MARKERS[k % len(MARKERS)], COLORS[k % len(COLORS)]
        axes.errorbar(
            x,
            y,
            bars,
            label=label(at),
            fmt=marker + fmt,
            color=color,
            capsize=2,
            markersize=4,
            linewidth=1,
        )


def draw_panels(
    draws: xr.DataArray,
    along: str,
    curves: str,
    label: Callable[[Any], str],
    titles: Mapping[Any, str],
    *,
    over: str,
    ylabel: str,
    ticks: bool = True,
    fmt: str = "-",
) -> tuple[Figure, dict[Any, Axes]]:
    """`draw_curves` on logarithmic axes in a panel for each coordinate of `over`, which `titles`
    name, side by side with one y axis.

    With `ticks` every coordinate of `along` has one. The panels are returned by coordinate, for
    what else belongs into them.
    """
    places = draws[over].values.tolist()
    drawn = Figure(figsize=(4.2 * len(places), 4), layout="constrained")
    panels = dict(zip(places, drawn.subplots(1, len(places), sharey=True), strict=True))
    for at, axes in panels.items():
        draw_curves(axes, draws.sel({over: at}), along, curves, label, fmt=fmt)
        log_axes(axes, draws[along].values if ticks else ())
        axes.set(xlabel=along, ylabel=ylabel, title=titles[at])
        axes.legend(fontsize="small")
    return drawn, panels


def draw_shares(axes: Axes, shares: xr.DataArray) -> None:
    """A heat map of numbers from 0 to 1, rows by columns, each written into its cell."""
    axes.imshow(shares, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (row, column), share in np.ndenumerate(shares.values):
        color = "white" if share > 0.6 else "black"
        axes.text(
            column, row, f"{share:.2g}", ha="center", va="center", fontsize="x-small", color=color
        )


def draw_slopes(
    axes: Axes, draws: xr.DataArray, dim: str, curves: str, exponents: Sequence[float]
) -> None:
    """Powers of `dim` through the last mean of each of the first curves, dashed, in the colours of
    `draw_curves`.
    """
    mean = draws.astype(float).mean("seed")
    for k, exponent in enumerate(exponents):
        last, x = mean.isel({curves: k, dim: -1}).item(), mean[dim].values
        axes.plot(
            x, last * (x / x[-1]) ** exponent, "--", color=COLORS[k % len(COLORS)], linewidth=0.7
        )


def log_axes(axes: Axes, ticks: Sequence[float | int] | np.ndarray = ()) -> None:
    """Logarithmic axes of what has been drawn, with these ticks of x, if there are any, and no
    others.
    """
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    if len(ticks):
        axes.set_xticks(ticks, [tick_label(tick) for tick in ticks])
        axes.minorticks_off()
    readable_decades(axes)


def readable_decades(axes: Axes) -> None:
    """Plain numbers on a logarithmic y axis of too few decades to be read by powers of ten."""
    low, high = axes.get_ylim()
    if axes.get_yscale() != "log" or high >= 100 * low:
        return
    subs = (1.0, 2.0, 5.0) if high > 4 * low else tuple(np.arange(1.0, 10.0))
    axes.yaxis.set_major_locator(LogLocator(subs=subs) if high > 2 * low else MaxNLocator(6))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_band(
    axes: Axes, draws: xr.DataArray, dim: str, *, label: str, color: str, style: str = "-"
) -> None:
    """Medians over seeds against `dim`, and a band from the least to the largest."""
    axes.plot(draws[dim], draws.median("seed"), style, linewidth=1.2, color=color, label=label)
    axes.fill_between(
        draws[dim], draws.min("seed"), draws.max("seed"), color=color, alpha=0.15, linewidth=0
    )


def draw_line(
    axes: Axes, values: xr.DataArray, like: xr.DataArray, dim: str | None, *, label: str, color: str
) -> None:
    """Predicted values as dashed curves over the points of `like`, one for each of the other
    points.
    """
    for place, line in enumerate(_curves(values.broadcast_like(like).transpose(*like.dims), dim)):
        x = [0] if dim is None else like[dim].values
        # Between labels there is nothing.
        style = "x--" if np.issubdtype(np.asarray(x).dtype, np.number) else "x"
        axes.plot(
            x, line, style, linewidth=1, markersize=4, color=color, label=None if place else label
        )


def _curves(values: xr.DataArray, dim: str | None) -> np.ndarray:
    """The values as rows, each along `dim`; single points are rows of one."""
    if dim is None:
        return values.values.reshape(-1, 1)
    return values.transpose(..., dim).values.reshape(-1, values.sizes[dim])
