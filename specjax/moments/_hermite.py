"""Averages of products of non-polynomial activations, by Hermite series with error bounds.

For s, t ~ N(0, 1) of correlation ρ the Hermite polynomials of s are orthogonal to those of t of
other degrees, so E[f(s) g(t)] = Σ_n a_n b_n ρⁿ (Mehler 1866). By Cauchy and Schwarz the truncation
at degree N leaves out at most
|ρ|^(N+1) √(Σ_{n>N} a_n²) √(Σ_{n>N} b_n²), where these sums are E f² and E g² less the kept terms.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import as_array, checked, shown
from specjax.programs import is_traced

_REACH = 16.0
"""Largest quadrature point; there Hermite polynomials times the density are below 1e-27."""
_MOST = 200
AGREEMENT = 1e-12
"""Largest accepted difference of two quadratures over √(E f²), which the bounds include."""


@dataclass(frozen=True, eq=False)
class Hermite:
    """The series f(√v t) = Σ_n a_n He_n(t)/√n! for t ~ N(0, 1), truncated at a degree.

    Attributes:
        coefficients: a_0, …, a_N, of shape (N + 1,), in float64.
        second: E f(√v t)², the sum of all a_n².

    """

    coefficients: np.ndarray
    second: float

    @property
    def degree(self) -> int:
        """N."""
        return len(self.coefficients) - 1

    @property
    def mean(self) -> float:
        """E f(√v t)."""
        return float(self.coefficients[0])

    def tail(self, degree: int) -> float:
        """The sum of a_n² over n > `degree`."""
        return max(self.second - float(np.sum(self.coefficients[: degree + 1] ** 2)), 0.0)

    def product(self, rho: ArrayLike, other: "Hermite | None" = None) -> Float[Array, "..."]:
        """E[f(s) g(t)] at correlation `rho`, to the lower of the two degrees; g is f by default.

        Args:
            rho: Correlations in [-1, 1], any shape.
            other: The series of g, whose variance may differ.

        Returns:
            float64, of the shape of `rho`; within `bound` of the average.

        Raises:
            ValueError: a correlation outside [-1, 1].
        """
        other = other or self
        degree = min(self.degree, other.degree)
        factors = self.coefficients[: degree + 1] * other.coefficients[: degree + 1]
        with jax.enable_x64(True):
            return jnp.polyval(jnp.asarray(factors[::-1]), _correlations(rho))

    def bound(self, rho: ArrayLike, other: "Hermite | None" = None) -> Float[Array, "..."]:
        """Bound on the error of `product`: truncation and rounding. Same arguments and errors."""
        other = other or self
        degree = min(self.degree, other.degree)
        left = math.sqrt(
            math.prod(each.tail(degree) + AGREEMENT * each.second for each in (self, other))
        )
        size = math.sqrt(self.second * other.second)
        with jax.enable_x64(True):
            return jnp.abs(_correlations(rho)) ** (degree + 1) * left + 4 * AGREEMENT * size


@checked
def hermite(
    f: Callable[[Array], Array],
    degree: int,
    *,
    variance: float = 1.0,
    kinks: Sequence[float] = (0.0,),
) -> Hermite:
    """The Hermite series of an activation at N(0, v).

    Args:
        f: An elementwise function, called with float64 arrays.
        degree: The highest one kept, up to 200.
        variance: v.
        kinks: Points where f is not smooth, between which Gauss–Legendre quadrature is used.

    Raises:
        ValueError: a degree or variance out of range; a function that is not elementwise or not
            finite, or whose two quadratures differ (kinks elsewhere, or growth faster than any
            power).

    Examples:
        >>> from specjax import moments
        >>> series = moments.hermite(lambda x: x + x**2, 2)
        >>> series.coefficients.round(2).tolist()
        [1.0, 1.0, 1.41]
    """
    if not isinstance(degree, int) or not 0 <= degree <= _MOST:
        raise ValueError(f"A degree is an int from 0 to {_MOST}, got {degree!r}.")
    if not 0 < variance < math.inf:
        raise ValueError(f"A variance is positive and finite, got {variance}.")
    ends = sorted(
        {
            -_REACH,
            _REACH,
            *(k / math.sqrt(variance) for k in kinks if abs(k) < _REACH * math.sqrt(variance)),
        }
    )
    coarse, fine = (_series(f, degree, variance, ends, nodes) for nodes in (200, 300))
    apart = np.abs(coarse.coefficients - fine.coefficients).max() / math.sqrt(
        max(fine.second, 1e-300)
    )
    if apart > AGREEMENT:
        raise ValueError(
            f"Two quadratures of the function differ by {apart:.0e}; name all points where it is"
            f" not smooth in kinks, got {tuple(kinks)}."
        )
    return fine


def _series(
    f: Callable[[Array], Array], degree: int, variance: float, ends: Sequence[float], nodes: int
) -> Hermite:
    at, weights = np.polynomial.legendre.leggauss(nodes)
    starts, half = np.asarray(ends)[:-1, None], np.diff(ends)[:, None] / 2
    t = (starts + half * (at + 1)).ravel()
    weight = (half * weights).ravel() * np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
    with jax.enable_x64(True):
        values = np.asarray(f(jnp.asarray(math.sqrt(variance) * t)))
    if values.shape != t.shape or not np.isrealobj(values) or not np.isfinite(values).all():
        raise ValueError(
            f"An activation takes each number to a finite real one; for {t.shape} it gave"
            f" {values.dtype} of shape"
            f" {values.shape}{'' if np.isfinite(values).all() else ', not all finite'}."
        )
    before, here = np.zeros_like(t), np.ones_like(t)
    coefficients = []
    for n in range(degree + 1):
        coefficients.append(np.sum(weight * values * here))
        before, here = here, (t * here - math.sqrt(n) * before) / math.sqrt(n + 1)
    return Hermite(np.asarray(coefficients), float(np.sum(weight * values**2)))


def _correlations(rho: ArrayLike) -> Array:
    given, rho = rho, as_array(rho, "rho", "A product of Hermite series")
    if jnp.iscomplexobj(rho) or (not is_traced(rho) and not (np.abs(np.asarray(rho)) <= 1).all()):
        raise ValueError(f"A correlation is in [-1, 1], got {shown(given)}.")
    return rho.astype(jnp.float64)
