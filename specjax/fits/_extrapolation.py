"""Extrapolate swept data beyond the sizes swept: all curves of three models that they do not
reject.

The models are y = E + A xᵇ ("offset"), y = a xᵇ (1 + c x⁻ᵍ) with a fitted power g ("subleading"),
and y = a xᵇ (log x)ᶜ ("logarithm"). A model that the data reject gets one more term. An exponent is
not rejected if the distance T² of `specjax.fits._goodness_of_fit` is above its least value by no
more than Rao's test allows for one parameter; likewise a limit E and a power c of the logarithm. As
b tends to 0, E runs to infinity: a limit has a finite interval exactly if growth without end is
rejected within that model.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import xarray as xr
from scipy import optimize

from specjax.arguments import checked_but
from specjax.fits import _log_models
from specjax.fits._goodness_of_fit import Whitened, beside, whitened
from specjax.fits._log_models import FASTEST, Allowed
from specjax.fits._logarithms import LEAST_LOGARITHM, Logarithms
from specjax.fits._regression import rise
from specjax.fits._resampling import By, Sample, sample_of

SLOWEST = 0.5
"""The least power g of a correction x⁻ᵍ: no random matrix settles slower than 1/√x."""
TOLERANCE = 3e-4
"""The relative error by which a model may miss a mean.

All laws have more terms than models, and precise data would reject any model.
"""
FEWEST = 5
"""The number of sizes that can reject a model with one correction; two need one more."""
_LIMITS = 401  # exponents at which a limit is computed
_FLATTEST = 1e-6  # the one nearest to 0: E + A xᵇ is a logarithm there


@dataclass(frozen=True)
class Extrapolation:
    """The curves of one model, with this `formula`, that data do not reject.

    `p_misfit` is the p-value of the nearest curve, small if the model is rejected, and `misfit` its
    T². `exponent` is b of that curve and `exponents` the interval of all. `rises` says whether the
    nearest curve does, at the largest x. `from_zero` is the distance of the nearest curve with b of
    the other sign, in standard errors.

    `limit` and `limits` are E for b < 0, of the model "offset", with infinite ends if b may be 0 or
    above, and `from_no_limit` is the distance of the nearest curve with E = 0 and b < 0;
    `logarithmic` is the local power of the logarithm of E + A log x at the largest x, 0 if b = 0 is
    rejected. `power` is g of "subleading" and c of (log x/unit)ᶜ of "logarithm"; `powers` is the
    interval of all c, and `logs` has all curves with one. Fields that a model lacks are None.
    """

    model: Literal["offset", "subleading", "logarithm"]
    formula: str
    p_misfit: float
    misfit: float
    exponent: float
    exponents: tuple[float, float]
    rises: bool
    from_zero: float
    power: float | None = None
    unit: float = 1.0
    powers: tuple[float, float] | None = None
    logs: Logarithms | None = None
    limit: float | None = None
    limits: tuple[float, float] | None = None
    from_no_limit: float | None = None
    logarithmic: float | None = None
    misfit_above_offset: float = np.inf
    p_above_offset: float = 0.0

    @property
    def is_logarithm(self) -> bool:
        """Whether E + A log x is not rejected, and is mostly a logarithm at the largest x.

        It is asked of the model "offset" only.
        """
        return self.logarithmic is not None and abs(self.logarithmic) >= LEAST_LOGARITHM


TWO_TERMS = ("E + A x⁻ᵍ + B x⁻²ᵍ", "a xᵇ exp(p x⁻ᵍ + q x⁻²ᵍ)", "a xᵇ (log x)ᶜ exp(p x⁻ᵍ)")
"""The formulas of the models "offset", "subleading" and "logarithm" with another term."""

Extrapolations = tuple[Extrapolation, Extrapolation, Extrapolation]
"""Those of the models "offset", "subleading" and "logarithm"."""


@checked_but("data")
def extrapolate(
    data: xr.DataArray,
    dim: str,
    *,
    significance: float,
    slowest: float = SLOWEST,
    tolerance: float = TOLERANCE,
    by: By = "mean",
    second_terms: bool = False,
) -> Extrapolations:
    """The curves of the models "offset", "subleading" and "logarithm" that `data` do not reject.

    If a model is right, each of its intervals excludes the truth with probability `significance` or
    less. A model that the data reject gets one more term, of any size, if there are widths to
    reject it: E + A x⁻ᵍ + B x⁻²ᵍ, a xᵇ exp(p x⁻ᵍ + q x⁻²ᵍ) and a xᵇ (log x)ᶜ exp(p x⁻ᵍ). Data,
    errors and warnings are those of `choose_model`, with at least 5 widths.

    Args:
        data: Dimensions exactly `dim` and "seed" or "batch".
        dim: The dimension that is x.
        significance: The level of rejection.
        slowest: The least power of a correction, at most 2.
        tolerance: The relative error by which a model may miss each mean besides the noise of the
            seeds.
        by: The center estimated at each x: the mean, the median or the geometric mean.
        second_terms: Whether the correction of "subleading" may have a second term that is no
            larger at the smallest width, x⁻²ᵍ or x⁻ᵍ log x.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 2.0 ** np.arange(3, 11), np.random.default_rng(0).normal(1, 0.01, (50, 8))
        >>> data = xr.DataArray((2 + 3 / d) * noise, dims=("seed", "d"), coords={"d": d})
        >>> offset, subleading, logarithm = fits.extrapolate(data, "d", significance=0.001)
        >>> offset.formula, round(offset.limit, 1), offset.p_misfit > 0.001
        ('E + A xᵇ', 2.0, True)
    """
    sample = sample_of(data, dim, least=FEWEST, by=by)
    models = extrapolate_sample(sample, significance, slowest, tolerance, second_terms=second_terms)
    offset, corrected, logarithm = models
    if any(model.p_misfit < significance for model in models):
        more = with_another_term(sample, significance, models, slowest, tolerance)
        # No data can reject a model with a parameter for every width.
        offset, corrected, logarithm = (
            other if model.p_misfit < significance and other.p_misfit < 1 else model
            for model, other in zip(models, more, strict=True)
        )
    means = whitened(sample, significance, tolerance)
    misfit = _log_models.above_an_offset(means)
    above = replace(logarithm, misfit_above_offset=misfit, p_above_offset=means.p_misfit(misfit, 4))
    return offset, corrected, above


def extrapolate_sample(
    sample: Sample,
    significance: float,
    slowest: float = SLOWEST,
    tolerance: float = TOLERANCE,
    *,
    second_terms: bool = False,
) -> Extrapolations:
    """The extrapolations of a sample; `second_terms` adds corrections with a second, no larger
    term.

    Raises:
        ValueError: the means cannot be tested (`whitened`), or `slowest` is outside of (0, 2].
    """
    if not 0 < slowest <= FASTEST:
        raise ValueError(
            f"The least power of a correction needs to be above 0 and at most {FASTEST:g}, got"
            f" {slowest}."
        )
    means = whitened(sample, significance, tolerance)
    corrected = _log_models.corrected(means, significance, slowest, second_terms=second_terms)
    logarithm = _log_models.logarithmic_in_any_unit(means, significance)
    return (
        _offset(means, significance),
        _from_curves("subleading", "a xᵇ (1 + c x⁻ᵍ)", means, corrected, significance),
        _from_curves("logarithm", "a xᵇ (log x)ᶜ", means, logarithm, significance),
    )


def with_another_term(
    sample: Sample,
    significance: float,
    models: Extrapolations,
    slowest: float = SLOWEST,
    tolerance: float = TOLERANCE,
) -> Extrapolations:
    """The extrapolations with another term: E + A x⁻ᵍ + B x⁻²ᵍ, a xᵇ exp(p x⁻ᵍ + q x⁻²ᵍ) and
    a xᵇ (log x)ᶜ exp(p x⁻ᵍ).

    The terms may have any size, and g is at least `slowest`. The exponents of `models` with a
    second term that is no larger are included.
    """
    means = whitened(sample, significance, tolerance)
    corrected = _log_models.corrected_twice(means, significance, slowest)
    low, high = corrected.exponents
    exponents = min(low, models[1].exponents[0]), max(high, models[1].exponents[1])
    logarithm = _log_models.logarithmic_corrected(means, significance, slowest)
    return (
        _limit_with_two_terms(means, significance, slowest),
        _from_curves(
            "subleading",
            TWO_TERMS[1],
            means,
            replace(corrected, exponents=exponents),
            significance,
        ),
        _from_curves("logarithm", TWO_TERMS[2], means, logarithm, significance),
    )


def _offset(means: Whitened, significance: float) -> Extrapolation:
    x, target = means.sample.x, means.target
    b, least, (low, high), other = _profile(means, means.offset, significance)
    constant = means.units(np.ones((len(x), 1)))
    limit: float = np.nan
    limits = (-np.inf, np.inf)
    from_no_limit = np.inf
    room = means.room(least, significance)
    if low < 0:
        falling = np.union1d(np.linspace(low, min(high, -_FLATTEST), _LIMITS), [b] if b < 0 else [])
        # With (x/x₀)ᵇ as the term E is the coefficient of the constant.
        terms = means.units((x[:, None] / x[0]) ** falling[None, :])
        e, stderr, misfits = beside(terms, np.broadcast_to(constant, terms.shape), target)
        half = np.sqrt(np.clip(room - (misfits - least), 0, None)) * stderr
        limits = float(np.min(e - half)), float(np.max(e + half))
        limit = float(e[np.argmin(misfits)])
        from_no_limit = float(np.sqrt(max(np.min(misfits + (e / stderr) ** 2) - least, 0.0)))
    slope, stderr, _ = beside(constant, means.units(rise(x, np.array([0.0, b])).T), target)
    if high >= 0:
        reach = np.sqrt(room) * stderr[0]
        limits = (
            -np.inf if slope[0] - reach < 0 else limits[0],
            (np.inf if slope[0] + reach > 0 else limits[1]),
        )
    logarithmic = 0.0
    if low <= 0 <= high:
        (start,), _, _ = beside(means.units(rise(x, np.zeros(1)).T), constant, target)
        logarithmic = float(slope[0] * np.log(x[-1]) / np.log(x[-1] / x[0]) / (start + slope[0]))
    return Extrapolation(
        "offset",
        "E + A xᵇ",
        means.p_misfit(least, 3),
        least,
        b,
        (low, high),
        bool(slope[1] > 0),
        other,
        limit=limit * means.unit,
        limits=(limits[0] * means.unit, limits[1] * means.unit),
        from_no_limit=from_no_limit,
        logarithmic=logarithmic,
    )


def _limit_with_two_terms(means: Whitened, significance: float, slowest: float) -> Extrapolation:
    """The curves E + A x⁻ᵍ + B x⁻²ᵍ; they have the fields of the model "offset" with b = -g."""
    x = means.sample.x
    powers = np.linspace(slowest, FASTEST, _LIMITS)
    term = (x[0] / x) ** powers[:, None]
    columns = np.stack([np.ones_like(term), term, term**2], axis=-1)
    white = np.stack([means.units(each) for each in columns])
    inverse = np.linalg.pinv(white, rcond=1e-13)
    coefficients = inverse @ means.target
    misfits = np.sum((means.target - np.einsum("snk,sk->sn", white, coefficients)) ** 2, axis=1)
    least = int(np.argmin(misfits))
    room = means.room(misfits[least], significance, 4)
    allowed = misfits <= misfits[least] + room
    e, stderr = coefficients[:, 0], np.sqrt(np.sum(inverse[:, 0] ** 2, axis=1))
    half = np.sqrt(np.clip(room - (misfits - misfits[least]), 0, None)) * stderr
    ends = np.min((e - half)[allowed]), np.max((e + half)[allowed])
    curve = columns[least] @ coefficients[least]
    from_no_limit = np.min(misfits + (e / stderr) ** 2) - misfits[least]
    return Extrapolation(
        "offset",
        TWO_TERMS[0],
        means.p_misfit(float(misfits[least]), 4),
        float(misfits[least]),
        -float(powers[least]),
        (-float(powers[allowed][-1]), -float(powers[allowed][0])),
        bool(curve[-1] > curve[-2]),
        np.inf,
        limit=float(e[least]) * means.unit,
        limits=(float(ends[0]) * means.unit, float(ends[1]) * means.unit),
        from_no_limit=float(np.sqrt(max(from_no_limit, 0.0))),
        logarithmic=0.0,
    )


def _from_curves(
    model: Literal["subleading", "logarithm"],
    formula: str,
    means: Whitened,
    found: Allowed,
    significance: float,
) -> Extrapolation:
    x = means.sample.x
    # The curve of a model that the data reject by far may overflow, and its logarithm does not.
    steps = found.exponent * np.log(x) + found.correction
    low, high = found.exponents
    # Standard errors from 0: the room has as many between the exponent and the end of its interval.
    reach = abs((low if found.exponent > 0 else high) - found.exponent)
    room = np.sqrt(means.room(found.misfit, significance, found.parameters))
    powers_only = Extrapolation(
        model,
        formula,
        means.p_misfit(found.misfit, found.parameters),
        found.misfit,
        found.exponent,
        found.exponents,
        bool(steps[-1] > steps[-2]),
        float(room * abs(found.exponent) / reach) if reach > 0 else np.inf,
        power=found.power,
    )
    if model == "subleading":
        return powers_only
    return replace(
        powers_only,
        power=found.logarithm,
        unit=found.unit,
        powers=found.logarithms,
        logs=found.logs,
    )


def _profile(
    means: Whitened, misfit: Callable[[np.ndarray], np.ndarray], significance: float
) -> tuple[float, float, tuple[float, float], float]:
    """The b of least misfit, that misfit, the interval of b, and the distance to the other sign of
    b.

    The distance is in standard errors.
    """
    b, least, grid, values = means.nearest(misfit)
    top = least + means.room(least, significance)

    def excess(b: float) -> float:
        return float(misfit(np.array([b]))[0]) - top

    def find_end(side: np.ndarray) -> float:
        """The outermost b of one side that is not rejected."""
        inside = side[values[side] <= top]
        last = float(grid[inside[-1]]) if len(inside) else b
        beyond = side[np.abs(grid[side] - b) > abs(last - b)]
        if not len(beyond):
            return last
        return float(optimize.brentq(excess, last, float(grid[beyond[0]])))

    places = np.arange(len(grid))
    interval = find_end(places[grid < b][::-1]), find_end(places[grid > b])
    others = values[grid <= 0] if b > 0 else values[grid >= 0]
    return b, least, interval, float(np.sqrt(max(others.min() - least, 0.0)))
