"""The distance of swept means from the nearest curve of a model, in units of their noise.

The measure is the squared Mahalanobis distance T² between the means and the curve, with the
covariance of the means between widths estimated from the seeds. For means of normal data and a
model linear near its optimum this is Hotelling's statistic, whose distribution includes the
coupling of widths and the estimate of the covariance, exactly and without resampling. For a given
exponent b each model is linear in its other parameters, so that T² to its nearest curve is a
function of b alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy import linalg, optimize, stats

from specjax.arguments import check_number
from specjax.fits._float_units import unit_of
from specjax.fits._regression import exponent_bounds, rise, s_bounds
from specjax.fits._resampling import Sample

_GRID = 401
_NEAR = np.geomspace(1e-7, 0.05, 40)
# The least share of a width's variance that is its own, for the covariance to be inverted.
_ALONE = 1e-10


@dataclass(frozen=True, eq=False)
class Whitened:
    """Means in units in which they are independent and of variance 1: the `target`.

    `units` maps (widths, k) to these units; `seeds` is the number of seeds. `means` and arguments
    of `units` are in units of `unit`.
    """

    sample: Sample
    target: Float[np.ndarray, " n"]
    units: Callable[[np.ndarray], np.ndarray]
    seeds: int
    means: Float[np.ndarray, " n"]
    unit: float

    def whiten_logs(self, logs: Float[np.ndarray, "*sets n"]) -> Float[np.ndarray, "*sets n"]:
        """Additions to the logarithms of the means, in the same units to first order."""
        flat = (logs * self.means).reshape(-1, logs.shape[-1])
        return self.units(flat.T).T.reshape(logs.shape)

    @cached_property
    def log_target(self) -> Float[np.ndarray, " n"]:
        """The logarithms of the means over the last one, in these units."""
        return self.whiten_logs(np.log(self.means / self.means[-1]))

    @cached_property
    def log_basis(self) -> tuple[Float[np.ndarray, "2 n"], Float[np.ndarray, "n rest"]]:
        """The pseudo-inverse of the columns 1 and log x, and an orthonormal basis across them.

        Both are in these units.
        """
        x = self.sample.x
        columns = self.whiten_logs(np.stack([np.ones_like(x), np.log(x / x[-1])])).T
        q, r = np.linalg.qr(columns, mode="complete")
        return np.linalg.solve(r[:2], q[:, :2].T), q[:, 2:]

    def power(self, b: Float[np.ndarray, " sets"]) -> Float[np.ndarray, " sets"]:
        """T² to the nearest y = a xᵇ."""
        columns = self.units((self.sample.x[:, None] / self.sample.x[-1]) ** b)
        along = np.sum(columns * self.target[:, None], axis=0) / np.sum(columns**2, axis=0)
        return np.sum((self.target[:, None] - along * columns) ** 2, axis=0)

    def offset(self, b: Float[np.ndarray, " sets"]) -> Float[np.ndarray, " sets"]:
        """T² to the nearest y = E + A xᵇ, and at b = 0 to the nearest line in log x."""
        constant = self.units(np.ones((len(self.sample.x), 1)))
        return beside(constant, self.units(rise(self.sample.x, b).T), self.target)[2]

    def subleading(
        self, b: Float[np.ndarray, " sets"]
    ) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
        """T² to the nearest y = a xᵇ (1 + c/x) with a > 0, and its c in units of the smallest x."""
        x, target = self.sample.x, self.target
        bounds = np.expm1(np.array(s_bounds(x)))
        power = (x[:, None] / x[-1]) ** b[None, :]
        leading, correction = self.units(power), self.units(power * x[0] / x[:, None])
        a, _, _ = beside(correction, leading, target)
        coefficient, _, free = beside(leading, correction, target)
        inside = (a > 0) & (bounds[0] * a <= coefficient) & (coefficient <= bounds[1] * a)
        # Outside of the cone of allowed c the nearest curve is at one of its ends.
        edges = leading[None] + bounds[:, None, None] * correction[None]
        along = np.clip(np.sum(edges * target[:, None], axis=1), 0, None)
        at_edges = np.sum(target**2) - along**2 / np.sum(edges**2, axis=1)
        c = np.where(
            inside, coefficient / np.where(inside, a, 1.0), bounds[np.argmin(at_edges, axis=0)]
        )
        return np.where(inside, free, at_edges.min(axis=0)), c

    def nearest(
        self, misfit: Callable[[np.ndarray], np.ndarray], *starts: float
    ) -> tuple[float, float, Float[np.ndarray, " grid"], Float[np.ndarray, " grid"]]:
        """The b of least T² and that T², and a grid of b with the values there.

        The grid contains 0. With precise data the valley is narrower than a step of the grid, so it
        is refined around the `starts`.
        """
        around = [start + side * _NEAR for start in starts for side in (-1, 1)]
        grid = np.union1d(
            np.linspace(*exponent_bounds(self.sample.x), _GRID),
            np.concatenate([[0.0], starts, *around]),
        )
        values = misfit(grid)
        best = int(np.argmin(values))
        cell = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        found = optimize.minimize_scalar(
            lambda b: float(misfit(np.array([b]))[0]),
            bounds=cell,
            method="bounded",
            options={"xatol": 1e-9},
        )
        ends = (float(found.x), float(found.fun)), (float(grid[best]), float(values[best]))
        return *min(ends, key=lambda end: end[1]), grid, values

    def p_misfit(self, misfit: float, parameters: int) -> float:
        """The p-value of the T² of a model with `parameters` parameters.

        It is Hotelling's distribution, a small-sample F; 1 if the model has a parameter for every
        width, so that nothing can reject it.
        """
        freedom, n = len(self.target) - parameters, self.seeds
        if freedom < 1:
            return 1.0
        return float(stats.f.sf((n - freedom) / (freedom * (n - 1)) * misfit, freedom, n - freedom))

    def p_term(self, fall: float, misfit: float) -> float:
        """The p-value of the fall of T² to `misfit` by a third parameter.

        Rao's test for additional information (Rao 1948; Mardia, Kent and Bibby 1979, theorem 5.2.2
        and section 3.6): with n seeds and p = widths - 2, (n - p) ΔT²/(n - 1 + T²) is F(1, n - p).
        """
        left = self.seeds - len(self.target) + 2
        return float(stats.f.sf(left * max(fall, 0.0) / (self.seeds - 1 + misfit), 1, left))

    def room(self, least: float, significance: float, parameters: int = 3) -> float:
        """The rise of T² above its `least` value that this test allows for one parameter."""
        left = self.seeds - len(self.target) + parameters - 1
        return float(stats.f.isf(significance, 1, left) * (self.seeds - 1 + least) / left)


def whitened(sample: Sample, significance: float, tolerance: float = 0.0) -> Whitened:
    """The means of `sample`, to be tested at `significance`.

    `tolerance` is a relative error of each mean, independent of the others, by which a model may
    miss them besides the noise of seeds.

    Raises:
        ValueError: the means cannot be tested; see `choose_model`.
    """
    check_number(tolerance, "tolerance", "[0, 1)", "A test of curves")
    if not 0 < significance < 1:
        raise ValueError(
            f"significance needs to be between 0 and 1, got {significance}; write e.g. 0.05."
        )
    n = int(sample.counts.min())
    if n <= len(sample.x):
        raise ValueError(
            f"A covariance between {len(sample.x)} widths needs more seeds than widths, got {n};"
            " run more seeds."
        )
    means, stderrs = sample.means_and_stderrs()
    if not (stderrs > 0).all():
        raise ValueError(
            f"Misfit is weighed against seed noise, and {sample.name!r} has none at"
            f" {sample.dim}={sample.x[np.argmin(stderrs > 0)]:g}; compare the local exponents of a"
            " fit instead."
        )
    counts = sample.counts[:, None]
    influence = sample.deviations(means) / np.sqrt(counts * (counts - 1.0)) / stderrs[:, None]
    correlation = influence @ influence.T
    # In units in which the largest mean is of order 1; other squares may underflow.
    unit = unit_of(means).item()
    means, stderrs = means / unit, stderrs / unit
    try:
        factor = np.linalg.cholesky(correlation)
    except np.linalg.LinAlgError:
        factor = np.zeros_like(correlation)
    if not tolerance and np.min(np.diag(factor)) ** 2 < _ALONE:
        raise ValueError(
            f"The widths of {sample.name!r} move together exactly, and no noise is left to weigh"
            " misfit against; compare the local exponents of a fit instead."
        )
    if not (means > 0).all():
        raise ValueError(
            f"Curves in {sample.dim} need positive means, and {sample.name!r} has others."
        )
    if tolerance:
        missed = tolerance * means
        sizes = np.hypot(stderrs, missed)
        factor = np.linalg.cholesky(
            correlation * np.outer(stderrs / sizes, stderrs / sizes)
            + np.diag((missed / sizes) ** 2)
        )
        stderrs = sizes
    inverse = linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)

    def units(columns: np.ndarray) -> np.ndarray:
        return inverse @ (columns / stderrs[:, None])

    return Whitened(sample, units(means[:, None])[:, 0], units, n, means, unit)


def beside(
    first: Float[np.ndarray, "n _"],
    second: Float[np.ndarray, "n sets"],
    target: Float[np.ndarray, " n"],
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    """The coefficient of each `second` column beside its `first`, its standard error, and T².

    They are those of the combination nearest to `target`.
    """
    unit = first / np.sqrt(np.sum(first**2, axis=0))
    left = target[:, None] - unit * np.sum(unit * target[:, None], axis=0)
    across = second - unit * np.sum(unit * second, axis=0)
    size = np.sum(across**2, axis=0)
    slope = np.sum(across * left, axis=0) / size
    return slope, 1 / np.sqrt(size), np.sum((left - slope * across) ** 2, axis=0)
