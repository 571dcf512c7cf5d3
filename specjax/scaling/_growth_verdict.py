"""Whether a quantity is stable, grows or vanishes as the width grows, by the relations of the
lab.
"""

import warnings
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr

from specjax import fits, lab
from specjax.fits import RoughFitWarning
from specjax.lab.outcome import Finding
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


def behaviour(samples: xr.DataArray) -> Behaviour:
    """The behaviour of `samples` (width, seed), which are not negative, as the width grows."""
    nothing = (float("nan"), (float("nan"), float("nan")))
    finite = xr.ufuncs.isfinite(samples).all("seed")
    if not bool(finite.all()):
        width = float(samples.width[int(np.argmin(finite.values))])
        failed = int((~xr.ufuncs.isfinite(samples.sel(width=width))).sum())
        return Behaviour(
            "not decided",
            *nothing,
            f"It is NaN or infinite at width {width:g} in {failed} of {samples.sizes['seed']}"
            " seeds.",
        )
    if bool((samples == 0).all()):
        return Behaviour("zero", *nothing, "")
    with warnings.catch_warnings():
        # `coordinate_check` warns once about few seeds, not at every layer.
        warnings.simplefilter("ignore", RoughFitWarning)
        verdict, reason = _verdict(samples)
        try:
            fit = fits.fit_power_law(samples, "width")
        except ValueError as error:
            return Behaviour(verdict, *nothing, reason or str(error))
    return Behaviour(verdict, fit.exponent, fit.interval, reason)


def _verdict(samples: xr.DataArray) -> tuple[Verdict, str]:
    settles = lab.settles(samples, "width")
    found = settles.judge({})
    if _confirmed(settles, found):
        return "stable", ""
    # The relations share the local exponent, so what grows by it does not vanish.
    if found.verdict == "refuted" and found.deciding.estimate > 0:
        return "grows", ""
    vanishes = lab.vanishes(samples, "width")
    if _confirmed(vanishes, vanishes.judge({})):
        return "vanishes", ""
    at = found.deciding
    return (
        "not decided",
        found.reason
        or f"The local exponent at the end is {at.estimate:.2g} ({at.low:.2g} to {at.high:.2g}).",
    )


def _confirmed(relation: Relation, found: Finding) -> bool:
    """Whether `found` confirms the relation, and none of its own perturbations is confirmed."""
    return found.verdict == "confirmed" and all(
        other.judge({}).verdict != "confirmed" for other in relation.perturbed().values()
    )
