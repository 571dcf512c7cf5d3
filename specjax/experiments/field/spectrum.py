"""Steps with a gradient's singular vectors and other singular values: powers, Kaon's, random.

Freon steps along (G Gᵀ)^-c G, whose singular values are s^(1-2c): the gradient at c = 0, Muon at c
= 1/2, and quasi-norms beyond, where small values become large. Kaon replaces Muon's five
Newton–Schulz steps by a chaotic map (Shumaylov et al. 2026, arXiv 2605.11181).
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax import spectral
from specjax.linalg import svd
from specjax.spectral.polynomials import Quintic

FACTOR = 4.1
KAON = spectral.NewtonSchulz(coefficients=Quintic(FACTOR, -2 * FACTOR, FACTOR))
"""s ← 4.1 s (1 - s²)², five times from x / ‖x‖_F: gives `optim.muon` Kaon's direction."""

Values = Float[Array, "*batch k"]


def _kaon(s: Values, random: Values) -> Values:
    del random
    for _ in range(KAON.steps):
        s = FACTOR * s * (1 - s**2) ** 2
    return s


def _power(p: float) -> Callable[[Values, Values], Values]:
    return lambda s, _: s**p


SPECTRA: dict[str, Callable[[Values, Values], Values]] = {
    "gradient": _power(1.0),
    "Muon": _power(0.0),
    "-1/3": _power(-1 / 3),
    "inverse": _power(-1.0),
    "Kaon": _kaon,
    "uniform": lambda _, random: random,
}
"""New singular values from those of x / ‖x‖_F and random numbers, fresh at every step."""


def replaced(
    x: Float[Array, "*batch m n"], kind: Int[Array, ""], random: Values
) -> tuple[Float[Array, "*batch m n"], Float[Array, "*batch"]]:
    """U diag(v) Vᵀ, ‖v‖² the number of singular values of x = U S Vᵀ, and ⟨x, U diag(v) Vᵀ⟩.

    `kind` is an index of `SPECTRA`. Singular values up to 64 roundings of the largest stay zero, as
    in `spectral.spectral_power`.
    """
    u, s, vt = svd(x)
    kept = s > 64 * jnp.finfo(s.dtype).eps * s[..., :1]
    unit = jnp.where(kept, s / jnp.linalg.norm(s, axis=-1, keepdims=True), 1)
    values = jnp.where(kept, jnp.stack([of(unit, random) for of in SPECTRA.values()])[kind], 0)
    size = jnp.linalg.norm(values, axis=-1, keepdims=True)
    values = values * s.shape[-1] ** 0.5 / jnp.where(size > 0, size, 1)
    return (u * values[..., None, :]) @ vt, jnp.sum(s * values, axis=-1)
