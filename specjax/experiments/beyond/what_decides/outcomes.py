"""Outcomes of the trainings of `what-decides`, and scores of their predictions."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import xarray as xr
from scipy import optimize

from specjax.experiments.beyond.what_decides.networks import NETWORKS, RATES

MUCH = 1.5
"""Ratio of the decreases of log loss above which spectral steps are much faster."""

Data = Mapping[str, xr.Dataset]
ONE, SEVERAL = "one_block", "several_blocks"
"""The names of the two datasets of a run."""


def together(data: Data) -> xr.Dataset:
    """All networks as one dataset, in the order of `NETWORKS`."""
    both = xr.concat([data[SEVERAL], data[ONE]], "network", combine_attrs="override")
    return both.sel(network=[name for name in NETWORKS if name in both["network"]])


def in_each(control: Callable[[Any, xr.Dataset], xr.Dataset]) -> Callable[[Any, Data], Data]:
    """A control of one dataset, in each that there is."""
    return lambda config, data: {name: control(config, part) for name, part in data.items()}


def falls(left: xr.DataArray) -> xr.DataArray:
    """log10 of the first loss over that after each length."""
    return left.sel(length=0, drop=True) - left.isel(length=slice(1, None))


def inside(data: xr.Dataset) -> xr.DataArray:
    """Networks whose best step sizes are inside the grid at every length and lower the loss."""
    left = data["left"]
    place = left.isel(length=slice(1, None)).argmin("rate")
    good = (place > 0) & (place < len(RATES) - 1) & (falls(left).max("rate") > 0)
    return good.all(["optimizer", "length"])


def pooled(data: xr.Dataset, values: xr.DataArray) -> xr.DataArray:
    """Values of networks `inside` along "seed", with their class "network", "start" and seed
    "drawn".
    """
    dims = ["network", "start", "seed"]
    stacked = values.where(inside(data)).stack(draw=dims).reset_index("draw")
    kept = stacked.isel(draw=inside(data).stack(draw=dims).values)
    return kept.rename(seed="drawn").rename(draw="seed").transpose("seed", ...)


def speed(data: xr.Dataset) -> xr.DataArray:
    """Log of the ratio of log(L(0)/L(K)), spectral over gradient, at the best step sizes for K."""
    fallen = pooled(data, falls(data["left"]).max("rate"))
    return xr.ufuncs.log(
        fallen.sel(optimizer="spectral", drop=True) / fallen.sel(optimizer="gradient", drop=True)
    )


def value(data: xr.Dataset, quantity: str) -> xr.DataArray:
    """A quantity at the start of the training."""
    return pooled(data, data["value"].sel(quantity=quantity, drop=True))


def select(found: xr.DataArray, *starts: str) -> xr.DataArray:
    """Pooled values at some starts."""
    return found.isel(seed=np.flatnonzero(np.isin(found["start"], starts)))


def ahead(data: xr.Dataset, below: bool, *starts: str) -> xr.DataArray:
    """Whether spectral steps are ahead, in networks on one side of nr = st."""
    criterion, lead = select(value(data, "nr/st"), *starts), select(speed(data), *starts)
    return (lead > 0).isel(seed=((criterion < 0) == below).values).rename("spectral steps ahead")


def concordance(x: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Values whose mean and spread are those of Kendall's τ within classes and starts (Hoeffding
    1948).
    """
    groups = np.char.add(x["network"].values.astype(str), x["start"].values.astype(str))
    values = np.zeros(x.sizes["seed"])
    for group in np.unique(groups):
        members = groups == group
        of_x, of_y = (np.sign(z.values[members][:, None] - z.values[members][None]) for z in (x, y))
        values[members] = np.sum(of_x * of_y, axis=1) / max(members.sum() - 1, 1)
    each = xr.DataArray(values, dims="seed", name=f"τ of {x.name}")
    # A statistic of pairs has twice the deviations of the contributions of single networks.
    return 2 * each - each.mean()


def brier(x: xr.DataArray, y: xr.DataArray) -> xr.DataArray:
    """Squared error of the probability that spectral steps are `MUCH` faster, by cross-fitting.

    Each half of the networks is judged by an isotonic fit in the other. The halves are the even and
    odd seeds, so that leaving out a network changes no other network's half.
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
