"""The five weight matrices of the paper's summary table at one common width, with their losses: what later experiments compare.

The width is k for matrix factorization, d_1 for the linear and the ReLU network (both two layers deep); the other sizes stay fixed.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Key

from specjax.models import deep_linear, matrix_factorization, relu_network
from specjax.models.targets import low_rank_target, sign_target
from specjax.sizes import AnySize, block_mask

D_IN, D_OUT = 8, 6
"""Input and output sizes of the networks; the factorized matrix is D_OUT × D_OUT."""

LAYERS = {
    "factorization": "matrix factorization, U",
    "linear_hidden": "linear network, W₁",
    "linear_output": "linear network, W₂",
    "relu_hidden": "ReLU network, W₁",
    "relu_output": "ReLU network, W₂",
}
GROWING_ROWS = ("linear_hidden", "relu_hidden")
"""The layers whose number of rows is the width; the others have D_OUT rows and the width as columns."""

Params = dict[str, Float[Array, "_ _"]]


class Problem(NamedTuple):
    """The three models side by side: their weights by layer, and the population gradient of each model's loss by layer."""

    params: Params
    gradient: Callable[[Params], Params]


def problem(key: Key[Array, ""], width: AnySize, target_key: Key[Array, ""]) -> Problem:
    """All five weights at Gaussian initialization, each model with its own draw, and targets that do not depend on the width."""
    keys = jax.random.split(key, 3)
    symmetric = low_rank_target(jax.random.fold_in(target_key, 0), D_OUT, D_OUT // 2)
    linear = sign_target(jax.random.fold_in(target_key, 1), D_OUT, D_IN)
    linear_params = deep_linear.init(keys[1], (D_IN, width, D_OUT))
    relu_params = relu_network.init(keys[2], D_IN, width, D_OUT)
    params = {
        "factorization": matrix_factorization.init(keys[0], D_OUT, width),
        "linear_hidden": linear_params[0],
        "linear_output": linear_params[1],
        "relu_hidden": relu_params.w1,
        "relu_output": relu_params.w2,
    }

    def gradient(params: Params) -> Params:
        in_linear = deep_linear.gradient((params["linear_hidden"], params["linear_output"]), linear)
        in_relu = relu_network.gradient(relu_network.Params(params["relu_hidden"], params["relu_output"]), linear)
        return {
            "factorization": matrix_factorization.gradient(params["factorization"], symmetric),
            "linear_hidden": in_linear[0],
            "linear_output": in_linear[1],
            "relu_hidden": in_relu.w1,
            "relu_output": in_relu.w2,
        }

    return Problem(params, gradient)


def rows(layer: str, width: AnySize) -> AnySize:
    """The number of rows of a layer's weight."""
    return width if layer in GROWING_ROWS else D_OUT


def mask(layer: str, width: AnySize) -> Bool[Array, "m n"]:
    """True on the entries of a layer's weight that are not padding."""
    return block_mask((width, D_IN) if layer in GROWING_ROWS else (D_OUT, width))


def rank(layer: str) -> int:
    """An upper bound on the rank of the layer's gradient that does not grow with the width."""
    # The hidden linear gradient is W₂ᵀ R; all others have D_IN columns or D_OUT rows and are full.
    return min(D_IN, D_OUT) if layer == "linear_hidden" else D_IN if layer == "relu_hidden" else D_OUT
