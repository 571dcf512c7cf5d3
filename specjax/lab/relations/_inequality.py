"""A bound that holds in every sample, and is tight."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax.arguments import checked
from specjax.lab import outcome
from specjax.lab.drawing import draw_estimates, first_dim
from specjax.lab.estimates import Estimate, Number, sample_dim, share
from specjax.lab.outcome import NOT_SHARP, Finding, Verdict
from specjax.lab.relations._relation import Relation
from specjax.lab.relations.line import Line, has_curve

SHARP = 0.1
"""A bound is sharp in the data if the smallest margin is at most this share of it: the change of a
mutated formula.
"""
_FAR = 20.0
"""Largest ratio on a linear axis."""


@dataclass(frozen=True, eq=False)
class Inequality(Relation):
    """See `inequality`."""

    smaller: xr.DataArray
    larger: xr.DataArray
    slack: float
    rounding: float

    def perturbed(self) -> dict[str, Relation]:
        """The sides exchanged, which also holds if rounding hides their difference."""
        return {"the two sides exchanged": replace(self, smaller=self.larger, larger=self.smaller)}

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if no sample violates the bound and one violates the tightened bound; refuted
        if one violates the bound.
        """
        margins = self._margins()
        smallest = float(margins.min()) - self.rounding
        rate = self._violations()
        verdict: Verdict = "refuted" if float(rate.value.max()) > 0 else "confirmed"
        reason = (
            f"The smallest margin is {smallest:.3g} of the bound; at most"
            f" {float(rate.high.max()):.2g} of all samples violate it."
        )
        if verdict == "confirmed" and not bool((self._tightened()._margins() < 0).any()):
            verdict = "inconclusive"
            reason += (
                f" No sample would violate a bound that is tighter by {self.slack:g}: these data"
                " cannot put it to the test."
            )
        elif verdict == "confirmed" and smallest > SHARP:
            reason += f" {NOT_SHARP}: a bound {1 - smallest:.2g} times as large holds too."
        return Finding(
            verdict,
            f"share of samples that violate the bound by more than rounding ({self.rounding:g}):"
            " refuted if there is one; confirmed if there is none, and the bound tightened by"
            f" {self.slack:g} is violated",
            outcome.points(rate, 0.0, first=-margins.min(sample_dim(margins))),
            rate.samples,
            (),
            reason,
            margin=smallest,
        )

    def is_farther(self, first: Finding, second: Finding) -> bool:
        """Whether the smallest margin is at least as large."""
        return (
            first.margin is not None and second.margin is not None and first.margin >= second.margin
        )

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Draw the smallest, the median and the largest ratio of the two sides at each point."""
        middle = self._ratios()
        draw_estimates(axes, middle, first_dim(middle.value))
        axes.axhline(1, color="black", linewidth=1)
        axes.set_ylabel("smaller / larger side (all samples)")

    def line(self) -> Line | None:
        """The same ratios. The axis is logarithmic beyond 2 for ratios far from 1, which occur if a
        bound is near 0.
        """
        middle = self._ratios()
        if has_curve(middle.value):
            return None
        far = max(float(abs(end).max()) for end in (middle.low, middle.high)) > _FAR
        ticks = (-1000, -100, -10, 0, 1, 10, 100, 1000)
        return Line(
            "smaller / larger side in all samples",
            middle,
            1.0,
            linear_to=2.0 if far else None,
            ticks=ticks,
        )

    def _ratios(self) -> Estimate:
        ratio = self.smaller / self.larger
        dim = sample_dim(ratio)
        return Estimate(ratio.median(dim), ratio.min(dim), ratio.max(dim), ratio.sizes[dim])

    def _tightened(self) -> "Inequality":
        return replace(self, larger=self.larger - self.slack * abs(self.larger))

    def _margins(self) -> xr.DataArray:
        sizes = abs(self.larger), abs(self.smaller)
        scale = xr.where(sizes[0] > sizes[1], *sizes)
        return (self.larger - self.smaller) / scale.where(scale > 0, 1.0) + self.rounding

    def _violations(self) -> Estimate:
        return share(self._margins() < 0)


@checked
def inequality(
    smaller: xr.DataArray, larger: xr.DataArray, *, slack: float | int, rounding: float | int = 0.0
) -> Inequality:
    """`smaller` is at most `larger` in every sample, at every point.

    Args:
        smaller: Dimensions of the points, and "seed".
        larger: The same, or numbers without seeds.
        slack: Allowed looseness, a share of the bound from 0 to 1: some sample must violate the
            bound tightened by it. A bound that no sample comes near is not tested.
        rounding: The relative error of floating-point numbers that does not violate the bound.

    Raises:
        ValueError: no samples, numbers that are not finite, or a slack outside (0, 1).

    Examples:
        >>> from specjax import lab
        >>> x = xr.DataArray(np.random.default_rng(0).normal(0, 1, (3, 200)), dims=("d", "seed"))
        >>> lab.inequality(abs(x.sum("d")), abs(x).sum("d"), slack=0.1).judge({}).verdict
        'confirmed'
    """
    sample_dim(smaller)
    if not 0 < slack < 1:
        raise ValueError(f"The slack of a bound is a share of it between 0 and 1, got {slack}.")
    larger = xr.DataArray(larger).broadcast_like(smaller)
    for side in (smaller, larger):
        if not np.isfinite(side.values).all():
            raise ValueError(
                f"A bound needs finite numbers, and {side.name!r} has others; leave these samples"
                " out, and say why."
            )
    return Inequality(smaller.astype(float), larger.astype(float), slack, rounding)
