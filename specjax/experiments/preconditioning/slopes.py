"""Slopes in a condition number: the rule that tunes step sizes, and the fit."""

import xarray as xr

from specjax import sweep


def tuned(data: xr.Dataset) -> xr.DataArray:
    """The fewest steps over the grid of step sizes, for each condition number and seed.

    The same rule for every optimizer, and one that favours those whose iterations depend much on the step size. A run that did
    not arrive counts with the limit, so that its slope is underestimated and not left out.
    """
    return data["steps"].min("rate")


def arrived(data: xr.Dataset) -> xr.DataArray:
    """The share of seeds that reach the accuracy with some step size, for each condition number."""
    return data["reached"].max("rate").mean("seed")


def slope(steps: xr.DataArray, least: float | int) -> sweep.PowerLawFit:
    """The fit of steps = a κ^b to condition numbers from `least` up, with a bootstrap interval over seeds."""
    return sweep.fit_power_law(steps.sel(kappa=steps["kappa"].values >= least), "kappa")
