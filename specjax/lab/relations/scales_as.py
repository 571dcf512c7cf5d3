"""A quantity is a power of a size at each point, after a test whether it is a power at all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import fits
from specjax.lab import finding
from specjax.lab.drawing import draw_power
from specjax.lab.estimates import TAIL, Estimate, Number, draw_dim, require_sizes, student
from specjax.lab.finding import Distance, Finding, Verdict
from specjax.lab.relations.relation import Relation

Fit = Literal["power law", "asymptotic"]
RESOLUTION = 0.1
"""How far an exponent is that has to be excluded where no rival is named."""
LOGARITHM = "a power of the logarithm"
"""The rival that every exponent has: x^b (log x)^c with a c of 1/2 or more in magnitude, and any b."""


@dataclass(frozen=True, eq=False)
class ScalesAs(Relation):
    """See `scales_as`."""

    draws: xr.DataArray
    dim: str
    exponent: Number
    fit: Fit
    by: fits.By
    resolution: float | int

    @property
    def prediction(self) -> Number:
        """The exponent."""
        return self.exponent

    def against(self, rival: Number) -> "ScalesAs":
        """With another exponent; the fits, which know nothing of it, are the same."""
        other = replace(self, exponent=rival)
        vars(other)["_fitted"] = self._fitted
        return other

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if every power law that the data bear has the exponent, and no rival is the exponent of any curve that they bear."""
        fitted = self._fitted
        found = fitted.every
        away = found.distance(self.exponent)
        distances = finding.distances(found, rivals or self._nearby())
        logarithm = Distance(
            f"{LOGARITHM} of {self.dim}", float(fitted.from_logarithm.min()), bool((~fitted.logarithm).all())
        )
        decided = bool((fitted.reasons == "").all())
        verdict: Verdict = "inconclusive"
        # A point that does not follow the model has an exponent that says nothing.
        if bool((~found.contains(self.exponent) & (fitted.reasons == "")).any()):
            verdict = "refuted"
        elif decided and bool(fitted.within.contains(self.exponent).all()):
            verdict = "confirmed" if all(each.excluded for each in (*distances, logarithm)) else "inconclusive"
        return Finding(
            verdict,
            f"exponent in {self.dim} of {_MEANING[self.fit]}: confirmed if at every point the interval has the prediction inside, "
            f"every rival lies outside of one, and {LOGARITHM} of 1/2 or more is excluded; refuted if the prediction lies outside of the "
            f"exponents of all curves that the data allow; inconclusive where the data {_CONTRADICTED[self.fit]}",
            finding.points(found, self.exponent, first=away),
            found.draws,
            (*distances, logarithm),
            self._reason(fitted, distances) if verdict == "inconclusive" else "",
            away=float(away.max()),
        )

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size with the fitted power law, on logarithmic axes, for each point."""
        for point in self._points():
            at = ", ".join(f"{dim} = {self.draws[dim].values[place]}" for dim, place in point.items())
            draw_power(axes, self.draws.isel(point), self.dim, at or None)

    def _nearby(self) -> dict[str, Number]:
        return {f"the exponent {step:+g}": self.exponent + step for step in (self.resolution, -self.resolution)}

    def _reason(self, fitted: "_Fitted", distances: tuple[Distance, ...]) -> str:
        """Why nothing is decided: a contradicted model, curves with a logarithm or a limit, or a rival that is not excluded."""
        reasons = list(dict.fromkeys(filter(None, fitted.reasons.values.ravel().tolist())))
        if not reasons:
            reasons = list(dict.fromkeys(filter(None, fitted.others.values.ravel().tolist())))
            reasons += [f"The data do not exclude {each.rival}." for each in distances if not each.excluded]
        return " ".join(reasons)

    def _points(self) -> list[dict[str, int]]:
        dims = [str(dim) for dim in self.draws.dims if dim not in (self.dim, draw_dim(self.draws))]
        return [dict(zip(dims, place, strict=True)) for place in np.ndindex(*(self.draws.sizes[dim] for dim in dims))]

    @cached_property
    def _fitted(self) -> "_Fitted":
        """The exponents at each point."""
        dim = draw_dim(self.draws)
        frame = self.draws.isel({self.dim: 0, dim: 0}, drop=True)
        parts = zip(*(self._fitted_at(self.draws.isel(point)) for point in self._points()), strict=True)
        arrays = [frame.copy(data=np.reshape(np.array(part), frame.shape)) for part in parts]
        value, low, high, inner_low, inner_high, from_logarithm, logarithm, reasons, others = arrays
        draws = self.draws.sizes[dim]
        return _Fitted(
            Estimate(value, low, high, draws),
            Estimate(value, inner_low, inner_high, draws),
            from_logarithm,
            logarithm.astype(bool),
            reasons,
            others,
        )

    def _fitted_at(self, draws: xr.DataArray) -> "_At":
        try:
            found = fits.asymptotics(draws, self.dim, significance=2 * TAIL, by=self.by)
            if self.fit == "power law":
                return self._of_pure_power(draws, found)
        except ValueError as error:
            # A mean within noise of zero, say, has no logarithm: more draws are needed, and nothing is decided.
            return _At(np.nan, -np.inf, np.inf, -np.inf, np.inf, 0.0, True, str(error), "")
        if found.contradicted:
            reason = "The data contradict every power law with a correction and every one above an offset"
            reason += f"; {found.curve} would do." if found.curve else ", with a power of the logarithm as well."
            return _At(np.nan, -np.inf, np.inf, -np.inf, np.inf, 0.0, True, reason, "")
        return _At(
            found.exponent, *found.interval, *found.within, found.from_logarithm, found.logarithm, "", _told(found)
        )

    def _of_pure_power(self, draws: xr.DataArray, found: fits.Asymptotics) -> "_At":
        line = fits.fit_power_law(draws, self.dim, by=self.by)
        half = student(draws.sizes[draw_dim(draws)]) * line.stderr
        low, high = line.exponent - half, line.exponent + half
        choice = fits.choose_model(draws, self.dim, significance=2 * TAIL, by=self.by)
        reason = "" if choice.model == "power law" else choice.reason
        return _At(
            line.exponent,
            low,
            high,
            low,
            high,
            found.from_logarithm,
            found.logarithm,
            reason,
            _told(found, limits=False),
        )


@dataclass(frozen=True)
class _Fitted:
    """At each point: the exponents of all curves, those of power laws alone, what is known of a logarithm, why nothing is, and of what."""

    every: Estimate
    within: Estimate
    from_logarithm: xr.DataArray
    logarithm: xr.DataArray
    reasons: xr.DataArray
    others: xr.DataArray


class _At(NamedTuple):
    """The same at one point."""

    value: float
    low: float
    high: float
    inner_low: float
    inner_high: float
    from_logarithm: float
    logarithm: bool
    reason: str
    other: str


def _told(found: fits.Asymptotics, limits: bool = True) -> str:
    """Which other curves the data allow, empty where there are none."""
    if found.logarithm:
        return f"The data allow {found.curve} as well."
    return "The data allow a curve that settles at a limit as well." if limits and found.limit else ""


_CONTRADICTED: dict[Fit, str] = {
    "power law": "contradict a power law",
    "asymptotic": "contradict every power law, or settle at a limit instead",
}
_MEANING: dict[Fit, str] = {
    "power law": "a power law, ± 4 standard errors (Student's t)",
    "asymptotic": "power laws with one correction x^-g, g from 1/2 to 2, or above an offset, at 4 standard deviations, and for further "
    "terms the shift when the smallest size is left out",
}


def scales_as(
    draws: xr.DataArray,
    dim: str,
    exponent: Number,
    *,
    fit: Fit = "asymptotic",
    by: fits.By = "mean",
    resolution: float | int = RESOLUTION,
) -> ScalesAs:
    """The mean of `draws` grows as the power `exponent` of the size `dim`, at every point.

    With "power law" the data must follow y = a xᵇ at the sizes swept; with "asymptotic", y = a xᵇ (1 + c x⁻ᵍ + …) at large sizes, g from
    1/2 to 2. Where they contradict that, nothing is decided. A power of the logarithm is a rival of every exponent, and so is each
    exponent `resolution` away where the statement names no rival.

    Args:
        draws: Dimensions `dim` and "seed" or "batch", and those of the points; at least 5 sizes, and more seeds than sizes.
        dim: The size.
        exponent: What the statement says: a number, or one for each point.
        fit: Which model.
        by: What is a power: the mean, the median, or the geometric mean ("log").
        resolution: How far an exponent is that has to be excluded where no rival is named.

    Raises:
        ValueError: the draws lack `dim`, a dimension of the exponents, or have fewer than 5 sizes; sizes that are no
            numbers; another fit; a resolution that is not positive.
    """
    draw_dim(draws)
    if fit not in get_args(Fit):
        raise ValueError(f"fit needs to be one of {', '.join(map(repr, get_args(Fit)))}, got {fit!r}.")
    if not resolution > 0:
        raise ValueError(f"A resolution of exponents is a positive number, got {resolution}.")
    dims = list(map(str, draws.dims))
    if dim not in dims:
        raise ValueError(f"A power of {dim!r} needs draws with that dimension, got {sorted(dims)}.")
    require_sizes(draws, dim)
    if lacking := [str(other) for other in xr.DataArray(exponent).dims if other not in dims]:
        raise ValueError(
            f"The exponents have the dimensions {lacking}, which {draws.name!r} lacks; select or average them first."
        )
    if draws.sizes[dim] < 5:
        raise ValueError(
            f"An exponent in {dim!r} with a test of its model needs at least 5 sizes, got {draws.sizes[dim]}."
        )
    return ScalesAs(draws, dim, exponent, fit, by, resolution)
