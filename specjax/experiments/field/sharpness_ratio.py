"""A sharpness over 2/η along a training: its averages, and how it is drawn."""

from collections.abc import Mapping

import xarray as xr
from matplotlib.axes import Axes

from specjax.experiments.field.steepest import RECORDS
from specjax.lab.drawing import COLORS, draw_band

QUARTERS, NEAR = 4, 0.2
"""Parts of a training in which records are averaged, and what is near to 1."""


def quarters(values: xr.DataArray) -> xr.DataArray:
    """The mean over each quarter of the training but the first, at the step of the last record in
    it.
    """
    means = values.coarsen(step=RECORDS // QUARTERS, coord_func={"step": "max"}).mean()
    return means.isel(step=slice(1, None))


def draw_ratios(axes: Axes, values: xr.Dataset, other: str, etas: Mapping[float, float]) -> None:
    """η S/2 with a band from the least to the largest draw, and the median of another quantity
    dotted; `etas` has η by rate.
    """
    for (rate, eta), color in zip(etas.items(), COLORS, strict=False):
        at = values.sel(rate=rate)
        draw_band(axes, at["ratio"], "step", label=f"η = {eta:.3g}", color=color)
        axes.plot(at["step"], at[other].median("seed"), ":", color=color, linewidth=1.3)
    axes.axhline(1, color="black", linewidth=1)
    axes.set(xlabel="step", yscale="log")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize="small")
