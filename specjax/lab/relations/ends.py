"""What a quantity does at the largest sizes swept: vanish, settle at a limit, or grow.

The three are rivals of one another: each is a range of the local exponent between the two largest sizes, which a fit to all sizes
would blur. The ranges meet at ±1/4, halfway between a constant and 1/√size, the slowest rate at which fluctuations of a random matrix
vanish.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import sweep
from specjax.lab import finding
from specjax.lab.drawing import draw_power
from specjax.lab.estimates import Number, draw_dim, known, student
from specjax.lab.finding import Finding, Verdict
from specjax.lab.relations.relation import Relation

DECAY = 0.25
Behaviour = Literal["vanishes", "settles", "grows"]
_RANGES: dict[Behaviour, tuple[float, float]] = {
    "vanishes": (-np.inf, -DECAY),
    "settles": (-DECAY, DECAY),
    "grows": (DECAY, np.inf),
}


@dataclass(frozen=True, eq=False)
class AtTheEnd(Relation):
    """See :func:`vanishes`, :func:`settles` and :func:`grows`."""

    draws: xr.DataArray
    dim: str
    behaviour: Behaviour

    def perturbed(self) -> dict[str, Relation]:
        """The data with what would make them behave otherwise."""
        sizes = self.draws[self.dim]
        root = (sizes / sizes[0]) ** 0.5
        if self.behaviour == "vanishes":
            constant = abs(self.draws.isel({self.dim: 0})).mean()
            return {"a constant put in": replace(self, draws=self.draws + constant)}
        if self.behaviour == "grows":
            return {}
        changed = {"times √size": self.draws * root, "over √size": self.draws / root}
        return {name: replace(self, draws=draws) for name, draws in changed.items()}

    def judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if the whole interval of the local exponent lies in the range, refuted if it lies outside."""
        low, high = _RANGES[self.behaviour]
        reason = ""
        try:
            exponent, stderr = self._exponent()
            half = student(self.draws.sizes[draw_dim(self.draws)]) * stderr
        except ValueError as error:
            exponent, half, reason = np.nan, np.inf, str(error)
        found = known(exponent, exponent - half, exponent + half, self.draws.sizes[draw_dim(self.draws)])
        verdict: Verdict = "inconclusive"
        if found.low > low and found.high < high:
            verdict = "confirmed"
        elif found.high < low or found.low > high:
            verdict = "refuted"
        nearest = low if abs(exponent - low) < abs(exponent - high) else high
        ends = self.draws[self.dim].values[-2:]
        return Finding(
            verdict,
            f"local exponent between {self.dim} = {ends[0]:g} and {ends[1]:g} ± 4 standard errors (Student's t): confirmed if all of it "
            f"lies in ({low:g}, {high:g}), refuted if none of it does",
            finding.points(found, nearest, first=found.value),
            found.draws,
            (),
            reason,
        )

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Means against the size with the fitted power law, on logarithmic axes."""
        draw_power(axes, self.draws, self.dim)

    def _exponent(self) -> tuple[float, float]:
        fit = sweep.fit_power_law(self.draws, self.dim)
        return float(fit.local_exponents[-1]), float(fit.local_stderrs[-1])


def vanishes(draws: xr.DataArray, dim: str) -> AtTheEnd:
    """The mean of `draws`, positive, tends to zero as the size `dim` grows: faster than size^(-1/4) at the end.

    Args:
        draws: Dimensions exactly `dim` and "seed" or "batch"; at least 3 sizes.
        dim: The size.

    Raises:
        ValueError: other dimensions, or fewer sizes.
    """
    return _at_the_end(draws, dim, "vanishes")


def settles(draws: xr.DataArray, dim: str) -> AtTheEnd:
    """The mean of `draws`, positive, neither vanishes nor grows with the size `dim` at the end; as for :func:`vanishes`."""
    return _at_the_end(draws, dim, "settles")


def grows(draws: xr.DataArray, dim: str) -> AtTheEnd:
    """The mean of `draws`, positive, grows with the size `dim` without end: faster than size^(1/4) there; as for :func:`vanishes`."""
    return _at_the_end(draws, dim, "grows")


def _at_the_end(draws: xr.DataArray, dim: str, behaviour: Behaviour) -> AtTheEnd:
    needed = {dim, draw_dim(draws)}
    if set(map(str, draws.dims)) != needed:
        raise ValueError(
            f"What {behaviour} with {dim!r} needs the dimensions {sorted(needed)}, got {sorted(map(str, draws.dims))}."
        )
    if draws.sizes[dim] < 3:
        raise ValueError(f"What happens as {dim!r} grows needs at least 3 sizes, got {draws.sizes[dim]}.")
    return AtTheEnd(draws.sortby(dim), dim, behaviour)
