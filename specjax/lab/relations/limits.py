"""What a quantity does as a size grows: vanish, stay bounded, approach a limit, or grow like a
power; rivals of one another.

Growth and limits follow from the curves that the data do not contradict
(`specjax.fits.extrapolation`), of three models: E + A xᵇ, a xᵇ (1 + c x⁻ᵍ) and a xᵇ (log x)ᶜ. A
model that the data contradict says nothing, and where they contradict all nothing is decided. What
vanishes or stays bounded has a local exponent between the two largest sizes, which a fit to all
sizes would blur; neither is confirmed where the curves say otherwise.
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
from specjax.lab.estimates import TAIL, Estimate, Number, draw_dim, estimate, known, student
from specjax.lab.outcome import Distance, Finding, Verdict
from specjax.lab.relations.relation import Relation

DECAY = -0.25
"""Local exponents of what vanishes are below it: halfway between a constant and 1/√size, the
slowest rate at which fluctuations of a random matrix vanish.
"""
LEAST_GROWTH = 0.01
"""What grows has exponents above it: terms that no model has move the exponent of what settles by
as much.
"""
SLOWEST_GROWTH = 0.1
"""What approaches a limit must not grow, or vanish, as fast as size^0.1 by a power law with a
correction: no data exclude all.
"""
SLOWEST_APPROACH = 0.25
"""The least power of the correction of such a law; one that is slower is a logarithm to data."""
_MISFIT = 2 * TAIL


@dataclass(frozen=True, eq=False)
class _Ends(Relation):
    """Draws over a size, with what their curves say of larger ones."""

    draws: xr.DataArray
    dim: str
    by: fits.By = "mean"

    @property
    def seeds(self) -> int:
        """How many draws there are."""
        return self.draws.sizes[draw_dim(self.draws)]

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size with the fitted power law, on logarithmic axes."""
        draw_power(axes, self.draws, self.dim)

    def _times(self, power: float) -> "Relation":
        sizes = self.draws[self.dim]
        return replace(self, draws=self.draws * (sizes / sizes[0]) ** power)


class _Local(_Ends):
    """A range of the local exponent between the two largest sizes, and a behaviour of the curves
    that excludes it.
    """

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """The ends of the range."""

    @abstractmethod
    def otherwise(self) -> Finding:
        """What the curves say of the other behaviour."""

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if the whole interval of the local exponent lies in the range, unless the
        curves confirm the other behaviour.
        """
        reason, (low, high) = "", self.range
        try:
            fit = fits.fit_power_law(self.draws, self.dim, by=self.by)
            exponent, half = (
                float(fit.local_exponents[-1]),
                student(self.seeds) * float(fit.local_stderrs[-1]),
            )
        except ValueError as error:
            exponent, half, reason = np.nan, np.inf, str(error)
        found = known(exponent, exponent - half, exponent + half, self.seeds)
        verdict: Verdict = "inconclusive"
        if found.low > low and found.high < high:
            verdict = "confirmed"
        elif found.high < low or found.low > high:
            verdict = "refuted"
        other = self.otherwise()
        if other.verdict == "confirmed" and verdict != "refuted":
            verdict, reason = self._contradicted(other)
        ends = self.draws[self.dim].values[-2:]
        inside = f"below {high:g}" if np.isinf(low) else f"between {low:g} and {high:g}"
        return Finding(
            verdict,
            f"local exponent between {self.dim} = {ends[0]:g} and {ends[1]:g} ± 4 standard errors"
            f" (Student's t): confirmed if all of it lies {inside}, refuted if none does;"
            f" {self._unless}",
            outcome.points(
                found, min(self.range, key=lambda end: abs(found.value - end)), first=found.value
            ),
            found.draws,
            (),
            reason,
        )

    _unless: str

    @abstractmethod
    def _contradicted(self, other: Finding) -> tuple[Verdict, str]: ...


class Vanishes(_Local):
    """See `vanishes`."""

    _unless = "inconclusive if the curves E + A xᵇ that the data allow have a limit E that is not 0"

    @property
    def range(self) -> tuple[float, float]:
        """Below the slowest decay that counts."""
        return -np.inf, DECAY

    def perturbed(self) -> dict[str, Relation]:
        """The data with a constant, which is what does not vanish; it hides behind a fall of the
        last mean alone.
        """
        return {
            "a constant put in": replace(
                self, draws=self.draws + abs(self.draws.isel({self.dim: 0})).mean()
            )
        }

    def otherwise(self) -> Finding:
        """Whether they approach a limit."""
        return Saturates(self.draws, self.dim, self.by).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        limit = other.deciding
        return (
            "inconclusive",
            (
                "It falls at these sizes, but the curves that the data allow have the limit"
                f" {limit.estimate:.3g} ({limit.low:.3g} to {limit.high:.3g})."
            ),
        )


class Settles(_Local):
    """See `settles`."""

    _unless = "refuted as well if the curves that the data allow grow without end"

    @property
    def range(self) -> tuple[float, float]:
        """Between the slowest decay and the slowest growth that count."""
        return DECAY, -DECAY

    def perturbed(self) -> dict[str, Relation]:
        """The data with a decay and with growth put in, of which wide intervals cannot tell."""
        return {"over √size": self._times(-0.5), "times √size": self._times(0.5)}

    def otherwise(self) -> Finding:
        """Whether they grow."""
        return Grows(self.draws, self.dim, self.by).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        return _it_grows(other)


@dataclass(frozen=True, eq=False)
class Bounded(_Local):
    """See `bounded`."""

    slower_than: float = field(kw_only=True)

    _unless = "refuted as well if the curves that the data allow grow without end"

    @property
    def range(self) -> tuple[float, float]:
        """Below the slowest growth that counts."""
        return -np.inf, self.slower_than

    def perturbed(self) -> dict[str, Relation]:
        """The data with growth put in, which a bound on the exponent above 1/2 does not see."""
        return {"times √size": self._times(0.5)}

    def otherwise(self) -> Finding:
        """Whether they grow."""
        return Grows(self.draws, self.dim, self.by).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        return _it_grows(other)


def _it_grows(other: Finding) -> tuple[Verdict, str]:
    return (
        "refuted",
        f"It grows: the exponent is from {other.deciding.low:.3g} to {other.deciding.high:.3g}.",
    )


class _Curves(_Ends):
    """What the curves say, of those models that the data bear."""

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """The verdict of the curves that the data do not contradict."""
        try:
            models = fits.extrapolate(
                self.draws, self.dim, significance=_MISFIT, slowest=self._slowest, by=self.by
            )
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
        borne = [end for end in models if end.p_misfit >= _MISFIT]
        found, distances = self._estimated(models)
        verdict = self._decided(borne) if borne else "inconclusive"
        return Finding(
            verdict,
            f"{self._rule}; a model counts unless its misfit is contradicted at {_MISFIT:.1g}, and"
            " its curves are those within 4 standard errors of the nearest",
            outcome.points(found, 0.0, first=found.value),
            self.seeds,
            distances,
            (
                ""
                if verdict != "inconclusive"
                else " ".join((_OPENINGS[bool(borne)], *map(_told, models)))
            ),
        )

    _rule: str
    _slowest = fits.SLOWEST

    @abstractmethod
    def _decided(self, borne: list[fits.Extrapolation]) -> Verdict: ...

    @abstractmethod
    def _estimated(
        self, models: tuple[fits.Extrapolation, ...]
    ) -> tuple[Estimate, tuple[Distance, ...]]: ...


_OPENINGS = {
    True: "The models that the data bear do not decide.",
    False: "The data contradict all models: more sizes, or larger ones, may bear one.",
}
_FORMULAS = {"offset": "E + A xᵇ", "subleading": "a xᵇ (1 + c x⁻ᵍ)", "logarithm": "a xᵇ (log x)ᶜ"}


def _told(end: fits.Extrapolation) -> str:
    limit = "" if end.limits is None else f", E from {end.limits[0]:.3g} to {end.limits[1]:.3g}"
    power = "" if end.powers is None else f", c from {end.powers[0]:.3g} to {end.powers[1]:.3g}"
    low, high = end.exponents
    return (
        f"{_FORMULAS[end.model]}: b from {low:.3g} to {high:.3g}{limit}{power} (misfit p ="
        f" {end.p_misfit:.2g})."
    )


def _powers_and_logarithm(
    borne: Sequence[fits.Extrapolation],
) -> tuple[list[fits.Extrapolation], fits.Extrapolation | None]:
    """The models with powers alone, and that with a power of the logarithm, None where the data
    contradict it.
    """
    powers = [end for end in borne if end.model != "logarithm"]
    return powers, next((end for end in borne if end.model == "logarithm"), None)


class Grows(_Curves):
    """See `grows`."""

    _rule = (
        "confirmed if all curves of the models E + A xᵇ and a xᵇ (1 + c x⁻ᵍ) that the data bear"
        " rise with an exponent b > 0.01, or those with a logarithm where they bear no other, and"
        " none with a logarithm has b = 0; refuted if those of none do and those of one have b < 0"
        " or fall"
    )

    def _decided(self, borne: list[fits.Extrapolation]) -> Verdict:
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
        borne, _ = _powers_and_logarithm([end for end in models if end.p_misfit >= _MISFIT])
        # The one that is nearest to the other verdict.
        last = min(borne or models[:2], key=lambda end: end.exponents[0])
        limit = Distance("a limit", last.from_zero, last.exponents[0] > LEAST_GROWTH)
        log = models[2]
        apart = log.p_misfit < _MISFIT or not log.exponents[0] <= 0 <= log.exponents[1]
        logarithm = Distance(
            "a power of the logarithm alone", _from(models, log.misfit + log.from_zero**2), apart
        )
        return known(last.exponent, *last.exponents, self.seeds), (limit, logarithm)


class Saturates(_Curves):
    """See `saturates`."""

    _rule = (
        "confirmed if the curves E + A xᵇ that the data allow have a limit E with a finite interval"
        " above 0, those of a xᵇ (1 + c x⁻ᵍ), if the data bear it, an exponent of 0 and none of 0.1"
        " or more that goes on as they do, and those of a xᵇ (log x)ᶜ, if the data bear it, no c of"
        " 1/2 or more that does; refuted if those of no model that the data bear have a limit"
        " above 0"
    )
    _slowest = SLOWEST_APPROACH

    def perturbed(self) -> dict[str, Relation]:
        """The data with growth put in, which hides where a term that falls is larger."""
        return {"times size^(1/4)": self._times(0.25)}

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size, and the limit with its interval."""
        draw_estimates(axes, estimate(self.draws, self.by), self.dim)
        limit = self.judge(rivals).deciding
        if np.isfinite([limit.low, limit.high]).all():
            axes.axhspan(limit.low, limit.high, color="black", alpha=0.15, label="limit")
        axes.set_ylabel(str(self.draws.name or "mean"))

    def _decided(self, borne: list[fits.Extrapolation]) -> Verdict:
        powers, logarithm = _powers_and_logarithm(borne)
        if powers and not any(map(_may_approach, borne)):
            return "refuted"
        offset = next((end for end in powers if end.model == "offset"), None)
        if (
            offset is None
            or offset.limits is None
            or not (offset.limits[0] > 0 and offset.limits[1] < np.inf)
        ):
            return "inconclusive"
        goes_on = [_goes_on(end, offset.rises) for end in powers if end is not offset]
        unending = any(goes_on) or (logarithm is not None and _is_unending(logarithm))
        return "confirmed" if all(map(_may_approach, powers)) and not unending else "inconclusive"

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
            _from(models, log.logs.misfit_with(None, fits.LEAST_LOGARITHM)),
            apart,
        )
        return known(offset.limit, *offset.limits, self.seeds), (growth, nothing, logarithm)


def _from(models: tuple[fits.Extrapolation, ...], misfit: float) -> float:
    """How far a curve with that misfit is from the nearest one, in standard errors."""
    return float(np.sqrt(max(misfit - min(end.misfit for end in models), 0.0)))


def _may_approach(end: fits.Extrapolation) -> bool:
    """Whether some curve that the data allow has a limit above 0; but for E + A xᵇ they have one at
    b = 0 alone, without a logarithm.
    """
    if end.limits is None:
        constant = end.powers is None or end.powers[0] <= 0 <= end.powers[1]
        return constant and end.exponents[0] <= 0 <= end.exponents[1]
    return end.exponents[0] < 0 < end.limits[1]


def _goes_on(end: fits.Extrapolation, rises: bool) -> bool:
    """Whether some curve grows, where the means do, or vanishes, where they fall, as size^0.1 at
    least.
    """
    return end.exponents[1] >= SLOWEST_GROWTH if rises else end.exponents[0] <= -SLOWEST_GROWTH


def _is_unending(log: fits.Extrapolation) -> bool:
    """Whether some curve has a power of the logarithm of 1/2 at least that its other power does not
    turn at larger sizes.
    """
    assert log.powers is not None
    assert log.power is not None
    if log.powers[0] > -fits.LEAST_LOGARITHM and log.powers[1] < fits.LEAST_LOGARITHM:
        return False
    turned = log.exponents[1] < 0 if log.power > 0 else log.exponents[0] > 0
    return not turned


@checked
def vanishes(draws: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Vanishes:
    """The mean of `draws`, positive, falls faster than size^(-1/4) at the end of the sizes `dim`,
    and no limit above 0 is confirmed.

    A limit far below the last mean may be left: it shows where the fall becomes slower.

    Args:
        draws: Dimensions exactly `dim` and "seed" or "batch"; at least 3 sizes, and 5 for limits to
            be looked for.
        dim: The size.
        by: What vanishes: the mean, the median, or the geometric mean ("log").

    Raises:
        ValueError: other dimensions, fewer sizes, or sizes that are no positive numbers.
    """
    return Vanishes(_over(draws, dim, "vanishes", 3, by), dim, by)


@checked
def settles(draws: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Settles:
    """The mean of `draws`, positive, neither vanishes nor grows at the end: its local exponent
    there is between -1/4 and 1/4.

    It says less than `saturates`, which has an interval for the limit, and needs less. Dimensions
    and sizes as for `vanishes`.
    """
    return Settles(_over(draws, dim, "settles", 3, by), dim, by)


@checked
def bounded(
    draws: xr.DataArray, dim: str, *, slower_than: float | int, by: fits.By = "mean"
) -> Bounded:
    """The mean of `draws`, positive, grows more slowly than size^`slower_than` at the end, and is
    not confirmed to grow like a power.

    It is a statement about the sizes swept: a logarithm passes, whose local exponent is small.
    `saturates` asks for a limit.

    Args:
        draws: Dimensions exactly `dim` and "seed" or "batch"; at least 5 sizes, and more seeds than
            sizes.
        dim: The size.
        slower_than: The slowest growth that counts: local exponents above it at the end are to be
            excluded, since no data exclude all.
        by: What stays bounded: the mean, the median, or the geometric mean ("log").

    Raises:
        ValueError: other dimensions, fewer sizes, or `slower_than` not above 0.
    """
    if not slower_than > 0:
        raise ValueError(
            f"The slowest growth that counts is a positive exponent, got {slower_than}."
        )
    return Bounded(
        _over(draws, dim, "stays bounded", 5, by), dim, by, slower_than=float(slower_than)
    )


@checked
def saturates(draws: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Saturates:
    """The mean of `draws`, positive, approaches a finite limit above 0 as the size `dim` grows; its
    rivals are growth and the limit 0.

    The limit has an interval, which is finite exactly where growth is excluded. Dimensions and
    sizes as for `bounded`.
    """
    return Saturates(_over(draws, dim, "saturates", 5, by), dim, by)


@checked
def grows(draws: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Grows:
    """The mean of `draws`, positive, grows like a power of the size `dim` without end; its rival is
    a limit.

    Dimensions and sizes as for `bounded`.
    """
    return Grows(_over(draws, dim, "grows", 5, by), dim, by)


def _over(draws: xr.DataArray, dim: str, behaviour: str, least: int, by: fits.By) -> xr.DataArray:
    needed = {dim, draw_dim(draws)}
    if set(map(str, draws.dims)) != needed:
        raise ValueError(
            f"What {behaviour} with {dim!r} needs the dimensions {sorted(needed)}, got"
            f" {sorted(map(str, draws.dims))}."
        )
    if draws.sizes[dim] < least:
        raise ValueError(
            f"What {behaviour} as {dim!r} grows needs at least {least} sizes, got"
            f" {draws.sizes[dim]}."
        )
    fits.require_sizes(draws, dim)
    fits.require_single_draws(by, draws)
    return draws.sortby(dim)
