"""The power of the data's variance in a mean step, from its size in parts of the modes.

Mode j of the data has the variance K_j = j^-α. A step whose mean is the error times K^q is that of
gradient descent with the preconditioner K^(q-1): none at q = 1, the square root at q = 1/2, the
inverse at q = 0.
"""

import numpy as np
import xarray as xr

from specjax import fits

OCTAVES = 4
"""The modes are cut at n/16, n/8, n/4 and n/2."""


def edges(width: int) -> list[int]:
    """Where the modes are cut."""
    return [0, *(width // 2**k for k in range(OCTAVES, -1, -1))]


def log_modes(data: xr.Dataset) -> xr.DataArray:
    """The mean of log j in each part, at every width."""
    cut = [
        np.split(np.log(np.arange(1, width + 1)), edges(width)[1:-1])
        for width in data.width.values.tolist()
    ]
    means = [[part.mean() for part in parts] for parts in cut]
    return xr.DataArray(means, dims=("width", "part"), coords={"width": data.width})


def exponents(
    data: xr.Dataset, optimizer: str, batch: str | list[str], parts: slice = slice(None)
) -> xr.DataArray:
    """The exponent q of the mean step, from its slope over log modes in these parts."""
    x = log_modes(data).isel(part=parts)
    x = x - x.mean("part")

    def fit_exponent(mean: xr.DataArray) -> xr.DataArray:
        # A mean that is not positive has no logarithm; 1e-9 is below the noise.
        slope = (x * xr.ufuncs.log(mean.clip(min=1e-9))).sum("part") / (x**2).sum("part")
        return -slope / data["alpha"]

    responses = data["response"].sel(optimizer=optimizer, batch=batch, drop=True).isel(part=parts)
    return fits.jackknife(responses, fit_exponent).rename(f"exponent q, {optimizer}")
