"""Slopes in a condition number: the rule that tunes step sizes, the fit, and the check that a slope lies in a band."""

import numpy as np
import xarray as xr

from specjax import sweep
from specjax.experiments.contract import Check, Verdict
from specjax.experiments.verdicts import STANDARD_ERRORS


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


def band_check(
    name: str,
    source: str,
    statement: str,
    *,
    fit: sweep.PowerLawFit,
    low: float | int,
    high: float | int = np.inf,
    between: int | None = None,
) -> Check:
    """Judges whether an exponent lies from `low` to `high`, ends included, by its fit ± 4 standard errors.

    With `between` it is the local exponent of that number, between two neighbouring points.
    """
    exponent, stderr = fit.exponent, fit.stderr
    if between is not None:
        exponent, stderr = float(fit.local_exponents[between]), float(fit.local_stderrs[between])
    half_width = STANDARD_ERRORS * stderr
    ends = exponent - half_width, exponent + half_width
    verdict: Verdict = "inconclusive"
    if low <= ends[0] and ends[1] <= high:
        verdict = "confirmed"
    elif ends[1] < low or ends[0] > high:
        verdict = "refuted"
    which = "fitted exponent" if between is None else f"exponent between {fit.dim} = {_neighbours(fit, between)}"
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=None,
        measured=exponent,
        interval=ends,
        verdict=verdict,
        rule=f"{which} ± 4 standard errors: confirmed if all of it lies in [{low:g}, {high:g}], refuted if all of it lies outside",
    )


def _neighbours(fit: sweep.PowerLawFit, between: int) -> str:
    index = between % len(fit.local_exponents)
    return f"{fit.widths[index]:g} and {fit.widths[index + 1]:g}"
