"""Power-law exponents from swept data, with intervals from a bootstrap over seeds.

A seed is drawn with all its widths at once. Widths are coupled (one seed, one draw, of which each width is a block), so their
means move together, and a formula that takes them for independent can be wrong by a large factor in either direction.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import ArrayLike, Float
from scipy import stats

from specjax.sweep.regression import Line, fit_log, undetermined

_BATCH_ENTRIES = 4_000_000  # counts of resampled seeds held at once: 32 MB


@dataclass(frozen=True, eq=False)
class PowerLawFit:
    """y = prefactor · x^exponent · (1 + subleading/x), fitted to means over seeds.

    `interval` is the bootstrap interval of the exponent at the level asked for, `stderr` its bootstrap standard error. Where the
    data have no spread over seeds there is no seed noise: every standard error is 0 and every interval collapses to its number.
    Neither contains the misfit of a curve that is not a power law; the local exponents show it, and `asymptotic_exponent`
    bounds it.

    `means` and `stderrs` are those of y at the `widths`, ascending. `local_exponents[i]` is the slope between `widths[i]` and
    `widths[i + 1]`. `subleading` has the unit of x and is None where it was not fitted.
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

    def predict(self, x: ArrayLike) -> Float[np.ndarray, "..."]:
        """The fitted curve at `x`, any shape."""
        x = np.asarray(x, np.float64)
        return np.asarray(self.prefactor * x**self.exponent * (1 + (self.subleading or 0.0) / x))


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

    The fit is least squares on log means, weighted by the inverse variance of each; a width without spread counts as precise as
    the most precise of the others. Means, variances and the fit are computed again in each resample of the seeds, all widths of a
    seed together. Intervals are percentile intervals, widened for few seeds by Student's t (the expanded percentile interval of
    Hesterberg 2015); below some ten seeds they are rough.

    Args:
        data: Dimensions exactly `dim` and "seed", e.g. `run(...)["loss"]`.
        dim: The dimension that is x; its coordinate is positive.
        subleading: Whether to fit c as well.
        resamples: Bootstrap resamples of the seeds.
        level: Coverage of the intervals.
        seed: Seed of the resampling.

    Raises:
        ValueError: other dimensions; fewer than 2 widths, or 4 with `subleading`; a single seed; non-finite data; a mean that is
            not positive, or within noise of zero; widths that do not determine c.
    """
    _check_level(resamples, level)
    x, y = _checked(data, dim, least=4 if subleading else 2)
    means, stderrs = _means_and_stderrs(y)
    _check_positive(x, means, data, dim)
    line = fit_log(x, np.log(means)[None], _weights(means, stderrs)[None], subleading)
    if subleading:
        _check_determined(x, line, data)

    estimates = np.concatenate([line.exponent, _local_exponents(x, means)])
    if np.any(stderrs > 0):
        spread, intervals = _spread(_replicates(x, y, data, dim, subleading, resamples, seed), y.shape[1], level)
    else:
        spread, intervals = np.zeros_like(estimates), np.stack([estimates, estimates])
    return PowerLawFit(
        exponent=float(estimates[0]),
        stderr=float(spread[0]),
        interval=(float(intervals[0, 0]), float(intervals[1, 0])),
        prefactor=float(np.exp(line.log_prefactor[0])),
        subleading=float(line.c[0]) if subleading else None,
        widths=x,
        means=means,
        stderrs=stderrs,
        local_exponents=estimates[1:],
        local_stderrs=spread[1:],
        local_intervals=intervals[:, 1:].T,
    )


def asymptotic_exponent(data: xr.DataArray, dim: str, *, resamples: int = 1000, seed: int = 0) -> AsymptoticExponent:
    """The exponent that `data` approach at large `dim`, with an interval that covers noise and finite size.

    The half-width is 4·SE + |shift|: four bootstrap standard errors for the seeds, and for the terms beyond the subleading one the
    shift of the exponent when the smallest width, where they are largest, is left out. That bounds what is left of them if
    leaving it out at least halves them, as it does to 1/x² on doubling widths. It is a rule and not a confidence level.

    Args:
        data: Dimensions exactly `dim` and "seed".
        dim: The dimension that is x; at least 5 widths.
        resamples: Bootstrap resamples of the seeds.
        seed: Seed of the resampling.

    Raises:
        ValueError: fewer than 5 widths, and whatever :func:`fit_power_law` refuses.
    """
    x, y = _checked(data, dim, least=5)
    means, stderrs = _means_and_stderrs(y)
    _check_positive(x, means, data, dim)
    whole = fit_log(x, np.log(means)[None], _weights(means, stderrs)[None], subleading=True)
    _check_determined(x, whole, data)
    rest = fit_power_law(
        data.sortby(dim).isel({dim: slice(1, None)}), dim, subleading=True, resamples=resamples, seed=seed
    )
    shift = rest.exponent - float(whole.exponent[0])
    half = 4 * rest.stderr + abs(shift)
    return AsymptoticExponent(rest.exponent, rest.stderr, shift, (rest.exponent - half, rest.exponent + half))


def _means_and_stderrs(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the seeds of (widths, seeds); exact where all seeds agree."""
    same = np.ptp(y, axis=1) == 0
    means = np.where(same, y[:, 0], y.mean(axis=1))
    return means, np.where(same, 0.0, y.std(axis=1, ddof=1) / np.sqrt(y.shape[1]))


def _weights(means: np.ndarray, stderrs: np.ndarray) -> np.ndarray:
    """The inverse variance of each log mean, relative to the most precise one that has a spread; 1 where none has."""
    relative = stderrs / means
    least = np.min(np.where(relative > 0, relative, np.inf), axis=-1, keepdims=True)
    return np.where(relative > 0, least / np.where(relative > 0, relative, 1.0), 1.0) ** 2


def _local_exponents(x: np.ndarray, means: np.ndarray) -> np.ndarray:
    return np.diff(np.log(means), axis=-1) / np.diff(np.log(x))


def _replicates(
    x: np.ndarray, y: np.ndarray, data: xr.DataArray, dim: str, subleading: bool, resamples: int, seed: int
) -> np.ndarray:
    """The exponent and behind it the local exponents of each resample, shape (resamples, widths)."""
    rows = []
    for means, stderrs in _bootstrap(y, resamples, seed):
        _check_away_from_zero(x, means, data, dim)
        line = fit_log(x, np.log(means), _weights(means, stderrs), subleading)
        rows.append(np.concatenate([line.exponent[:, None], _local_exponents(x, means)], axis=1))
    return np.concatenate(rows)


def _bootstrap(y: np.ndarray, resamples: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Means and standard errors of resampled seeds, shapes (batch, widths), in batches bounded in memory."""
    rng = np.random.default_rng(seed)
    n = y.shape[1]
    means, _ = _means_and_stderrs(y)
    deviations = y - means[:, None]
    batch = max(1, _BATCH_ENTRIES // n)
    for first in range(0, resamples, batch):
        rows = min(batch, resamples - first)
        drawn = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n)
        moved = counts @ deviations.T / n
        second = counts @ (deviations**2).T / n
        variance = second - moved**2
        # A resample that repeats one seed has no spread; what the subtraction leaves of it is rounding.
        variance = np.where(variance > 1e-12 * second, variance, 0.0)
        yield means + moved, np.sqrt(variance / (n - 1))


def _spread(replicates: np.ndarray, n: int, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Standard errors (k,) and interval ends (2, k) of replicates (resamples, k) from `n` seeds.

    A resample has (n - 1)/n of the variance it stands for, and a percentile interval uses the normal where t is due.
    """
    inflation = np.sqrt(n / (n - 1))
    tail = stats.norm.cdf(inflation * stats.t.ppf((1 - level) / 2, n - 1))
    return np.std(replicates, axis=0) * inflation, np.quantile(replicates, [tail, 1 - tail], axis=0)


def _checked(data: xr.DataArray, dim: str, least: int) -> tuple[np.ndarray, np.ndarray]:
    """Ascending x of shape (widths,) and y of shape (widths, seeds), both float64."""
    if sorted(map(str, data.dims)) != sorted([dim, "seed"]):
        raise ValueError(
            f"A fit over {dim!r} needs exactly the dimensions ({dim!r}, 'seed'), got {tuple(data.dims)}; "
            "select or average the others first."
        )
    if data.sizes[dim] < least:
        raise ValueError(
            f"This fit needs at least {least} points along {dim!r}, got {data.sizes[dim]}; sweep more of them."
        )
    if data.sizes["seed"] < 2:
        raise ValueError(
            "An interval needs at least 2 seeds, got 1; run more seeds, or for values without seed noise repeat them with "
            "data.isel(seed=[0, 0])."
        )
    x = np.asarray(data[dim].values, np.float64)
    if dim not in data.coords or not (np.isfinite(x).all() and (x > 0).all()) or len(np.unique(x)) < len(x):
        raise ValueError(
            f"A power law in {dim!r} needs a coordinate of positive, different numbers, got {data[dim].values.tolist()}."
        )
    y = data.transpose(dim, "seed").values.astype(np.float64)
    bad = data["seed"].values[~np.isfinite(y).all(axis=0)].tolist()
    if bad:
        raise ValueError(
            f"A fit needs finite data, but {len(bad)} seeds have NaN or inf (the first: {bad[:5]}); "
            "leave them out with specjax.sweep.without_failed(dataset)."
        )
    order = np.argsort(x)
    return x[order], y[order]


def _check_level(resamples: int, level: float) -> None:
    if resamples < 100:
        raise ValueError(f"A bootstrap interval needs at least 100 resamples, got {resamples}.")
    if not 0 < level < 1:
        raise ValueError(f"level needs to be between 0 and 1, got {level}; write e.g. 0.95.")


def _check_positive(x: np.ndarray, means: np.ndarray, data: xr.DataArray, dim: str) -> None:
    if np.any(means <= 0):
        where = x[np.argmax(means <= 0)]
        raise ValueError(
            f"A power law needs positive means, but {data.name!r} has mean {means[means <= 0][0]:.3g} at {dim}={where:g}; "
            "fit minus the data if they are negative throughout, or their projection on a fixed direction if the sign changes."
        )


def _check_away_from_zero(x: np.ndarray, resampled: np.ndarray, data: xr.DataArray, dim: str) -> None:
    crossing = np.any(resampled <= 0, axis=0)
    if crossing.any():
        raise ValueError(
            f"The mean of {data.name!r} at {dim}={x[np.argmax(crossing)]:g} is within noise of zero, where it has no logarithm; "
            "run more seeds, or leave that point out."
        )


def _check_determined(x: np.ndarray, line: Line, data: xr.DataArray) -> None:
    if undetermined(x, line):
        raise ValueError(
            f"The points do not determine a subleading term of {data.name!r}; "
            "sweep a wider range, run more seeds, or fit without it."
        )
