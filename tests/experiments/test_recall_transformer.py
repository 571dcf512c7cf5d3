"""The recall experiment: rates chosen by other samples, verdicts that follow the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax.experiments.associative_memory import recall_transformer
from specjax.experiments.associative_memory.recall_transformer import Config
from specjax.models import recall
from specjax.models.recall import Recall
from specjax.training import icl_task
from specjax.training.icl_task import OPTIMIZERS

RATES = dict.fromkeys(("muon_rates", "adamw_rates", "sgd_rates"), (0.01, 0.1))
CONFIG = Config(dims=(8, 16), iterations=(64, 128), batches=(16, 64), seeds=40, choosing=4, **RATES)
QUANTITIES = ("inside", "outside", "recalled")
ACCURACY = {"muon": 0.97, "adamw": 0.6, "sgd": 0.2}
"""Of made-up runs at the best rate, but for what a test changes."""


def made_up(change=None, noise=0.02):
    """Runs that judge, with equal numbers at both lengths; `change(optimizer, setting)` is added to
    the accuracy.
    """
    rng = np.random.default_rng(0)
    coords = {
        "d": list(CONFIG.dims),
        "setting": list(CONFIG.settings),
        "seed": np.arange(CONFIG.seeds),
        "iteration": [0, *CONFIG.iterations],
        "optimizer": list(OPTIMIZERS),
    }
    values = noise * rng.standard_normal([len(points) for points in coords.values()])
    values[..., 1:, :] += list(ACCURACY.values())
    for i, name in enumerate(OPTIMIZERS):
        for j, setting in enumerate(CONFIG.settings):
            values[:, j, :, 1:, i] += 0 if change is None else change(name, setting)
    dims = tuple(coords)
    runs = {
        name: (dims, values if name != "shuffled" else 0 * values)
        for name in (*QUANTITIES, "shuffled")
    }
    errors = {"error": np.zeros((2, CONFIG.seeds)), "error_shuffled": np.ones((2, CONFIG.seeds))}
    return {
        "runs": xr.Dataset(runs, coords),
        "head": xr.Dataset({name: (("law", "seed"), error) for name, error in errors.items()}),
    }


def verdicts(data):
    found = recall_transformer.EXPERIMENT.judge(CONFIG, data)
    return {judgement.statement.name: judgement.verdict for judgement in found}


AHEAD = {"ahead-outside", "ahead-inside", "ahead-by-batch", "recalls-more"}
ROBUST = {"robust-to-outputs", "robust-to-triggers"}


@pytest.mark.integration
def test_verdicts_follow_the_runs():
    robust = verdicts(
        made_up(lambda name, setting: -0.3 * (name == "adamw" and setting != "uniform"))
    )
    assert {name for name, verdict in robust.items() if verdict == "confirmed"} == {
        "task-is-solvable",
        "smaller-batches-do",
        *AHEAD,
        *ROBUST,
    }
    # Equal results are not ahead, and equal losses are not more robust.
    level = verdicts(made_up(lambda name, _: ACCURACY["muon"] - ACCURACY[name]))
    assert {name for name, verdict in level.items() if verdict == "confirmed"} == {
        "task-is-solvable",
        "alike-when-uniform",
    }
    behind = verdicts(made_up(lambda name, _: -0.9 * (name == "muon")))
    assert {behind[name] for name in ("ahead-outside", "ahead-by-batch")} == {"refuted"}


@pytest.mark.integration
def test_what_turns_along_a_training_is_told():
    data = made_up()
    runs = data["runs"]
    caught_up = runs.where(
        (runs["iteration"] < 128) | (runs["optimizer"] == "muon"), runs.sel(optimizer="muon")
    )
    (found,) = (
        judgement.finding
        for judgement in recall_transformer.EXPERIMENT.judge(CONFIG, data | {"runs": caught_up})
        if judgement.statement.name == "ahead-outside"
    )
    assert found.turns
    assert "confirmed from iteration = 64, refuted from iteration = 128" in found.reason


def test_rates_are_chosen_by_the_draws_that_do_not_judge():
    rng = np.random.default_rng(1)
    coords = {
        "d": [8],
        "setting": ["uniform"],
        "rate": [0, 1, 2],
        "seed": np.arange(CONFIG.choosing + CONFIG.seeds),
        "iteration": [0, 64],
        "optimizer": list(OPTIMIZERS),
    }
    # The best rate of the first samples, another for each optimizer, is the worst of the others.
    values = 0.01 * rng.standard_normal([len(points) for points in coords.values()])
    for optimizer in range(3):
        values[:, :, optimizer, : CONFIG.choosing, :, optimizer] += 0.5
        values[:, :, optimizer, CONFIG.choosing :, :, optimizer] -= 0.5
    runs = xr.Dataset({name: (tuple(coords), values) for name in QUANTITIES}, coords)
    judged = recall_transformer.judged(CONFIG, runs)
    assert judged["seed"].size == CONFIG.seeds
    np.testing.assert_array_equal(judged["rate"].values, np.broadcast_to([0, 1, 2], (1, 1, 2, 3)))
    assert (judged["outside"] < -0.4).all()


def test_settings_are_each_exponent_alone_and_the_other_batches():
    config = Config(output_exponent=2.0, trigger_exponent=1.0, batches=(8, 16, 64))
    assert config.settings == {
        "uniform": (0.0, 0.0, 64),
        "triggers": (1.0, 0.0, 64),
        "batch 8": (0.0, 2.0, 8),
        "batch 16": (0.0, 2.0, 16),
        "batch 64": (0.0, 2.0, 64),
    }
    assert config.skewed == "batch 64"


def test_cells_are_separated_in_the_order_of_the_sweep():
    shape = (len(CONFIG.dims) * len(CONFIG.settings) * len(CONFIG.muon_rates), 2, 3, 3)
    counted = np.arange(np.prod(shape)).reshape(shape)
    dims = ("cell", "seed", "record", "optimizer")
    found = xr.Dataset(dict.fromkeys(icl_task.RECORDED, (dims, counted)), {"seed": [0, 1]})
    runs = recall_transformer.labelled(CONFIG, found)
    at = {"d": 16, "setting": "triggers", "rate": 1, "seed": 1, "iteration": 64, "optimizer": "sgd"}
    cell = (1 * len(CONFIG.settings) + 1) * len(CONFIG.muon_rates) + 1
    assert int(runs["inside"].sel(at)) == counted[cell, 1, 1, 2]


@pytest.mark.integration
def test_a_head_that_is_moved_on_predicts_the_next_item():
    task = Recall(4, 10)

    @jax.jit
    def predicted(key):
        head = recall.induction_head(task)
        tokens, counted = recall.sample(key, task, 20)
        shifted = icl_task.moved_on(head, task)
        of = [jnp.argmax(jax.vmap(model)(tokens[:, :-1]), axis=-1) for model in (head, shifted)]
        return of, counted, recall.memory_recall(shifted, task)

    of, counted, recalled = predicted(jax.random.key(0))
    right, moved = (np.asarray(found)[np.asarray(counted)] for found in of)
    np.testing.assert_array_equal(moved, 4 + (right - 4 + 1) % 4)
    assert float(recalled) == 0


def test_the_figures_are_drawn():
    drawn = recall_transformer.figure(CONFIG, made_up())
    assert len(drawn.axes) == 4
    assert all(axes.has_data() and axes.get_xlabel() for axes in drawn.axes)
