"""Edges of the spectrum of the covariance of ReLU features, in the limit and at finite d.

There are k random rows v_i of length d. For v_i = λ_i^(1/2) c_i with |c_i| = 1 the covariance of
σ(V x) is Λ^(1/2) f(C Cᵀ) Λ^(1/2), f = φ/2π of `random_features`. In Legendre polynomials P_ℓ of
dimension d, normalized by P_ℓ(1) = 1,

    f(t) = β_0 + t/4 + β_2 P_2(t) + …,   ρ = E √(1 - t²),
    β_0 = (ρ d/(d-1) - 1)/2π,   β_2 = ρ d (d+2)/(4π (d+1)²),

over the first entry t of a random unit vector: ρ = Γ(d/2)²/(Γ((d+1)/2) Γ((d-1)/2)). P_ℓ(C Cᵀ) is
the Gram matrix of k vectors in N_ℓ dimensions, N_1 = d and N_2 = (d+2)(d-1)/2. For k of order d,
those with ℓ > 2 are nearly the identity, with the rest of f(1) as coefficient, and ℓ = 0 is a
single weak outlier. ℓ = 1 and 2 are nearly independent Wishart matrices (Lu and Yau, An equivalence
principle for the spectrum of random inner-product kernel matrices with polynomial scalings, 2022;
Cheng and Singer 2013 for one ℓ).

With N_2 of order d²/2 the quadratic part is an identity only up to √(k/N_2) = √(2γ/d), which is a
fifth at d = 100 and γ = 2, and lowers the lower edge by a third. To first order in 1/√d, for γ well
above 1, the lower edge is (π-2)/4π - √(2γ/d)/2π.
"""

import math
from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaincinv, gammaln

from specjax.arguments import checked

TRACY_WIDOM_MEAN = -1.2065335745
"""Mean of the Tracy–Widom law of real symmetric matrices."""


@checked
def limiting_bulk_edges(gamma: float) -> tuple[float, float]:
    """Limits ¼(1 ± √γ)² + (π-2)/4π of the covariance's extreme eigenvalues at k/d = γ.

    A weak outlier is left out. The covariance acts as ¼VVᵀ + ((π-2)/4π) I (El Karoui 2010), so for
    γ >= 1 the lower edge is (π-2)/4π = 0.0908. It is approached from below as 1/√d: at d = 100 the
    smallest eigenvalue is 15 to 40 % smaller for γ from 1 to 3. See `bulk_edges`.

    Raises:
        ValueError: a γ that is not positive.
    """
    if not 0 < gamma < math.inf:
        raise ValueError(f"The bulk needs a positive ratio gamma = k/d, got {gamma}.")
    identity = (math.pi - 2) / (4 * math.pi)
    low = (1 - math.sqrt(gamma)) ** 2 / 4 if gamma < 1 else 0.0
    return low + identity, (1 + math.sqrt(gamma)) ** 2 / 4 + identity


@checked
def bulk_edges(k: int, d: int) -> tuple[float, float]:
    """Mean extreme eigenvalues of the covariance beside a weak outlier, for k rows N(0, I/d).

    By the deterministic equivalent of Λ^(1/2) (c + ¼ W_1 + β_2 W_2) Λ^(1/2), W_ℓ independent
    Wishart matrices of mean I with N_ℓ degrees of freedom, Λ the k quantiles of χ²_d/d. With g the
    mean over i of λ_i G_ii of its resolvent G at x,

        g = mean_i λ_i/(x - λ_i m),   m = c + Σ_ℓ β_ℓ/(1 - β_ℓ k g/N_ℓ),

    and x is stationary at an edge. The extreme eigenvalue lies inward from there, on average by the
    mean of the Tracy–Widom law: 1.2 k^(-2/3) times the cube root of half of d²x/dG². The lower one
    is right within 1 % from d = 50 on for γ from 1 to 3, the upper one within 2 % from d = 100 on.

    Raises:
        ValueError: k < 1 or d < 2.

    Examples:
        >>> from specjax.theory import feature_bulk
        >>> low, high = feature_bulk.bulk_edges(400, 100)
        >>> 0 < low < high
        True
    """
    if not (k >= 1 and d >= 2):
        raise ValueError(f"The bulk needs k >= 1 rows of length d >= 2, got k={k} and d={d}.")
    mean_sine = math.exp(2 * gammaln(d / 2) - gammaln((d + 1) / 2) - gammaln((d - 1) / 2))
    outlier = (mean_sine * d / (d - 1) - 1) / (2 * math.pi)
    weights = np.array([0.25, mean_sine * d * (d + 2) / (4 * math.pi * (d + 1) ** 2)])
    identity = (math.pi - 1) / (2 * math.pi) - outlier - weights.sum()
    ratios = weights * k / np.array([d, (d + 2) * (d - 1) / 2])
    lengths = 2 / d * gammaincinv(d / 2, (np.arange(k) + 0.5) / k)

    def resolvent(y: float) -> tuple[float, float]:
        """x = m y and mean G_ii at y: a = -g m, and 1 = c/m + Σ β_ℓ/(m + β_ℓ k a/N_ℓ) gives m."""
        a = float(np.mean(lengths / (lengths - y)))
        least = max(0.0, float(np.max(-ratios * a)))

        def excess(m: float) -> float:
            return identity / m + float(np.sum(weights / (m + ratios * a))) - 1

        m = brentq(
            excess,
            least * (1 + 1e-14) + 1e-300,
            least + identity + float(weights.sum()),
            xtol=1e-15,
        )
        return m * y, float(np.mean(1 / (y - lengths))) / m

    def extreme(along: Callable[[float], float], sign: int) -> float:
        """The edge, moved inward by the extreme eigenvalue's mean distance, and that distance."""
        s = minimize_scalar(
            lambda s: sign * resolvent(along(s))[0], bounds=(1e-3, 25), method="bounded"
        ).x
        step = 1e-3 * s
        (x_0, g_0), (x_1, _), (x_2, g_2) = (
            resolvent(along(s + shift)) for shift in (-step, 0.0, step)
        )
        curvature = (x_2 - 2 * x_1 + x_0) / ((g_2 - g_0) / 2) ** 2
        return float(
            x_1 + sign * TRACY_WIDOM_MEAN * (abs(curvature) / 2) ** (1 / 3) * k ** (-2 / 3)
        )

    # Below all λ_i and above them, log |1 - λ/y| resolves the approach to the nearest one.
    smallest, largest = float(lengths[0]), float(lengths[-1])
    return extreme(lambda s: smallest * -math.expm1(-s), -1), extreme(
        lambda s: largest / -math.expm1(-s), 1
    )
