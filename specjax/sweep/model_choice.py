"""Which of three models swept data follow: a power law, one with a subleading term, or one above an offset.

The measure is the squared Mahalanobis distance T² between the means and the nearest curve of a model, with the covariance of the means
between widths estimated from the seeds. For means of normal data and a model linear near its optimum this is Hotelling's statistic,
whose distribution takes the coupling of widths and the estimate of the covariance into account, exactly and with no resampling.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import linalg, optimize, stats

from specjax.sweep.bootstrap import Sample, sample_of, weights
from specjax.sweep.fit import fit_sample
from specjax.sweep.regression import exponent_bounds, fit_curve, fit_log, rise, s_bounds

Model = Literal["power law", "subleading", "offset"]
_REFINED = 3  # starts of a search that are followed to their minimum
_ALONE = 1e-10  # share of its variance that a width has for itself at least, for the covariance to be inverted


@dataclass(frozen=True)
class Candidate:
    """A model and its tests.

    `misfit` is T² and `p_misfit` its p-value: small if the model is contradicted by the data. `p_term` is the p-value of the one
    term that the model has beyond the power law: small if the data need it; None for the power law.
    """

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
    contradicted, none.

    T² of the misfit is referred to Hotelling's distribution, and the fall of T² by a term to Rao's test for additional information
    (Rao 1948; Mardia, Kent and Bibby 1979, theorem 5.2.2 and section 3.6): with n seeds and p = widths - 2, (n - p) ΔT²/(n - 1 + T²)
    is F(1, n - p). n is the number of seeds of the width with fewest.

    The choice uses the data, and the interval of a fit made after it does not know: it is too narrow where the choice was close.

    Args:
        data: Dimensions exactly `dim` and "seed", or "batch"; more seeds than widths, and at least 4 widths.
        dim: The dimension that is x.
        significance: Probability of leaving a true power law.

    Raises:
        ValueError: fewer widths or seeds; what :func:`fit_power_law` refuses; a width without seed noise, or widths that move
            together exactly, so that any misfit would be infinitely significant.

    Warns:
        RoughFitWarning: fewer than 10 seeds or batches.
    """
    if not 0 < significance < 1:
        raise ValueError(f"significance needs to be between 0 and 1, got {significance}; write e.g. 0.05.")
    sample = sample_of(data, dim, least=4)
    n, p = int(sample.counts.min()), len(sample.x) - 2
    check_seeds(sample)
    misfits = _misfits(sample)
    plain = misfits["power law"]
    candidates = tuple(
        Candidate(model, misfit, p_misfit(misfit, p, n), None)
        if model == "power law"
        else Candidate(model, misfit, p_misfit(misfit, p - 1, n), _p_term(plain - misfit, misfit, p, n))
        for model, misfit in misfits.items()
    )
    return _choose(candidates, significance)


def _choose(candidates: tuple[Candidate, ...], significance: float) -> ModelChoice:
    plain, *others = candidates
    against = [f"misfit p = {plain.p_misfit:.2g}"] if plain.p_misfit < significance / 3 else []
    against += [
        f"{other.model} term p = {other.p_term:.2g}"
        for other in others
        if other.p_term is not None and other.p_term < significance / 3
    ]
    if not against:
        terms = ", ".join(f"{other.model} term p = {other.p_term:.2g}" for other in others)
        return ModelChoice(
            "power law",
            f"Nothing is against a power law at {significance / 3:.2g}: misfit p = {plain.p_misfit:.2g}, {terms}.",
            candidates,
        )
    opening = f"A power law is contradicted at {significance / 3:.2g} ({', '.join(against)})"
    left = sorted((c for c in others if c.p_misfit >= significance), key=lambda c: c.misfit)
    if not left:
        ps = ", ".join(f"{other.model}: p = {other.p_misfit:.2g}" for other in others)
        return ModelChoice(
            None, f"{opening}, and so are both models with a term more, by their misfit ({ps}).", candidates
        )
    chosen, *also = left
    rest = (
        f"the model {also[0].model!r} has the larger misfit, and is not contradicted either (p = {also[0].p_misfit:.2g})"
        if also
        else "the other model is contradicted"
    )
    return ModelChoice(
        chosen.model,
        f"{opening}; the model {chosen.model!r} is not (misfit p = {chosen.p_misfit:.2g}), and {rest}.",
        candidates,
    )


def check_seeds(sample: Sample) -> None:
    """Raises ValueError unless there are more seeds than widths."""
    n = int(sample.counts.min())
    if n <= len(sample.x):
        raise ValueError(
            f"A covariance between {len(sample.x)} widths needs more seeds than widths, got {n}; run more seeds."
        )


def p_misfit(misfit: float, freedom: int, n: int) -> float:
    """The p-value of a misfit T² with `freedom` widths more than parameters, and n seeds."""
    return float(stats.f.sf((n - freedom) / (freedom * (n - 1)) * misfit, freedom, n - freedom))


def _p_term(fall: float, misfit: float, freedom: int, n: int) -> float:
    return float(stats.f.sf((n - freedom) * max(fall, 0.0) / (n - 1 + misfit), 1, n - freedom))


def _misfits(sample: Sample) -> dict[Model, float]:
    """T² of the nearest curve of each model."""
    x = sample.x
    line, means, stderrs = fit_sample(sample, subleading=False)
    _, whiten = whitening_of(sample)
    log_y, log_weights = np.log(means)[None], weights(x, (stderrs / means)[None], sample.counts)
    least_s, greatest_s = s_bounds(x)
    # Starts: the diagonal fit with the term, and diagonal lines at several fixed terms, since the covariance may prefer another valley.
    term = fit_log(x, log_y, log_weights, subleading=True)
    starts = [(float(term.exponent[0]), float(term.s[0]))]
    for s in np.linspace(least_s, greatest_s, 9)[1:-1]:
        rest = fit_log(x, log_y - np.log1p(x[0] * np.expm1(s) / x), log_weights, subleading=False)
        starts.append((float(rest.exponent[0]), float(s)))
    curve = fit_curve(x, means[None], weights(x, stderrs[None], sample.counts))
    low, high = exponent_bounds(x)
    bends = [(float(b),) for b in (curve.exponent[0], line.exponent[0], *np.linspace(low, high, 9)[1:-1])]

    def power(b: float) -> np.ndarray:
        return np.exp(b * np.log(x / x[-1]))[:, None]

    def subleading(b: float, s: float) -> np.ndarray:
        return power(b) * (1 + x[0] * np.expm1(s) / x)[:, None]

    def offset(b: float) -> np.ndarray:
        return np.stack([np.ones_like(x), rise(x, np.array([b]))[0]], axis=1)

    free = (-np.inf, np.inf)
    plain = _least(whiten, means, power, [(float(line.exponent[0]),)], [free])
    return {
        "power law": plain,
        "subleading": _least(
            whiten, means, subleading, [*starts, (float(line.exponent[0]), 0.0)], [free, (least_s, greatest_s)]
        ),
        "offset": _least(whiten, means, offset, bends, [(low, high)]),
    }


def whitening_of(sample: Sample) -> tuple[Float[np.ndarray, " n"], Callable[[np.ndarray], np.ndarray]]:
    """The means, and what takes (widths, k) to units in which they are independent and of variance 1.

    Raises:
        ValueError: a width without seed noise, or widths that move together exactly.
    """
    means, stderrs = sample.means_and_stderrs()
    if not (stderrs > 0).all():
        raise ValueError(
            f"Misfit is weighed against seed noise, and {sample.name!r} has none at {sample.dim}="
            f"{sample.x[np.argmin(stderrs > 0)]:g}; compare the local exponents of a fit instead."
        )
    counts = sample.counts[:, None]
    influence = sample.deviations(means) / np.sqrt(counts * (counts - 1.0)) / stderrs[:, None]
    correlation = influence @ influence.T
    try:
        factor = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        factor = np.zeros_like(correlation)
    if np.min(np.diag(factor)) ** 2 < _ALONE:
        raise ValueError(
            f"The widths of {sample.name!r} move together exactly, and no noise is left to weigh misfit against; "
            "compare the local exponents of a fit instead."
        )
    inverse = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
    return means, lambda columns: inverse @ (columns / stderrs[:, None])


def _least(
    whiten: Callable[[np.ndarray], np.ndarray],
    means: np.ndarray,
    basis: Callable[..., np.ndarray],
    starts: Sequence[tuple[float, ...]],
    bounds: Sequence[tuple[float, float]],
) -> float:
    """The least squared distance of `means` from the span of `basis(*parameters)`, in whitened units."""
    target = whiten(means[:, None])[:, 0]

    def residual(parameters: np.ndarray) -> np.ndarray:
        q, _ = np.linalg.qr(whiten(basis(*parameters)))
        return target - q @ (q.T @ target)

    low, high = np.array(bounds).T
    inside = [np.clip(start, low, high) for start in starts]
    best = sorted(inside, key=lambda start: float(np.sum(residual(start) ** 2)))[:_REFINED]
    ends = [optimize.least_squares(residual, start, bounds=(low, high), x_scale="jac") for start in best]
    return float(2 * min(end.cost for end in ends))
