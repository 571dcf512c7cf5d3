"""The mean over seeds and its standard error."""

from typing import TypeVar

import numpy as np
import xarray as xr

from specjax.sweep.failures import FAILED

DataT = TypeVar("DataT", xr.DataArray, xr.Dataset)


def mean_and_stderr(data: DataT, dim: str = "seed") -> tuple[DataT, DataT]:
    """The mean over `dim` and its standard error, s / √n with s² the unbiased variance, both in float64.

    NaN and inf are not skipped: a failed seed shows in both results. The flag `failed` of a dataset is left out.

    Raises:
        ValueError: `dim` is missing, in the data or in one of the variables, or has fewer than 2 entries.
    """
    if isinstance(data, xr.Dataset):
        data = data.drop_vars(FAILED, errors="ignore")
        lacking = [str(name) for name, variable in data.data_vars.items() if dim not in variable.dims]
    else:
        lacking = [] if dim in data.dims else [str(data.name)]
    if lacking or dim not in data.dims:
        raise ValueError(
            f"A mean over {dim!r} needs that dimension in every variable, missing in {lacking}; select the variables that have it."
        )
    n = data.sizes[dim]
    if n < 2:
        raise ValueError(f"A standard error needs at least 2 entries along {dim!r}, got {n}; run more seeds.")
    exact = data.astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf: the NaN in the result is the message
        mean = exact.mean(dim, skipna=False, keep_attrs=True)
        stderr = exact.std(dim, ddof=1, skipna=False, keep_attrs=True) / np.sqrt(n)
    return mean, stderr.assign_attrs(exact.attrs)
