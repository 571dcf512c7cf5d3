"""Weighted least squares for power laws, vectorised over data sets.

Each model has one parameter that enters nonlinearly; for a given value of it the model is linear in
two others, which are projected out (variable projection, Golub and Pereyra 1973), so that only one
parameter is searched for:

- log y = α + b log x + log(1 + c/x), the plain line at c = 0: searched for c;
- log y = α + b log x + c log log x: linear in all;
- y = E + A xᵇ: searched for b.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from specjax.fits._float_units import unit_of

# c = x_min (eˢ - 1), so that every finite s keeps 1 + c/x > 0 on all x ≥ x_min. At s = -8 the model
# has a zero at x_min.
LEAST_S = -8.0
# From one x to the next the term A xᵇ changes at most by e⁸: a larger |b| is a step at one end, not
# an exponent.
_STEEPEST = 8.0
_STARTS = 65
_ITERATIONS = 30  # Gauss-Newton on one smooth variable from so fine a grid needs fewer than 10
_CONVERGED = 1e-13
_STEPS = np.array([0.0, *(0.5**k for k in range(8))])  # the zero lets an iteration keep what it has


LogModel = Literal["power law", "subleading", "logarithm"]
"""The models that are fitted to log means."""


class Curves(NamedTuple):
    """The parameters of y = offset + prefactor · x^exponent · (1 + c/x) · (log x)^logarithm.

    Each has one entry per data set. `undetermined` marks searches that ended at an end of their
    range. At b = 0 the offset and prefactor of y = E + A xᵇ have no value, and are infinite.
    """

    exponent: Float[np.ndarray, " sets"]
    prefactor: Float[np.ndarray, " sets"]
    c: Float[np.ndarray, " sets"]
    offset: Float[np.ndarray, " sets"]
    undetermined: Bool[np.ndarray, " sets"]
    logarithm: Float[np.ndarray, " sets"]


def fit_log(
    x: Float[np.ndarray, " n"],
    log_y: Float[np.ndarray, "sets n"],
    weights: Float[np.ndarray, "sets n"],
    model: LogModel,
) -> Curves:
    """The weighted least-squares fit of each row of `log_y` with its `weights`; `x` ascends."""
    log_x, zero = np.log(x), np.zeros(len(log_y))
    if model == "power law":
        log_prefactor, exponent = _line(log_x, log_y, weights)
        return Curves(exponent, np.exp(log_prefactor), zero, zero, zero > 0, zero)
    if model == "logarithm":
        logs = np.broadcast_to(np.log(log_of(x, x[0])), log_y.shape)
        across, left = _without_line(log_x, logs, weights), _without_line(log_x, log_y, weights)
        power = np.sum(weights * across * left, axis=-1) / np.sum(weights * across**2, axis=-1)
        log_prefactor, exponent = _line(log_x, log_y - power[:, None] * logs, weights)
        return Curves(exponent, np.exp(log_prefactor), zero, zero, zero > 0, power)

    def correction(s: np.ndarray) -> np.ndarray:
        return np.log1p((x[0] * np.expm1(s))[..., None] / x)

    def residual(s: np.ndarray) -> np.ndarray:
        return _without_line(log_x, log_y - correction(s), weights)

    def slope(s: np.ndarray) -> np.ndarray:
        moved = (x[0] * np.exp(s))[..., None] / (x + (x[0] * np.expm1(s))[..., None])
        return _without_line(log_x, moved, weights)

    s, undetermined = _search(residual, slope, weights, *s_bounds(x))
    log_prefactor, exponent = _line(log_x, log_y - correction(s), weights)
    return Curves(exponent, np.exp(log_prefactor), x[0] * np.expm1(s), zero, undetermined, zero)


def s_bounds(x: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The least and the greatest s that `fit_log` searches.

    The greatest is that of c = x_max: beyond it the term would not be subleading at any x, and xᵇ
    (1 + c/x) would look like xᵇ⁻¹.
    """
    return LEAST_S, float(np.log1p(x[-1] / x[0]))


def log_of(x: Float[np.ndarray, "*n"], smallest: float | np.float64) -> Float[np.ndarray, "*n"]:
    """The logarithm of a log-corrected power, log(x/`unit_of_logarithm`)."""
    return np.log(x / unit_of_logarithm(smallest))


def unit_of_logarithm(smallest: float | np.float64) -> float:
    """1; for a `smallest` x below 2, the unit in which its logarithm is 1."""
    return 1.0 if smallest >= 2 else float(smallest / np.e)


def fit_curve(
    x: Float[np.ndarray, " n"], y: Float[np.ndarray, "sets n"], weights: Float[np.ndarray, "sets n"]
) -> Curves:
    """The weighted least-squares fit of y = E + A xᵇ to each row of `y`; `x` ascends.

    E + A xᵇ is written p + q u(x) with u = (xᵇ - x₀ᵇ)/(xₘᵇ - x₀ᵇ) between 0 and 1, which stays a
    good basis at b = 0, where it is the line in log x.
    """
    # Squares of numbers near either end of the range of floats overflow or underflow.
    scale = unit_of(y).item()
    y = y / scale

    def residual(b: np.ndarray) -> np.ndarray:
        return _without_line(rise(x, b), y, weights)

    def slope(b: np.ndarray) -> np.ndarray:
        u = rise(x, b)
        _, q = _line(u, y, weights)
        return _without_line(u, q[..., None] * _rise_slope(x, b), weights)

    b, undetermined = _search(residual, slope, weights, *exponent_bounds(x))
    p, q = _line(rise(x, b), y, weights)
    with np.errstate(divide="ignore"):
        share = q / np.expm1(b * np.log(x[-1] / x[0]))
    zero = np.zeros(len(y))
    return Curves(b, scale * share * x[0] ** -b, zero, scale * (p - share), undetermined, zero)


def exponent_bounds(x: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The least and the greatest b that `fit_curve` searches."""
    return float(-_STEEPEST / np.log(x[1] / x[0])), float(_STEEPEST / np.log(x[-1] / x[-2]))


def rise(x: Float[np.ndarray, " n"], b: Float[np.ndarray, " sets"]) -> Float[np.ndarray, "sets n"]:
    """u(x) = (xᵇ - x₀ᵇ)/(xₘᵇ - x₀ᵇ), and at b = 0 its limit."""
    log_x = np.log(x / x[0])
    flat = np.abs(b) < 1e-12
    safe = np.where(flat, 1.0, b)[..., None]
    return np.where(
        flat[..., None], log_x / log_x[-1], np.expm1(safe * log_x) / np.expm1(safe * log_x[-1])
    )


def _search(
    residual: Callable[[np.ndarray], np.ndarray],
    slope: Callable[[np.ndarray], np.ndarray],
    weights: np.ndarray,
    low: float,
    high: float,
) -> tuple[np.ndarray, np.ndarray]:
    """The parameter of least weighted squares of each set, and whether it is an end of the range.

    It is the best of a grid, refined by Gauss-Newton. `residual` and `slope`, its negative
    derivative, take one parameter per set and have the linear parameters projected out.
    """

    def cost(parameter: np.ndarray) -> np.ndarray:
        return np.sum(weights * residual(parameter) ** 2, axis=-1)

    starts = np.linspace(low, high, _STARTS)
    best = starts[
        np.argmin(np.stack([cost(np.full(len(weights), start)) for start in starts]), axis=0)
    ]
    for _ in range(_ITERATIONS):
        moved = slope(best)
        norm = np.sum(weights * moved**2, axis=-1)
        step = np.sum(weights * moved * residual(best), axis=-1) / np.where(norm > 0, norm, 1)
        trials = np.clip(best + _STEPS[:, None] * np.clip(step, -1, 1), low, high)
        previous = best
        best = np.take_along_axis(
            trials, np.argmin(np.stack([cost(t) for t in trials]), axis=0)[None], axis=0
        )[0]
        if np.max(np.abs(best - previous)) <= _CONVERGED:
            break
    return best, (best <= low) | (best >= high)


def _rise_slope(x: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The derivative of `rise` in b."""
    log_x = np.log(x / x[0])
    small = np.abs(b) * log_x[-1] < 1e-3
    safe = np.where(small, 1.0, b)[..., None]
    # u'/u = (g(b log x) - g(b log xₘ))/b with g(t) = t/(1 - e⁻ᵗ) = 1 + t/2 + t²/12 + O(t⁴).
    exact = (_g(safe * log_x) - _g(safe * log_x[-1])) / safe
    series = (log_x - log_x[-1]) / 2 + b[..., None] * (log_x**2 - log_x[-1] ** 2) / 12
    return rise(x, b) * np.where(small[..., None], series, exact)


def _g(t: np.ndarray) -> np.ndarray:
    return np.where(t == 0, 1.0, t / -np.expm1(-np.where(t == 0, 1.0, t)))


def _line(u: np.ndarray, z: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercept and slope of z against u."""
    share = weights / np.sum(weights, axis=-1, keepdims=True)
    center = np.sum(share * u, axis=-1, keepdims=True)
    slope = np.sum(share * (u - center) * z, axis=-1) / np.sum(share * (u - center) ** 2, axis=-1)
    return np.sum(share * z, axis=-1) - slope * center[..., 0], slope


def _without_line(u: np.ndarray, z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    intercept, slope = _line(u, z, weights)
    return z - intercept[..., None] - slope[..., None] * u
