"""Perturbation bounds for Theorem 1(b), from the aligned to the original path (Lemmas 17 to 22).

Each returns the bound for given matrices (m, n), to compare it with the bounded quantity.
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax import spectral
from specjax.arguments import checked
from specjax.linalg import singular_values, svd
from specjax.programs.one_at_a_time import compiled_one_at_a_time
from specjax.theory.closed_forms import floats


@checked
def polar_bound(a: Float[Array, "m n"], b: Float[Array, "m n"], rank: int) -> Float[Array, ""]:
    """2 ‖A - B‖_F / (σ_r(A) + σ_r(B)) >= ‖polar A - polar B‖_F, equal rank r (Li, Sun 2006)."""
    gap = _singular_value(a, rank) + _singular_value(b, rank)
    return 2 * jnp.linalg.norm(a - b) / gap


@checked
def polar_operator_bound(a: Float[Array, "m n"], b: Float[Array, "m n"]) -> Float[Array, ""]:
    """(2/(σ_n(A) + σ_n(B)) + 1/max(σ_n(A), σ_n(B))) ‖A - B‖ >= ‖polar A - polar B‖ (Lemma 18).

    In the operator norm (Li 1995), for m >= n and full column rank. Square matrices need no second
    term, but tall ones do: from A = [I₂; 0] in the direction [[0, -1/3], [1, 0], [0, √8/3]] the
    factor moves 2/√3 times as far as the first term alone allows (ours).
    """
    smallest = [_singular_value(x, a.shape[1]) for x in (a, b)]
    factor = 2 / (smallest[0] + smallest[1]) + 1 / jnp.maximum(*smallest)
    return factor * spectral.spectral_norm(a - b)


@checked
def best_approximation(x: Float[Array, "m n"], rank: int) -> Float[Array, "m n"]:
    """The best approximation of that rank in every unitarily invariant norm."""
    u, s, vt = svd(x)
    return (u[:, :rank] * s[None, :rank]) @ vt[:rank]


@checked
def approximation_bound(
    a: Float[Array, "m n"], b: Float[Array, "m n"], rank: int
) -> Float[Array, ""]:
    """‖A - B‖ (3 + σ_{r+1}(A)/δ + σ_{r+1}(B)/δ) >= ‖A_r - B_r‖, operator norm (Lemma 19).

    A_r is the best approximation of rank r < min(m, n) and δ = max(σ_r(A) - σ_{r+1}(B), σ_r(B) -
    σ_{r+1}(A)); the bound is infinite unless δ > 0 (Wedin 1972).
    """
    (r_a, next_a), (r_b, next_b) = (
        (_singular_value(x, rank), _singular_value(x, rank + 1)) for x in (a, b)
    )
    gap = jnp.maximum(r_a - next_b, r_b - next_a)
    safe = jnp.where(gap > 0, gap, 1)
    bound = spectral.spectral_norm(a - b) * (3 + (next_a + next_b) / safe)
    return jnp.where(gap > 0, bound, jnp.inf)


@checked
def matched_complements(
    a: Float[Array, "n k"], b: Float[Array, "n k"]
) -> tuple[Float[Array, "n n-k"], Float[Array, "n n-k"]]:
    """Complements C_a, C_b of orthonormal sets with ‖[A C_a] - [B C_b]‖ <= √2 ‖A - B‖ (Lemma 22).

    Constructive (ours), for k < n: any two complements, one rotated to the other by the polar
    factor of C_aᵀ C_b.
    """
    k = a.shape[1]
    first, second = (compiled_one_at_a_time(_completed, x)[:, k:] for x in (a, b))
    return first @ spectral.polar(first.T @ second), second


@checked
def gaussian_tail(n: ArrayLike, delta: ArrayLike) -> Float[Array, "..."]:
    """exp(-n δ²/2) >= P(σ_max(G)/√n >= 1 + δ + √(d/n)) for Gaussian G ∈ R^{n×d} (Lemma 20).

    Entries are N(0, 1), and n >= d. The same number bounds P(σ_min(G)/√n <= 1 - δ - √(d/n)).
    """
    n, delta = floats(n, delta)
    return jnp.exp(-n * delta**2 / 2)


def _completed(x: Array) -> Array:
    """An orthonormal basis of the whole space whose first vectors span the columns of x."""
    return jnp.linalg.qr(x, mode="complete")[0]


def _singular_value(x: Array, index: int) -> Array:
    """σ_index, counted from 1."""
    return singular_values(x)[index - 1]
