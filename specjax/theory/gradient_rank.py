"""Nuclear rank of the gradient along gradient descent on ½‖(W - W_#)‖² in the metric of B.

∇L(W_t) = -W_# B (I - ηB)^t from W_0 = 0 (spectral-criterion, Section 3.1.4). Its spectrum is that
of W_# times the factors λ_i (1 - ηλ_i)^t, so spikes of B decay first and the bulk keeps the rank
high.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from specjax.arguments import checked
from specjax.linalg import singular_values
from specjax.theory.closed_forms import check_in, floats, in_float64, legendre

GAUSSIAN_NUCLEAR_RANK = 64 / (9 * np.pi**2)
"""nr(W)/k of a k×k Gaussian matrix as k → ∞: (8/3π)², by the quarter-circle law."""


@checked
def shrinkage(
    eigenvalues: Float[Array, "*batch k"], rate: Float[Array, "*batch"], steps: int | Int[Array, ""]
) -> Float[Array, "*batch k"]:
    """(1 - ηλ_i)^t, the signed factor of the error along each eigenvector of B after t steps."""
    # A whole power: the base may be negative, or zero up to the sign of its rounding.
    return jax.lax.pow(1 - rate[..., None] * eigenvalues, jnp.asarray(steps, jnp.int32))


@checked
def gradient_factors(
    eigenvalues: Float[Array, "*batch k"], rate: Float[Array, "*batch"], steps: int | Int[Array, ""]
) -> Float[Array, "*batch k"]:
    """λ_i (1 - ηλ_i)^t, the eigenvalues of T_{η,t} = (I - ηB)^t B (Lemma 3.5, Theorem 3.6)."""
    return eigenvalues * shrinkage(eigenvalues, rate, steps)


@checked
def orthogonal_teacher_nuclear_rank(
    eigenvalues: Float[Array, "*batch k"], rate: Float[Array, "*batch"], steps: int | Int[Array, ""]
) -> Float[Array, "*batch"]:
    """nr(∇L(W_t)) = (Σ|f_i|)²/Σf_i² of the factors f_i, for W_# a multiple of an orthogonal one."""
    factors = jnp.abs(gradient_factors(eigenvalues, rate, steps))
    return jnp.sum(factors, axis=-1) ** 2 / jnp.sum(factors**2, axis=-1)


@checked
def expected_gap(
    eigenvalues: Float[Array, "*batch k"], rate: Float[Array, "*batch"], steps: int | Int[Array, ""]
) -> Float[Array, "*batch"]:
    """E[L(W_t) - min L] = ½ Σ λ_i (1 - ηλ_i)^{2t}, exact for W_# with entries of variance 1/m."""
    return jnp.sum(gradient_factors(eigenvalues, rate, 2 * steps), axis=-1) / 2


@checked
def steps_to_relative_gap(
    eigenvalues: Float[Array, "*batch k"], rate: Float[Array, "*batch"], accuracy: ArrayLike
) -> Float[Array, "*batch"]:
    """log(1/δ)/(-2 log(1 - η λ_min)): steps after which the gap is at most δ times the first.

    It holds for every teacher. It is of order d log(1/δ) for a bulk of order one below λ_1 = 1/η of
    order d; the paper's introduction has log(d/δ), which is right for an absolute gap:
    `steps_to_absolute_gap` (spectral-criterion, Sections 1 and 3.1.4).
    """
    check_in("(0, inf)", accuracy=accuracy)
    return _steps_to(eigenvalues, rate, 1 / jnp.asarray(accuracy, eigenvalues.dtype))


@checked
def steps_to_absolute_gap(
    eigenvalues: Float[Array, "*batch k"],
    rate: Float[Array, "*batch"],
    gap: Float[Array, "*batch"],
    accuracy: ArrayLike,
) -> Float[Array, "*batch"]:
    """log(gap/ε)/(-2 log(1 - η λ_min)): steps from a first gap, of order d, to at most ε."""
    check_in("(0, inf)", accuracy=accuracy)
    return _steps_to(eigenvalues, rate, gap / jnp.asarray(accuracy, eigenvalues.dtype))


def _steps_to(eigenvalues: Array, rate: Array, reduction: Array) -> Array:
    """Steps after which the slowest direction has divided the gap by `reduction`."""
    return jnp.log(reduction) / (-2 * jnp.log1p(-rate * jnp.min(eigenvalues, axis=-1)))


@checked
def bordered_singular_value_bound(
    corner: ArrayLike, row: Float[Array, "*batch p"], smallest: ArrayLike
) -> Float[Array, "*batch"]:
    """min{|a|, σ_{q-1}(D)}/(1 + ‖z‖/|a|) ≤ σ_q([[a, zᵀ], [0, D]]), D (q-1)×p, a ≠ 0 (Lemma G.1)."""
    size, smallest = (jnp.abs(jnp.asarray(x, row.dtype)) for x in (corner, smallest))
    return jnp.minimum(size, smallest) / (1 + jnp.linalg.norm(row, axis=-1) / size)


@checked
def weighted_nuclear_norm_bound(
    m: Float[Array, "rows columns"],
    weights: Float[Array, " columns"],
    kept: Bool[Array, " columns"],
) -> Float[Array, ""]:
    """min_{i∈P} |v_i| ‖M_P‖_* ≤ ‖M Diag(v)‖_*, M_P the columns in a nonempty P (Lemma G.2)."""
    nuclear = jnp.sum(singular_values(jnp.where(kept[None, :], m, 0)))
    return jnp.min(jnp.where(kept, jnp.abs(weights), jnp.inf)) * nuclear


@in_float64
@checked
def late_nuclear_rank_uniform(
    k: ArrayLike, low: ArrayLike, high: ArrayLike, time: ArrayLike
) -> Float[Array, "..."]:
    """(2k/wθ)(1 + ε)²/(1 + ε + ε²/2), ε = 1/(θ low): nr(∇L) at ηt = θ for a uniform bulk.

    Spikes have decayed, W_# is orthogonal, and the k eigenvalues of the bulk are uniform on [low,
    high] of width w. Of the factors λ e^{-θλ} only those within O(1/θ) of the lower edge remain.
    Exact up to e^{-wθ} and to η, for k ≫ wθ; to leading order it is 2k/wθ.
    """
    check_in("(0, inf)", k=k, low=low, high=high, time=time)
    k, low, high, time = floats(k, low, high, time)
    inner = 1 / (time * low)
    return 2 * k / ((high - low) * time) * (1 + inner) ** 2 / (1 + inner + inner**2 / 2)


@in_float64
@checked
def late_nuclear_rank_square_root(
    k: ArrayLike, width: ArrayLike, time: ArrayLike
) -> Float[Array, "..."]:
    """(8/π) Γ(3/2) (2/wθ)^{3/2} k = (4/√π)(2/wθ)^{3/2} k: nr(∇L) at ηt = θ for a semicircle bulk.

    To leading order in 1/θ, for width w. Its edge is a square root: near it the density is (8/π) √x
    at w = 1, and ∫√x e^{-θx} dx = Γ(3/2) θ^{-3/2}.
    """
    check_in("(0, inf)", k=k, width=width, time=time)
    k, width, time = floats(k, width, time)
    return 4 / np.sqrt(np.pi) * (2 / (width * time)) ** 1.5 * k


@checked
def gaussian_nuclear_rank(aspect: float) -> float:
    """The limit of nr(W)/min(m, k) for independent entries, by aspect = min(m, k)/max(m, k).

    W is m×k. The limit is (∫√x dμ)² of the Marchenko–Pastur law μ of mean 1, by quadrature; at
    aspect 1 it is `GAUSSIAN_NUCLEAR_RANK`.

    Raises:
        ValueError: an aspect outside (0, 1].

    Examples:
        >>> from specjax.theory import gradient_rank
        >>> round(gradient_rank.gaussian_nuclear_rank(1.0), 2)
        0.72
    """
    if not 0 < aspect <= 1:
        raise ValueError(
            f"gaussian_nuclear_rank needs 0 < aspect <= 1, got {aspect}; pass min(m, k)/max(m, k)."
        )
    low, high = (1 - np.sqrt(aspect)) ** 2, (1 + np.sqrt(aspect)) ** 2
    middle, radius = (low + high) / 2, (high - low) / 2
    nodes, weights = legendre(400)
    # x = middle - radius cos θ removes the square roots at both edges.
    angle = np.pi / 2 * (nodes + 1)
    x = middle - radius * np.cos(angle)
    density = (radius * np.sin(angle)) ** 2 / (2 * np.pi * aspect)
    return float((np.pi / 2 * np.sum(weights * density / np.sqrt(x))) ** 2)
