"""What fits require of data: real numbers, positive sizes, single samples for a median."""

import numpy as np
import xarray as xr

from specjax.arguments import checked, checked_but
from specjax.fits._center import By
from specjax.sweep.seed_dim import BATCH


@checked_but("data")
def require_sizes(data: xr.DataArray, *dims: str) -> None:
    """Raise ValueError unless data are real and coordinates positive, finite and different.

    Examples:
        >>> from specjax import fits
        >>> fits.require_sizes(xr.DataArray(np.ones(2), coords={"d": [0, 1]}), "d")
        Traceback (most recent call last):
            ...
        ValueError: A power law in 'd' needs a coordinate of positive, different numbers, ...
    """
    require_real(data)
    for dim in dims:
        _require_dim(data, dim)
        require_real(data[dim])
        x = np.asarray(data[dim].values, np.float64)
        if (
            dim not in data.coords
            or not (np.isfinite(x).all() and (x > 0).all())
            or len(np.unique(x)) < len(x)
        ):
            raise ValueError(
                f"A power law in {dim!r} needs a coordinate of positive, different numbers, got"
                f" {data[dim].values.tolist()}."
            )


def require_single_samples(by: By, data: xr.DataArray) -> None:
    """Raise ValueError for a median or a geometric mean if `data` have means of batches.

    Examples:
        >>> from specjax import fits
        >>> losses = xr.DataArray(np.ones(3), dims="batch", name="loss")
        >>> fits.require_single_samples("median", losses)
        Traceback (most recent call last):
            ...
        ValueError: A median is of single samples, and 'loss' has means of batches; ...
    """
    if by != "mean" and BATCH in data.dims:
        raise ValueError(
            f"A {by} is of single samples, and {data.name!r} has means of batches; keep the seeds"
            " (reduce=None)."
        )


@checked
def require_real(values: xr.DataArray) -> None:
    """Raise ValueError for text, dates, objects or complex numbers.

    Examples:
        >>> from specjax import fits
        >>> fits.require_real(xr.DataArray(["a", "b"], name="names"))
        Traceback (most recent call last):
            ...
        ValueError: 'names' needs to be real numbers, got text (<U1); ...
    """
    if values.dtype.kind not in "biuf":
        what = {"M": "dates", "m": "times", "c": "complex numbers"}.get(values.dtype.kind, "text")
        way = (
            "take their absolute value or a part of them"
            if what == "complex numbers"
            else "convert them with astype(float)"
        )
        if what in ("dates", "times"):
            way = "give what has passed since the start as a number"
        raise ValueError(
            f"{values.name!r} needs to be real numbers, got {what} ({values.dtype}); {way}."
        )


def _require_dim(data: xr.DataArray, dim: str) -> None:
    if dim not in data.dims and dim not in data.coords:
        raise ValueError(
            f"{dim!r} needs to be a dimension of the data, which have"
            f" {sorted(map(str, data.dims))}."
        )
