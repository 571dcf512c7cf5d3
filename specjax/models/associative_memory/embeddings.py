"""Random embeddings of N items, rows of an (N, d) array (associative-memory, Sections 2, D.1)."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.sizes import AnySize, active, mask, normal, padded


def isotropic(key: Key[Array, ""], n: AnySize, d: AnySize) -> Float[Array, "n d"]:
    """Independent N(0, I_d / d) rows; with one key, columns of a wider sample up to the factor."""
    return normal(key, (n, d)) / jnp.sqrt(jnp.asarray(active(d), jnp.result_type(float)))


def anisotropic(
    key: Key[Array, ""], n: AnySize, d: AnySize, kappa: float | Float[Array, ""]
) -> Float[Array, "n d"]:
    """Independent N(0, Ξ) rows with Ξ = diag(spectrum(d, kappa)); κ = 0 is `isotropic`."""
    return normal(key, (n, d)) * jnp.sqrt(spectrum(d, kappa))[None, :]


def spectrum(d: AnySize, kappa: float | Float[Array, ""]) -> Float[Array, " d"]:
    """Eigenvalues ∝ k^-κ, k = 1, ..., d, of trace 1, and zero on padding."""
    k = jnp.arange(1, padded(d) + 1, dtype=jnp.result_type(float))
    values = jnp.where(mask(d), k ** -jnp.asarray(kappa, k.dtype), 0)
    return values / jnp.sum(values)
