"""The Newton–Schulz iteration that optax's arguments `ns_coeffs`, `ns_steps` and `preconditioning`
describe.
"""

from typing import Any, Literal

import jax
import numpy as np

from specjax.arguments import check_count, shown
from specjax.optim._orthogonal import Method
from specjax.spectral.methods import NewtonSchulz
from specjax.spectral.methods.newton_schulz import Scaling, newton_schulz_steps
from specjax.spectral.polynomials import MUON, Quintic

Coefficients = tuple[float, float, float]
Preconditioning = Literal["frobenius", "spectral", "aol", "schatten"]

# A plain tuple, since optax.inject_hyperparams treats a callable, such as a Quintic, as a schedule.
STANDARD: Coefficients = (MUON.a, MUON.b, MUON.c)
_PRESETS: dict[str, Quintic | tuple[Quintic, ...]] = {
    "standard": MUON,
    # Ahn et al. 2025, arXiv 2504.05295.
    "dion": (
        Quintic(4.0848, -6.8946, 2.9270),
        Quintic(3.9505, -6.3029, 2.6377),
        Quintic(3.7418, -5.5913, 2.3037),
        Quintic(2.8769, -3.1427, 1.2046),
        Quintic(2.8366, -3.0525, 1.2012),
    ),
}


_SCALINGS: dict[str, Scaling] = {
    "aol": "aol",
    "frobenius": "frobenius",
    "schatten": "schatten-4",
    "spectral": "spectral",
}


def newton_schulz_method(ns_coeffs: Any, ns_steps: Any, preconditioning: Any) -> Method:
    """The method that optax's three arguments describe.

    Raises:
        ValueError: for coefficients that are not triples of finite numbers, more triples than
            steps, fewer steps than 1, or an unknown preconditioning.
    """
    if preconditioning not in _SCALINGS:
        raise ValueError(
            f"muon needs one of {', '.join(_SCALINGS)} as preconditioning, got"
            f" {shown(preconditioning)}."
        )
    scaling = _SCALINGS[preconditioning]
    is_preset = isinstance(ns_coeffs, str) and ns_coeffs in _PRESETS
    coefficients = _PRESETS[ns_coeffs] if is_preset else _quintics(ns_coeffs)
    # optax.inject_hyperparams passes every number as an array.
    is_array = isinstance(ns_steps, jax.Array)
    if not is_array:
        check_count(ns_steps, "ns_steps", 1, "muon")
    if not isinstance(coefficients, Quintic):
        if not is_array and len(coefficients) > ns_steps:
            raise ValueError(
                f"muon takes each of the {len(coefficients)} steps of ns_coeffs, got"
                f" ns_steps={ns_steps}; set ns_steps={len(coefficients)}."
            )
        return NewtonSchulz(len(coefficients), coefficients, scaling=scaling)
    if is_array:
        return lambda x: newton_schulz_steps(x, coefficients, ns_steps, scaling)
    return NewtonSchulz(ns_steps, coefficients, scaling=scaling)


def _quintics(ns_coeffs: object) -> Quintic | tuple[Quintic, ...]:
    """Polynomials from numbers of the shape (3,) or (steps, 3)."""
    try:
        numbers = np.asarray(ns_coeffs, float)
    except (TypeError, ValueError, jax.errors.TracerArrayConversionError):
        numbers = np.zeros(0)
    if numbers.ndim not in (1, 2) or numbers.shape[-1] != 3 or not np.isfinite(numbers).all():
        raise ValueError(
            "muon needs ns_coeffs=(a, b, c), one such triple for each step, or one of"
            f" {', '.join(map(repr, _PRESETS))}, got {shown(ns_coeffs)}; numbers, not traced"
            " arrays."
        )
    if numbers.ndim == 1:
        return Quintic(*numbers.tolist())
    return tuple(Quintic(*row) for row in numbers.tolist())
