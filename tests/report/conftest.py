import dataclasses

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from specjax import experiments, lab
from specjax.lab.check import Check
from specjax.report import Record, Result, records

HOLDS = Check(
    name="holds",
    cites=("theorem-1",),
    says="The slope is one.",
    verdict="confirmed",
    expected="confirmed",
    rule="inside 4 standard errors",
    reason="",
    estimate=0.98,
    interval=(0.9, 1.1),
    compared=1.0,
    samples=1000,
    depends=False,
    away=0.5,
    power="9 SE from the printed term",
    points=({"label": "d0 = 2", "estimate": 1.0, "low": 0.9, "high": 1.1, "compared": 1.0},) * 300,
    rivals=(
        {"name": "the printed term", "standard_errors": 9.0, "excluded": True},
        {"name": "another", "standard_errors": 40.0, "excluded": True},
    ),
    attacks=(
        {"kind": "rival", "name": "the printed term", "verdict": "refuted", "survived": False},
        {"kind": "control", "name": "noise in its place", "verdict": "refuted", "survived": False},
    ),
    corrected=False,
    post_hoc="",
)
FAILS = dataclasses.replace(
    HOLDS,
    name="fails",
    cites=("theorem-2",),
    says="The sign is + for all n.",
    verdict="refuted",
    expected="refuted",
    rule="all of them",
    estimate=0.0,
    interval=(None, None),
    compared=None,
    away=None,
)
RECORD = Record(
    name="toy-slope",
    paper="toy",
    source="toy, Section 2",
    title="A toy slope",
    summary="A line through points.",
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


@pytest.fixture(autouse=True)
def _no_records(monkeypatch, tmp_path):
    """What is committed of other runs decides nothing in these tests."""
    monkeypatch.setattr(records, "home", lambda: tmp_path / "records")


@pytest.fixture
def result():
    return Result(
        RECORD,
        (HOLDS, FAILS),
        (lab.Table("Slopes", ("width", "slope"), (("2", "0.97"), ("4", "0.99"))),),
    )


@pytest.fixture
def renamed(result):
    return lambda name: dataclasses.replace(
        result, record=dataclasses.replace(result.record, name=name)
    )


@pytest.fixture
def judged():
    """A result of an experiment in which all statements are confirmed, but for changes by the
    statement's name.
    """

    def judged(name, scale="quick", **changes):
        experiment = experiments.load(name)
        checks = []
        for statement in experiment.statements:
            own = {"name": statement.name, "cites": statement.cites, "says": statement.says}
            own |= {
                "corrected": statement.corrected,
                "estimate": 1.98,
                "interval": (1.9, 2.1),
                "compared": 2.0,
            }
            check = dataclasses.replace(
                HOLDS, **own | changes.get(statement.name.replace("-", "_"), {})
            )
            checks.append(dataclasses.replace(check, expected=check.verdict))
        record = dataclasses.replace(
            RECORD,
            name=name,
            paper=experiment.paper,
            source=experiment.source,
            title=experiment.title,
            scale=scale,
        )
        return Result(record, tuple(checks), ())

    return judged


@pytest.fixture
def data():
    points = xr.Dataset(
        {"y": ("width", np.array([1.5, 2.5])), "failed": ("width", [False, True])},
        {"width": [2, 4]},
    )
    return {"points": points, "fits": xr.Dataset({"slope": ((), 0.98)})}


@pytest.fixture
def figure():
    figure = Figure(figsize=(4, 3))
    figure.add_subplot().plot([2, 4], [1.5, 2.5])
    return figure
