"""The hard rank of relu units, and networks that learn by steps of a known norm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.experiments.beyond.hard_rank_network import (
    OPTIMIZERS,
    RATE,
    direction,
    hard_rank,
    sample_problem,
    train,
)


@pytest.mark.integration
def test_the_hard_rank_is_that_of_sampled_relu_units():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(12, 5)) * rng.uniform(0.5, 2, size=(12, 1))
    batches = [np.cov(np.maximum(w @ rng.normal(size=(5, 40000)), 0)) for _ in range(16)]
    sampled = [np.trace(c) ** 2 / np.sum(c**2) for c in batches]
    found = float(hard_rank(jnp.array(w, jnp.float32)))
    assert abs(found - np.mean(sampled)) < 4 * np.std(sampled, ddof=1) / 4


@pytest.mark.parametrize("shape", [(12, 8), (8, 12)])
def test_directions_are_those_of_a_decomposition(shape):
    momentum = np.random.default_rng(1).normal(size=shape)
    u, s, vt = np.linalg.svd(momentum, full_matrices=False)
    expected = {
        "gradient": momentum / np.linalg.norm(s),
        "Adam": momentum / np.linalg.norm(s),
        "top eighth": u[:, :2] @ vt[:2] / 2**0.5,
        "Muon": u @ vt / 8**0.5,
    }
    for name in OPTIMIZERS:
        found = direction(name, jnp.array(momentum, jnp.float32), 2)
        np.testing.assert_allclose(found, expected[name], atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize(("power", "growth"), [(0.5, 1.0), (0.0, 0.25)])
def test_a_step_has_the_norm_of_its_rule(power, growth):
    d, width = 8, 32
    problem = sample_problem(jax.random.key(0), d, width)
    for name in OPTIMIZERS:
        found = train(name, problem, jnp.array(power), jnp.array(0.0), (1,))
        # The mean square of a unit's step: that of the rate, for each unit or for d units.
        np.testing.assert_allclose(found["size"], RATE**2 * growth, rtol=1e-4)


@pytest.mark.integration
def test_a_readout_is_trained_or_stays():
    problem = sample_problem(jax.random.key(0), 8, 16)
    losses = [
        float(train("gradient", problem, jnp.array(0.5), jnp.array(trained), (40,))["log loss"][0])
        for trained in (0.0, 1.0)
    ]
    assert losses[1] < losses[0] - 0.5
