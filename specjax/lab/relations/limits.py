"""Relations about the local exponent at the largest sizes: vanish, settle, stay bounded.

The local exponent is that between the two largest sizes, since a fit to all sizes would blur it.
None of these relations is confirmed if the extrapolated curves (`specjax.lab.relations._growth`)
confirm the opposite.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import xarray as xr

from specjax import fits
from specjax.arguments import checked
from specjax.lab import outcome
from specjax.lab.estimates import Number, known, student
from specjax.lab.outcome import ROOM, Finding, Verdict
from specjax.lab.relations._growth import Grows, Saturates, SizeRelation, require_size_axis
from specjax.lab.relations._relation import Relation

DECAY = -0.25
"""Vanishing quantities have local exponents below it: halfway between a constant and 1/√size, the
slowest rate at which fluctuations of a random matrix vanish.
"""


class _LocalExponent(SizeRelation):
    """The local exponent lies in a range, and the curves do not confirm the opposite."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """Ends of the range of exponents."""

    @abstractmethod
    def opposite(self) -> Finding:
        """The finding of the curves on the opposite behaviour."""

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        reason, (low, high) = "", self.range
        try:
            fit = fits.fit_power_law(self.samples, self.dim, by=self.by)
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
        if verdict == "confirmed" and high < 0 and found.high < 2 * high:
            reason = f"{ROOM}: half of the exponent would do."
        other = self.opposite()
        if other.verdict == "confirmed" and verdict != "refuted":
            verdict, reason = self._contradicted(other)
        ends = self.samples[self.dim].values[-2:]
        inside = f"below {high:g}" if np.isinf(low) else f"between {low:g} and {high:g}"
        return Finding(
            verdict,
            f"local exponent between {self.dim} = {ends[0]:g} and {ends[1]:g} ± 4 standard errors"
            f" (Student's t): confirmed if all of it lies {inside}, refuted if none does;"
            f" {self._unless}",
            outcome.points(
                found, min(self.range, key=lambda end: abs(found.value - end)), first=found.value
            ),
            found.samples,
            (),
            reason,
        )

    _unless: str

    @abstractmethod
    def _contradicted(self, other: Finding) -> tuple[Verdict, str]: ...


class Vanishes(_LocalExponent):
    """See `vanishes`."""

    _unless = "inconclusive if the curves E + A xᵇ that the data allow have a limit E that is not 0"

    @property
    def range(self) -> tuple[float, float]:
        """Exponents below the slowest decay that counts."""
        return -np.inf, DECAY

    def perturbed(self) -> dict[str, Relation]:
        """The data plus a constant, which does not vanish but hides behind a fall of the last
        mean alone.
        """
        return {
            "a constant put in": replace(
                self, samples=self.samples + abs(self.samples.isel({self.dim: 0})).mean()
            )
        }

    def opposite(self) -> Finding:
        """The finding on a limit above 0."""
        return Saturates(self.samples, self.dim, self.by).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        limit = other.deciding
        return (
            "inconclusive",
            (
                "It falls at these sizes, but the curves that the data allow have the limit"
                f" {limit.estimate:.3g} ({limit.low:.3g} to {limit.high:.3g})."
            ),
        )

    def is_farther(self, first: Finding, second: Finding) -> bool:
        """Whether the exponent is at least as negative."""
        return first.deciding.estimate <= second.deciding.estimate


class _RefutedByGrowth(_LocalExponent):
    _unless = "refuted as well if the curves that the data allow grow without end"

    @property
    def claims_no_effect(self) -> bool:
        """That a size changes nothing is true of data that are constant in it."""
        return True

    def opposite(self) -> Finding:
        """The finding on growth."""
        return Grows(self.samples, self.dim, self.by, like_a_power=False).judge({})

    def _contradicted(self, other: Finding) -> tuple[Verdict, str]:
        low, high = other.deciding.low, other.deciding.high
        return "refuted", f"It grows: the exponent is from {low:.3g} to {high:.3g}."


class Settles(_RefutedByGrowth):
    """See `settles`."""

    @property
    def range(self) -> tuple[float, float]:
        """Exponents between the slowest decay and the slowest growth that count."""
        return DECAY, -DECAY

    def perturbed(self) -> dict[str, Relation]:
        """The data with decay and with growth put in, which wide intervals cannot exclude."""
        return {"over √size": self.times_power(-0.5), "times √size": self.times_power(0.5)}


@dataclass(frozen=True, eq=False)
class Bounded(_RefutedByGrowth):
    """See `bounded`."""

    slower_than: float = field(kw_only=True)

    @property
    def range(self) -> tuple[float, float]:
        """Exponents below the slowest growth that counts."""
        return -np.inf, self.slower_than

    def perturbed(self) -> dict[str, Relation]:
        """The data with growth put in, which a bound above 1/2 does not exclude."""
        return {"times √size": self.times_power(0.5)}


@checked
def vanishes(samples: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Vanishes:
    """The mean of `samples`, positive, falls faster than size^(-1/4) at the end of the sizes `dim`,
    and no limit above 0 is confirmed.

    A limit far below the last mean may remain: it shows only where the fall slows down.

    Args:
        samples: Dimensions exactly `dim` and "seed" or "batch"; at least 3 sizes, and 5 to find a
            limit.
        dim: The size.
        by: The estimate that vanishes: the mean, the median, or the geometric mean ("log").

    Raises:
        ValueError: other dimensions, fewer sizes, or sizes that are not positive numbers.

    Examples:
        >>> from specjax import lab
        >>> d, noise = 2.0 ** np.arange(3, 9), np.random.default_rng(0).normal(1, 0.01, (50, 6))
        >>> error = xr.DataArray(noise / d, dims=("seed", "d"), coords={"d": d})
        >>> lab.vanishes(error, "d").judge({}).verdict
        'confirmed'
    """
    return Vanishes(require_size_axis(samples, dim, "vanishes", 3, by), dim, by)


@checked
def settles(samples: xr.DataArray, dim: str, *, by: fits.By = "mean") -> Settles:
    """The mean of `samples`, positive, neither vanishes nor grows at the end: its local exponent
    there is between -1/4 and 1/4.

    Weaker than `saturates`, which has an interval for the limit, and needs less data. Dimensions
    and sizes as for `vanishes`.

    Examples:
        >>> from specjax import lab
        >>> d, noise = 2.0 ** np.arange(3, 9), np.random.default_rng(0).normal(1, 0.01, (50, 6))
        >>> norm = xr.DataArray((2 - 1 / d) * noise, dims=("seed", "d"), coords={"d": d})
        >>> lab.settles(norm, "d").judge({}).verdict
        'confirmed'
    """
    return Settles(require_size_axis(samples, dim, "settles", 3, by), dim, by)


@checked
def bounded(
    samples: xr.DataArray, dim: str, *, slower_than: float | int, by: fits.By = "mean"
) -> Bounded:
    """The mean of `samples`, positive, grows more slowly than size^`slower_than` at the end, and is
    not confirmed to grow like a power.

    A statement about the sizes swept: a logarithm passes, since its local exponent is small.
    `saturates` requires a limit.

    Args:
        samples: Dimensions exactly `dim` and "seed" or "batch"; at least 5 sizes, and more seeds
            than sizes.
        dim: The size.
        slower_than: The slowest growth that counts: local exponents above it at the end must be
            excluded, since no data exclude all growth.
        by: The estimate that stays bounded: the mean, the median, or the geometric mean ("log").

    Raises:
        ValueError: other dimensions, fewer sizes, or `slower_than` not above 0.

    Examples:
        >>> from specjax import lab
        >>> d, noise = 2.0 ** np.arange(3, 11), np.random.default_rng(0).normal(1, 0.01, (50, 8))
        >>> norm = xr.DataArray((2 - 1 / d) * noise, dims=("seed", "d"), coords={"d": d})
        >>> lab.bounded(norm, "d", slower_than=0.1).judge({}).verdict
        'confirmed'
    """
    if not slower_than > 0:
        raise ValueError(
            f"The slowest growth that counts is a positive exponent, got {slower_than}."
        )
    return Bounded(
        require_size_axis(samples, dim, "stays bounded", 5, by),
        dim,
        by,
        slower_than=float(slower_than),
    )
