"""What the experiments on E[G Gᵀ] measure in one draw."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from specjax import spectral
from specjax.models import relu_network
from specjax.sizes import AnySize

QUANTITIES = {
    "g2_diagonal": "G₂ diagonal",
    "g2_coefficient": "G₂ off-diagonal ĉ",
    "g1_diagonal": "G₁ diagonal",
    "g1_off_diagonal": "G₁ off-diagonal",
}
"""The four rows of the paper's Table C.7, as they are drawn in its Figure 2."""


def gram(g: Float[Array, "m n"]) -> Float[Array, "m m"]:
    """G Gᵀ."""
    return g @ g.T


def relu_statistics(
    gradient: relu_network.Params, target: Float[Array, "d2 d0"], d1: AnySize, d2: AnySize
) -> dict[str, Float[Array, ""]]:
    """The four rows of the paper's Table C.7, from the gradients alone."""
    p1, p2 = gram(gradient.w1), gram(gradient.w2)
    return {
        "g2_diagonal": spectral.diagonal_mean(p2, d2),
        "g2_coefficient": spectral.off_diagonal_coefficient(p2, gram(target)),
        "g1_diagonal": spectral.diagonal_mean(p1, d1),
        "g1_off_diagonal": spectral.off_diagonal_mean(p1, d1),
    }


def controlled_relu_statistics(
    params: relu_network.Params,
    gradient: relu_network.Params,
    target: Float[Array, "d2 d0"],
    d1: AnySize,
    d2: AnySize,
) -> dict[str, Float[Array, ""]]:
    """The same four numbers in the mean, with far less noise off the diagonals: a control variate is subtracted from each of these two."""
    statistics = relu_statistics(gradient, target, d1, d2)
    return {
        **statistics,
        "g2_coefficient": statistics["g2_coefficient"] - relu_output_control(params, gradient, target),
        "g1_off_diagonal": statistics["g1_off_diagonal"] - relu_hidden_control(params, target, d1),
    }


def relu_output_control(
    params: relu_network.Params, gradient: relu_network.Params, target: Float[Array, "d2 d0"]
) -> Float[Array, ""]:
    """A control variate for `g2_coefficient`, the coefficient of W_2 H² W_2ᵀ: its off-diagonal is odd in each row of W_2.

    So its expectation is exactly zero and subtracting it changes no mean; it carries nearly all of the variance.
    """
    return spectral.off_diagonal_coefficient(gram(gradient.w2 + target @ params.w1.T / 2), gram(target))


def relu_hidden_control(params: relu_network.Params, target: Float[Array, "d2 d0"], d1: AnySize) -> Float[Array, ""]:
    """A control variate for `g1_off_diagonal`: nearly G_1 G_1ᵀ, less what is left of it by the signs of the weights.

    Different rows of W_1 are nearly at right angles. If they were, row a of G_1 would be that of K = B W_1 - W_2ᵀ Φ/2, with O = W_2ᵀ W_2,
    B_ak = O_ak/4 for k != a and B_aa = O_aa/2 + Σ_{k≠a} O_ak ‖w_k‖/(2π ‖w_a‖). Average (K Kᵀ)_ac, a != c, over the signs of the rows
    of W_1 and of the columns of W_2, of which the law of the weights knows nothing. By the former only Σ_k B_ak B_ck ‖w_k‖² and
    (W_2ᵀ Φ Φᵀ W_2)_ac/4 are left; by the latter, under which O_ak has the sign of a times that of k, only the O_ac² of k = a and k = c:
    O_ac² ‖w_a‖ ‖w_c‖/4π. The mean of (K Kᵀ)_ac less this is the control: its expectation is exactly zero, so that subtracting it
    changes no mean, and it carries nearly all of the variance.
    """
    overlaps = gram(params.w2.T)
    norms = jnp.sqrt(jnp.sum(params.w1**2, axis=1))
    others = spectral.off_diagonal(overlaps)
    # Padded rows are zero, and so are their overlaps.
    own = jnp.diagonal(overlaps) / 2 + others @ norms / (2 * np.pi * jnp.where(norms > 0, norms, 1))
    rows = others @ params.w1 / 4 + own[:, None] * params.w1 - params.w2.T @ target / 2
    left = overlaps**2 * norms[:, None] * norms[None, :] / (4 * np.pi)
    return spectral.off_diagonal_mean(gram(rows) - left, d1)
