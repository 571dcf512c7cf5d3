"""The small GPT as an experiment: trainings that go on, texts that cannot be read, and verdicts that can fail."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import cli, experiments
from specjax.experiments.spectral_criterion import gpt_runs

EXPERIMENT = experiments.load("gpt-telemetry")


@pytest.fixture
def trained_nothing(monkeypatch):
    """The arguments of trainings that are not run."""
    calls = []

    def train(*_, **options):
        calls.append(options)
        if len(calls) == len(gpt_runs.OPTIMIZERS):
            raise InterruptedError

    monkeypatch.setattr(gpt_runs.training, "train", train)
    return calls


def test_each_training_has_a_folder_of_checkpoints_that_knows_what_it_is(trained_nothing, tmp_path):
    config = dataclasses.replace(EXPERIMENT.at("smoke"), checkpoints=str(tmp_path))
    with pytest.raises(InterruptedError):
        EXPERIMENT.run(config)
    folders = [options["checkpoints"] for options in trained_nothing]
    assert [one.folder for one in folders] == [tmp_path / name for name in gpt_runs.OPTIMIZERS]
    folders[0].save(2, jnp.zeros(3))
    other = gpt_runs.checkpoints_of(dataclasses.replace(config, adamw_rate=1.0), "adamw")
    with pytest.raises(ValueError, match=r"is of a training with adamw_rate=0\.01, not 1\.0"):
        other.latest(jnp.zeros(3))
    moved = gpt_runs.checkpoints_of(config, "adamw")
    assert moved.latest(jnp.ones(3)).tolist() == [0, 0, 0]


@pytest.mark.slow
def test_stored_trainings_go_on_where_they_were(tmp_path):
    config = dataclasses.replace(EXPERIMENT.at("smoke"), checkpoints=str(tmp_path))
    with jax.numpy_dtype_promotion("standard"):
        first = EXPERIMENT.run(config)["training"]
        shutil.rmtree(tmp_path / "muon" / "200")
        assert EXPERIMENT.run(config)["training"].identical(first)


@pytest.mark.integration
def test_verdicts_follow_the_numbers(smoke_data):
    config, found = EXPERIMENT.at("smoke"), smoke_data("gpt-telemetry")["training"]
    found["validation"][:] = float(found["entropy"]) - 1 + 0.01 * np.arange(config.stretches) / config.stretches
    found["validation"].loc[{"optimizer": "muon"}] -= 0.1
    found["stable_rank"][:], found["nuclear_rank"][:] = 3.0, 3.5
    found["nuclear_rank"].loc[{"step": config.steps}] = 3.6
    found["end_stable_rank"][:], found["embedded_stable_rank"][:], found["embedding_spread"][:] = 6.0, 6.5, 0.1

    def verdicts(**spoiled):
        spoilt = found.copy(deep=True)
        for name, value in spoiled.items():
            spoilt[name].loc[{"step": config.every}] = value
        return {check.name: check.verdict for check in EXPERIMENT.checks(config, {"training": spoilt})}

    plain = verdicts()
    refuted = {name for name, verdict in plain.items() if verdict == "refuted"}
    assert refuted == set()
    assert plain["muon-is-ahead"] == "confirmed"
    assert verdicts(nuclear_rank=2.9)["inequality-holds-while-training"] == "refuted"
    assert verdicts(nuclear_rank=2.9)["inequality-holds-from-the-start"] == "confirmed"
    assert verdicts(nuclear_rank=4.0)["gradients-keep-their-rank"] == "refuted"
    assert verdicts(stable_rank=config.width / 3.9)["activations-have-low-stable-rank"] == "refuted"
    found["embedded_stable_rank"][:] = 6.0 * 1.1 / 0.9 * 1.001
    assert verdicts()["embeddings-below-the-lemma"] == "refuted"
    found["validation"][:] += 0.6
    assert verdicts()["both-learn"] == "refuted"


def test_a_text_that_cannot_be_read_is_told_in_a_sentence(tmp_path, capsys):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    assert (
        cli.main(["run", "gpt-telemetry", "--scale", "smoke", "--text", str(empty), "--out", str(tmp_path / "out")])
        == 2
    )
    assert f"The text {empty} is empty; give a file with some text in it." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"heads": 3}, "The heads must divide the width, got heads=3 and width=128."),
        ({"schedule": "linear"}, "The schedule is cosine or constant, got 'linear'."),
        ({"every": 300}, "steps must be a multiple of every, at least twice it, got 400 and 300."),
        ({"microbatches": 3}, "microbatches must divide the batch, got 3 and 16."),
        ({"muon_rate": 0.0}, "Learning rates must be positive, got 0.003 and 0.0."),
        ({"stretches": 2}, "stretches must be at least 8, for a standard error, got 2."),
    ],
)
def test_what_cannot_be_trained_is_refused(fields, sentence):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        gpt_runs.Config(**fields)
    assert str(refused.value) == sentence
