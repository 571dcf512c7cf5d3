"""From a small random start to the aligned set: Theorem 1(b) (preconditioning, Lemmas 4 to 6).

At X_0 = α V, with V orthonormal and α small, the gradient is α (α² V - M V): its polar factor is
nearly that of -M V, and Muon's first step lands near an aligned point. Muon from that point
decouples, and stays near Muon from X_0 as long as no gradient is nearly singular. The paper leaves
constants open: those below are derived here, and hold for given matrices instead of with a
probability.
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax import spectral
from specjax.arguments import checked
from specjax.theory.closed_forms import floats
from specjax.theory.preconditioning.perturbation import best_approximation


@checked
def first_step_bound(
    sigma: ArrayLike, alpha: ArrayLike, rank: int, columns: int
) -> Float[Array, "..."]:
    """2 c α² / (2σ - α²) >= ‖polar(G_r) + polar(M V)‖_F for σ = σ_r(M V) > α² (Lemma 4, constant
    ours).

    G_r is the best approximation of rank r to the gradient at α V, V with k `columns`. For k = r,
    G_r divided by α differs from -M V by α² V, and c = √r, which is attained. Otherwise the
    difference is at most 2 α² in the operator norm (Eckart and Young), and c = 2 √(2r). Lemma 17
    gives the bound. Infinity where α² >= σ. With σ of the order λ_r/√(dk) (Lemma 10) it is the
    paper's α² √(dk)/λ_r.
    """
    sigma, alpha = floats(sigma, alpha)
    apart = (1.0 if columns == rank else 8.0**0.5) * rank**0.5 * alpha**2
    safe = jnp.where(alpha**2 < sigma, 2 * sigma - alpha**2, 1)
    return jnp.where(alpha**2 < sigma, 2 * apart / safe, jnp.inf)


@checked
def auxiliary_start(
    target: Float[Array, "d d"], frame: Float[Array, "d k"], rank: int
) -> Float[Array, "d k"]:
    """polar(M V) - H, orthonormal and aligned: the auxiliary path starts along it (eq. 53).

    Muon's first step -polar(G) from α V, G = α²V - M V, is replaced by its nearest aligned
    neighbour: its part of rank r by polar(M V), and the rest by the partial isometry H next to it
    that maps the complement of the row space of M V into that of its column space. It is within 2 α
    of Muon's X_1 for small α (eq. 54). V is orthonormal, and M, symmetric, has the given rank r <=
    k <= d.

    H is that of Lemma 22: H = V Q, with Q the projection on the null space of M V, for every α at
    which the r largest singular values of G come from M V [ours]: G Q = α² V Q, on Q the power
    (GᵀG)^(-1/2) is α⁻², and V Q is in the null space of M.
    """
    aligned = spectral.polar(best_approximation(target @ frame, rank))
    return aligned - (frame - (frame @ aligned.T) @ aligned)


@checked
def gradient_lipschitz(size: ArrayLike, target_norm: ArrayLike) -> Float[Array, "..."]:
    """3 B² + ‖M‖, the Lipschitz constant of (X Xᵀ - M) X for operator norms up to B (Lemma 5)."""
    size, target_norm = floats(size, target_norm)
    return 3 * size**2 + target_norm


@checked
def growth_bound(
    rate: ArrayLike, smallest: ArrayLike, size: ArrayLike, target_norm: ArrayLike
) -> Float[Array, "..."]:
    """1 + 3 η (3 B² + ‖M‖)/g, the growth of an operator-norm distance in a step of Muon (Lemma 5).

    The constant is ours. g = `smallest` is σ_min of the gradient at one of the two factors, of full
    column rank, and the 3 comes from Lemma 18, whose 2/(a + b) and 1/max(a, b) are at most 2/g and
    1/g.
    """
    rate, smallest = floats(rate, smallest)
    return 1 + 3 * rate * gradient_lipschitz(size, target_norm) / smallest


@checked
def small_gradient_bound(
    spectrum: Float[Array, " k"], delta: ArrayLike, length: ArrayLike
) -> Float[Array, "..."]:
    """(Σ 6 δ/λ_i + 2 δ^(1/3) for each λ_i = 0) / length >= P(g <= δ) (Lemma 6, constant ours and
    sharp).

    g = min |x_i² - λ_i| |x_i| is the smallest singular value of the gradient on the aligned set,
    and each x_i is uniform on an interval of that length: C_0 ρ^(t-1) given the past, for
    prefactors uniform in [C_0, 2 C_0]. The set where |x² - λ| |x| <= δ has measure 4 δ/λ for small
    δ and at most 6 δ/λ, attained at δ = 2 (λ/3)^(3/2), where its three intervals meet. `spectrum`
    has one entry for each column, not negative.
    """
    delta, length = floats(delta, length)
    positive = spectrum > 0
    whole = jnp.where(positive, 6 / jnp.where(positive, spectrum, 1), 0)
    zeros = jnp.sum(~positive).astype(length.dtype)
    return (jnp.sum(whole) * delta + zeros * 2 * jnp.cbrt(delta)) / length
