"""The picture of an optimum: the mean against the scalar, one curve for each size, with the optima and their intervals."""

import numpy as np
from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from specjax.sweep.optimum import Optimum


def draw_optimum(found: Optimum, ax: Axes | None) -> Axes:
    """Draws `found` on logarithmic axes, in `ax` or a new figure; the y axis is linear where a mean is not positive.

    Bars of means are two standard errors. An optimum is a filled mark, its interval the line through it; an open mark is a least point at
    the end of the grid, where there is no optimum. What is not finite is not drawn.
    """
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    shades = colormaps["viridis"](np.linspace(0, 0.88, len(found.sizes)))
    for place, (size, color) in enumerate(zip(found.sizes, shades, strict=True)):
        mean, bar = found.means[place], 2 * found.stderrs[place]
        optimum, least = found.optima[place], found.minima[place]
        label = f"{found.dim} {size:g}"
        ax.errorbar(
            found.grid, mean, yerr=bar, fmt=".-", markersize=4, capsize=2, linewidth=1, color=color, label=label
        )
        if np.isfinite(optimum):
            low, high = found.intervals[place]
            ax.plot([low, high], [least, least], color=color, linewidth=2.5, alpha=0.5)
            ax.plot(optimum, least, "o", markersize=7, color=color)
        else:
            ax.plot(found.grid[found.best[place]], mean[found.best[place]], "o", markersize=7, color=color, mfc="white")
    ax.set_xscale("log")
    finite = found.means[np.isfinite(found.means)]
    if (finite > 0).all():
        ax.set_yscale("log")
        # A curve may end in a cliff of many decades, beside which no optimum would be seen.
        top = 20 * float(np.max(found.minima))
        if finite.max() > top:
            ax.set_ylim(float(found.minima.min()) / 1.3, top)
        low, high = ax.get_ylim()
        if high < 100 * low:  # too few decades to be read by powers of ten
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(found.labels[0])
    ax.set_ylabel(f"{found.labels[1]}, mean ± 2 standard errors")
    ax.set_title(_title(found), fontsize="medium")
    ax.legend()
    return ax


def _title(found: Optimum) -> str:
    if not np.isfinite(found.exponent):
        return f"{found.over} of least {found.name}: no exponent, the grid is too short"
    low, high = found.interval
    return f"optimum ∝ {found.dim}^{found.exponent:.2f} ({low:.2f} to {high:.2f})"
