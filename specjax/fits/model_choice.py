"""Which of four models swept data follow: a power law, one with a subleading term, one above an
offset, or one with a logarithm.
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from specjax.arguments import checked_but
from specjax.fits import log_models
from specjax.fits.fit import Model
from specjax.fits.goodness_of_fit import whitened
from specjax.fits.regression import LogModel, fit_curve, fit_log
from specjax.fits.resampling import By, sample_of, weights

_LOG_MODELS: tuple[LogModel, ...] = ("power law", "subleading")
_TESTS = 4  # of the misfit of the power law, and of one more term of each other model


@dataclass(frozen=True)
class Candidate:
    """A model, its `misfit` T² with a p-value that is small if the data contradict it, and that of
    its term beyond the power law.
    """

    model: Model
    misfit: float
    p_misfit: float
    p_term: float | None


@dataclass(frozen=True)
class ModelChoice:
    """The chosen `model`, None where the data contradict all four, the `reason`, and the candidates
    with their tests.
    """

    model: Model | None
    reason: str
    candidates: tuple[Candidate, ...]


@checked_but("data")
def choose_model(
    data: xr.DataArray, dim: str, *, significance: float = 0.05, by: By = "mean"
) -> ModelChoice:
    """Chooses between y = a xᵇ ("power law"), a xᵇ (1 + c/x) ("subleading"), E + A xᵇ ("offset")
    and a xᵇ (log x)ᶜ ("logarithm").

    The rule: the power law is kept unless one of four tests, each at `significance`/4, is against
    it: that of its misfit, and those of a subleading term, of an offset and of a power of the
    logarithm. So a true power law is kept with probability at least 1 - `significance`. Otherwise
    it is the one of the subleading term and the offset with the smaller misfit, among those whose
    misfit is not contradicted at `significance`, or else the logarithm; if all are contradicted,
    none. The reason names all that are not. The tests are those of `specjax.fits.goodness_of_fit`,
    with the seeds of the width with fewest.

    The choice uses the data, and the interval of a fit made after it does not know: it is too
    narrow where the choice was close. Data and warnings are those of `fit_power_law`, with at least
    4 widths and more seeds than widths.

    Raises:
        ValueError: fewer widths or seeds; what `fit_power_law` refuses; a width without seed noise,
            or widths that move together exactly, so that any misfit would be infinitely
            significant.
    """
    sample = sample_of(data, dim, least=4, by=by)
    white = whitened(sample, significance)
    means, stderrs = sample.means_and_stderrs()
    logs, log_weights = (
        np.log(means)[None],
        weights(sample.x, (stderrs / means)[None], sample.counts),
    )
    # Exponents by least squares, where a search may start: without the covariance between widths,
    # nearly the same.
    fitted = [fit_log(sample.x, logs, log_weights, model) for model in _LOG_MODELS]
    fitted.append(fit_curve(sample.x, means[None], weights(sample.x, stderrs[None], sample.counts)))
    line, term, curve = (float(fit.exponent[0]) for fit in fitted)
    _, plain, *_ = white.nearest(white.power, line)
    _, subleading, *_ = white.nearest(lambda b: white.subleading(b)[0], line, term)
    _, offset, *_ = white.nearest(white.offset, line, curve)
    in_logs, logarithm = (
        model(white, significance).misfit for model in (log_models.plain, log_models.logarithmic)
    )
    falls: dict[Model, tuple[float, float]] = {
        "subleading": (plain - subleading, subleading),
        "offset": (plain - offset, offset),
        "logarithm": (in_logs - logarithm, logarithm),
    }
    others = (
        Candidate(model, misfit, white.p_misfit(misfit, 3), white.p_term(fall, misfit))
        for model, (fall, misfit) in falls.items()
    )
    return _choose(
        (Candidate("power law", plain, white.p_misfit(plain, 2), None), *others), significance
    )


def _choose(candidates: tuple[Candidate, ...], significance: float) -> ModelChoice:
    plain, *others = candidates
    misfit = f"misfit p = {plain.p_misfit:.2g}"
    terms = {f"{other.model} term p = {other.p_term:.2g}": other.p_term for other in others}
    against = [misfit] if plain.p_misfit < significance / _TESTS else []
    against += [told for told, p in terms.items() if p is not None and p < significance / _TESTS]
    if not against:
        reason = (
            f"Nothing is against a power law at {significance / _TESTS:.2g}:"
            f" {', '.join([misfit, *terms])}."
        )
        return ModelChoice("power law", reason, candidates)
    opening = f"A power law is contradicted at {significance / _TESTS:.2g} ({', '.join(against)})"
    left = sorted(
        (c for c in others if c.p_misfit >= significance),
        key=lambda c: (c.model == "logarithm", c.misfit),
    )
    if not left:
        ps = ", ".join(f"{other.model}: p = {other.p_misfit:.2g}" for other in others)
        reason = f"{opening}, and so are all models with a term more, by their misfit ({ps})."
        return ModelChoice(None, reason, candidates)
    chosen, *also = left
    rest = "all others are contradicted"
    if also:
        told = ", ".join(f"{other.model!r} (p = {other.p_misfit:.2g})" for other in also)
        rest = f"not contradicted either: {told}"
    reason = (
        f"{opening}; the model {chosen.model!r} is not (misfit p = {chosen.p_misfit:.2g}), and"
        f" {rest}."
    )
    return ModelChoice(chosen.model, reason, candidates)
