"""Deep linear networks f(x) = W_L ⋯ W_1 x of any depth, learning a linear map Φ: L = ½ E_x ‖f(x) -
Φ x‖², x ~ N(0, I).

Parameters are the tuple (W_1, …, W_L), W_i ∈ R^{d_i×d_{i-1}} (outer-product, Section 3).
"""

from collections.abc import Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.models.targets import check_target
from specjax.sizes import AnySize, normal

Params = tuple[Float[Array, "_ _"], ...]


def init(key: Key[Array, ""], dims: Sequence[AnySize]) -> Params:
    """Weights with independent N(0, 1) entries for the sizes (d_0, …, d_L) (outer-product,
    Assumption 1).

    Raises ValueError for fewer than two sizes.
    """
    if len(dims) < 2:
        raise ValueError(
            f"A linear network needs at least an input and an output size, got dims={tuple(dims)}."
        )
    return tuple(
        normal(jax.random.fold_in(key, layer), (rows, columns))
        for layer, (columns, rows) in enumerate(pairwise(dims))
    )


def forward(params: Params, x: Float[Array, "n d0"]) -> Float[Array, "n dL"]:
    """W_L ⋯ W_1 x for each row of x."""
    for weight in params:
        x = x @ weight.T
    return x


def loss(params: Params, target: Float[Array, "dL d0"]) -> Float[Array, ""]:
    """½ ‖W_L ⋯ W_1 - Φ‖_F²; ValueError for a target of another shape or with non-finite entries."""
    _check(params, target)
    return jnp.sum((_products(params)[-1] - target) ** 2) / 2


def sampled_loss(
    params: Params, target: Float[Array, "dL d0"], x: Float[Array, "n d0"]
) -> Float[Array, ""]:
    """½ mean_i ‖f(x_i) - Φ x_i‖² on a batch. Raises as `loss`."""
    _check(params, target)
    return jnp.sum((forward(params, x) - x @ target.T) ** 2) / (2 * x.shape[0])


def gradient(params: Params, target: Float[Array, "dL d0"]) -> Params:
    """G_i = A_iᵀ (W_L ⋯ W_1 - Φ) B_iᵀ for each layer (outer-product, eq. 20); raises as `loss`."""
    _check(params, target)
    products = _products(params)
    # A_iᵀ R is computed from the output down, so that products of two hidden widths never occur.
    pulled = products[-1] - target
    gradients: Params = ()
    for weight, before in zip(params[::-1], products[-2::-1], strict=True):
        gradients = (pulled @ before.T, *gradients)
        pulled = weight.T @ pulled
    return gradients


def _products(params: Params) -> list[Array]:
    """B_1 = I, B_2 = W_1, …, B_{L+1} = W_L ⋯ W_1."""
    products = [jnp.eye(params[0].shape[1], dtype=params[0].dtype), params[0]]
    for weight in params[1:]:
        products.append(weight @ products[-1])
    return products


def _check(params: Params, target: Array) -> None:
    check_target(
        target, (params[-1].shape[0], params[0].shape[1]), "The target of a linear network"
    )
