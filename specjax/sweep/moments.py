"""Count, mean, variance, minimum and maximum of seeds: of one block of them, of two blocks merged, and of a dataset.

A merge is that of Chan, Golub and LeVeque (1983): exact in real arithmetic, associative to rounding, and without the cancellation of
a sum of squares. So the moments of any number of seeds need only one block of them in memory.
"""

from collections.abc import Container
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from specjax.sweep.failures import FAILED
from specjax.sweep.replicates import BATCH, present, replicate_dim

DataT = TypeVar("DataT", xr.DataArray, xr.Dataset)

COUNT = "count"
MOMENTS = ("variance", "min", "max")  # what stands as "<name>.variance", ... beside the mean "<name>"


def quantity(name: str, names: Container[str]) -> str:
    """The quantity of which the variable `name` is a moment, or else `name`; its dimensions have its name."""
    base, _, kind = name.rpartition(".")
    return base if kind in MOMENTS and base in names else name


class Moments(NamedTuple):
    """Of the finite entries of a block, all of one shape: how many, their mean, sum of squared deviations, smallest and largest.

    Where `count` is 0 they are 0, 0, inf and -inf, which any merge leaves without effect.
    """

    count: Any
    mean: Any
    m2: Any
    min: Any
    max: Any


def moments_of(block: Any, axis: int | tuple[int, ...]) -> Moments:
    """The moments of `block` along `axis`; NaN and inf are left out and not counted.

    Of a numpy array in float64. Of a jax array, also a traced one, in its own floating dtype, where m2 keeps full precision about any
    offset and the mean is rounded to that dtype.
    """
    if isinstance(block, jax.Array):
        xp: Any = jnp
        values: Any = block if jnp.issubdtype(block.dtype, jnp.floating) else block.astype(jnp.result_type(float))
    else:
        xp = np
        values = np.asarray(block, np.float64)
    finite = xp.isfinite(values)
    count = xp.sum(finite, axis=axis)
    least = xp.min(values, axis=axis, initial=np.inf, where=finite)
    greatest = xp.max(values, axis=axis, initial=-np.inf, where=finite)
    # Deviations from a point inside the data, then from their own mean: neither sum cancels.
    some = count > 0
    middle = xp.where(some, least, 0) / 2 + xp.where(some, greatest, 0) / 2
    total = xp.maximum(count, 1).astype(values.dtype)
    values = xp.where(finite, values, 0)
    rough = middle + xp.sum(xp.where(finite, values - xp.expand_dims(middle, axis), 0), axis=axis) / total
    deviations = xp.where(finite, values - xp.expand_dims(rough, axis), 0)
    rest = xp.sum(deviations, axis=axis)
    m2 = xp.sum(deviations**2, axis=axis) - rest**2 / total
    return Moments(count, rough + rest / total, xp.maximum(m2, 0), least, greatest)


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of two blocks together, in float64 on the host; counts are int64."""
    n_a, n_b = (np.asarray(m.count, np.int64) for m in (a, b))
    mean_a, mean_b, m2_a, m2_b = (np.asarray(v, np.float64) for v in (a.mean, b.mean, a.m2, b.m2))
    count = n_a + n_b
    both = (n_a > 0) & (n_b > 0)
    share = np.where(count > 0, n_b / np.maximum(count, 1), 0.0)
    distance = np.where(both, mean_b - mean_a, 0.0)
    return Moments(
        count,
        np.where(n_a > 0, mean_a + share * distance, mean_b),
        m2_a + m2_b + distance**2 * share * n_a,
        np.minimum(np.asarray(a.min, np.float64), np.asarray(b.min, np.float64)),
        np.maximum(np.asarray(a.max, np.float64), np.asarray(b.max, np.float64)),
    )


def total(data: xr.Dataset) -> xr.Dataset:
    """The moments of all seeds at each point, from those of their batches (`run(..., reduce="moments")`).

    Args:
        data: With the dimension "batch", the number of seeds `count` in each, and for every measured quantity its mean `<name>`,
            unbiased variance `<name>.variance`, and `<name>.min` and `<name>.max`.

    Returns:
        The same without that dimension, and with the standard error of the mean `<name>.stderr`, all in float64. Where no seed was
        counted all but `count` is NaN, and with one seed the variance and the standard error are.

    Raises:
        ValueError: a dimension or variable above is missing.
    """
    names = _measured(data)
    lacking = [f"{name}.{kind}" for name in names for kind in MOMENTS if f"{name}.{kind}" not in data]
    if BATCH not in data.dims or COUNT not in data or not names or lacking:
        raise ValueError(
            f"total needs the dimension {BATCH!r}, the variable {COUNT!r} and the moments of every quantity, got {list(data)} over "
            f"{tuple(data.dims)}; pass the dataset of run(..., reduce='moments')."
        )
    merged = data.drop_dims(BATCH).assign_attrs(data.attrs)
    counts = data[COUNT].transpose(BATCH, ...)
    for name in names:
        mean = data[name].transpose(BATCH, ...)
        kinds = {kind: data[f"{name}.{kind}"].transpose(*mean.dims).values for kind in MOMENTS}
        count = counts.broadcast_like(mean).transpose(*mean.dims).values
        parts = _from_variance(count, mean.values, **kinds)
        whole = reduce(merge, (Moments(*(field[i] for field in parts)) for i in range(len(count))))
        # 0/0 is a mean of nothing, and NaN.
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = whole.m2 / (whole.count - np.where(whole.count > 0, 1, 0))
            found = {
                name: np.where(whole.count > 0, whole.mean, np.nan),
                f"{name}.variance": variance,
                f"{name}.min": np.where(whole.count > 0, whole.min, np.nan),
                f"{name}.max": np.where(whole.count > 0, whole.max, np.nan),
                f"{name}.stderr": np.sqrt(variance / whole.count),
            }
        attrs = {f"{name}.{kind}": data[f"{name}.{kind}"].attrs for kind in MOMENTS} | {name: mean.attrs}
        merged = merged.assign(
            {key: (mean.dims[1:], value, attrs.get(key, mean.attrs)) for key, value in found.items()}
        )
    counted = [name for name in (COUNT, FAILED) if name in data]
    return merged.assign({name: data[name].sum(BATCH, keep_attrs=True) for name in counted})


def _from_variance(
    count: np.ndarray, mean: np.ndarray, variance: np.ndarray, min: np.ndarray, max: np.ndarray
) -> Moments:
    """Moments from the unbiased variance, which is no number with fewer than two entries."""
    some = count > 0
    m2 = np.where(count > 1, np.where(count > 1, variance, 0.0) * (count - 1), 0.0)
    return Moments(count, np.where(some, mean, 0.0), m2, np.where(some, min, np.inf), np.where(some, max, -np.inf))


def _measured(data: xr.Dataset) -> list[str]:
    """The quantities of a dataset of moments, without their derived variables and the counts."""
    return [str(name) for name in data if f"{name}.{MOMENTS[0]}" in data]


def mean_and_stderr(data: DataT, dim: str | None = None) -> tuple[DataT, DataT]:
    """The mean over `dim` and its standard error, s / √n with s² the unbiased variance, both in float64.

    `dim` is "seed", or "batch" in a dataset of moments, where it leaves the quantities alone, without `count` and the moments beside
    them. Where each width has its own number of seeds (the coordinate `seeds`), n is that number. NaN and inf are not skipped: a
    failed seed shows in both results. The flag `failed` of a dataset is left out.

    Raises:
        ValueError: `dim` is missing, in the data or in one of the variables, or has fewer than 2 entries.
    """
    dim = dim or replicate_dim(data)
    if isinstance(data, xr.Dataset):
        data = data.drop_vars(FAILED, errors="ignore")
        if dim == BATCH:
            data = data[_measured(data)]
        lacking = [str(name) for name, variable in data.data_vars.items() if dim not in variable.dims]
    else:
        lacking = [] if dim in data.dims else [str(data.name)]
    if lacking or dim not in data.dims:
        raise ValueError(
            f"A mean over {dim!r} needs that dimension in every variable, missing in {lacking}; select the variables that have it."
        )
    there = present(data, dim)
    n: int | xr.DataArray = data.sizes[dim] if there is None else there.sum(dim)
    least = int(np.min(n))
    if least < 2:
        raise ValueError(f"A standard error needs at least 2 entries along {dim!r}, got {least}; run more seeds.")
    exact = data.astype(np.float64)
    with np.errstate(invalid="ignore"):  # inf - inf: the NaN in the result is the message
        if there is None:
            mean = exact.mean(dim, skipna=False, keep_attrs=True)
            stderr = exact.std(dim, ddof=1, skipna=False, keep_attrs=True) / np.sqrt(n)
        else:
            mean = exact.where(there, 0.0).sum(dim, skipna=False, keep_attrs=True) / n
            squares = ((exact - mean).where(there, 0.0) ** 2).sum(dim, skipna=False)
            stderr = (squares / (n - 1) / n) ** 0.5
    return mean.assign_attrs(exact.attrs), stderr.assign_attrs(exact.attrs)
