"""Powers of a size: a test whether a quantity is a power at all, then its exponent at each
point.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import fits
from specjax.arguments import check_number, checked
from specjax.lab import outcome
from specjax.lab.drawing import draw_power
from specjax.lab.estimates import TAIL, Estimate, Number, require_number, sample_dim, student
from specjax.lab.outcome import Distance, Finding, Verdict
from specjax.lab.relations._relation import Relation

Fit = Literal["power law", "asymptotic"]
RESOLUTION = 0.1
"""Distance of the exponents to be excluded if no rival is named."""
LOGARITHM = "a power of the logarithm"
"""The rival of every exponent: x^b (log x)^c with |c| of 1/2 or more, where b is the exponent, a
named rival or any multiple of 1/2.
"""
_HALVES = 0.5 * np.arange(-8, 9)


@dataclass(frozen=True, eq=False)
class ScalesAs(Relation):
    """See `scales_as`."""

    samples: xr.DataArray
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
        """The relation with another exponent, and the same fits, which do not depend on it."""
        other = replace(self, exponent=rival)
        vars(other)["_fitted"] = self._fitted
        return other

    def _judge(self, rivals: Mapping[str, Number]) -> Finding:
        """Confirmed if every power law that fits the data has the exponent, and no curve that fits
        them has that of a rival.
        """
        fitted = self._fitted
        found, tried = fitted.every, rivals or self._nearby()
        away = found.distance(self.exponent)
        distances = outcome.distances(fitted.powers, tried)
        logarithm, curves = self._logarithms(fitted, rivals)
        verdict: Verdict = "inconclusive"
        # The exponent of a point that does not follow the model has no meaning.
        if bool((~found.contains(self.exponent) & (fitted.reasons == "")).any()):
            verdict = "refuted"
        elif bool((fitted.reasons == "").all()) and bool(
            fitted.within.contains(self.exponent).all()
        ):
            verdict = (
                "confirmed"
                if all(each.excluded for each in (*distances, logarithm))
                else "inconclusive"
            )
        return Finding(
            verdict,
            f"exponent in {self.dim} of {_MEANING[self.fit]}: confirmed if at every point the"
            f" interval has the prediction inside, every rival lies outside of one, and {LOGARITHM}"
            " of 1/2 or more beside the exponent, a rival or a multiple of 1/2 is excluded;"
            " refuted if the prediction lies outside of the exponents of all curves that the data"
            f" allow; inconclusive where they {_CONTRADICTED[self.fit]}",
            outcome.points(found, self.exponent, first=away),
            found.samples,
            (*distances, logarithm),
            self._reason(fitted, distances, curves) if verdict == "inconclusive" else "",
            away=float(away.max()),
        )

    def _logarithms(
        self, fitted: "_Fitted", rivals: Mapping[str, Number]
    ) -> tuple[Distance, list[str]]:
        """The distance of the nearest power of the logarithm at its nearest point, and the allowed
        curves with a logarithm.
        """
        nearest, curves = np.inf, []
        numbers = [
            _broadcast_to_points(fitted.reasons, number)
            for number in (self.exponent, *rivals.values())
        ]
        for own, found in zip(np.concatenate(numbers, axis=1), fitted.found, strict=True):
            if found is None:
                nearest = 0.0
                continue
            # A rival that is not a multiple of 1/2 is often a number near the exponent, and some
            # unit makes some logarithm near to it.
            halves = _HALVES + np.round(2 * found.exponent) / 2
            any_unit = {float(b): b in (own[0], *halves) for b in (*own, *halves)}
            tried = {b: found.from_logarithm(b, any_unit=free) for b, free in any_unit.items()}
            nearest = min(nearest, *(far for far, _ in tried.values()))
            allowed = [b for b, (_, excluded) in tried.items() if not excluded]
            if allowed:
                b = min(allowed, key=lambda b: tried[b][0])
                curves.append(found.logarithm(b, any_unit=any_unit[b]))
        excluded = None not in fitted.found and not curves
        return Distance(f"{LOGARITHM} of {self.dim}", float(nearest), excluded), curves

    @property
    def claims_no_effect(self) -> bool:
        """Whether the exponent is 0 at every point."""
        return bool((xr.DataArray(self.exponent) == 0).all())

    def draw(self, axes: Axes, rivals: Mapping[str, Number]) -> None:
        """Draw means against the size with the fitted power law, on logarithmic axes, for each
        point, and the powers of the rivals through the mean at the smallest size, as gray lines.
        Rivals of one exponent share a line.
        """
        for point in self._points():
            at = ", ".join(
                f"{dim} = {self.samples[dim].values[place]}" for dim, place in point.items()
            )
            draw_power(axes, self.samples.isel(point), self.dim, at or None)
        means = self.samples.mean(sample_dim(self.samples))
        sizes = self.samples[self.dim].values.astype(float)
        first = means.isel({self.dim: int(np.argmin(sizes))}, drop=True)
        named = {
            _broadcast_to_points(first, number).tobytes(): name for name, number in rivals.items()
        }
        for name, style in zip(named.values(), cycle(("--", ":", "-."))):
            label, exponents = name, _broadcast_to_points(first, rivals[name])
            for start, powers in zip(first.values.flat, exponents, strict=True):
                for power in powers if start > 0 else ():
                    powered = start * (sizes / sizes.min()) ** power
                    axes.plot(sizes, powered, style, color="gray", zorder=1, label=label)
                    label = "_"

    def _nearby(self) -> dict[str, Number]:
        return {
            f"the exponent {step:+g}": self.exponent + step
            for step in (self.resolution, -self.resolution)
        }

    def _reason(self, fitted: "_Fitted", distances: tuple[Distance, ...], curves: list[str]) -> str:
        """The reason for an undecided verdict: a rejected model, curves with a logarithm or a
        limit, or a rival that is not excluded.
        """
        reasons = list(dict.fromkeys(filter(None, fitted.reasons.values.ravel().tolist())))
        if reasons:
            return " ".join(reasons)
        reasons = [f"The data allow {curve} as well." for curve in dict.fromkeys(curves)]
        if self.fit == "asymptotic" and any(
            found is not None and found.limit for found in fitted.found
        ):
            reasons.append("The data allow a curve that settles at a limit as well.")
        return " ".join(
            reasons
            + [f"The data do not exclude {each.rival}." for each in distances if not each.excluded]
        )

    def _points(self) -> list[dict[str, int]]:
        dims = [
            str(dim) for dim in self.samples.dims if dim not in (self.dim, sample_dim(self.samples))
        ]
        return [
            dict(zip(dims, place, strict=True))
            for place in np.ndindex(*(self.samples.sizes[dim] for dim in dims))
        ]

    @cached_property
    def _fitted(self) -> "_Fitted":
        """The exponents at each point."""
        dim = sample_dim(self.samples)
        frame = self.samples.isel({self.dim: 0, dim: 0}, drop=True)
        at = [self._fitted_at(self.samples.isel(point)) for point in self._points()]

        def array(values: list[float] | list[str]) -> xr.DataArray:
            return frame.copy(data=np.reshape(np.array(values), frame.shape))

        def interval(ends: list[tuple[float, float]]) -> Estimate:
            low, high = (array(list(part)) for part in zip(*ends, strict=True))
            return Estimate(array([each.value for each in at]), low, high, self.samples.sizes[dim])

        return _Fitted(
            interval([each.every for each in at]),
            interval([each.powers for each in at]),
            interval([each.within for each in at]),
            array([each.reason for each in at]),
            tuple(each.found for each in at),
        )

    def _fitted_at(self, samples: xr.DataArray) -> "_At":
        everything = (-np.inf, np.inf)
        try:
            found = fits.asymptotics(samples, self.dim, significance=2 * TAIL, by=self.by)
            if self.fit == "power law":
                return self._of_pure_power(samples, found)
        except ValueError as error:
            # A mean within noise of zero, say, has no logarithm: more samples are needed, and
            # nothing is decided.
            return _At(np.nan, everything, everything, everything, str(error), None)
        if found.contradicted:
            reason = (
                "The data contradict every power law with a correction and every one above an"
                " offset"
            )
            reason += (
                f"; {found.curve} would do."
                if found.curve
                else ", with a power of the logarithm as well."
            )
            return _At(np.nan, everything, everything, everything, reason, None)
        return _At(found.exponent, found.interval, found.powers, found.within, "", found)

    def _of_pure_power(self, samples: xr.DataArray, found: fits.Asymptotics) -> "_At":
        line = fits.fit_power_law(samples, self.dim, by=self.by)
        half = student(samples.sizes[sample_dim(samples)]) * line.stderr
        interval = line.exponent - half, line.exponent + half
        choice = fits.choose_model(samples, self.dim, significance=2 * TAIL, by=self.by)
        reason = "" if choice.model == "power law" else choice.reason
        return _At(
            line.exponent,
            interval,
            interval,
            interval,
            reason,
            None if found.contradicted else found,
        )


@dataclass(frozen=True)
class _Fitted:
    """The fits at each point: the exponents of all curves, of power laws, and of the nearest of
    these, and why a fit failed.
    """

    every: Estimate
    powers: Estimate
    within: Estimate
    reasons: xr.DataArray
    found: tuple[fits.Asymptotics | None, ...]


class _At(NamedTuple):
    """The fits at one point."""

    value: float
    every: tuple[float, float]
    powers: tuple[float, float]
    within: tuple[float, float]
    reason: str
    found: fits.Asymptotics | None


def _broadcast_to_points(frame: xr.DataArray, number: Number) -> np.ndarray:
    """A number at each point of a frame, in its order, as rows over the other dimensions of the
    number.
    """
    found = xr.DataArray(number).broadcast_like(frame).transpose(*frame.dims, ...)
    return found.values.astype(float).reshape(frame.size, -1)


_CONTRADICTED: dict[Fit, str] = {
    "power law": "contradict a power law",
    "asymptotic": "contradict every power law, or settle at a limit instead",
}
_MEANING: dict[Fit, str] = {
    "power law": "a power law, ± 4 standard errors (Student's t)",
    "asymptotic": (
        "power laws with a correction x^-g, g from 1/2 to 2, and a second term no larger at the"
        " smallest size, or above an offset, at 4 standard deviations"
    ),
}


@checked
def scales_as(
    samples: xr.DataArray,
    dim: str,
    exponent: Number,
    *,
    fit: Fit = "asymptotic",
    by: fits.By = "mean",
    resolution: float | int = RESOLUTION,
) -> ScalesAs:
    """The mean of `samples` grows as the power `exponent` of the size `dim`, at every point.

    With "power law" the data must follow y = a xᵇ at the sizes swept, which is tested no further
    than their noise allows: a slow correction may pass. With "asymptotic" it is y = a xᵇ (1 + c x⁻ᵍ
    + …) at large sizes, g from 1/2 to 2, with a second term that is no larger at the smallest size,
    x⁻²ᵍ or x⁻ᵍ log x; slower corrections are not among them. Where the data contradict that,
    nothing is decided. A power of 1/2 or more of a logarithm, in any unit, is a rival of the
    exponent and beside each multiple of 1/2, and a power of log x beside each rival. So is each
    exponent `resolution` away where the statement names no rival.

    Args:
        samples: Dimensions `dim` and "seed" or "batch", and those of the points; at least 5 sizes,
            and more seeds than sizes.
        dim: The size.
        exponent: The stated exponent: a number, or one for each point.
        fit: The model.
        by: The estimate that is a power: the mean, the median, or the geometric mean ("log").
        resolution: Distance of the exponents to be excluded if no rival is named.

    Raises:
        ValueError: the samples lack `dim`, a dimension of the exponents, or have fewer than 5
            sizes; sizes that are not numbers; another fit; a resolution that is not positive.

    Examples:
        >>> from specjax import lab
        >>> d, noise = 2.0 ** np.arange(3, 11), np.random.default_rng(0).normal(1, 0.01, (50, 8))
        >>> norm = xr.DataArray(d**2 * noise, dims=("seed", "d"), coords={"d": d})
        >>> lab.scales_as(norm, "d", 2).judge({"d^1.5": 1.5}).verdict
        'confirmed'
        >>> lab.scales_as(norm, "d", 1.5).judge({"d^2": 2.0}).verdict
        'refuted'
    """
    sample_dim(samples)
    check_number(resolution, "resolution", "(0, inf)", "scales_as")
    require_number(exponent, "The exponent")
    dims = list(map(str, samples.dims))
    if dim not in dims:
        raise ValueError(
            f"A power of {dim!r} needs samples with that dimension, got {sorted(dims)}."
        )
    fits.require_sizes(samples, dim)
    fits.require_single_samples(by, samples)
    if lacking := [str(other) for other in xr.DataArray(exponent).dims if other not in dims]:
        raise ValueError(
            f"The exponents have the dimensions {lacking}, which {samples.name!r} lacks; select or"
            " average them first."
        )
    if samples.sizes[dim] < 5:
        raise ValueError(
            f"An exponent in {dim!r} with a test of its model needs at least 5 sizes, got"
            f" {samples.sizes[dim]}."
        )
    return ScalesAs(samples, dim, exponent, fit, by, resolution)
