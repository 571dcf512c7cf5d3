"""Preconditioning by a power of a second moment of the gradient, and the polar factor of its mean.

G has mean μ = U S Vᵀ and left second moment M = E[G Gᵀ] = μ μᵀ + C. Then M^(-1/2) μ = U Vᵀ if and
only if M U = U S², that is M μ = μ μᵀ μ or C μ = 0: the noise is orthogonal to the columns of μ. It
has the direction of U Vᵀ if and only if M U = c U S² for some c. Claim 8 of the claims document
requires M ∝ μ μᵀ instead, which is neither sufficient for the first nor necessary for either.
[ours]
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.linalg import eigh
from specjax.spectral import stabilized_sign
from specjax.spectral.products import product


@checked
def symmetric_power(moment: Float[Array, "n n"], p: float) -> Float[Array, "n n"]:
    """The power p of a positive semidefinite matrix; eigenvalues up to 64 roundings count as 0.

    For p < 0 it is a pseudo-inverse. For derivatives and batches see `spectral.spectral_power`.
    """
    values, vectors = eigh(moment)
    kept = (values > 64 * jnp.finfo(moment.dtype).eps * values[-1]) & (values > 0)
    powers = jnp.where(kept, jnp.where(kept, values, 1) ** p, 0)
    return product(vectors * powers[None, :], vectors.T)


@checked
def left_direction(moment: Float[Array, "m m"], mu: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """M^(-1/2) μ for M = E[G Gᵀ], with the pseudo-inverse where M is singular."""
    return product(symmetric_power(moment, -0.5), mu)


@checked
def kronecker_direction(
    left: Float[Array, "m m"], right: Float[Array, "n n"], mu: Float[Array, "m n"]
) -> Float[Array, "m n"]:
    """L^(-1/4) μ R^(-1/4) for L = E[G Gᵀ], R = E[Gᵀ G]: Shampoo's direction, U Vᵀ without noise."""
    return product(product(symmetric_power(left, -0.25), mu), symmetric_power(right, -0.25))


@checked
def full_direction(moment: Float[Array, "mn mn"], mu: Float[Array, "m n"]) -> Float[Array, "m n"]:
    """F^(-1/2) vec μ for F = E[vec G vec Gᵀ] with rows concatenated, as in full-matrix AdaGrad."""
    return product(symmetric_power(moment, -0.5), mu.reshape(-1, 1)).reshape(mu.shape)


@checked
def condition_residual(moment: Float[Array, "m m"], mu: Float[Array, "m n"]) -> Float[Array, ""]:
    """‖M μ - μ μᵀ μ‖_F / ‖μ μᵀ μ‖_F: zero if and only if M^(-1/2) μ is the polar factor of μ."""
    return _distance(product(moment, mu), product(product(mu, mu.T), mu))


@checked
def direction_residual(moment: Float[Array, "m m"], mu: Float[Array, "m n"]) -> Float[Array, ""]:
    """min_c ‖M μ - c μ μᵀ μ‖_F / ‖M μ‖_F, zero iff M^(-1/2) μ is a multiple of the polar factor."""
    moved, cubed = product(moment, mu), product(product(mu, mu.T), mu)
    return _distance(jnp.sum(moved * cubed) / jnp.sum(cubed**2) * cubed, moved)


@checked
def isotropic_moments(
    mu: Float[Array, "m n"], sigma: ArrayLike, batch: ArrayLike = 1
) -> tuple[Float[Array, "m m"], Float[Array, "n n"], Float[Array, "mn mn"]]:
    """E[G Gᵀ], E[Gᵀ G] and E[vec G vec Gᵀ] of a mean over `batch` samples with isotropic noise.

    Samples are μ + ε with independent entries of variance σ². Exact: the moments are μ μᵀ + n τ I,
    μᵀ μ + m τ I and vec μ vec μᵀ + τ I with τ = σ²/batch.
    """
    m, n = mu.shape
    tau = jnp.asarray(sigma, mu.dtype) ** 2 / jnp.asarray(batch, mu.dtype)
    flat = mu.reshape(-1, 1)
    left, right, full = product(mu, mu.T), product(mu.T, mu), product(flat, flat.T)
    return (
        left + n * tau * jnp.eye(m, dtype=mu.dtype),
        right + m * tau * jnp.eye(n, dtype=mu.dtype),
        full + tau * jnp.eye(m * n, dtype=mu.dtype),
    )


@checked
def isotropic_left_direction(
    mu: Float[Array, "m n"], sigma: ArrayLike, batch: ArrayLike = 1
) -> Float[Array, "m n"]:
    """M^(-1/2) μ = U S (S² + λ²)^(-1/2) Vᵀ, λ² = n σ²/batch, for isotropic noise [ours]."""
    scale = jnp.asarray(sigma, mu.dtype) * jnp.sqrt(mu.shape[1] / jnp.asarray(batch, mu.dtype))
    return stabilized_sign(mu, scale)


@checked
def isotropic_full_direction(
    mu: Float[Array, "m n"], sigma: ArrayLike, batch: ArrayLike = 1
) -> Float[Array, "m n"]:
    """F^(-1/2) vec μ = μ / (‖μ‖_F² + σ²/batch)^(1/2) under isotropic noise; exact [ours]."""
    tau = jnp.asarray(sigma, mu.dtype) ** 2 / jnp.asarray(batch, mu.dtype)
    return mu / jnp.sqrt(jnp.sum(mu**2) + tau)


def _distance(a: Array, b: Array) -> Array:
    return jnp.linalg.norm(a - b) / jnp.linalg.norm(b)
