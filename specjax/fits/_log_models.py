"""Models that are linear in the logarithm of the means but for one or two shape parameters.

The squared distance T² is that of `specjax.fits._goodness_of_fit`, here between log means and the
logarithm of a curve, with the covariance of log means to first order in their noise. For given
shapes the exponent b, the prefactor and other linear parameters have closed forms; so the b that
are not rejected are the union over the shapes of those within the remaining room.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from specjax.fits._goodness_of_fit import Whitened, beside
from specjax.fits._logarithms import LEAST_LOGARITHM, Logarithms
from specjax.fits._regression import LEAST_S, unit_of_logarithm

FASTEST = 2.0
"""The largest power g of a correction x⁻ᵍ."""
_POWERS = 17  # powers of corrections, and of ever closer ones at either side of the nearest
_CLOSEST = 1e-7
_SHAPES = 41  # sizes of a correction for each power, and of ones about the nearest
_CLOSER = 3  # grids of powers about the one of the farthest exponent
_REACH = 1.5  # times the radius within which a parabola stays below the level
_SECOND = ((0, 0), (-1, 0), (-0.5, 0), (0.5, 0), (1, 0), (0, 0.2), (0, 0.35), (0, 0.6), (0, 1))
"""The second terms of a correction u = (x₀/x)ᵍ: with (r, l) it is u (1 + r u + l log(x/x₀))."""
_LARGEST_ABOVE = 2.0  # power of a logarithm above an offset: its cube looks like √x over a decade
_LOGS_AT_SMALLEST = np.geomspace(0.7, 10, 16)  # log x/x₁ at the smallest x, for the units x₁


@dataclass(frozen=True, eq=False)
class Allowed:
    """The curves of a model that are not rejected: T² and parameters of the nearest, and intervals.

    `power` is that of the correction of the nearest curve, and `correction` is added to the
    logarithm of its a xᵇ at each x; `logarithm` is its power of log(x/unit) and `logarithms` the
    interval of that, and `logs` has all curves with one.
    """

    misfit: float
    parameters: int
    exponent: float
    exponents: tuple[float, float]
    power: float = np.nan
    correction: Float[np.ndarray, " n"] | float = 0.0
    logarithm: float = 0.0
    unit: float = 1.0
    logarithms: tuple[float, float] = (0.0, 0.0)
    logs: Logarithms | None = None


def plain(means: Whitened, significance: float) -> Allowed:
    """y = a xᵇ."""
    return _linear(means, significance, _columns(means))


def logarithmic(means: Whitened, significance: float) -> Allowed:
    """y = a xᵇ (log x)ᶜ, with the logarithm of `regression.log_of`."""
    return _with_units(means, significance, np.array([unit_of_logarithm(means.sample.x[0])]))


def logarithmic_in_any_unit(means: Whitened, significance: float) -> Allowed:
    """y = a xᵇ (log x/x₁)ᶜ, for several units x₁ below the smallest x."""
    return _with_units(means, significance, _units(means))


def _with_units(
    means: Whitened, significance: float, units: Float[np.ndarray, " units"]
) -> Allowed:
    return _linear(means, significance, _columns(means, _log_log(means, units)), units)


def corrected_twice(means: Whitened, significance: float, slowest: float) -> Allowed:
    """y = a xᵇ exp(p x⁻ᵍ + q x⁻²ᵍ), two terms of a series in x⁻ᵍ of any size."""
    powers, term = _corrections(means, slowest)
    return _linear(means, significance, _columns(means, term, term**2), powers=powers)


def logarithmic_corrected(means: Whitened, significance: float, slowest: float) -> Allowed:
    """y = a xᵇ (log x/x₁)ᶜ exp(p x⁻ᵍ)."""
    powers, term = _corrections(means, slowest)
    units = _units(means)
    logs = np.tile(_log_log(means, units), (len(powers), 1))
    columns = _columns(means, logs, np.repeat(term, len(units), axis=0))
    units, powers = np.tile(units, len(powers)), np.repeat(powers, len(units))
    return _linear(means, significance, columns, units, powers)


def above_an_offset(means: Whitened) -> float:
    """T² to the nearest E + A (log x/x₁)ᶜ, c from 1/2 to 2, which has 4 parameters."""
    units = _units(means)
    powers = np.linspace(LEAST_LOGARITHM, _LARGEST_ABOVE, _SHAPES)
    logs = np.log(means.sample.x / units[:, None])[:, None] ** powers[:, None]
    terms = means.units((logs / logs[..., -1:]).reshape(-1, len(means.sample.x)).T)
    constant = means.units(np.ones((len(means.sample.x), 1)))
    return float(beside(constant, terms, means.target)[2].min())


def corrected(
    means: Whitened, significance: float, slowest: float, *, second_terms: bool
) -> Allowed:
    """y = a xᵇ (1 + c t(x)), positive, with a correction below the leading term at the largest x.

    t = x⁻ᵍ, or with `second_terms` also a sum of it and one that is no larger at the smallest x:
    x⁻²ᵍ of either sign, or x⁻ᵍ log x. The power g is between `slowest` and 2. T² and the parameters
    are those of the nearest curve without a second term.
    """
    powers, kinds = (
        part.ravel()
        for part in np.meshgrid(
            np.linspace(slowest, FASTEST, _POWERS), np.arange(len(_SECOND) if second_terms else 1)
        )
    )
    misfits, shapes = _nearest_shapes(means, powers, kinds)
    for kind in [0, 0, 0, None, None]:
        # With precise data the valley is narrower than a step of the grid.
        best = np.argmin(misfits if kind is None else np.where(kinds == kind, misfits, np.inf))
        closer = _closer(powers[best], slowest)
        alike = np.full(len(closer), kinds[best])
        more, more_shapes = _nearest_shapes(means, closer, alike)
        powers, kinds = np.concatenate([powers, closer]), np.concatenate([kinds, alike])
        misfits, shapes = np.concatenate([misfits, more]), np.concatenate([shapes, more_shapes])
    least = misfits.min()
    top = least + means.room(least, significance, 4)
    near = misfits <= top
    interval = _exponents_below(means, powers[near], kinds[near], shapes[near], top)
    place = int(np.argmin(np.where(kinds == 0, misfits, np.inf)))
    at = slice(place, place + 1)
    _, nearest, _ = _misfits(means, powers[at], kinds[at], shapes[at, None])
    correction = np.log1p(np.expm1(shapes[place]) * _terms(means, powers[at], kinds[at])[0])
    return Allowed(
        float(misfits[place]), 4, float(nearest[0, 0]), interval, float(powers[place]), correction
    )


def _closer(power: float, slowest: float) -> Float[np.ndarray, " powers"]:
    """Powers ever closer to one, at either side."""
    distances = np.geomspace(_CLOSEST, (FASTEST - slowest) / _POWERS, _POWERS)
    found = power + np.concatenate([[0.0], -distances, distances])
    return found[(found >= slowest) & (found <= FASTEST)]


def _terms(
    means: Whitened, powers: Float[np.ndarray, " sets"], kinds: Int[np.ndarray, " sets"]
) -> Float[np.ndarray, "sets n"]:
    """t(x) for each power and each kind of second term, over its largest value."""
    x = means.sample.x
    first = (x[0] / x) ** powers[:, None]
    square, log = np.array(_SECOND)[kinds].T[..., None]
    terms = first * (1 + square * first + log * np.log(x / x[0]))
    return terms / terms.max(axis=1, keepdims=True)


def _exponents_below(
    means: Whitened,
    powers: Float[np.ndarray, " sets"],
    kinds: Int[np.ndarray, " sets"],
    shapes: Float[np.ndarray, " sets"],
    top: float,
) -> tuple[float, float]:
    """The least and the largest exponent of T² at most `top`; some `powers` are near its own."""
    ends = []
    for side in (-1, 1):
        tried, alike, nearest, best = powers, kinds, shapes, -np.inf
        for _ in range(_CLOSER):
            around = _shapes_about(means, tried, alike, nearest, top)
            misfits, exponents, stderr = _misfits(means, tried, alike, around)
            reach = side * exponents + stderr * np.sqrt(np.clip(top - misfits, 0, None))
            farthest = np.max(np.where(misfits <= top, reach, -np.inf), axis=1)
            best = max(best, float(farthest.max()))
            tried, alike = _between_neighbours(tried, alike, farthest)
            _, nearest = _nearest_shapes(means, tried, alike)
        ends.append(side * best)
    return ends[0], ends[1]


def _between_neighbours(
    powers: Float[np.ndarray, " sets"],
    kinds: Int[np.ndarray, " sets"],
    farthest: Float[np.ndarray, " sets"],
) -> tuple[Float[np.ndarray, " more"], Int[np.ndarray, " more"]]:
    """For each kind the powers between the neighbours of the one whose exponent is farthest."""
    found = []
    for kind in np.unique(kinds):
        own = kinds == kind
        ordered = np.unique(powers[own])
        at = int(np.searchsorted(ordered, powers[own][np.argmax(farthest[own])]))
        found.append(
            np.linspace(ordered[max(at - 1, 0)], ordered[min(at + 1, len(ordered) - 1)], _POWERS)
        )
    return np.concatenate(found), np.repeat(np.unique(kinds), _POWERS)


def _misfits(
    means: Whitened,
    powers: Float[np.ndarray, " sets"],
    kinds: Int[np.ndarray, " sets"],
    shapes: Float[np.ndarray, "sets shapes"],
) -> tuple[Float[np.ndarray, "sets shapes"], Float[np.ndarray, "sets shapes"], float]:
    """T², the exponent and its standard error for corrections 1 + (eˢ - 1) t(x)."""
    inverse, across = means.log_basis
    term = _terms(means, powers, kinds)[:, None, :]
    left = means.log_target - means.whiten_logs(np.log1p(np.expm1(shapes)[..., None] * term))
    return (
        np.sum((left @ across) ** 2, axis=-1),
        left @ inverse[1],
        float(np.sqrt(np.sum(inverse[1] ** 2))),
    )


def _bounds(
    means: Whitened, powers: Float[np.ndarray, " sets"], kinds: Int[np.ndarray, " sets"]
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    return np.full(powers.shape, LEAST_S), np.log1p(1 / _terms(means, powers, kinds)[:, -1])


def _nearest_shapes(
    means: Whitened, powers: Float[np.ndarray, " sets"], kinds: Int[np.ndarray, " sets"]
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    """The least T² for each power and kind of a correction, and its shape s."""
    low, high = _bounds(means, powers, kinds)
    rows = np.arange(len(powers))
    lows, highs, best, place = low, high, np.full(powers.shape, np.inf), low
    for _ in range(8):
        step = (highs - lows) / 24
        grid = lows[:, None] + step[:, None] * np.arange(25)
        misfits, _, _ = _misfits(means, powers, kinds, grid)
        least = np.argmin(misfits, axis=1)
        place = np.where(misfits[rows, least] < best, grid[rows, least], place)
        best = np.minimum(best, misfits[rows, least])
        lows, highs = np.maximum(place - step, low), np.minimum(place + step, high)
    return best, place


def _shapes_about(
    means: Whitened,
    powers: Float[np.ndarray, " sets"],
    kinds: Int[np.ndarray, " sets"],
    shapes: Float[np.ndarray, " sets"],
    top: float,
) -> Float[np.ndarray, "sets shapes"]:
    """Shapes for each power: over their range, and about the nearest while T² is below `top`."""
    low, high = _bounds(means, powers, kinds)
    everywhere = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _SHAPES)
    # By the largest distance below `top` among ever larger ones: a misfit need not be a parabola.
    around = np.geomspace(1e-9, 1.0, 2 * _SHAPES)
    grids = [everywhere, shapes[:, None]]
    for side in (-1, 1):
        trial = np.clip(
            shapes[:, None] + side * around * (high - low)[:, None], low[:, None], high[:, None]
        )
        found, _, _ = _misfits(means, powers, kinds, trial)
        below = np.where(found <= top, np.abs(trial - shapes[:, None]), 0.0).max(axis=1)
        radius = _REACH * np.maximum(below, 1e-9 * (high - low))
        grids.append(shapes[:, None] + side * radius[:, None] * np.linspace(0, 1, _SHAPES))
    return np.clip(np.concatenate(grids, axis=1), low[:, None], high[:, None])


def _columns(means: Whitened, *extra: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "sets n k"]:
    """The columns 1, log x and further ones of the logarithm of a model.

    There is one set of them for each set of the further ones.
    """
    x = means.sample.x
    parts = [np.atleast_2d(part) for part in (np.ones_like(x), np.log(x), *extra)]
    return np.stack(np.broadcast_arrays(*parts), axis=-1)


def _units(means: Whitened) -> Float[np.ndarray, " units"]:
    """Units x₁ of a logarithm: its own, and some below the smallest x."""
    x0 = means.sample.x[0]
    return np.array([unit_of_logarithm(x0), *(x0 * np.exp(-_LOGS_AT_SMALLEST))])


def _log_log(means: Whitened, units: Float[np.ndarray, " units"]) -> Float[np.ndarray, "units n"]:
    return np.log(np.log(means.sample.x / units[:, None]))


def _corrections(
    means: Whitened, slowest: float
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, "sets n"]]:
    """Powers g of a correction, and (x₀/x)ᵍ for each."""
    powers = np.linspace(slowest, FASTEST, 6 * _POWERS)
    return powers, (means.sample.x[0] / means.sample.x) ** powers[:, None]


def _linear(
    means: Whitened,
    significance: float,
    columns: Float[np.ndarray, "sets n k"],
    logs: Float[np.ndarray, " sets"] | None = None,
    powers: Float[np.ndarray, " sets"] | None = None,
) -> Allowed:
    """The curves of a model whose logarithm is linear in each of several sets of `_columns`.

    The third column is log log(x/x₁) if the sets differ in x₁, one of `logs`. That and the power of
    a correction, one of `powers`, are a parameter each.
    """
    white = np.swapaxes(means.whiten_logs(np.swapaxes(columns, 1, 2)), 1, 2)
    scale = np.sqrt(np.sum(white**2, axis=1, keepdims=True))
    inverse = np.linalg.pinv(white / scale, rcond=1e-13) / np.swapaxes(scale, 1, 2)
    coefficients = inverse @ means.log_target
    left = means.log_target - np.einsum("snk,sk->sn", white, coefficients)
    misfits, errors = np.sum(left**2, axis=1), np.sqrt(np.sum(inverse**2, axis=2))
    least, parameters = int(np.argmin(misfits)), columns.shape[2] + (powers is not None)
    parameters += logs is not None and len(np.unique(logs)) > 1
    top = misfits[least] + means.room(misfits[least], significance, parameters)
    reach = np.sqrt(np.clip(top - misfits, 0, None))[:, None] * errors
    inside = misfits < top
    lows, highs = (np.asarray(coefficients + side * reach)[inside] for side in (-1, 1))
    found = Allowed(
        float(misfits[least]),
        parameters,
        float(coefficients[least, 1]),
        (float(lows[:, 1].min()), float(highs[:, 1].max())),
        np.nan if powers is None else float(powers[least]),
        columns[least, :, 2:] @ coefficients[least, 2:],
    )
    if logs is None:
        return found
    rows = inverse[:, 1:3]
    covariances = rows @ np.swapaxes(rows, 1, 2)
    curves = Logarithms(misfits, coefficients[:, 1:3], np.linalg.inv(covariances), logs, float(top))
    return replace(
        found,
        exponents=curves.exponents(),
        logarithm=float(coefficients[least, 2]),
        unit=float(logs[least]),
        logarithms=(float(lows[:, 2].min()), float(highs[:, 2].max())),
        logs=curves,
    )
