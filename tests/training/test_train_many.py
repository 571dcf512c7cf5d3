"""Runs side by side are the same runs one by one, and one that diverges stops alone."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import training

TARGETS = np.random.default_rng(0).standard_normal((6, 2, 3)).astype(np.float32)


def loss(params, target):
    return jnp.sum((params["w"] - target) ** 2)


def batch(t):
    return jnp.asarray(TARGETS)[t]


def run(*rates):
    optimizers = [optax.sgd(rate, momentum=0.9) for rate in rates]
    start = {"w": jnp.ones((2, 3))}
    records = lambda params: params["w"]  # noqa: E731
    return training.train_many(loss, start, batch, optimizers, (0, 2, 6), records)


def by_hand(rate):
    w, momentum, found = np.ones((2, 3)), np.zeros((2, 3)), [np.ones((2, 3))]
    for t in range(6):
        momentum = 0.9 * momentum + 2 * (w - TARGETS[t])
        w = w - rate * momentum
        if t in (1, 5):
            found.append(w)
    return np.stack(found)


def test_each_run_is_that_of_its_optimizer_alone():
    weights, stopped = jax.jit(run)(0.1, 0.01)
    assert weights.shape == (3, 2, 2, 3)
    assert not stopped.any()
    for place, rate in enumerate((0.1, 0.01)):
        np.testing.assert_allclose(weights[:, place], by_hand(rate), rtol=2e-5, atol=1e-6)


def test_a_run_that_diverges_stops_alone_at_its_last_finite_loss():
    weights, stopped = run(0.1, jnp.inf)
    np.testing.assert_array_equal(stopped, [[False, False], [False, True], [False, True]])
    np.testing.assert_array_equal(weights[:, 0], run(0.1)[0][:, 0])
    # The infinite step was taken by a finite loss; from there on nothing moves.
    np.testing.assert_array_equal(weights[1, 1], weights[2, 1])


@pytest.mark.parametrize("lengths", [(), (3, 3), (-1, 2), (4, 2)])
def test_lengths_ascend(lengths):
    with pytest.raises(
        ValueError, match="lengths needs different numbers of steps in ascending order from 0 on"
    ):
        training.train_many(
            loss, {"w": jnp.ones(2)}, batch, [optax.sgd(0.1)], lengths, lambda params: params
        )


def test_there_is_an_optimizer():
    with pytest.raises(ValueError, match="one or more optimizers, got none"):
        training.train_many(loss, {"w": jnp.ones(2)}, batch, [], (1,), lambda params: params)
