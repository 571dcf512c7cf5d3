"""When the first steps of Muon on symmetric matrix factorization do not know the target, and from
when on they do.

Beyond the papers. G = (U Uᵀ - M) U, with W = U Uᵀ = P² and Q = polar(U), so that U = P Q and
polar(G) = polar((W - M) P) Q. As long as the symmetric part of (W - M) P is positive definite, its
polar factor is I but for the commutator of P and M: the step goes to zero and not to M. A target of
one eigenvalue that is not zero, μ v vᵀ, is seen once μ vᵀ W⁻¹ v > 1, where W - M has a negative
eigenvalue and the polar factor turns over along one direction.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float
from scipy.stats import chi2

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in


@checked
def polar_change_bound(u: Float[Array, "d k"], target: Float[Array, "d d"]) -> Float[Array, ""]:
    """A bound on ‖polar((U Uᵀ - M) U) - polar(U)‖_F: ‖[P, M]‖_F / 2λ, λ the least eigenvalue of the
    symmetric part of (W - M) P.

    Infinite where λ <= 0. For square B = S + K, S symmetric and positive definite, K antisymmetric,
    polar(S) = I, and ‖polar(B) - polar(S)‖_F <= 2 ‖K‖_F/(σ_min(B) + σ_min(S)) (Li, 1995), where
    both are at least λ = λ_min(S), for xᵀ B x = xᵀ S x. Here K = [P, M]/2. For M that commutes with
    U Uᵀ the bound is 0.
    """
    values, vectors = jnp.linalg.eigh(u @ u.T)
    p = (vectors * jnp.sqrt(jnp.maximum(values, 0))[None, :]) @ vectors.T
    product = (u @ u.T - target) @ p
    least = jnp.linalg.eigvalsh((product + product.T) / 2)[0]
    commutator = jnp.sqrt(jnp.sum((p @ target - target @ p) ** 2))
    return jnp.where(least > 0, commutator / (2 * jnp.where(least > 0, least, 1.0)), jnp.inf)


@checked
def reversal_probability(mu: ArrayLike, d: ArrayLike, k: ArrayLike) -> Float[np.ndarray, "*points"]:
    """The probability that U Uᵀ - μ v vᵀ has a negative eigenvalue, U of d × k standard normals, k
    >= d, v a unit vector: exact.

    It has one if and only if μ vᵀ (U Uᵀ)⁻¹ v > 1, and 1/(vᵀ (U Uᵀ)⁻¹ v) has the chi-squared law of
    k - d + 1 degrees of freedom.

    Raises:
        ValueError: μ < 0, or fewer columns than rows.
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
    """1/(vᵀ (P - s)⁻² v) for every length s that steps of Muon without a target have gone; 0 from
    where P - s is no longer positive.

    Such steps take s from every singular value of U. A target μ v vᵀ is seen where this is less
    than μ.
    """
    values, vectors = jnp.linalg.eigh(u @ u.T)
    left = jnp.sqrt(jnp.maximum(values, 0))[None, :] - steps[:, None]
    parts = (vectors.T @ v) ** 2
    positive = left[:, 0] > 0
    inverse = jnp.sum(parts[None, :] / jnp.where(positive[:, None], left, 1.0) ** 2, axis=1)
    return jnp.where(positive, 1 / inverse, 0.0)


@checked
def first_true(happened: Bool[Array, " steps"]) -> Array:
    """The place of the first entry that is true, or the number of entries where none is."""
    return jnp.where(jnp.any(happened), jnp.argmax(happened), len(happened))
