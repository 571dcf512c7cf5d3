"""The fit of y = E + A xᵇ, a power law above a floor, with intervals for all three."""

import numpy as np
import xarray as xr

from specjax.arguments import checked_but
from specjax.fits._regression import fit_curve
from specjax.fits._resampling import By, degrees_of_freedom, resample, sample_of, tail_of, weights
from specjax.fits.fit import Fit, fit_of


@checked_but("data")
def fit_offset(
    data: xr.DataArray,
    dim: str,
    *,
    by: By = "mean",
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Fit:
    """Fit y = E + A xᵇ to the means of `data` over seeds, with intervals of E, A and b.

    Scaling laws of losses have this form. The fit is least squares on the means themselves, which
    need not be positive, weighted by their inverse variances, with the standard deviation of a seed
    taken as a power law in x. E and A are linear and projected out; b is searched for in both
    signs. Resampling and intervals are those of `fit_power_law`; the standard error of b is half
    the distance of the replicates' quantiles that lie one standard deviation from the middle of a
    normal. E is zero within error if its interval contains 0.

    Arguments, result and warnings are those of `fit_power_law`, with at least 4 widths; E is
    `Fit.offset`.

    Raises:
        ValueError: a refusal of `fit_power_law`, except for signs; or the data do not determine the
            three parameters: A is 0 within noise, b is 0 within noise (where E has no value), or b
            is so large that only one end of the widths feels the term.

    Examples:
        >>> from specjax import fits
        >>> d, noise = 2.0 ** np.arange(3, 9), np.random.default_rng(0).normal(1, 0.01, (50, 6))
        >>> data = xr.DataArray((2 + 9 / d) * noise, dims=("seed", "d"), coords={"d": d})
        >>> fit = fits.fit_offset(data, "d")
        >>> f"{fit.offset:.1f} + A d^{fit.exponent:.1f}"
        '2.0 + A d^-1.0'
    """
    sample = sample_of(data, dim, least=4, by=by)

    def undetermined(why: str) -> ValueError:
        return ValueError(
            f"The points do not determine E + A·{dim}^b for {sample.name!r}: {why}; sweep a wider"
            " range, run more seeds, or fit a power law without the offset."
        )

    means, stderrs = sample.means_and_stderrs()
    if np.ptp(means) == 0:
        raise undetermined("its means are all equal")
    curve = fit_curve(sample.x, means[None], weights(sample.x, stderrs[None], sample.counts))
    b, sign = float(curve.exponent[0]), float(np.sign(curve.prefactor[0]))
    if curve.undetermined[0] or b == 0:
        raise undetermined("the exponent runs to the end of its range")
    resampled, spread = resample(sample, resamples, seed)
    curves = fit_curve(sample.x, resampled, weights(sample.x, spread, sample.counts))

    # A share of resamples below a tail may be undetermined: the quantiles do not reach them.
    tail = float(tail_of(level, degrees_of_freedom(sample, resampled, curves.exponent[:, None]))[0])
    crossed = curves.exponent * b <= 0
    if np.mean(curves.undetermined) >= tail:
        raise undetermined("the exponent runs to the end of its range in too many resamples")
    if np.mean(crossed) >= tail:
        raise undetermined("the exponent is 0 within noise, where the offset has no value")
    if np.mean(curves.prefactor * np.sign(curves.exponent) * sign * np.sign(b) <= 0) >= tail:
        raise undetermined("the prefactor is 0 within noise")
    # Where the exponent has the other sign, E and A have run through infinity.
    curves = curves._replace(
        offset=np.where(crossed, -sign * np.inf, curves.offset),
        prefactor=np.where(crossed, sign * np.inf, curves.prefactor),
    )
    return fit_of(sample, "offset", curve, curves, resampled, level)
