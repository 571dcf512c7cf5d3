"""Bounds on the Hessian of a layered model between features and weights.

For X_ℓ = W_ℓ A_{ℓ-1}, A_ℓ = Φ_ℓ(X_1, …, X_ℓ) and L(W) = f(X_1, …, X_L) (spectral-criterion, Section
4) the bound is |⟨ΔW, ∇²L ΔW⟩| ≤ C_F Σ ‖ΔW_ℓ A_{ℓ-1}‖_F² + C_op Σ ‖ΔW_ℓ‖_op².
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.linalg import singular_values
from specjax.spectral import spectral_norm

_Numbers = Float[Array, "..."]


class LayeredConstants(NamedTuple):
    """Constants of Proposition 4.3: bounds on derivatives at W.

    `activation_jacobian` and `activation_hessian` are J_Φ and H_Φ (for an MLP sup|σ'| and
    sup|σ''|); `loss_gradient` = J_f = ‖∇f‖_F, `largest_sample_gradient` = max over samples t of
    ‖∇f_t‖, `loss_hessian` = H_f, `largest_weight` = W_* = max ‖W_ℓ‖_op.
    """

    depth: int
    activation_jacobian: ArrayLike
    activation_hessian: ArrayLike
    loss_gradient: ArrayLike
    largest_sample_gradient: ArrayLike
    loss_hessian: ArrayLike
    largest_weight: ArrayLike


@checked
def squared_loss_constants(
    residuals: Float[Array, "n d"],
    weights: tuple[Float[Array, "_ _"], ...],
    slope: float,
    bend: float,
) -> LayeredConstants:
    """Constants of an MLP with |σ'| ≤ slope, |σ''| ≤ bend and loss (1/2n) Σ_t ‖x_L,t - y_t‖²."""
    n = residuals.shape[0]
    norms = jnp.sqrt(jnp.sum(residuals**2, axis=-1)) / n
    largest = jnp.max(jnp.stack([spectral_norm(w) for w in weights]))
    return LayeredConstants(
        len(weights), slope, bend, jnp.sqrt(jnp.sum(norms**2)), jnp.max(norms), 1 / n, largest
    )


@checked
def growth(constants: LayeredConstants) -> _Numbers:
    """Γ = √2 (1 + 2 J_Φ² W_*²)^(L/2): ‖U^(L)‖_F ≤ Γ ‖B^(L)‖_F for U = dX (Lemma 4.1)."""
    return jnp.sqrt(2.0) * (1 + 2 * _along(constants) ** 2) ** (constants.depth / 2)


@checked
def compounding(constants: LayeredConstants) -> _Numbers:
    """Θ = (1 + J_Φ W_*)^(L-1)."""
    return (1 + _along(constants)) ** (constants.depth - 1)


@checked
def second_order_bound(
    constants: LayeredConstants, feature: ArrayLike, weight: ArrayLike
) -> _Numbers:
    """‖Ũ^(L)‖_F ≤ 2ΘJ_ΦΓ√L w b + ΘW_*H_ΦΓ²L b² (Lemma 4.2); b² = Σ‖ΔW A‖_F², w² = Σ‖ΔW‖_op²."""
    b, w, gamma, theta = (
        jnp.asarray(feature),
        jnp.asarray(weight),
        growth(constants),
        compounding(constants),
    )
    mixed = 2 * theta * constants.activation_jacobian * gamma * constants.depth**0.5 * w * b
    return (
        mixed
        + theta
        * constants.largest_weight
        * constants.activation_hessian
        * gamma**2
        * constants.depth
        * b**2
    )


@checked
def feature_constant(constants: LayeredConstants) -> _Numbers:
    """C_F = Γ²H_f + J_f Θ W_* H_Φ Γ² L + J_f² Θ Γ² L (eq. 4.5).

    For averaged losses J_f is of order n^(-1/2), and so is C_F if H_Φ ≠ 0, not 1/n as the paper
    says.
    """
    return _feature_constant(constants, constants.loss_gradient)


@checked
def samplewise_feature_constant(constants: LayeredConstants) -> _Numbers:
    """C_F with max_t ‖∇f_t‖ for J_f in the middle term, of order 1/n [ours].

    For models in which samples do not interact. Lemma 4.2 then holds for every column, and Σ_t
    ‖∇f_t‖ ‖U_t‖² ≤ max_t ‖∇f_t‖ ‖U‖_F².
    """
    return _feature_constant(constants, constants.largest_sample_gradient)


@checked
def weight_constant(constants: LayeredConstants) -> _Numbers:
    """C_op = Θ J_Φ² (eq. 4.5)."""
    return compounding(constants) * jnp.asarray(constants.activation_jacobian) ** 2


@checked
def euclidean_decrease(
    gradient: Float[Array, "m k"], feature_curvature: ArrayLike, weight_constant: ArrayLike
) -> Float[Array, ""]:
    """½ ‖G‖_F²/(L^F + C_op/st(G)), guaranteed for the step -G/(L^F + C_op/st(G)) (eq. 4.14)."""
    s = singular_values(gradient)
    squares = jnp.sum(s**2)
    return squares / 2 / (feature_curvature + weight_constant * s[0] ** 2 / squares)


@checked
def spectral_decrease(
    gradient: Float[Array, "m k"], feature_curvature: ArrayLike, weight_constant: ArrayLike
) -> Float[Array, ""]:
    """½ ‖G‖_*²/(L^op + C_op), guaranteed for -(‖G‖_*/(L^op + C_op)) polar(G) (eq. 4.15)."""
    return jnp.sum(singular_values(gradient)) ** 2 / 2 / (feature_curvature + weight_constant)


@checked
def nuclear_rank_needed(
    activation_rank: ArrayLike, gradient_rank: ArrayLike, alpha: ArrayLike
) -> _Numbers:
    """(s + α)/(1 + α/st(G)), s = st(A), α = C_op/L^F: the least nr(G) for condition (4.16).

    With nr(G) in place of st(G) it is equivalent to nr(G) ≥ s (eqs. 4.17 and 4.18).
    """
    s, st, alpha = (
        jnp.asarray(x, jnp.result_type(float)) for x in (activation_rank, gradient_rank, alpha)
    )
    return (s + alpha) / (1 + alpha / st)


class DiagonalRanks(NamedTuple):
    """‖g‖_1²/‖g‖_2² and ‖g‖_2²/‖g‖_∞² of the gradient g of a gain Diag(γ) (Section 4.5)."""

    nuclear: Float[Array, "*batch"]
    stable: Float[Array, "*batch"]


@checked
def diagonal_ranks(g: Float[Array, "*batch d"]) -> DiagonalRanks:
    """Nuclear and stable rank of Diag(g); zeros for g = 0.

    Examples:
        >>> from specjax.theory import layered
        >>> ranks = layered.diagonal_ranks(jnp.array([1.0, 1.0, 2.0]))
        >>> round(float(ranks.nuclear), 2), round(float(ranks.stable), 2)
        (2.67, 1.5)
    """
    size = jnp.abs(g)
    largest = jnp.max(size, axis=-1, keepdims=True)
    relative = size / jnp.where(largest > 0, largest, 1)
    squares = jnp.sum(relative**2, axis=-1)
    return DiagonalRanks(
        jnp.sum(relative, axis=-1) ** 2 / jnp.where(squares > 0, squares, 1), squares
    )


@checked
def diagonal_threshold(a: Float[Array, "d n"]) -> Float[Array, ""]:
    """‖A‖_F² / max_i ‖row_i(A)‖²: the nuclear rank above which the sign step on a gain wins [ours].

    The sign step then has the larger guarantee. Diag(u) A has ‖·‖_F² = Σ u_i² ‖row_i‖², so these
    are the exact curvatures. For balanced rows it is d, far above the st(A) of Section 4.5.
    """
    rows = jnp.sum(a**2, axis=-1)
    return jnp.sum(rows) / jnp.max(rows)


def _along(constants: LayeredConstants) -> Array:
    return jnp.asarray(constants.activation_jacobian) * jnp.asarray(constants.largest_weight)


def _feature_constant(constants: LayeredConstants, first_order: ArrayLike) -> Array:
    gamma, theta = growth(constants), compounding(constants)
    bent = (
        first_order
        * theta
        * constants.largest_weight
        * constants.activation_hessian
        * constants.depth
    )
    mixed = constants.loss_gradient**2 * theta * constants.depth
    return gamma**2 * (constants.loss_hessian + bent + mixed)
