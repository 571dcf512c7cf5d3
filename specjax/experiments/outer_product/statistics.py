"""What the experiments on E[G Gᵀ] measure in one draw."""

from jaxtyping import Array, Float

from specjax import spectral
from specjax.models import relu_network
from specjax.sizes import AnySize


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


def relu_output_control(
    params: relu_network.Params, gradient: relu_network.Params, target: Float[Array, "d2 d0"]
) -> Float[Array, ""]:
    """A control variate for `g2_coefficient`, the coefficient of W_2 H² W_2ᵀ: its off-diagonal is odd in each row of W_2.

    So its expectation is exactly zero and subtracting it changes no mean; it carries nearly all of the variance.
    """
    return spectral.off_diagonal_coefficient(gram(gradient.w2 + target @ params.w1.T / 2), gram(target))
