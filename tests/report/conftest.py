import dataclasses

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from specjax import experiments
from specjax.experiments.contract import Check, Table
from specjax.report import Record, Result, records

HOLDS = Check(
    "holds", "toy, Theorem 1", "The slope is one.", 1.0, 0.98, (0.9, 1.1), "confirmed", "1 is in the interval."
)
FAILS = Check("fails", "toy, Theorem 2", "The sign is + for all n.", None, 0.0, None, "refuted", "measured is 0.")
RECORD = Record(
    name="toy-slope",
    paper="toy",
    source="toy, Section 2",
    title="A toy slope",
    summary="A line through points.",
    refuted=("fails",),
    held_open=(),
    scale="smoke",
    config={"seed": 3, "widths": [2, 4]},
    seed=3,
    versions={"specjax": "0.1.0"},
    device={"platform": "cpu", "kind": "cpu", "count": 1},
    commit=None,
    modified=False,
    started="2026-01-01T00:00:00+00:00",
    seconds=1.25,
)
LAB = {
    "verdict": "confirmed",
    "rule": "inside 4 standard errors",
    "reason": "",
    "compared": 2.0,
    "draws": 1000,
    "depends": False,
    "away": 0.5,
    "power": "9 SE from the printed term",
    "rivals": [
        {"name": "the printed term", "standard_errors": 9.0, "excluded": True},
        {"name": "another", "standard_errors": 40.0, "excluded": True},
    ],
    "attacks": [
        {"kind": "rival", "name": "the printed term", "verdict": "refuted", "survived": False},
        {"kind": "control", "name": "noise in its place", "verdict": "refuted", "survived": False},
    ],
    "corrected": False,
    "post_hoc": "",
}
"""What a page needs of a record of the lab."""


@pytest.fixture(autouse=True)
def _no_records(monkeypatch, tmp_path):
    """What is committed of other runs decides nothing in these tests."""
    monkeypatch.setattr(records, "home", lambda: tmp_path / "records")


@pytest.fixture
def result():
    return Result(RECORD, (HOLDS, FAILS), (Table("Slopes", ("width", "slope"), (("2", "0.97"), ("4", "0.99"))),))


@pytest.fixture
def renamed(result):
    return lambda name: dataclasses.replace(result, record=dataclasses.replace(result.record, name=name))


@pytest.fixture
def judged():
    """A result of an experiment on the lab in which all statements are confirmed, but for changes by the statement's name."""

    def judged(name, scale="quick", **changes):
        experiment = experiments.on_the_lab()[name]
        checks = []
        for statement in experiment.statements:
            record = {**LAB, "corrected": statement.corrected, **changes.get(statement.name.replace("-", "_"), {})}
            checks.append(
                Check(statement.name, "", statement.says, 2.0, 1.98, (1.9, 2.1), record["verdict"], "", record)
            )
        refuted = tuple(check.name for check in checks if check.verdict == "refuted")
        record = dataclasses.replace(
            RECORD, name=name, paper=experiment.ledger.paper, title=experiment.title, scale=scale, refuted=refuted
        )
        return Result(record, tuple(checks), ())

    return judged


@pytest.fixture
def data():
    points = xr.Dataset({"y": ("width", np.array([1.5, 2.5])), "failed": ("width", [False, True])}, {"width": [2, 4]})
    return {"points": points, "fits": xr.Dataset({"slope": ((), 0.98)})}


@pytest.fixture
def figure():
    figure = Figure(figsize=(4, 3))
    figure.add_subplot().plot([2, 4], [1.5, 2.5])
    return figure
