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
