"""Models that are linear in the logarithm of the means but for one or two parameters, with all of their curves that data do not contradict.

The squared distance T² is that of `specjax.fits.misfit`, here between log means and the logarithm of a curve, with the covariance of log
means to first order in their noise. For given shape parameters the exponent b and the prefactor, and what else is linear, have closed
forms; so the b that are not contradicted are the union over the shapes of those within the room that is left.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from specjax.fits.misfit import Whitened
from specjax.fits.regression import LEAST_S, log_of

FASTEST = 2.0
"""The largest power g of a correction x⁻ᵍ."""
_LARGEST = 3.0  # power of a logarithm
_POWERS = 17  # of corrections, and as many closer and closer to the nearest at either side
_CLOSEST = 1e-7
_SHAPES = 41  # sizes of a correction for each power, and as many about the nearest
_CLOSER = 3  # grids of powers about the one of the farthest exponent
_REACH = 1.5  # of the radius within which a parabola stays below the level


@dataclass(frozen=True, eq=False)
class Allowed:
    """The curves of a model that are not contradicted: T² and parameters of the nearest, and the interval of each.

    `power` is that of the correction of the nearest curve, and `correction` what it adds to the logarithm at each x; `logarithm` that of a
    power of the logarithm and `logarithms` its interval, and `logs` has all curves with one.
    """

    misfit: float
    parameters: int
    exponent: float
    exponents: tuple[float, float]
    power: float = np.nan
    correction: Float[np.ndarray, " n"] | float = 0.0
    logarithm: float = 0.0
    logarithms: tuple[float, float] = (0.0, 0.0)
    logs: "Logarithms | None" = None


@dataclass(frozen=True, eq=False)
class Logarithms:
    """Curves with a power of the logarithm: T² by the exponent and that power, for each of several shapes.

    It is least at `centers`, where it is `misfits`, and `inverses` are the inverses of the covariance of the two. A curve counts if
    T² is at most `top`.
    """

    misfits: Float[np.ndarray, " shapes"]
    centers: Float[np.ndarray, "shapes 2"]
    inverses: Float[np.ndarray, "shapes 2 2"]
    top: float

    def misfit_with(self, exponent: float | None, least: float) -> float:
        """T² of the nearest curve with this exponent, or with any, and a power of the logarithm from `least` to 3, up or down."""
        return self._nearest(exponent, least)[0]

    def power_with(self, exponent: float | None, least: float) -> float:
        """The power of the logarithm of that curve."""
        return self._nearest(exponent, least)[1]

    def _nearest(self, exponent: float | None, least: float) -> tuple[float, float]:
        (bb, bc), (_, cc) = np.moveaxis(self.inverses, 0, -1)
        found, at = np.inf, np.nan
        for side in (-1, 1):
            if exponent is None:
                away, free = None, self.centers[:, 1]
            else:
                away = exponent - self.centers[:, 0]
                free = self.centers[:, 1] - bc / cc * away
            powers = side * np.clip(side * free, least, _LARGEST)
            moved = powers - self.centers[:, 1]
            away = -bc / bb * moved if away is None else away
            misfits = self.misfits + bb * away**2 + 2 * bc * away * moved + cc * moved**2
            place = int(np.argmin(misfits))
            if misfits[place] < found:
                found, at = float(misfits[place]), float(powers[place])
        return found, at


def plain(means: Whitened, significance: float) -> Allowed:
    """y = a xᵇ."""
    return _linear(means, significance, _columns(means))


def logarithmic(means: Whitened, significance: float) -> Allowed:
    """y = a xᵇ (log x)ᶜ."""
    return _linear(means, significance, _columns(means, _log_log(means)), has_logarithm=True)


def corrected_twice(means: Whitened, significance: float, slowest: float) -> Allowed:
    """y = a xᵇ exp(p x⁻ᵍ + q x⁻²ᵍ), two terms of a series in x⁻ᵍ."""
    powers, term = _corrections(means, slowest)
    return _linear(means, significance, _columns(means, term, term**2), powers)


def logarithmic_corrected(means: Whitened, significance: float, slowest: float) -> Allowed:
    """y = a xᵇ (log x)ᶜ exp(p x⁻ᵍ)."""
    powers, term = _corrections(means, slowest)
    return _linear(means, significance, _columns(means, _log_log(means), term), powers, has_logarithm=True)


def corrected(means: Whitened, significance: float, slowest: float, power: float | None = None) -> Allowed:
    """y = a xᵇ (1 + c x⁻ᵍ), positive, with a correction that is smaller than the leading term at the largest x.

    The power g is between `slowest` and 2, or the given `power`.
    """
    parameters = 4 if power is None else 3
    powers = np.linspace(slowest, FASTEST, _POWERS) if power is None else np.array([power])
    misfits, shapes = _nearest_shapes(means, powers)
    for _ in range(3 if power is None else 0):
        # Precise data leave less room than there is between two points of a grid.
        best = powers[np.argmin(misfits)]
        width = (FASTEST - slowest) / _POWERS
        closer = best + np.concatenate([[0.0], *(side * np.geomspace(_CLOSEST, width, _POWERS) for side in (-1, 1))])
        closer = closer[(closer >= slowest) & (closer <= FASTEST)]
        more, more_shapes = _nearest_shapes(means, closer)
        powers, misfits = np.concatenate([powers, closer]), np.concatenate([misfits, more])
        shapes = np.concatenate([shapes, more_shapes])
    least = int(np.argmin(misfits))
    top = misfits[least] + means.room(misfits[least], significance, parameters)
    near = misfits <= top
    interval = _exponents_below(means, powers[near], shapes[near], top)
    _, nearest, _ = _of_shapes(means, powers[[least], None], shapes[[least], None])
    x = means.sample.x
    correction = np.log1p(np.expm1(shapes[least]) * (x[0] / x) ** powers[least])
    return Allowed(
        float(misfits[least]),
        parameters,
        float(nearest[0, 0]),
        interval,
        float(powers[least]),
        correction,
    )


def _exponents_below(
    means: Whitened, powers: Float[np.ndarray, " sets"], shapes: Float[np.ndarray, " sets"], top: float
) -> tuple[float, float]:
    """The least and the largest exponent of a curve whose T² is at most `top`, from powers of which some are near to its power."""
    ends = []
    for side in (-1, 1):
        tried, nearest, best = powers, shapes, -np.inf
        for _ in range(_CLOSER):
            misfits, exponents, stderr = _of_shapes(means, tried[:, None], _shapes_about(means, tried, nearest, top))
            reach = side * exponents + stderr * np.sqrt(np.clip(top - misfits, 0, None))
            farthest = np.max(np.where(misfits <= top, reach, -np.inf), axis=1)
            place = int(np.argmax(farthest))
            best = max(best, float(farthest[place]))
            # The next powers lie between the neighbours of the one whose exponent is farthest.
            ordered = np.sort(tried)
            at = int(np.searchsorted(ordered, tried[place]))
            tried = np.linspace(ordered[max(at - 1, 0)], ordered[min(at + 1, len(ordered) - 1)], _POWERS)
            _, nearest = _nearest_shapes(means, tried)
        ends.append(side * best)
    return ends[0], ends[1]


def _of_shapes(
    means: Whitened, powers: Float[np.ndarray, "sets _"], shapes: Float[np.ndarray, "sets shapes"]
) -> tuple[Float[np.ndarray, "sets shapes"], Float[np.ndarray, "sets shapes"], float]:
    """T², the exponent and its standard error for corrections 1 + (eˢ - 1)(x₀/x)ᵍ."""
    x, (inverse, across) = means.sample.x, means.log_basis
    term = (x[0] / x) ** np.broadcast_to(powers, shapes.shape)[..., None]
    left = means.log_target - means.of_logs(np.log1p(np.expm1(shapes)[..., None] * term))
    return np.sum((left @ across) ** 2, axis=-1), left @ inverse[1], float(np.sqrt(np.sum(inverse[1] ** 2)))


def _bounds(
    means: Whitened, powers: Float[np.ndarray, " sets"]
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    x = means.sample.x
    return np.full(powers.shape, LEAST_S), np.log1p((x[-1] / x[0]) ** powers)


def _nearest_shapes(
    means: Whitened, powers: Float[np.ndarray, " sets"]
) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, " sets"]]:
    """The least T² for each power of a correction, and its shape s."""
    low, high = _bounds(means, powers)
    rows = np.arange(len(powers))
    lows, highs, best, place = low, high, np.full(powers.shape, np.inf), low
    for _ in range(8):
        step = (highs - lows) / 24
        grid = lows[:, None] + step[:, None] * np.arange(25)
        misfits, _, _ = _of_shapes(means, powers[:, None], grid)
        least = np.argmin(misfits, axis=1)
        place = np.where(misfits[rows, least] < best, grid[rows, least], place)
        best = np.minimum(best, misfits[rows, least])
        lows, highs = np.maximum(place - step, low), np.minimum(place + step, high)
    return best, place


def _shapes_about(
    means: Whitened,
    powers: Float[np.ndarray, " sets"],
    shapes: Float[np.ndarray, " sets"],
    top: float,
) -> Float[np.ndarray, "sets shapes"]:
    """Shapes for each power, over all of their range and about the nearest one as far as T² stays below `top`."""
    low, high = _bounds(means, powers)
    everywhere = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _SHAPES)
    # By the largest distance below `top` among ever larger ones: a misfit need not be a parabola.
    around = np.geomspace(1e-9, 1.0, 2 * _SHAPES)
    grids = [everywhere, shapes[:, None]]
    for side in (-1, 1):
        trial = np.clip(shapes[:, None] + side * around * (high - low)[:, None], low[:, None], high[:, None])
        found, _, _ = _of_shapes(means, powers[:, None], trial)
        below = np.where(found <= top, np.abs(trial - shapes[:, None]), 0.0).max(axis=1)
        radius = _REACH * np.maximum(below, 1e-9 * (high - low))
        grids.append(shapes[:, None] + side * radius[:, None] * np.linspace(0, 1, _SHAPES))
    return np.clip(np.concatenate(grids, axis=1), low[:, None], high[:, None])


def _columns(means: Whitened, *extra: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "sets n k"]:
    """1, log x and further columns of the logarithm of a model, one set of them for each set of the further ones."""
    x = means.sample.x
    parts = [np.atleast_2d(part) for part in (np.ones_like(x), np.log(x), *extra)]
    return np.stack(np.broadcast_arrays(*parts), axis=-1)


def _log_log(means: Whitened) -> Float[np.ndarray, " n"]:
    return np.log(log_of(means.sample.x, means.sample.x[0]))


def _corrections(means: Whitened, slowest: float) -> tuple[Float[np.ndarray, " sets"], Float[np.ndarray, "sets n"]]:
    """Powers g of a correction, and (x₀/x)ᵍ for each."""
    powers = np.linspace(slowest, FASTEST, 6 * _POWERS)
    return powers, (means.sample.x[0] / means.sample.x) ** powers[:, None]


def _linear(
    means: Whitened,
    significance: float,
    columns: Float[np.ndarray, "sets n k"],
    powers: Float[np.ndarray, " sets"] | None = None,
    *,
    has_logarithm: bool = False,
) -> Allowed:
    """The curves of a model whose logarithm is linear in each of several sets of `_columns`, of which the third may be log log x.

    The sets differ in the power of a correction, which is one parameter more.
    """
    white = np.swapaxes(means.of_logs(np.swapaxes(columns, 1, 2)), 1, 2)
    scale = np.sqrt(np.sum(white**2, axis=1, keepdims=True))
    inverse = np.linalg.pinv(white / scale, rcond=1e-13) / np.swapaxes(scale, 1, 2)
    coefficients = inverse @ means.log_target
    left = means.log_target - np.einsum("snk,sk->sn", white, coefficients)
    misfits, errors = np.sum(left**2, axis=1), np.sqrt(np.sum(inverse**2, axis=2))
    least, parameters = int(np.argmin(misfits)), columns.shape[2] + (powers is not None)
    top = misfits[least] + means.room(misfits[least], significance, parameters)
    reach = np.sqrt(np.clip(top - misfits, 0, None))[:, None] * errors
    inside = misfits < top
    lows, highs = (np.asarray(coefficients + side * reach)[inside] for side in (-1, 1))
    # What is added to log a + b log x, but for the logarithm.
    first = 3 if has_logarithm else 2
    found = Allowed(
        float(misfits[least]),
        parameters,
        float(coefficients[least, 1]),
        (float(lows[:, 1].min()), float(highs[:, 1].max())),
        np.nan if powers is None else float(powers[least]),
        columns[least, :, first:] @ coefficients[least, first:],
    )
    if not has_logarithm:
        return found
    rows = inverse[:, 1:3]
    covariances = rows @ np.swapaxes(rows, 1, 2)
    return replace(
        found,
        logarithm=float(coefficients[least, 2]),
        logarithms=(float(lows[:, 2].min()), float(highs[:, 2].max())),
        logs=Logarithms(misfits, coefficients[:, 1:3], np.linalg.inv(covariances), float(top)),
    )
