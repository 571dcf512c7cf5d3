"""Two-layer ReLU networks f(x) = W_2 σ(W_1 x) learning a linear map Φ: L = ½ E_x ‖f(x) - Φ x‖², x ~
N(0, I).

Loss and gradient of the population are exact given the weights: the average over x is done by the
arc-cosine kernels, not by samples (outer-product, Appendix C). Two functions also average G Gᵀ over
part of the weights.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from specjax.models.targets import check_target
from specjax.sizes import AnySize, active, block_mask, normal
from specjax.theory.angles import arc_cosine_0, arc_cosine_1_of, arccos


class Params(NamedTuple):
    """The weights W_1 ∈ R^{d_1×d_0} and W_2 ∈ R^{d_2×d_1}."""

    w1: Float[Array, "d1 d0"]
    w2: Float[Array, "d2 d1"]


class OuterProducts(NamedTuple):
    """G_1 G_1ᵀ and G_2 G_2ᵀ of the population gradient, or means of them."""

    p1: Float[Array, "d1 d1"]
    p2: Float[Array, "d2 d2"]


def init(key: Key[Array, ""], d0: AnySize, d1: AnySize, d2: AnySize) -> Params:
    """Weights with independent N(0, 1) entries (outer-product, Assumption 1)."""
    key_1, key_2 = jax.random.split(key)
    return Params(normal(key_1, (d1, d0)), normal(key_2, (d2, d1)))


def forward(params: Params, x: Float[Array, "n d0"]) -> Float[Array, "n d2"]:
    """W_2 σ(W_1 x) for each row of x."""
    return jax.nn.relu(x @ params.w1.T) @ params.w2.T


def sampled_loss(
    params: Params, target: Float[Array, "d2 d0"], x: Float[Array, "n d0"]
) -> Float[Array, ""]:
    """½ mean_i ‖f(x_i) - Φ x_i‖²; ValueError for a target of another shape or not finite."""
    _check(params, target)
    return jnp.sum((forward(params, x) - x @ target.T) ** 2) / (2 * x.shape[0])


def loss(params: Params, target: Float[Array, "d2 d0"]) -> Float[Array, ""]:
    """½ tr(W_2 H W_2ᵀ) - ½ tr(W_2 W_1 Φᵀ) + ½ ‖Φ‖_F², exact. Raises as `sampled_loss`."""
    _check(params, target)
    w1, w2 = params
    return (
        jnp.sum(w2 * (w2 @ hidden_gram(w1))) - jnp.sum((w2 @ w1) * target) + jnp.sum(target**2)
    ) / 2


def gradient(params: Params, target: Float[Array, "d2 d0"]) -> Params:
    """(G_1, G_2) of the population loss, exact given the weights and zero on padded units
    (outer-product, Lemmas 22-25).

    G_2 = W_2 H - ½ Φ W_1ᵀ, and row a of G_1 is Σ_k (W_2ᵀ W_2)_ak F(w_a, w_k) - ½ (W_2ᵀ Φ)_a with
    F(u, v) = E_x[σ'(uᵀx) σ(vᵀx) x] = u ‖v‖ sin θ/(2π ‖u‖) + v (π - θ)/2π. Raises as `sampled_loss`.
    """
    _check(params, target)
    w1, w2 = params
    norms, angles = _norms_and_angles(w1)
    outer = w2.T @ w2
    along_own_row = (outer * angles.sine / (2 * jnp.pi)) @ norms / jnp.where(norms > 0, norms, 1)
    g1 = along_own_row[:, None] * w1 + (outer * arc_cosine_0(angles.theta)) @ w1 - w2.T @ target / 2
    g2 = w2 @ _gram(norms, angles) - target @ w1.T / 2
    return Params(g1, g2)


def hidden_gram(w1: Float[Array, "d1 d0"]) -> Float[Array, "d1 d1"]:
    """H = E_x[σ(W_1 x) σ(W_1 x)ᵀ] = ‖w_a‖‖w_b‖ g(θ_ab) (outer-product, Lemma 19)."""
    return _gram(*_norms_and_angles(w1))


def symmetrized_outer_products(params: Params, target: Float[Array, "d2 d0"]) -> OuterProducts:
    """The mean of (G_1 G_1ᵀ, G_2 G_2ᵀ) over signs of W_1's rows and W_2's entries, in closed form.

    Unbiased if the law of the weights is invariant under these signs, as for `init`. The mean
    depends on W_2 by its squared entries, and on the angles by the part that is even under θ -> π -
    θ. Raises as `sampled_loss`.
    """
    _check(params, target)
    squares = params.w2**2
    own = jnp.eye(squares.shape[1], dtype=bool)
    overlaps = jnp.where(own, jnp.sum(squares, axis=0) ** 2, squares.T @ squares)
    return _average_signs(
        params.w1, target, squares, overlaps, squares.T @ jnp.sum(target**2, axis=1)
    )


def expected_outer_products(
    w1: Float[Array, "d1 d0"], target: Float[Array, "d2 d0"], d2: AnySize
) -> OuterProducts:
    """(E[G_1 G_1ᵀ], E[G_2 G_2ᵀ]) over W_2 and the signs of W_1's rows, given W_1, in closed form.

    W_2 has independent N(0, 1) entries and d2 rows. Unbiased by the tower rule: the expectation of
    `symmetrized_outer_products` given W_1 takes that of its squares, which is 1, and of (W_2ᵀ
    W_2)_ac², which is d_2 (d_2 + 2) for a = c and else d_2 (outer-product, Lemma 26). So far fewer
    W_1 give the same standard error. Raises ValueError for a target whose shape does not fit d2 and
    W_1, or with non-finite entries.
    """
    squares = jnp.asarray(block_mask((d2, w1.shape[0])), w1.dtype)
    _check(Params(w1, squares), target)
    rows, own = jnp.asarray(active(d2), w1.dtype), jnp.eye(w1.shape[0], dtype=bool)
    # Padded units are rows of zeros.
    real = jnp.any(w1 != 0, axis=1)
    overlaps = jnp.where(real[:, None], jnp.where(own, rows * (rows + 2), rows), 0)
    return _average_signs(w1, target, squares, overlaps, jnp.where(real, jnp.sum(target**2), 0))


def _average_signs(
    w1: Array, target: Array, squares: Array, overlaps: Array, signal: Array
) -> OuterProducts:
    """Both means, from means of (W_2)_ia², of O_ac² (O = W_2ᵀ W_2) and of ‖Φᵀ (W_2)_·a‖².

    Averaging over signs leaves Σ_k O_ak² ‖F(w_a, w_k)‖² + ‖Φᵀ (W_2)_·a‖²/4 of (G_1 G_1ᵀ)_aa, O_ac²
    F(w_a, w_c)·F(w_c, w_a) of (G_1 G_1ᵀ)_ac, and Σ_k (W_2)_ik² (H²)_kk on the diagonal plus Φ W_1ᵀ
    W_1 Φᵀ/4 of G_2 G_2ᵀ: the rest is odd in entries of W_2 or, for O_aa O_cc w_aᵀ w_c/4, in a row
    of W_1. A sign of w_c flips φ = π/2 - θ, so the even part in φ remains.
    """
    norms, angles = _norms_and_angles(w1)
    own = jnp.eye(w1.shape[0], dtype=bool)
    phi, lengths = np.pi / 2 - angles.theta, norms**2
    mixed, level = angles.sine**2 + 2 * phi * angles.sine * angles.cosine, np.pi**2 / 4 + phi**2
    # The even parts of ‖F(u, v)‖²/‖v‖², of g(θ)² and of F(u, v)·F(v, u)/(‖u‖‖v‖); w_a has no
    # relative sign to itself.
    f_squared = jnp.where(own, 1 / 4, (mixed + level) / (4 * np.pi**2))
    g_squared = jnp.where(own, 1 / 4, (mixed + level * angles.cosine**2) / (4 * np.pi**2))
    crossed = (angles.sine + phi * angles.cosine) / (4 * np.pi)
    diagonal = (overlaps * f_squared) @ lengths + signal / 4
    p1 = jnp.where(own, diagonal, overlaps * crossed * norms[:, None] * norms[None, :])
    through = target @ w1.T
    p2 = jnp.diag(squares @ (lengths * (g_squared @ lengths))) + through @ through.T / 4
    return OuterProducts(p1, p2)


class _Angles(NamedTuple):
    """Angles θ_ab between rows of W_1, with sine and cosine: recomputing these is expensive."""

    theta: Array
    sine: Array
    cosine: Array


def _gram(norms: Array, angles: _Angles) -> Array:
    return norms[:, None] * norms[None, :] * arc_cosine_1_of(*angles)


def _norms_and_angles(w1: Array) -> tuple[Array, _Angles]:
    """‖w_a‖ and θ_ab; the angle of a zero (padded) row is irrelevant beside its norm."""
    own = jnp.eye(w1.shape[0], dtype=bool)
    squares = jnp.sum(w1**2, axis=1)
    norms = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
    unit = w1 / jnp.where(norms > 0, norms, 1)[:, None]
    # θ_aa = 0 is set, not computed: arccos loses half the digits at 1 and has no derivative there.
    cosine = jnp.where(own, 0, jnp.clip(unit @ unit.T, -1, 1))
    sine = jnp.sqrt((1 - cosine) * (1 + cosine))
    return norms, _Angles(
        jnp.where(own, 0, arccos(cosine)), jnp.where(own, 0, sine), jnp.where(own, 1, cosine)
    )


def _check(params: Params, target: Array) -> None:
    check_target(
        target, (params.w2.shape[0], params.w1.shape[1]), "The target of a two-layer network"
    )
