"""Seeds as a sample, their bootstrap, and the intervals it gives.

Seeds are resampled with all their widths at once. Widths are coupled (the sample of a seed at one
width is a block of that at the next), so their means move together, and a formula for independent
means can be wrong by a large factor in either direction. Everything is computed again in each
resample.
"""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float, Int
from scipy import stats

from specjax.fits._center import By, centered
from specjax.fits._float_units import unit_of
from specjax.fits._requirements import require_single_samples, require_sizes
from specjax.fits._tails import warn_of_heavy_tails
from specjax.sweep.seed_dim import BATCH, SEED, present, replicate_dim

ROUNDING = 1e-9  # a narrower interval of an exponent is one of rounding
# Below this many replicates a standard error is itself uncertain by a quarter, and a bootstrap
# rough.
FEW = 10


class RoughFitWarning(UserWarning):
    """A fit has so few points or replicates that its interval is rough, or cannot show misfit."""


_BATCH_ENTRIES = 4_000_000  # counts of resampled seeds held at once: 32 MB
_PLURAL = {SEED: "seeds", BATCH: "batches"}
# With this many points or fewer, a fit of two parameters has at most one residual, and its local
# exponents show nothing.
_POINTS = 3


@dataclass(frozen=True, eq=False)
class Sample:
    """Replicates of a quantity at each x; `y` is 0 if one is not `present`.

    `replicate` is its kind, "seed" or "batch". `name` and `dim` are those of the data, `labels`
    those of dim and data with their units.
    """

    name: str
    dim: str
    labels: tuple[str, str]
    replicate: str
    x: Float[np.ndarray, " n"]
    y: Float[np.ndarray, "n replicates"]
    present: Bool[np.ndarray, "n replicates"]

    @property
    def resampled(self) -> str:
        """The number and kind of replicates at the width with fewest, such as "400 seeds"."""
        return f"{self.counts.min()} {_PLURAL[self.replicate]}"

    @property
    def counts(self) -> Int[np.ndarray, " n"]:
        """The number of replicates of each width."""
        return self.present.sum(axis=1)

    def means_and_stderrs(self) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Mean and standard error at each width; exact if all replicates agree."""
        least = np.where(self.present, self.y, np.inf).min(axis=1)
        same = least == np.where(self.present, self.y, -np.inf).max(axis=1)
        # Sums and squares of numbers near either end of the range of floats overflow or underflow.
        scale = unit_of(self.y, axis=1)
        means = np.where(same, least, np.sum(self.y / scale, axis=1) / self.counts * scale[:, 0])
        deviations = self.deviations(means)
        spread = unit_of(deviations, axis=1)
        variances = np.sum((deviations / spread) ** 2, axis=1) / (self.counts - 1)
        return means, np.where(same, 0.0, np.sqrt(variances / self.counts) * spread[:, 0])

    def deviations(self, means: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n replicates"]:
        """The difference of each replicate from the mean, 0 if it is absent."""
        return np.where(self.present, self.y - means[:, None], 0.0)

    def select(self, places: slice | np.ndarray) -> "Sample":
        """The sample at some of its points."""
        return replace(self, x=self.x[places], y=self.y[places], present=self.present[places])


def describe_noise(stderr: float, level: float, resampled: str) -> str:
    """The kind of interval, as the printed line of a fit has it."""
    return f"{100 * level:g} %, bootstrap of {resampled}" if stderr > 0 else "no seed noise"


def format_interval(
    value: float, low: float, high: float, noise: str = "", *, rounding: float = 0.0
) -> str:
    """A number with its interval, by as many digits as distinguish its ends, and its noise.

    An interval no wider than `rounding` is shown by the digits that rounding leaves.
    """
    digits = 3
    largest = max(abs(low), abs(high))
    if high - low <= rounding:
        value, low, high = (round(part, 9) + 0.0 for part in (value, low, high))
    elif np.isfinite([low, high]).all() and high > low:
        digits = int(
            np.clip(np.floor(np.log10(largest)) - np.floor(np.log10(high - low)) + 1, 3, 15)
        )
    return (
        f"{value:.{digits}g} ({low:.{digits}g} to {high:.{digits}g}{f', {noise}' if noise else ''})"
    )


def sample_of(data: xr.DataArray, dim: str, least: int, by: By = "mean") -> Sample:
    """The replicates of `sample_over` a single dimension, whose mean is the center `by`.

    Raises:
        ValueError: a refusal of `sample_over` or `centered`; NaN or inf.

    Warns:
        RoughFitWarning: 3 widths or fewer, or fewer than 10 replicates at a width with noise.
        HeavyTailWarning: a mean of replicates whose tails leave it no variance.
    """
    sample = sample_over(data, dim, least=least)
    failed = np.flatnonzero((sample.present & ~np.isfinite(sample.y)).any(axis=0))
    if len(failed):
        first = data[sample.replicate].values[failed][:5].tolist()
        raise ValueError(
            f"A fit needs finite data, but {len(failed)} {_PLURAL[sample.replicate]} have NaN or"
            f" inf (the first: {first}); leave them out with specjax.sweep.without_failed(dataset)."
        )
    if len(sample.x) <= _POINTS:
        warnings.warn(
            f"A fit to {len(sample.x)} points along {dim!r} cannot show whether they follow a power"
            f" law; sweep at least {_POINTS + 1}.",
            RoughFitWarning,
            stacklevel=4,
        )
    warn_if_few(sample, stacklevel=5)
    require_single_samples(by, data)
    if by == "mean":
        warn_of_heavy_tails(sample.y, sample.present, sample.name, stacklevel=5)
        return sample
    return replace(sample, y=centered(sample.y, sample.present, by, sample.name))


def sample_over(data: xr.DataArray, *dims: str, least: int) -> Sample:
    """The replicates in float64 at every point of `dims`, ascending.

    The last dimension is x and varies fastest.

    Raises:
        ValueError: not a DataArray; other dimensions; fewer than `least` values of x; fewer than 2
            replicates at a point; a coordinate that is not positive.
    """
    if not isinstance(data, xr.DataArray):
        raise ValueError(
            f"A fit needs one quantity, such as data['loss'], got a {type(data).__name__}; pass a"
            " DataArray."
        )
    replicate, dim, needed = replicate_dim(data), dims[-1], ", ".join(map(repr, dims))
    if sorted(map(str, data.dims)) != sorted([*dims, replicate]):
        raise ValueError(
            f"A fit over {needed} needs exactly the dimensions ({needed}, 'seed') or ({needed},"
            f" 'batch'), got {tuple(data.dims)}; select or average the others first."
        )
    if data.sizes[dim] < least:
        raise ValueError(
            f"This fit needs at least {least} points along {dim!r}, got {data.sizes[dim]}; sweep"
            " more of them."
        )
    require_sizes(data, *dims)
    # Sorting copies the labels, which takes longer than the fit.
    labels = {name: data[name].values for name in dims}
    if unsorted := [name for name, found in labels.items() if (found[1:] < found[:-1]).any()]:
        data = data.sortby(unsorted)
    data = data.transpose(*dims, replicate)
    y, there = data.values.astype(np.float64), present(data, replicate)
    exists = np.ones(y.shape, bool)
    if there is not None:
        exists = there.broadcast_like(data).transpose(*data.dims).values
    fewest = int(exists.sum(axis=-1).min()) if exists.size else 0
    if fewest < 2:
        raise ValueError(
            f"An interval needs at least 2 {_PLURAL[replicate]}, got {fewest}; run more seeds, or"
            f" for values without seed noise repeat them with data.isel({replicate}=[0, 0])."
        )
    name = "data" if data.name is None else str(data.name)  # arithmetic on arrays drops their names
    units = (part.attrs.get("units") for part in (data[dim], data))
    x_label, y_label = (
        f"{what} [{unit}]" if unit else what for what, unit in zip((dim, name), units, strict=True)
    )
    y, exists = (part.reshape(-1, part.shape[-1]) for part in (np.where(exists, y, 0.0), exists))
    x = np.resize(np.asarray(data[dim].values, np.float64), len(y))
    return Sample(name, dim, (x_label, y_label), replicate, x, y, exists)


def resample(
    sample: Sample, resamples: int, seed: int
) -> tuple[Float[np.ndarray, "resamples n"], Float[np.ndarray, "resamples n"]]:
    """Means and standard errors in resamples of the replicates, all widths of a replicate together.

    Each resample has as many replicates as the width with most of them, and each width uses those
    it has. A resample that leaves a width without any is taken again. Without noise there is one
    resample, the sample itself.

    Raises:
        ValueError: fewer than 100 resamples.
    """
    if resamples < 100:
        raise ValueError(f"A bootstrap interval needs at least 100 resamples, got {resamples}.")
    if seed < 0:
        raise ValueError(f"The seed of a bootstrap needs to be 0 or more, got {seed}.")
    means, stderrs = sample.means_and_stderrs()
    if not np.any(stderrs > 0):
        return means[None], stderrs[None]
    rng = np.random.default_rng(seed)
    n = sample.y.shape[1]
    deviations, there = sample.deviations(means), sample.present.astype(np.float64)
    scale = unit_of(deviations, axis=1)
    deviations = deviations / scale
    # One product for all three sums.
    columns = np.concatenate([there, deviations, deviations**2]).T
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    wanted = resamples
    while wanted:
        rows = min(wanted, max(1, _BATCH_ENTRIES // n))
        sampled = rng.integers(n, size=(rows, n)) + n * np.arange(rows)[:, None]
        counts = (
            np.bincount(sampled.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)
        )
        own, moved, second = np.split(counts @ columns, 3, axis=1)
        whole = own.min(axis=1) > 0
        own, moved, second = own[whole], moved[whole] / own[whole], second[whole] / own[whole]
        variance = second - moved**2
        # A resample that repeats one seed has no spread; the subtraction leaves rounding.
        variance = np.where(variance > 1e-12 * second, variance, 0.0)
        spread = np.sqrt(variance / np.maximum(own - 1, 1)) * scale[:, 0]
        parts.append((means + moved * scale[:, 0], spread))
        wanted -= len(own)
    resampled, spreads = (np.concatenate(part) for part in zip(*parts, strict=True))
    return resampled, spreads


def weights(
    x: Float[np.ndarray, " n"], errors: Float[np.ndarray, "sets n"], counts: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "sets n"]:
    """The inverse variance of each mean, up to a factor, with a replicate's spread a power law in
    x.

    The power law is the line through the logarithms of errors · √counts; errors of 0, as at a width
    where all replicates agree, are left out, and with fewer than two others all widths weigh the
    same. Weights by each width's own variance would bias a fit to skewed noise: a mean that came
    out high has a variance that came out high, and so less weight.
    """
    log_x = np.log(x)
    known = errors > 0
    logs = np.log(np.where(known, errors * np.sqrt(counts), 1.0))
    share = known / np.maximum(known.sum(axis=-1, keepdims=True), 1)
    centered = log_x - np.sum(share * log_x, axis=-1, keepdims=True)
    norm = np.sum(share * centered**2, axis=-1, keepdims=True)
    slope = np.sum(share * centered * logs, axis=-1, keepdims=True) / np.where(norm > 0, norm, 1.0)
    log_weights = np.log(counts) - 2 * slope * (log_x - log_x[-1])
    return np.exp(log_weights - log_weights.max(axis=-1, keepdims=True))


def degrees_of_freedom(
    sample: Sample,
    means: Float[np.ndarray, "resamples n"],
    replicates: Float[np.ndarray, "resamples k"],
) -> Float[np.ndarray, " k"]:
    """The degrees of freedom of the bootstrap variance of each of k estimates: replicates less one.

    If widths have different numbers: the harmonic mean of those, each weighted with the share of
    its width in the variance of the estimate, from the regression of the estimate on the resampled
    means.
    """
    own = sample.counts - 1.0
    if len(np.unique(own)) == 1:
        return np.full(replicates.shape[1], own[0])
    slopes, *_ = np.linalg.lstsq(
        means - means.mean(axis=0), replicates - replicates.mean(axis=0), rcond=None
    )
    shares = (slopes * means.std(axis=0)[:, None]) ** 2
    known = shares.sum(axis=0) > 0
    shares = np.where(known, shares, 1.0)
    return np.where(known, shares.sum(axis=0) / (shares / own[:, None]).sum(axis=0), np.min(own))


def tail_of(level: float, freedom: Float[np.ndarray, "*k"]) -> Float[np.ndarray, "*k"]:
    """The share of replicates beyond each end of the interval at `level`.

    A resample has (n - 1)/n of the variance it represents, and a percentile interval uses the
    normal where t is due; the tail of the expanded percentile interval (Hesterberg 2015) corrects
    both.

    Raises:
        ValueError: a level outside of (0, 1).
    """
    if not 0 < level < 1:
        raise ValueError(f"level needs to be between 0 and 1, got {level}; write e.g. 0.95.")
    return np.asarray(
        stats.norm.cdf(np.sqrt((freedom + 1) / freedom) * stats.t.ppf((1 - level) / 2, freedom))
    )


def intervals(
    replicates: Float[np.ndarray, "resamples k"], freedom: Float[np.ndarray, " k"], level: float
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k 2"]]:
    """Bootstrap standard errors of k estimates, and their expanded percentile intervals."""
    columns = zip(replicates.T, tail_of(level, freedom), strict=True)
    ends = np.array([np.quantile(column, [tail, 1 - tail]) for column, tail in columns], np.float64)
    return np.std(replicates, axis=0) * np.sqrt((freedom + 1) / freedom), ends


def warn_if_few(sample: Sample, stacklevel: int) -> None:
    """Warn if a width with noise has fewer replicates than an interval needs."""
    if sample.counts.min() >= FEW or not np.any(sample.means_and_stderrs()[1] > 0):
        return
    more = "cut the seeds into more batches" if sample.replicate == BATCH else "run more seeds"
    warnings.warn(
        f"The intervals of {sample.name!r} rest on {sample.resampled}, and below {FEW} they are"
        f" rough; {more}.",
        RoughFitWarning,
        stacklevel=stacklevel,
    )
