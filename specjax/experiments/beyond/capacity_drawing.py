"""Figure and table of `capacity_constants`."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import lab
from specjax.experiments.associative_memory.item_counts import Data
from specjax.experiments.beyond.capacity_counts import (
    EARLY,
    LATE,
    formula_ratio,
    limit,
    ratio,
    sharp,
)
from specjax.lab.drawing import COLORS, draw_curves


def figure(config: Any, data: Data) -> Figure:
    """Plot the ratio of counts by α, with formula and limit, and Muon's counts by N."""
    drawn = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = drawn.subplots(1, 2)
    found, formula = ratio(data), formula_ratio(data, config.n)
    draw_curves(left, found, "alpha", "d", "d = {}".format, fmt="")
    for d, color in zip(found.d.values, COLORS, strict=False):
        left.plot(found.alpha, formula.sel(d=d), color=color, linewidth=1)
    fine = xr.DataArray(np.linspace(EARLY, LATE, 50), dims="alpha")
    left.plot(fine, limit(fine), "k--", linewidth=1, label="limit")
    left.axhline(1, color="gray", linewidth=0.7)
    left.set(
        xlabel="α",
        ylabel="items of Muon / of Newton",
        title=f"N = {config.n}; lines: formula at this d and N",
    )
    items = data["items"]["count"]
    draw_curves(right, items, "n", "alpha", "α = {:g}".format, fmt="")
    for alpha, color in zip(items.alpha.values, COLORS, strict=False):
        right.plot(
            items.n,
            sharp(config.d, items.n, items.alpha.sel(alpha=[alpha])).squeeze("alpha"),
            color=color,
            linewidth=1,
        )
    right.set_xscale("log")
    right.set_xticks(items.n.values, map(str, items.n.values))
    right.minorticks_off()
    right.set(xlabel="N", ylabel="items of Muon", title=f"d = {config.d}; lines: sharp asymptotics")
    for axes in (left, right):
        axes.legend(fontsize="small")
    return drawn


def tables(config: Any, data: Data) -> list[lab.Table]:
    count = data["dimensions"]["count"]
    muon = count.sel(optimizer="muon", drop=True)
    shown = {
        "Muon": muon,
        "Muon, sharp": sharp(muon.d, config.n, muon.alpha),
        "Muon / Newton": ratio(data),
    }
    return [
        lab.table.table_by_size(
            f"Items recovered, N = {config.n}",
            shown | {"Muon / Newton, formula": formula_ratio(data, config.n)},
            "d",
        )
    ]
