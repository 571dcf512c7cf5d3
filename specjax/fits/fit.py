"""A fitted power law: one object for every model, with its exponent, what the exponent is worth,
and the curve.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import ArrayLike, Float
from scipy import stats

from specjax.fits import resampling
from specjax.fits.regression import Curves, log_of
from specjax.fits.resampling import Sample

Model = Literal["power law", "subleading", "offset", "logarithm"]
"""y = a xᵇ, y = a xᵇ (1 + c/x), y = E + a xᵇ and y = a xᵇ (log x)ᶜ."""


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """y = offset + prefactor · x^exponent · (1 + subleading/x) · (log x)^logarithm, fitted to means
    over seeds; prints in one line.

    The `model` says which term was fitted; the others are 0. Intervals are bootstrap intervals at
    `level`, `stderr` is the bootstrap standard error of the exponent; without seed noise they are 0
    and single numbers. They do not know whether the data follow the model: the local exponents show
    it, and `choose_model` tests it. `shift` is that of an `asymptotic_exponent`, whose interval is
    another one, and NaN of other fits.

    `means` and `stderrs` are those of y at the `widths`, ascending. `local_exponents[i]` is the
    slope of log y between `widths[i]` and `widths[i + 1]`, NaN where a mean is not positive.
    `replicates` are the parameters in each resample, `resampled` says what was drawn in it, such as
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
        """R² of the means, of log means unless there is an offset: the share of their variance that
        the curve has.
        """
        y, curve = self._on_axis(self.means), self._on_axis(self.predict(self.widths))
        left, whole = float(np.sum((y - curve) ** 2)), float(np.sum((y - y.mean()) ** 2))
        return 1.0 - left / whole if whole > 0 else float(left == 0)

    def __repr__(self) -> str:
        noise = resampling.noise_told(self.stderr, self.level, self.resampled)
        if np.isfinite(self.shift):
            noise = f"4 standard errors and a shift of {abs(self.shift):.2g}"
        offset = (
            f"offset {resampling.told(self.offset, *self.offset_interval)}, "
            if self.model == "offset"
            else ""
        )
        power = ""
        if self.model == "logarithm":
            power = (
                ", power of the logarithm"
                f" {resampling.told(self.logarithm, *self.logarithm_interval)}"
            )
        exponent = resampling.told(
            self.exponent, *self.interval, noise, rounding=resampling.ROUNDING
        )
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
        """The lower and upper end of a bootstrap band for the mean of y at `x`, positive and of any
        shape.

        At each x alone it covers the curve with probability `level`, with `simultaneous` at all of
        `x` at once. It has seed noise in it and no doubt about the model, whose part grows with the
        distance to the widths that were fitted.

        Raises:
            ValueError: x that is not positive, or so small that the subleading term leaves no
                positive curve.
        """
        x = np.asarray(x, np.float64)
        if not (np.isfinite(x).all() and (x > 0).all()):
            raise ValueError(f"A band of a power law needs positive x, got {x.ravel().tolist()}.")
        flat = x.ravel()
        # Resamples in which the exponent has the other sign, a share smaller than the tails, have
        # an infinite offset.
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
        tail = float(resampling.tail_of(self.level, np.asarray(self.freedom)))
        low, high = np.quantile(curves, [tail, 1 - tail], axis=0)
        if simultaneous:
            # Sup-t: as many standard errors at all x as leave out as many resampled curves,
            # wherever they are outside.
            curve, spread = self._on_axis(self.predict(flat)), np.std(curves, axis=0)
            distances = np.abs(curves - curve) / np.where(spread > 0, spread, 1.0)
            half = np.quantile(distances.max(axis=1), 1 - 2 * tail) * spread
            low, high = curve - half, curve + half
        if self.model != "offset":
            low, high = np.exp(low), np.exp(high)
        return low.reshape(x.shape), high.reshape(x.shape)

    def p_value(self, predicted: float | int) -> float:
        """How often, if the data follow the model with the exponent `predicted`, a fit would be as
        far from it as this one.

        Below 1 - level exactly if `predicted` is outside of the bootstrap interval at that level;
        the least that the number of resamples can tell is an upper bound. Like the interval it
        assumes the model, and it does not know of the shift of an `asymptotic_exponent`.

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
        below = float(
            np.interp(
                predicted, replicates, np.linspace(0, 1, len(replicates)), left=0.0, right=1.0
            )
        )
        tail = max(1 / (len(replicates) + 1), min(below, 1 - below))
        # The inverse of `tail_of`.
        return float(
            2
            * stats.t.cdf(
                stats.norm.ppf(tail) * np.sqrt(self.freedom / (self.freedom + 1)), self.freedom
            )
        )

    def _log_of(self, x: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The logarithm that was fitted; NaN where it is not positive."""
        logs = log_of(x, self.widths[0])
        return np.where(logs > 0, logs, np.nan)

    def _on_axis(self, y: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The logarithm, on which the curves are nearly normal about the fit, far from the widths
        too; of an offset y itself.
        """
        return y if self.model == "offset" else np.log(y)


def fit_of(
    sample: Sample,
    model: Model,
    found: Curves,
    drawn: Curves,
    resampled: Float[np.ndarray, "resamples n"],
    level: float,
) -> Fit:
    """The fit of `model` with the parameters `found`, and `drawn` from the `resampled` means."""
    means, stderrs = sample.means_and_stderrs()
    estimates = np.concatenate([found.exponent, _local_exponents(sample.x, means)])
    replicates = np.concatenate(
        [drawn.exponent[:, None], _local_exponents(sample.x, resampled)], axis=1
    )
    freedom = resampling.degrees_of_freedom(sample, resampled, replicates)
    errors, ends = resampling.intervals(replicates, freedom, level)
    if model == "offset":
        # Its three parameters have heavy tails: half the distance of the quantiles one standard
        # deviation from the middle of a normal.
        low, high = np.quantile(drawn.exponent, [_NORMAL_TAIL, 1 - _NORMAL_TAIL])
        errors[0] = (high - low) / 2 * np.sqrt((freedom[0] + 1) / freedom[0])
    tail = float(resampling.tail_of(level, freedom[:1])[0])
    prefactors, offsets, powers = (
        np.quantile(part, [tail, 1 - tail]).tolist()
        for part in (drawn.prefactor, drawn.offset, drawn.logarithm)
    )
    return Fit(
        model=model,
        exponent=float(estimates[0]),
        stderr=float(errors[0]),
        interval=(float(ends[0, 0]), float(ends[0, 1])),
        prefactor=float(found.prefactor[0]),
        prefactor_interval=(prefactors[0], prefactors[1]),
        subleading=float(found.c[0]),
        offset=float(found.offset[0]),
        offset_interval=(offsets[0], offsets[1]),
        widths=sample.x,
        means=means,
        stderrs=stderrs,
        local_exponents=estimates[1:],
        local_stderrs=errors[1:],
        local_intervals=ends[1:],
        replicates=drawn,
        resampled=sample.resampled,
        freedom=float(freedom[0]),
        level=level,
        name=sample.name,
        dim=sample.dim,
        labels=sample.labels,
        logarithm=float(found.logarithm[0]),
        logarithm_interval=(powers[0], powers[1]),
    )


_NORMAL_TAIL = 0.15865525393145707  # the share of a normal beyond one standard deviation


def _local_exponents(x: np.ndarray, means: np.ndarray) -> np.ndarray:
    return np.diff(np.log(np.where(means > 0, means, np.nan)), axis=-1) / np.diff(np.log(x))
