"""Experiments that another package registers by entry points."""

import sys

import pytest

from specjax import experiments
from specjax.cli import main

MODULE = """
import dataclasses
from specjax import experiments

EXPERIMENT = dataclasses.replace(experiments.load("claims-polar"), name={name!r})
SECOND = dataclasses.replace(EXPERIMENT, name="second")
"""


@pytest.fixture
def register(monkeypatch, tmp_path):
    """Install a package whose entry point `registered` leads to an experiment called `name`."""

    def register(registered, name, place="fake_module"):
        metadata = tmp_path / "fake_package-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Name: fake-package\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(
            f"[{experiments.GROUP}]\n{registered} = {place}\n"
        )
        (tmp_path / "fake_module.py").write_text(MODULE.format(name=name))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "fake_module", raising=False)
        experiments._entry_points.cache_clear()

    yield register
    monkeypatch.undo()
    sys.modules.pop("fake_module", None)
    experiments._entry_points.cache_clear()


def test_a_registered_experiment_is_the_last_one(register):
    before = experiments.names()
    register("elsewhere", "elsewhere")
    assert experiments.names() == [*before, "elsewhere"]
    assert experiments.load("elsewhere").name == "elsewhere"


def test_a_module_may_have_a_second_experiment(register):
    register("second", "first", "fake_module:SECOND")
    assert experiments.load("second").name == "second"


def test_a_taken_name_is_one_sentence(register, capsys):
    register("claims-polar", "claims-polar")
    assert main(["list"]) == 2
    assert capsys.readouterr().err == (
        "specjax: There is an experiment 'claims-polar' already, in"
        " specjax.experiments.claims.polar_algebra; register that of fake_module by another"
        " name.\n"
    )


def test_a_name_that_is_not_the_experiments_own_is_one_sentence(register, capsys):
    register("elsewhere", "another")
    assert main(["run", "elsewhere", "--scale", "smoke"]) == 2
    assert capsys.readouterr().err == (
        "specjax: The experiment of fake_module is called 'another'; register it by that name, not"
        " as 'elsewhere'.\n"
    )
