"""Thresholds: a mean, a lead of one quantity over another, or a share of samples is on one side of
a named number.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax.arguments import checked
from specjax.lab import outcome
from specjax.lab.drawing import draw_estimates, draw_line, first_dim
from specjax.lab.estimates import Estimate, Estimator, Number, estimate, sample_dim, share
from specjax.lab.outcome import ROOM, Finding, Point, Verdict
from specjax.lab.relations._relation import Relation, equal_up_to_order, words
from specjax.lab.relations.line import Line, beyond, has_curve


@dataclass(frozen=True, eq=False)
class Threshold(Relation):
    """See `above`, `below`, `ahead` and `fraction`."""

    samples: xr.DataArray
    threshold: Number
    called: str
    upper: bool
    by: Estimator | None
    """The estimator; None for the share of samples that are true."""

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if every interval lies on the side, refuted if one lies on the other."""
        found = self._estimate()
        found.require_points_of(self.threshold)
        inside, outside = found.low > self.threshold, found.high <= self.threshold
        if not self.upper:
            inside, outside = found.high < self.threshold, found.low >= self.threshold
        verdict: Verdict = "inconclusive"
        if bool(inside.all()):
            verdict = "confirmed"
        elif bool(outside.any()):
            verdict = "refuted"
        sign = 1 if self.upper else -1
        beyond = (self.threshold - found.value) * sign
        # Half of the distance from the threshold, with the noise of the data.
        near = found.low if self.upper else found.high
        spare = bool(
            (sign * (found.value - self.threshold) / 2 > sign * (found.value - near)).all()
        )
        side = "above" if self.upper else "below"
        return Finding(
            verdict,
            "confirmed if every interval"
            f" ({'Clopper-Pearson' if self.by is None else '4 standard errors'}) lies {side}"
            f" {self.called}, refuted if one lies on the other side",
            outcome.points(found, self.threshold, first=beyond),
            found.samples,
            reason=(
                f"{ROOM}: half of the distance from the threshold would do."
                if verdict == "confirmed" and spare
                else ""
            ),
        )

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Draw the estimate at each point, and the threshold."""
        found = self._estimate()
        dim = first_dim(found.value)
        draw_estimates(axes, found, dim)
        draw_line(
            axes, xr.DataArray(self.threshold), found.value, dim, label=self.called, color="black"
        )
        name = str(self.samples.name or "estimate")
        axes.set_ylabel(f"share of samples: {name}" if self.by is None else name)

    def line(self) -> Line | None:
        """A share and the compared number, or the standard errors of an estimate on the right side
        of its threshold.
        """
        found = self._estimate()
        if has_curve(found.value):
            return None
        if self.by is None:
            return Line("share of samples", found, float(self.threshold))
        return beyond(found, self.threshold, self.upper)

    def is_farther(self, first: Finding, second: Finding) -> bool:
        """Whether each estimate is at least as far from the threshold, on the side of this one; the
        nearest one, if the threshold is one number, as a statement about every label is one about
        that.
        """
        if np.ndim(self.threshold) == 0:
            return self._lead(first.deciding) >= self._lead(second.deciding)
        pairs = outcome.paired(first, second)
        return pairs is not None and all(
            self._lead(one) >= self._lead(least) for one, least in pairs
        )

    def is_within_margin(self, first: Finding, second: Finding) -> bool:
        """Whether the distance from the threshold moves by less than half of itself."""
        moved = outcome.moves(first, second)
        return moved is not None and all(move < abs(self._lead(point)) / 2 for move, point in moved)

    @property
    def claims_a_sign(self) -> bool:
        """Whether the threshold of an estimate is 0 everywhere."""
        return self.by is not None and not np.any(self.threshold)

    def _lead(self, point: Point) -> float:
        """The distance from the threshold, positive on the side of this relation."""
        return (point.estimate - point.compared) * (1 if self.upper else -1)

    def same_of_every_label(self, permuted: Relation) -> bool:
        """Whether the samples are the same in another order."""
        return equal_up_to_order(self, permuted)

    def _estimate(self) -> Estimate:
        return share(self.samples) if self.by is None else estimate(self.samples, self.by)


@checked
def above(
    samples: xr.DataArray, threshold: Number, called: str, *, by: Estimator = "mean"
) -> Threshold:
    """The mean of `samples`, or another estimate, lies above `threshold` at every point.

    Args:
        samples: Dimensions of the points, and "seed" or "batch".
        threshold: A number, or one for each point.
        called: The threshold, in words that a reader of the record understands.
        by: The estimator.

    Raises:
        ValueError: no samples.

    Examples:
        >>> from specjax import lab
        >>> accuracy = xr.DataArray(np.random.default_rng(0).normal(0.9, 0.02, 20), dims="seed")
        >>> lab.above(accuracy, 0.8, "four of five answers").judge({}).verdict
        'confirmed'
    """
    sample_dim(samples)
    return Threshold(samples, threshold, words(called, "above"), True, by)


@checked
def below(
    samples: xr.DataArray, threshold: Number, called: str, *, by: Estimator = "mean"
) -> Threshold:
    """The mean of `samples`, or another estimate, lies below `threshold` at every point; arguments
    as for `above`.

    Examples:
        >>> from specjax import lab
        >>> loss = xr.DataArray(np.random.default_rng(0).normal(0.9, 0.02, 20), dims="seed")
        >>> lab.below(loss, 0.8, "the loss of the baseline").judge({}).verdict
        'refuted'
    """
    sample_dim(samples)
    return Threshold(samples, threshold, words(called, "below"), False, by)


@checked
def ahead(
    first: xr.DataArray, second: xr.DataArray, *, least: float | int, by: Estimator = "mean"
) -> Threshold:
    """`first` exceeds `second` in pairs of samples by more than `least`, the smallest lead that
    counts.

    Raises:
        ValueError: the two are not the same samples at the same points.

    Examples:
        >>> from specjax import lab
        >>> rng = np.random.default_rng(0)
        >>> adam = xr.DataArray(rng.normal(3, 0.5, 20), dims="seed")
        >>> muon = adam - xr.DataArray(rng.normal(0.4, 0.1, 20), dims="seed")
        >>> lab.ahead(adam, muon, least=0.1).judge({}).verdict
        'confirmed'
    """
    sample_dim(first)
    try:
        lead = xr.align(first, second, join="exact")
    except ValueError as error:
        raise ValueError(
            f"A lead is of two quantities of the same samples at the same points; {first.name!r}"
            f" and {second.name!r} differ."
        ) from error
    return Threshold(
        (lead[0] - lead[1]).rename(f"{first.name} less {second.name}"),
        float(least),
        f"the least lead that counts, {least:g}",
        True,
        by,
    )


@checked
def fraction(
    samples: xr.DataArray,
    *,
    more_than: float | int | None = None,
    less_than: float | int | None = None,
) -> Threshold:
    """The share of samples that are true lies above, or below, a number at every point.

    Raises:
        ValueError: samples that are not true or false; not exactly one of the two shares, or one
            outside [0, 1].

    Examples:
        >>> from specjax import lab
        >>> right = xr.DataArray([True] * 98 + [False] * 2, dims="seed")
        >>> lab.fraction(right, more_than=0.5).judge({}).verdict
        'confirmed'
    """
    share(samples)
    given = [level for level in (more_than, less_than) if level is not None]
    # No interval of a share reaches beyond 0 or 1, so nothing could be confirmed there.
    if len(given) != 1 or not 0 < given[0] < 1:
        raise ValueError(
            f"A share is compared with one number between 0 and 1, got more_than={more_than} and"
            f" less_than={less_than}."
        )
    return Threshold(samples, given[0], f"a share of {given[0]:g}", more_than is not None, None)
