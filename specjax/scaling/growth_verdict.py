"""Whether something is stable, grows or vanishes as the width grows, by the relations of the
lab.
"""

import warnings
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from specjax import fits, lab
from specjax.fits import RoughFitWarning
from specjax.lab.relations import Relation

Verdict = Literal["stable", "grows", "vanishes", "zero", "not decided"]
LEAST_WIDTHS = 3
"""The relations compare the two largest widths, and a fit has at least one more."""


class Behaviour(NamedTuple):
    """A verdict, with the exponent in the width of a power law and its 95 % interval, NaN where
    there is none.

    The verdict is by the local exponent between the two largest widths ± 4 standard errors, and by
    what the curves through all widths allow (`lab.settles`, `lab.vanishes`, `lab.grows`), not by
    the exponent. "zero" is zero at every width in every seed. `reason` says why nothing was
    decided.
    """

    verdict: Verdict
    exponent: float
    interval: tuple[float, float]
    reason: str


def behaviour(draws: xr.DataArray) -> Behaviour:
    """What `draws` (width, seed), not negative, do as the width grows."""
    nothing = (float("nan"), (float("nan"), float("nan")))
    finite = xr.ufuncs.isfinite(draws).all("seed")
    if not bool(finite.all()):
        width = float(draws.width[int(np.argmin(finite.values))])
        failed = int((~xr.ufuncs.isfinite(draws.sel(width=width))).sum())
        return Behaviour(
            "not decided",
            *nothing,
            f"It is NaN or infinite at width {width:g} in {failed} of {draws.sizes['seed']} seeds.",
        )
    if bool((draws == 0).all()):
        return Behaviour("zero", *nothing, "")
    with warnings.catch_warnings():
        # Who asks for few seeds is warned once, not at every layer.
        warnings.simplefilter("ignore", RoughFitWarning)
        verdict, reason = _verdict(draws)
        try:
            fit = fits.fit_power_law(draws, "width")
        except ValueError as error:
            return Behaviour(verdict, *nothing, reason or str(error))
    return Behaviour(verdict, fit.exponent, fit.interval, reason)


def _verdict(draws: xr.DataArray) -> tuple[Verdict, str]:
    settles = lab.settles(draws, "width")
    found = settles.judge({})
    if _confirmed(settles):
        return "stable", ""
    if _confirmed(lab.vanishes(draws, "width")):
        return "vanishes", ""
    if found.verdict == "refuted" and found.deciding.estimate > 0:
        return "grows", ""
    at = found.deciding
    return (
        "not decided",
        found.reason
        or f"The local exponent at the end is {at.estimate:.2g} ({at.low:.2g} to {at.high:.2g}).",
    )


def _confirmed(relation: Relation) -> bool:
    """Whether the data confirm it, and none of the relation's own perturbations of them do."""
    others = relation.perturbed().values()
    return relation.judge({}).verdict == "confirmed" and all(
        other.judge({}).verdict != "confirmed" for other in others
    )
