"""The five layers side by side: gradients of their losses, at any padding, with the ranks that are claimed."""

import jax
import numpy as np
import pytest

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
        + relu_network.loss(relu_network.Params(params["relu_hidden"], params["relu_output"]), linear)
    )


@each_width
@pytest.mark.usefixtures("x64")
def test_gradients_are_those_of_the_losses(width):
    params, gradient = layers.problem(KEY, width, TARGET_KEY)
    expected = jax.grad(losses)(params)
    assert list(params) == list(LAYERS) == list(gradient(params))
    for layer, g in gradient(params).items():
        np.testing.assert_allclose(g, expected[layer], rtol=1e-9, atol=1e-9, err_msg=layer)


@each_layer
@each_width
@pytest.mark.usefixtures("x64")
def test_padding_changes_neither_weights_nor_gradients(layer, width):
    plain, padded = (layers.problem(KEY, size, TARGET_KEY) for size in (width, Size(24, width)))
    block = np.asarray(layers.mask(layer, Size(24, width)))
    for small, large in (
        (plain.params[layer], padded.params[layer]),
        (plain.gradient(plain.params)[layer], padded.gradient(padded.params)[layer]),
    ):
        assert block.shape == large.shape
        assert not np.any(np.asarray(large)[~block])
        np.testing.assert_allclose(np.asarray(large)[block], np.ravel(small), rtol=1e-12, atol=1e-12)


@each_layer
@pytest.mark.parametrize("width", [5, Size(9, 5)], ids=["int", "padded"])
def test_the_mask_and_the_number_of_rows_are_those_of_the_weight(layer, width):
    weight = layers.problem(KEY, width, TARGET_KEY).params[layer]
    np.testing.assert_array_equal(layers.mask(layer, width), weight != 0)
    rows = layers.rows(layer, width)
    assert (rows.active if isinstance(rows, Size) else rows) == np.any(weight != 0, axis=1).sum()


@each_layer
@pytest.mark.parametrize("width", [3, 20, 50])
@pytest.mark.usefixtures("x64")
def test_the_rank_of_a_gradient_stays_within_its_bound_and_reaches_it(layer, width):
    params, gradient = layers.problem(KEY, width, TARGET_KEY)
    rank = np.linalg.matrix_rank(gradient(params)[layer])
    assert rank <= layers.rank(layer)
    if width >= 20:
        assert rank == layers.rank(layer)
