"""A grid of scalars that is widened until no optimum is at its ends."""

import warnings
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr

from specjax.fits import RoughFitWarning
from specjax.scaling.sweep_setup import Dim
from specjax.scaling.transfer_loss import optima_of

ENDS: Mapping[str, str] = {"below": "smallest", "above": "largest"}
"""The place of an optimum, by the side on which values are added for it."""


def widened(
    run_sweep: Callable[[Mapping[str, Sequence[float]], int], xr.Dataset],
    grid: Mapping[str, Sequence[float]],
    dim: Dim,
    widen: int,
) -> xr.Dataset:
    """The sweep of a grid, with values added beyond its ends while a best point is at an end and
    values are left to add.
    """
    data, part = run_sweep(grid, 0), 0
    left = {(name, side): widen for name in grid for side in ENDS}
    while open_ := [end for end in _open_ends(data["loss"], dim) if left[end]]:
        name = open_[0][0]
        added: list[float] = []
        for end in open_:
            if end[0] == name:
                count = min(max(len(grid[name]) // 2, 2), left[end])
                left[end] -= count
                added += _beyond(data[name].values, end[1], count)
        part += 1
        others = {other: data[other].values.tolist() for other in grid}
        more = run_sweep(others | {name: sorted(added)}, part)
        data = xr.concat([data, more], name, join="exact", combine_attrs="override").sortby(name)
    return data


def _open_ends(loss: xr.DataArray, dim: Dim) -> list[tuple[str, str]]:
    """Scalars and ends of their grid beyond which an optimum may lie; all "below" if all points of
    a width diverge.
    """
    scalars = [str(name) for name in loss.dims if name not in (dim, "seed")]
    if not bool(xr.ufuncs.isfinite(loss).all("seed").any(scalars).all()):
        return [(name, "below") for name in scalars]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoughFitWarning)
        found = optima_of(loss, dim)
    return [
        (name, side)
        for name in scalars
        for side, place in ENDS.items()
        if place in found[name].places
    ]


def _beyond(values: np.ndarray, side: str, count: int) -> list[float]:
    """`count` values beyond one end, in the ratio of the last two."""
    end, next_to_it = (values[0], values[1]) if side == "below" else (values[-1], values[-2])
    return [float(end * (end / next_to_it) ** step) for step in range(1, count + 1)]
