"""What came out of the trainings of `what-decides`, and how well a quantity at their start
foretells it.
"""

import numpy as np
import xarray as xr
from scipy import optimize

from specjax.experiments.beyond.what_decides_networks import RATES

MUCH = 1.5
"""Spectral steps are much faster if gradient steps lower the logarithm of the loss by so many times
less.
"""


def falls(left: xr.DataArray) -> xr.DataArray:
    """log10 of the first loss over that after each length."""
    return left.sel(length=0, drop=True) - left.isel(length=slice(1, None))


def inside(data: xr.Dataset) -> xr.DataArray:
    """Networks in which both methods have their best step sizes inside the grid, at every length,
    and lower the loss with them.
    """
    left = data["left"]
    place = left.isel(length=slice(1, None)).argmin("rate")
    good = (place > 0) & (place < len(RATES) - 1) & (falls(left).max("rate") > 0)
    return good.all(["optimizer", "length"])


def pooled(data: xr.Dataset, values: xr.DataArray) -> xr.DataArray:
    """Of the networks of all classes that are `inside`, as draws; "network" says of which class
    each is, "drawn" which one of it.
    """
    stacked = values.where(inside(data)).stack(draw=["network", "seed"]).reset_index("draw")
    kept = stacked.isel(draw=inside(data).stack(draw=["network", "seed"]).values)
    return kept.rename(seed="drawn").rename(draw="seed").transpose("seed", ...)


def speed(data: xr.Dataset) -> xr.DataArray:
    """Log of log(L(0)/L(K)) by spectral steps over that by gradient steps, each method with its
    best step size for K.
    """
    fallen = pooled(data, falls(data["left"]).max("rate"))
    return xr.ufuncs.log(
        fallen.sel(optimizer="spectral", drop=True) / fallen.sel(optimizer="gradient", drop=True)
    )


def value(data: xr.Dataset, quantity: str) -> xr.DataArray:
    """A quantity at the start."""
    return pooled(data, data["value"].sel(quantity=quantity, drop=True))


def concordance(x: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Draws whose mean is Kendall's τ of x and y among networks of one class, with its spread
    (Hoeffding 1948).
    """
    alike = (x["network"].values[:, None] == x["network"].values) & ~np.eye(
        x.sizes["seed"], dtype=bool
    )
    of_x, of_y = (np.sign(z.values[:, None] - z.values[None]) for z in (x, y))
    each = xr.DataArray(
        np.sum(alike * of_x * of_y, axis=1) / alike.sum(1), dims="seed", name=f"τ of {x.name}"
    )
    # A statistic of pairs has twice the deviations of what single draws contribute to it.
    return 2 * each - each.mean()


def brier(x: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Squared error of the probability that spectral steps are `MUCH` faster: in each half of the
    networks of an isotonic fit in the other.

    The halves are the even and the odd numbers of the draws, so that a network that is left out
    changes no other's half.
    """
    event, odd = (y > np.log(MUCH)).values.astype(float), x["drawn"].values % 2 == 1
    error = np.empty(len(event))
    for judged in (odd, ~odd):
        order = np.argsort(x.values[~judged])
        fit = optimize.isotonic_regression(event[~judged][order]).x
        error[judged] = (
            event[judged] - np.interp(x.values[judged], x.values[~judged][order], fit)
        ) ** 2
    return xr.DataArray(error, dims="seed", name=f"error of {x.name}")
