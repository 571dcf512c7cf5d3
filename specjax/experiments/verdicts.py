"""Rules by which numbers become verdicts. Every check of every experiment is made by one of these functions.

All intervals are four standard errors to either side: with a hundred checks in a report a 95% interval would miss five true
statements. A statement is confirmed only where the interval is also narrow enough to tell it from the nearest other candidate.
"""

import numpy as np
from numpy.typing import ArrayLike

from specjax.experiments.contract import Check, Verdict
from specjax.experiments.means import STANDARD_ERRORS, Mean
from specjax.lab.relations.ends import DECAY
from specjax.sweep import AsymptoticExponent, PowerLawFit

Numbers = ArrayLike | float | int
"""Whatever numpy makes an array of. Its own type takes floats and ints for complex, as beartype does not."""


def mean_check(
    name: str,
    source: str,
    statement: str,
    *,
    predicted: float | int,
    mean: Numbers,
    stderr: Numbers,
    resolution: float | int,
) -> Check:
    """Judges a predicted mean by a measured one; `resolution` is the distance to the nearest other candidate."""
    found = _estimate(mean, stderr)
    half_width = STANDARD_ERRORS * found.stderr
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=float(predicted),
        measured=found.mean,
        interval=(found.low, found.high),
        verdict=_verdict(abs(found.mean - predicted) <= half_width, resolved=half_width <= resolution),
        rule=f"confirmed if the prediction lies within 4 standard errors of the mean and these are below {resolution:.3g}; "
        "refuted if it lies outside",
    )


def closed_form_check(
    name: str,
    source: str,
    statement: str,
    *,
    predicted: Numbers,
    mean: Numbers,
    stderr: Numbers,
    resolution: Numbers,
) -> Check:
    """Judges a closed form at many points at once by its largest deviation in standard errors.

    `resolution`, the distance to the nearest other candidate at each point, bounds four standard errors there.
    """
    predicted, mean, stderr = (np.asarray(a, float) for a in (predicted, mean, stderr))
    # Where nothing varies between seeds, the mean is the closed form or it is not.
    misses = np.where(mean == predicted, 0.0, np.inf)
    deviation = float(np.max(np.divide(np.abs(mean - predicted), stderr, out=misses, where=stderr > 0)))
    resolved = bool(np.all(STANDARD_ERRORS * stderr <= np.asarray(resolution, float)))
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=None,
        measured=deviation,
        interval=None,
        verdict=_verdict(deviation <= STANDARD_ERRORS, resolved=resolved),
        rule=f"largest |mean - closed form| / standard error over {predicted.size} values: confirmed up to 4, refuted above; "
        "inconclusive if 4 standard errors exceed the distance to the nearest other formula",
    )


def exponent_check(
    name: str,
    source: str,
    statement: str,
    *,
    predicted: float | int,
    fit: PowerLawFit | AsymptoticExponent,
    resolution: float | int,
) -> Check:
    """Judges a predicted exponent by a fitted one: a `PowerLawFit` for a pure power law, else an `AsymptoticExponent`.

    `resolution` is half the distance to the nearest other candidate, such as 1/2 among whole powers of a size.
    """
    half_width, meaning = _half_width(fit)
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=float(predicted),
        measured=fit.exponent,
        interval=(fit.exponent - half_width, fit.exponent + half_width),
        verdict=_verdict(abs(fit.exponent - predicted) <= half_width, resolved=half_width <= resolution),
        rule=f"confirmed if the interval of the fitted exponent ({meaning}) contains the prediction and its half-width is at "
        f"most {resolution}; refuted if it lies outside",
    )


def vanishing_check(name: str, source: str, statement: str, *, fit: PowerLawFit) -> Check:
    """Judges whether a quantity vanishes as the width grows, by its local exponent between the two largest widths.

    The exponent of a fit to all widths would do for a power law, but not for a quantity that settles at a positive limit.
    """
    exponent = _estimate(fit.local_exponents[-1], fit.local_stderrs[-1])
    verdict: Verdict = "confirmed" if exponent.high < DECAY else "refuted" if exponent.low > DECAY else "inconclusive"
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=None,
        measured=exponent.mean,
        interval=(exponent.low, exponent.high),
        verdict=verdict,
        rule=f"local exponent between widths {fit.widths[-2]:g} and {fit.widths[-1]:g} ± 4 standard errors: confirmed if all "
        f"of it lies below {DECAY}, refuted if above",
    )


def bound_check(name: str, source: str, statement: str, *, smallest_margin: float) -> Check:
    """Judges a bound that must hold in every draw by the smallest margin found (negative where it is violated)."""
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=None,
        measured=float(smallest_margin),
        interval=None,
        verdict="confirmed" if smallest_margin >= 0 else "refuted",
        rule="smallest margin to the bound over all draws: confirmed if it is not negative",
    )


def equality_check(
    name: str, source: str, statement: str, *, error: Numbers, control: Numbers, tolerance: float | int
) -> Check:
    """Judges an identity that must hold in every draw by the largest error found, up to a `tolerance` for rounding.

    `control` is the same error measured, in the same draws, where the identity is false: one that passes too shows that the
    measurement cannot tell.
    """
    error, control = float(np.max(np.asarray(error, float))), float(np.min(np.asarray(control, float)))
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=0.0,
        measured=error,
        interval=None,
        verdict=_verdict(error <= tolerance, resolved=control > tolerance),
        rule=f"largest error over all draws: confirmed up to {tolerance:.3g}, which is for rounding, refuted above; inconclusive "
        f"if no larger in the control, where the statement is false and the smallest error is {control:.3g}",
    )


def difference_check(
    name: str,
    source: str,
    statement: str,
    *,
    difference: Numbers,
    stderr: Numbers = 0.0,
    resolution: float | int,
) -> Check:
    """Judges that two things differ: the opposite of `mean_check` with the prediction 0.

    `resolution` is the smallest difference that counts, of rounding where there is no noise (`stderr` 0).
    """
    found = _estimate(difference, stderr)
    verdict: Verdict = "inconclusive"
    if found.low > resolution or found.high < -resolution:
        verdict = "confirmed"
    elif -resolution <= found.low and found.high <= resolution:
        verdict = "refuted"
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=None,
        measured=found.mean,
        interval=(found.low, found.high),
        verdict=verdict,
        rule=f"difference ± 4 standard errors: confirmed if all of it lies beyond ±{resolution:.3g}, the smallest difference "
        "that counts, refuted if all of it lies within",
    )


def lead_check(name: str, source: str, statement: str, *, lead: Numbers, stderr: Numbers, least: float | int) -> Check:
    """Judges that one thing is ahead of another: as `difference_check`, but the other way round refutes it.

    `least` is the smallest lead that counts.
    """
    found = _estimate(lead, stderr)
    verdict: Verdict = "confirmed" if found.low > least else "refuted" if found.high <= least else "inconclusive"
    return Check(
        name=name,
        source=source,
        statement=statement,
        predicted=None,
        measured=found.mean,
        interval=(found.low, found.high),
        verdict=verdict,
        rule=f"lead ± 4 standard errors: confirmed if all of it lies above {least:.3g}, the smallest lead that counts, "
        "refuted if none does",
    )


def _estimate(value: Numbers, stderr: Numbers) -> Mean:
    return Mean(float(np.asarray(value)), float(np.asarray(stderr)))


def _verdict(agrees: bool, *, resolved: bool) -> Verdict:
    if not agrees:
        return "refuted"
    return "confirmed" if resolved else "inconclusive"


def _half_width(fit: PowerLawFit | AsymptoticExponent) -> tuple[float, str]:
    if isinstance(fit, AsymptoticExponent):
        meaning = "4 standard errors and the shift when the smallest width is dropped; one subleading term fitted"
        return fit.interval[1] - fit.exponent, meaning
    return STANDARD_ERRORS * fit.stderr, "4 standard errors"
