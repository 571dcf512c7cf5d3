"""Count, mean, variance, minimum and maximum of seeds: of a block, of two merged, of a dataset.

The merge is that of Chan, Golub and LeVeque (1983): exact in real arithmetic, associative to
rounding, and without the cancellation of a sum of squares. So the moments of any number of seeds
need only one block of them in memory.
"""

from collections.abc import Container
from typing import Any, NamedTuple, TypeVar

import numpy as np
import xarray as xr

from specjax.arguments import checked
from specjax.sweep.failures import FAILED
from specjax.sweep.seed_dim import BATCH, present, replicate_dim

DataT = TypeVar("DataT", xr.DataArray, xr.Dataset)

COUNT = "count"
# The variables "<name>.variance", ... beside the mean "<name>".
MOMENTS = ("variance", "min", "max")


def quantity(name: str, names: Container[str]) -> str:
    """The quantity of which the variable `name` is a moment, else `name` itself."""
    base, _, kind = name.rpartition(".")
    return base if kind in MOMENTS and base in names else name


class Moments(NamedTuple):
    """Number, mean, sum of squared deviations, smallest and largest of the finite entries of a
    block.

    All have one shape. Where `count` is 0 they are 0, 0, inf and -inf, which do not affect a merge.
    """

    count: Any
    mean: np.ndarray
    m2: np.ndarray
    min: np.ndarray
    max: np.ndarray


def moments_of(block: np.ndarray, axis: int | tuple[int, ...]) -> Moments:
    """The moments of `block` along `axis`, in float64; NaN and inf are left out and not counted."""
    values = np.asarray(block, np.float64)
    finite = np.isfinite(values)
    count = np.sum(finite, axis=axis)
    least = np.min(values, axis=axis, initial=np.inf, where=finite)
    greatest = np.max(values, axis=axis, initial=-np.inf, where=finite)
    # Deviations from a point inside the data, then from their own mean: neither sum cancels.
    middle = np.where(count > 0, least, 0) / 2 + np.where(count > 0, greatest, 0) / 2
    total = np.maximum(count, 1)
    values = np.where(finite, values, 0)
    rough = (
        middle
        + np.sum(np.where(finite, values - np.expand_dims(middle, axis), 0), axis=axis) / total
    )
    deviations = np.where(finite, values - np.expand_dims(rough, axis), 0)
    rest = np.sum(deviations, axis=axis)
    m2 = np.sum(deviations**2, axis=axis) - rest**2 / total
    return Moments(count, rough + rest / total, np.maximum(m2, 0), least, greatest)


def merge(a: Moments, b: Moments) -> Moments:
    """The moments of two blocks together, in float64; counts are int64."""
    n_a, n_b = (np.asarray(m.count, np.int64) for m in (a, b))
    count = n_a + n_b
    share = np.where(count > 0, n_b / np.maximum(count, 1), 0.0)
    distance = np.where((n_a > 0) & (n_b > 0), b.mean - a.mean, 0.0)
    mean = np.where(n_a > 0, a.mean + share * distance, b.mean)
    m2 = a.m2 + b.m2 + distance**2 * share * n_a
    return Moments(count, mean, m2, np.minimum(a.min, b.min), np.maximum(a.max, b.max))


@checked
def total(data: xr.Dataset) -> xr.Dataset:
    """The moments of all seeds at each point, from their batches (`run(..., reduce="moments")`).

    Args:
        data: A dataset with the dimension "batch", the number of seeds `count` in each, and for
            every measured quantity its mean `<name>`, unbiased variance `<name>.variance`, and
            `<name>.min` and `<name>.max`.

    Returns:
        The same without that dimension, and with the standard error of the mean `<name>.stderr`,
        all in float64. Where `count` is 0 all else is NaN; with one seed the variance and the
        standard error are.

    Raises:
        ValueError: a dimension or variable above is missing.

    Examples:
        >>> from specjax import sweep
        >>> noise = lambda key, scale: {"y": scale * jax.random.rademacher(key, (), float)}
        >>> over, key = {"scale": sweep.values(1.0, 2.0)}, jax.random.key(0)
        >>> data = sweep.run(noise, over, num_seeds=4000, key=key, reduce="moments")
        >>> sweep.total(data)["y.variance"].round(1).values.tolist()
        [1.0, 4.0]
    """
    names = _measured(data)
    lacking = [
        f"{name}.{kind}" for name in names for kind in MOMENTS if f"{name}.{kind}" not in data
    ]
    if BATCH not in data.dims or COUNT not in data or not names or lacking:
        raise ValueError(
            f"total needs the dimension {BATCH!r}, the variable {COUNT!r} and the moments of every"
            f" quantity, got {list(data)} over {tuple(data.dims)}; pass the dataset of run(...,"
            " reduce='moments')."
        )
    merged = data.drop_dims(BATCH).assign_attrs(data.attrs)
    count = data[COUNT]
    n = count.sum(BATCH)
    for name in names:
        # The mean is NaN where the count is 0, and has no weight.
        mean = data[name].where(count > 0, 0.0).astype(np.float64)
        whole = (count * mean).sum(BATCH) / n.where(n > 0)
        within = data[f"{name}.variance"].where(count > 1, 0.0) * (count - 1)
        variance = (within + count * (mean - whole) ** 2).sum(BATCH) / (n - 1).where(n > 1)
        found = {
            name: whole,
            f"{name}.variance": variance,
            f"{name}.min": data[f"{name}.min"].min(BATCH).where(n > 0),
            f"{name}.max": data[f"{name}.max"].max(BATCH).where(n > 0),
            f"{name}.stderr": (variance / n) ** 0.5,
        }
        merged = merged.assign(
            {
                key: part.assign_attrs(data[key if key in data else name].attrs)
                for key, part in found.items()
            }
        )
    counted = [name for name in (COUNT, FAILED) if name in data]
    return merged.assign({name: data[name].sum(BATCH, keep_attrs=True) for name in counted})


def _measured(data: xr.Dataset) -> list[str]:
    """The quantities of a dataset of moments, without their derived variables and the counts."""
    return [str(name) for name in data if f"{name}.{MOMENTS[0]}" in data]


@checked
def mean_and_stderr(data: DataT) -> tuple[DataT, DataT]:
    """The mean over seeds and its standard error, s / √n with s² the unbiased variance, in float64.

    In a dataset of moments the mean is over "batch", of the quantities alone, without `count` and
    the moments beside them. If each width has its own number of seeds (the coordinate `seeds`), n
    is that number. NaN and inf are not skipped: a failed seed shows in both results. The flag
    `failed` of a dataset is left out.

    Raises:
        ValueError: "seed" is missing, in the data or in one of the variables, or has fewer than 2
            entries.

    Examples:
        >>> from specjax import sweep
        >>> loss = xr.DataArray([1.0, 3.0], dims="seed")
        >>> mean, stderr = sweep.mean_and_stderr(loss)
        >>> float(mean), round(float(stderr), 2)
        (2.0, 1.0)
    """
    dim = replicate_dim(data)
    if isinstance(data, xr.Dataset):
        data = data[_measured(data)] if dim == BATCH else data.drop_vars(FAILED, errors="ignore")
    parts = data.data_vars.values() if isinstance(data, xr.Dataset) else [data]
    lacking = [str(part.name) for part in parts if dim not in part.dims]
    if lacking or dim not in data.dims:
        raise ValueError(
            f"A mean over {dim!r} needs that dimension in every variable, missing in {lacking};"
            " select the variables that have it."
        )
    there = present(data, dim)
    n: int | xr.DataArray = data.sizes[dim] if there is None else there.sum(dim)
    least = int(np.min(n))
    if least < 2:
        raise ValueError(
            f"A standard error needs at least 2 entries along {dim!r}, got {least}; run more seeds."
        )
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
