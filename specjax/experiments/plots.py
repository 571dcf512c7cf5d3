"""Marks that several figures share: a sweep with error bars, a mean with its band, a closed form as a line, a slope in the legend."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, StrMethodFormatter

from specjax import sweep
from specjax.experiments.means import Mean

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's, which colour-blind readers tell apart; where there are several curves, `MARKERS` go with them."""
MARKERS = ("o", "s", "^", "D", "v", "P")


def draw_sweep(
    axes: Axes, data: xr.DataArray, dim: str, *, label: str, color: str, marker: str = "o", line: bool = False
) -> None:
    """Means over seeds against `dim` on logarithmic axes, with bars of two standard errors (from 2 seeds on)."""
    mean, stderr = sweep.mean_and_stderr(data)
    axes.errorbar(
        data[dim].values,
        mean,
        yerr=2 * stderr,
        fmt=marker + ("-" if line else ""),
        markersize=5,
        capsize=2,
        linewidth=1,
        color=color,
        label=label,
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    ticks = data[dim].values
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    label_short_range(axes)


def draw_mean(
    axes: Axes,
    x: Sequence[float] | np.ndarray,
    mean: Mean,
    style: str = "-",
    *,
    color: str,
    base: int | None = None,
    **line: Any,
) -> None:
    """Means over draws as a line, with a band of two standard errors; `line` has matplotlib's properties of lines.

    With `base` they are means of logarithms to that base, drawn as powers of it: geometric means.
    """
    middle, half = np.asarray(mean.mean), 2 * np.asarray(mean.stderr)
    curves = (middle, middle - half, middle + half)
    middle, low, high = curves if base is None else (float(base) ** curve for curve in curves)
    axes.plot(x, middle, style, color=color, **line)
    axes.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def label_short_range(axes: Axes) -> None:
    """Labels at 1, 2 and 5 of each decade where a logarithmic y axis has too few decades to be read by powers of ten."""
    low, high = axes.get_ylim()
    if high < 100 * low:
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def draw_closed_form(
    axes: Axes, x: Sequence[int] | np.ndarray, y: np.ndarray, *, color: str, label: str | None = None, style: str = "-"
) -> None:
    """A closed form as a line."""
    axes.plot(np.asarray(x), np.asarray(y), style, color=color, linewidth=1.2, label=label)


def slope_label(name: str, exponent: float, half_width: float) -> str:
    """`name`, slope 1.98 ± 0.03: what a legend says of a fit."""
    return f"{name}, slope {exponent:.2f} ± {half_width:.2f}"
