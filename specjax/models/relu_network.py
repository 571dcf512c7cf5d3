"""Two-layer ReLU networks f(x) = W_2 σ(W_1 x) learning a linear map Φ: L = ½ E_x ‖f(x) - Φ x‖², x ~ N(0, I).

Loss and gradient of the population are exact given the weights: the average over x is done by the arc-cosine kernels, not by
samples (outer-product, Appendix C).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.models.targets import check_target
from specjax.sizes import AnySize, normal
from specjax.theory.angles import arc_cosine_0, arc_cosine_1_of, arccos


class Params(NamedTuple):
    """The weights W_1 ∈ R^{d_1×d_0} and W_2 ∈ R^{d_2×d_1}."""

    w1: Float[Array, "d1 d0"]
    w2: Float[Array, "d2 d1"]


def init(key: Key[Array, ""], d0: AnySize, d1: AnySize, d2: AnySize) -> Params:
    """Weights with independent N(0, 1) entries (outer-product, Assumption 1)."""
    key_1, key_2 = jax.random.split(key)
    return Params(normal(key_1, (d1, d0)), normal(key_2, (d2, d1)))


def forward(params: Params, x: Float[Array, "n d0"]) -> Float[Array, "n d2"]:
    """W_2 σ(W_1 x) for each row of x."""
    return jax.nn.relu(x @ params.w1.T) @ params.w2.T


def sampled_loss(params: Params, target: Float[Array, "d2 d0"], x: Float[Array, "n d0"]) -> Float[Array, ""]:
    """½ mean_i ‖f(x_i) - Φ x_i‖² on a batch. Raises ValueError for a target of another shape or with non-finite entries."""
    _check(params, target)
    return jnp.sum((forward(params, x) - x @ target.T) ** 2) / (2 * x.shape[0])


def loss(params: Params, target: Float[Array, "d2 d0"]) -> Float[Array, ""]:
    """The population loss ½ tr(W_2 H W_2ᵀ) - ½ tr(W_2 W_1 Φᵀ) + ½ ‖Φ‖_F², exact. Raises as `sampled_loss`."""
    _check(params, target)
    w1, w2 = params
    return (jnp.sum(w2 * (w2 @ hidden_gram(w1))) - jnp.sum((w2 @ w1) * target) + jnp.sum(target**2)) / 2


def gradient(params: Params, target: Float[Array, "d2 d0"]) -> Params:
    """(G_1, G_2) of the population loss, exact given the weights and zero on padded units (outer-product, Lemmas 22-25).

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
    """H = E_x[σ(W_1 x) σ(W_1 x)ᵀ] = ‖w_a‖‖w_b‖ g(θ_ab) (Cho and Saul 2009; outer-product, Lemma 19)."""
    return _gram(*_norms_and_angles(w1))


class _Angles(NamedTuple):
    """θ_ab between rows of W_1, with its sine and cosine: as functions of θ they would cost more than the matrix products."""

    theta: Array
    sine: Array
    cosine: Array


def _gram(norms: Array, angles: _Angles) -> Array:
    return norms[:, None] * norms[None, :] * arc_cosine_1_of(*angles)


def _norms_and_angles(w1: Array) -> tuple[Array, _Angles]:
    """‖w_a‖ and θ_ab; the angle of a padded (zero) row is irrelevant, since its norm multiplies everything it enters."""
    own = jnp.eye(w1.shape[0], dtype=bool)
    squares = jnp.sum(w1**2, axis=1)
    norms = jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0)
    unit = w1 / jnp.where(norms > 0, norms, 1)[:, None]
    # θ_aa = 0 is set, not computed: arccos loses half the digits at 1 and has no derivative there.
    cosine = jnp.where(own, 0, jnp.clip(unit @ unit.T, -1, 1))
    sine = jnp.sqrt((1 - cosine) * (1 + cosine))
    return norms, _Angles(jnp.where(own, 0, arccos(cosine)), jnp.where(own, 0, sine), jnp.where(own, 1, cosine))


def _check(params: Params, target: Array) -> None:
    check_target(target, (params.w2.shape[0], params.w1.shape[1]), "The target of a two-layer network")
