"""The test of a predicted exponent against a fitted one."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

from specjax.sweep.fit import PowerLawFit
from specjax.sweep.offset_fit import OffsetFit


@dataclass(frozen=True)
class Agreement:
    """The test of the null hypothesis that data follow the fitted model with exponent `predicted`.

    `p_value` is two-sided: how often, if the null is true, a fit is as far from its exponent as this one. It is below 1 - level
    exactly if `predicted` is outside the fit's interval at that level. Bootstrap replicates cannot tell p-values below `resolution`
    apart: a p-value equal to it is an upper bound. `distance` is `predicted` less the fitted exponent, in `standard_errors` of them.

    A large p-value says that these data do not contradict the prediction, and the interval what else they do not contradict.
    """

    predicted: float
    distance: float
    standard_errors: float
    p_value: float
    resolution: float


def agreement(fit: PowerLawFit | OffsetFit, predicted: float | int) -> Agreement:
    """Tests whether `predicted` is the exponent of `fit`, from its bootstrap replicates and Student's t.

    The p-value is that of the interval: the level at which the expanded percentile interval ends at `predicted`. As the interval, it
    assumes the model, so that a curve that is no power law is contradicted for that reason alone; see :func:`choose_model`.

    Raises:
        ValueError: the fitted data have no seed noise, or `predicted` is not finite.
    """
    if not np.isfinite(predicted):
        raise ValueError(f"A predicted exponent needs to be a finite number, got {predicted}.")
    if fit.stderr == 0:
        raise ValueError(
            f"The fit of {fit.name!r} has no seed noise, so that no test can be made; compare {fit.exponent!r} with the prediction."
        )
    replicates = np.sort(fit.replicates.exponent)
    # The position among the replicates, as np.quantile interpolates it.
    below = float(np.interp(predicted, replicates, np.linspace(0, 1, len(replicates)), left=0.0, right=1.0))
    resolution = _two_sided(1 / (len(replicates) + 1), fit.freedom)
    return Agreement(
        predicted=float(predicted),
        distance=float(predicted - fit.exponent),
        standard_errors=float((predicted - fit.exponent) / fit.stderr),
        p_value=max(resolution, _two_sided(min(below, 1 - below), fit.freedom)),
        resolution=resolution,
    )


def _two_sided(tail: float, freedom: float) -> float:
    """1 - level of the interval that leaves `tail` of the replicates beyond each end: the inverse of `tail_of`."""
    if tail == 0:
        return 0.0
    return float(2 * stats.t.cdf(stats.norm.ppf(tail) * np.sqrt(freedom / (freedom + 1)), freedom))
