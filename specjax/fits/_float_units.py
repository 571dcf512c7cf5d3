"""Units in which sums and squares of very large or small floats neither overflow nor underflow."""

import numpy as np
from jaxtyping import Float


def unit_of(values: Float[np.ndarray, "..."], axis: int | None = None) -> Float[np.ndarray, "..."]:
    """The power of two of the largest finite magnitude along an axis, or of all; 1 if all are 0.

    The axes are kept. Division by it is exact.
    """
    largest = np.max(np.where(np.isfinite(values), np.abs(values), 0.0), axis=axis, keepdims=True)
    return np.where(largest > 0, np.ldexp(1.0, np.clip(np.frexp(largest)[1], -1000, 1000)), 1.0)
