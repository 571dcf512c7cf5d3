"""Models that are linear in the logarithm of the means but for one or two parameters, with all of
their curves that data do not contradict.

The squared distance T² is that of `specjax.fits.goodness_of_fit`, here between log means and the
logarithm of a curve, with the covariance of log means to first order in their noise. For given
shape parameters the exponent b and the prefactor, and what else is linear, have closed forms; so
the b that are not contradicted are the union over the shapes of those within the room that is left.
"""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from specjax.fits.goodness_of_fit import Whitened
from specjax.fits.regression import LEAST_S, unit_of_logarithm

FASTEST = 2.0
"""The largest power g of a correction x⁻ᵍ."""
_LARGEST = 3.0  # power of a logarithm
_POWERS = 17  # of corrections, and as many closer and closer to the nearest at either side
_CLOSEST = 1e-7
_SHAPES = 41  # sizes of a correction for each power, and as many about the nearest
_CLOSER = 3  # grids of powers about the one of the farthest exponent
_REACH = 1.5  # of the radius within which a parabola stays below the level
_SECOND = ((0, 0), (-1, 0), (-0.5, 0), (0.5, 0), (1, 0), (0, 0.2), (0, 0.35), (0, 0.6), (0, 1))
"""The second terms of a correction u = (x₀/x)ᵍ: with (r, l) it is u (1 + r u + l log(x/x₀))."""
_LOGS_AT_SMALLEST = np.geomspace(
    0.7, 10, 16
)  # the logarithm at the smallest x, in the units in which it is one


@dataclass(frozen=True, eq=False)
class Allowed:
    """The curves of a model that are not contradicted: T² and parameters of the nearest, and the
    interval of each.

    `power` is that of the correction of the nearest curve, and `correction` what is added to the
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
    logs: "Logarithms | None" = None


@dataclass(frozen=True, eq=False)
class Logarithms:
    """Curves with a power of the logarithm: T² by the exponent and that power, for each of several
    shapes.

    It is least at `centers`, where it is `misfits`, and `inverses` are the inverses of the
    covariance of the two. A curve counts if T² is at most `top`.
    """

    misfits: Float[np.ndarray, " shapes"]
    centers: Float[np.ndarray, "shapes 2"]
    inverses: Float[np.ndarray, "shapes 2 2"]
    units: Float[np.ndarray, " shapes"]
    top: float

    def misfit_with(self, exponent: float | None, least: float, *, any_unit: bool = True) -> float:
        """T² of the nearest curve with this exponent, or with any, and a power of the logarithm
        from `least` to 3, up or down.

        The logarithm is log x/x₁ for any of the units x₁, or the first of them alone.
        """
        return self._nearest(exponent, least, any_unit)[0]

    def curve_with(self, exponent: float, least: float, *, any_unit: bool = True) -> str:
        """That curve in words."""
        _, power, unit = self._nearest(exponent, least, any_unit)
        return in_words(exponent, power, unit)

    def exponents(self) -> tuple[float, float]:
        """The least and the largest exponent of a curve whose power of the logarithm is at most 3,
        up or down.
        """
        (bb, bc), (_, cc) = np.moveaxis(self.inverses, 0, -1)
        room = self.top - self.misfits
        inside = room >= 0
        ends = []
        for side in (-1, 1):
            # The power of the logarithm at the end of the ellipse, or the nearest one that counts.
            farthest = -side * bc / cc * np.sqrt(np.where(inside, room, 0) / (bb - bc**2 / cc))
            moved = np.clip(self.centers[:, 1] + farthest, -_LARGEST, _LARGEST) - self.centers[:, 1]
            left = room - (cc - bc**2 / bb) * moved**2
            reach = side * (self.centers[:, 0] - bc / bb * moved) + np.sqrt(
                np.clip(left, 0, None) / bb
            )
            ends.append(side * float(np.max(np.where(left >= 0, reach, -np.inf))))
        nearest = float(self.centers[np.argmin(self.misfits), 0])
        return (ends[0], ends[1]) if np.isfinite(ends).all() else (nearest, nearest)

    def _nearest(
        self, exponent: float | None, least: float, any_unit: bool
    ) -> tuple[float, float, float]:
        (bb, bc), (_, cc) = np.moveaxis(self.inverses, 0, -1)
        found = np.inf, np.nan, np.nan
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
            misfits = np.where(any_unit | (self.units == self.units[0]), misfits, np.inf)
            place = int(np.argmin(misfits))
            found = min(
                found, (float(misfits[place]), float(powers[place]), float(self.units[place]))
            )
        return found


def in_words(exponent: float, power: float, unit: float) -> str:
    """xᵇ (log x/x₁)ᶜ with the numbers of a curve."""
    logarithm = "log x" if unit == 1 else f"log({1 / unit:.2g} x)"
    return f"x^{exponent:.3g} ({logarithm})^{power:.2g}"


def plain(means: Whitened, significance: float) -> Allowed:
    """y = a xᵇ."""
    return _linear(means, significance, _columns(means))


def logarithmic(means: Whitened, significance: float) -> Allowed:
    """y = a xᵇ (log x)ᶜ, with the logarithm that `regression.log_of` has."""
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
    columns = _columns(
        means,
        np.tile(_log_log(means, units), (len(powers), 1)),
        np.repeat(term, len(units), axis=0),
    )
    return _linear(
        means, significance, columns, np.tile(units, len(powers)), np.repeat(powers, len(units))
    )


def corrected(
    means: Whitened, significance: float, slowest: float, *, second_terms: bool
) -> Allowed:
    """y = a xᵇ (1 + c t(x)), positive, with a correction that is smaller than the leading term at
    the largest x.

    t = x⁻ᵍ, or with `second_terms` also a sum of it and one that is at the smallest x no larger:
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
        # Precise data leave less room than there is between two points of a grid.
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
    _, nearest, _ = _of_shapes(means, powers[at], kinds[at], shapes[at, None])
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
    of_square, of_log = np.array(_SECOND)[kinds].T[..., None]
    found = first * (1 + of_square * first + of_log * np.log(x / x[0]))
    return found / found.max(axis=1, keepdims=True)


def _exponents_below(
    means: Whitened,
    powers: Float[np.ndarray, " sets"],
    kinds: Int[np.ndarray, " sets"],
    shapes: Float[np.ndarray, " sets"],
    top: float,
) -> tuple[float, float]:
    """The least and the largest exponent of a curve whose T² is at most `top`, from powers of which
    some are near to its power.
    """
    ends = []
    for side in (-1, 1):
        tried, alike, nearest, best = powers, kinds, shapes, -np.inf
        for _ in range(_CLOSER):
            around = _shapes_about(means, tried, alike, nearest, top)
            misfits, exponents, stderr = _of_shapes(means, tried, alike, around)
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


def _of_shapes(
    means: Whitened,
    powers: Float[np.ndarray, " sets"],
    kinds: Int[np.ndarray, " sets"],
    shapes: Float[np.ndarray, "sets shapes"],
) -> tuple[Float[np.ndarray, "sets shapes"], Float[np.ndarray, "sets shapes"], float]:
    """T², the exponent and its standard error for corrections 1 + (eˢ - 1) t(x)."""
    inverse, across = means.log_basis
    term = _terms(means, powers, kinds)[:, None, :]
    left = means.log_target - means.of_logs(np.log1p(np.expm1(shapes)[..., None] * term))
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
        misfits, _, _ = _of_shapes(means, powers, kinds, grid)
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
    """Shapes for each power, over all of their range and about the nearest one as far as T² stays
    below `top`.
    """
    low, high = _bounds(means, powers, kinds)
    everywhere = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, _SHAPES)
    # By the largest distance below `top` among ever larger ones: a misfit need not be a parabola.
    around = np.geomspace(1e-9, 1.0, 2 * _SHAPES)
    grids = [everywhere, shapes[:, None]]
    for side in (-1, 1):
        trial = np.clip(
            shapes[:, None] + side * around * (high - low)[:, None], low[:, None], high[:, None]
        )
        found, _, _ = _of_shapes(means, powers, kinds, trial)
        below = np.where(found <= top, np.abs(trial - shapes[:, None]), 0.0).max(axis=1)
        radius = _REACH * np.maximum(below, 1e-9 * (high - low))
        grids.append(shapes[:, None] + side * radius[:, None] * np.linspace(0, 1, _SHAPES))
    return np.clip(np.concatenate(grids, axis=1), low[:, None], high[:, None])


def _columns(means: Whitened, *extra: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "sets n k"]:
    """1, log x and further columns of the logarithm of a model, one set of them for each set of the
    further ones.
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

    The third column is log log(x/x₁) where the sets differ in x₁, one of `logs`. That and the power
    of a correction, one of `powers`, are a parameter each.
    """
    white = np.swapaxes(means.of_logs(np.swapaxes(columns, 1, 2)), 1, 2)
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
