"""What swept data do beyond the sizes swept: every curve of two models that they do not contradict, told by its exponent and its limit.

The models are y = E + A xᵇ ("offset") and y = a xᵇ (1 + c/x) ("subleading"). For a given b both are linear in what is left, so that the
squared Mahalanobis distance T² of :mod:`specjax.sweep.model_choice` to the nearest curve is a function of b alone. The exponents that
are not contradicted are those where it is above its least value by no more than Rao's test allows for one parameter. The limits E
that are not contradicted are found likewise, over all such b < 0. As b tends to 0, E runs to infinity: a limit has a finite interval
exactly where growth without end is contradicted, so that no rule can find both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from scipy import optimize, stats

from specjax.sweep.bootstrap import sample_of
from specjax.sweep.model_choice import check_seeds, p_misfit, whitening_of
from specjax.sweep.regression import exponent_bounds, rise, s_bounds

_GRID = 401
_FLATTEST = 1e-6  # the exponent nearest to 0 at which a limit is computed: E + A xᵇ is a logarithm there


@dataclass(frozen=True)
class End:
    """The curves of one model that data do not contradict.

    `p_misfit` is the p-value of the nearest curve: small if the model is contradicted. `exponent` is b of that curve and `exponents`
    the interval of all. `limit` and `limits` are E for b < 0, of the model "offset", with infinite ends where b may be 0 or above, and
    None of the other. `rises` says whether the nearest curve does, at the largest x. `from_zero` is the distance of the nearest
    curve with b of the other sign, and `from_no_limit` that of the nearest with E = 0 and b < 0, in standard errors.
    """

    model: Literal["offset", "subleading"]
    p_misfit: float
    exponent: float
    exponents: tuple[float, float]
    limit: float | None
    limits: tuple[float, float] | None
    rises: bool
    from_zero: float
    from_no_limit: float | None


@dataclass(frozen=True)
class _Whitened:
    """Means in units in which they are independent and of variance 1, and how far T² may be above its least value."""

    x: Float[np.ndarray, " n"]
    target: Float[np.ndarray, " n"]
    units: Callable[[np.ndarray], np.ndarray]
    seeds: int
    significance: float

    def room(self, least: float) -> float:
        """The quantile of Rao's test for one parameter (Mardia, Kent and Bibby 1979, section 3.6), as a rise of T²."""
        left = self.seeds - len(self.x) + 2
        return float(stats.f.isf(self.significance, 1, left) * (self.seeds - 1 + least) / left)


def ends(data: xr.DataArray, dim: str, *, significance: float) -> tuple[End, End]:
    """The curves of the models "offset" and "subleading" that `data` do not contradict at `significance`.

    Args:
        data: Dimensions exactly `dim` and "seed", or "batch"; more seeds than widths, and at least 5 widths.
        dim: The dimension that is x.
        significance: What each interval leaves out, if its model is right.

    Raises:
        ValueError: fewer widths or seeds, means that are not positive, a width without seed noise, or widths that move together exactly.

    Warns:
        RoughFitWarning: fewer than 10 seeds or batches.
    """
    if not 0 < significance < 1:
        raise ValueError(f"significance needs to be between 0 and 1, got {significance}; write e.g. 0.05.")
    sample = sample_of(data, dim, least=5)
    check_seeds(sample)
    means, units = whitening_of(sample)
    if not (means > 0).all():
        raise ValueError(
            f"What {sample.name!r} does as {sample.dim} grows is asked of positive means, and not all are."
        )
    whitened = _Whitened(sample.x, units(means[:, None])[:, 0], units, int(sample.counts.min()), significance)
    return _offset(whitened), _subleading(whitened)


def _offset(given: _Whitened) -> End:
    x, target = given.x, given.target
    constant = given.units(np.ones((len(x), 1)))

    def misfit(b: np.ndarray) -> np.ndarray:
        return _beside(constant, given.units(rise(x, b).T), target)[2]

    b, least, (low, high), other = _profile(misfit, exponent_bounds(x), given)
    limit: float = np.nan
    limits = (-np.inf, np.inf)
    from_no_limit = np.inf
    room = given.room(least)
    if low < 0:
        falling = np.union1d(np.linspace(low, min(high, -_FLATTEST), _GRID), [b] if b < 0 else [])
        # With (x/x₀)ᵇ as the term E is the coefficient of the constant.
        terms = given.units((x[:, None] / x[0]) ** falling[None, :])
        e, stderr, misfits = _beside(terms, np.broadcast_to(constant, terms.shape), target)
        half = np.sqrt(np.clip(room - (misfits - least), 0, None)) * stderr
        limits = float(np.min(e - half)), float(np.max(e + half))
        limit = float(e[np.argmin(misfits)])
        from_no_limit = float(np.sqrt(max(np.min(misfits + (e / stderr) ** 2) - least, 0.0)))
    slope, stderr, _ = _beside(constant, given.units(rise(x, np.array([0.0, b])).T), target)
    if high >= 0:
        reach = np.sqrt(room) * stderr[0]
        limits = (
            -np.inf if slope[0] - reach < 0 else limits[0],
            np.inf if slope[0] + reach > 0 else limits[1],
        )
    p = p_misfit(least, len(x) - 3, given.seeds)
    return End("offset", p, b, (low, high), limit, limits, bool(slope[1] > 0), other, from_no_limit)


def _subleading(given: _Whitened) -> End:
    x, target = given.x, given.target
    bounds = np.expm1(np.array(s_bounds(x)))

    def nearest(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """T² at each b, and c in units of the smallest x."""
        power = (x[:, None] / x[-1]) ** b[None, :]
        leading, correction = given.units(power), given.units(power * x[0] / x[:, None])
        a, _, _ = _beside(correction, leading, target)
        coefficient, _, free = _beside(leading, correction, target)
        inside = (a > 0) & (bounds[0] * a <= coefficient) & (coefficient <= bounds[1] * a)
        # Outside of the cone of allowed c the nearest curve has one of its ends.
        edges = leading[None] + bounds[:, None, None] * correction[None]
        along = np.clip(np.sum(edges * target[:, None], axis=1), 0, None)
        at_edges = np.sum(target**2) - along**2 / np.sum(edges**2, axis=1)
        c = np.where(inside, coefficient / np.where(inside, a, 1.0), bounds[np.argmin(at_edges, axis=0)])
        return np.where(inside, free, at_edges.min(axis=0)), c

    b, least, exponents, other = _profile(lambda b: nearest(b)[0], exponent_bounds(x), given)
    c = nearest(np.array([b]))[1][0]
    curve = x[-2:] ** b * (1 + c * x[0] / x[-2:])
    p = p_misfit(least, len(x) - 3, given.seeds)
    return End("subleading", p, b, exponents, None, None, bool(curve[1] > curve[0]), other, None)


def _profile(
    misfit: Callable[[np.ndarray], np.ndarray], bounds: tuple[float, float], given: _Whitened
) -> tuple[float, float, tuple[float, float], float]:
    """The b of least misfit, that misfit, the interval of b, and how far the nearest b of the other sign is, in standard errors."""

    def at(b: float) -> float:
        return float(misfit(np.array([b]))[0])

    grid = np.union1d(np.linspace(*bounds, _GRID), [0.0])
    values = misfit(grid)
    best = int(np.argmin(values))
    cell = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = optimize.minimize_scalar(at, bounds=cell, method="bounded", options={"xatol": 1e-9})
    b, least = min(((float(found.x), float(found.fun)), (float(grid[best]), float(values[best]))), key=lambda of: of[1])
    top = least + given.room(least)

    def end(side: np.ndarray) -> float:
        """The outermost b of one side that is not contradicted."""
        inside = side[values[side] <= top]
        last = float(grid[inside[-1]]) if len(inside) else b
        beyond = side[np.abs(grid[side] - b) > abs(last - b)]
        if not len(beyond):
            return last
        return float(optimize.brentq(lambda of: at(of) - top, last, float(grid[beyond[0]])))

    places = np.arange(len(grid))
    interval = end(places[grid < b][::-1]), end(places[grid > b])
    others = values[grid <= 0] if b > 0 else values[grid >= 0]
    return b, least, interval, float(np.sqrt(max(others.min() - least, 0.0)))


def _beside(
    first: Float[np.ndarray, "n _"], second: Float[np.ndarray, "n sets"], target: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    """The coefficient of each `second` column beside its `first` in the nearest combination, its standard error, and T² of that."""
    unit = first / np.sqrt(np.sum(first**2, axis=0))
    left = target[:, None] - unit * np.sum(unit * target[:, None], axis=0)
    across = second - unit * np.sum(unit * second, axis=0)
    size = np.sum(across**2, axis=0)
    slope = np.sum(across * left, axis=0) / size
    return slope, 1 / np.sqrt(size), np.sum((left - slope * across) ** 2, axis=0)
