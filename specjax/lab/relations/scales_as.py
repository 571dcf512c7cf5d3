"""A quantity is a power of a size, after a test whether it is a power at all."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import sweep
from specjax.lab import finding
from specjax.lab.estimates import STANDARD_ERRORS, TAIL, Estimate, Number, draw_dim, known
from specjax.lab.finding import Finding, Verdict
from specjax.lab.relations.relation import Relation

Fit = Literal["power law", "asymptotic"]


@dataclass(frozen=True, eq=False)
class ScalesAs(Relation):
    """See :func:`scales_as`."""

    draws: xr.DataArray
    dim: str
    exponent: float
    fit: Fit

    @property
    def prediction(self) -> float:
        """The exponent."""
        return self.exponent

    def against(self, rival: Number) -> "ScalesAs":
        """With another exponent."""
        return replace(self, exponent=float(rival))

    def perturbed(self) -> dict[str, Relation]:
        """None beside the rivals, which are exponents."""
        return {}

    def judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if the interval of the fitted exponent has the prediction inside and every rival outside."""
        found, reason = self._fitted()
        distances = finding.distances(found, rivals)
        verdict: Verdict = "inconclusive"
        if not reason:
            verdict = "refuted"
            if bool(found.contains(self.exponent)):
                verdict = "confirmed" if all(d.excluded for d in distances) else "inconclusive"
        return Finding(
            verdict,
            f"exponent in {self.dim} of {_MEANING[self.fit]}: confirmed if the interval has the prediction inside and every rival outside, "
            "refuted if the prediction lies outside; inconclusive where the data contradict the model",
            finding.points(found, self.exponent, first=found.value),
            found.draws,
            distances,
            reason,
            away=float(found.distance(self.exponent)),
        )

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size with the fitted power law, on logarithmic axes."""
        sweep.fit_power_law(self.draws, self.dim).plot(axes)

    def _fitted(self) -> tuple[Estimate, str]:
        draws = self.draws.sizes[draw_dim(self.draws)]
        try:
            if self.fit == "asymptotic":
                limit = sweep.asymptotic_exponent(self.draws, self.dim)
                exponent, ends = limit.exponent, limit.interval
                reason = self._misfit(("power law", "subleading", None))
            else:
                line = sweep.fit_power_law(self.draws, self.dim)
                half = STANDARD_ERRORS * line.stderr
                exponent, ends = line.exponent, (line.exponent - half, line.exponent + half)
                reason = self._misfit(("power law",))
        except ValueError as error:
            # A mean within noise of zero, say, has no logarithm: more draws are needed, and nothing is decided.
            exponent, ends, reason = np.nan, (-np.inf, np.inf), str(error)
        return known(exponent, *ends, draws), reason

    def _misfit(self, allowed: tuple[str | None, ...]) -> str:
        choice = sweep.choose_model(self.draws, self.dim, significance=2 * TAIL)
        return "" if choice.model in allowed else choice.reason


_MEANING: dict[Fit, str] = {
    "power law": "a power law, ± 4 standard errors",
    "asymptotic": "a power law with one subleading term, ± (4 standard errors + its shift when the smallest size is left out)",
}


def scales_as(draws: xr.DataArray, dim: str, exponent: float | int, *, fit: Fit = "asymptotic") -> ScalesAs:
    """The mean of `draws` grows as the power `exponent` of the size `dim`.

    With "power law" the data must follow y = a xᵇ at the sizes swept; with "asymptotic", y = a xᵇ (1 + c/x + …) at large sizes. Where
    `sweep.choose_model` says at four standard deviations that they do not, or settle above an offset, nothing is decided.

    Args:
        draws: Dimensions exactly `dim` and "seed" or "batch"; at least 5 sizes, and more seeds than sizes.
        dim: The size.
        exponent: What the statement says.
        fit: Which model.

    Raises:
        ValueError: the draws lack `dim`, have others beside it, or fewer than 5 sizes.
    """
    needed = {dim, draw_dim(draws)}
    if set(map(str, draws.dims)) != needed:
        raise ValueError(
            f"A power of {dim!r} needs the dimensions {sorted(needed)}, got {sorted(map(str, draws.dims))}; select the others."
        )
    if draws.sizes[dim] < 5:
        raise ValueError(
            f"An exponent in {dim!r} with a test of its model needs at least 5 sizes, got {draws.sizes[dim]}."
        )
    return ScalesAs(draws, dim, float(exponent), fit)
