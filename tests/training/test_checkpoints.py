"""Checkpoints: an array is stored and found again by its path, and a tree of other paths is
refused.
"""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax.training import Checkpoints, train

pytestmark = pytest.mark.integration

PARAMS = {"enc": jnp.full((2, 2), 1.0), "proj": jnp.full((2, 2), 2.0)}


def trained(params, folder, optimizer):
    """One step, of a loss that sees every parameter and moves none of them far; continued if it was
    taken before.
    """
    return train(
        lambda p, batch: 1e-3 * sum(jnp.sum(leaf) for leaf in jax.tree.leaves(p)) * jnp.mean(batch),
        params,
        lambda _: jnp.ones(2),
        optimizer,
        steps=1,
        every=1,
        record=lambda *_: {},
        checkpoints=Checkpoints(folder, {"seed": 0}),
    )


def refusal(params, folder, optimizer):
    with pytest.raises(
        ValueError, match=r"^The checkpoint in .*; take another folder for this one\.$"
    ) as refused:
        trained(params, folder, optimizer)
    sentence = str(refused.value)
    assert "\n" not in sentence
    return sentence


def test_a_renamed_parameter_is_not_taken_for_its_neighbour(tmp_path):
    """Renamed, `proj` comes before `enc`: of equal shapes, each would get the other's values."""
    stored = trained(PARAMS, tmp_path, optax.sgd(1.0))
    sentence = refusal({"enc": PARAMS["enc"], "a_proj": PARAMS["proj"]}, tmp_path, optax.sgd(1.0))
    assert (
        "has .params['proj'] float32[2, 2], where this training has .params['a_proj']"
        " float32[2, 2];" in sentence
    )
    again = trained(PARAMS, tmp_path, optax.sgd(1.0))
    for name in PARAMS:
        np.testing.assert_array_equal(again.params[name], stored.params[name])


def test_arrays_go_by_their_paths_whatever_their_order(tmp_path):
    """An OrderedDict keeps the order of insertion, and so do its leaves."""
    stored = trained(
        OrderedDict(enc=PARAMS["enc"], proj=PARAMS["proj"]), tmp_path, optax.sgd(1.0, momentum=0.9)
    )
    again = trained(
        OrderedDict(proj=PARAMS["proj"], enc=PARAMS["enc"]), tmp_path, optax.sgd(1.0, momentum=0.9)
    )
    assert list(again.params) == ["proj", "enc"]
    for name in PARAMS:
        np.testing.assert_array_equal(again.params[name], stored.params[name])
    assert float(again.params["enc"][0, 0]) == pytest.approx(1, abs=0.01)


def test_the_state_of_another_optimizer_is_refused(tmp_path):
    """A momentum has the shapes of a second moment, and would be taken for one."""
    trained(PARAMS, tmp_path, optax.trace(0.9))
    sentence = refusal(PARAMS, tmp_path, optax.scale_by_rms())
    assert (
        "has .optimizer.trace['enc'] float32[2, 2], .optimizer.trace['proj'] float32[2, 2], where"
        " this training has .optimizer.nu['enc'] float32[2, 2], .optimizer.nu['proj']"
        " float32[2, 2];" in sentence
    )


def test_what_one_tree_lacks_is_refused(tmp_path):
    trained(PARAMS, tmp_path, optax.sgd(1.0))
    assert "has .params['proj'] float32[2, 2], where this training has none;" in refusal(
        {"enc": PARAMS["enc"]}, tmp_path, optax.sgd(1.0)
    )
    assert "has none, where this training has .params['rest'] float32[3];" in refusal(
        {**PARAMS, "rest": jnp.ones(3)}, tmp_path, optax.sgd(1.0)
    )
    half = refusal({**PARAMS, "enc": PARAMS["enc"].astype(jnp.bfloat16)}, tmp_path, optax.sgd(1.0))
    assert (
        "has .params['enc'] float32[2, 2], where this training has .params['enc'] bfloat16[2, 2];"
        in half
    )
