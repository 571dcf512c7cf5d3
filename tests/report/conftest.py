import dataclasses

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from specjax.experiments.contract import Check, Table
from specjax.report import Record, Result

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


@pytest.fixture
def result():
    return Result(RECORD, (HOLDS, FAILS), (Table("Slopes", ("width", "slope"), (("2", "0.97"), ("4", "0.99"))),))


@pytest.fixture
def renamed(result):
    return lambda name: dataclasses.replace(result, record=dataclasses.replace(result.record, name=name))


@pytest.fixture
def data():
    points = xr.Dataset({"y": ("width", np.array([1.5, 2.5])), "failed": ("width", [False, True])}, {"width": [2, 4]})
    return {"points": points, "fits": xr.Dataset({"slope": ((), 0.98)})}


@pytest.fixture
def figure():
    figure = Figure(figsize=(4, 3))
    figure.add_subplot().plot([2, 4], [1.5, 2.5])
    return figure
