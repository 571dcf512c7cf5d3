"""Odd quintics that push singular values to 1: the best ones for an interval, and the interval that
a sequence of them reaches.

One step applies p(s) = a s + b s³ + c s⁵ to every singular value. The composition of the best
polynomials for each interval in turn is the best composition (Amsel, Persson, Musco and Gower, The
Polar Express, 2025, Theorem 3.1). Everything here runs on the host in float64.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np

from specjax.arguments import checked, shown

Value = TypeVar("Value", float, np.ndarray)


class Quintic(NamedTuple):
    """The odd polynomial a s + b s³ + c s⁵ that one Newton–Schulz step applies to each singular
    value s.
    """

    a: float
    b: float
    c: float

    def __call__(self, s: Value) -> Value:
        """The polynomial at s, a number or an array."""
        return s * (self.a + s**2 * (self.b + s**2 * self.c))

    def stretched(self, factor: float) -> "Quintic":
        """p(s / factor), whose interval is `factor` times as long."""
        return Quintic(self.a / factor, self.b / factor**3, self.c / factor**5)


MUON = Quintic(3.4445, -4.7750, 2.0315)
"""Keller Jordan's coefficients (Muon, 2024): steep at 0, singular values end in about [0.68, 1.13]
and never converge to 1.
"""

CUBIC = Quintic(1.5, -0.5, 0.0)
"""The classical Newton–Schulz iteration (Higham, Functions of Matrices, eq. 8.20): converges to 1
quadratically from (0, √3).
"""

PADE = Quintic(15 / 8, -10 / 8, 3 / 8)
"""The quintic of highest order at 1: the limit of `best_quintic` as the interval shrinks to 1, with
cubic convergence.
"""


@checked
def best_quintic(lower: float, upper: float) -> Quintic:
    """The odd quintic closest to 1 in maximum norm on [lower, upper], 0 < lower <= upper, 1e-60 <=
    upper <= 1e60.

    It is found by Remez exchange: the error takes its extreme value with alternating signs at both
    ends and at the two critical points (Polar Express, Appendix B). On an interval of relative
    length below 1e-4, where these equations are singular to rounding, it returns the Padé
    polynomial about the middle, whose coefficients are within 3e-9 of the best ones.

    Raises:
        ValueError: for an interval that is empty, reaches zero, or ends where the coefficient of s⁵
            is not a normal float64.
    """
    if not 0 < lower <= upper < np.inf:
        raise ValueError(
            f"best_quintic needs 0 < lower <= upper, got lower={lower} and upper={upper}."
        )
    if not 1e-60 <= upper <= 1e60:
        raise ValueError(
            f"best_quintic needs an interval that ends between 1e-60 and 1e60, got upper={upper};"
            " scale it, as p(s / upper) is for upper=1."
        )
    if lower >= (1 - 1e-4) * upper:
        return PADE.stretched(lower + (upper - lower) / 2)
    # The best polynomial follows the scale of the interval.
    return _on_unit_interval(lower / upper).stretched(upper)


def _on_unit_interval(lower: float) -> Quintic:
    """The best quintic on [lower, 1]. It exchanges nodes until the largest error stops approaching
    its lower bound, the error at the nodes.
    """
    inner = np.array([(3 * lower + 1) / 4, (lower + 3) / 4])
    best, gap = PADE, np.inf
    while True:
        nodes = np.array([lower, *inner, 1.0])
        system = np.stack([nodes, nodes**3, nodes**5, [1.0, -1.0, 1.0, -1.0]], axis=1)
        a, b, c, error = (float(x) for x in np.linalg.solve(system, np.ones(4)))
        root = np.sqrt(9 * b**2 - 20 * a * c)
        inner = np.sqrt((-3 * b + np.array([-root, root])) / (10 * c))
        p = Quintic(a, b, c)
        new_gap = np.max(np.abs(1 - p(inner))) - error
        if not new_gap < gap:
            return best
        best, gap = p, new_gap


@checked
@cache
def best_composition(
    steps: int, lower: float, safety: float = 1.0, cushion: float = 0.0
) -> tuple[Quintic, ...]:
    """The `steps` quintics whose composition is closest to 1 on [lower, 1] (Polar Express,
    Algorithm 1).

    Args:
        steps: Number of polynomials.
        lower: The smallest singular value to be sent to 1, relative to the norm.
        safety: All polynomials but the last are stretched by this factor, so that rounding above
            the interval is harmless.
        cushion: Each polynomial is the best for an interval that starts at `cushion` times its end
            or later, and is rescaled to centre the values about 1. This is less optimal but keeps
            all values in between away from zero.

    Returns:
        The polynomials in turn; the first is for singular values divided by the Frobenius norm.

    """
    if not (steps >= 1 and 0 < lower <= 1 and safety >= 1 and 0 <= cushion < 1):
        raise ValueError(
            "best_composition needs steps >= 1, 0 < lower <= 1, safety >= 1 and 0 <= cushion < 1, "
            f"got {steps}, {lower}, {safety} and {cushion}."
        )
    upper, polynomials = 1.0, []
    for step in range(steps):
        p = best_quintic(max(lower, cushion * upper), upper)
        if cushion * upper > lower:
            centre = 2 / (p(lower) + p(upper))
            p = Quintic(centre * p.a, centre * p.b, centre * p.c)
        if step < steps - 1:
            p = p.stretched(safety)
        polynomials.append(p)
        lower = p(lower)
        # Rounding may take the last values past 1.
        upper = max(2 - lower, lower)
    return tuple(polynomials)


@checked
def band(coefficients: Sequence[Quintic], lower: float, upper: float = 1.0) -> tuple[float, float]:
    """The interval [lo, hi] onto which the composed polynomials map [lower, upper], exactly up to
    rounding in float64.

    Each polynomial is continuous, so the image of an interval is an interval and its ends are
    values at the ends or at critical points. `band(method.polynomials(), lower)` certifies a
    method: a matrix with singular values in [lower, 1] ‖x‖_F ends with singular values in [lo, hi]
    (in absolute value).

    Raises:
        ValueError: if not 0 <= lower <= upper.

    Examples:
        >>> from specjax import spectral
        >>> lowest, highest = spectral.polynomials.band(spectral.NewtonSchulz().polynomials(), 0.01)
        >>> round(lowest, 3), round(highest, 3)
        (0.682, 1.134)

    """
    if not all(isinstance(p, Quintic) for p in coefficients):
        raise ValueError(
            f"band needs Quintics, such as method.polynomials(), got {shown(coefficients)}."
        )
    if not 0 <= lower <= upper:
        raise ValueError(f"band needs 0 <= lower <= upper, got lower={lower} and upper={upper}.")
    for p in coefficients:
        values = [p(s) for s in (lower, *_critical_points(p), upper) if lower <= s <= upper]
        lower, upper = min(values), max(values)
    return lower, upper


def _relaxed_cubics(steps: int, lower: float, target: float) -> tuple[Quintic, ...]:
    """The cubics that, one after the other, have equal values at the ends of the interval and the
    maximum `target` inside, the first on [lower, 1].

    Up to its factor each is the cubic closest to 1 on its interval in maximum norm; that factor
    would centre the values about 1, and `target` is steeper at 0.
    """
    upper, cubics = 1.0, []
    for _ in range(steps):
        squares = lower**2 + lower * upper + upper**2
        a = 1.5 * target * (3 / squares) ** 0.5
        p = Quintic(a, -a / squares, 0.0)
        cubics.append(p)
        lower, upper = p(lower), target
    return tuple(cubics)


CUBIC5 = _relaxed_cubics(5, 7e-3, 1.3)
"""Five cubics for singular values from 7e-3 ‖x‖_F up, which end in [0.774, 1.300]: ten products in
the place of Muon's fifteen (Huang 2026, arXiv 2606.00371, "cubic5").
"""


def _critical_points(p: Quintic) -> list[float]:
    """The zeros of p', of both signs, since earlier steps may have sent values below zero."""
    # np.roots ignores leading zeros, so a cubic gives one pair.
    squares = np.roots(np.array([5 * p.c, 3 * p.b, p.a]))
    positive = [
        float(np.sqrt(s.real)) for s in squares if abs(s.imag) <= 1e-12 * abs(s) and s.real > 0
    ]
    return [sign * s for s in positive for sign in (-1, 1)]
