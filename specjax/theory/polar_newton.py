"""Step counts of Newton's iteration X ← (X + X⁻ᵀ)/2 for the polar factor (Claim 11).

The map X (I + (XᵀX)⁻¹)/2 is the same. Each singular value obeys s ← (s + 1/s)/2 (Higham, Functions
of Matrices, Section 8.3). So the error, the largest |s - 1|, follows a recursion in the extreme
singular values alone. From any s > 0 the first step leads to s >= 1, and then e ← e² / (2 (1 + e)):
the convergence is global, quadratic with constant 1/2 near the limit, and halves a large e.
"""

import numpy as np
from jaxtyping import ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in


@checked
def newton_errors(smallest: ArrayLike, largest: ArrayLike, steps: int) -> Float[np.ndarray, "..."]:
    """The largest |s - 1| of X_0 ... X_steps for s from `smallest` to `largest`, along axis 0.

    After the first step the largest singular value comes from one of the two ends, since s + 1/s
    has no interior maximum.

    Raises:
        ValueError: a singular value that is not positive, which no step can move to 1.
    """
    check_in("(0, inf)", smallest=smallest, largest=largest)
    ends = np.stack(np.broadcast_arrays(np.asarray(smallest, float), np.asarray(largest, float)))
    errors = [np.max(np.abs(ends - 1), axis=0)]
    for _ in range(steps):
        ends = (ends + 1 / ends) / 2
        errors.append(np.max(np.abs(ends - 1), axis=0))
    return np.stack(errors)


@checked
def newton_steps(
    smallest: ArrayLike, largest: ArrayLike, tolerance: float, most: int = 200
) -> np.ndarray:
    """Steps until max |s - 1| <= `tolerance`, about log2(1/smallest) + 4 for small `smallest`.

    Raises:
        ValueError: more than `most` steps.

    Examples:
        >>> from specjax.theory import polar_newton
        >>> int(polar_newton.newton_steps(1e-3, 1.0, 1e-6))
        13
    """
    reached = newton_errors(smallest, largest, most) <= tolerance
    if not np.all(np.any(reached, axis=0)):
        raise ValueError(
            f"The iteration needs more than {most} steps; give a larger bound or tolerance."
        )
    return np.asarray(np.argmax(reached, axis=0))
