"""The five layers side by side: gradients of their losses, at any padding, with the ranks that are
claimed.
"""

from functools import cache
from typing import NamedTuple

import jax
import numpy as np
import pytest

from specjax import sizes
from specjax.experiments.outer_product import layers
from specjax.experiments.outer_product.layers import D_IN, D_OUT, LAYERS
from specjax.models import deep_linear, matrix_factorization, relu_network
from specjax.models.targets import low_rank_target, sign_target
from specjax.sizes import Size

KEY, TARGET_KEY = jax.random.key(3), jax.random.key(4)
each_layer = pytest.mark.parametrize("layer", LAYERS)
each_width = pytest.mark.parametrize("width", [1, 3, 20])


def losses(params):
    symmetric = low_rank_target(jax.random.fold_in(TARGET_KEY, 0), D_OUT, D_OUT // 2)
    linear = sign_target(jax.random.fold_in(TARGET_KEY, 1), D_OUT, D_IN)
    return (
        matrix_factorization.loss(params["factorization"], symmetric)
        + deep_linear.loss((params["linear_hidden"], params["linear_output"]), linear)
        + relu_network.loss(
            relu_network.Params(params["relu_hidden"], params["relu_output"]), linear
        )
    )


class Found(NamedTuple):
    """The weights, their gradients, and the gradients of the losses by automatic
    differentiation.
    """

    params: dict
    gradient: dict
    expected: dict


def all_layers(width):
    params, gradient = layers.problem(KEY, width, TARGET_KEY)
    assert list(params) == list(LAYERS) == list(gradient(params))
    return Found(params, gradient(params), jax.grad(losses)(params))


# Padded, one program for all widths.
alone = jax.jit(all_layers, static_argnums=0)
with_padding = jax.jit(lambda active, padded: all_layers(Size(padded, active)), static_argnums=1)


@cache
def found(active, padded=None):
    """Everything that is asked of one width, in float64: computed once, whichever test needs it
    first.
    """
    with jax.enable_x64(True):
        return jax.tree.map(
            np.asarray, alone(active) if padded is None else with_padding(active, padded)
        )


@pytest.mark.integration
@each_width
def test_gradients_are_those_of_the_losses(width):
    _, gradient, expected = found(width)
    for layer, g in gradient.items():
        np.testing.assert_allclose(g, expected[layer], rtol=1e-9, atol=1e-9, err_msg=layer)


@pytest.mark.integration
@each_layer
@each_width
def test_padding_changes_neither_weights_nor_gradients(layer, width):
    plain, padded = found(width), found(width, 24)
    block = np.asarray(layers.mask(layer, Size(24, width)))
    for small, large in (
        (plain.params[layer], padded.params[layer]),
        (plain.gradient[layer], padded.gradient[layer]),
    ):
        assert block.shape == large.shape
        assert not np.any(large[~block])
        np.testing.assert_allclose(large[block], np.ravel(small), rtol=1e-12, atol=1e-12)


@pytest.mark.integration
@each_layer
@pytest.mark.parametrize("width", [3, Size(24, 3)], ids=["int", "padded"])
def test_the_mask_and_the_number_of_rows_are_those_of_the_weight(layer, width):
    weight = found(sizes.active(width), width.padded if isinstance(width, Size) else None).params[
        layer
    ]
    np.testing.assert_array_equal(layers.mask(layer, width), weight != 0)
    rows = layers.rows(layer, width)
    assert sizes.active(rows) == np.any(weight != 0, axis=1).sum()


@pytest.mark.integration
@each_layer
@pytest.mark.parametrize("width", [3, 20, 50])
def test_the_rank_of_a_gradient_reaches_but_keeps_its_bound(layer, width):
    rank = np.linalg.matrix_rank(found(width).gradient[layer])
    assert rank <= layers.rank(layer)
    if width >= 20:
        assert rank == layers.rank(layer)
