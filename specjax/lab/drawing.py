"""Curves, bars and axes that figures share."""

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
"""Okabe and Ito's palette for colour-blind readers; several curves also differ in `MARKERS`."""
MARKERS = ("o", "s", "^", "D", "v", "P")
STYLE: dict[Any, Any] = {"axes.prop_cycle": cycler(color=COLORS)}
"""Matplotlib's settings for figures: the default colours."""

_APART = 0.09
"""Least distance of ticks, as a share of the axis, at which labels of three or four digits do not
overlap.
"""
_BESIDE = 0.2
"""Distance of points side by side, where labels are 1 apart."""
_LETTERS = 30
"""Labels with more letters in all are rotated, since they would overlap."""
_TICKS = 8
"""Largest number of points that all have a tick."""


def first_dim(values: xr.DataArray) -> str | None:
    """The horizontal axis: the first dimension with more than one point, or None."""
    return next((str(dim) for dim in values.dims if values.sizes[dim] > 1), None)


def words(name: str) -> str:
    """A name of data as words; an index after an underscore, as in V_L, stays."""
    return re.sub(r"(?<=[A-Za-z0-9]{2})[_.](?=[A-Za-z][A-Za-z0-9])", " ", name)


def draw_estimates(axes: Axes, found: Estimate, dim: str | None, scale: Number = 1.0) -> None:
    """Draw estimates over `scale` with their intervals against `dim`, a curve for each point of the
    other dimensions.
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
        axes.set(xlim=(-1, 1), xlabel=f"{found.samples} samples")
        return
    label_axis(axes, value[dim])


def label_axis(axes: Axes, along: xr.DataArray) -> None:
    """Name the x axis after a coordinate, with ticks at its points; it is logarithmic if they reach
    over a factor of eight.
    """
    axes.set_xlabel(words(str(along.name)))
    x = along.values
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
    """The ticks of x in view that are at least `least` of the axis apart, preferring those near
    zero.
    """
    places: dict[float | int, float] = {}
    for tick in sorted(ticks, key=abs):
        place = float(
            axes.transLimits.transform(axes.transScale.transform((tick, axes.get_ylim()[0])))[0]
        )
        if 0 <= place <= 1 and all(abs(place - other) >= least for other in places.values()):
            places[tick] = place
    return sorted(places)


def draw_power(axes: Axes, samples: xr.DataArray, dim: str, name: str | None = None) -> None:
    """Draw means against a size on logarithmic axes with the fitted power law, or the means alone
    if none can be fitted.

    A curve with a name, one of several, has a single entry in the legend.
    """
    try:
        fit = fits.fit_power_law(samples, dim)
        fits.draw_fit(replace(fit, name=name or words(fit.name)), axes)
        if name is not None:
            curve = axes.lines[-1]
            axes.containers[-1].set_label(f"{name}: {curve.get_label()}")
            curve.set_label("_")
        readable_decades(axes)
    except ValueError:
        draw_estimates(axes, estimate(samples), dim)
        axes.set_ylabel(str(name or samples.name or "mean"))


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
    """Draw means over seeds against `dim` on logarithmic axes, with bars of two standard errors
    (from 2 seeds on).
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
    samples: xr.DataArray,
    dim: str,
    curves: str,
    label: Callable[[Any], str],
    *,
    fmt: str = "-",
    per_curve: bool = False,
) -> None:
    """Draw means over seeds against `dim` with bars of two standard errors, a curve for each
    coordinate of `curves`.

    `label` names a coordinate. With `per_curve` x is multiplied by the coordinate: if that is a
    batch size and x are steps, then x are samples.
    """
    mean, stderr = sweep.mean_and_stderr(samples.astype(float))
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


def draw_beside(
    axes: Axes, samples: xr.DataArray, dim: str, curves: str, label: Callable[[Any], str]
) -> None:
    """Draw estimates with bars of four standard errors at each label of `dim`, those of the
    coordinates of `curves` side by side.
    """
    labels = samples[dim].values
    places = samples[curves].values
    for k, at in enumerate(places):
        found = estimate(samples.sel({curves: at}))
        axes.errorbar(
            np.arange(labels.size) + _BESIDE * (k - (places.size - 1) / 2),
            found.value,
            np.stack([found.value - found.low, found.high - found.value]),
            fmt=MARKERS[k % len(MARKERS)],
            color=COLORS[k % len(COLORS)],
            markersize=4,
            label=label(at),
        )
    axes.set_xticks(range(labels.size), labels)


def draw_predicted(
    axes: Axes,
    samples: xr.DataArray,
    predicted: xr.DataArray,
    along: str,
    curves: str,
    label: Callable[[Any], str],
) -> None:
    """Draw means over seeds against `along` with bars of four standard errors, and lines of the
    same colours through what is predicted, a curve for each coordinate of `curves`.

    `predicted` may have other coordinates along the axis, as a finer line does.
    """
    mean, stderr = sweep.mean_and_stderr(samples)
    for k, at in enumerate(mean[curves].values):
        y, bars, line = (part.isel({curves: k}) for part in (mean, 4 * stderr, predicted))
        color, marker = COLORS[k % len(COLORS)], MARKERS[k % len(MARKERS)]
        axes.errorbar(y[along], y, bars, fmt=marker, color=color, markersize=4, label=label(at))
        axes.plot(line[along], line, color=color)
    label_axis(axes, mean[along])
    axes.legend(fontsize="small")


def draw_panels(
    samples: xr.DataArray,
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
    """Draw `draw_curves` on logarithmic axes in a panel for each coordinate of `over`, titled by
    `titles`, with a shared y axis.

    With `ticks` every coordinate of `along` has a tick. The panels are returned by coordinate.
    """
    places = samples[over].values.tolist()
    drawn = Figure(figsize=(4.2 * len(places), 4), layout="constrained")
    panels = dict(zip(places, drawn.subplots(1, len(places), sharey=True), strict=True))
    for at, axes in panels.items():
        draw_curves(axes, samples.sel({over: at}), along, curves, label, fmt=fmt)
        log_axes(axes, samples[along].values if ticks else ())
        axes.set(xlabel=along, ylabel=ylabel, title=titles[at])
        axes.legend(fontsize="small")
    return drawn, panels


def draw_shares(axes: Axes, shares: xr.DataArray) -> None:
    """Draw a heat map of numbers from 0 to 1, rows by columns, with each number in its cell."""
    axes.imshow(shares, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (row, column), share in np.ndenumerate(shares.values):
        color = "white" if share > 0.6 else "black"
        axes.text(
            column, row, f"{share:.2g}", ha="center", va="center", fontsize="x-small", color=color
        )


def draw_slopes(
    axes: Axes, samples: xr.DataArray, dim: str, curves: str, exponents: Sequence[float]
) -> None:
    """Draw powers of `dim`, dashed, through the last mean of each of the first curves, in the
    colours of `draw_curves`.
    """
    mean = samples.astype(float).mean("seed")
    for k, exponent in enumerate(exponents):
        last, x = mean.isel({curves: k, dim: -1}).item(), mean[dim].values
        axes.plot(
            x, last * (x / x[-1]) ** exponent, "--", color=COLORS[k % len(COLORS)], linewidth=0.7
        )


def log_axes(axes: Axes, ticks: Sequence[float | int] | np.ndarray = ()) -> None:
    """Make the axes logarithmic, with these ticks of x only, if any are given."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    if len(ticks):
        axes.set_xticks(ticks, [tick_label(tick) for tick in ticks])
        axes.minorticks_off()
    readable_decades(axes)


def readable_decades(axes: Axes) -> None:
    """Label a logarithmic y axis of less than two decades with plain numbers."""
    low, high = axes.get_ylim()
    if axes.get_yscale() != "log" or high >= 100 * low:
        return
    subs = (1.0, 2.0, 5.0) if high > 4 * low else tuple(np.arange(1.0, 10.0))
    axes.yaxis.set_major_locator(LogLocator(subs=subs) if high > 2 * low else MaxNLocator(6))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def draw_band(
    axes: Axes, samples: xr.DataArray, dim: str, *, label: str, color: str, style: str = "-"
) -> None:
    """Draw medians over seeds against `dim`, and a band from the smallest to the largest."""
    axes.plot(samples[dim], samples.median("seed"), style, linewidth=1.2, color=color, label=label)
    axes.fill_between(
        samples[dim], samples.min("seed"), samples.max("seed"), color=color, alpha=0.15, linewidth=0
    )


def draw_line(
    axes: Axes, values: xr.DataArray, like: xr.DataArray, dim: str | None, *, label: str, color: str
) -> None:
    """Draw predicted values as dashed curves at the points of `like`, one for each point of the
    other dimensions.
    """
    for place, line in enumerate(_curves(values.broadcast_like(like).transpose(*like.dims), dim)):
        x = [0] if dim is None else like[dim].values
        # Lines between labels would have no meaning.
        style = "x--" if np.issubdtype(np.asarray(x).dtype, np.number) else "x"
        axes.plot(
            x, line, style, linewidth=1, markersize=4, color=color, label=None if place else label
        )


def _curves(values: xr.DataArray, dim: str | None) -> np.ndarray:
    """The values as rows, each along `dim`; single points are rows of one."""
    if dim is None:
        return values.values.reshape(-1, 1)
    return values.transpose(..., dim).values.reshape(-1, values.sizes[dim])
