"""The runs of a cell, by learning rate and seed, as one number for each seed: with the rate that other seeds choose.

The paper takes the rate of the highest accuracy in each cell (dimension, distribution, batch, optimizer), and shows that accuracy: the
largest of several noisy means is too large. Here the seeds are two halves, and each half has the rate that does best in the other.
"""

import numpy as np
import xarray as xr

CHOSEN_BY = "out_of_distribution"
CELL = ("d", "setting", "iteration", "optimizer")


def reported(runs: xr.Dataset, quantity: str) -> xr.DataArray:
    """`quantity` with the rate chosen by the other half of the seeds, dims `(*CELL, "seed")`; NaN where that run has diverged.

    A rate at which a run of the choosing half diverges is not chosen, unless there is no other.
    """
    values, diverged = _sorted(runs, quantity).astype(float), _sorted(runs, "diverged").astype(bool)
    values[diverged] = np.nan
    found = np.empty_like(values[0])
    half = np.arange(found.shape[-1]) % 2
    for reporting in (0, 1):
        best = _best(runs, half != reporting)[None, ..., None]
        found[..., half == reporting] = np.take_along_axis(values[..., half == reporting], best, axis=0)[0]
    coords = {dim: runs[dim] for dim in (*CELL, "seed") if dim in runs.coords}
    along = {name: c for name, c in runs.coords.items() if c.dims == ("setting",)}
    return xr.DataArray(found, dims=(*CELL, "seed"), coords=coords | along)


def chosen_by_all(runs: xr.Dataset) -> xr.DataArray:
    """The index of the rate that does best over all seeds, dims `CELL`: the paper's choice."""
    everyone = np.ones(runs.sizes["seed"], bool)
    return xr.DataArray(_best(runs, everyone), dims=CELL, coords={dim: runs[dim] for dim in CELL if dim in runs.coords})


def optimism(runs: xr.Dataset) -> float:
    """By how much the paper's choice exceeds `reported` in mean accuracy, averaged over the cells."""
    best = chosen_by_all(runs).values[None, ..., None]
    by_all = np.take_along_axis(_sorted(runs, CHOSEN_BY), best, axis=0)[0]
    return float(np.nanmean(by_all - reported(runs, CHOSEN_BY).values))


def lasting(values: xr.DataArray) -> np.ndarray:
    """The values of the seeds that have one.

    Raises:
        ValueError: if there are fewer than 2, which have no mean with a standard error.

    """
    numbers = np.asarray(values.values[~np.isnan(values.values)], float)
    if numbers.size < 2:
        raise ValueError(f"Only {numbers.size} runs last in some cell; lower the largest learning rates or add seeds.")
    return numbers


def _sorted(runs: xr.Dataset, quantity: str) -> np.ndarray:
    return np.asarray(runs[quantity].transpose("rate", *CELL, "seed").values)


def _best(runs: xr.Dataset, choosing: np.ndarray) -> np.ndarray:
    accuracy, diverged = (_sorted(runs, name)[..., choosing] for name in (CHOSEN_BY, "diverged"))
    return np.asarray(np.where(diverged.any(-1), -np.inf, accuracy.mean(-1)).argmax(0))
