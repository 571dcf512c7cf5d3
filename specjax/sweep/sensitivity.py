"""How a fitted exponent moves when the smallest widths, where terms beyond the power law are largest, are left out."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float

from specjax.sweep import bootstrap
from specjax.sweep.bootstrap import check_level, check_resamples, degrees_of_freedom, resample, sample_of
from specjax.sweep.fit import fit_resampled, fit_sample


@dataclass(frozen=True, eq=False)
class DropSmallest:
    """Fits without the k smallest widths, k = 0, 1, 2, ...: entry k of every array.

    `smallest` is the smallest width that is left. `shifts` are the exponents less that of all widths, with intervals from the same
    resamples for all k. A shift whose interval leaves 0 out is a term that the model does not have.
    """

    dim: str
    level: float
    smallest: Float[np.ndarray, " k"]
    exponents: Float[np.ndarray, " k"]
    stderrs: Float[np.ndarray, " k"]
    intervals: Float[np.ndarray, "k 2"]
    shifts: Float[np.ndarray, " k"]
    shift_intervals: Float[np.ndarray, "k 2"]

    def table(self) -> str:
        """A Markdown table, a row for each k."""
        percent = f"{100 * self.level:g} %"
        rows = [
            f"| dropped | smallest {self.dim} | exponent | {percent} interval | shift | {percent} interval |",
            "|---|---|---|---|---|---|",
        ]
        for k, (low, high) in enumerate(self.intervals):
            shift_low, shift_high = self.shift_intervals[k]
            rows.append(
                f"| {k} | {self.smallest[k]:g} | {self.exponents[k]:.4f} | [{low:.4f}, {high:.4f}] | {self.shifts[k]:.4f} | "
                f"[{shift_low:.4f}, {shift_high:.4f}] |"
            )
        return "\n".join(rows)


def drop_smallest(
    data: xr.DataArray,
    dim: str,
    *,
    subleading: bool = False,
    most: int | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> DropSmallest:
    """Fits `data` as :func:`fit_power_law` does, without the 0, 1, ..., `most` smallest widths.

    Args:
        data: Dimensions exactly `dim` and "seed", or "batch".
        dim: The dimension that is x.
        subleading: Whether to fit a subleading term.
        most: How many widths to leave out at most; by default all but 3, or all but 4 with `subleading`, the fewest that a fit
            needs to have a residual or to be made.
        resamples: Bootstrap resamples of the seeds, the same for all k.
        level: Coverage of the intervals, of each alone.
        seed: Seed of the resampling.

    Raises:
        ValueError: `most` is not between 1 and its default, and whatever :func:`fit_power_law` refuses for any of the fits.
    """
    check_resamples(resamples)
    check_level(level)
    fewest = 4 if subleading else 3
    sample = sample_of(data, dim, least=fewest + 1)
    greatest = len(sample.x) - fewest
    most = greatest if most is None else most
    if not 1 <= most <= greatest:
        raise ValueError(f"Of {len(sample.x)} widths this fit can leave out 1 to {greatest}, got most={most}.")
    drops = range(most + 1)
    exponents = np.array([fit_sample(sample.last(k), subleading)[0].exponent[0] for k in drops])
    means, stderrs = resample(sample, resamples, seed)
    replicates = np.stack(
        [fit_resampled(sample.last(k), means[:, k:], stderrs[:, k:], subleading).exponent for k in drops], axis=1
    )
    moves = replicates - replicates[:, :1]
    freedom, move_freedom = (degrees_of_freedom(sample, means, values) for values in (replicates, moves))
    return DropSmallest(
        dim=dim,
        level=level,
        smallest=sample.x[: most + 1],
        exponents=exponents,
        stderrs=bootstrap.standard_errors(replicates, freedom),
        intervals=bootstrap.intervals(replicates, freedom, level),
        shifts=exponents - exponents[0],
        shift_intervals=bootstrap.intervals(moves, move_freedom, level),
    )
