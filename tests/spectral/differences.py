"""Derivatives by finite differences, in float64 numpy."""

from collections.abc import Callable

import numpy as np


def directional(
    f: Callable[[np.ndarray], np.ndarray], x: np.ndarray, dx: np.ndarray, h: float = 1e-3
) -> np.ndarray:
    """The derivative of f at x along dx by the central difference of fourth order, with an error
    near (h ‖dx‖)⁴.
    """
    one = np.asarray(f(x + h * dx)) - np.asarray(f(x - h * dx))
    two = np.asarray(f(x + 2 * h * dx)) - np.asarray(f(x - 2 * h * dx))
    return (8 * one - two) / (12 * h)
