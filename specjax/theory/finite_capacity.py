"""How many items one population step recovers at finite d and N: a count without fitted numbers, where the paper has exponents.

Beyond the paper. Given item i, the logits of all others are nearly independent Gaussians, so that

    E[count] = Σ_i E_x Π_{j≠i} Φ(x_i / σ_ij),   x_i the logit of i itself,

and all that is left are the mean and the spread of x_i and the standard deviations σ_ij, to leading order in 1/d:

* Muon. W is orthogonal, so ‖W v_i‖ = ‖v_i‖ and σ_ij = 1/√d for every j. The mean of x_i is s_i = (2/π) ∫₀^∞ p_i g² / (1 + p_i² g²) dt,
  from the add-back of u_i v_iᵀ into the resolvent of (GGᵀ + t²)⁻¹ G, where g(t) = (1/d) tr t (GGᵀ + t²)⁻¹ solves
  (1/d) Σ_k p_k² g² / (1 + p_k² g²) = 1 - t g.
* Newton. By Sherman–Morrison s_i = p_i m and, with a_k = p_k / (1 + p_k m), σ_ij² = (m₂ a_j² + s_i² + m₂ Σ_k a_k² / d) / d, up to a common
  factor; m = (1/d) tr M_v⁻¹ solves Σ_k p_k m / (1 + p_k m) = d and m₂ = (1/d) tr M_v⁻².
* Gradient descent. s_i = p_i and σ_ij² = (p_j² + p_i² + Σ_k p_k² / d) / d, with ⟨v_i, v_j⟩ of the first few competitors averaged over
  and not replaced by their mean square, since few of them decide.

The spread of x_i is that of the part of W v_i that is not along u_i, and of ‖u_i‖² ‖v_i‖ against the competitors, 5 / (2d) of s_i².
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr

from specjax.theory.capacity import OPTIMIZERS, check_alpha

LENGTHS = 2.5
"""d times the relative variance of ‖u_i‖² ‖v_i‖."""
BINS = 250
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(21)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()
_FIRST, _DRAWS = 40, 400
_NODES = 3000

Numbers = Float[np.ndarray, " bins"]


def expected_count(optimizer: str, d: int | float, n: int | float, alpha: float) -> float:
    """The number of items that one population step with p_i ∝ i^-α is expected to recover; d < n.

    Items are taken in bins of nearly equal p, so that n may be as large as Theorem 3.1 wants it, n ≳ d^(2α+2). Accurate to a few per
    cent from d = 64 on for Muon and Newton; the experiment `memory-one-step` sets it beside measured counts.

    Raises:
        ValueError: α <= 1, another optimizer, or not 2 <= d < n.
    """
    check_alpha(alpha)
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"There is a prediction for {', '.join(OPTIMIZERS)}, not for {optimizer!r}.")
    if not 2 <= d < n:
        raise ValueError(f"A count needs 2 <= d < n, got d={d} and n={n}.")
    p, sizes = _bins(float(n), alpha)
    return {"muon": _muon, "newton": _newton, "gd": _gradient_descent}[optimizer](float(d), p, sizes)


def distinct_items(n: int, alpha: float, batch: int | float) -> float:
    """The expected number of distinct items among `batch` draws from p_i ∝ i^-α, i <= n: Σ_i 1 - (1 - p_i)^B."""
    p = np.arange(1.0, n + 1) ** -alpha
    return float(-np.expm1(batch * np.log1p(-p / p.sum())).sum())


def muon_signal(d: int | float, p: Float[np.ndarray, " n"], sizes: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """s_i of Muon for items in bins with frequencies p and `sizes` members each, to seven digits and more; any common factor of p cancels.

    Raises:
        ValueError: there are not more items than d.
    """
    if not sizes.sum() > d:
        raise ValueError(f"Muon's signal needs more items than dimensions, got d={d} and {sizes.sum():g} items.")
    logs = np.log(p)

    def shares(log_g: float | np.ndarray) -> np.ndarray:
        """p² g² / (1 + p² g²) without the overflow of g²."""
        return expit(2 * (logs[:, None] + log_g))

    largest = brentq(lambda log_g: float(sizes @ shares(log_g)[:, 0]) / d - 1, -10, 30 - logs.min())
    # With g = g(0) e^-s, t is a function of s, and over log s both ends of ∫ … (dt/ds) ds fall off exponentially: a sum converges fast.
    s = np.geomspace(1e-12, largest + logs.max() + 40, _NODES)
    log_g = largest - s
    each = shares(log_g)
    # dt/ds, from t g = 1 - (1/d) Σ_k p_k² g² / (1 + p_k² g²).
    slope = (1 - sizes @ each / d + 2 * sizes @ (each * (1 - each)) / d) * np.exp(-log_g)
    return 2 / np.pi * np.log(s[1] / s[0]) * (each @ (slope * s)) / p


def _muon(d: float, p: Numbers, sizes: Numbers) -> float:
    signal = muon_signal(d, p, sizes)
    spread = np.sqrt((1 + (LENGTHS - 1) * signal**2) / d)
    return _count(signal, spread, np.full((len(p), 1), d**-0.5), np.full(len(p), d**-0.5), sizes)


def _newton(d: float, p: Numbers, sizes: Numbers) -> float:
    def excess(log_m: float) -> float:
        return float(np.sum(sizes * expit(np.log(p) + log_m)) / d - 1)

    m = np.exp(brentq(excess, -10, 30 - np.log(p.min())))
    a = p / (1 + p * m)
    m2 = 1 / (1 / m**2 - np.sum(sizes * a**2) / d)
    signal, rest = p * m, m2 * np.sum(sizes * a**2) / d
    deviations = np.sqrt((m2 * a[None, :] ** 2 + signal[:, None] ** 2 + rest) / d)
    spread = np.sqrt((rest + LENGTHS * signal**2) / d)
    return _count(signal, spread, deviations, np.diagonal(deviations), sizes)


def _count(
    signal: Numbers,
    spread: Numbers,
    deviations: Float[np.ndarray, "bins others"],
    own: Numbers,
    sizes: Numbers,
) -> float:
    """Σ_i E_x Π_{j≠i} Φ(x_i / σ_ij); where all σ_ij of an item are equal there is one column of them. `own` is σ_ii, divided out."""
    others = sizes if deviations.shape[1] > 1 else np.array([sizes.sum()])
    x = signal[:, None] + spread[:, None] * _POINTS
    logs = np.einsum("j,iqj->iq", others, log_ndtr(x[:, :, None] / deviations[:, None, :]))
    return float(np.sum(sizes * (np.exp(logs - log_ndtr(x / own[:, None])) @ _WEIGHTS)))


def _gradient_descent(d: float, p: Numbers, sizes: Numbers) -> float:
    """The average over ⟨v_i, v_j⟩ √d of the first competitors is one over fixed draws; the other competitors keep theirs squared."""
    first = min(_FIRST, int(np.argmax(sizes > 1)) or len(p))
    z = np.random.default_rng(0).standard_normal((_DRAWS, first))
    far = np.sum(sizes[first:] * p[first:] ** 2)
    square = (z**2 @ p[:first] ** 2 + far) / d
    stretch = 1 + np.sqrt(LENGTHS / d) * np.random.default_rng(1).standard_normal(_DRAWS)

    def probability(i: int) -> float:
        own = i < first
        rest = square - (z[:, i] ** 2 * p[i] ** 2 / d if own else 0)
        scale = np.sqrt((p[i] ** 2 + rest) / d)
        margins = (p[i] * stretch[:, None] - z * p[:first] / np.sqrt(d)) / scale[:, None]
        logs = log_ndtr(margins).sum(axis=1) - (log_ndtr(margins[:, i]) if own else 0)
        others = np.sqrt(scale[:, None] ** 2 + p[first:] ** 2 / d)
        logs = logs + log_ndtr(p[i] * stretch[:, None] / others) @ sizes[first:]
        return float(np.mean(np.exp(logs)))

    return _until_negligible(probability, sizes)


def _until_negligible(probability: Callable[[int], float], sizes: Numbers) -> float:
    total = 0.0
    for i, size in enumerate(sizes):
        found = size * probability(i)
        total += found
        if found < 1e-6 * total:
            break
    return total


def _bins(n: float, alpha: float) -> tuple[Numbers, Numbers]:
    """Frequencies and numbers of items in bins: single items first, then ranges that grow in proportion."""
    edges = np.unique(np.round(np.geomspace(1, n + 1, max(BINS, int(6 * np.log(n))))))
    middle, sizes = (edges[:-1] + edges[1:] - 1) / 2, np.diff(edges)
    p = middle**-alpha
    return p / np.sum(sizes * p), sizes
