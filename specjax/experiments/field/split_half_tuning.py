"""Tuning on one half of the seeds for judging the other half."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes


def tuned(loss: xr.DataArray, over: Sequence[str] = ("rate",)) -> tuple[xr.DataArray, xr.DataArray]:
    """Each seed's loss at the rate of least mean loss in the other half, and the chosen indices.

    Args:
        loss: Dimensions of the points, "seed", and those of `over`.
        over: The tuned dimensions, "rate" and perhaps others.

    Returns:
        The losses without the dimensions of `over`; and places along "rate", with "half" in the
        place of "seed".
    """
    parts, places = [], []
    for half in (0, 1):
        chosen = loss.isel(seed=slice(1 - half, None, 2)).mean("seed").argmin(list(over))
        parts.append(loss.isel(seed=slice(half, None, 2)).isel(chosen).drop_vars(over))
        places.append(chosen["rate"])
    return xr.concat(parts, "seed").sortby("seed"), xr.concat(places, "half")


def draw_at(
    axes: Axes,
    names: Sequence[str],
    logs: Sequence[xr.DataArray],
    *,
    label: str,
    color: str,
    marker: str,
) -> None:
    """Plot geometric means of losses by name, with bars of two standard errors."""
    means = np.asarray([float(each.mean()) for each in logs])
    bars = 2 * np.asarray([float(each.std(ddof=1)) / each.size**0.5 for each in logs])
    ends = np.exp(means) - np.exp(means - bars), np.exp(means + bars) - np.exp(means)
    axes.errorbar(
        range(len(names)),
        np.exp(means),
        ends,
        fmt=marker,
        color=color,
        label=label,
        markersize=5,
        capsize=2,
    )
    axes.set_xticks(range(len(names)), names, fontsize="small")
    axes.set_yscale("log")
