"""Identities: two sides agree in every sample, up to rounding."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax.arguments import checked
from specjax.lab import outcome
from specjax.lab.estimates import Estimate, Number, sample_dim
from specjax.lab.outcome import Finding
from specjax.lab.relations._relation import Relation, equal_up_to_order
from specjax.lab.relations.line import Line, draw_lines


@dataclass(frozen=True, eq=False)
class ZeroError(Relation):
    """See `zero_error`."""

    error: xr.DataArray
    tolerance: float

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if no error is larger than the tolerance, refuted if one is."""
        dim = sample_dim(self.error)
        largest = self.error.max(dim)
        found = Estimate(largest, self.error.min(dim), largest, self.error.sizes[dim])
        return Finding(
            "confirmed" if bool((largest <= self.tolerance).all()) else "refuted",
            f"largest error over all samples: confirmed up to {self.tolerance:.3g}, which is for"
            " rounding, refuted above",
            outcome.points(found, self.tolerance, first=largest),
            found.samples,
        )

    @property
    def claims_no_effect(self) -> bool:
        """That two sides differ nowhere is true of errors that no label changes."""
        return True

    def same_of_every_label(self, permuted: Relation) -> bool:
        """Whether the errors are the same in another order."""
        return equal_up_to_order(self, permuted)

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """The line."""
        draw_lines(axes, {"": self.line()})

    def line(self) -> Line:
        """The smallest and the largest error at each point, over the tolerance."""
        dim, error = sample_dim(self.error), self.error / self.tolerance
        largest = error.max(dim)
        found = Estimate(largest, error.min(dim), largest, error.sizes[dim])
        return Line(
            "error in all samples / tolerance",
            found,
            1.0,
            linear_to=1e-6,
            ticks=(0, 1e-3, 1, 1e4, 1e8),
        )


@checked
def zero_error(error: xr.DataArray, *, tolerance: float | int) -> ZeroError:
    """`error`, the relative distance of two sides, is within rounding in every sample.

    The statement needs a control in which the identity is false: there the error must be larger
    than the tolerance.

    Raises:
        ValueError: no samples, errors that are not finite or negative, or a tolerance that is not
            positive.

    Examples:
        >>> from specjax import lab
        >>> error = xr.DataArray([1e-8, 0.0, 3e-8], dims="seed")
        >>> lab.zero_error(error, tolerance=1e-6).judge({}).verdict
        'confirmed'
    """
    if sample_dim(error) != "seed":
        raise ValueError(
            f"An identity is judged in single samples, and {error.name!r} has means of batches;"
            " keep the seeds (reduce=None)."
        )
    if not (np.isfinite(error.values).all() and (error.values >= 0).all()):
        raise ValueError(
            f"{error.name!r} needs finite errors, none of them negative; leave failed samples out,"
            " and say why."
        )
    if not tolerance > 0:
        raise ValueError(f"A tolerance for rounding is positive, got {tolerance}.")
    return ZeroError(error, tolerance)
