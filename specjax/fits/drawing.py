"""Pictures of fits: means, curve, band and exponent; and of optima: a curve for each size.

Matplotlib is imported late, so that a sweep does not wait for it.
"""

from typing import TYPE_CHECKING

import numpy as np

from specjax.arguments import checked
from specjax.fits._optimum import Optimum
from specjax.fits.fit import Fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 200
_MOST_LABELS = 8
"""Values of a scalar that are written below its axis; more of them overlap."""


@checked
def draw_fit(fit: Fit, ax: "Axes | None" = None) -> "Axes":
    """Draw means with bars of two standard errors, the curve and its band, with the exponent in the
    legend.

    It draws into `ax`, or a new figure, with logarithmic axes; the y axis is linear if a mean is
    not positive. An offset is a dashed line.

    Examples:
        >>> from specjax import fits
        >>> d, noise = np.array([8, 16, 32, 64]), np.random.default_rng(0).normal(1, 0.01, (50, 4))
        >>> data = xr.DataArray(d * noise, dims=("seed", "d"), coords={"d": d})
        >>> axes = fits.draw_fit(fits.fit_power_law(data, "d"))
        >>> axes.get_xlabel(), axes.get_xscale()
        ('d', 'log')
    """
    ax = _axes(ax)
    label = f"{fit.name}, mean ± 2 standard errors"
    points = ax.errorbar(
        fit.widths,
        fit.means,
        yerr=2 * fit.stderrs,
        fmt="o",
        markersize=5,
        capsize=2,
        linewidth=1,
        label=label,
    )
    color = points[0].get_color()
    x = np.geomspace(fit.widths[0], fit.widths[-1], _POINTS)
    ax.fill_between(x, *fit.band(x), color=color, alpha=0.25, linewidth=0)
    (low, high), noise = fit.interval, f", {100 * fit.level:g} %" if np.isnan(fit.shift) else ""
    label = f"exponent {fit.exponent:.3f}{noise} in [{low:.3f}, {high:.3f}]"
    ax.plot(x, fit.predict(x), color=color, linewidth=1.2, label=label)
    positive = bool((fit.means > 0).all())
    if fit.model == "offset" and (fit.offset > 0 or not positive):
        low, high = fit.offset_interval
        label = f"offset {fit.offset:.3g}, {100 * fit.level:g} % in [{low:.3g}, {high:.3g}]"
        ax.axhline(fit.offset, color=color, linewidth=1, linestyle="--", label=label)
    ax.set_xscale("log", base=2)
    if positive:
        ax.set_yscale("log")
    ax.set_xticks(fit.widths, [tick_label(width) for width in fit.widths])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(fit.labels[0])
    ax.set_ylabel(fit.labels[1])
    ax.legend()
    return ax


@checked
def draw_optimum(found: Optimum, ax: "Axes | None" = None) -> "Axes":
    """Draw the means against the scalar, one curve for each size, with their optima.

    It draws into `ax`, or a new figure; the y axis is linear if a mean is not positive. Bars of
    means are two standard errors. An optimum is a filled mark, with its interval as a line; an open
    mark is a least point at the end of the grid, without an optimum. Values that are not finite are
    left out.

    Examples:
        >>> from specjax import fits
        >>> d, rate = np.array([8.0, 16.0, 32.0, 64.0]), 2.0 ** np.arange(-8, 1)
        >>> noise = np.random.default_rng(0).normal(0, 0.1, (20, 4, 9))
        >>> loss = np.log(np.outer(d, rate)) ** 2 + noise
        >>> data = xr.DataArray(loss, dims=("seed", "d", "rate"), coords={"d": d, "rate": rate})
        >>> axes = fits.draw_optimum(fits.optimum(data, "rate", "d"))
        >>> axes.get_xlabel(), axes.get_xscale()
        ('rate', 'log')
    """
    from matplotlib import colormaps
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax = _axes(ax)
    shades = colormaps["viridis"](np.linspace(0, 0.88, len(found.sizes)))
    for place, (size, color) in enumerate(zip(found.sizes, shades, strict=True)):
        mean, least, best = found.means[place], found.minima[place], found.best[place]
        style = {"fmt": ".-", "markersize": 4, "capsize": 2, "linewidth": 1, "color": color}
        ax.errorbar(
            found.grid, mean, yerr=2 * found.stderrs[place], label=f"{found.dim} {size:g}", **style
        )
        if np.isfinite(found.optima[place]):
            ax.plot(found.intervals[place], [least, least], color=color, linewidth=2.5, alpha=0.5)
            ax.plot(found.optima[place], least, "o", markersize=7, color=color)
        else:
            ax.plot(found.grid[best], mean[best], "o", markersize=7, color=color, mfc="white")
    ax.set_xscale("log")
    labelled = found.grid[:: -(-len(found.grid) // _MOST_LABELS)]
    ax.set_xticks(labelled, [tick_label(value) for value in labelled])
    ax.set_xticks([], minor=True)
    finite = found.means[np.isfinite(found.means)]
    if (finite > 0).all():
        ax.set_yscale("log")
        # A curve may end in a cliff of many decades, which would hide the optima.
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
    (low, high), title = (
        found.interval,
        f"{found.over} of least {found.name}: no exponent, the grid is too short",
    )
    if np.isfinite(found.exponent):
        title = f"optimum ∝ {found.dim}^{found.exponent:.2f} ({low:.2f} to {high:.2f})"
    ax.set_title(title, fontsize="medium")
    ax.legend()
    return ax


def _axes(ax: "Axes | None") -> "Axes":
    if ax is not None:
        return ax
    from matplotlib import pyplot as plt

    return plt.subplots(layout="constrained")[1]


def tick_label(value: float | int | np.number) -> str:
    """A number beside an axis; others than whole numbers by three digits, to keep labels apart."""
    return f"{value:g}" if float(value).is_integer() else f"{value:.3g}"
