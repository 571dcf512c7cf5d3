"""Factors on the learning rates of single leaves."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax import optim

RNG = np.random.default_rng(0)
SHAPES = {"up": (4, 6), "down": (6, 4), "gain": (4,)}


def tree(dtype="f"):
    return {
        "block": {name: jnp.asarray(RNG.standard_normal(s), dtype) for name, s in SHAPES.items()},
        "down": jnp.asarray(RNG.standard_normal((3, 3)), dtype),
    }


PARAMS, GRADIENTS = tree(), [tree() for _ in range(4)]
OPTIONS = {"weight_decay": 0.1, "adam_weight_decay": 0.1}


def updates_of(optimizer):
    params, state, step = PARAMS, optimizer.init(PARAMS), jax.jit(optimizer.update)
    for gradient in GRADIENTS:
        updates, state = step(gradient, state, params)
    return updates


@pytest.mark.integration
@pytest.mark.parametrize(
    ("multipliers", "factors"),
    [
        # A name or its end after a dot, the longest where several fit.
        ({"block.down": 2.0}, {"up": 1, "down": 2, "gain": 1, "outer": 1}),
        ({"down": 0.5}, {"up": 1, "down": 0.5, "gain": 1, "outer": 0.5}),
        ({"block.down": 2.0, "down": 0.5}, {"up": 1, "down": 2, "gain": 1, "outer": 0.5}),
        ({"gain": 0.0, "block.up": 3.0}, {"up": 3, "down": 1, "gain": 0, "outer": 1}),
    ],
)
def test_the_step_of_a_leaf_is_multiplied(multipliers, factors):
    plain = updates_of(optim.muon(0.02, **OPTIONS))
    found = updates_of(optim.muon(0.02, multipliers=multipliers, **OPTIONS))
    for name in SHAPES:
        np.testing.assert_allclose(
            found["block"][name], factors[name] * plain["block"][name], rtol=1e-6
        )
    np.testing.assert_allclose(found["down"], factors["outer"] * plain["down"], rtol=1e-6)


@pytest.mark.integration
def test_a_multiplier_is_a_rate_of_its_own():
    """The step of a leaf with factor 3 at rate η is that at rate 3 η, decay included."""
    found = updates_of(optim.muon(0.02, multipliers={"block.up": 3.0, "gain": 3.0}, **OPTIONS))
    own = updates_of(optim.muon(0.06, **OPTIONS))
    for name in ("up", "gain"):
        np.testing.assert_allclose(found["block"][name], own["block"][name], rtol=1e-5, atol=1e-7)


@pytest.mark.integration
def test_traced_multipliers_and_schedules_fit_in():
    @jax.vmap
    def swept(factor):
        return updates_of(
            optim.jordan_muon(
                optax.constant_schedule(0.02), multipliers={"gain": factor}, **OPTIONS
            )
        )["block"]["gain"]

    plain = updates_of(optim.jordan_muon(0.02, **OPTIONS))["block"]["gain"]
    found = swept(jnp.array([1.0, 5.0]))
    np.testing.assert_allclose(found, np.outer([1.0, 5.0], plain), rtol=1e-5)


@pytest.mark.integration
def test_updates_keep_their_dtype():
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
    optimizer = optim.muon(0.02, multipliers={"up": jnp.asarray(2.0)})
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    assert {x.dtype for x in jax.tree.leaves(updates)} == {jnp.dtype(jnp.bfloat16)}


def test_routing_shows_multipliers():
    table = optim.routing(optim.muon(0.02, multipliers={"block.down": 2.0}), PARAMS)
    assert [row.multiplier for row in table.rows] == [2.0, 1.0, 1.0, 1.0]
    lines = [line.split() for line in str(table).splitlines()]
    assert lines[0][-1] == "multiplier"
    assert [line[-1] for line in lines[1:]] == ["2", "1", "1", "1"]
    assert "multiplier" not in str(optim.routing(optim.muon(0.02), PARAMS))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("multipliers", "sentence"),
    [
        (
            {"own": 2.0},
            "multipliers name the leaf 'own', but the leaves are block.down, block.gain, block.up,"
            " down; take one of these names or its end.",
        ),
        ({"down": "2"}, "muon needs a finite number as multipliers['down'], got '2'."),
        ({"down": float("nan")}, "muon needs a finite number as multipliers['down'], got nan."),
    ],
)
def test_a_multiplier_that_no_leaf_can_have_is_refused(multipliers, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        optim.muon(0.02, multipliers=multipliers).init(PARAMS)
