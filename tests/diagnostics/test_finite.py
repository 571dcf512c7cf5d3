"""Which layer stops being finite first."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.diagnostics import first_not_finite
from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences


def second(factor):
    """One for the matrices of the first of two blocks."""
    return np.array([1, factor], np.float32).reshape(2, 1, 1)


def times(where, factor):
    return lambda model: eqx.tree_at(where, model, where(model) * factor)


@pytest.fixture(scope="module")
def sound():
    """A model and a batch, of NumPy."""
    model = eqx.filter_jit(transformer.init)(
        jax.random.key(0), Architecture(7, 8, 6, activation="relu_squared")
    )
    return jax.device_get((model, Sequences(jax.random.randint(jax.random.key(1), (8, 7), 0, 7))))


@pytest.mark.integration
@pytest.mark.parametrize(
    ("spoiled", "culprit"),
    [
        (lambda model: model, None),
        (times(lambda m: m.blocks.down, second(np.nan)), "the parameter blocks.down[1]"),
        (times(lambda m: m.positions, np.float32(np.inf)), "the parameter positions"),
        (times(lambda m: m.blocks.up, second(1e25)), "the inputs of blocks.down[1]"),
        (lambda model: times(lambda m: m.head, 1e38 / np.abs(model.head).max())(model), "the loss"),
    ],
)
def test_what_is_not_finite_first(sound, spoiled, culprit):
    model, batch = sound
    assert first_not_finite(transformer.loss, spoiled(model), batch) == culprit


def test_a_gradient_can_be_the_first():
    params = {"first": jnp.ones((3, 2, 2)), "second": jnp.ones((3, 2, 2))}

    def loss(params, x):
        return jnp.sum(params["first"][0] @ x) + jnp.sum(jnp.sqrt(params["second"][2] @ x * 0.0))

    assert first_not_finite(loss, params, jnp.ones((2, 2))) == "the gradient of second[2]"
