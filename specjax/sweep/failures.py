"""Seeds that diverged: named in the dataset and in a warning, and dropped only on request."""

import json
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from specjax.arguments import checked_but

FAILED = "failed"
FIRST_FAILED = "first_failed"  # in each batch of a dataset of moments, -1 for none
_SHOWN = 5  # seeds a warning names; the attribute `failed_seeds` has more


class FailedSeedsWarning(UserWarning):
    """Some seeds of a sweep gave NaN or infinite values."""


def failed_seeds(outputs: Mapping[str, np.ndarray], dims: int) -> np.ndarray:
    """Where any output is NaN or infinite, over the first `dims` dimensions."""
    finite = [
        np.isfinite(array).all(axis=tuple(range(dims, array.ndim))) for array in outputs.values()
    ]
    return ~np.all(finite, axis=0)


def mark_failed(data: xr.Dataset, axes: Sequence[str], computed: xr.DataArray | None) -> xr.Dataset:
    """Add the variable `failed` and the attribute `failed_seeds`, and warn if any seed failed.

    A seed failed at a point if any entry of any variable is NaN or infinite there. `failed` has the
    dimensions `(*axes, "seed")`. `computed` marks the entries that are results; None means all.
    """
    dims = (*axes, "seed")
    failed = failed_seeds(
        {str(name): variable.values for name, variable in data.data_vars.items()}, len(dims)
    )
    if computed is not None:
        failed = (xr.DataArray(failed, dims=dims) & computed).values
    ids = data["seed"].values[failed.any(axis=tuple(range(len(axes))))]
    if len(ids):
        places = [f"seed {i} at {_first_point(data, failed[..., i], axes)}" for i in ids[:_SHOWN]]
        if len(ids) > _SHOWN:
            places.append(f"and {len(ids) - _SHOWN} more")
        warnings.warn(
            f"{len(ids)} of {data.sizes['seed']} seeds gave NaN or infinite values"
            f" ({'; '.join(places)}); leave them out with specjax.sweep.without_failed(data).",
            FailedSeedsWarning,
            stacklevel=5,
        )
    return data.assign({FAILED: (dims, failed)}).assign_attrs(failed_seeds=json.dumps(ids.tolist()))


def report_failed_batches(data: xr.Dataset, axes: Sequence[str]) -> xr.Dataset:
    """Add the attribute `failed_seeds`, the first of each batch, and warn if any failed."""
    first = data[FIRST_FAILED].values
    ids = np.unique(first[first >= 0])
    if len(ids):
        places = [
            f"seed {i} at {_first_point(data, (first == i).any(axis=-1), axes)}"
            for i in ids[:_SHOWN]
        ]
        worst = int(data[FAILED].sum("batch").max())
        warnings.warn(
            f"Up to {worst} of {data.attrs['seeds']} seeds at a point gave NaN or infinite values"
            f" (first: {'; '.join(places)}); the moments leave them out, and the variable 'failed'"
            " counts them.",
            FailedSeedsWarning,
            stacklevel=5,
        )
    return data.assign_attrs(failed_seeds=json.dumps(ids.tolist()))


@checked_but("data")
def without_failed(data: xr.Dataset) -> xr.Dataset:
    """`data` without the seeds that failed at any point.

    A seed is left out everywhere, so that every point keeps the same seeds and widths stay coupled.

    Raises:
        ValueError: `data` has no variable `failed`, or every seed failed.

    Examples:
        >>> from specjax import sweep
        >>> data = xr.Dataset({"loss": ("seed", [1.0, np.nan, 3.0])})
        >>> data["failed"] = data["loss"].isnull()
        >>> sweep.without_failed(data)["loss"].values.tolist()
        [1.0, 3.0]
    """
    if not isinstance(data, xr.Dataset) or FAILED not in data:
        got = list(data.data_vars) if isinstance(data, xr.Dataset) else f"a {type(data).__name__}"
        raise ValueError(
            f"without_failed needs the variable 'failed' that run adds, got {got}; pass run's"
            " dataset."
        )
    kept = ~data[FAILED].any([dim for dim in data[FAILED].dims if dim != "seed"])
    if not kept.any():
        raise ValueError(
            f"All {data.sizes['seed']} seeds failed at some point; select the points that are"
            " finite first."
        )
    return data.isel(seed=kept.values)


def _first_point(data: xr.Dataset, failed: np.ndarray, axes: Sequence[str]) -> str:
    """The first point at which one seed failed, as "d1=16, lr=0.1"."""
    index = np.unravel_index(np.argmax(failed), failed.shape)
    return ", ".join(f"{axis}={data[axis].values[i]}" for axis, i in zip(axes, index, strict=True))
