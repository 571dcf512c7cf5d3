"""The number of items that one population step recovers at finite d and N, without fitted numbers.

The paper has exponents only. Given item i, the logits of all others are nearly independent
Gaussians, so that

    E[count] = Σ_i E_x Π_{j≠i} Φ(x_i / σ_ij),   x_i the logit of i itself,

so the law of x_i and the standard deviations σ_ij remain. For Muon and Newton they are taken to
leading order in 1/d.

* Muon. W is orthogonal, so ‖W v_i‖ = ‖v_i‖ and σ_ij = 1/√d for every j; mean and spread of x_i are
  those of `muon_logits`.
* Newton. Everything in units of m = (1/d) tr M_v⁻¹, which solves Σ_k p_k m / (1 + p_k m) = d: p
  stands for p m, a_k = p_k / (1 + p_k), A_n = (1/d) Σ_k a_k^n, and m_n = (1/d) tr M_v⁻ⁿ, from the
  derivatives of m in a ridge: m₂ = 1/(1 - A₂), m₃ = (1 - A₃) m₂³ and m₄ = 2 (1 - A₃)² m₂⁵ - (1 -
  A₄) m₂⁴. By Sherman–Morrison W v_i is, up to a factor, w = p_i b u_i + e with b = v_iᵀ M⁻¹ v_i and
  e = Σ_k p_k y_k u_k, y_k = v_kᵀ M⁻¹ v_i, M_v without item i. So s_i = p_i, ‖e‖² has the mean r =
  m₂ A₂, and σ_ij² = (m₂ a_j² + f (s_i² + r)) / d, f = 1 - d/N: the Hessian's other factor turns the
  inner products of N vectors u into a projection. The count depends on x_i over the length of w,
  which enters σ_ij². With k_i = r/(s_i² + r), to first order in what fluctuates,

      d Var x_i = k_i² (f r + ρ s_i²) + (1 + k_i)² f s_i²/2,

  by ⟨u_i, e⟩, b/‖e‖ and ‖u_i‖². Here ρ = 2 m₂ - 2 C/r + Q/(2r²), d times the variance of log b -
  log ‖e‖, both quadratic forms in v_i, with C = (1/d) tr M⁻¹K and Q = (1/d) tr K² of K = M⁻¹ (Σ_k
  p_k² v_k v_kᵀ) M⁻¹. Removing items from M_v once more, C = m₃ A₂ - m₂² A₃ and Q = m₄ A₂²
  - 4 m₂ m₃ A₂ A₃ + 2 m₂³ (A₂ A₄ + A₃²) + m₂² A₄.

For gradient descent the first few terms of the sum W v_i decide, so it is kept: see
`gradient_descent`.

Sums over items are quadratures: the first items one by one, the rest by Gauss–Legendre nodes in log
i, of which all these functions are smooth. The numerical error is below 1e-4 for Muon and Newton
and of the order of 1e-3 for gradient descent, for α from 1.25 to 3 and N up to 1e5, and below 1e-3
for N = d^(2α+2) up to 1e60.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from scipy.interpolate import RectBivariateSpline
from scipy.optimize import brentq
from scipy.special import expit, gammaincinv, log_ndtr, ndtr, ndtri
from scipy.stats import qmc

from specjax.arguments import checked
from specjax.theory import muon_logits
from specjax.theory.capacity import OPTIMIZERS, check_alpha
from specjax.theory.closed_forms import check_in, legendre

SINGLE = 32
"""Items with nodes of their own."""
ORDER = 8
"""Gauss–Legendre nodes per panel."""
SAMPLES = 4096
"""Points of the quasi-random average for gradient descent, a power of 2."""
FIRST = 8
"""Competitors whose ⟨v_i, v_j⟩ is averaged with its share of W v_i; the others enter by a mean."""
_STEP, _REACH = 0.2, 6.5

Numbers = Float[np.ndarray, " nodes"]
_Samples = Float[np.ndarray, " samples"]


@checked
def expected_count(optimizer: str, d: int | float, n: int | float, alpha: float) -> float:
    """The expected number of items recovered by one population step with p_i ∝ i^-α; d < n.

    N may be as large as Theorem 3.1 requires, n ≳ d^(2α+2). At d = 64 and N = 1,500 the count is
    within 0.5 % of simulated ones for Muon and 1.1 % for Newton; the experiment `memory-one-step`
    compares it with measured counts.

    Raises:
        ValueError: α <= 1, another optimizer, or not 2 <= d < n.

    Examples:
        >>> from specjax.theory import finite_capacity
        >>> muon = finite_capacity.expected_count("muon", 64, 4096, 1.5)
        >>> muon > finite_capacity.expected_count("gd", 64, 4096, 1.5)
        True
    """
    check_alpha(alpha)
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"There is a prediction for {', '.join(OPTIMIZERS)}, not for {optimizer!r}."
        )
    if not 2 <= d < n:
        raise ValueError(f"A count needs 2 <= d < n, got d={d} and n={n}.")
    # Gradient descent recovers of the order of √d items at most, the others d^1.5; its average over
    # samples makes its sum the smoother.
    reach, width = (0.5, 2.5) if optimizer == "gd" else (1.5, 1.25)
    # The step from recovered to not recovered has the width 1/(α √(2 log N)) in log i.
    width *= min(1.0, np.sqrt(np.log(1e5) / np.log(float(n))))
    p, sizes, _ = nodes(float(n), alpha, 1e4 * float(d) ** reach, width / alpha)
    if optimizer == "gd":
        return gradient_descent(float(d), p, sizes)
    if optimizer == "newton":
        return _count(d, *newton_logits(d, p, sizes), sizes)
    ones = np.ones_like(p)
    (spread,) = muon_logits.spreads(muon_logits.muon_steps(d, p, sizes, ones), p, ones)
    return _count(d, muon_logits.signal(d, p, sizes), spread, ones[:, None], sizes)


@checked
def distinct_items(n: int, alpha: float, batch: int | float) -> float:
    """Expected distinct items of `batch` samples from p_i ∝ i^-α, i <= n: Σ_i 1 - (1 - p_i)^B.

    Raises:
        ValueError: n < 1 or a negative batch.

    Examples:
        >>> from specjax.theory import finite_capacity
        >>> round(finite_capacity.distinct_items(1000, 1.5, 100))
        28
    """
    check_in("[1, inf)", n=n)
    check_in("[0, inf)", batch=batch)
    p = np.arange(1.0, n + 1) ** -alpha
    return float(-np.expm1(batch * np.log1p(-p / p.sum())).sum())


@checked
def half_seen_batch(n: int, alpha: float, items: int | float) -> float:
    """The Poisson number of samples from p_i ∝ i^-α that show half of the first `items` on average.

    Raises:
        ValueError: n < 1, or items that are not positive or more than n.
    """
    check_in("[1, inf)", n=n)
    check_in("(0, inf)", items=items)
    if items > n:
        raise ValueError(
            f"Half of the first items are to be seen, at most n={n} of them, got {items}."
        )
    p = np.arange(1.0, n + 1) ** -alpha
    p /= p.sum()
    # The last item counts in part.
    shares = np.clip(items - np.arange(n), 0, 1)
    return float(
        np.exp(brentq(lambda log: float(shares @ -np.expm1(-np.exp(log) * p)) - items / 2, -10, 40))
    )


@checked
def newton_logits(
    d: int | float, p: Numbers, sizes: Numbers
) -> tuple[Numbers, Numbers, Float[np.ndarray, "nodes nodes"]]:
    """Newton's s_i, d Var x_i and d σ_ij² in one unit, for `sizes` items of each frequency p."""

    def excess(log_m: float) -> float:
        return float(np.sum(sizes * expit(np.log(p) + log_m)) / d - 1)

    signal = p * np.exp(brentq(excess, -10, 30 - np.log(p.min())))
    a = signal / (1 + signal)
    a2, a3, a4 = (np.sum(sizes * a**power) / d for power in (2, 3, 4))
    m2 = 1 / (1 - a2)
    m3, m4 = (1 - a3) * m2**3, 2 * (1 - a3) ** 2 * m2**5 - (1 - a4) * m2**4
    rest, free = m2 * a2, 1 - d / np.sum(sizes)
    both = m3 * a2 - m2**2 * a3
    square = m4 * a2**2 - 4 * m2 * m3 * a2 * a3 + 2 * m2**3 * (a2 * a4 + a3**2) + m2**2 * a4
    ratio = 2 * m2 - 2 * both / rest + square / (2 * rest**2)
    kept = rest / (signal**2 + rest)
    spread = kept**2 * (free * rest + ratio * signal**2) + (1 + kept) ** 2 / 2 * free * signal**2
    return signal, spread, m2 * a[None, :] ** 2 + free * (signal[:, None] ** 2 + rest)


def _count(
    d: int | float,
    signal: Numbers,
    spread: Numbers,
    variances: Float[np.ndarray, "nodes others"],
    sizes: Numbers,
) -> float:
    """Σ_i E_x Π_{j≠i} Φ(x_i / σ_ij) from variances times d; one column if σ_ij ignores j."""
    several = variances.shape[1] > 1
    others = sizes if several else np.array([sizes.sum()])
    own = np.diagonal(variances) if several else variances[:, 0]
    # Equal steps: for a density that vanishes with all its derivatives, the error falls faster than
    # any power of the step.
    steps = np.arange(-_REACH, _REACH + _STEP / 2, _STEP)
    weights = np.exp(-(steps**2) / 2) / np.sum(np.exp(-(steps**2) / 2))

    def probability(i: int) -> float:
        x = np.sqrt(d) * signal[i] + np.sqrt(spread[i]) * steps
        logs = log_ndtr(x[:, None] / np.sqrt(variances[i])) @ others - log_ndtr(x / np.sqrt(own[i]))
        return float(np.exp(logs) @ weights)

    return _total(sizes, probability)


@checked
def gradient_descent(d: float, p: Numbers, sizes: Numbers, samples: int = SAMPLES) -> float:
    """The count for descending frequencies p, with `sizes` items of each and 1 of the first.

    A common factor of p cancels. The count is Σ_i P(u_i · w > u_j · w for all j ≠ i), w = W v_i /
    ‖v_i‖ = p_i ρ u_i + e with e = Σ_{k≠i} p_k z_k u_k / √d.

    ρ = ‖v_i‖, and z_k = √d ⟨v_k, v_i⟩/ρ are N(0, 1). So u_i · w = p_i ρ ‖u_i‖² + ‖e‖ ξ/√d, where
    ξ/√d is the component of u_i along e, and u_j · w is Gaussian of mean p_j z_j/√d and variance
    ‖w‖²/d, ‖w‖² = p_i² ρ² ‖u_i‖² + ‖e‖² + 2 p_i ρ ‖e‖ ξ/√d. ‖e‖² is replaced by its mean given z,
    Σ_{k≠i} p_k² z_k²/d.

    The average over ξ, the two lengths and the z_j of the first competitors is quasi-random, and
    that over the signs of these z_j is exact. ξ is sampled uniformly and weighted, since rare items
    are recovered only where it is large. For the other competitors the average over z_j is Φ(u_i ·
    w/√((‖w‖² + p_j²)/d)), and the sum of the logarithms, a smooth function of two numbers, is
    tabulated.
    """
    first = min(FIRST, len(p))
    n = sizes.sum()
    points = qmc.Sobol(first + 3, scramble=False).random(samples) + np.random.default_rng(0).random(
        first + 3
    )
    xi, of_u, of_v, *of_z = np.modf(points)[0].T
    low, high = -4.0, min(np.sqrt(2 * np.log(n)) + 1.5, 8.0)
    xi = low + (high - low) * xi
    weights = np.exp(-(xi**2) / 2)
    weights = weights / weights.sum()
    squared_u = (xi**2 + 2 * gammaincinv((d - 1) / 2, of_u)) / d
    rho = np.sqrt(2 * gammaincinv(d / 2, of_v) / d)
    z = ndtri(np.stack(of_z, axis=1))
    means = np.abs(z) * p[:first] / np.sqrt(d)
    rest = np.sum(means**2, axis=1) + np.sum(sizes[first:] * p[first:] ** 2) / d
    far = _tabulated(
        d, p[first:], sizes[first:], rest.min() / (100 * d), 10 * (rest.max() + p[0] ** 2) / d
    )

    def probability(i: int) -> float:
        e_squared = np.maximum(rest - (means[:, i] ** 2 if i < first else p[i] ** 2 / d), 0)
        along = np.sqrt(e_squared / d) * xi
        x = p[i] * rho * squared_u + along
        variance = ((p[i] * rho) ** 2 * squared_u + e_squared + 2 * p[i] * rho * along) / d
        ratio, relative = x / np.sqrt(variance), means / np.sqrt(variance)[:, None]
        near = (ndtr(ratio[:, None] - relative) + ndtr(ratio[:, None] + relative)) / 2
        if i < first:
            near[:, i] = 1
        product = np.prod(near, axis=1) * np.exp(far(ratio, variance))
        own = ndtr(x / np.sqrt(variance + p[i] ** 2 / d)) if i >= first else 1
        return float(product / own @ weights)

    return _total(sizes, probability)


def _tabulated(
    d: float, p: Numbers, sizes: Numbers, low: float, high: float
) -> Callable[[_Samples, _Samples], _Samples]:
    """Tabulate Σ_j log Φ(r/√(1 + p_j²/(d σ²))) over r and σ² in [`low`, `high`], to five digits."""
    # The rare items are alike, so one entry serves all of them.
    alike = p**2 < 1e-8 * d * low
    p, sizes = np.append(p[~alike], 0.0), np.append(sizes[~alike], sizes[alike].sum())
    # r is at most ‖u_i‖ √d, and e^-r²/2 needs small steps only where r is small.
    ratios, variances = (
        np.linspace(-2.5, np.arcsinh(2 * np.sqrt(d) + 10), 200),
        np.linspace(np.log(low), np.log(high), 100),
    )
    stretches = np.sqrt(1 + p**2 / d * np.exp(-variances)[:, None])
    # Row by row, since all at once would be a large array.
    sums = np.stack([log_ndtr(ratio / stretches) @ sizes for ratio in np.sinh(ratios)])
    spline = RectBivariateSpline(ratios, variances, np.log(np.maximum(-sums, 1e-290)))

    def evaluated(ratio: _Samples, variance: _Samples) -> _Samples:
        inside = (
            np.clip(np.arcsinh(ratio), ratios[0], ratios[-1]),
            np.clip(np.log(variance), variances[0], variances[-1]),
        )
        return -np.exp(spline.ev(*inside))

    return evaluated


def _total(sizes: Numbers, probability: Callable[[int], float]) -> float:
    """Sum sizes × probability, which falls with i, until the rest is negligible."""
    total, left = 0.0, float(sizes.sum())
    for i, size in enumerate(sizes):
        found = probability(i)
        total, left = total + float(size) * found, left - float(size)
        if left * found < 1e-5 * total:
            break
    return total


@checked
def nodes(
    n: float, alpha: float, most: float, width: float, breaks: Sequence[float] = ()
) -> tuple[Numbers, Numbers, Numbers]:
    """Nodes for sums over items: Σ_i f(p_i) is Σ sizes f(p) for f smooth in α log i.

    Returns frequencies, the number of items for each, and the items. The sum over items beyond the
    first is the integral from half an item before the next to half an item after the last, up to a
    24th of the differences of f' there. Panels are `width` wide in log i; beyond the item `most`,
    where f is almost constant, 10. f may jump at `breaks`, from the items up to a break to those
    beyond.
    """
    bounds = [0.0, *sorted({float(np.floor(b)) for b in breaks if b >= 1}), n]
    numbers, sizes = [], []
    for start, end in pairwise(bounds):
        single = min(int(end - start), SINGLE)
        numbers.append(start + np.arange(1.0, single + 1))
        sizes.append(np.ones(single))
        first, last = np.log(start + single + 0.5), np.log(end + 0.5)
        middle = np.clip(np.log(most), first, last)
        edges = np.unique(
            np.concatenate([_edges(first, middle, width), _edges(middle, last, 10.0)])
        )
        half = np.diff(edges)[:, None] / 2
        at, weights = legendre(ORDER)
        numbers.append(np.exp(edges[:-1, None] + half * (1 + at)).ravel())
        sizes.append(numbers[-1] * (half * weights).ravel())
    items, counts = np.concatenate(numbers), np.concatenate(sizes)
    p = items**-alpha
    return p / np.sum(counts * p), counts, items


def _edges(low: float, high: float, width: float) -> Float[np.ndarray, " edges"]:
    return np.linspace(low, high, int(np.ceil((high - low) / width)) + 1)
