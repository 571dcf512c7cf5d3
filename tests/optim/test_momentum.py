"""Each convention against its formula, and the relations between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import optim
from specjax.optim._stochastic_rounding import stochastic_bfloat16

DECAY = 0.9
GRADIENTS = list(np.random.default_rng(0).standard_normal((5, 3, 2)))
pytestmark = pytest.mark.usefixtures("x64")


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
    ("ema", True, True): (
        lambda: NOW * GRADIENTS[-1] / (1 - DECAY**N) + AHEAD * sums() / (1 - DECAY ** (N + 1))
    ),
}


@pytest.mark.parametrize(("convention", "nesterov", "bias_correction"), FORMULAS, ids=str)
def test_each_convention_is_its_formula(convention, nesterov, bias_correction):
    transform = optim.momentum(
        DECAY, convention, nesterov=nesterov, bias_correction=bias_correction
    )
    np.testing.assert_allclose(
        last(transform), FORMULAS[convention, nesterov, bias_correction](), rtol=1e-12, atol=1e-14
    )


DECAYS = [0.5, 0.62, 0.74, 0.86, 0.95]


def by_recursion(convention, nesterov, bias_correction):
    """The updates for decays that change in every step, one step after another from the
    definitions.
    """
    m, w, updates = np.zeros((3, 2)), 0.0, []
    for beta, g in zip(DECAYS, GRADIENTS, strict=True):
        share = 1 - beta if convention == "ema" else 1.0
        m, w = beta * m + share * g, beta * w + share
        now, ahead = (w, beta * w + share) if bias_correction else (1.0, 1.0)
        updates.append(share * g / now + beta * m / ahead if nesterov else m / now)
    return updates


@pytest.mark.parametrize(("convention", "nesterov", "bias_correction"), FORMULAS, ids=str)
def test_a_scheduled_beta_is_the_recursion_with_each_steps_beta(
    convention, nesterov, bias_correction
):
    """torch.optim.Muon's for "ema" with Nesterov, whose momentum is warmed up: m ← lerp(m, g, 1 -
    β), u = lerp(g, m, β).
    """
    transform = optim.inject_hyperparams(optim.momentum)(
        lambda t: jnp.asarray(DECAYS)[t],
        convention,
        nesterov=nesterov,
        bias_correction=bias_correction,
    )
    state = transform.init(jnp.zeros((3, 2)))
    for g, expected in zip(
        GRADIENTS, by_recursion(convention, nesterov, bias_correction), strict=True
    ):
        update, state = transform.update(jnp.asarray(g), state)
        np.testing.assert_allclose(update, expected, rtol=1e-12, atol=1e-14)


def test_a_corrected_average_of_equal_gradients_is_the_gradient():
    transform = optim.inject_hyperparams(optim.momentum)(
        lambda t: jnp.asarray(DECAYS)[t], bias_correction=True
    )
    state = transform.init(jnp.zeros((3, 2)))
    for _ in DECAYS:
        update, state = transform.update(jnp.asarray(GRADIENTS[0]), state)
        np.testing.assert_allclose(update, GRADIENTS[0], rtol=1e-12)


def test_a_decay_of_zero_is_the_gradient():
    for convention, nesterov, bias_correction in FORMULAS:
        transform = optim.momentum(
            0.0, convention, nesterov=nesterov, bias_correction=bias_correction
        )
        np.testing.assert_allclose(last(transform), GRADIENTS[-1], rtol=1e-14)


def test_the_decay_can_be_vmapped():
    swept = jax.vmap(
        lambda decay: last(optim.momentum(decay, nesterov=True, bias_correction=True))
    )(jnp.array([0.5, DECAY]))
    np.testing.assert_allclose(swept[1], FORMULAS["ema", True, True](), rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("unchecked")
def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="no bias correction"):
        optim.momentum(0.9, "sgd", bias_correction=True)
    with pytest.raises(ValueError, match="one of 'ema', 'sgd' as convention, got 'heavy-ball'"):
        optim.momentum(0.9, "heavy-ball")
    with pytest.raises(ValueError, match="int8, bfloat16, float32 or float64, got mu_dtype=<class"):
        optim.momentum(0.9, mu_dtype=jnp.float16)
    with pytest.raises(ValueError, match="complex leaves keep"):
        optim.momentum(0.9, mu_dtype=jnp.float32).init(jnp.ones(2, complex))


def accumulated(transform, gradients, params):
    """The accumulator after all gradients."""
    step = lambda state, g: (transform.update(g, state)[1], None)  # noqa: E731
    return jax.jit(lambda: jax.lax.scan(step, transform.init(params), gradients)[0].mu)()


@pytest.mark.integration
def test_an_average_in_bfloat16_does_not_stand_still():
    """β = 0.99 and a constant gradient of 1: the average after 600 steps is 0.9976; rounded to the
    nearest it stays at 0.8.
    """
    count, steps, beta = 4096, 600, 0.99
    ones = jnp.ones((steps, count), jnp.float32)
    exact = 1 - beta**steps
    nearest = accumulated(
        optim.momentum(beta), ones[:, :1].astype(jnp.bfloat16), jnp.ones(1, jnp.bfloat16)
    )
    assert nearest.astype(float)[0] < 0.82
    random = optim.momentum(beta, mu_dtype=jnp.bfloat16, key=jax.random.key(1))
    found = np.asarray(accumulated(random, ones, ones[0]), float)
    assert accumulated(random, ones[:1], ones[0]).dtype == jnp.bfloat16
    error = found.std() / count**0.5
    assert error < 5e-4
    assert abs(found.mean() - exact) < 4 * error
    assert np.abs(found - exact).max() < 0.08


@pytest.mark.integration
def test_updates_of_a_bfloat16_momentum_are_not_rounded():
    g = jnp.asarray(GRADIENTS[0])
    random, exact = (
        optim.momentum(0.9, mu_dtype=jnp.bfloat16, key=jax.random.key(0)),
        optim.momentum(0.9),
    )
    np.testing.assert_array_equal(
        random.update(g, random.init(g))[0], exact.update(g, exact.init(g))[0]
    )
    half = {"a": jnp.ones(2, jnp.bfloat16), "b": jnp.ones(2, jnp.float32)}
    keyed = optim.momentum(0.9, key=jax.random.key(0))
    state = keyed.update(half, keyed.init(half))[1]
    assert jax.tree.map(lambda x: x.dtype, state.mu) == {"a": jnp.bfloat16, "b": jnp.float32}
    wide = optim.momentum(0.9, mu_dtype=jnp.float32)
    assert all(
        x.dtype == jnp.float32 for x in jax.tree.leaves(wide.update(half, wide.init(half))[1].mu)
    )


def test_stochastic_rounding_has_the_right_probabilities():
    """1 + 2⁻⁷ k / 4 lies between 1 and 1 + 2⁻⁷: the upper one in k of 4 cases."""
    count = 20000
    for sign in (1, -1):
        for k in range(4):
            x = jnp.full(count, sign * (1 + 2**-7 * k / 4), jnp.float32)
            upper = np.abs(np.asarray(stochastic_bfloat16(jax.random.key(k), x), float)) - 1
            assert set(upper) <= {0.0, 2.0**-7}
            share = k / 4
            assert abs((upper > 0).mean() - share) <= 4 * (share * (1 - share) / count) ** 0.5


def test_stochastic_rounding_keeps_what_is_no_number():
    x = jnp.array([jnp.nan, jnp.inf, -jnp.inf, 0.0, -0.0, 2.0**-100], jnp.float32)
    np.testing.assert_array_equal(stochastic_bfloat16(jax.random.key(0), x).astype(jnp.float32), x)
