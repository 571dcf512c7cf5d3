"""What a quantity does as a size grows: vanish, stay bounded, approach a limit, or grow like a power; rivals of one another.

Growth and limits are told by the curves that the data do not contradict (`specjax.fits.ends`), of two models: E + A xᵇ, and
a xᵇ (1 + c/x). A model that the data contradict says nothing, and where they contradict both nothing is decided. What vanishes or stays
bounded has a local exponent between the two largest sizes, which a fit to all sizes would blur; neither is confirmed where the
curves say otherwise.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import fits
from specjax.lab import finding
from specjax.lab.drawing import draw_estimates, draw_power
from specjax.lab.estimates import TAIL, Estimate, Number, draw_dim, estimate, known, student
from specjax.lab.finding import Distance, Finding, Verdict
from specjax.lab.relations.relation import Relation

DECAY = -0.25
"""Local exponents of what vanishes are below it: halfway between a constant and 1/√size, the slowest rate at which fluctuations of a
random matrix vanish."""
_MISFIT = 2 * TAIL


@dataclass(frozen=True, eq=False)
class _Ends(Relation):
    """Draws over a size, with what their curves say of larger ones."""

    draws: xr.DataArray
    dim: str

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
    """A range of the local exponent between the two largest sizes, and a behaviour of the curves that excludes it."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """The ends of the range."""

    @abstractmethod
    def otherwise(self) -> Finding:
        """What the curves say of the other behaviour."""

    def judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if the whole interval of the local exponent lies in the range, unless the curves confirm the other behaviour."""
        reason, (low, high) = "", self.range
        try:
            fit = fits.fit_power_law(self.draws, self.dim)
            exponent, half = float(fit.local_exponents[-1]), student(self.seeds) * float(fit.local_stderrs[-1])
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
        return Finding(
            verdict,
            f"local exponent between {self.dim} = {ends[0]:g} and {ends[1]:g} ± 4 standard errors (Student's t): confirmed if all of it "
            f"lies between {low:g} and {high:g}, refuted if none does; {self._unless}",
            finding.points(found, min(self.range, key=lambda end: abs(found.value - end)), first=found.value),
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
        """The data with a constant, which is what does not vanish; it hides behind a fall of the last mean alone."""
        return {"a constant put in": replace(self, draws=self.draws + abs(self.draws.isel({self.dim: 0})).mean())}

    def otherwise(self) -> Finding:
        """Whether they approach a limit."""
        return Saturates(self.draws, self.dim).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        limit = other.deciding
        return "inconclusive", (
            f"It falls at these sizes, but the curves that the data allow have the limit {limit.estimate:.3g} "
            f"({limit.low:.3g} to {limit.high:.3g})."
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
        return Grows(self.draws, self.dim).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        return _it_grows(other)


@dataclass(frozen=True, eq=False)
class Bounded(_Local):
    """See `bounded`."""

    slower_than: float

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
        return Grows(self.draws, self.dim).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        return _it_grows(other)


def _it_grows(other: Finding) -> tuple[Verdict, str]:
    return "refuted", f"It grows: the exponent is from {other.deciding.low:.3g} to {other.deciding.high:.3g}."


class _Curves(_Ends):
    """What the curves say, of those models that the data bear."""

    def judge(self, rivals: Mapping[str, Number]) -> Finding:
        """The verdict of the curves that the data do not contradict."""
        try:
            both = fits.ends(self.draws, self.dim, significance=_MISFIT)
        except ValueError as error:
            nothing = known(np.nan, -np.inf, np.inf, self.seeds)
            return Finding(
                "inconclusive",
                self._rule,
                finding.points(nothing, 0.0, first=nothing.value),
                self.seeds,
                (),
                str(error),
            )
        borne = [end for end in both if end.p_misfit >= _MISFIT]
        found, distances = self._estimated(both)
        verdict = self._decided(borne) if borne else "inconclusive"
        return Finding(
            verdict,
            f"{self._rule}; a model counts unless its misfit is contradicted at {_MISFIT:.1g}, and its curves are those within 4 standard "
            "errors of the nearest",
            finding.points(found, 0.0, first=found.value),
            self.seeds,
            distances,
            "" if verdict != "inconclusive" else " ".join((_OPENINGS[bool(borne)], *map(_told, both))),
        )

    _rule: str

    @abstractmethod
    def _decided(self, borne: list[fits.End]) -> Verdict: ...

    @abstractmethod
    def _estimated(self, both: tuple[fits.End, fits.End]) -> tuple[Estimate, tuple[Distance, ...]]: ...


_OPENINGS = {
    True: "The models that the data bear do not decide.",
    False: "The data bear neither model: more sizes, or larger ones, may.",
}
_FORMULAS = {"offset": "E + A xᵇ", "subleading": "a xᵇ (1 + c/x)"}


def _told(end: fits.End) -> str:
    limit = "" if end.limits is None else f", E from {end.limits[0]:.3g} to {end.limits[1]:.3g}"
    low, high = end.exponents
    return f"{_FORMULAS[end.model]}: b from {low:.3g} to {high:.3g}{limit} (misfit p = {end.p_misfit:.2g})."


class Grows(_Curves):
    """See `grows`."""

    _rule = (
        "confirmed if all curves of every model that the data bear rise with an exponent b > 0; refuted if those of none do and those of "
        "one have b < 0 or fall"
    )

    def _decided(self, borne: list[fits.End]) -> Verdict:
        growing = [end.rises and end.exponents[0] > 0 for end in borne]
        if all(growing):
            return "confirmed"
        ending = any(end.exponents[1] < 0 or (end.exponents[0] > 0 and not end.rises) for end in borne)
        return "refuted" if ending and not any(growing) else "inconclusive"

    def _estimated(self, both: tuple[fits.End, fits.End]) -> tuple[Estimate, tuple[Distance, ...]]:
        borne = [end for end in both if end.p_misfit >= _MISFIT] or list(both)
        # The one that is nearest to the other verdict.
        last = min(borne, key=lambda end: end.exponents[0])
        limit = Distance("a limit", last.from_zero, last.exponents[0] > 0)
        return known(last.exponent, *last.exponents, self.seeds), (limit,)


class Saturates(_Curves):
    """See `saturates`."""

    _rule = (
        "confirmed if the curves E + A xᵇ that the data allow have a limit E with a finite interval above 0, and those of a xᵇ (1 + c/x), "
        "if the data bear it, have exponents on both sides of 0; refuted if those of no model that the data bear have such a limit"
    )

    def perturbed(self) -> dict[str, Relation]:
        """The data with growth put in, which hides where a term that falls is larger."""
        return {"times size^(1/4)": self._times(0.25)}

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size, and the limit with its interval."""
        draw_estimates(axes, estimate(self.draws), self.dim)
        limit = self.judge(rivals).deciding
        if np.isfinite([limit.low, limit.high]).all():
            axes.axhspan(limit.low, limit.high, color="black", alpha=0.15, label="limit")
        axes.set_ylabel(str(self.draws.name or "mean"))

    def _decided(self, borne: list[fits.End]) -> Verdict:
        approaching = [_may_approach(end) for end in borne]
        if not any(approaching):
            return "refuted"
        limited = any(end.limits is not None and end.limits[0] > 0 and end.limits[1] < np.inf for end in borne)
        return "confirmed" if limited and all(approaching) else "inconclusive"

    def _estimated(self, both: tuple[fits.End, fits.End]) -> tuple[Estimate, tuple[Distance, ...]]:
        offset, _ = both
        assert offset.limit is not None
        assert offset.limits is not None
        assert offset.from_no_limit is not None
        growth = Distance("growth", offset.from_zero if offset.exponent < 0 else 0.0, offset.exponents[1] < 0)
        nothing = Distance("a limit of 0", offset.from_no_limit, offset.limits[0] > 0)
        return known(offset.limit, *offset.limits, self.seeds), (growth, nothing)


def _may_approach(end: fits.End) -> bool:
    """Whether some curve that the data allow has a limit above 0; a xᵇ (1 + c/x) has one at b = 0."""
    if end.limits is None:
        return end.exponents[0] <= 0 <= end.exponents[1]
    return end.exponents[0] < 0 < end.limits[1]


def vanishes(draws: xr.DataArray, dim: str) -> Vanishes:
    """The mean of `draws`, positive, tends to zero as the size `dim` grows: faster than size^(-1/4) at the end, and to no other limit.

    Args:
        draws: Dimensions exactly `dim` and "seed" or "batch"; at least 3 sizes, and 5 for limits to be looked for.
        dim: The size.

    Raises:
        ValueError: other dimensions, or fewer sizes.
    """
    return Vanishes(_over(draws, dim, "vanishes", 3), dim)


def settles(draws: xr.DataArray, dim: str) -> Settles:
    """The mean of `draws`, positive, neither vanishes nor grows at the end: its local exponent there is between -1/4 and 1/4.

    It says less than `saturates`, which has an interval for the limit, and needs less. Dimensions and sizes as for `vanishes`.
    """
    return Settles(_over(draws, dim, "settles", 3), dim)


def bounded(draws: xr.DataArray, dim: str, *, slower_than: float | int) -> Bounded:
    """The mean of `draws`, positive, stays bounded as the size `dim` grows: no growth without end, and none of size^`slower_than`.

    Args:
        draws: Dimensions exactly `dim` and "seed" or "batch"; at least 5 sizes, and more seeds than sizes.
        dim: The size.
        slower_than: The slowest growth that counts: local exponents above it at the end are to be excluded, since no data exclude all.

    Raises:
        ValueError: other dimensions, fewer sizes, or `slower_than` not above 0.
    """
    if not slower_than > 0:
        raise ValueError(f"The slowest growth that counts is a positive exponent, got {slower_than}.")
    return Bounded(_over(draws, dim, "stays bounded", 5), dim, float(slower_than))


def saturates(draws: xr.DataArray, dim: str) -> Saturates:
    """The mean of `draws`, positive, approaches a finite limit above 0 as the size `dim` grows; its rivals are growth and the limit 0.

    The limit has an interval, which is finite exactly where growth is excluded. Dimensions and sizes as for `bounded`.
    """
    return Saturates(_over(draws, dim, "saturates", 5), dim)


def grows(draws: xr.DataArray, dim: str) -> Grows:
    """The mean of `draws`, positive, grows like a power of the size `dim` without end; its rival is a limit.

    Dimensions and sizes as for `bounded`.
    """
    return Grows(_over(draws, dim, "grows", 5), dim)


def _over(draws: xr.DataArray, dim: str, behaviour: str, least: int) -> xr.DataArray:
    needed = {dim, draw_dim(draws)}
    if set(map(str, draws.dims)) != needed:
        raise ValueError(
            f"What {behaviour} with {dim!r} needs the dimensions {sorted(needed)}, got {sorted(map(str, draws.dims))}."
        )
    if draws.sizes[dim] < least:
        raise ValueError(f"What {behaviour} as {dim!r} grows needs at least {least} sizes, got {draws.sizes[dim]}.")
    return draws.sortby(dim)
