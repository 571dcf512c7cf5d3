"""Figure of `what-decides`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.experiments.beyond.what_decides.outcomes import (
    ONE,
    SEVERAL,
    Data,
    ahead,
    concordance,
    speed,
    together,
    value,
)
from specjax.experiments.beyond.what_decides.quantities import QUANTITIES
from specjax.lab.drawing import COLORS
from specjax.lab.estimates import estimate


def draw(config: Any, data: Data) -> Figure:
    """Plot who is ahead by start and side of nr = st, and Kendall's τ of each quantity."""
    drawn = Figure(figsize=(14, 5), layout="constrained")
    one, more, taus = drawn.subplots(1, 3, width_ratios=(1, 1, 1.2))
    for axes, part, title in (
        (one, ONE, "one linear block"),
        (more, SEVERAL, "two blocks or more"),
    ):
        _draw_shares(axes, data[part], config.lengths)
        axes.set(title=title, ylabel="networks with spectral steps ahead", ylim=(-0.03, 1.03))
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=2)
    _draw_taus(taus, together(data), config.lengths)
    return drawn


def _draw_shares(axes: Axes, data: xr.Dataset, lengths: Sequence[int]) -> None:
    """The share of networks with spectral steps ahead, below and above nr = st, by start."""
    starts = data["start"].values.tolist()
    for place, (color, steps) in enumerate(zip(COLORS, lengths, strict=False)):
        for below, line, side in ((True, "o-", "nr < st"), (False, "s--", "nr ≥ st")):
            found = [ahead(data, below, start).isel(length=place) for start in starts]
            shares = [each.values.mean() if each.size else np.nan for each in found]
            axes.plot(
                range(len(starts)),
                shares,
                line,
                color=color,
                markersize=4,
                label=f"{steps} steps, {side}",
            )
    axes.axhline(0.5, color="gray", linewidth=0.7)
    axes.set_xticks(range(len(starts)), starts, rotation=20)
    axes.set_xlabel("gradient steps taken before")


def _draw_taus(axes: Axes, data: xr.Dataset, lengths: Sequence[int]) -> None:
    for place, (color, steps) in enumerate(zip(COLORS, lengths, strict=False)):
        late = speed(data).isel(length=place, drop=True)
        found = [estimate(concordance(value(data, name), late)) for name in QUANTITIES]
        middle, low, high = (
            np.array([float(getattr(each, name)) for each in found])
            for name in ("value", "low", "high")
        )
        axes.errorbar(
            middle,
            np.arange(len(QUANTITIES)) + 0.2 * (place - 1),
            xerr=np.stack([middle - low, high - middle]),
            fmt="o",
            color=color,
            markersize=4,
            label=f"{steps} steps",
        )
    axes.set_yticks(range(len(QUANTITIES)), list(QUANTITIES))
    axes.invert_yaxis()
    axes.axvline(0, color="gray", linewidth=0.8)
    axes.set(
        xlabel="Kendall's τ with how much faster spectral steps are",
        title="within classes and starts",
    )
    axes.legend(fontsize="small", loc="lower left")
