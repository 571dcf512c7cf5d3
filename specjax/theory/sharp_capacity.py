"""The number of items that one step recovers at large d, the limit of `finite_capacity`.

Beyond the paper, whose Theorems 3.1 and B.1 have d^(1 + 1/(2α)) up to logarithms. For p_i ∝ i^-α, N
items, and i far beyond d:

* Muon. With c_M = (2α/π) sin(π/2α), d c_M items have p_i g(0) > 1, in the notation of
  `finite_capacity`; there t g = 1 - y and g = g(0) y^α, where y runs from 0 to 1 as t falls from ∞
  to 0. So s_i = (2/π) p_i ∫ g² dt = 4/(π(α + 1)) · (d c_M / i)^α. Competitors have the standard
  deviation 1/√d.
* Newton. With c_N = (α/π) sin(π/α), s_i = p_i m = (d c_N / i)^α, and Σ_k (p_k m/(1 + p_k m))² = d
  (1 - 1/α) gives m₂ = α m²: rare competitors, which are nearly all, have the standard deviation
  √((α - 1)/d).

Item i is recovered if s_i exceeds the largest of N competitors less its own noise, which has the
same standard deviation. With M the largest of N standard normals and z another one, the mean count
is, for both,

    d^(1 + 1/(2α)) · constant · E (M - z)^(-1/α),    E (M - z)^(-1/α) ≈ (2 ln N)^(-1/(2α)).

It requires d → ∞ with N ≫ d for Muon, and (N/d)^(α - 1) ≫ 1 for Newton. Omitted are terms of order
ln N/d (`next_order`), and for Newton the d items that are not rare: their logits have the standard
deviation √((2α - 1)/d), and exceed the others if (2α - 1) ln d > (α - 1) ln N.
"""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from specjax.arguments import checked
from specjax.theory.capacity import check_alpha
from specjax.theory.closed_forms import check_in

SPECTRAL = ("muon", "newton")


@checked
def constant(optimizer: str, alpha: float) -> float:
    """The factor of d^(1 + 1/(2α)) E (M - z)^(-1/α) in the count.

    It is c_M (4/(π(α + 1)))^(1/α) for Muon, c_N (α - 1)^(-1/(2α)) for Newton.

    Raises:
        ValueError: α <= 1, or an optimizer other than "muon" and "newton".
    """
    check_alpha(alpha)
    if optimizer not in SPECTRAL:
        raise ValueError(
            f"Sharp constants are known for {' and '.join(SPECTRAL)}, not for {optimizer!r}."
        )
    if optimizer == "muon":
        return (
            2
            * alpha
            / math.pi
            * math.sin(math.pi / (2 * alpha))
            * (4 / (math.pi * (alpha + 1))) ** (1 / alpha)
        )
    return alpha / math.pi * math.sin(math.pi / alpha) * (alpha - 1) ** (-1 / (2 * alpha))


@checked
def logarithm(n: int | float, alpha: float) -> float:
    """E (M - z)^(-1/α), M the largest of N standard normals, z another; ≈ (2 ln N)^(-1/(2α)).

    The mean excludes recovery by chance, of one item in N. Accurate to six digits.

    Raises:
        ValueError: α <= 1 or N < 2.
    """
    check_alpha(alpha)
    check_in("[2, inf)", n=n)
    # This is ∫ P(M - z < x) dx^(-1/α), for which equal steps in z and log x converge fast.
    z = np.arange(-6.5, 6.51, 0.1)
    weights = np.exp(-(z**2) / 2) / np.sum(np.exp(-(z**2) / 2))
    log_x = np.linspace(math.log(1e-5), math.log(9 + math.sqrt(2 * math.log(n))), 2000)
    below = np.exp((n - 1) * log_ndtr(np.exp(log_x)[:, None] + z[None, :])) @ weights
    by_chance = np.exp((n - 1) * log_ndtr(z)) @ weights
    rest = math.exp(-log_x[-1] / alpha)
    return float(np.trapezoid(np.exp(-log_x / alpha) * (below - by_chance) / alpha, log_x) + rest)


@checked
def next_order(optimizer: str, d: int | float, n: int | float, alpha: float) -> float:
    """The relative correction of order ln N/d: s_i grows sublinearly, or the noise is more.

    With S² = 2 ln N/d: -(b/(α a³)) S² for Muon, where s = a u - b u³ + …, u = p_i g(0), a = 4/(π(α
    + 1)), b = 8/(3π(3α + 1)); -S²/(2α) for Newton, whose competitors have the variance (α - 1 +
    s_i²)/d.
    """
    square = 2 * math.log(n) / d
    if optimizer == "newton":
        return -square / (2 * alpha)
    a, b = 4 / (math.pi * (alpha + 1)), 8 / (3 * math.pi * (3 * alpha + 1))
    return -b / (alpha * a**3) * square


@checked
def sharp_count(optimizer: str, d: int | float, n: int | float, alpha: float) -> float:
    """The mean count of one population step for large d, with `next_order`; see the module.

    Raises:
        ValueError: α <= 1, another optimizer, or not 2 <= d < N.
    """
    if not 2 <= d < n:
        raise ValueError(f"A count needs 2 <= d < n, got d={d} and n={n}.")
    leading = constant(optimizer, alpha) * d ** (1 + 1 / (2 * alpha)) * logarithm(n, alpha)
    return leading * (1 + next_order(optimizer, d, n, alpha))


@checked
def ratio(alpha: float) -> float:
    """The limit sec(π/2α) (4 √(α - 1)/(π(α + 1)))^(1/α) of Muon's count over Newton's.

    It requires ln N/ln d > (2α - 1)/(α - 1).

    Raises:
        ValueError: α <= 1.
    """
    return constant("muon", alpha) / constant("newton", alpha)


def crossing() -> float:
    """The α at which Muon and Newton recover equally many items; below it Muon recovers more."""
    return float(brentq(lambda alpha: ratio(alpha) - 1, 1.1, 3.0))
