"""A quantity is a power of a size at each point, after a test whether it is a power at all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import fits
from specjax.lab import finding
from specjax.lab.drawing import draw_power
from specjax.lab.estimates import TAIL, Estimate, Number, draw_dim, student
from specjax.lab.finding import Finding, Verdict
from specjax.lab.relations.relation import Relation

Fit = Literal["power law", "asymptotic"]


@dataclass(frozen=True, eq=False)
class ScalesAs(Relation):
    """See `scales_as`."""

    draws: xr.DataArray
    dim: str
    exponent: Number
    fit: Fit

    @property
    def prediction(self) -> Number:
        """The exponent."""
        return self.exponent

    def against(self, rival: Number) -> "ScalesAs":
        """With another exponent; the fits, which know nothing of it, are the same."""
        other = replace(self, exponent=rival)
        vars(other)["_fitted"] = self._fitted
        return other

    def judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if the interval of every fitted exponent has the prediction inside, and every rival is outside of one."""
        found, reasons = self._fitted
        distances = finding.distances(found, rivals)
        away = found.distance(self.exponent)
        verdict: Verdict = "inconclusive"
        # A point that does not follow the model has an exponent that says nothing.
        if bool((~found.contains(self.exponent) & (reasons == "")).any()):
            verdict = "refuted"
        elif bool((reasons == "").all()) and all(d.excluded for d in distances):
            verdict = "confirmed"
        return Finding(
            verdict,
            f"exponent in {self.dim} of {_MEANING[self.fit]}: confirmed if at every point the interval has the prediction inside, and "
            "every rival lies outside of one; refuted if the prediction lies outside of one; inconclusive where the data "
            f"{_CONTRADICTED[self.fit]}",
            finding.points(found, self.exponent, first=away),
            found.draws,
            distances,
            " ".join(dict.fromkeys(filter(None, reasons.values.ravel().tolist()))) if verdict == "inconclusive" else "",
            away=float(away.max()),
        )

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size with the fitted power law, on logarithmic axes, for each point."""
        for point in self._points():
            at = ", ".join(f"{dim} = {self.draws[dim].values[place]}" for dim, place in point.items())
            draw_power(axes, self.draws.isel(point), self.dim, at or None)

    def _points(self) -> list[dict[str, int]]:
        dims = [str(dim) for dim in self.draws.dims if dim not in (self.dim, draw_dim(self.draws))]
        return [dict(zip(dims, place, strict=True)) for place in np.ndindex(*(self.draws.sizes[dim] for dim in dims))]

    @cached_property
    def _fitted(self) -> tuple[Estimate, xr.DataArray]:
        """The exponent at each point, and why it says nothing there, empty where it does."""
        dim = draw_dim(self.draws)
        frame = self.draws.isel({self.dim: 0, dim: 0}, drop=True)
        fitted = [self._fitted_at(self.draws.isel(point)) for point in self._points()]
        value, low, high, reasons = (
            frame.copy(data=np.reshape(np.array(part), frame.shape)) for part in zip(*fitted, strict=True)
        )
        return Estimate(value, low, high, self.draws.sizes[dim]), reasons

    def _fitted_at(self, draws: xr.DataArray) -> tuple[float, float, float, str]:
        try:
            if self.fit == "asymptotic":
                limit = fits.asymptotic_exponent(draws, self.dim)
                half = student(draws.sizes[draw_dim(draws)]) * limit.stderr + abs(limit.shift)
                return limit.exponent, limit.exponent - half, limit.exponent + half, self._unlike(draws)
            line = fits.fit_power_law(draws, self.dim)
            half = student(draws.sizes[draw_dim(draws)]) * line.stderr
            return line.exponent, line.exponent - half, line.exponent + half, self._unlike(draws)
        except ValueError as error:
            # A mean within noise of zero, say, has no logarithm: more draws are needed, and nothing is decided.
            return np.nan, -np.inf, np.inf, str(error)

    def _unlike(self, draws: xr.DataArray) -> str:
        """Why the data do not follow the model, empty where they do."""
        choice = fits.choose_model(draws, self.dim, significance=2 * TAIL)
        if choice.model == "power law":
            return ""
        if self.fit == "power law":
            return choice.reason
        if choice.model == "offset":
            # An offset of what grows is one more subleading term, and at exponent 1 the very same one; of what does not, its limit.
            offset, _ = fits.ends(draws, self.dim, significance=2 * TAIL)
            if not (offset.rises and offset.exponents[0] > 0):
                return choice.reason
        return ""


_CONTRADICTED: dict[Fit, str] = {
    "power law": "contradict a power law",
    "asymptotic": "settle at an offset instead",
}
_MEANING: dict[Fit, str] = {
    "power law": "a power law, ± 4 standard errors (Student's t)",
    "asymptotic": "a power law with one subleading term, ± (4 standard errors by Student's t, and for terms beyond it the shift when the "
    "smallest size is left out)",
}


def scales_as(draws: xr.DataArray, dim: str, exponent: Number, *, fit: Fit = "asymptotic") -> ScalesAs:
    """The mean of `draws` grows as the power `exponent` of the size `dim`, at every point.

    With "power law" the data must follow y = a xᵇ at the sizes swept; with "asymptotic", y = a xᵇ (1 + c/x + …) at large sizes. Where
    `fits.choose_model` says at four standard deviations that they do not, or settle at an offset, nothing is decided.

    Args:
        draws: Dimensions `dim` and "seed" or "batch", and those of the points; at least 5 sizes, and more seeds than sizes.
        dim: The size.
        exponent: What the statement says: a number, or one for each point.
        fit: Which model.

    Raises:
        ValueError: the draws lack `dim`, a dimension of the exponents, or have fewer than 5 sizes.
    """
    draw_dim(draws)
    dims = list(map(str, draws.dims))
    if dim not in dims:
        raise ValueError(f"A power of {dim!r} needs draws with that dimension, got {sorted(dims)}.")
    if lacking := [str(other) for other in xr.DataArray(exponent).dims if other not in dims]:
        raise ValueError(
            f"The exponents have the dimensions {lacking}, which {draws.name!r} lacks; select or average them first."
        )
    if draws.sizes[dim] < 5:
        raise ValueError(
            f"An exponent in {dim!r} with a test of its model needs at least 5 sizes, got {draws.sizes[dim]}."
        )
    return ScalesAs(draws, dim, exponent, fit)
