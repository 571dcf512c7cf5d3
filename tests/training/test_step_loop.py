"""Steps of any kind on batches of any iterator: the same as by hand, continued from disk, and what
is refused.
"""

from itertools import count, cycle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax.training import Checkpoints, NotFinite, train_steps

OPTIMIZER = optax.adam(0.1)
X = np.random.default_rng(0).standard_normal((12, 8, 3)).astype(np.float32)


@jax.jit
def step(state, x):
    """A linear regression with a running mean of its inputs, as batch statistics are, and a key."""
    w, optimizer, mean, key = state
    key, own = jax.random.split(key)
    value, gradient = jax.value_and_grad(
        lambda w: jnp.mean((x @ w - 1 + 0.1 * jax.random.normal(own, (8,))) ** 2)
    )(w)
    updates, optimizer = OPTIMIZER.update(gradient, optimizer, w)
    return (w + updates, optimizer, 0.9 * mean + 0.1 * x.mean(axis=0), key), value


def start():
    w = jnp.zeros(3)
    return w, OPTIMIZER.init(w), jnp.zeros(3), jax.random.PRNGKey(0)


def record(state, number):
    return {"w": state[0], "step": jnp.asarray(number)}


def by_hand(steps):
    state, losses, states = start(), [], [start()]
    for i in range(steps):
        state, loss = step(state, X[i])
        losses.append(loss)
        states.append(state)
    return states, losses


def test_what_is_trained_is_what_the_steps_give():
    seen = []
    run = train_steps(
        step,
        start(),
        iter(X),
        steps=6,
        every=2,
        record=record,
        progress=lambda run: seen.append(len(run.losses)),
    )
    states, losses = by_hand(6)
    np.testing.assert_array_equal(run.losses, losses)
    jax.tree.map(np.testing.assert_array_equal, run.state, states[6])
    assert [int(found["step"]) for found in run.records] == [0, 2, 4, 6]
    for number in (0, 2, 4, 6):
        np.testing.assert_array_equal(run.records[number // 2]["w"], states[number][0])
    assert seen == [2, 4, 6]
    assert train_steps(step, start(), X, steps=6, every=3).records == ()


@pytest.mark.integration
def test_a_training_continues_with_unseen_batches(tmp_path):
    pytest.importorskip("orbax.checkpoint")

    def interrupted():
        yield from X[:5]
        raise KeyboardInterrupt

    options = {"steps": 8, "every": 2, "record": record}
    with pytest.raises(KeyboardInterrupt):
        train_steps(
            step, start(), interrupted(), **options, checkpoints=Checkpoints(tmp_path, {"seed": 0})
        )
    taken = []

    def counted(state, x):
        taken.append(1)
        return step(state, x)

    run = train_steps(
        counted, start(), iter(X), **options, checkpoints=Checkpoints(tmp_path, {"seed": 0})
    )
    assert len(taken) == 4
    states, losses = by_hand(8)
    np.testing.assert_array_equal(run.losses, losses)
    jax.tree.map(np.testing.assert_array_equal, run.state, states[8])
    np.testing.assert_array_equal(run.records[2]["w"], states[4][0])
    with pytest.raises(
        ValueError, match=r"is of step 8, which is none of 3, 6, … up to 6; take another folder"
    ):
        train_steps(
            step,
            start(),
            X,
            steps=6,
            every=3,
            record=record,
            checkpoints=Checkpoints(tmp_path, {"seed": 0}),
        )


def test_a_loss_that_is_not_finite_is_told_with_its_step():
    def burst(state, batch):
        return state, jnp.where(batch == 3, jnp.nan, 1.0)

    with pytest.raises(
        NotFinite, match=r"The loss of step 3 is nan; lower the learning rate"
    ) as stopped:
        train_steps(burst, {}, count(), steps=8, every=4)
    np.testing.assert_array_equal(np.isnan(stopped.value.losses), [False, False, False, True])


@pytest.mark.usefixtures("unchecked")
def test_what_is_refused():
    with pytest.raises(
        ValueError,
        match="There are 2 batches for 4 steps; give as many as steps, or cycle through them",
    ):
        train_steps(step, start(), X[:2], steps=4, every=2)
    with pytest.raises(ValueError, match="a positive multiple of every, got steps=5 and every=2"):
        train_steps(step, start(), cycle(X), steps=5, every=2)
    with pytest.raises(ValueError, match=r"one number, got a loss of shape \(8,\)"):
        train_steps(lambda state, x: (state, x[:, 0]), start(), X, steps=2, every=2)
