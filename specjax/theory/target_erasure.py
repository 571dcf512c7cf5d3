"""First steps of Muon on symmetric factorization: when they are blind to the target.

Beyond the papers. G = (U Uᵀ - M) U, with W = U Uᵀ = P² and Q = polar(U), so that U = P Q and
polar(G) = polar((W - M) P) Q. While the symmetric part of (W - M) P is positive definite, its polar
factor is I up to the commutator of P and M: the step goes toward zero instead of M. A target with
one nonzero eigenvalue, μ v vᵀ, has an effect once μ vᵀ W⁻¹ v > 1, when W - M has a negative
eigenvalue and the polar factor flips along one direction.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float
from scipy.stats import chi2

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in


@checked
def polar_change_bound(u: Float[Array, "d k"], target: Float[Array, "d d"]) -> Float[Array, ""]:
    """‖[P, M]‖_F / 2λ, a bound on ‖polar((U Uᵀ - M) U) - polar(U)‖_F.

    λ is the least eigenvalue of the symmetric part of (W - M) P; the bound is infinite if λ <= 0.
    For square B = S + K, S symmetric and positive definite, K antisymmetric, polar(S) = I, and
    ‖polar(B) - polar(S)‖_F <= 2 ‖K‖_F/(σ_min(B) + σ_min(S)) (Li, 1995), where both are at least λ =
    λ_min(S), for xᵀ B x = xᵀ S x. Here K = [P, M]/2. For M that commutes with U Uᵀ the bound is 0.
    """
    values, vectors = jnp.linalg.eigh(u @ u.T)
    p = (vectors * jnp.sqrt(jnp.maximum(values, 0))[None, :]) @ vectors.T
    product = (u @ u.T - target) @ p
    least = jnp.linalg.eigvalsh((product + product.T) / 2)[0]
    commutator = jnp.sqrt(jnp.sum((p @ target - target @ p) ** 2))
    return jnp.where(least > 0, commutator / (2 * jnp.where(least > 0, least, 1.0)), jnp.inf)


@checked
def reversal_probability(mu: ArrayLike, d: ArrayLike, k: ArrayLike) -> Float[np.ndarray, "*points"]:
    """The exact probability that U Uᵀ - μ v vᵀ has a negative eigenvalue, U d × k Gaussian, k >= d.

    v is a unit vector. The event is μ vᵀ (U Uᵀ)⁻¹ v > 1, and 1/(vᵀ (U Uᵀ)⁻¹ v) has the chi-squared
    law of k - d + 1 degrees of freedom.

    Raises:
        ValueError: μ < 0, or fewer columns than rows.

    Examples:
        >>> from specjax.theory import target_erasure
        >>> round(float(target_erasure.reversal_probability(2.0, d=8, k=8)), 2)
        0.84
    """
    check_in("[0, inf)", mu=mu)
    degrees = np.asarray(k) - np.asarray(d) + 1
    if np.any(degrees < 1):
        raise ValueError(f"U Uᵀ has an inverse where k >= d, got d={d} and k={k}.")
    return np.asarray(chi2.cdf(mu, degrees))


@checked
def along(
    u: Float[Array, "d k"], v: Float[Array, " d"], steps: Float[Array, " steps"]
) -> Float[Array, " steps"]:
    """1/(vᵀ (P - s)⁻² v) for every length s; 0 once P - s is not positive definite.

    Steps of Muon of total length s without a target take s from every singular value of U. A target
    μ v vᵀ has an effect where this is less than μ.
    """
    values, vectors = jnp.linalg.eigh(u @ u.T)
    left = jnp.sqrt(jnp.maximum(values, 0))[None, :] - steps[:, None]
    parts = (vectors.T @ v) ** 2
    positive = left[:, 0] > 0
    inverse = jnp.sum(parts[None, :] / jnp.where(positive[:, None], left, 1.0) ** 2, axis=1)
    return jnp.where(positive, 1 / inverse, 0.0)


@checked
def first_true(happened: Bool[Array, " steps"]) -> Array:
    """The index of the first true entry, or the number of entries if none is true."""
    return jnp.where(jnp.any(happened), jnp.argmax(happened), len(happened))
