"""The fit of y = E + A xᵇ: a power law above a floor, as scaling laws of losses are, with intervals for all three."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import ArrayLike, Float

from specjax.sweep import bootstrap
from specjax.sweep.bootstrap import (
    Sample,
    check_level,
    check_resamples,
    degrees_of_freedom,
    resample,
    sample_of,
    weights,
)
from specjax.sweep.one_line import one_line, share_of_variance
from specjax.sweep.regression import Curve, exponent_bounds, fit_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class OffsetReplicates(NamedTuple):
    """The parameters of a fit in each resample of the seeds; one, the fit itself, where there is no seed noise.

    In a resample whose exponent has the other sign, E and A have run through infinity, and are infinite here.
    """

    offset: Float[np.ndarray, " resamples"]
    prefactor: Float[np.ndarray, " resamples"]
    exponent: Float[np.ndarray, " resamples"]


@dataclass(frozen=True, eq=False, repr=False)
class OffsetFit:
    """y = offset + prefactor · x^exponent, fitted to means over seeds; prints in one line.

    Each number has its bootstrap interval at `level`; `stderr` is the bootstrap standard error of the exponent, half the distance of
    the replicates' quantiles that lie one standard deviation from the middle of a normal, since the three parameters have heavy
    tails. The offset is zero within error where `offset_interval` contains 0. `means` and `stderrs` are those of y at the `widths`,
    ascending; `replicates`, `resampled`, `freedom`, `name`, `dim` and `labels` as in :class:`PowerLawFit`.
    """

    exponent: float
    stderr: float
    interval: tuple[float, float]
    offset: float
    offset_interval: tuple[float, float]
    prefactor: float
    prefactor_interval: tuple[float, float]
    widths: Float[np.ndarray, " n"]
    means: Float[np.ndarray, " n"]
    stderrs: Float[np.ndarray, " n"]
    replicates: OffsetReplicates
    resampled: str
    freedom: float
    level: float
    name: str
    dim: str
    labels: tuple[str, str]

    @property
    def r_squared(self) -> float:
        """R² of the means at the widths: the share of their variance that the curve has."""
        return share_of_variance(self.means, self.predict(self.widths))

    def __repr__(self) -> str:
        low, high = self.offset_interval
        return f"offset {self.offset:.3g} ({low:.3g} to {high:.3g}), {one_line(self, self.r_squared)}"

    def predict(self, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """The fitted curve at `x`, any shape."""
        return np.asarray(self.offset + self.prefactor * np.asarray(x, np.float64) ** self.exponent)

    def band(
        self, x: ArrayLike, *, level: float | None = None, simultaneous: bool = False
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """The lower and upper end of a bootstrap band for the mean of y at `x`, as :meth:`PowerLawFit.band`.

        Resamples in which the exponent has the other sign, which the fit allows in a share smaller than the tails, are left out.

        Raises:
            ValueError: `level` outside (0, 1), or x that is not positive.
        """
        x = np.asarray(x, np.float64)
        if not (np.isfinite(x).all() and (x > 0).all()):
            raise ValueError(f"A band of a power law needs positive x, got {x.ravel().tolist()}.")
        finite = np.isfinite(self.replicates.offset)
        offset, prefactor, exponent = (v[finite, None] for v in self.replicates)
        low, high = bootstrap.band(
            self.predict(x.ravel()),
            offset + prefactor * x.ravel() ** exponent,
            self.freedom,
            self.level if level is None else level,
            simultaneous,
        )
        return low.reshape(x.shape), high.reshape(x.shape)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws means, curve, band and exponent, as :meth:`PowerLawFit.plot`, with the offset as a line."""
        from specjax.sweep.fit_plot import draw_fit

        return draw_fit(self, ax)


def fit_offset(data: xr.DataArray, dim: str, *, resamples: int = 1000, level: float = 0.95, seed: int = 0) -> OffsetFit:
    """Fits y = E + A xᵇ to the means of `data` over seeds, with intervals of E, A and b.

    The fit is least squares on the means themselves, which need not be positive, weighted by their inverse variances, with the
    standard deviation of a seed taken as a power law in x. E and A are linear and projected out; b is searched for in both signs.
    Resampling and intervals are those of :func:`fit_power_law`.

    Args:
        data: Dimensions exactly `dim` and "seed", or "batch".
        dim: The dimension that is x; its coordinate is positive, with at least 4 points.
        resamples: Bootstrap resamples of the seeds.
        level: Coverage of the intervals.
        seed: Seed of the resampling.

    Raises:
        ValueError: what :func:`fit_power_law` refuses, but for signs; or the data do not determine the three parameters: A is 0
            within noise, b is 0 within noise (where E has no value), or b runs to where only one end of the widths feels the term.

    Warns:
        RoughFitWarning: fewer than 10 seeds or batches.
    """
    check_resamples(resamples)
    check_level(level)
    sample = sample_of(data, dim, least=4)
    means, stderrs = sample.means_and_stderrs()
    if np.ptp(means) == 0:
        raise _undetermined(sample, "its means are all equal")
    curve = fit_curve(sample.x, means[None], weights(sample.x, stderrs[None], sample.counts))
    b, sign = float(curve.exponent[0]), float(np.sign(curve.prefactor[0]))
    if _at_bound(sample, curve).any() or b == 0:
        raise _undetermined(sample, "the exponent runs to the end of its range")
    resampled, spread = resample(sample, resamples, seed)
    curves = fit_curve(sample.x, resampled, weights(sample.x, spread, sample.counts))

    freedom = degrees_of_freedom(sample, resampled, curves.exponent[:, None])
    tail = float(bootstrap.tail_of(level, freedom)[0])
    crossed = curves.exponent * b <= 0
    # Up to a tail of resamples may lie beyond what is determined: the quantiles do not reach them.
    if np.mean(_at_bound(sample, curves)) >= tail:
        raise _undetermined(sample, "the exponent runs to the end of its range in too many resamples")
    if np.mean(crossed) >= tail:
        raise _undetermined(sample, "the exponent is 0 within noise, where the offset has no value")
    if np.mean(curves.prefactor * np.sign(curves.exponent) * sign * np.sign(b) <= 0) >= tail:
        raise _undetermined(sample, "the prefactor is 0 within noise")
    replicates = OffsetReplicates(
        np.where(crossed, -sign * np.inf, curves.offset),
        np.where(crossed, sign * np.inf, curves.prefactor),
        curves.exponent,
    )
    low, high = np.quantile(curves.exponent, [_NORMAL_TAIL, 1 - _NORMAL_TAIL])
    ends = bootstrap.intervals(np.stack(replicates, axis=1), np.repeat(freedom, 3), level)
    return OffsetFit(
        exponent=b,
        stderr=float((high - low) / 2 * np.sqrt((freedom[0] + 1) / freedom[0])),
        interval=(float(ends[2, 0]), float(ends[2, 1])),
        offset=float(curve.offset[0]),
        offset_interval=(float(ends[0, 0]), float(ends[0, 1])),
        prefactor=float(curve.prefactor[0]),
        prefactor_interval=(float(ends[1, 0]), float(ends[1, 1])),
        widths=sample.x,
        means=means,
        stderrs=stderrs,
        replicates=replicates,
        resampled=sample.resampled,
        freedom=float(freedom[0]),
        level=level,
        name=sample.name,
        dim=sample.dim,
        labels=(sample.dim_label, sample.label),
    )


_NORMAL_TAIL = 0.15865525393145707  # the share of a normal beyond one standard deviation


def _at_bound(sample: Sample, curve: Curve) -> np.ndarray:
    low, high = exponent_bounds(sample.x)
    return (curve.exponent <= low) | (curve.exponent >= high)


def _undetermined(sample: Sample, why: str) -> ValueError:
    return ValueError(
        f"The points do not determine E + A·{sample.dim}^b for {sample.name!r}: {why}; sweep a wider range, run more seeds, or fit a "
        "power law without the offset."
    )
