"""Schedules in place of the numbers of every transformation."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim
from specjax.optim._hyperparameters import NUMBERS
from tests.optim.registry import DECOMPOSING, EXTRA, HEADS, ITERATION, mixed_tree, parameters, tree

pytestmark = pytest.mark.filterwarnings("ignore:muon without a layout")

REQUIRED = {
    "muon": {"learning_rate": 0.1, "ns_steps": 2},
    "normuon": {"learning_rate": 0.1, "ns_steps": 2},
    "adamuon": {"learning_rate": 0.1, "ns_steps": 2},
    "muon_clip": {"learning_rate": 0.1, "heads": HEADS, "threshold": 1.0, "ns_steps": 2},
    "nanochat": {"learning_rate": 0.1, "ns_steps": 2},
    "modded_nanogpt": {"learning_rate": 0.1, "ns_steps": 2},
    "mars_m": {"learning_rate": 0.1, "ns_steps": 2},
    "soap_muon": {"learning_rate": 0.1, "ns_steps": 2},
    "momentum": {"beta": 0.9},
    "spectral_descent": {"curvature": 2.0, "method": ITERATION},
    "schatten_direction": {"p": 1.5},
    "add_cautious_decay": {"weight_decay": 0.1},
    "hyperball": {"learning_rate": 0.1},
    "lift_to_floor": {"floor": 2.0},
    "clip_singular_values": {"limit": 2.0},
    "clip_weights": {"limit": 2.0},
    "qk_clip": {"threshold": 1.0, "heads": HEADS},
    "scale_by_neuron_moment": {},
    "mars_correction": {},
    "scale_by_dion": {"rank": 2, "key": jax.random.key(0)},
    "scale_by_shampoo": {"every": 2},
    "scale_by_soap": {"every": 1},
    "scale_by_factor_gram": {},
    "decay_on_plateau": {"patience": 1},
}
"""The arguments without which a factory makes nothing; these are all factories with numbers."""

SLOW = (
    *DECOMPOSING,
    "nanochat-beta",
    "nanochat-weight",
    "modded_nanogpt-beta",
    "modded_nanogpt-weight",
)
"""Cases of ten seconds and more; the learning rates of these recipes stay."""

NOTHING = {"consistent_rms": 0.3, "adam_learning_rate": 0.2}
"""Values for numbers whose default is None."""


def numbers_of(factory):
    found = inspect.signature(factory, eval_str=True).parameters.values()
    return {x.name: x.default for x in found if x.annotation in NUMBERS}


CASES = {
    f"{name}-{number}": (name, number, REQUIRED[name].get(number, NOTHING.get(number, default)))
    for name in REQUIRED
    for number, default in numbers_of(getattr(optim, name)).items()
}


def test_every_factory_with_numbers_is_among_the_cases():
    factories = {name for name, x in vars(optim).items() if inspect.isfunction(x) and numbers_of(x)}
    # Two are schedules themselves, and jordan_muon passes its numbers to muon.
    assert factories - {"geometric", "random_geometric", "jordan_muon"} == {*REQUIRED}


@pytest.mark.integration
@pytest.mark.parametrize(("name", "number", "value"), parameters(CASES, SLOW))
@pytest.mark.usefixtures("standard_promotion")
def test_a_schedule_is_the_constant_of_each_step(name, number, value):
    """Each update is that of the transformation with the value of its step, counted from 0."""
    make, params = getattr(optim, name), tree(0)
    values = [float(value), float(value) * 0.75 + 0.01, float(value) * 0.5 + 0.02]
    if number == "patience":
        values = [3.0, 1.0, 2.0]

    def with_value(x):
        return optax.with_extra_args_support(make(**REQUIRED[name] | {number: x}))

    @jax.jit
    def expected(state, gradient, x):
        return with_value(x).update(gradient, state, params, **EXTRA)

    scheduled = with_value(lambda count: jnp.asarray(values)[count])
    found, state = scheduled.init(params), with_value(values[0]).init(params)
    update = jax.jit(lambda state, gradient: scheduled.update(gradient, state, params, **EXTRA))
    for i, x in enumerate(values):
        right, state = expected(state, tree(i + 1), x)
        left, found = update(found, tree(i + 1))
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), left, right
        )
    assert int(found.count) == 3


@pytest.mark.integration
@pytest.mark.parametrize(("name", "number", "value"), parameters(CASES, ()))
@pytest.mark.usefixtures("standard_promotion")
def test_scheduled_steps_keep_the_types_of_a_mixed_tree(name, number, value):
    def schedule(count):
        return jnp.asarray(value, jnp.float32) * (1 - 0.01 * count)

    make, params = getattr(optim, name), mixed_tree(0)
    scheduled = optax.with_extra_args_support(make(**REQUIRED[name] | {number: schedule}))

    def step(state, gradient):
        updates, state = scheduled.update(gradient, state, params, **EXTRA)
        assert jax.tree.map(lambda x: x.dtype, updates) == jax.tree.map(lambda x: x.dtype, params)
        return state, None

    gradients = jax.tree.map(lambda *x: np.stack(x), *(mixed_tree(i) for i in range(1, 4)))
    jax.eval_shape(lambda: jax.lax.scan(step, scheduled.init(params), gradients))


@pytest.mark.integration
@pytest.mark.usefixtures("standard_promotion")
def test_schedules_of_float64_do_not_widen_float32():
    with jax.enable_x64(True):
        x = jnp.ones((3, 4), jnp.float32)
        muon = optim.muon(0.1, adam_b1=lambda t: jnp.asarray(0.9) - 0.0 * t, labels="other")
        before = muon.init(x)
        _, after = muon.update(x, before, x)
    assert jax.tree.map(lambda x: x.dtype, after) == jax.tree.map(lambda x: x.dtype, before)


@pytest.mark.integration
@pytest.mark.usefixtures("standard_promotion")
def test_steps_are_those_of_optax_with_its_schedules():
    rate, decay = optax.linear_schedule(0.1, 0.02, 3), optax.linear_schedule(0.5, 0.0, 3)
    params = {"w": jnp.asarray(tree(0)["first"]), "b": jnp.arange(3.0)}
    ours, theirs = (make(rate, weight_decay=decay) for make in (optim.muon, optax.contrib.muon))
    found, expected = (_trained(optimizer, params) for optimizer in (ours, theirs))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), found, expected)


def _trained(optimizer, params):
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(4):
        updates, state = update(jax.tree.map(jnp.sin, params), state, params)
        params = optax.apply_updates(params, updates)
    return params


def test_constants_have_no_count_and_the_state_that_they_had():
    x = jnp.ones((2, 3))
    assert isinstance(optim.muon(0.1).init(x), optax.transforms.PartitionState)


def test_a_scheduled_muon_shows_its_routing():
    params = {"w": jnp.ones((4, 16)), "b": jnp.ones(16)}
    scheduled = optim.muon(0.1, beta=optax.linear_schedule(0.85, 0.95, 300))
    assert str(optim.routing(scheduled, params)) == str(optim.routing(optim.muon(0.1), params))


REFUSED = """
optim.muon(0.1, ns_steps=lambda t: 5)
    muon takes no schedule as ns_steps, which decides the compiled program; give it a value.
optim.scale_by_soap(every=lambda t: 5)
    scale_by_soap takes no schedule as every, which decides the compiled program; give it a value.
optim.momentum(0.9, nesterov=lambda t: True)
    momentum takes no schedule as nesterov, which decides the compiled program; give it a value.
optim.momentum(lambda t: jnp.ones(()))
    momentum needs a number in [0, 1) as beta, got 1.0.
optim.muon(0.1, beta=lambda t: None)
    muon needs an array of numbers as what the schedule of beta returns, got None.
optim.muon(0.1, adam_b1=lambda t: 0.5, fallback=optax.sgd(0.1))
    muon takes fallback= or adam_b1=, not both; leave one out.
optim.hyperball(lambda t: jnp.ones(2))
    hyperball needs one number as learning_rate, got shape (2,); take jax.vmap for several.
""".strip().splitlines()


@pytest.mark.parametrize(("call", "sentence"), list(zip(REFUSED[::2], REFUSED[1::2], strict=True)))
@pytest.mark.usefixtures("unchecked")
def test_what_no_schedule_can_be_is_refused(call, sentence):
    with pytest.raises(ValueError, match=r".") as error:
        eval(call)
    assert str(error.value) == sentence.strip()
