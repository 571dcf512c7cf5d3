"""Whether a quantity is stable, grows or vanishes as the width grows, by the relations of the
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
"""The relations compare the two largest widths, and a fit needs at least one more."""


class Behaviour(NamedTuple):
    """A verdict, and the exponent in the width of a power law with its 95 % interval, NaN without
    one.

    The verdict follows from the local exponent between the two largest widths ± 4 standard errors,
    and from the allowed curves through all widths (`lab.settles`, `lab.vanishes`, `lab.grows`), not
    from `exponent`. "zero" is zero at every width in every seed. `reason` explains "not decided".
    """

    verdict: Verdict
    exponent: float
    interval: tuple[float, float]
    reason: str


def behaviour(draws: xr.DataArray) -> Behaviour:
    """The behaviour of `draws` (width, seed), which are not negative, as the width grows."""
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
        # `coordinate_check` warns once about few seeds, not at every layer.
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
    """Whether the relation is confirmed, and none of its own perturbations is."""
    others = relation.perturbed().values()
    return relation.judge({}).verdict == "confirmed" and all(
        other.judge({}).verdict != "confirmed" for other in others
    )
