"""Relations about growth without end and finite limits, judged by extrapolated curves.

The curves are those that the data do not reject (`specjax.fits._extrapolation`), of three models:
E + A xᵇ, a xᵇ (1 + c x⁻ᵍ) and a xᵇ (log x)ᶜ. A model that the data reject gets one more term, and
has no say if they reject that too; if all are rejected, the verdict is inconclusive.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import fits
from specjax.arguments import checked
from specjax.lab import outcome
from specjax.lab.drawing import draw_estimates, draw_power
from specjax.lab.estimates import TAIL, Estimate, Number, estimate, known, sample_dim
from specjax.lab.outcome import ROOM, Distance, Finding, Verdict
from specjax.lab.relations._relation import Relation

LEAST_GROWTH = 0.01
"""Exponents of growth lie above it: terms that no model has move the exponent of a bounded quantity
by as much.
"""
SLOWEST_GROWTH = 0.1
"""For a limit to be confirmed, a power law with a correction must not grow, or vanish, as fast as
size^0.1; no data exclude all slower ones.
"""
SLOWEST_APPROACH = 0.25
"""Least power of the correction of such a law; data cannot tell a slower one from a logarithm."""
_MISFIT = 2 * TAIL


@dataclass(frozen=True, eq=False)
class SizeRelation(Relation):
    """A relation about the behaviour of samples as a size grows."""

    samples: xr.DataArray
    dim: str
    by: fits.By = "mean"

    @property
    def seeds(self) -> int:
        """The number of samples."""
        return self.samples.sizes[sample_dim(self.samples)]

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size with the fitted power law, on logarithmic axes."""
        draw_power(axes, self.samples, self.dim)

    def times_power(self, power: float) -> "Relation":
        """The relation to the data times a power of the size, 1 at the first size."""
        sizes = self.samples[self.dim]
        return replace(self, samples=self.samples * (sizes / sizes[0]) ** power)


class _CurveRelation(SizeRelation):
    """A relation judged by the models that the data do not reject."""

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        try:
            models = self._models(second_terms=False)
        except ValueError as error:
            nothing = known(np.nan, -np.inf, np.inf, self.seeds)
            return Finding(
                "inconclusive",
                self._rule,
                outcome.points(nothing, 0.0, first=nothing.value),
                self.seeds,
                (),
                str(error),
            )
        verdict = self._decided(models)
        if verdict != "confirmed":
            # Intervals that lack a second term are too short to exclude what is true.
            models = self._models(second_terms=True)
            verdict = self._decided(models)
        found, distances = self._estimated(models)
        borne = any(_is_borne(end) for end in models)
        return Finding(
            verdict,
            f"{self._rule}, with a second term no larger at the smallest size as well; a model"
            f" counts unless its misfit is contradicted at {_MISFIT:.1g}, with one more term too,"
            " and its curves are those within 4 standard errors of the nearest",
            outcome.points(found, 0.0, first=found.value),
            self.seeds,
            distances,
            (
                self._remark(found)
                if verdict == "confirmed"
                else " ".join((_OPENINGS[borne], *map(_described, models)))
                if verdict == "inconclusive"
                else ""
            ),
        )

    def _models(self, *, second_terms: bool) -> tuple[fits.Extrapolation, ...]:
        return fits.extrapolate(
            self.samples,
            self.dim,
            significance=_MISFIT,
            slowest=self._slowest,
            by=self.by,
            second_terms=second_terms,
        )

    def _remark(self, found: Estimate) -> str:
        """What else would be confirmed."""
        return ""

    _rule: str
    _slowest = fits.SLOWEST

    def _decided(self, models: tuple[fits.Extrapolation, ...]) -> Verdict:
        borne = [end for end in models if _is_borne(end)]
        return self._decided_by(borne) if borne else "inconclusive"

    @abstractmethod
    def _decided_by(self, borne: list[fits.Extrapolation]) -> Verdict: ...

    @abstractmethod
    def _estimated(
        self, models: tuple[fits.Extrapolation, ...]
    ) -> tuple[Estimate, tuple[Distance, ...]]: ...


_OPENINGS = {
    True: "The models that the data bear do not decide.",
    False: "The data contradict all models: more sizes, or larger ones, may bear one.",
}


def _is_borne(end: fits.Extrapolation) -> bool:
    """Whether the data do not reject the model."""
    return end.p_misfit >= _MISFIT


def _is_logarithm_above_offset(log: fits.Extrapolation) -> bool:
    """Whether the data do not reject E + A (log x)ᶜ."""
    return log.p_above_offset >= _MISFIT


def _described(end: fits.Extrapolation) -> str:
    limit = "" if end.limits is None else f", E from {end.limits[0]:.3g} to {end.limits[1]:.3g}"
    power = "" if end.powers is None else f", c from {end.powers[0]:.3g} to {end.powers[1]:.3g}"
    low, high = end.exponents
    return (
        f"{end.formula}: b from {low:.3g} to {high:.3g}{limit}{power} (misfit p ="
        f" {end.p_misfit:.2g})."
    )


def _powers_and_logarithm(
    borne: Sequence[fits.Extrapolation],
) -> tuple[list[fits.Extrapolation], fits.Extrapolation | None]:
    """The models with powers alone, and the one with a logarithm, None if it was rejected."""
    powers = [end for end in borne if end.model != "logarithm"]
    return powers, next((end for end in borne if end.model == "logarithm"), None)


@dataclass(frozen=True, eq=False)
class Grows(_CurveRelation):
    """See `grows`. Without `like_a_power` a logarithm above an offset counts as growth too."""

    like_a_power: bool = field(default=True, kw_only=True)

    _rule = (
        "confirmed if all curves of the models E + A xᵇ and a xᵇ (1 + c x⁻ᵍ) that the data bear"
        " rise with an exponent b > 0.01, or those with a logarithm where they bear no other, and"
        " none with a logarithm has b = 0, and the data do not bear E + A (log x)ᶜ, c from 1/2 to"
        " 2; refuted if those of none do and those of one have b < 0 or fall"
    )

    def _decided(self, models: tuple[fits.Extrapolation, ...]) -> Verdict:
        verdict = super()._decided(models)
        slow = self.like_a_power and _is_logarithm_above_offset(models[2])
        return "inconclusive" if verdict == "confirmed" and slow else verdict

    def _decided_by(self, borne: list[fits.Extrapolation]) -> Verdict:
        powers, logarithm = _powers_and_logarithm(borne)
        growing = [end.rises and end.exponents[0] > LEAST_GROWTH for end in powers]
        slow = logarithm is not None and logarithm.exponents[0] <= 0 <= logarithm.exponents[1]
        fast = logarithm is not None and logarithm.rises and logarithm.exponents[0] > LEAST_GROWTH
        if all(growing) and not slow and (powers or fast):
            return "confirmed"
        ending = any(
            end.exponents[1] < 0 or (end.exponents[0] > 0 and not end.rises) for end in powers
        )
        return "refuted" if ending and not any(growing) and not fast else "inconclusive"

    def _estimated(
        self, models: tuple[fits.Extrapolation, ...]
    ) -> tuple[Estimate, tuple[Distance, ...]]:
        borne, _ = _powers_and_logarithm([end for end in models if _is_borne(end)])
        # The model nearest to the other verdict.
        last = min(borne or models[:2], key=lambda end: end.exponents[0])
        limit = Distance("a limit", last.from_zero, last.exponents[0] > LEAST_GROWTH)
        log = models[2]
        apart = log.p_misfit < _MISFIT or not log.exponents[0] <= 0 <= log.exponents[1]
        nearest = log.misfit + log.from_zero**2
        if self.like_a_power:
            apart &= not _is_logarithm_above_offset(log)
            nearest = min(nearest, log.misfit_above_offset)
        logarithm = Distance(
            "a power of the logarithm alone", _standard_errors(models, nearest), apart
        )
        return known(last.exponent, *last.exponents, self.seeds), (limit, logarithm)

    def _remark(self, found: Estimate) -> str:
        spare = float(found.low) > 2 * LEAST_GROWTH
        return f"{ROOM}: half of the exponent would do." if spare else ""

    def is_farther(self, first: Finding, second: Finding) -> bool:
        """Whether the exponent is at least as large."""
        return first.deciding.estimate >= second.deciding.estimate


class Saturates(_CurveRelation):
    """See `saturates`."""

    _rule = (
        "confirmed if the curves E + A xᵇ that the data allow have a limit E with a finite interval"
        " above 0, those of a xᵇ (1 + c x⁻ᵍ), if the data bear it, an exponent of 0 and none of 0.1"
        " or more that goes on as they do, and those of a xᵇ (log x)ᶜ, if the data bear it, no c of"
        " 1/2 or more that does; refuted if those of no model that the data bear have a limit"
        " above 0"
    )
    _slowest = SLOWEST_APPROACH

    @property
    def claims_no_effect(self) -> bool:
        """That a size changes little in the end is true of data that are constant in it."""
        return True

    def perturbed(self) -> dict[str, Relation]:
        """The data with growth put in, which a larger falling term can hide."""
        return {"times size^(1/4)": self.times_power(0.25)}

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size, and the limit with its interval."""
        draw_estimates(axes, estimate(self.samples, self.by), self.dim)
        limit = self.judge(rivals).deciding
        if np.isfinite([limit.low, limit.high]).all():
            axes.axhspan(limit.low, limit.high, color="black", alpha=0.15, label="limit")
        axes.set_ylabel(str(self.samples.name or "mean"))

    def _decided_by(self, borne: list[fits.Extrapolation]) -> Verdict:
        powers, logarithm = _powers_and_logarithm(borne)
        if powers and not any(map(_may_have_limit, borne)):
            return "refuted"
        offset = next((end for end in powers if end.model == "offset"), None)
        if (
            offset is None
            or offset.limits is None
            or not (offset.limits[0] > 0 and offset.limits[1] < np.inf)
        ):
            return "inconclusive"
        goes_on = [_keeps_going(end, offset.rises) for end in powers if end is not offset]
        unending = any(goes_on) or (logarithm is not None and _is_unending(logarithm))
        return "confirmed" if all(map(_may_have_limit, powers)) and not unending else "inconclusive"

    def _estimated(
        self, models: tuple[fits.Extrapolation, ...]
    ) -> tuple[Estimate, tuple[Distance, ...]]:
        offset, _, log = models
        assert offset.limit is not None
        assert offset.limits is not None
        assert offset.from_no_limit is not None
        assert log.logs is not None
        growth = Distance(
            "growth", offset.from_zero if offset.exponent < 0 else 0.0, offset.exponents[1] < 0
        )
        nothing = Distance("a limit of 0", offset.from_no_limit, offset.limits[0] > 0)
        apart = log.p_misfit < _MISFIT or not _is_unending(log)
        logarithm = Distance(
            "a power of the logarithm",
            _standard_errors(models, log.logs.misfit_with(None, fits.LEAST_LOGARITHM)),
            apart,
        )
        return known(offset.limit, *offset.limits, self.seeds), (growth, nothing, logarithm)


def _standard_errors(models: tuple[fits.Extrapolation, ...], misfit: float) -> float:
    """Distance of a curve with that misfit from the nearest curve, in standard errors."""
    return float(np.sqrt(max(misfit - min(end.misfit for end in models), 0.0)))


def _may_have_limit(end: fits.Extrapolation) -> bool:
    """Whether an allowed curve has a limit above 0. Models other than E + A xᵇ have one only at
    b = 0 and without a logarithm.
    """
    if end.limits is None:
        constant = end.powers is None or end.powers[0] <= 0 <= end.powers[1]
        return constant and end.exponents[0] <= 0 <= end.exponents[1]
    return end.exponents[0] < 0 < end.limits[1]


def _keeps_going(end: fits.Extrapolation, rises: bool) -> bool:
    """Whether an allowed curve grows (if the means rise) or vanishes (if they fall) at least as
    fast as size^0.1.
    """
    return end.exponents[1] >= SLOWEST_GROWTH if rises else end.exponents[0] <= -SLOWEST_GROWTH


def _is_unending(log: fits.Extrapolation) -> bool:
    """Whether an allowed curve has a logarithm to the power of at least 1/2 that the power of the
    size does not reverse at larger sizes.
    """
    assert log.powers is not None
    assert log.power is not None
    if log.powers[0] > -fits.LEAST_LOGARITHM and log.powers[1] < fits.LEAST_LOGARITHM:
        return False
    turned = log.exponents[1] < 0 if log.power > 0 else log.exponents[0] > 0
    return not turned


@checked
def saturates(samples: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Saturates:
    """The mean of `samples`, positive, approaches a finite limit above 0 as the size `dim` grows;
    its rivals are growth and the limit 0.

    The limit has an interval, which is finite exactly where growth is excluded. Dimensions and
    sizes as for `bounded`.

    Examples:
        >>> from specjax import lab
        >>> d, noise = 2.0 ** np.arange(3, 11), np.random.default_rng(0).normal(1, 0.01, (50, 8))
        >>> norm = xr.DataArray((2 - 1 / d) * noise, dims=("seed", "d"), coords={"d": d})
        >>> lab.saturates(norm, "d").judge({}).verdict
        'confirmed'
    """
    return Saturates(require_size_axis(samples, dim, "saturates", 5, by), dim, by)


@checked
def grows(samples: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Grows:
    """The mean of `samples`, positive, grows like a power of the size `dim` without end; its rivals
    are a limit and a power of the logarithm, also above an offset.

    Dimensions and sizes as for `bounded`.

    Examples:
        >>> from specjax import lab
        >>> d, noise = 2.0 ** np.arange(3, 11), np.random.default_rng(0).normal(1, 0.01, (50, 8))
        >>> norm = xr.DataArray(d * noise, dims=("seed", "d"), coords={"d": d})
        >>> lab.grows(norm, "d").judge({}).verdict
        'confirmed'
    """
    return Grows(require_size_axis(samples, dim, "grows", 5, by), dim, by)


def require_size_axis(
    samples: xr.DataArray, dim: str, behaviour: str, least: int, by: fits.By
) -> xr.DataArray:
    """The samples sorted by size; raises ValueError for other dimensions or too few sizes."""
    needed = {dim, sample_dim(samples)}
    if set(map(str, samples.dims)) != needed:
        raise ValueError(
            f"What {behaviour} with {dim!r} needs the dimensions {sorted(needed)}, got"
            f" {sorted(map(str, samples.dims))}."
        )
    if samples.sizes[dim] < least:
        raise ValueError(
            f"What {behaviour} as {dim!r} grows needs at least {least} sizes, got"
            f" {samples.sizes[dim]}."
        )
    fits.require_sizes(samples, dim)
    fits.require_single_samples(by, samples)
    return samples.sortby(dim)
