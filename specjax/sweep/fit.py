"""Power-law exponents from swept data, with intervals from a bootstrap over seeds that keeps widths coupled."""

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
from specjax.sweep.regression import Line, fit_log, undetermined

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PowerLawReplicates(NamedTuple):
    """The parameters of a fit in each resample of the seeds; one, the fit itself, where there is no seed noise."""

    log_prefactor: Float[np.ndarray, " resamples"]
    exponent: Float[np.ndarray, " resamples"]
    subleading: Float[np.ndarray, " resamples"]


@dataclass(frozen=True, eq=False, repr=False)
class PowerLawFit:
    """y = prefactor · x^exponent · (1 + subleading/x), fitted to means over seeds; prints in one line.

    `interval` is the bootstrap interval of the exponent at `level`, `stderr` its bootstrap standard error. Where the data have no
    spread over seeds there is no seed noise: every standard error is 0 and every interval collapses to its number. Neither contains
    the misfit of a curve that is not a power law; the local exponents show it, :func:`choose_model` tests it, and
    `asymptotic_exponent` bounds it.

    `means` and `stderrs` are those of y at the `widths`, ascending. `local_exponents[i]` is the slope between `widths[i]` and
    `widths[i + 1]`. `subleading` has the unit of x and is None where it was not fitted. `replicates` are the parameters in each
    resample, `resampled` what was drawn in it, such as "400 seeds", and `freedom` the degrees of freedom of Student's t that widen
    the percentiles of them: seeds less one. `name` and `dim` are those of the data, and `labels` what a picture has on its axes: both
    with their units.
    """

    exponent: float
    stderr: float
    interval: tuple[float, float]
    prefactor: float
    subleading: float | None
    widths: Float[np.ndarray, " n"]
    means: Float[np.ndarray, " n"]
    stderrs: Float[np.ndarray, " n"]
    local_exponents: Float[np.ndarray, " n-1"]
    local_stderrs: Float[np.ndarray, " n-1"]
    local_intervals: Float[np.ndarray, "n-1 2"]
    replicates: PowerLawReplicates
    resampled: str
    freedom: float
    level: float
    name: str
    dim: str
    labels: tuple[str, str]

    @property
    def r_squared(self) -> float:
        """R² of the log means at the widths: the share of their variance that the curve has."""
        return share_of_variance(np.log(self.means), np.log(self.predict(self.widths)))

    def __repr__(self) -> str:
        return one_line(self, self.r_squared)

    def predict(self, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """The fitted curve at `x`, any shape."""
        x = np.asarray(x, np.float64)
        return np.asarray(self.prefactor * x**self.exponent * (1 + (self.subleading or 0.0) / x))

    def band(
        self, x: ArrayLike, *, level: float | None = None, simultaneous: bool = False
    ) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
        """The lower and upper end of a bootstrap band for the mean of y at `x`, positive and of any shape.

        At each x alone the band covers the curve with probability `level`, by default the fit's; with `simultaneous` it covers all
        of `x` at once, as the curve as a whole needs. It has seed noise in it and no doubt about the model, whose part grows with
        the distance to the widths that were fitted.

        Raises:
            ValueError: `level` outside (0, 1), x that is not positive, or x so small that the subleading term leaves no positive curve.
        """
        x = np.asarray(x, np.float64)
        if not (np.isfinite(x).all() and (x > 0).all()):
            raise ValueError(f"A band of a power law needs positive x, got {x.ravel().tolist()}.")
        log_prefactor, exponent, c = (v[:, None] for v in self.replicates)
        flat = x.ravel()
        factors = 1 + c / flat
        if np.any(factors <= 0):
            raise ValueError(
                f"The subleading term is as large as the leading one at {self.dim}={flat[np.argmax((factors <= 0).any(axis=0))]:g}; "
                "ask for a band at larger x."
            )
        # On the logarithmic axis the curves are nearly normal about the fit, far from the widths too.
        low, high = bootstrap.band(
            np.log(self.predict(flat)),
            log_prefactor + exponent * np.log(flat) + np.log(factors),
            self.freedom,
            self.level if level is None else level,
            simultaneous,
        )
        return np.exp(low).reshape(x.shape), np.exp(high).reshape(x.shape)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draws means with bars of two standard errors, the curve and its band at each x, with the exponent in the legend.

        On logarithmic axes, in `ax` or a new figure. Needs matplotlib, which is imported here.
        """
        from specjax.sweep.fit_plot import draw_fit

        return draw_fit(self, ax)


@dataclass(frozen=True)
class AsymptoticExponent:
    """The exponent at infinite width: `exponent` ± (4 · `stderr` + |`shift`|), which is `interval`.

    `exponent` is that of a fit with one subleading term to all widths but the smallest, `stderr` its bootstrap standard error,
    and `shift` how far it has moved from the fit to all widths.
    """

    exponent: float
    stderr: float
    shift: float
    interval: tuple[float, float]

    def __str__(self) -> str:
        low, high = self.interval
        return f"exponent {self.exponent:.3g} ({low:.3g} to {high:.3g}, 4 standard errors and a shift of {abs(self.shift):.2g})"


def fit_power_law(
    data: xr.DataArray,
    dim: str,
    *,
    subleading: bool = False,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> PowerLawFit:
    """Fits y = a xᵇ, or y = a xᵇ (1 + c/x), to the means of `data` over seeds.

    The fit is least squares on log means, weighted by their inverse variances, with the relative standard deviation of a seed taken
    as a power law in x, since weights by each width's own variance bias a fit to skewed noise. Means, variances and the fit are
    computed again in each resample of the seeds, all widths of a seed together. Intervals are percentile intervals, widened for few
    seeds by Student's t (the expanded percentile interval of Hesterberg 2015); below some ten seeds they are rough. Where each width
    has its own number of seeds (the coordinate `seeds`), it uses those it has.

    c is searched for between -x_min and x_max; resamples that run to an end of it are as wide as an interval gets.

    Args:
        data: Dimensions exactly `dim` and "seed", e.g. `run(...)["loss"]`, or "batch", whose means are then the replicates.
        dim: The dimension that is x; its coordinate is positive.
        subleading: Whether to fit c as well.
        resamples: Bootstrap resamples of the seeds.
        level: Coverage of the intervals.
        seed: Seed of the resampling.

    Raises:
        ValueError: other dimensions; fewer than 2 widths, or 4 with `subleading`; a single seed; non-finite data; a mean that is
            not positive, or within noise of zero; widths that do not determine c.

    Warns:
        RoughFitWarning: 3 widths or fewer, or fewer than 10 seeds or batches.
    """
    check_resamples(resamples)
    check_level(level)
    sample = sample_of(data, dim, least=4 if subleading else 2)
    line, means, stderrs = fit_sample(sample, subleading)
    resampled, spread = resample(sample, resamples, seed)
    lines = fit_resampled(sample, resampled, spread, subleading)

    estimates = np.concatenate([line.exponent, _local_exponents(sample.x, means)])
    replicates = np.concatenate([lines.exponent[:, None], _local_exponents(sample.x, resampled)], axis=1)
    freedom = degrees_of_freedom(sample, resampled, replicates)
    errors = bootstrap.standard_errors(replicates, freedom)
    ends = bootstrap.intervals(replicates, freedom, level)
    return PowerLawFit(
        exponent=float(estimates[0]),
        stderr=float(errors[0]),
        interval=(float(ends[0, 0]), float(ends[0, 1])),
        prefactor=float(np.exp(line.log_prefactor[0])),
        subleading=float(line.c[0]) if subleading else None,
        widths=sample.x,
        means=means,
        stderrs=stderrs,
        local_exponents=estimates[1:],
        local_stderrs=errors[1:],
        local_intervals=ends[1:],
        replicates=PowerLawReplicates(lines.log_prefactor, lines.exponent, lines.c),
        resampled=sample.resampled,
        freedom=float(freedom[0]),
        level=level,
        name=sample.name,
        dim=sample.dim,
        labels=(sample.dim_label, sample.label),
    )


def asymptotic_exponent(data: xr.DataArray, dim: str, *, resamples: int = 1000, seed: int = 0) -> AsymptoticExponent:
    """The exponent that `data` approach at large `dim`, with an interval that covers noise and finite size.

    The half-width is 4·SE + |shift|: four bootstrap standard errors for the seeds, and for the terms beyond the subleading one the
    shift of the exponent when the smallest width, where they are largest, is left out. That bounds what is left of them if
    leaving it out at least halves them, as it does to 1/x² on doubling widths. It is a rule and not a confidence level.

    Args:
        data: Dimensions exactly `dim` and "seed", or "batch".
        dim: The dimension that is x; at least 5 widths.
        resamples: Bootstrap resamples of the seeds.
        seed: Seed of the resampling.

    Raises:
        ValueError: fewer than 5 widths, and whatever :func:`fit_power_law` refuses.

    Warns:
        RoughFitWarning: fewer than 10 seeds or batches.
    """
    check_resamples(resamples)
    sample = sample_of(data, dim, least=5)
    whole, _, _ = fit_sample(sample, subleading=True)
    kept = sample.last(1)
    rest, _, _ = fit_sample(kept, subleading=True)
    resampled, spread = resample(kept, resamples, seed)
    replicates = fit_resampled(kept, resampled, spread, subleading=True).exponent[:, None]
    freedom = degrees_of_freedom(kept, resampled, replicates)
    exponent = float(rest.exponent[0])
    stderr = float(bootstrap.standard_errors(replicates, freedom)[0])
    shift = exponent - float(whole.exponent[0])
    half = 4 * stderr + abs(shift)
    return AsymptoticExponent(exponent, stderr, shift, (exponent - half, exponent + half))


def fit_sample(sample: Sample, subleading: bool) -> tuple[Line, Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The fit to the means of `sample`, a single set, with those means and their standard errors.

    Raises:
        ValueError: a mean is not positive, or the widths do not determine c.
    """
    means, stderrs = sample.means_and_stderrs()
    _check_positive(sample, means)
    line = fit_log(sample.x, np.log(means)[None], weights(sample.x, (stderrs / means)[None], sample.counts), subleading)
    if subleading and undetermined(sample.x, line):
        raise ValueError(
            f"The points do not determine a subleading term of {sample.name!r}; "
            "sweep a wider range, run more seeds, or fit without it."
        )
    return line, means, stderrs


def fit_resampled(
    sample: Sample,
    means: Float[np.ndarray, "resamples n"],
    stderrs: Float[np.ndarray, "resamples n"],
    subleading: bool,
) -> Line:
    """The fits to the means of each resample.

    Raises:
        ValueError: a mean is not positive.
    """
    _check_away_from_zero(sample, means)
    return fit_log(sample.x, np.log(means), weights(sample.x, stderrs / means, sample.counts), subleading)


def _local_exponents(x: np.ndarray, means: np.ndarray) -> np.ndarray:
    return np.diff(np.log(means), axis=-1) / np.diff(np.log(x))


def _check_positive(sample: Sample, means: np.ndarray) -> None:
    if np.any(means <= 0):
        where = sample.x[np.argmax(means <= 0)]
        raise ValueError(
            f"A power law needs positive means, but {sample.name!r} has mean {means[means <= 0][0]:.3g} at {sample.dim}={where:g}; "
            "fit minus the data if they are negative throughout, or their projection on a fixed direction if the sign changes."
        )


def _check_away_from_zero(sample: Sample, resampled: np.ndarray) -> None:
    crossing = np.any(resampled <= 0, axis=0)
    if crossing.any():
        raise ValueError(
            f"The mean of {sample.name!r} at {sample.dim}={sample.x[np.argmax(crossing)]:g} is within noise of zero, where it has no "
            "logarithm; run more seeds, or leave that point out."
        )
