"""Each convention against its formula, and the relations between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import optim

DECAY = 0.9
GRADIENTS = list(np.random.default_rng(0).standard_normal((5, 3, 2)))
pytestmark = pytest.mark.usefixtures("x64", "optax_promotion")


def last(transform):
    state = transform.init(jnp.zeros((3, 2)))
    for g in GRADIENTS:
        update, state = transform.update(jnp.asarray(g), state)
    return update


def sums():
    """Σ β^{n-k} g_k, written out."""
    return sum(DECAY ** (N - k) * g for k, g in enumerate(GRADIENTS, 1))


AHEAD, NOW, N = DECAY * (1 - DECAY), 1 - DECAY, len(GRADIENTS)
FORMULAS = {
    ("sgd", False, False): lambda: sums(),
    ("sgd", True, False): lambda: GRADIENTS[-1] + DECAY * sums(),
    ("ema", False, False): lambda: NOW * sums(),
    ("ema", True, False): lambda: NOW * GRADIENTS[-1] + AHEAD * sums(),
    ("ema", False, True): lambda: NOW * sums() / (1 - DECAY**N),
    ("ema", True, True): lambda: NOW * GRADIENTS[-1] / (1 - DECAY**N) + AHEAD * sums() / (1 - DECAY ** (N + 1)),
}


@pytest.mark.parametrize(("convention", "nesterov", "bias_correction"), FORMULAS, ids=str)
def test_each_convention_is_its_formula(convention, nesterov, bias_correction):
    transform = optim.momentum(DECAY, convention, nesterov=nesterov, bias_correction=bias_correction)
    np.testing.assert_allclose(
        last(transform), FORMULAS[convention, nesterov, bias_correction](), rtol=1e-12, atol=1e-14
    )


DECAYS = [0.5, 0.62, 0.74, 0.86, 0.95]


def by_recursion(convention, nesterov, bias_correction):
    """The updates for decays that change in every step, one step after another from the definitions."""
    m, w, updates = np.zeros((3, 2)), 0.0, []
    for beta, g in zip(DECAYS, GRADIENTS, strict=True):
        share = 1 - beta if convention == "ema" else 1.0
        m, w = beta * m + share * g, beta * w + share
        now, ahead = (w, beta * w + share) if bias_correction else (1.0, 1.0)
        updates.append(share * g / now + beta * m / ahead if nesterov else m / now)
    return updates


@pytest.mark.parametrize(("convention", "nesterov", "bias_correction"), FORMULAS, ids=str)
def test_a_scheduled_decay_is_the_recursion_with_the_decay_of_each_step(convention, nesterov, bias_correction):
    """torch.optim.Muon's for "ema" with Nesterov, whose momentum is warmed up: m ← lerp(m, g, 1 - β), u = lerp(g, m, β)."""
    transform = optim.inject_hyperparams(optim.momentum)(
        lambda t: jnp.asarray(DECAYS)[t], convention, nesterov=nesterov, bias_correction=bias_correction
    )
    state = transform.init(jnp.zeros((3, 2)))
    for g, expected in zip(GRADIENTS, by_recursion(convention, nesterov, bias_correction), strict=True):
        update, state = transform.update(jnp.asarray(g), state)
        np.testing.assert_allclose(update, expected, rtol=1e-12, atol=1e-14)


def test_a_corrected_average_of_equal_gradients_is_the_gradient_whatever_the_schedule():
    transform = optim.inject_hyperparams(optim.momentum)(lambda t: jnp.asarray(DECAYS)[t], bias_correction=True)
    state = transform.init(jnp.zeros((3, 2)))
    for _ in DECAYS:
        update, state = transform.update(jnp.asarray(GRADIENTS[0]), state)
        np.testing.assert_allclose(update, GRADIENTS[0], rtol=1e-12)


def test_a_decay_of_zero_is_the_gradient():
    for convention, nesterov, bias_correction in FORMULAS:
        transform = optim.momentum(0.0, convention, nesterov=nesterov, bias_correction=bias_correction)
        np.testing.assert_allclose(last(transform), GRADIENTS[-1], rtol=1e-14)


def test_the_decay_can_be_vmapped():
    swept = jax.vmap(lambda decay: last(optim.momentum(decay, nesterov=True, bias_correction=True)))(
        jnp.array([0.5, DECAY])
    )
    np.testing.assert_allclose(swept[1], FORMULAS["ema", True, True](), rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("unchecked")
def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"\[0, 1\), got 1.0"):
        optim.momentum(1.0)
    with pytest.raises(ValueError, match="no bias correction"):
        optim.momentum(0.9, "sgd", bias_correction=True)
    with pytest.raises(ValueError, match='choose "ema" or "sgd"'):
        optim.momentum(0.9, "heavy-ball")
