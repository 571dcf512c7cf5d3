"""Geometric schedules, decay on a plateau, and ScaledGD."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from tests.wrong_calls import wrong_calls


def test_geometric_schedules_decay_and_run_in_optax():
    schedule = optim.geometric(0.5, 0.9)
    np.testing.assert_allclose([schedule(t) for t in range(3)], [0.5, 0.45, 0.405], rtol=1e-6)
    steps = optax.scale_by_learning_rate(schedule)
    state = steps.init(jnp.ones(2))
    for t in range(3):
        update, state = steps.update(jnp.ones(2), state)
        np.testing.assert_allclose(update, -0.5 * 0.9**t * np.ones(2), rtol=1e-6)


def test_random_prefactors_are_drawn_once_or_in_each_step():
    draw = jax.jit(
        jax.vmap(
            lambda t, each: optim.random_geometric(
                jax.random.key(3), 1.0, 2.0, 0.9, each_step=each
            )(t),
            (0, None),
        ),
        static_argnums=1,
    )
    times = jnp.arange(2000)
    undecayed = 0.9 ** -np.arange(60, dtype=float)
    once = np.asarray(draw(times[:60], False)) * undecayed
    np.testing.assert_allclose(once, np.full(60, once[0]), rtol=1e-4)
    assert 1 <= once[0] <= 2
    flat = jax.jit(
        jax.vmap(optim.random_geometric(jax.random.key(3), 1.0, 2.0, 1 - 1e-7, each_step=True))
    )
    drawn = np.asarray(flat(times), float)
    assert np.all((drawn >= 0.999) & (drawn <= 2))
    # Uniform on [1, 2] and independent: mean 3/2, variance 1/12, no correlation from one step to
    # the next.
    assert abs(np.mean(drawn) - 1.5) < 4 / np.sqrt(12 * 2000)
    assert abs(np.var(drawn) - 1 / 12) < 4 * np.sqrt(1 / 180 / 2000)
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 4 / np.sqrt(2000)
    np.testing.assert_array_equal(flat(times[:5]), drawn[:5].astype(np.float32))


def test_the_scale_falls_after_patience_without_a_new_minimum():
    plateau = optim.decay_on_plateau(0.5, 3)
    state = plateau.init(jnp.ones(2))
    losses = [3.0, 2.0, 2.0, 2.5, 2.1, 2.05, 2.0, 1.9, 1.9, 1.8, 1.8, 1.8, 1.8]
    scales = []
    for loss in losses:
        update, state = plateau.update(jnp.ones(2), state, value=jnp.asarray(loss))
        scales.append(float(update[0]))
    # By hand: three losses in a row that are no new minimum halve the scale, and the count starts
    # again.
    assert scales == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.25]
    assert float(state.best) == pytest.approx(1.8)


def scales_after(plateau, losses, dtype):
    return np.asarray(scales(plateau, losses, dtype), float)


def scales(plateau, losses, dtype):
    """The scale on the updates of each step, for parameters of a dtype."""

    def step(state, loss):
        update, state = plateau.update(jnp.ones(1, dtype), state, value=loss)
        return state, update[0]

    return jax.lax.scan(step, plateau.init(jnp.ones(1, dtype)), losses)[1]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_falling_loss_is_no_plateau_at_any_precision(dtype):
    """Steps of 1e-6 relative, below the resolution of half precision and eight times that of
    float32, are all new minima.
    """
    losses = jnp.asarray(3 * (1 - 1e-6) ** np.arange(100), jnp.float32)
    assert (np.diff(losses) < 0).all()
    np.testing.assert_array_equal(
        scales_after(optim.decay_on_plateau(), losses, dtype), np.ones(100)
    )


@pytest.mark.usefixtures("x64")
def test_a_float64_loss_may_be_more_precise_than_the_parameters():
    losses = jnp.asarray(3 * (1 - 1e-13) ** np.arange(50))
    assert (np.diff(losses) < 0).all()
    np.testing.assert_array_equal(
        scales_after(optim.decay_on_plateau(), losses, "float32"), np.ones(50)
    )


def test_the_scale_is_not_rounded_to_the_parameters_precision():
    """0.9 again and again, rounded each time to the 8 bits of bfloat16, ends 6 % off after 30
    decays.
    """
    found = scales_after(optim.decay_on_plateau(0.9, 1), jnp.ones(31), "bfloat16")
    np.testing.assert_allclose(found, 0.9 ** np.arange(31), rtol=2**-8)


def test_factor_and_patience_of_a_plateau_may_be_traced():
    losses = jnp.asarray(np.random.default_rng(0).uniform(size=60), jnp.float32)
    settings = [(0.5, 1), (0.8, 3), (0.9, 2)]
    traced = jax.jit(
        lambda factor, patience: scales(optim.decay_on_plateau(factor, patience), losses, "float32")
    )
    for factor, patience in settings:
        known = scales_after(optim.decay_on_plateau(factor, patience), losses, "float32")
        np.testing.assert_array_equal(traced(factor, patience), known)
        assert known[-1] < 0.2


@pytest.mark.parametrize("first", [True, False])
def test_one_loss_that_is_nan_is_no_new_minimum_and_is_forgotten(first):
    losses = np.linspace(3, 1, 60).astype(np.float32)
    losses[0 if first else 5] = np.nan
    found = scales_after(optim.decay_on_plateau(0.5, 2), jnp.asarray(losses), "float32")
    np.testing.assert_array_equal(found, np.ones(60))
    losses[20:23] = (
        np.nan
    )  # one of them starts the count, the second halves the scale, the third starts it again
    found = scales_after(optim.decay_on_plateau(0.5, 2), jnp.asarray(losses), "float32")
    np.testing.assert_array_equal(found, np.where(np.arange(60) < 21, 1, 0.5))


@pytest.mark.integration
def test_scaled_gradients_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    g, x = rng.standard_normal((5, 3)), rng.standard_normal((5, 3))
    transform = optim.scale_by_factor_gram(0.1)
    update, _ = transform.update(
        jnp.asarray(g, jnp.float32), transform.init(jnp.asarray(x)), jnp.asarray(x, jnp.float32)
    )
    np.testing.assert_allclose(
        update, g @ np.linalg.inv(x.T @ x + 0.1 * np.eye(3)), rtol=1e-3, atol=1e-5
    )


WRONG_CALLS = r"""
optim.geometric(0.0, 0.9)
    a number in \(0, inf\) as prefactor, got 0.0
optim.geometric(1.0, 1.0)
    a number in \(0, 1\) as rho, got 1.0
optim.random_geometric(jax.random.key(0), 2.0, 1.0, 0.9, each_step=True)
    low <= high
optim.decay_on_plateau(1.0)
    a number in \(0, 1\) as factor, got 1.0
optim.decay_on_plateau(0.5, 0)
    a number in \[1, inf\) as patience, got 0
optim.decay_on_plateau().update(jnp.ones(1), optim.decay_on_plateau().init(jnp.ones(1)))
    needs the loss
optim.scale_by_factor_gram(-1.0)
    a number in \[0, inf\) as damping, got -1.0
optim.scale_by_factor_gram().update(jnp.ones((2, 2)), optax.EmptyState())
    needs the factors themselves
optim.scale_by_factor_gram().init({"a": jnp.ones(2)})
    the leaf a has shape \(2,\)
"""


@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_what_makes_no_schedule_is_refused_in_one_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence) as refusal:
        eval(call)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith(".")
