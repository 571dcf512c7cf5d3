"""The small GPTs as an experiment: trainings that are those of a plain loop, verdicts that follow
the numbers, and what is refused.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr

from specjax import cli, experiments, optim, sizes
from specjax.experiments.spectral_criterion import gpt_runs, gpt_telemetry
from specjax.experiments.spectral_criterion.gpt_runs import Cell
from specjax.models import transformer
from specjax.models.transformer import Sequences
from specjax.training import text

EXPERIMENT = experiments.load("gpt-telemetry")
TINY = {
    "width": 8,
    "blocks": 2,
    "heads": 2,
    "context": 8,
    "batch": 2,
    "steps": 2,
    "stretches": 2,
    "seeds": 2,
}
CONFIG = gpt_runs.Training(**TINY, records=2, cooldown=2, table_rate=0.02)
CELLS = [
    Cell("adamw", 0.03, 0.0),
    Cell("out", 0.03, 0.2),
    Cell("muon", 0.03, 0.1),
    Cell("embedded", 0.03, 0.1, part=1),
]
# Programs of their own: one that has every arm and step in it takes three times as long to compile.
gradient_of, loss_of = jax.jit(jax.grad(transformer.loss)), jax.jit(transformer.loss)
drawn = jax.jit(lambda data, key: text.sample_batch(data, key, CONFIG.batch, CONFIG.context))
initialized = jax.jit(
    lambda key: transformer.init(sizes.stream(key, "weights"), CONFIG.architecture("swiglu"))
)
MOVED = {
    "adamw": [],
    "out": [".blocks.down"],
    "muon": [".blocks"],
    "embedded": [".blocks", ".embedding"],
}


def by_a_plain_loop(key, cell, seed):
    """The weights after one step and two of cooling, by optax's own partition, from the keys that a
    sweep gives a seed.
    """
    key = jax.random.fold_in(jax.random.fold_in(key, seed), cell.part)
    data = jnp.asarray(text.load().train)

    def steps_of(scale):
        def kind(path, _):
            name = jax.tree_util.keystr(path)
            if any(name.startswith(moved) for moved in MOVED[cell.arm]):
                return "muon"
            return "matrix" if name.startswith(".blocks") else "table"

        return optax.partition(
            {
                "muon": optim.jordan_muon(
                    cell.muon * scale,
                    labels="matrix",
                    scale="point_two_sqrt_max",
                    muon_weight_dimension_numbers=optim.OUT_IN,
                ),
                "matrix": optax.adam(cell.adamw * scale, b2=0.95),
                "table": optax.adam(CONFIG.table_rate * scale, b2=0.95),
            },
            lambda params: jax.tree_util.tree_map_with_path(kind, params),
        )

    @partial(jax.jit, static_argnums=0)
    def stepped(scale, gradient, state, model):
        update, state = steps_of(scale).update(gradient, state, model)
        return optax.apply_updates(model, update), state

    model = initialized(key)
    state = jax.jit(steps_of(1.0).init)(model)
    for t, scale in enumerate((1.0, 1.0, 0.5)):
        tokens = drawn(data, jax.random.fold_in(sizes.stream(key, "batches"), t))
        model, state = stepped(scale, gradient_of(model, Sequences(tokens)), state, model)
    return model


@pytest.mark.slow
def test_every_arm_is_trained_as_by_a_plain_loop_and_cooled():
    key = jax.random.key(3)

    def observe(model, _):
        return {"weights": jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(model)])}

    found = gpt_runs.run(
        CONFIG, key, CONFIG.architecture("swiglu"), CELLS, observe, dims=("weight",)
    )
    assert found["loss"].sizes == {"cell": 4, "seed": 2, "step": 2}
    assert found["step"].values.tolist() == [1, 2]
    looped = [by_a_plain_loop(key, cell, 1) for cell in CELLS]
    held_out = Sequences(
        jnp.asarray(text.stretches(text.load().validation, CONFIG.stretches, CONFIG.context))
    )
    for place, expected in enumerate(looped):
        one = found.isel(cell=place, seed=1, step=0)
        weights = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(expected)])
        # Half a step of the smallest rate is 1e-2 an entry.
        np.testing.assert_allclose(one["weights"], weights, atol=1e-3)
        assert float(one["loss"]) == pytest.approx(float(loss_of(expected, held_out)), rel=1e-3)


def ranks(**changed):
    """Data in which every statement holds, except for the changes: by name a function of the
    dataset.
    """
    rng = np.random.default_rng(0)
    dims = {"seed": 12, "step": 4, "matrix": 8, "block": 2}
    shape = tuple(dims.values())
    stable = 3 * np.exp(0.02 * rng.standard_normal(shape))
    stable[:, :, 6] = 5.0
    nuclear = 7.45 * np.exp(0.02 * rng.standard_normal(shape))
    nuclear[:, :, 6] = 15.0
    nuclear[:, 0, 2] = 2.0
    found = xr.Dataset(
        {
            "stable_rank": (tuple(dims), stable),
            "nuclear_rank": (tuple(dims), nuclear),
            "embedded": (("seed", "step"), 4 + 0.05 * rng.standard_normal(shape[:2])),
        },
        {"step": [0, 1, 2, 3], "matrix": list(gpt_telemetry.MATRICES), "block": [1, 2]},
    )
    return found.assign({name: change(found) for name, change in changed.items()})


def of(name, factor, *matrices, after=0):
    """Some ranks times a factor after a step."""

    def change(found):
        there = found["matrix"].isin(matrices) & (found["step"] > after)
        return found[name] * xr.where(there, factor, 1.0)

    return change


@pytest.mark.parametrize(
    ("changed", "refuted"),
    [
        ({}, set()),
        (
            {name: of(name, 9.0, "down", after=2) for name in ("stable_rank", "nuclear_rank")},
            {"perceptrons-far-below"},
        ),
        (
            {name: of(name, 6.0, "head") for name in ("stable_rank", "nuclear_rank")},
            {"normalized-activations-low"},
        ),
        ({"stable_rank": of("stable_rank", 0.3, "up", "query", after=1)}, {"no-fall"}),
        ({"nuclear_rank": of("nuclear_rank", 0.5, "up")}, {"large-ranks-of-perceptrons"}),
        ({"nuclear_rank": of("nuclear_rank", 0.5, "output")}, {"large-ranks-of-outputs"}),
        ({"nuclear_rank": of("nuclear_rank", 0.5, "key")}, {"large-ranks-of-queries-and-keys"}),
        ({"nuclear_rank": of("nuclear_rank", 0.45, "value")}, {"values-are-as-large"}),
        ({"nuclear_rank": of("nuclear_rank", 0.3, "head")}, {"ends-have-margins"}),
        ({"embedded": lambda found: found["embedded"] / 2}, {"embedded-near-indicators"}),
        (
            {"nuclear_rank": lambda found: found["nuclear_rank"].where(found["step"] > 0, 9.0)},
            {"not-from-the-start"},
        ),
    ],
)
def test_verdicts_follow_the_numbers(changed, refuted):
    config = EXPERIMENT.at("quick")
    judged = {s.name: s.find(config, ranks(**changed)) for s in EXPERIMENT.statements}
    wrong = {name for name, found in judged.items() if found.verdict == "refuted" or found.turns}
    assert wrong == refuted
    assert refuted or {found.verdict for found in judged.values()} == {"confirmed"}


def test_one_violation_at_one_length_turns_the_inequality():
    config = EXPERIMENT.at("quick")
    found = ranks()
    found["nuclear_rank"][3, 1, 0, 1] = 2.0
    (inequality,) = (s for s in EXPERIMENT.statements if s.name == "inequality")
    judged = inequality.judge(config, found)
    assert judged.finding.turns
    assert "refuted from step = 1, confirmed from step = 2" in judged.reason


@pytest.mark.parametrize(("factor", "verdict"), [(0.5, "confirmed"), (2.0, "refuted")])
def test_the_snapshot_repeats_its_architecture_and_modest_values(factor, verdict):
    snapshot = experiments.load("gpt-snapshot")
    config, data = snapshot.at("quick"), ranks(nuclear_rank=of("nuclear_rank", factor, "value"))
    assert config.architecture("relu_squared") == transformer.figure_19(
        text.VOCABULARY, 64, 32, 4, 2
    )
    judged = {s.name: s.find(config, data).verdict for s in snapshot.statements}
    assert judged.pop("values-are-modest") == verdict
    assert set(judged.values()) == {"confirmed"}
    assert set(judged) < {s.name for s in EXPERIMENT.statements}


def test_a_text_that_cannot_be_read_is_told_in_a_sentence(tmp_path, capsys):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    out = ["--text", str(empty), "--out", str(tmp_path / "out")]
    for name in ("gpt-telemetry", "gpt-ablation"):
        assert cli.main(["run", name, "--scale", "smoke", *out]) == 2
        assert (
            f"The text {empty} is empty; give a file with some text in it."
            in capsys.readouterr().err
        )
    assert not (tmp_path / "out").exists()
