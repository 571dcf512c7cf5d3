"""The exponents of a quantity at large sizes that the data do not reject.

A power law with one correction x⁻ᵍ and one above an offset are fitted; the exponent lies in the
intervals of those that the data do not reject. Neither need be the whole law: a correction may have
a second term that is no larger at the smallest size. A power of the logarithm moves exponents too,
and is excluded or counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import xarray as xr

from specjax.arguments import checked_but
from specjax.fits._extrapolation import (
    FEWEST,
    LEAST_LOGARITHM,
    TWO_TERMS,
    Extrapolation,
    Extrapolations,
    extrapolate_sample,
    with_another_term,
)
from specjax.fits._logarithms import in_words
from specjax.fits._resampling import By, Sample, sample_of


@dataclass(frozen=True, eq=False)
class Asymptotics:
    """The exponents in a size at large sizes, given data.

    Attributes:
        exponent: That of the nearest power law with a correction or an offset; NaN if the data
            reject all of them.
        within: The interval of the exponents of such curves that are not rejected, lengthened by
            the shift.
        powers: The same of both models, with 0 if a curve above an offset settles at a limit.
        interval: Of all curves, those with a logarithm as well.
        limit: Whether a curve with a limit above 0 is as near, if the mean falls or rises.
        curve: In words, the nearest power law; if the data reject them, the nearest with a
            logarithm, or empty.
        left_out: The number of smallest sizes left out, at which the data reject every power law.
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
        """Whether the data reject every power law."""
        return bool(np.isnan(self.exponent))

    def from_logarithm(self, exponent: float, *, any_unit: bool = True) -> tuple[float, bool]:
        """Standard errors to the nearest xᵇ (log x/x₁)ᶜ with this b and |c| >= 1/2; whether all are
        excluded.

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
    """The exponents at large `dim` that `data` do not reject at `significance`.

    If every power law with one correction is rejected, two terms of a series of corrections are
    fitted. If those are rejected as well, the smallest sizes are left out, as long as 5 remain.
    Data, errors and warnings are those of `fits.extrapolate`.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 2.0 ** np.arange(3, 11), np.random.default_rng(0).normal(1, 0.01, (50, 8))
        >>> data = xr.DataArray((d + 1) * noise, dims=("seed", "d"), coords={"d": d})
        >>> found = fits.asymptotics(data, "d", significance=0.01)
        >>> round(found.exponent, 1), found.limit
        (1.0, False)
    """
    sample = sample_of(data, dim, least=FEWEST, by=by)
    last: Extrapolations | None = None
    for left_out in range(len(sample.x) - FEWEST + 1):
        part = sample.select(slice(left_out, None))
        for models in _one_or_two_terms(part, significance):
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


def _one_or_two_terms(part: Sample, significance: float) -> Iterator[Extrapolations]:
    """The models with one correction, then with two if there are enough sizes to reject them."""
    models = extrapolate_sample(part, significance, second_terms=True)
    yield models
    if len(part.x) > FEWEST:
        yield with_another_term(part, significance, models)


def _exponents(models: Extrapolations, significance: float, left_out: int) -> Asymptotics:
    offset, corrected, log = models
    intervals = [model.exponents for model in (corrected,) if model.p_misfit >= significance]
    limit = False
    if offset.p_misfit >= significance:
        limit, leading = _leading(offset)
        intervals += [] if limit and intervals else [leading]
    nearest = corrected if corrected.p_misfit >= significance else offset
    # The correction may be that of the other model, unless one is rejected.
    within = intervals[0]
    powers = _hull([*intervals, *([(0.0, 0.0)] if limit else [])])
    interval = powers
    assert log.powers is not None
    if log.p_misfit >= significance and not log.powers[0] <= 0 <= log.powers[1]:
        # A logarithm fits better: the distance it moves the exponent measures the effect of the
        # unknown form.
        interval = _hull([powers, log.exponents], abs(log.exponent - nearest.exponent))
    curve = _curve(nearest)
    return Asymptotics(
        nearest.exponent, within, powers, interval, limit, curve, left_out, models, significance
    )


def _hull(intervals: list[tuple[float, float]], farther: float = 0.0) -> tuple[float, float]:
    return min(low for low, _ in intervals) - farther, max(high for _, high in intervals) + farther


def _leading(offset: Extrapolation) -> tuple[bool, tuple[float, float]]:
    """Whether all curves above an offset approach a limit above 0, and their leading exponents."""
    assert offset.limits is not None
    (low, high), rising = offset.exponents, offset.rises
    if rising:
        # A negative b approaches a limit from below.
        return high < 0, (max(low, 0.0), max(high, 0.0))
    settled = offset.limits[0] > 0
    return settled, (0.0, 0.0) if settled else (low, min(high, 0.0))


def _curve(model: Extrapolation) -> str:
    """The nearest curve in words, with the terms that were fitted (`Extrapolation.formula`)."""
    power, two_terms = f"x^{model.exponent:.3g}", model.formula in TWO_TERMS
    if model.model == "offset":
        if model.is_logarithm:
            return "E + A log x"
        another = f" + B x^{2 * model.exponent:.3g}" if two_terms else ""
        return f"E + A {power}{another}"
    assert model.power is not None
    if model.model == "logarithm":
        words = in_words(model.exponent, model.power, model.unit)
        return f"{words} exp(p x^-g)" if two_terms else words
    if two_terms:
        return f"{power} exp(p x^-{model.power:.2g} + q x^-{2 * model.power:.2g})"
    return f"{power} (1 + c x^-{model.power:.2g})"
