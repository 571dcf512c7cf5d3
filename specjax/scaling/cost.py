"""What it costs to train every size at a rate that was tuned at the narrowest."""

import numpy as np
import xarray as xr

from specjax import lab
from specjax.lab.relations import Relation
from specjax.sweep import Optimum


def cost_of_narrowest(loss: xr.DataArray, optimum: Optimum, power: float = 0.0) -> xr.DataArray:
    """The loss at the narrowest size's rate less that at the own best, over the mean of the latter, in every seed.

    Args:
        loss: Dimensions `optimum.over`, `optimum.dim` and "seed", both coordinates ascending.
        optimum: Of these losses.
        power: The rate follows this power of the size: the nearest of the grid is taken.

    Returns:
        Dimensions `optimum.dim`, without the narrowest, and "seed". Infinite where the training diverges; of a loss that is exactly 0
        there is no share, and the cost is then the loss itself.
    """
    over, dim = optimum.over, optimum.dim
    loss = loss.transpose(dim, over, "seed")
    wanted = optimum.grid[optimum.best[0]] * (optimum.sizes / optimum.sizes[0]) ** power
    nearest = np.argmin(abs(np.log(optimum.grid)[None, :] - np.log(wanted)[:, None]), axis=1)
    own, at_rate = (
        loss.isel({over: xr.DataArray(places, {dim: loss[dim]}, (dim,))}).drop_vars(over)
        for places in (optimum.best, nearest)
    )
    scale = abs(own.mean("seed"))
    cost = ((at_rate - own) / scale.where(scale > 0, 1.0)).where(xr.ufuncs.isfinite(at_rate), np.inf)
    return cost.isel({dim: slice(1, None)}).rename("cost of the narrowest width's rate")


def costs_less(cost: xr.DataArray, optimum: Optimum, tolerance: float) -> Relation:
    """The mean cost is below a share of the loss at every size; nothing is decided where a best rate is an end of the grid."""
    return tuned(lab.below(cost, tolerance, f"{100 * tolerance:g} % of the loss"), optimum)


def tuned(relation: Relation, optimum: Optimum) -> Relation:
    """A relation of what was tuned: inconclusive where a best rate, of the means or of too many resamples, is an end of the grid."""
    at_ends = {"smallest": 0, "largest": len(optimum.grid) - 1}
    chosen = [at_ends.get(place, int(best)) for place, best in zip(optimum.places, optimum.best, strict=True)]
    places = xr.DataArray(chosen, {optimum.dim: optimum.sizes}, (optimum.dim,))
    return lab.within_grid(relation, places, len(optimum.grid))
