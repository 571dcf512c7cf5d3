"""The spectral map h that stores most items in one step U h(S) Vᵀ, by a Hilbert transform.

Beyond the associative-memory paper, which has polar factors, h = 1. A rare item adds p u vᵀ to the
gradient, u and v independent of it and isotropic. Its logit is the mean of uᵀ h(G + p u vᵀ) v, and
to first order in p

    s = p · (1/d²) Σ_{k≠l} (s_k h_k - s_l h_l) / (s_k² - s_l²) = 2 p E[h(s) H(s)],
    H(s_k) = (s_k/d) Σ_{l≠k} 1/(s_k² - s_l²),

since a generalized matrix function changes by divided differences; the terms with k = l are of
order 1/d. Logits of the others have the variance E[h²]/d. So the number of recovered items grows as
(E[h H]/√E[h²])^(1/α), which by Cauchy and Schwarz is largest for h = H: the Hilbert transform of
the density of the singular values and their negatives, or the real part of its Stieltjes transform
m.

For p_i ∝ i^-α, α > 1, and N ≫ d ≫ 1 the transform is known. In `sharp_capacity`'s notation t g = 1
- y and g = g(0) y^α; at t = -i s this is m = -i g(0) y^α with y = r e^(iθ) on the curve r = cos αθ
/ cos (α - 1)θ, θ from 0 (s = 0) to π/2α (s = ∞), where s = (sin αθ - r sin (α - 1)θ) / (g(0) r^α).
Everything here is in units of g(0), or of the median singular value; α up to 4.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize_scalar

from specjax.arguments import checked
from specjax.theory.capacity import check_alpha

Values = Float[np.ndarray, " points"]
Filter = Callable[[Values], Values]
_POINTS = 100_000


@checked
def best_filter(s_over_median: Values, alpha: float) -> Values:
    """h at singular values over their median, up to a factor; ValueError for α <= 1."""
    s, transform, _ = _spectrum(alpha)
    x = np.asarray(s_over_median)
    # h is linear in s near 0 and falls as 1/s far out.
    return np.where(x < s[0], transform[0] * x / s[0], np.interp(x, s, transform)) * np.minimum(
        1, s[-1] / np.maximum(x, s[0])
    )


@checked
def gain(alpha: float, h: Filter | None = None) -> float:
    """Count of h over that of the polar factor; the best h, the default, gains 1.104 to 1.107.

    h is a map of s over the median. Asymptotic for large d and N ≫ d. Raises ValueError for α <= 1.

    Examples:
        >>> from specjax.theory import best_filter
        >>> round(best_filter.gain(1.5), 2)
        1.1
    """
    s, transform, weights = _spectrum(alpha)
    values = transform if h is None else h(s)
    signal, polar = (float(weights @ (each * transform)) for each in (values, np.ones_like(s)))
    return (signal / math.sqrt(float(weights @ values**2)) / polar) ** (1 / alpha)


@checked
def ridge(x: Values, share: float) -> Values:
    """G (GᵀG + ℓ²)⁻¹, h = x/(x² + ℓ²), needs no decomposition; ℓ = `share`, x over the median."""
    return x / (x**2 + share**2)


@checked
@lru_cache
def best_share(alpha: float) -> float:
    """The ℓ over the median at which `ridge` recovers most items; ValueError for α <= 1.

    Examples:
        >>> from specjax.theory import best_filter
        >>> round(best_filter.best_share(1.5), 1)
        0.5
    """
    check_alpha(alpha)
    found = minimize_scalar(
        lambda log: -gain(alpha, lambda x: ridge(x, math.exp(log))),
        bounds=(-5.0, 2.0),
        method="bounded",
    )
    return float(math.exp(found.x))


@lru_cache
def _spectrum(alpha: float) -> tuple[Values, Values, Values]:
    """Singular values over their median, H at these, and weights of a mean over them."""
    check_alpha(alpha)
    # More points lie where the spectrum is long, near θ = π/2α, and near zero.
    theta = math.pi / (2 * alpha) * (1 - np.cos(np.linspace(0, math.pi, _POINTS + 2)[1:-1])) / 2
    r = np.cos(alpha * theta) / np.cos((alpha - 1) * theta)
    s = (np.sin(alpha * theta) - r * np.sin((alpha - 1) * theta)) / r**alpha
    # The density ρ includes both signs of s, so singular values have density 2ρ.
    density = 2 * r**alpha * np.cos(alpha * theta) / math.pi
    weights = density * np.gradient(s)
    weights /= weights.sum()
    median = float(np.interp(0.5, np.cumsum(weights), s))
    return s / median, r**alpha * np.sin(alpha * theta), weights
