"""Power-law exponents from swept data, with intervals from a bootstrap over whole seeds."""

from dataclasses import replace

import numpy as np
import xarray as xr
from jaxtyping import Float

from specjax.arguments import checked_but
from specjax.fits import _resampling
from specjax.fits._regression import Curves, LogModel, fit_log
from specjax.fits._resampling import By, Sample, degrees_of_freedom, resample, sample_of, weights
from specjax.fits.fit import Fit, fit_of

_LEVEL = 0.95


@checked_but("data")
def fit_power_law(
    data: xr.DataArray,
    dim: str,
    *,
    subleading: bool = False,
    by: By = "mean",
    resamples: int = 1000,
    level: float = _LEVEL,
    seed: int = 0,
) -> Fit:
    """Fit y = a xᵇ, or y = a xᵇ (1 + c/x) with c between -x_min and x_max, to means over seeds.

    The fit is least squares on log means, weighted by their inverse variances
    (`specjax.fits._resampling.weights`). Means, variances and the fit are computed again in each
    resample of the seeds, all widths of a seed together. Intervals are percentile intervals,
    widened for few seeds by Student's t (the expanded percentile interval of Hesterberg 2015). If
    each width has its own number of seeds (the coordinate `seeds`), the fit uses those it has.

    Args:
        data: Dimensions exactly `dim` and "seed", e.g. `run(...)["loss"]`, or "batch", whose means
            are then the replicates.
        dim: The dimension that is x; its coordinate is positive.
        subleading: Whether to fit c as well.
        by: The center to fit at each x: the mean, the median, or the geometric mean ("log"), for
            heavy tails.
        resamples: Bootstrap resamples of the seeds.
        level: Coverage of the intervals.
        seed: Seed of the resampling.

    Returns:
        A `Fit`: exponent, standard error, interval, local exponents, curve and band.

    Raises:
        ValueError: other dimensions; fewer than 2 widths, or 4 with `subleading`; a single seed;
            non-finite data; a mean that is not positive, or within noise of zero; widths that do
            not determine c.

    Warns:
        RoughFitWarning: 3 widths or fewer, or fewer than 10 seeds or batches.
        HeavyTailWarning: a mean of replicates whose tails leave it no variance.

    Examples:
        >>> from specjax import fits
        >>> d, noise = np.array([8, 16, 32, 64]), np.random.default_rng(0).normal(1, 0.01, (50, 4))
        >>> data = xr.DataArray(d**2 * noise, dims=("seed", "d"), coords={"d": d})
        >>> fit = fits.fit_power_law(data, "d")
        >>> round(fit.exponent, 1), fit.interval[0] < 2 < fit.interval[1]
        (2.0, True)
    """
    sample = sample_of(data, dim, least=4 if subleading else 2, by=by)
    return _fit(sample, "subleading" if subleading else "power law", resamples, level, seed)


@checked_but("data")
def fit_logarithm(
    data: xr.DataArray,
    dim: str,
    *,
    by: By = "mean",
    resamples: int = 1000,
    level: float = _LEVEL,
    seed: int = 0,
) -> Fit:
    """Fit y = a xᵇ (log x)ᶜ to the means of `data` over seeds; c is `Fit.logarithm`.

    If x begins below 2, 1 + log(x/x₀) replaces the logarithm, with x₀ the smallest x. Exponent and
    c move against each other: their intervals are wide unless x covers several decades. Arguments,
    result, errors and warnings are those of `fit_power_law`, with at least 4 widths.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 4.0 ** np.arange(1, 9), np.random.default_rng(0).normal(1, 0.01, (50, 8))
        >>> data = xr.DataArray(np.log(d) * noise, dims=("seed", "d"), coords={"d": d})
        >>> fit = fits.fit_logarithm(data, "d")
        >>> f"d^{abs(fit.exponent):.1f} (log d)^{fit.logarithm:.1f}"
        'd^0.0 (log d)^1.0'
    """
    return _fit(sample_of(data, dim, least=4, by=by), "logarithm", resamples, level, seed)


@checked_but("data")
def asymptotic_exponent(data: xr.DataArray, dim: str, *, by: By = "mean") -> Fit:
    """The exponent that `data` approach at large `dim`, with an interval for noise and finite size.

    It is that of a fit with one subleading term to all widths but the smallest. The half-width of
    `interval` is 4·SE + |shift|: four bootstrap standard errors for the seeds, and for the terms
    beyond the subleading one the shift of the exponent when the smallest width, where they are
    largest, is left out. That bounds the remaining terms if leaving it out at least halves them, as
    it does to 1/x² on doubling widths. It is a rule, not a confidence level. `asymptotics` assumes
    less: it fits the power of the correction, and considers a logarithm.

    Arguments, errors and warnings are those of `fit_power_law`, with at least 5 widths.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 2.0 ** np.arange(3, 9), np.random.default_rng(0).normal(1, 0.01, (50, 6))
        >>> data = xr.DataArray((d + 2) * noise, dims=("seed", "d"), coords={"d": d})
        >>> fit = fits.asymptotic_exponent(data, "d")
        >>> round(fit.exponent, 1), fit.interval[0] < 1 < fit.interval[1]
        (1.0, True)
    """
    sample = sample_of(data, dim, least=5, by=by)
    whole = float(_fit_means(sample, "subleading").exponent[0])
    fit = _fit(sample.select(slice(1, None)), "subleading", 1000, _LEVEL, 0)
    shift = fit.exponent - whole
    half = 4 * fit.stderr + abs(shift)
    return replace(fit, shift=shift, interval=(fit.exponent - half, fit.exponent + half))


@checked_but("data")
def drop_smallest(data: xr.DataArray, dim: str, *, by: By = "mean") -> xr.Dataset:
    """The exponents of `fit_power_law` without the 0, 1, 2, ... smallest widths.

    Terms beyond the power law are largest there.

    Returns:
        Along `dim`, whose coordinate is the smallest of the remaining widths, 3 at least:
        `exponent` with the ends `low` and `high` of its 95 % interval, and `shift`, the exponent
        less that of all widths, with `shift_low` and `shift_high`, all from the same resamples. A
        shift whose interval excludes 0 is a term that the model lacks. `to_dataframe()` prints as a
        table.

    Raises:
        ValueError: fewer than 4 widths, and any refusal of `fit_power_law` for one of the fits.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 2.0 ** np.arange(3, 8), np.random.default_rng(0).normal(1, 0.01, (50, 5))
        >>> data = xr.DataArray((d + 4) * noise, dims=("seed", "d"), coords={"d": d})
        >>> fits.drop_smallest(data, "d")["exponent"].round(2).values.tolist()
        [0.86, 0.91, 0.94]
    """
    sample = sample_of(data, dim, least=4, by=by)
    left = [sample.select(slice(k, None)) for k in range(len(sample.x) - 2)]
    exponents = np.concatenate([_fit_means(part, "power law").exponent for part in left])
    means, stderrs = resample(sample, 1000, 0)
    lines = [
        _fit_resamples(part, means[:, k:], stderrs[:, k:], "power law")
        for k, part in enumerate(left)
    ]
    replicates = np.stack([line.exponent for line in lines], axis=1)
    moves = replicates - replicates[:, :1]
    (low, high), (shift_low, shift_high) = (
        _resampling.intervals(values, degrees_of_freedom(sample, means, values), _LEVEL)[1].T
        for values in (replicates, moves)
    )
    found = {"exponent": exponents, "low": low, "high": high, "shift": exponents - exponents[0]}
    found |= {"shift_low": shift_low, "shift_high": shift_high}
    return xr.Dataset(
        {name: (dim, values) for name, values in found.items()}, {dim: sample.x[: len(left)]}
    )


def _fit_means(sample: Sample, model: LogModel) -> Curves:
    """The fit to the means of `sample`; ValueError if one is not positive, or c is undetermined."""
    means, stderrs = sample.means_and_stderrs()
    if np.any(means <= 0):
        where = sample.x[np.argmax(means <= 0)]
        raise ValueError(
            f"A power law needs positive means, but {sample.name!r} has mean"
            f" {means[means <= 0][0]:.3g} at {sample.dim}={where:g}; fit minus the data if they are"
            " negative throughout, or their projection on a fixed direction if the sign changes."
        )
    log_weights = weights(sample.x, (stderrs / means)[None], sample.counts)
    line = fit_log(sample.x, np.log(means)[None], log_weights, model)
    if model == "subleading" and line.undetermined[0]:
        raise ValueError(
            f"The points do not determine a subleading term of {sample.name!r}; sweep a wider"
            " range, run more seeds, or fit without it."
        )
    return line


def _fit_resamples(
    sample: Sample,
    means: Float[np.ndarray, "resamples n"],
    stderrs: Float[np.ndarray, "resamples n"],
    model: LogModel,
) -> Curves:
    """The fits to the means of each resample; raises ValueError if one is not positive."""
    crossing = np.any(means <= 0, axis=0)
    if crossing.any():
        raise ValueError(
            f"The mean of {sample.name!r} at {sample.dim}={sample.x[np.argmax(crossing)]:g} is"
            " within noise of zero, where it has no logarithm; run more seeds, or leave that point"
            " out."
        )
    return fit_log(
        sample.x, np.log(means), weights(sample.x, stderrs / means, sample.counts), model
    )


def _fit(sample: Sample, model: LogModel, resamples: int, level: float, seed: int) -> Fit:
    line = _fit_means(sample, model)
    means, stderrs = resample(sample, resamples, seed)
    lines = _fit_resamples(sample, means, stderrs, model)
    return fit_of(sample, model, line, lines, means, level)
