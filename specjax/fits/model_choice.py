"""Which of three models swept data follow: a power law, one with a subleading term, or one above an offset."""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from specjax.fits.bootstrap import sample_of, weights
from specjax.fits.fit import Model
from specjax.fits.misfit import whitened
from specjax.fits.regression import fit_curve, fit_log


@dataclass(frozen=True)
class Candidate:
    """A model, its `misfit` T² with a p-value that is small if the data contradict it, and that of its term beyond the power law."""

    model: Model
    misfit: float
    p_misfit: float
    p_term: float | None


@dataclass(frozen=True)
class ModelChoice:
    """The chosen `model`, None where the data contradict all three, the `reason`, and the candidates with their tests."""

    model: Model | None
    reason: str
    candidates: tuple[Candidate, ...]


def choose_model(data: xr.DataArray, dim: str, *, significance: float = 0.05) -> ModelChoice:
    """Chooses between y = a xᵇ ("power law"), y = a xᵇ (1 + c/x) ("subleading") and y = E + A xᵇ ("offset").

    The rule: the power law is kept unless one of three tests, each at `significance`/3, is against it: that of its misfit, and those
    of a subleading term and of an offset. So a true power law is kept with probability at least 1 - `significance`. Otherwise it is
    the one of the other two with the smaller misfit, among those whose misfit is not contradicted at `significance`; if both are
    contradicted, none. The tests are those of `specjax.fits.misfit`, with the seeds of the width with fewest.

    The choice uses the data, and the interval of a fit made after it does not know: it is too narrow where the choice was close.
    Data and warnings are those of `fit_power_law`, with at least 4 widths and more seeds than widths.

    Raises:
        ValueError: fewer widths or seeds; what `fit_power_law` refuses; a width without seed noise, or widths that move
            together exactly, so that any misfit would be infinitely significant.
    """
    sample = sample_of(data, dim, least=4)
    white = whitened(sample, significance)
    means, stderrs = sample.means_and_stderrs()
    logs, log_weights = np.log(means)[None], weights(sample.x, (stderrs / means)[None], sample.counts)
    # Exponents by least squares, where a search may start: without the covariance between widths, nearly the same.
    fitted = [fit_log(sample.x, logs, log_weights, subleading) for subleading in (False, True)]
    fitted.append(fit_curve(sample.x, means[None], weights(sample.x, stderrs[None], sample.counts)))
    line, term, curve = (float(fit.exponent[0]) for fit in fitted)
    _, plain, *_ = white.nearest(white.power, line)
    _, subleading, *_ = white.nearest(lambda b: white.subleading(b)[0], line, term)
    _, offset, *_ = white.nearest(white.offset, line, curve)
    candidates = (
        Candidate("power law", plain, white.p_misfit(plain, 2), None),
        Candidate(
            "subleading", subleading, white.p_misfit(subleading, 3), white.p_term(plain - subleading, subleading)
        ),
        Candidate("offset", offset, white.p_misfit(offset, 3), white.p_term(plain - offset, offset)),
    )
    return _choose(candidates, significance)


def _choose(candidates: tuple[Candidate, ...], significance: float) -> ModelChoice:
    plain, *others = candidates
    misfit = f"misfit p = {plain.p_misfit:.2g}"
    terms = {f"{other.model} term p = {other.p_term:.2g}": other.p_term for other in others}
    against = [misfit] if plain.p_misfit < significance / 3 else []
    against += [told for told, p in terms.items() if p is not None and p < significance / 3]
    if not against:
        reason = f"Nothing is against a power law at {significance / 3:.2g}: {', '.join([misfit, *terms])}."
        return ModelChoice("power law", reason, candidates)
    opening = f"A power law is contradicted at {significance / 3:.2g} ({', '.join(against)})"
    left = sorted((c for c in others if c.p_misfit >= significance), key=lambda c: c.misfit)
    if not left:
        ps = ", ".join(f"{other.model}: p = {other.p_misfit:.2g}" for other in others)
        reason = f"{opening}, and so are both models with a term more, by their misfit ({ps})."
        return ModelChoice(None, reason, candidates)
    chosen, *also = left
    rest = "the other model is contradicted"
    if also:
        rest = f"the model {also[0].model!r} has the larger misfit, and is not contradicted either (p = {also[0].p_misfit:.2g})"
    reason = f"{opening}; the model {chosen.model!r} is not (misfit p = {chosen.p_misfit:.2g}), and {rest}."
    return ModelChoice(chosen.model, reason, candidates)
