"""Seeds that diverged: named in the dataset and in a warning, dropped only when asked."""

import json
import warnings
from collections.abc import Sequence

import numpy as np
import xarray as xr

FAILED = "failed"
_SHOWN = 5  # seeds a warning names; the attribute `failed_seeds` has them all


class FailedSeedsWarning(UserWarning):
    """Some seeds of a sweep gave NaN or infinite values."""


def mark_failed(data: xr.Dataset, axes: Sequence[str]) -> xr.Dataset:
    """Adds the variable `failed` over `(*axes, "seed")` and the attribute `failed_seeds`, and warns if any seed failed.

    A seed failed at a point if any entry of any variable is NaN or infinite there.
    """
    dims = (*axes, "seed")
    failed = np.zeros([data.sizes[dim] for dim in dims], bool)
    for variable in data.data_vars.values():
        finite = np.isfinite(variable.values)
        failed |= ~finite.all(axis=tuple(range(len(dims), finite.ndim)))
    ids = data["seed"].values[failed.any(axis=tuple(range(len(axes))))]
    if len(ids):
        places = [f"seed {i} at {_first_point(data, failed[..., i], axes)}" for i in ids[:_SHOWN]]
        if len(ids) > _SHOWN:
            places.append(f"and {len(ids) - _SHOWN} more")
        warnings.warn(
            f"{len(ids)} of {data.sizes['seed']} seeds gave NaN or infinite values ({'; '.join(places)}); "
            "leave them out with specjax.sweep.without_failed(data).",
            FailedSeedsWarning,
            stacklevel=3,
        )
    return data.assign({FAILED: (dims, failed)}).assign_attrs(failed_seeds=json.dumps(ids.tolist()))


def without_failed(data: xr.Dataset) -> xr.Dataset:
    """`data` without the seeds that failed at any point.

    A seed is left out everywhere, so that every point keeps the same seeds and the coupling between widths stays whole.

    Raises:
        ValueError: `data` has no variable `failed`, or every seed failed.
    """
    if FAILED not in data:
        raise ValueError(
            f"without_failed needs the variable 'failed' that run adds, got {list(data.data_vars)}; pass run's dataset."
        )
    kept = ~data[FAILED].any([dim for dim in data[FAILED].dims if dim != "seed"])
    if not kept.any():
        raise ValueError(
            f"All {data.sizes['seed']} seeds failed at some point; select the points that are finite first."
        )
    return data.isel(seed=kept.values)


def _first_point(data: xr.Dataset, failed: np.ndarray, axes: Sequence[str]) -> str:
    """The first point at which one seed failed, as "d1=16, lr=0.1"."""
    index = np.unravel_index(np.argmax(failed), failed.shape)
    return ", ".join(f"{axis}={data[axis].values[i]}" for axis, i in zip(axes, index, strict=True))
