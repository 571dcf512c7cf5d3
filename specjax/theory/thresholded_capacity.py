"""Numbers of items that several thresholded steps recover at finite d and N, without fits.

The paper has exponents only. With the gradient of eq. 5, -Σ_{i>d_s} p_i u_i v_iᵀ, the steps depend
on one another only by the thresholds d_s, so that W = Σ_s W_s is a sum of functions of sums of
independent terms.

* Gradient descent. W = Σ_k c_k u_k v_kᵀ with c_k = p_k Σ_{s: d_s<k} η_s: the count is that of one
  step with the frequencies c_k.
* Muon. The logits of a sum of orthogonal W_s are those of `muon_logits`: an item is recovered where
  its own, of mean Σ_s s_i and with its spread, exceeds those of N - 1 competitors of variance Σ_rs
  κ_rs/d.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq
from scipy.special import log_ndtr

from specjax.arguments import checked
from specjax.theory import finite_capacity, muon_logits
from specjax.theory.capacity import check_alpha, multi_step_exponents

SAMPLES = 1024
"""Points of the average for gradient descent, whose error after several steps is 3e-3."""
_STEPS = np.arange(-6.5, 6.6, 0.2)
_WEIGHTS = np.exp(-(_STEPS**2) / 2) / np.sum(np.exp(-(_STEPS**2) / 2))

Numbers = Float[np.ndarray, " nodes"]


@checked
def thresholds(
    optimizer: str, d: int | float, alpha: float, steps: int, share: float = 1.0
) -> list[float]:
    """d_s = share d^(e_s) before steps s = 0, ..., with d_0 = 0 and e_s of Theorem 4.1 or 4.2."""
    return [
        0.0,
        *(share * float(d) ** e for e in multi_step_exponents(optimizer, alpha, steps - 1)[1:]),
    ]


@checked
def rates(d: int | float, alpha: float, steps: int) -> list[float]:
    """η_s = d_{s+1}^α, with which gradient descent attains the exponents of Theorem 4.2."""
    return [float(d) ** (alpha * e) for e in multi_step_exponents("gd", alpha, steps)[1:]]


@checked
def expected_counts(
    optimizer: str,
    d: int | float,
    n: int | float,
    alpha: float,
    after: Sequence[float],
    etas: Sequence[float] | None = None,
) -> Float[np.ndarray, " steps"]:
    """The numbers of items recovered after each of several thresholded steps, p_i ∝ i^-α.

    Args:
        optimizer: "muon" or "gd".
        d: Dimension.
        n: Items N, more than d of them beyond the last threshold.
        alpha: Exponent of the frequencies.
        after: d_s for each step, ascending from 0, possibly fractional: items up to d_s are not in
            the gradient.
        etas: Learning rates of gradient descent; those of Muon are equal.

    Raises:
        ValueError: α <= 1, another optimizer, thresholds that violate these conditions, or a wrong
            number of learning rates.
    """
    p, sizes, items = _checked(optimizer, d, n, alpha, after, etas)
    if optimizer == "muon":
        steps = muon_logits.muon_steps(d, p, sizes, items, after)
        return np.array([sizes @ share for share in _recovered(d, n, steps, p, items)])
    weights = [
        p
        * np.sum(
            [eta * (items > bound) for eta, bound in zip((etas or ())[:t], after[:t], strict=True)],
            axis=0,
        )
        for t in range(1, len(after) + 1)
    ]
    orders = [np.argsort(-c, kind="stable") for c in weights]
    return np.array(
        [
            finite_capacity.gradient_descent(float(d), c[o], sizes[o], SAMPLES)
            for c, o in zip(weights, orders, strict=True)
        ]
    )


@checked
def last_item(d: int | float, n: int | float, alpha: float, after: Sequence[float]) -> float:
    """The last item beyond all thresholds that Muon recovers in half of the samples; see above.

    Raises:
        ValueError: as above, or no such item.
    """
    p, sizes, items = _checked("muon", d, n, alpha, after, None)
    steps = muon_logits.muon_steps(d, p, sizes, items, after)

    def excess(log_item: float) -> float:
        item = np.exp([log_item])
        return float(_recovered(d, n, steps, p[0] * item**-alpha, item)[-1][0]) - 0.5

    # The item must be beyond the threshold in floating point too.
    low, high = np.log(after[-1] + 1) + 1e-9, np.log(n)
    if excess(low) < 0:
        raise ValueError(
            f"No item beyond the last of the thresholds {tuple(after)} is recovered at d={d}."
        )
    return float(np.exp(brentq(excess, low, high, xtol=1e-6)))


def _checked(
    optimizer: str,
    d: int | float,
    n: int | float,
    alpha: float,
    after: Sequence[float],
    etas: Sequence[float] | None,
) -> tuple[Numbers, Numbers, Numbers]:
    check_alpha(alpha)
    if optimizer not in ("gd", "muon"):
        raise ValueError(f"Several steps are predicted for 'gd' and 'muon', not {optimizer!r}.")
    if not after or after[0] != 0 or list(after) != sorted(after) or not after[-1] + d < n:
        raise ValueError(
            f"Thresholds need to ascend from 0 and to leave more than d={d} of n={n} items, got"
            f" {tuple(after)}."
        )
    if (optimizer == "gd") != (etas is not None) or (etas is not None and len(etas) != len(after)):
        raise ValueError(
            f"Gradient descent needs a learning rate for each of {len(after)} steps, and Muon none,"
            f" got {etas}."
        )
    return finite_capacity.nodes(
        float(n), alpha, 1e4 * max(float(d), after[-1]) * float(d) ** 0.5, 1.0 / alpha, after[1:]
    )


def _recovered(
    d: int | float, n: int | float, steps: Sequence[muon_logits.Step], q: Numbers, at: Numbers
) -> list[Numbers]:
    """The probability that each item is recovered after each step."""
    signals, kappas = muon_logits.logits(steps, q, at)
    widths = muon_logits.spreads(steps, q, at)
    found = []
    for t in range(1, len(signals) + 1):
        signal, variance = signals[:t].sum(0), kappas[:t, :t].sum((0, 1))
        x = (np.sqrt(d) * signal[:, None] + np.sqrt(widths[t - 1])[:, None] * _STEPS) / np.sqrt(
            variance
        )[:, None]
        found.append(np.exp((n - 1) * log_ndtr(x)) @ _WEIGHTS)
    return found
