"""Choose between four models of swept data.

They are a power law, and one with a subleading term, above an offset, or with a logarithm.
"""

from dataclasses import dataclass

import numpy as np
import xarray as xr

from specjax.arguments import checked_but
from specjax.fits import _log_models
from specjax.fits._goodness_of_fit import whitened
from specjax.fits._regression import LogModel, fit_curve, fit_log
from specjax.fits._resampling import By, sample_of, weights
from specjax.fits.fit import Model

_LOG_MODELS: tuple[LogModel, ...] = ("power law", "subleading")
_TESTS = 4  # the misfit of the power law, and one more term of each other model


@dataclass(frozen=True)
class Candidate:
    """A model with its `misfit` T².

    `p_misfit` is small if the data reject the model; `p_term` is the p-value of its term beyond the
    power law.
    """

    model: Model
    misfit: float
    p_misfit: float
    p_term: float | None


@dataclass(frozen=True)
class ModelChoice:
    """The chosen `model`, the `reason`, and the candidates with their tests.

    The model is None if the data reject all four.
    """

    model: Model | None
    reason: str
    candidates: tuple[Candidate, ...]


@checked_but("data")
def choose_model(
    data: xr.DataArray, dim: str, *, significance: float = 0.05, by: By = "mean"
) -> ModelChoice:
    """Choose between y = a xᵇ, a xᵇ (1 + c/x), E + A xᵇ and a xᵇ (log x)ᶜ.

    They are called "power law", "subleading", "offset" and "logarithm".

    The power law is kept unless one of four tests, each at `significance`/4, rejects it: that of
    its misfit, and those of a subleading term, of an offset and of a power of the logarithm. So a
    true power law is kept with probability at least 1 - `significance`. Otherwise the choice is the
    subleading term or the offset, by the smaller misfit, if that is not rejected at `significance`;
    else the logarithm; if all are rejected, none. The reason names all that are not. The tests are
    those of `specjax.fits._goodness_of_fit`, with the seeds of the width with fewest.

    The choice uses the data, which the interval of a later fit ignores: it is too narrow if the
    choice was close. Data and warnings are those of `fit_power_law`, with at least 4 widths and
    more seeds than widths.

    Raises:
        ValueError: fewer widths or seeds; a refusal of `fit_power_law`; a width without seed noise,
            or widths that move together exactly, so that any misfit would be infinitely
            significant.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 2.0 ** np.arange(3, 9), np.random.default_rng(1).normal(1, 0.01, (50, 6))
        >>> data = xr.DataArray(d**2 * noise, dims=("seed", "d"), coords={"d": d})
        >>> fits.choose_model(data, "d").model
        'power law'
    """
    sample = sample_of(data, dim, least=4, by=by)
    white = whitened(sample, significance)
    means, stderrs = sample.means_and_stderrs()
    logs = np.log(means)[None]
    log_weights = weights(sample.x, (stderrs / means)[None], sample.counts)
    # Least-squares exponents start the search: without the covariance between widths they are
    # nearly right.
    fitted = [fit_log(sample.x, logs, log_weights, model) for model in _LOG_MODELS]
    fitted.append(fit_curve(sample.x, means[None], weights(sample.x, stderrs[None], sample.counts)))
    line, term, curve = (float(fit.exponent[0]) for fit in fitted)
    _, plain, *_ = white.nearest(white.power, line)
    _, subleading, *_ = white.nearest(lambda b: white.subleading(b)[0], line, term)
    _, offset, *_ = white.nearest(white.offset, line, curve)
    in_logs, logarithm = (
        model(white, significance).misfit for model in (_log_models.plain, _log_models.logarithmic)
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
    against += [term for term, p in terms.items() if p is not None and p < significance / _TESTS]
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
        names = ", ".join(f"{other.model!r} (p = {other.p_misfit:.2g})" for other in also)
        rest = f"not contradicted either: {names}"
    reason = (
        f"{opening}; the model {chosen.model!r} is not (misfit p = {chosen.p_misfit:.2g}), and"
        f" {rest}."
    )
    return ModelChoice(chosen.model, reason, candidates)
