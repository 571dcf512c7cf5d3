"""Changes of data that leave nothing of the labels, or another size of an effect."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from specjax.lab.estimates import SAMPLE_DIMS, sample_rows

Data = Any
Rng = np.random.Generator
Change = Callable[[np.ndarray, Rng], np.ndarray]
Place = tuple[str, str]
"""The name of a dataset, empty if there is one, and that of a variable."""

LIKE = 1000.0
"""Two quantities of one kind have medians within this factor; a count and a cosine have not."""


def is_alike(first: xr.DataArray, second: xr.DataArray) -> bool:
    """Whether two variables have the same labels and samples, and sizes that may be compared."""
    dims = [dim for dim in SAMPLE_DIMS if dim in first.dims]
    if first.dims != second.dims or (first.dtype == bool) != (second.dtype == bool):
        return False
    if any(first.sizes[dim] != second.sizes[dim] for dim in dims):
        return False
    sizes = [float(np.nanmedian(abs(each.values.astype(float)))) for each in (first, second)]
    return min(sizes) * LIKE >= max(sizes)


def change_together(data: Data, groups: list[list[Place]], change: Change, rng: Rng) -> Data:
    """The data with the variables of each group changed as one, with their names as labels."""
    for group in groups:
        rows = [sample_rows(variable(data, at)) for at in group]
        ends = np.cumsum([each.shape[1] for each in rows])[:-1]
        changed = np.split(np.asarray(change(np.concatenate(rows, 1), rng)), ends, axis=1)
        data = with_variables(
            data,
            {
                at: _with_rows(variable(data, at), each)
                for at, each in zip(group, changed, strict=True)
            },
        )
    return data


def names(data: Data) -> list[Place]:
    """The variables of a dataset, or of several by name."""
    if isinstance(data, xr.Dataset):
        return [("", str(name)) for name in data.data_vars]
    return [(where, str(name)) for where, each in data.items() for name in each.data_vars]


def variable(data: Data, at: Place) -> xr.DataArray:
    """The variable at a place of the data."""
    where, name = at
    return (data[where] if where else data)[name]


def with_variables(data: Data, changed: dict[Place, xr.DataArray]) -> Data:
    """The data with other variables at some places."""
    for (where, name), values in changed.items():
        if where:
            data = {**data, where: data[where].assign({name: values})}
        else:
            data = data.assign({name: values})
    return data


def change_all(data: Data, change: Change, rng: Rng) -> Data:
    """The data with each sample of each variable changed by itself."""
    if isinstance(data, xr.Dataset):
        return data.assign(
            {name: change_variable(values, change, rng) for name, values in data.data_vars.items()}
        )
    return {name: change_all(each, change, rng) for name, each in data.items()}


def change_variable(values: xr.DataArray, change: Change, rng: Rng) -> xr.DataArray:
    """The variable with each sample, a row of an array, changed."""
    if values.dtype.kind not in "fiub" or values.ndim == 0:
        return values
    return _with_rows(values, np.asarray(change(sample_rows(values), rng)))


def _with_rows(values: xr.DataArray, rows: np.ndarray) -> xr.DataArray:
    """The variable with other samples, in the form of `sample_rows`."""
    ordered = values.transpose(*(dim for dim in SAMPLE_DIMS if dim in values.dims), ...)
    return ordered.copy(data=rows.reshape(ordered.shape)).transpose(*values.dims)


def _noise(rows: np.ndarray, rng: Rng) -> np.ndarray:
    if rows.dtype.kind == "b":
        return rng.random(rows.shape) < rows.mean()
    finite = rows[np.isfinite(rows)]
    if not finite.size:
        return rows
    return rng.normal(finite.mean(), finite.std(), rows.shape).astype(float)


def permuted(rows: np.ndarray, rng: Rng) -> np.ndarray:
    """The values of each sample in another order."""
    return rng.permuted(rows, axis=1)


def _stretched(factor: float) -> Change:
    """The effect times a factor, with the noise of the data: the mean over samples of the distance
    of each value from its sample's mean is another, and what differs between samples stays. Half of
    the noise as well would be a larger sample, in which half of an effect is as certain as all.
    """

    def stretch(values: np.ndarray) -> np.ndarray:
        effect = values - np.nanmean(values, axis=1, keepdims=True)
        return values + (factor - 1) * np.nanmean(effect, axis=0, keepdims=True)

    def change(rows: np.ndarray, _: Rng) -> np.ndarray:
        if rows.dtype.kind == "b":
            return rows
        values = rows.astype(float)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # A sample or a label may have no finite value.
            warnings.simplefilter("ignore", RuntimeWarning)
            if (values[np.isfinite(values)] > 0).all():
                return np.exp(stretch(np.log(values)))
            return stretch(values)

    return change


DATA_MUTANTS: dict[str, Change] = {
    "noise of the same mean": _noise,
    "labels permuted": permuted,
    "half the effect": _stretched(0.5),
    "twice the effect": _stretched(2.0),
}
"""Changes of the samples of a variable, the rows of an array, by name."""
SIZES = frozenset({"half the effect", "twice the effect"})
