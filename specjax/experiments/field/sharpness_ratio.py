"""A sharpness over 2/η along a training: averages and plots."""

from collections.abc import Mapping

import xarray as xr
from matplotlib.axes import Axes

from specjax.experiments.field.steepest import RECORDS
from specjax.lab.drawing import COLORS, draw_band

QUARTERS, NEAR = 4, 0.2
"""Parts of a training over which records are averaged, and the tolerance around 1."""


def quarters(values: xr.DataArray) -> xr.DataArray:
    """Means over each quarter of the training except the first, at its last recorded step."""
    means = values.coarsen(step=RECORDS // QUARTERS, coord_func={"step": "max"}).mean()
    return means.isel(step=slice(1, None))


def draw_ratios(axes: Axes, values: xr.Dataset, other: str, etas: Mapping[float, float]) -> None:
    """Plot η S/2 with its range over seeds, and another median dotted; `etas` has η by rate."""
    for (rate, eta), color in zip(etas.items(), COLORS, strict=False):
        at = values.sel(rate=rate)
        draw_band(axes, at["ratio"], "step", label=f"η = {eta:.3g}", color=color)
        axes.plot(at["step"], at[other].median("seed"), ":", color=color, linewidth=1.3)
    axes.axhline(1, color="black", linewidth=1)
    axes.set(xlabel="step", yscale="log")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize="small")
