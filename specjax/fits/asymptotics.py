"""The exponent of a quantity at large sizes: every one that some curve has which the data do not
contradict.

A power law with one correction x⁻ᵍ and one above an offset are fitted; the exponent is inside of
the intervals of those that the data bear. Neither is the whole of a law: a correction may have a
second term that is no larger at the smallest size. A power of the logarithm moves exponents too,
and is excluded or counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from specjax.arguments import checked_but
from specjax.fits import log_models
from specjax.fits.extrapolation import (
    LEAST_LOGARITHM,
    Extrapolation,
    Extrapolations,
    extrapolate_sample,
    with_another_term,
)
from specjax.fits.resampling import By, Sample, sample_of

# sizes, at which a model with one correction can be contradicted; with two it takes one size more
_FEWEST = 5


@dataclass(frozen=True, eq=False)
class Asymptotics:
    """What data say of the exponent in a size at large sizes.

    Attributes:
        exponent: That of the nearest power law with a correction or an offset; NaN where the data
            contradict all of them.
        within: The interval of the exponents of such curves that are not contradicted, lengthened
            by the shift.
        powers: The same of both models, with 0 where a curve above an offset settles at a limit.
        interval: Of all curves, those with a logarithm as well.
        limit: Whether a curve with a limit above 0 is as near, where the mean falls or rises.
        curve: In words, the nearest power law; where the data contradict them, the nearest with a
            logarithm, or nothing.
        left_out: How many of the smallest sizes were left out, at which the data contradict every
            power law.
    """

    exponent: float
    within: tuple[float, float]
    powers: tuple[float, float]
    interval: tuple[float, float]
    limit: bool
    curve: str
    left_out: int
    _models: Extrapolations = field(repr=False)
    _significance: float = field(repr=False)

    @property
    def contradicted(self) -> bool:
        """Whether the data contradict every power law."""
        return bool(np.isnan(self.exponent))

    def from_logarithm(self, exponent: float, *, any_unit: bool = True) -> tuple[float, bool]:
        """Standard errors to the nearest xᵇ (log x/x₁)ᶜ with this b and a c of 1/2 or more up or
        down, and whether all are excluded.

        The unit x₁ is any below the smallest x, or 1. At 0 E + A log x is one of them, if it is
        mostly a logarithm at the largest size.
        """
        offset, _, log = self._models
        assert log.logs is not None
        misfit = log.logs.misfit_with(exponent, LEAST_LOGARITHM, any_unit=any_unit)
        excluded = log.p_misfit < self._significance or misfit > log.logs.top
        if exponent == 0 and offset.p_misfit >= self._significance and offset.is_logarithm:
            excluded = False
        least = min(model.misfit for model in self._models)
        return float(np.sqrt(max(misfit - least, 0.0))), excluded

    def logarithm(self, exponent: float, *, any_unit: bool = True) -> str:
        """The nearest curve with this exponent and a logarithm, in words."""
        offset, _, log = self._models
        assert log.logs is not None
        if exponent == 0 and offset.is_logarithm:
            return "E + A log x"
        return log.logs.curve_with(exponent, LEAST_LOGARITHM, any_unit=any_unit)


@checked_but("data")
def asymptotics(
    data: xr.DataArray, dim: str, *, significance: float, by: By = "mean"
) -> Asymptotics:
    """The exponents at large `dim` that `data` do not contradict at `significance`.

    Where every power law with one correction is contradicted, two terms of a series of corrections
    are fitted, and where that is as well the smallest sizes are left out, as long as 5 are left.
    Data, errors and warnings are those of `fits.extrapolate`.
    """
    sample = sample_of(data, dim, least=_FEWEST, by=by)
    last: Extrapolations | None = None
    for left_out in range(len(sample.x) - _FEWEST + 1):
        part = sample.at(slice(left_out, None))
        for models in _ever_more_terms(part, significance):
            if any(model.p_misfit >= significance for model in models[:2]):
                return _exponents(models, significance, left_out)
            if last is None or models[2].p_misfit > last[2].p_misfit:
                last = models
    assert last is not None
    everything = (-np.inf, np.inf)
    curve = _curve(last[2]) if last[2].p_misfit >= significance else ""
    return Asymptotics(
        np.nan, everything, everything, everything, False, curve, 0, last, significance
    )


def _ever_more_terms(part: Sample, significance: float) -> Iterator[Extrapolations]:
    """The models with one correction, and with two where there are sizes enough to contradict
    them.
    """
    models = extrapolate_sample(part, significance, second_terms=True)
    yield models
    if len(part.x) > _FEWEST:
        yield with_another_term(part, significance, models)


def _exponents(models: Extrapolations, significance: float, left_out: int) -> Asymptotics:
    offset, corrected, log = models
    intervals = [model.exponents for model in (corrected,) if model.p_misfit >= significance]
    limit = False
    if offset.p_misfit >= significance:
        limit, leading = _leading(offset)
        intervals += [] if limit and intervals else [leading]
    nearest = corrected if corrected.p_misfit >= significance else offset
    # A correction may be that of another of the two models, unless one is contradicted.
    within = intervals[0]
    powers = _reaching([*intervals, *([(0.0, 0.0)] if limit else [])])
    interval = powers
    assert log.powers is not None
    if log.p_misfit >= significance and not log.powers[0] <= 0 <= log.powers[1]:
        # A logarithm does better than none: how far it moves the exponent says how much the unknown
        # form does.
        interval = _reaching([powers, log.exponents], abs(log.exponent - nearest.exponent))
    return Asymptotics(
        nearest.exponent,
        within,
        powers,
        interval,
        limit,
        _curve(nearest),
        left_out,
        models,
        significance,
    )


def _reaching(intervals: list[tuple[float, float]], farther: float = 0.0) -> tuple[float, float]:
    return min(low for low, _ in intervals) - farther, max(high for _, high in intervals) + farther


def _leading(offset: Extrapolation) -> tuple[bool, tuple[float, float]]:
    """Whether curves above an offset approach a limit above 0 and no other, and the exponents of
    their leading term.
    """
    assert offset.limits is not None
    (low, high), rising = offset.exponents, offset.rises
    if rising:
        # A negative b approaches a limit from below.
        return high < 0, (max(low, 0.0), max(high, 0.0))
    settled = offset.limits[0] > 0
    return settled, (0.0, 0.0) if settled else (low, min(high, 0.0))


def _curve(model: Extrapolation) -> str:
    b = f"{model.exponent:.3g}"
    if model.model == "logarithm":
        assert model.power is not None
        return log_models.in_words(model.exponent, model.power, model.unit)
    if model.is_logarithm:
        return "E + A log x"
    return f"E + A x^{b}" if model.model == "offset" else f"x^{b} (1 + c x^-{model.power:.2g})"
