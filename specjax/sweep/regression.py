"""Weighted least squares for a power law in log-log space, vectorised over data sets.

The model is log y = α + b log x, or with one subleading term log y = α + b log x + log(1 + c/x). For a given c it is linear in
(α, b), so those two are projected out (variable projection, Golub and Pereyra 1973) and c alone is searched for.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# c = x_min (eˢ - 1), so that every finite s keeps 1 + c/x > 0 on all x ≥ x_min. At s = -8 the model has a zero at x_min.
_LEAST_S = -8.0
_STARTS = 65
_ITERATIONS = 30  # Gauss-Newton on one smooth variable from so fine a grid needs fewer than 10
_STEPS = np.array([0.0, *(0.5**k for k in range(8))])  # the zero lets an iteration keep what it has


class Line(NamedTuple):
    """The parameters of y = exp(α) xᵇ (1 + c/x), one entry per data set, and the s of c."""

    log_prefactor: Float[np.ndarray, " sets"]
    exponent: Float[np.ndarray, " sets"]
    c: Float[np.ndarray, " sets"]
    s: Float[np.ndarray, " sets"]


def fit_log(
    x: Float[np.ndarray, " n"],
    log_y: Float[np.ndarray, "sets n"],
    weights: Float[np.ndarray, "sets n"],
    subleading: bool,
) -> Line:
    """The weighted least-squares fit of each row of `log_y` with its `weights`; `x` ascends, and without `subleading` c is 0."""
    if not subleading:
        zero = np.zeros(len(log_y))
        return Line(*_line(x, log_y, weights), zero, zero)
    starts = np.linspace(_LEAST_S, greatest_s(x), _STARTS)
    cost = np.stack([_cost(x, log_y, weights, np.full(len(log_y), s)) for s in starts])
    s = starts[np.argmin(cost, axis=0)]
    for _ in range(_ITERATIONS):
        residual = _without_line(x, log_y - _correction(x, s), weights)
        slope = _without_line(x, (x[0] * np.exp(s))[..., None] / (x + _c(x, s)[..., None]), weights)
        norm = np.sum(weights * slope**2, axis=-1)
        step = np.sum(weights * slope * residual, axis=-1) / np.where(norm > 0, norm, 1)
        trials = np.clip(s + _STEPS[:, None] * np.clip(step, -1, 1), _LEAST_S, greatest_s(x))
        cost = np.stack([_cost(x, log_y, weights, trial) for trial in trials])
        s = np.take_along_axis(trials, np.argmin(cost, axis=0)[None], axis=0)[0]
    return Line(*_line(x, log_y - _correction(x, s), weights), _c(x, s), s)


def greatest_s(x: Float[np.ndarray, " n"]) -> float:
    """The s of c = x_max: beyond it the term would not be subleading at any x, and xᵇ (1 + c/x) would pass for xᵇ⁻¹."""
    return float(np.log1p(x[-1] / x[0]))


def undetermined(x: Float[np.ndarray, " n"], line: Line) -> bool:
    """Whether the search for c ended at a bound in one of the data sets."""
    return bool(np.any((line.s <= _LEAST_S) | (line.s >= greatest_s(x))))


def _c(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    return x[0] * np.expm1(s)


def _correction(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.log1p(_c(x, s)[..., None] / x)


def _line(x: np.ndarray, z: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Intercept and slope of z against log x."""
    share = weights / np.sum(weights, axis=-1, keepdims=True)
    log_x = np.log(x)
    center = np.sum(share * log_x, axis=-1, keepdims=True)
    slope = np.sum(share * (log_x - center) * z, axis=-1) / np.sum(share * (log_x - center) ** 2, axis=-1)
    return np.sum(share * z, axis=-1) - slope * center[..., 0], slope


def _without_line(x: np.ndarray, z: np.ndarray, weights: np.ndarray) -> np.ndarray:
    intercept, slope = _line(x, z, weights)
    return z - intercept[..., None] - slope[..., None] * np.log(x)


def _cost(x: np.ndarray, log_y: np.ndarray, weights: np.ndarray, s: np.ndarray) -> np.ndarray:
    return np.sum(weights * _without_line(x, log_y - _correction(x, s), weights) ** 2, axis=-1)
