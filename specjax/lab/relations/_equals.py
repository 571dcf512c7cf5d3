"""Equality of an estimate and a closed form, at every point."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import cycle

import xarray as xr
from matplotlib.axes import Axes

from specjax.arguments import checked
from specjax.lab import outcome
from specjax.lab.drawing import COLORS, draw_estimates, draw_line, first_dim
from specjax.lab.estimates import Estimate, Estimator, Number, estimate
from specjax.lab.outcome import COARSE, FACTORS, Finding, Verdict
from specjax.lab.relations._relation import Relation, equal_up_to_order


@dataclass(frozen=True, eq=False)
class Equals(Relation):
    """See `equals`."""

    samples: xr.DataArray
    form: Number
    by: Estimator
    resolution: float | None

    @property
    def prediction(self) -> Number:
        """The closed form."""
        return self.form

    def against(self, rival: Number) -> "Equals":
        """The relation to the rival, which needs no resolution, since the form becomes a rival of
        it.
        """
        return replace(self, form=rival, resolution=None)

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if the form lies in every interval and each rival outside of one; refuted if
        the form lies outside of one.
        """
        if not rivals and self.resolution is None:
            raise ValueError(
                f"A closed form of {self.samples.name!r} with neither a rival nor a resolution"
                " could never be confirmed; name a wrong formula."
            )
        found = estimate(self.samples, self.by)
        away = found.distance(self.form)
        distances = outcome.distances(found, {**rivals, **self._nearby()})
        verdict: Verdict = "refuted"
        if bool(found.contains(self.form).all()):
            verdict = (
                "confirmed" if distances and all(d.excluded for d in distances) else "inconclusive"
            )
        return Finding(
            verdict,
            "confirmed if the closed form lies within 4 standard errors (Student's t) of the"
            " estimate at every point and each rival outside at one or more; refuted if it lies"
            " outside at one",
            outcome.points(found, self.form, first=away),
            found.samples,
            distances,
            self._remark(found) if verdict == "confirmed" else "",
            away=float(away.max()),
        )

    def _remark(self, found: Estimate) -> str:
        """The forms a tenth off that would be confirmed as well."""
        return " ".join(
            f"{COARSE}: {factor:g} times the form would do."
            for factor in FACTORS
            if not self.claims_no_effect and bool(found.contains(self.form * factor).all())
        )

    @property
    def claims_no_effect(self) -> bool:
        """Whether the form is 0 at every point."""
        return bool((xr.DataArray(self.form) == 0).all())

    def same_of_every_label(self, permuted: Relation) -> bool:
        """Whether the samples are the same in another order."""
        return equal_up_to_order(self, permuted)

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Draw the estimate over the form at each point, and the rivals over the form as lines.

        If the form is zero somewhere, draw the differences from it over the half-width of the
        interval.
        """
        form, found = xr.DataArray(self.form), estimate(self.samples, self.by)
        dim = first_dim(found.value)
        zero = bool((form == 0).any())
        less = form if zero else xr.zeros_like(form)
        half = (found.high - found.low) / 2
        over = half.where(half > 0, 1.0) if zero else form
        shown = Estimate(found.value - less, found.low - less, found.high - less, found.samples)
        draw_estimates(axes, shown, dim, scale=over)
        for color, (rival, number) in zip(cycle(COLORS[::-1]), rivals.items(), strict=False):
            draw_line(
                axes,
                (xr.DataArray(number) - less) / over,
                found.value,
                dim,
                label=rival,
                color=color,
            )
        axes.axhline(0 if zero else 1, color="black", linewidth=1)
        name = self.samples.name or "estimate"
        axes.set_ylabel(f"({name} - closed form) / half-width" if zero else f"{name} / closed form")

    def _nearby(self) -> dict[str, Number]:
        if self.resolution is None:
            return {}
        return {
            f"the form × {factor:g}": self.form * factor
            for factor in (1 + self.resolution, 1 - self.resolution)
        }


@checked
def equals(
    samples: xr.DataArray,
    form: Number,
    *,
    by: Estimator = "mean",
    resolution: float | int | None = None,
) -> Equals:
    """The mean of `samples`, or its median or quantile, equals `form` at every point.

    Args:
        samples: Dimensions of the points, and "seed" or "batch".
        form: A number, or one for each point, as `lab.closed_form` gives it.
        by: The estimator.
        resolution: A relative error of the form that must be excluded; only for a statement without
            rivals.

    Raises:
        ValueError: a form that is not finite, or has dimensions that the samples lack; a resolution
            that is not positive.

    Examples:
        >>> from specjax import lab
        >>> d, noise = np.array([8, 16, 32]), np.random.default_rng(0).normal(1, 0.01, (50, 3))
        >>> norm = xr.DataArray(d * noise, dims=("seed", "d"), coords={"d": d})
        >>> lab.equals(norm, norm.d).judge({"one more": norm.d + 1}).verdict
        'confirmed'
        >>> lab.equals(norm, norm.d + 1).judge({"one less": norm.d}).verdict
        'refuted'
    """
    wanted = xr.DataArray(form)
    if lacking := [str(dim) for dim in wanted.dims if dim not in samples.dims]:
        raise ValueError(
            f"The closed form has the dimensions {lacking}, which {samples.name!r} lacks; select or"
            " average them first."
        )
    if not bool(xr.ufuncs.isfinite(wanted).all()):
        raise ValueError(
            f"The closed form of {samples.name!r} is not finite at one point or more; say where it"
            " holds."
        )
    if resolution is not None and not resolution > 0:
        raise ValueError(f"A resolution is a positive relative error, got {resolution}.")
    return Equals(samples, form, by, resolution)
