"""Fits in one line, as they print."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from specjax.sweep.fit import PowerLawFit
    from specjax.sweep.offset_fit import OffsetFit


def one_line(fit: "PowerLawFit | OffsetFit", r_squared: float) -> str:
    """A fit as "exponent 0.482 (0.471 to 0.493, 95 %, bootstrap of 400 seeds), R² 0.9991"."""
    low, high = fit.interval
    noise = f"{100 * fit.level:g} %, bootstrap of {fit.resampled}" if fit.stderr > 0 else "no seed noise"
    return f"exponent {fit.exponent:.3g} ({low:.3g} to {high:.3g}, {noise}), R² {r_squared:.4g}"


def share_of_variance(y: Float[np.ndarray, " n"], curve: Float[np.ndarray, " n"]) -> float:
    """R² = 1 - Σ (y - curve)² / Σ (y - ȳ)²; 1 where y is constant and so is the curve."""
    left, whole = float(np.sum((y - curve) ** 2)), float(np.sum((y - y.mean()) ** 2))
    return 1.0 - left / whole if whole > 0 else float(left == 0)
