"""ReLU features σ(V x) of x ~ N(0, I_d): mean, covariance and its expansion, spike.

`feature_bulk` has the edges of the bulk.

V ∈ R^{k×d} has rows v_i (spectral-criterion, Sections 3.1.1 and 3.2.1). "Cross" is the covariance
of σ(V̄ x) and σ(V x).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.angles import arc_cosine_1_of
from specjax.theory.closed_forms import check_in, floats, in_float64

MEAN_WEIGHT = (np.pi - 3) / (4 * np.pi)
"""The diagonal of Σ/‖v_i‖² less the first two terms of its expansion."""


@checked
def phi(t: Float[Array, "..."]) -> Float[Array, "..."]:
    """φ(t) = √(1 - t²) + (π - arccos t) t - 1 for t in [-1, 1].

    It is 2π Cov(σ(⟨u, x⟩), σ(⟨v, x⟩)) for unit u, v at cosine t. φ = π t/2 + t²/2 + t⁴/24 + O(t⁶),
    from -1 at t = -1 to π - 1 at t = 1 (spectral-criterion, before Theorem 3.2, Figure 16).
    """
    return 2 * np.pi * arc_cosine_1_of(jnp.arccos(t), jnp.sqrt((1 - t) * (1 + t)), t) - 1


@checked
def feature_mean(v: Float[Array, "*batch k d"]) -> Float[Array, "*batch k"]:
    """E σ(V x) = ‖v_i‖/√(2π), exact.

    Examples:
        >>> from specjax.theory import random_features
        >>> [round(float(mean), 2) for mean in random_features.feature_mean(jnp.eye(2))]
        [0.4, 0.4]
    """
    return jnp.linalg.norm(v, axis=-1) / np.sqrt(2 * np.pi)


@checked
def feature_mean_as_printed(v: Float[Array, "*batch k d"]) -> Float[Array, "*batch k"]:
    """‖v_i‖/2π, printed before Theorems 3.2 and 3.7: too small by √(2π) = 2.5.

    Kept to measure the difference; use `feature_mean`.
    """
    return jnp.linalg.norm(v, axis=-1) / (2 * np.pi)


@checked
def feature_covariance(
    v_bar: Float[Array, "*batch rows d"], v: Float[Array, "*batch k d"]
) -> Float[Array, "*batch rows k"]:
    """Cov(σ(V̄ x), σ(V x)) = (‖v̄_i‖‖v_j‖/2π) φ(cos ∠(v̄_i, v_j)), exact; one map if v_bar is v.

    Zero (padded) rows have covariance zero.

    Examples:
        >>> from specjax.theory import random_features
        >>> v = jnp.eye(2)
        >>> covariance = random_features.feature_covariance(v, v)
        >>> round(float(covariance[0, 0]), 2)
        0.34
    """
    norms_bar, norms = jnp.linalg.norm(v_bar, axis=-1), jnp.linalg.norm(v, axis=-1)
    product = norms_bar[..., :, None] * norms[..., None, :]
    cosine = jnp.clip(v_bar @ v.mT / jnp.where(product > 0, product, 1), -1, 1)
    return product / (2 * np.pi) * phi(cosine)


@checked
def covariance_expansion(v: Float[Array, "*batch k d"]) -> Float[Array, "*batch k k"]:
    """¼VVᵀ + (1/4π) Λ⁻¹(VVᵀ)^{∘2}Λ⁻¹ + ((π-3)/4π) Λ², Λ = diag ‖v_i‖ (spectral-criterion, (3.6)).

    The covariance up to fourth powers of the cosines: exact on the diagonal, and off it the
    second-order Taylor polynomial. The remainder is at most O(k log² k/d²) in the spectral norm for
    k Gaussian rows. No row may be zero.
    """
    norms = jnp.linalg.norm(v, axis=-1)
    gram = v @ v.mT
    squares = gram**2 / (norms[..., :, None] * norms[..., None, :])
    own = (
        jnp.broadcast_to(jnp.eye(v.shape[-2], dtype=v.dtype), gram.shape) * norms[..., None, :] ** 2
    )
    return gram / 4 + squares / (4 * np.pi) + MEAN_WEIGHT * own


@checked
def cross_covariance_expansion(
    v_bar: Float[Array, "*batch rows d"], v: Float[Array, "*batch k d"]
) -> Float[Array, "*batch rows k"]:
    """¼V̄Vᵀ + (1/4πd) 1 1ᵀ, the cross covariance up to O(√k/d) for independent rows N(0, I/d).

    The error is in the spectral norm for k ∝ d (spectral-criterion, Theorem 3.7, with corrected
    coefficients); `cross_covariance_error` has the constant of the error.
    """
    return v_bar @ v.mT / 4 + 1 / (4 * np.pi * v.shape[-1])


@checked
def cross_covariance_expansion_as_printed(
    v_bar: Float[Array, "*batch rows d"], v: Float[Array, "*batch k d"]
) -> Float[Array, "*batch rows k"]:
    """(1/2π)V̄Vᵀ + (1/d) 1 1ᵀ, as Theorem 3.7 prints: its error does not vanish.

    Kept to measure the difference; use `cross_covariance_expansion`.
    """
    return v_bar @ v.mT / (2 * np.pi) + 1 / v.shape[-1]


@checked
def cross_covariance_expansion_with_norms(
    v_bar: Float[Array, "*batch rows d"], v: Float[Array, "*batch k d"]
) -> Float[Array, "*batch rows k"]:
    """¼V̄Vᵀ + (1/4πd) Λ̄ 1 1ᵀ Λ, better than without norms if k grows faster than d."""
    norms_bar, norms = jnp.linalg.norm(v_bar, axis=-1), jnp.linalg.norm(v, axis=-1)
    outer = norms_bar[..., :, None] * norms[..., None, :]
    return v_bar @ v.mT / 4 + outer / (4 * np.pi * v.shape[-1])


@checked
def cross_covariance_error(rows: ArrayLike, k: ArrayLike, d: ArrayLike) -> Float[Array, "..."]:
    """(√rows + √k)/(2√2 π d), the limit of the error of `cross_covariance_expansion_with_norms`.

    In the operator norm, as d grows and k/d² falls (spectral-criterion, Theorem 3.7, has
    O(k^(1/2+ϵ)/d)). The expansion leaves out (t_ij² - 1/d)/4π, where t_ij² has variance 2/d², which
    acts as a matrix of independent entries. The expansion without norms has the same limit where
    √(rows k) < 4d; beyond it, the lengths of the rows make a larger singular value, of order √(rows
    k)/d^(3/2).
    """
    return (jnp.sqrt(rows) + jnp.sqrt(k)) / (2 * np.sqrt(2) * np.pi * d)


@checked
def cross_bulk(
    v_bar: Float[Array, "*batch rows d"], v: Float[Array, "*batch k d"]
) -> Float[Array, "*batch rows k"]:
    """The cross covariance without its rank-one term (1/4πd) Λ̄ 1 1ᵀ Λ: ¼V̄Vᵀ up to O(√k/d).

    That term is along the spike of B̄. So B̄ is (1 + 1/2d) ν μᵀ plus this bulk, ν and μ the means
    (spectral-criterion, Corollary 3.8, which prints 1 + 1/d).
    """
    norms_bar, norms = jnp.linalg.norm(v_bar, axis=-1), jnp.linalg.norm(v, axis=-1)
    outer = norms_bar[..., :, None] * norms[..., None, :]
    return feature_covariance(v_bar, v) - outer / (4 * np.pi * v.shape[-1])


@checked
def cross_bulk_edges(gamma: float) -> tuple[float, float]:
    """¼(√γ - 1)² and ¼(√γ + 1)²: bounds on the d nonzero singular values of ¼V̄Vᵀ, k/d → γ > 1.

    From spectral-criterion, Corollary 3.8. They are products of extreme singular values of V̄ and
    V, so neither is attained.

    Raises:
        ValueError: γ <= 1, where V̄Vᵀ has no gap behind index d.

    """
    if not gamma > 1:
        raise ValueError(
            f"cross_bulk_edges needs more features than dimensions, gamma > 1, got {gamma}."
        )
    return (gamma**0.5 - 1) ** 2 / 4, (gamma**0.5 + 1) ** 2 / 4


@in_float64
@checked
def spike(k: ArrayLike) -> Float[Array, "..."]:
    """E‖E σ(V x)‖² = k/2π for rows N(0, I/d), exact: the spike of E[σ(V x) σ(V x)ᵀ]."""
    check_in("[0, inf)", k=k)
    return floats(k)[0] / (2 * np.pi)
