"""Predicted exponents of capacity for frequencies p_i ∝ i^-α, α > 1 (associative-memory).

All are asymptotic: powers of the dimension d, up to logarithms. `specjax.theory.finite_capacity`
has counts at finite d.
"""

import math

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in

OPTIMIZERS = ("gd", "muon", "newton")


@checked
def one_step_exponent(optimizer: str, alpha: float, batch_exponent: float = math.inf) -> float:
    """The exponent e of the number d^e of items recovered by one step (Theorems 3.1, 3.3 and B.1).

    min(1 + 1/(2α), b/α) for "muon" and "newton", min(1/(2α), b/α) for "gd", with a batch of size
    d^b (default: the population).

    Raises:
        ValueError: α <= 1, a negative batch exponent, or another optimizer.

    Examples:
        >>> from specjax.theory import capacity
        >>> [round(capacity.one_step_exponent(name, 1.5), 2) for name in ("muon", "gd")]
        [1.33, 0.33]
    """
    check_in("[0, inf]", batch_exponent=batch_exponent)
    return min(_step_exponent(optimizer, alpha), batch_exponent / alpha)


@checked
def critical_batch_exponent(optimizer: str, alpha: float) -> float:
    """α + 1/2 (Muon, Newton) or 1/2 (SGD): larger batches gain nothing (Theorems 3.1, 3.3)."""
    return alpha * _step_exponent(optimizer, alpha)


@checked
def multi_step_exponents(
    optimizer: str, alpha: float, steps: int, batch_exponent: float = math.inf
) -> list[float]:
    """Exponents after 0, 1, ..., `steps` steps of the thresholded dynamics.

    For "muon" 2 - (1 - 1/(2α))^t (Theorem 4.1). For "gd" the recursion of Theorem 4.2 from d_0 = 1:
    e + 1/(2α) up to e = 1, then 1/α + (1 - 1/(2α)) e. Each is at most b/α with batches of size d^b.

    Raises:
        ValueError: α <= 1, an optimizer other than these two, a negative batch exponent, or fewer
            than 0 steps.

    Examples:
        >>> from specjax.theory import capacity
        >>> [round(exponent, 2) for exponent in capacity.multi_step_exponents("muon", 1.5, 2)]
        [0.0, 1.33, 1.56]
    """
    check_alpha(alpha)
    if optimizer not in ("gd", "muon"):
        raise ValueError(f"Several steps are predicted for 'gd' and 'muon', not {optimizer!r}.")
    if steps < 0:
        raise ValueError(f"The number of steps must not be negative, got {steps}.")
    check_in("[0, inf]", batch_exponent=batch_exponent)
    half, limit = 1 / (2 * alpha), batch_exponent / alpha
    exponents = [0.0]
    for t in range(1, steps + 1):
        last = exponents[-1]
        of_gd = last + half if last < 1 else 2 * half + (1 - half) * last
        following = 2 - (1 - half) ** t if optimizer == "muon" else of_gd
        exponents.append(min(following, limit))
    return exponents


@checked
def loss_exponent(optimizer: str, alpha: float) -> float:
    """The exponent of the loss after one population step, (1 - α) times the capacity's.

    This is the mass of the items not recovered: for Muon and Newton an upper bound, 1/2 + 1/(2α) -
    α (Corollary 3.2); for gradient descent a lower one, 1/(2α) - 1/2 (G.1).
    """
    return (1 - alpha) * _step_exponent(optimizer, alpha)


@checked
def singular_value_exponents(alpha: float) -> dict[str, float]:
    """Exponents of the gradient's spectrum at zero (Appendix B.2 and Lemma C.3).

    `bulk` belongs to s_{d/2} and `resolution` to the λ of Theorem 3.1; `smallest` bounds the
    exponent of s_d from below, and `inverse_sum` that of Σ 1/s_k from above.
    """
    check_alpha(alpha)
    return {"bulk": -alpha, "smallest": -alpha - 1, "inverse_sum": alpha + 1, "resolution": -alpha}


@checked
def check_alpha(alpha: float) -> None:
    """Raise ValueError unless α > 1, without which Σ i^-α diverges and the theorems do not hold."""
    if not (math.isfinite(alpha) and alpha > 1):
        raise ValueError(f"The exponents hold for power laws with finite α > 1, got α={alpha}.")


def _step_exponent(optimizer: str, alpha: float) -> float:
    check_alpha(alpha)
    if optimizer not in OPTIMIZERS:
        raise ValueError(
            f"There is a prediction for {', '.join(OPTIMIZERS)}, not for {optimizer!r}."
        )
    return 1 / (2 * alpha) + (optimizer != "gd")
