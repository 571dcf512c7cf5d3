"""What swept data do beyond the sizes swept: every curve of two models that they do not contradict, told by its exponent and its limit.

The models are y = E + A xᵇ ("offset") and y = a xᵇ (1 + c/x) ("subleading"). The exponents that are not contradicted are those where
the distance T² of `specjax.fits.misfit` is above its least value by no more than Rao's test allows for one parameter. The limits E
that are not contradicted are found likewise, over all such b < 0. As b tends to 0, E runs to infinity: a limit has a finite interval
exactly where growth without end is contradicted, so that no rule can find both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from scipy import optimize

from specjax.fits.bootstrap import sample_of
from specjax.fits.misfit import Whitened, beside, whitened
from specjax.fits.regression import rise

_LIMITS = 401  # exponents at which a limit is computed
_FLATTEST = 1e-6  # the exponent nearest to 0 of them: E + A xᵇ is a logarithm there


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


def ends(data: xr.DataArray, dim: str, *, significance: float) -> tuple[End, End]:
    """The curves of the models "offset" and "subleading" that `data` do not contradict at `significance`.

    If a model is right, each of its intervals leaves the truth out with that probability. `dim` is the dimension that is x. Data, errors
    and warnings are those of `choose_model`, with at least 5 widths.
    """
    means = whitened(sample_of(data, dim, least=5), significance)
    return _offset(means, significance), _subleading(means, significance)


def _offset(means: Whitened, significance: float) -> End:
    x, target = means.sample.x, means.target
    b, least, (low, high), other = _profile(means, means.offset, significance)
    constant = means.units(np.ones((len(x), 1)))
    limit: float = np.nan
    limits = (-np.inf, np.inf)
    from_no_limit = np.inf
    room = means.room(least, significance)
    if low < 0:
        falling = np.union1d(np.linspace(low, min(high, -_FLATTEST), _LIMITS), [b] if b < 0 else [])
        # With (x/x₀)ᵇ as the term E is the coefficient of the constant.
        terms = means.units((x[:, None] / x[0]) ** falling[None, :])
        e, stderr, misfits = beside(terms, np.broadcast_to(constant, terms.shape), target)
        half = np.sqrt(np.clip(room - (misfits - least), 0, None)) * stderr
        limits = float(np.min(e - half)), float(np.max(e + half))
        limit = float(e[np.argmin(misfits)])
        from_no_limit = float(np.sqrt(max(np.min(misfits + (e / stderr) ** 2) - least, 0.0)))
    slope, stderr, _ = beside(constant, means.units(rise(x, np.array([0.0, b])).T), target)
    if high >= 0:
        reach = np.sqrt(room) * stderr[0]
        limits = -np.inf if slope[0] - reach < 0 else limits[0], np.inf if slope[0] + reach > 0 else limits[1]
    p = means.p_misfit(least, 3)
    return End("offset", p, b, (low, high), limit, limits, bool(slope[1] > 0), other, from_no_limit)


def _subleading(means: Whitened, significance: float) -> End:
    b, least, exponents, other = _profile(means, lambda b: means.subleading(b)[0], significance)
    last = means.sample.x[-2:]
    curve = last**b * (1 + means.subleading(np.array([b]))[1][0] * means.sample.x[0] / last)
    p = means.p_misfit(least, 3)
    return End("subleading", p, b, exponents, None, None, bool(curve[1] > curve[0]), other, None)


def _profile(
    means: Whitened, misfit: Callable[[np.ndarray], np.ndarray], significance: float
) -> tuple[float, float, tuple[float, float], float]:
    """The b of least misfit, that misfit, the interval of b, and how far the nearest b of the other sign is, in standard errors."""
    b, least, grid, values = means.nearest(misfit)
    top = least + means.room(least, significance)

    def end(side: np.ndarray) -> float:
        """The outermost b of one side that is not contradicted."""
        inside = side[values[side] <= top]
        last = float(grid[inside[-1]]) if len(inside) else b
        beyond = side[np.abs(grid[side] - b) > abs(last - b)]
        if not len(beyond):
            return last
        return float(optimize.brentq(lambda at: float(misfit(np.array([at]))[0]) - top, last, float(grid[beyond[0]])))

    places = np.arange(len(grid))
    interval = end(places[grid < b][::-1]), end(places[grid > b])
    others = values[grid <= 0] if b > 0 else values[grid >= 0]
    return b, least, interval, float(np.sqrt(max(others.min() - least, 0.0)))
