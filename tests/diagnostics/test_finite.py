"""Which layer stops being finite first."""

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from specjax.diagnostics import first_not_finite
from specjax.models import transformer
from specjax.models.transformer import Architecture, Sequences

MODEL = transformer.init(jax.random.key(0), Architecture(7, 8, 6, activation="relu_squared"))
BATCH = Sequences(jax.random.randint(jax.random.key(1), (8, 7), 0, 7))


def times(where, factor):
    return eqx.tree_at(where, MODEL, where(MODEL) * factor)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("model", "culprit"),
    [
        (MODEL, None),
        (times(lambda m: m.blocks.down, jnp.ones((2, 1, 1)).at[1].set(jnp.nan)), "the parameter blocks.down[1]"),
        (times(lambda m: m.positions, jnp.inf), "the parameter positions"),
        (times(lambda m: m.blocks.up, jnp.ones((2, 1, 1)).at[1].set(1e25)), "the inputs of blocks.down[1]"),
        (times(lambda m: m.head, 1e38 / jnp.abs(MODEL.head).max()), "the loss"),
    ],
)
def test_what_is_not_finite_first(model, culprit):
    assert first_not_finite(transformer.loss, model, BATCH) == culprit


def test_a_gradient_can_be_the_first():
    params = {"first": jnp.ones((3, 2, 2)), "second": jnp.ones((3, 2, 2))}

    def loss(params, x):
        return jnp.sum(params["first"][0] @ x) + jnp.sum(jnp.sqrt(params["second"][2] @ x * 0.0))

    assert first_not_finite(loss, params, jnp.ones((2, 2))) == "the gradient of second[2]"
