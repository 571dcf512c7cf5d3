"""Best rates of trainings over width × rate, their powers of the width, and data with others."""

import numpy as np
import xarray as xr

from specjax import lab
from specjax.experiments.scaling.scaling_cli import slopes
from specjax.lab import Control

GROUP = 4
"""Seeds of a group."""
LARGEST = 1e6
"""Cap on losses, also for those that are not finite: a diverging training is not a failed seed."""


def best(data: xr.Dataset) -> xr.DataArray:
    """The best rate of every setting over its own rate, by width and group of seeds.

    It is the vertex of the parabola in logarithms through the least mean of the group and its
    neighbours.
    """
    groups = data["loss"].coarsen(seed=GROUP).mean()
    logs = xr.ufuncs.log(groups).transpose("factor", ...)
    last = data.sizes["factor"] - 1
    place = logs.argmin("factor").clip(1, last - 1)
    below, least, above = (
        logs.isel(factor=place + side).drop_vars("factor") for side in (-1, 0, 1)
    )
    bend = below - 2 * least + above
    # `within_grid` reports a least point at an end of the grid.
    beside = xr.where(bend > 0, (below - above) / (2 * bend.where(bend > 0, 1.0)), 0.0).clip(-1, 1)
    own = int(np.argmin(np.abs(np.log(data["factor"].values))))
    return (2.0 ** (place + beside - own)).rename("best rate")


def inside(relation: lab.Relation, data: xr.Dataset, setting: str) -> lab.Relation:
    """Decide nothing where a best rate, of the mean over all seeds, is an end of the grid."""
    means = data["loss"].sel(setting=setting, drop=True).mean("seed")
    return lab.within_grid(relation, means.argmin("factor"), data.sizes["factor"])


def moved(power: float, *, of: str | None = None) -> Control:
    """A control with best rates that follow another power of the width."""

    def change(data: xr.Dataset) -> xr.Dataset:
        ratio = data["width"].values / data["width"].values[0]
        places = np.round(power * np.log2(ratio)).astype(int)
        moved = [
            data["loss"].isel(width=[at]).roll(factor=shift) for at, shift in enumerate(places)
        ]
        return data.assign(loss=xr.concat(moved, "width"))

    return lab.controls.changing(change, of=of)


OTHER_POWERS = {
    "best rates that rise as √width": moved(0.5),
    "best rates that fall as 1/√width": moved(-0.5),
}
# The widths squared, so that all exponents are halves of what they were.
HALVED = {
    "half of the exponents": lab.controls.changing(
        lambda data: data.assign_coords(width=data["width"] ** 2)
    )
}


def exponents(data: xr.Dataset, setting: str) -> xr.DataArray:
    """The exponent of the best rate of a setting, by group of seeds."""
    return slopes(best(data).sel(setting=setting, drop=True)).rename("exponent of the best rate")


def cost(data: xr.Dataset, setting: str) -> xr.DataArray:
    """Relative loss at the widest width at the narrowest's best rate, less that at its own best."""
    loss = data["loss"].sel(setting=setting, drop=True)
    chosen = loss.mean("seed").argmin("factor")
    kept, own = (loss.isel(width=-1, factor=int(chosen[place]), drop=True) for place in (0, -1))
    return ((kept - own) / own.mean("seed")).rename("cost of the narrowest's rate")


def replace_setting(setting: str, other: str) -> Control:
    return lab.controls.changing(
        lambda data: lab.controls.at_labels(data, "setting", {setting: other})
    )


def exchange_settings(data: xr.Dataset, one: str, other: str) -> xr.Dataset:
    """Exchange two settings of the data."""
    return lab.controls.at_labels(data, "setting", {one: other, other: one})
