"""The cost of training every size with the scalars, such as a rate, that were tuned at the
narrowest.
"""

from collections.abc import Mapping

import xarray as xr

from specjax import fits, lab
from specjax.fits import Optimum
from specjax.lab.relations import Relation


def optima_of(loss: xr.DataArray, dim: str) -> dict[str, Optimum]:
    """The optimum of each scalar at each size, with the others at the best point of the size's
    grid.

    Args:
        loss: Dimensions `dim`, "seed" and one or more scalars, all coordinates but the seed's
            ascending.
        dim: The size.

    Raises:
        ValueError: as `fits.optimum`.
    """
    scalars = [str(name) for name in loss.dims if name not in (dim, "seed")]
    means = loss.mean("seed", skipna=False)
    best = means.where(xr.ufuncs.isfinite(means), float("inf")).argmin(scalars)
    return {
        name: fits.optimum(
            loss.isel({other: best[other] for other in scalars if other != name}).drop_vars(
                [other for other in scalars if other != name]
            ),
            over=name,
            dim=dim,
        )
        for name in scalars
    }


def cost_of_narrowest(loss: xr.DataArray, optima: Mapping[str, Optimum]) -> xr.DataArray:
    """The relative cost in every seed: the loss at the best point of the narrowest size's grid less
    that at the size's own, over the mean of the latter.

    Args:
        loss: Dimensions of the scalars, the size and "seed", all coordinates but the seed's
            ascending.
        optima: Of these losses, by scalar.

    Returns:
        Dimensions of the size, without the narrowest, and "seed". Infinite where the training
        diverges; of a loss that is exactly 0 there is no share, and the cost is then the loss
        itself.
    """
    (dim,) = {optimum.dim for optimum in optima.values()}
    places = {
        name: xr.DataArray(optimum.best, {dim: loss[dim]}, (dim,))
        for name, optimum in optima.items()
    }
    own = loss.isel(places).drop_vars(list(optima))
    kept = loss.isel({name: int(place[0]) for name, place in places.items()}, drop=True)
    scale = abs(own.mean("seed"))
    cost = ((kept - own) / scale.where(scale > 0, 1.0)).where(
        xr.ufuncs.isfinite(kept), float("inf")
    )
    return cost.isel({dim: slice(1, None)}).rename("cost of the narrowest's").transpose(dim, "seed")


def costs_less(cost: xr.DataArray, optima: Mapping[str, Optimum], tolerance: float) -> Relation:
    """The mean cost is below a share of the loss at every size; undecided if a best point is at an
    end of the grid.
    """
    relation: Relation = lab.below(cost, tolerance, f"{100 * tolerance:g} % of the loss")
    for optimum in optima.values():
        relation = _tuned(relation, optimum)
    return relation


def _tuned(relation: Relation, optimum: Optimum) -> Relation:
    """A relation of tuned data: inconclusive if a best value, of the means or of too many
    resamples, is at an end of the grid.
    """
    at_ends = {"smallest": 0, "largest": len(optimum.grid) - 1}
    chosen = [
        at_ends.get(place, int(best))
        for place, best in zip(optimum.places, optimum.best, strict=True)
    ]
    places = xr.DataArray(chosen, {optimum.dim: optimum.sizes}, (optimum.dim,))
    return lab.within_grid(relation, places, len(optimum.grid))
