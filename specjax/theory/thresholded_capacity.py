"""How many items several thresholded steps recover at finite d and N: counts without fitted numbers, where the paper has exponents.

Beyond the paper. With the gradient of eq. 5, -Σ_{i>d_s} p_i u_i v_iᵀ, the steps do not depend on one another but for the thresholds d_s, so
that W = Σ_s W_s is a sum of functions of sums of independent terms.

* Gradient descent. W = Σ_k c_k u_k v_kᵀ with c_k = p_k Σ_{s: d_s<k} η_s: the count is that of one step with the frequencies c_k.
* Muon. Each W_s is orthogonal. The signal of item i is the sum of those of `finite_capacity` for the items beyond d_s. The variance of
  all logits u_jᵀ W v_i is Σ_rs κ_rs/d, κ_rs that of W_r and W_s. It follows from W = (2/π) ∫ (GGᵀ + t²)⁻¹ G dt and the product of two
  resolvents: with q_k = p_k g(t), of which the items up to d_s have none, and for the rare j, of which nearly all N are,

      κ_rs = (2/π)² ∫∫ (w + q_i q_i' z) / ((1 + q_i²) (1 + q_i'²)) dt dt',  w = g g' B/D,  z = g g' (1 - A)/D,  D = (1 - A)² - B²,
      A = (1/d) Σ_k q_k² q_k'² / ((1 + q_k²) (1 + q_k'²)),  B = (1/d) Σ_k q_k q_k' / ((1 + q_k²) (1 + q_k'²)),

  by the add-back of u_k v_kᵀ into both. For r = s the integral is 1 for every q_i, which the tests use.

  The logit of item i itself is x_i = (2/π) ∫ (c + p_i ab)/(1 + p_i² ab + 2 p_i c) dt, where a = u_iᵀ R u_i and b = v_iᵀ R' v_i have the
  mean g and the variance 2z/d, and c = u_iᵀ Q v_i has 0 and w/d, with the blocks R, R' and Q of the resolvent without item i. To first
  order in what fluctuates, relative to ‖v_i‖, with which the logits of competitors grow,

      d Var x_i = (2/π)² ∫∫ Σ_rs [(1 - q²) (1 - q'²) w + 4 q q' z] / ((1 + q²)² (1 + q'²)²) dt dt' - 2 s_i τ_i + s_i²/2,

  τ_i = (2/π) ∫ Σ_s q g / (1 + q²)² dt. For small q this is Σ κ_rs + 3/2 s_i², which `finite_capacity` has for every q; of a signal that is
  saturated it is far less. That decides where the items recovered are few of those with a signal, as after four steps at d = 64.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import log_ndtr

from specjax.theory import finite_capacity
from specjax.theory.capacity import check_alpha, multi_step_exponents

POINTS = 300
"""Points of the integral over t, in the logarithm of g(0)/g(t)."""
DRAWS = 1024
"""Points of the average for gradient descent: after several steps no few competitors decide, and its error is 3e-3."""
_STEPS = np.arange(-6.5, 6.6, 0.2)
_WEIGHTS = np.exp(-(_STEPS**2) / 2) / np.sum(np.exp(-(_STEPS**2) / 2))

Numbers = Float[np.ndarray, " nodes"]


def thresholds(optimizer: str, d: int | float, alpha: float, steps: int, share: float = 1.0) -> list[float]:
    """d_s = share d^(e_s) before the steps s = 0, ..., `steps` - 1, e_s the exponents of Theorem 4.1 or 4.2, and d_0 = 0."""
    return [0.0, *(share * float(d) ** e for e in multi_step_exponents(optimizer, alpha, steps - 1)[1:])]


def rates(d: int | float, alpha: float, steps: int) -> list[float]:
    """η_s = d_{s+1}^α, with which gradient descent attains the exponents of Theorem 4.2."""
    return [float(d) ** (alpha * e) for e in multi_step_exponents("gd", alpha, steps)[1:]]


def expected_counts(
    optimizer: str,
    d: int | float,
    n: int | float,
    alpha: float,
    after: Sequence[float],
    etas: Sequence[float] | None = None,
) -> Float[np.ndarray, " steps"]:
    """The numbers of items that each of several thresholded steps leaves recovered, p_i ∝ i^-α.

    Args:
        optimizer: "muon" or "gd".
        d: Dimension.
        n: Items N; more than d are to be beyond the last threshold.
        alpha: Exponent of the frequencies.
        after: d_s for each step, whole or not, ascending from 0: items up to d_s are not in the gradient.
        etas: Learning rates of gradient descent; those of Muon are equal.

    Raises:
        ValueError: α <= 1, another optimizer, thresholds that are not as said, or not as many learning rates.
    """
    p, sizes, items = _checked(optimizer, d, n, alpha, after, etas)
    if optimizer == "muon":
        steps = muon_steps(d, p, sizes, items, after)
        return np.array([sizes @ share for share in _recovered(d, n, steps, p, items)])
    weights = [
        p * np.sum([eta * (items > bound) for eta, bound in zip((etas or ())[:t], after[:t], strict=True)], axis=0)
        for t in range(1, len(after) + 1)
    ]
    orders = [np.argsort(-c, kind="stable") for c in weights]
    return np.array(
        [
            finite_capacity.gradient_descent(float(d), c[o], sizes[o], DRAWS)
            for c, o in zip(weights, orders, strict=True)
        ]
    )


def last_item(d: int | float, n: int | float, alpha: float, after: Sequence[float]) -> float:
    """The item beyond the last threshold that all steps of Muon leave recovered in half of the draws; arguments as above.

    Raises:
        ValueError: as above, or there is none.
    """
    p, sizes, items = _checked("muon", d, n, alpha, after, None)
    steps = muon_steps(d, p, sizes, items, after)

    def excess(log_item: float) -> float:
        item = np.exp([log_item])
        return float(_recovered(d, n, steps, p[0] * item**-alpha, item)[-1][0]) - 0.5

    # Beyond the threshold in floating point too.
    low, high = np.log(after[-1] + 1) + 1e-9, np.log(n)
    if excess(low) < 0:
        raise ValueError(f"No item beyond the last of the thresholds {tuple(after)} is recovered at d={d}.")
    return float(np.exp(brentq(excess, low, high, xtol=1e-6)))


def _checked(
    optimizer: str, d: int | float, n: int | float, alpha: float, after: Sequence[float], etas: Sequence[float] | None
) -> tuple[Numbers, Numbers, Numbers]:
    check_alpha(alpha)
    if optimizer not in ("gd", "muon"):
        raise ValueError(f"Several steps are predicted for 'gd' and 'muon', not {optimizer!r}.")
    if not after or after[0] != 0 or list(after) != sorted(after) or not after[-1] + d < n:
        raise ValueError(
            f"Thresholds need to ascend from 0 and to leave more than d={d} of n={n} items, got {tuple(after)}."
        )
    if (optimizer == "gd") != (etas is not None) or (etas is not None and len(etas) != len(after)):
        raise ValueError(
            f"Gradient descent needs a learning rate for each of {len(after)} steps, and Muon none, got {etas}."
        )
    return finite_capacity.nodes(
        float(n), alpha, 1e4 * max(float(d), after[-1]) * float(d) ** 0.5, 1.0 / alpha, after[1:]
    )


class Step(NamedTuple):
    """One step of Muon: its threshold, g(t) with weights of ∫ … dt, and for each step what multiplies w and z in κ."""

    after: float
    g: Numbers
    weights: Numbers
    ones: list[Float[np.ndarray, "points points"]]
    twos: list[Float[np.ndarray, "points points"]]


def muon_steps(d: int | float, p: Numbers, sizes: Numbers, items: Numbers, after: Sequence[float]) -> list[Step]:
    """The steps with these thresholds on the nodes `finite_capacity.nodes`, for `logits`."""
    masks = [items > bound for bound in after]
    grids = [finite_capacity.resolvent(d, p[mask], sizes[mask], POINTS, 1e-6, 15.0) for mask in masks]
    steps = [Step(bound, np.exp(log_g), weights, [], []) for bound, (log_g, weights) in zip(after, grids, strict=True)]
    qs = [np.where(mask, p, 0.0)[:, None] * step.g for mask, step in zip(masks, steps, strict=True)]
    shares = [q / (1 + q**2) for q in qs]
    for (first, q, a), (second, r, b) in product(zip(steps, qs, shares, strict=True), repeat=2):
        fours = (a * q * sizes[:, None]).T @ (b * r) / d
        twos = (a * sizes[:, None]).T @ b / d
        factor = np.outer(first.g * first.weights, second.g * second.weights) / ((1 - fours) ** 2 - twos**2)
        first.ones.append(factor * twos)
        first.twos.append(factor * (1 - fours))
    return steps


def logits(
    steps: Sequence[Step], q: Numbers, at: Numbers
) -> tuple[Float[np.ndarray, "steps some"], Float[np.ndarray, "steps steps some"]]:
    """Signals and κ of items `at` of frequencies q, at each step, and at each pair of them."""
    own = _own(steps, q, at)
    kept = [1 / (1 + x**2) for x in own]
    shares = [x * y for x, y in zip(own, kept, strict=True)]
    return _integrals(steps, shares), _overlaps(steps, kept, 1.0, shares)


def spreads(steps: Sequence[Step], q: Numbers, at: Numbers) -> Float[np.ndarray, "steps some"]:
    """Variances of the own logits u_iᵀ W v_i/‖v_i‖, times d, of items `at` of frequencies q, after each step."""
    own = _own(steps, q, at)
    responses = [x / (1 + x**2) ** 2 for x in own]
    pairs = _overlaps(steps, [(1 - x**2) / (1 + x**2) ** 2 for x in own], 4.0, responses)
    signals, taus = (np.cumsum(_integrals(steps, of), axis=0) for of in ([x / (1 + x**2) for x in own], responses))
    both = np.stack([pairs[:t, :t].sum((0, 1)) for t in range(1, len(steps) + 1)])
    return both - 2 * signals * taus + signals**2 / 2


def _own(steps: Sequence[Step], q: Numbers, at: Numbers) -> list[Float[np.ndarray, "some points"]]:
    return [np.where(at > step.after, q, 0.0)[:, None] * step.g for step in steps]


def _integrals(
    steps: Sequence[Step], values: Sequence[Float[np.ndarray, "some points"]]
) -> Float[np.ndarray, "steps some"]:
    """(2/π) ∫ values g dt at each step."""
    return np.stack([value @ (step.g * step.weights) for value, step in zip(values, steps, strict=True)])


def _overlaps(
    steps: Sequence[Step],
    first: Sequence[Float[np.ndarray, "some points"]],
    factor: float,
    second: Sequence[Float[np.ndarray, "some points"]],
) -> Float[np.ndarray, "steps steps some"]:
    """(2/π)² ∫∫ (first first' w + factor second second' z) dt dt' at each pair of steps."""
    return np.array(
        [
            [
                np.sum((first[r] @ one) * first[s] + factor * (second[r] @ two) * second[s], axis=1)
                for s, (one, two) in enumerate(zip(steps[r].ones, steps[r].twos, strict=True))
            ]
            for r in range(len(steps))
        ]
    )


def _recovered(d: int | float, n: int | float, steps: Sequence[Step], q: Numbers, at: Numbers) -> list[Numbers]:
    """The probability of each item to be recovered after each step."""
    signals, kappas = logits(steps, q, at)
    widths = spreads(steps, q, at)
    found = []
    for t in range(1, len(signals) + 1):
        signal, variance = signals[:t].sum(0), kappas[:t, :t].sum((0, 1))
        x = (np.sqrt(d) * signal[:, None] + np.sqrt(widths[t - 1])[:, None] * _STEPS) / np.sqrt(variance)[:, None]
        found.append(np.exp((n - 1) * log_ndtr(x)) @ _WEIGHTS)
    return found
