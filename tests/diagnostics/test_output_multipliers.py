"""The number that what a map gives is multiplied by: noted where it is one, and left where it may
not be.
"""

import jax
import jax.numpy as jnp
import pytest

from specjax.diagnostics.linear_maps import linear_maps
from specjax.theory import activations

W, B = jnp.ones((3, 4)), jnp.ones(3)
X = jnp.arange(8.0).reshape(4, 2)
TABLE = jnp.arange(10.0).reshape(5, 2)


def after(output):
    """What is noted of each map of the loss Σ output(W, b)²."""

    def noted(w, b):
        return [
            jnp.asarray(m.after)
            for m in linear_maps(lambda leaves: jnp.sum(output(*leaves) ** 2), [w, b])
        ]

    return [float(number) for number in jax.jit(noted)(W, B)]


@pytest.mark.parametrize(
    ("output", "numbers"),
    [
        (lambda w, _: w @ X, [1.0]),
        (lambda w, _: (w @ X) / 4, [0.25]),
        (lambda w, b: -2 * (w @ X + b[:, None]).T.reshape(-1), [-2.0]),
        (
            lambda w, b: jax.vmap(
                lambda x: jax.jit(lambda w, x: w @ x / 4 + b)(w, x) * 3, in_axes=1
            )(X),
            [0.75],
        ),
        # Of two maps each has its own, and of a sum of two nothing is known.
        (lambda w, _: (w.T @ ((w @ X) * 3)) / 2, [3.0, 0.5]),
        (lambda w, _: (w @ X + (2 * w) @ X) * 5, [1.0, 1.0]),
        (lambda w, _: jax.nn.relu(w @ X) * 5, [1.0]),
        # A number on one of several uses does not multiply the others.
        (lambda w, _: activations.leaky_relu(0.0).function(w @ X), [1.0]),
        (lambda w, _: jax.nn.leaky_relu(w @ X, 0.1) * 5, [1.0]),
        (lambda w, b: (lambda t: t + jnp.tanh(3 * t))(2 * (w @ X + b[:, None])), [2.0]),
        (lambda w, b: b[:, None] * (w @ X) * 5, [1.0]),
        (lambda w, _: 4.0 / (w @ X + 1), [1.0]),
        (lambda w, b: TABLE[jnp.array([0, 1])] * jnp.sum(w @ X) + jnp.sum(b), [1.0]),
        (lambda w, _: w[jnp.array([0, 2])] * 7, [7.0]),
    ],
)
def test_the_number_after_a_map_is_noted(output, numbers):
    assert after(output) == numbers
