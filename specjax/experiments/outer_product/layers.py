"""The five weight matrices of the paper's summary table at a common width, with their losses.

The width is k for matrix factorization, d_1 for the linear and the ReLU network (both two layers
deep); the other sizes stay fixed.
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
"""The layers whose row count is the width; the others have D_OUT rows and the width as columns."""

Params = dict[str, Float[Array, "_ _"]]


class Problem(NamedTuple):
    """The three models together: their weights and population gradients by layer."""

    params: Params
    gradient: Callable[[Params], Params]


def targets(key: Key[Array, ""]) -> tuple[Float[Array, "d2 d2"], Float[Array, "d2 d0"]]:
    """M of the factorization and Φ of both networks, which do not depend on the width."""
    first, second = (jax.random.fold_in(key, place) for place in (0, 1))
    return low_rank_target(first, D_OUT, D_OUT // 2), sign_target(second, D_OUT, D_IN)


def problem(key: Key[Array, ""], width: AnySize, target_key: Key[Array, ""]) -> Problem:
    """All five weights at Gaussian initialization, with a separate sample for each model."""
    keys, (symmetric, linear) = jax.random.split(key, 3), targets(target_key)
    weights = (
        matrix_factorization.init(keys[0], D_OUT, width),
        *deep_linear.init(keys[1], (D_IN, width, D_OUT)),
        *relu_network.init(keys[2], D_IN, width, D_OUT),
    )

    def gradient(params: Params) -> Params:
        u, *in_linear, w1, w2 = (params[layer] for layer in LAYERS)
        gradients = (
            matrix_factorization.gradient(u, symmetric),
            *deep_linear.gradient(tuple(in_linear), linear),
            *relu_network.gradient(relu_network.Params(w1, w2), linear),
        )
        return dict(zip(LAYERS, gradients, strict=True))

    return Problem(dict(zip(LAYERS, weights, strict=True)), gradient)


def rows(layer: str, width: AnySize) -> AnySize:
    """The number of rows of a layer's weight."""
    return width if layer in GROWING_ROWS else D_OUT


def mask(layer: str, width: AnySize) -> Bool[Array, "m n"]:
    """True on the entries of a layer's weight that are not padding."""
    return block_mask((width, D_IN) if layer in GROWING_ROWS else (D_OUT, width))


def rank(layer: str) -> int:
    """An upper bound on the rank of the layer's gradient that does not grow with the width."""
    # The hidden linear gradient is W₂ᵀ R; all others have D_IN columns or D_OUT rows and are full.
    return (
        min(D_IN, D_OUT) if layer == "linear_hidden" else D_IN if layer == "relu_hidden" else D_OUT
    )
