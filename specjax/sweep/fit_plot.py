"""The picture of a fit: means with error bars, the curve, its band, and the exponent with its interval in the legend."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from specjax.sweep.fit import PowerLawFit
from specjax.sweep.offset_fit import OffsetFit

_POINTS = 200


def draw_fit(fit: PowerLawFit | OffsetFit, ax: Axes | None) -> Axes:
    """Draws `fit` on logarithmic axes, in `ax` or a new figure; the y axis is linear where a mean is not positive."""
    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    points = ax.errorbar(
        fit.widths,
        fit.means,
        yerr=2 * fit.stderrs,
        fmt="o",
        markersize=5,
        capsize=2,
        linewidth=1,
        label=_data_label(fit),
    )
    color = points[0].get_color()
    x = np.geomspace(fit.widths[0], fit.widths[-1], _POINTS)
    low, high = fit.band(x)
    ax.fill_between(x, low, high, color=color, alpha=0.25, linewidth=0)
    ax.plot(x, fit.predict(x), color=color, linewidth=1.2, label=_fit_label(fit))
    if isinstance(fit, OffsetFit) and (fit.offset > 0 or not (fit.means > 0).all()):
        ax.axhline(fit.offset, color=color, linewidth=1, linestyle="--", label=_offset_label(fit))
    ax.set_xscale("log", base=2)
    if (fit.means > 0).all():
        ax.set_yscale("log")
    ax.set_xticks(fit.widths, [f"{width:g}" for width in fit.widths])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(fit.labels[0])
    ax.set_ylabel(fit.labels[1])
    ax.legend()
    return ax


def _data_label(fit: PowerLawFit | OffsetFit) -> str:
    return f"{fit.name}, mean ± 2 standard errors"


def _fit_label(fit: PowerLawFit | OffsetFit) -> str:
    low, high = fit.interval
    return f"exponent {fit.exponent:.3f}, {100 * fit.level:g} % in [{low:.3f}, {high:.3f}]"


def _offset_label(fit: OffsetFit) -> str:
    low, high = fit.offset_interval
    return f"offset {fit.offset:.3g}, {100 * fit.level:g} % in [{low:.3g}, {high:.3g}]"
