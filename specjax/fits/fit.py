"""A fitted power law: one object for every model, with its exponent, intervals and curve."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import ArrayLike, Float
from scipy import stats

from specjax.fits import _resampling
from specjax.fits._regression import Curves, log_of
from specjax.fits._resampling import ROUNDING, Sample, describe_noise, format_interval

Model = Literal["power law", "subleading", "offset", "logarithm"]
"""y = a xᵇ, y = a xᵇ (1 + c/x), y = E + a xᵇ and y = a xᵇ (log x)ᶜ."""


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """y = offset + prefactor · x^exponent · (1 + subleading/x) · (log x)^logarithm; prints in one
    line.

    The curve is fitted to means over seeds. The `model` says which term was fitted; the others are
    0. Intervals are bootstrap intervals at `level`, `stderr` is the bootstrap standard error of the
    exponent; without seed noise they are single numbers and 0. They assume the model: the local
    exponents show a misfit, and `choose_model` tests it. `shift` is that of an
    `asymptotic_exponent`, whose interval has another definition, and NaN for other fits.

    `means` and `stderrs` are those of y at the `widths`, ascending. `local_exponents[i]` is the
    slope of log y between `widths[i]` and `widths[i + 1]`, NaN if a mean is not positive.
    `replicates` are the parameters in each resample, `resampled` names the resampled units, such as
    "400 seeds", and `freedom` are the degrees of freedom of Student's t in the intervals: seeds
    less one. `labels` are `dim` and `name` with their units.
    """

    model: Model
    exponent: float
    stderr: float
    interval: tuple[float, float]
    prefactor: float
    prefactor_interval: tuple[float, float]
    subleading: float
    offset: float
    offset_interval: tuple[float, float]
    widths: Float[np.ndarray, " n"]
    means: Float[np.ndarray, " n"]
    stderrs: Float[np.ndarray, " n"]
    local_exponents: Float[np.ndarray, " n-1"]
    local_stderrs: Float[np.ndarray, " n-1"]
    local_intervals: Float[np.ndarray, "n-1 2"]
    replicates: Curves
    resampled: str
    freedom: float
    level: float
    name: str
    dim: str
    labels: tuple[str, str]
    shift: float = np.nan
    logarithm: float = 0.0
    logarithm_interval: tuple[float, float] = (0.0, 0.0)

    @property
    def r_squared(self) -> float:
        """R² of the means, or of log means without an offset."""
        y, curve = self._on_axis(self.means), self._on_axis(self.predict(self.widths))
        left, whole = float(np.sum((y - curve) ** 2)), float(np.sum((y - y.mean()) ** 2))
        return 1.0 - left / whole if whole > 0 else float(left == 0)

    def __repr__(self) -> str:
        noise = describe_noise(self.stderr, self.level, self.resampled)
        if np.isfinite(self.shift):
            noise = f"4 standard errors and a shift of {abs(self.shift):.2g}"
        offset = power = ""
        if self.model == "offset":
            offset = f"offset {format_interval(self.offset, *self.offset_interval)}, "
        if self.model == "logarithm":
            c = format_interval(self.logarithm, *self.logarithm_interval)
            power = f", power of the logarithm {c}"
        exponent = format_interval(self.exponent, *self.interval, noise, rounding=ROUNDING)
        return f"{offset}exponent {exponent}{power}, R² {self.r_squared:.4g}"

    def predict(self, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """The fitted curve at `x`, any shape."""
        x = np.asarray(x, np.float64)
        curve = self.prefactor * x**self.exponent * (1 + self.subleading / x)
        if self.model == "logarithm":
            curve = curve * self._log_of(x) ** self.logarithm
        return np.asarray(self.offset + curve)

    def band(
        self, x: ArrayLike, *, simultaneous: bool = False
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """The lower and upper end of a bootstrap band for the mean of y at positive `x` of any
        shape.

        It covers the curve with probability `level` at each x alone, or with `simultaneous` at all
        of `x` at once. It includes seed noise, but no doubt about the model, which grows with the
        distance to the fitted widths.

        Raises:
            ValueError: x that is not positive, or so small that the subleading term leaves no
                positive curve.
        """
        x = np.asarray(x, np.float64)
        if not (np.isfinite(x).all() and (x > 0).all()):
            raise ValueError(f"A band of a power law needs positive x, got {x.ravel().tolist()}.")
        flat = x.ravel()
        # Resamples whose exponent has the other sign, a share smaller than the tails, have an
        # infinite offset.
        finite = np.isfinite(self.replicates.offset)
        exponent, prefactor, c, offset, _, logarithm = (
            part[finite, None] for part in self.replicates
        )
        factors = 1 + c / flat
        if np.any(factors <= 0):
            at = flat[np.argmax((factors <= 0).any(axis=0))]
            raise ValueError(
                f"The subleading term is as large as the leading one at {self.dim}={at:g}; ask for"
                " a band at larger x."
            )
        if self.model == "logarithm":
            factors = factors * self._log_of(flat) ** logarithm
        curves = self._on_axis(offset + prefactor * flat**exponent * factors)
        tail = float(_resampling.tail_of(self.level, np.asarray(self.freedom)))
        low, high = np.quantile(curves, [tail, 1 - tail], axis=0)
        if simultaneous:
            # Sup-t: the same number of standard errors at all x, so that a share 1 - level of
            # resampled curves leaves the band somewhere.
            curve, spread = self._on_axis(self.predict(flat)), np.std(curves, axis=0)
            distances = np.abs(curves - curve) / np.where(spread > 0, spread, 1.0)
            half = np.quantile(distances.max(axis=1), 1 - 2 * tail) * spread
            low, high = curve - half, curve + half
        if self.model != "offset":
            low, high = np.exp(low), np.exp(high)
        return low.reshape(x.shape), high.reshape(x.shape)

    def p_value(self, predicted: float | int) -> float:
        """The p-value of the exponent `predicted`: how often a fit would be as far from it, if it
        were true.

        It is below 1 - level exactly if `predicted` is outside of the bootstrap interval at that
        level; it is at least the resolution of the resamples, an upper bound. Like the interval it
        assumes the model, and it ignores the shift of an `asymptotic_exponent`.

        Raises:
            ValueError: the fitted data have no seed noise, or `predicted` is not finite.
        """
        if not np.isfinite(predicted):
            raise ValueError(f"A predicted exponent needs to be a finite number, got {predicted}.")
        if self.stderr == 0:
            raise ValueError(
                f"The fit of {self.name!r} has no seed noise, so that no test can be made; compare"
                f" {self.exponent!r} with the prediction."
            )
        replicates = np.sort(self.replicates.exponent)
        # The position among the replicates, as np.quantile interpolates it.
        places = np.linspace(0, 1, len(replicates))
        below = float(np.interp(predicted, replicates, places, left=0.0, right=1.0))
        tail = max(1 / (len(replicates) + 1), min(below, 1 - below))
        # The inverse of `tail_of`.
        score = stats.norm.ppf(tail) * np.sqrt(self.freedom / (self.freedom + 1))
        return float(2 * stats.t.cdf(score, self.freedom))

    def _log_of(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The fitted logarithm; NaN where it is not positive."""
        logs = log_of(x, self.widths[0])
        return np.where(logs > 0, logs, np.nan)

    def _on_axis(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The logarithm of y, in which errors are nearly normal; y itself with an offset."""
        return y if self.model == "offset" else np.log(y)


def fit_of(
    sample: Sample,
    model: Model,
    curve: Curves,
    sampled: Curves,
    resampled: Float[np.ndarray, "resamples n"],
    level: float,
) -> Fit:
    """The fit of `model`: `curve` of the means, `sampled` of the `resampled` means."""
    means, stderrs = sample.means_and_stderrs()
    estimates = np.concatenate([curve.exponent, _local_exponents(sample.x, means)])
    replicates = np.concatenate(
        [sampled.exponent[:, None], _local_exponents(sample.x, resampled)], axis=1
    )
    freedom = _resampling.degrees_of_freedom(sample, resampled, replicates)
    errors, ends = _resampling.intervals(replicates, freedom, level)
    if model == "offset":
        # Its three parameters have heavy tails: take half the distance of the quantiles that lie
        # one standard deviation from the middle of a normal.
        low, high = np.quantile(sampled.exponent, [_NORMAL_TAIL, 1 - _NORMAL_TAIL])
        errors[0] = (high - low) / 2 * np.sqrt((freedom[0] + 1) / freedom[0])
    tail = float(_resampling.tail_of(level, freedom[:1])[0])
    prefactors, offsets, powers = (
        np.quantile(part, [tail, 1 - tail]).tolist()
        for part in (sampled.prefactor, sampled.offset, sampled.logarithm)
    )
    return Fit(
        model=model,
        exponent=float(estimates[0]),
        stderr=float(errors[0]),
        interval=(float(ends[0, 0]), float(ends[0, 1])),
        prefactor=float(curve.prefactor[0]),
        prefactor_interval=(prefactors[0], prefactors[1]),
        subleading=float(curve.c[0]),
        offset=float(curve.offset[0]),
        offset_interval=(offsets[0], offsets[1]),
        widths=sample.x,
        means=means,
        stderrs=stderrs,
        local_exponents=estimates[1:],
        local_stderrs=errors[1:],
        local_intervals=ends[1:],
        replicates=sampled,
        resampled=sample.resampled,
        freedom=float(freedom[0]),
        level=level,
        name=sample.name,
        dim=sample.dim,
        labels=sample.labels,
        logarithm=float(curve.logarithm[0]),
        logarithm_interval=(powers[0], powers[1]),
    )


_NORMAL_TAIL = 0.15865525393145707  # the share of a normal beyond one standard deviation


def _local_exponents(x: np.ndarray, means: np.ndarray) -> np.ndarray:
    return np.diff(np.log(np.where(means > 0, means, np.nan)), axis=-1) / np.diff(np.log(x))
