"""Closed forms at the points of data."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr

from specjax.arguments import checked


@checked
def closed_form(form: Callable[..., Any], *arguments: xr.DataArray | float | int) -> xr.DataArray:
    """`form` at every combination of the coordinates among `arguments`, evaluated in float64.

    `form` takes arrays, as the functions of `specjax.theory` do, and returns one number for each
    entry: `closed_form(f, data.d0, 12)` is f(d0, 12) with the coordinate d0.

    Raises:
        ValueError: the result has another shape, or is not finite.

    Examples:
        >>> from specjax import lab
        >>> data = xr.Dataset(coords={"d": [2, 4, 8]})
        >>> lab.closed_form(lambda d, k: d * k, data.d, 3).values.tolist()
        [6.0, 12.0, 24.0]
    """
    points = xr.broadcast(*map(xr.DataArray, arguments))
    with jax.enable_x64(True):
        values = np.asarray(
            form(*(np.asarray(point.values, np.float64) for point in points)), np.float64
        )
    if values.shape != points[0].shape:
        raise ValueError(
            f"A closed form needs one number for each of {points[0].shape} points, got the shape"
            f" {values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError(
            "A closed form is not finite at one point or more; leave that point out, or correct the"
            " form."
        )
    return points[0].copy(data=values).rename(None)
