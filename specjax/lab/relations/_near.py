"""Equality up to a margin, for formulas whose own error is known."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import xarray as xr
from matplotlib.axes import Axes

from specjax.arguments import checked
from specjax.lab import outcome
from specjax.lab.drawing import draw_estimates, draw_line, first_dim
from specjax.lab.estimates import Estimate, Estimator, Number, estimate, sample_dim
from specjax.lab.outcome import COARSE, FACTORS, ROOM, Finding, Verdict
from specjax.lab.relations._relation import Relation, equal_up_to_order, words


@dataclass(frozen=True, eq=False)
class Near(Relation):
    """See `near`."""

    samples: xr.DataArray
    target: Number
    within: Number
    called: str
    by: Estimator

    @property
    def prediction(self) -> Number:
        """The target."""
        return self.target

    def against(self, rival: Number) -> "Near":
        """With the rival as target."""
        return replace(self, target=rival)

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if every interval lies within the margin; refuted if one lies beyond it."""
        found = estimate(self.samples, self.by)
        for number in (self.target, self.within):
            found.require_points_of(number)
        low, high = found.low - self.target, found.high - self.target
        verdict: Verdict = "inconclusive"
        if bool(((low > -self.within) & (high < self.within)).all()):
            verdict = "confirmed"
        elif bool(((low >= self.within) | (high <= -self.within)).any()):
            verdict = "refuted"
        return Finding(
            verdict,
            "confirmed if every interval (4 standard errors) is nearer to the target than"
            f" {self.called}, refuted if one is farther",
            outcome.points(found, self.target, first=abs(found.value - self.target) - self.within),
            found.samples,
            outcome.distances(found, rivals),
            self._remark(found) if verdict == "confirmed" else "",
        )

    def _remark(self, found: Estimate) -> str:
        """What else would be confirmed: targets a tenth off, and half of the margin."""
        # A margin for each point grows with its target; one number does not.
        grows = isinstance(self.within, xr.DataArray)
        remarks = [
            f"{COARSE}: {factor:g} times the target would do."
            for factor in FACTORS
            if not self.claims_no_effect
            and self._holds(found, self.target * factor, factor if grows else 1.0)
        ]
        if self._holds(found, self.target, 0.5):
            remarks.append(f"{ROOM}: a margin half as wide would do.")
        return " ".join(remarks)

    def _holds(self, found: Estimate, target: Number, share: float) -> bool:
        """Whether the intervals are within a share of the margin of a target."""
        within = self.within * share
        return bool(((found.low > target - within) & (found.high < target + within)).all())

    def is_within_margin(self, first: Finding, second: Finding) -> bool:
        """Whether the distance from the target moves by less than half of the smallest margin."""
        margin = float(xr.DataArray(self.within).min())
        moved = outcome.moves(first, second)
        return moved is not None and all(move < margin / 2 for move, _ in moved)

    @property
    def claims_no_effect(self) -> bool:
        """Whether the target is 0."""
        return bool((xr.DataArray(self.target) == 0).all())

    def same_of_every_label(self, permuted: Relation) -> bool:
        """Whether the samples are the same in another order."""
        return equal_up_to_order(self, permuted)

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Draw the estimate less the target at each point, and the margin."""
        found = estimate(self.samples - self.target, self.by)
        dim = first_dim(found.value)
        draw_estimates(axes, found, dim)
        for sign, label in ((1, self.called), (-1, "_")):
            draw_line(
                axes, sign * xr.DataArray(self.within), found.value, dim, label=label, color="black"
            )
        zero = isinstance(self.target, (int, float)) and self.target == 0
        axes.set_ylabel(str(self.samples.name or "estimate") + ("" if zero else " less the target"))


@checked
def near(
    samples: xr.DataArray, target: Number, within: Number, called: str, *, by: Estimator = "mean"
) -> Near:
    """The mean of `samples`, or another estimate, is less than `within` from `target` at every
    point.

    `lab.equals` is for forms that are exact.

    Args:
        samples: Dimensions of the points, and "seed" or "batch".
        target: A number, or one for each point.
        within: The margin, in units of the samples: the smallest distance that counts; one for each
            point, if need be.
        called: The margin, in words that a reader of the record understands.
        by: The estimator.

    Raises:
        ValueError: no samples, or a margin that is not positive.

    Examples:
        >>> from specjax import lab
        >>> gain = xr.DataArray(np.random.default_rng(0).normal(1.02, 0.02, 50), dims="seed")
        >>> lab.near(gain, 1.0, within=0.1, called="a tenth").judge({"two": 2.0}).verdict
        'confirmed'
    """
    sample_dim(samples)
    if not bool((xr.DataArray(within) > 0).all()):
        raise ValueError(
            f"A margin is positive, got {within}; for a form that is exact take lab.equals."
        )
    return Near(samples, target, within, words(called, "near"), by)
