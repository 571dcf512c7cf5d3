"""Slopes in every replicate, and functions of means as pseudo-values.

Replicates at all sizes are paired. Pseudo-values replace single replicates that have no logarithm.
"""

from collections.abc import Callable

import numpy as np
import xarray as xr

from specjax.arguments import checked
from specjax.fits._requirements import require_sizes


@checked
def log_slopes(logs: xr.DataArray, dim: str) -> xr.DataArray:
    """The slope of the straight line through `logs` over log `dim`, in every replicate and at other
    points.

    If sizes have their own numbers of seeds, the slope uses the seeds that all sizes have. It is
    NaN for a replicate that is not finite at one size.

    Raises:
        ValueError: fewer than two sizes, or sizes that are not positive, different numbers.

    Examples:
        >>> from specjax import fits
        >>> d = np.array([8, 16, 32])
        >>> loss = xr.DataArray([d**2.0, d**3.0], dims=("seed", "d"), coords={"d": d})
        >>> fits.log_slopes(np.log(loss), "d").round(2).values.tolist()
        [2.0, 3.0]
    """
    if dim not in logs.dims or logs.sizes[dim] < 2:
        raise ValueError(f"A slope needs two sizes or more along {dim!r}, got {dict(logs.sizes)}.")
    require_sizes(logs, dim)
    if "seeds" in logs.coords:
        logs = logs.isel(seed=slice(int(logs["seeds"].min()))).drop_vars("seeds")
    x = np.log(logs[dim].astype(float))
    x = x - x.mean()
    return ((x * logs).sum(dim, skipna=False) / (x**2).sum()).rename(f"slope of {logs.name}")


@checked
def jackknife(samples: xr.DataArray, of: Callable[[xr.DataArray], xr.DataArray]) -> xr.DataArray:
    """A smooth function of the mean over seeds, as pseudo-values with its mean and spread.

    They are correct up to terms of order 1/seeds (Tukey 1958), for counts of a few items, whose
    single logarithms are biased or do not exist. `of` takes an array without the dimension "seed",
    or with the means that leave one seed out along it.

    Raises:
        ValueError: fewer than two seeds, or another number of seeds at each size.

    Examples:
        >>> from specjax import fits
        >>> counts = xr.DataArray([1.0, 9.0, 4.0, 2.0], dims="seed")
        >>> logs = fits.jackknife(counts, of=np.log)
        >>> round(float(logs.mean()), 2), round(float(np.log(counts.mean())), 2)
        (1.51, 1.39)
    """
    if "seeds" in samples.coords:
        raise ValueError(
            "A jackknife leaves out one seed at every size, and these have numbers of their own;"
            " take the same."
        )
    n, values = samples.sizes["seed"], samples.astype(float)
    if n < 2:
        raise ValueError(f"A jackknife leaves out one sample of two or more, got {n}.")
    whole, without = of(values.mean("seed")), of((values.sum("seed") - values) / (n - 1))
    if not isinstance(whole, xr.DataArray) or not isinstance(without, xr.DataArray):
        raise ValueError(
            "A jackknife needs a function of a DataArray to another, got one to"
            f" {type(whole).__name__}."
        )
    return n * whole - (n - 1) * without
