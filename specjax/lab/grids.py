"""Grids of settings of which the best is taken: one whose best is at its end shows that a better one may lie outside."""

import numpy as np
import xarray as xr


def at_end(best: xr.DataArray, grid: xr.DataArray, what: str) -> str:
    """A sentence that names a point at which the best of a grid is one of its ends, empty where all lie inside.

    Args:
        best: At each point, the place of the best in the grid.
        grid: The grid, one-dimensional and ascending.
        what: What the grid is of, "step size" say.

    Raises:
        ValueError: a grid that does not ascend.
    """
    if grid.ndim != 1 or not (np.diff(grid.values) > 0).all():
        raise ValueError(f"A grid of {what}s is one-dimensional and ascends, got {grid.values.tolist()}.")
    for place, end in ((0, "smallest"), (grid.size - 1, "largest")):
        for index in np.argwhere(best.values == place):
            points = zip(best.dims, index, strict=True)
            where = ", ".join(f"{dim} = {best[dim].values[i] if dim in best.coords else i}" for dim, i in points)
            return f"The best {what} at {where or 'the only point'} is {grid.values[place]:g}, the {end} of its grid."
    return ""
