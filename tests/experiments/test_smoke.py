"""Every experiment at its smallest scale: run, judge, attack, tabulate, draw; nothing comes out as
the opposite of what holds.

One test asks all of a run, since the run takes the time.
"""

import math
import re

import matplotlib.image
import numpy as np
import pytest
import xarray as xr

from specjax import experiments, lab
from specjax.lab.check import Check
from specjax.report import Result, result_store
from specjax.report import _record as record_module

OPPOSITE = {"confirmed": "refuted", "refuted": "confirmed"}
QUICK = ("table-c7", "field-margin", "field-rate", "field-stability", "zipf-sharpness")
"""Run outside the slow lane too: table-c7, which the README runs, three of a few seconds, and one
submitted claim.
"""


@pytest.mark.parametrize("name", experiments.names())
def test_an_experiment_says_what_it_is(name):
    experiment = experiments.load(name)
    assert experiment.name == name
    assert all(
        isinstance(experiment.at(scale), experiment.config) for scale in lab.experiment.SCALES
    )
    assert all(
        text.strip()
        for text in (experiment.paper, experiment.source, experiment.title, experiment.summary)
    )


def test_an_unknown_experiment_is_refused_with_the_known_names():
    with pytest.raises(
        ValueError,
        match=(
            r"There is no experiment 'figure-3'; there are table-c7, figure-2, .*, claims-polar,"
            r" .*\."
        ),
    ):
        experiments.load("figure-3")


@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in experiments.names()
    ],
)
def test_an_experiment_runs_is_judged_attacked_and_drawn(name, smoke_data, smoke_streams, tmp_path):
    experiment = experiments.load(name)
    config = experiment.at("smoke")
    data = smoke_data(name)
    no_two_streams_share_a_key(experiment, smoke_streams(name).shared(root=config.seed))
    data_are_finite_and_labelled(data)
    judgements = experiment.judge(config, data)
    nothing_survives_what_should_have_broken_it(name, judgements, data)
    checks = tuple(map(Check.from_judgement, judgements))
    checks_can_be_read(checks)
    assert [c.name for c in checks if c.verdict == OPPOSITE.get(c.expected)] == []
    tables_are_rectangles_of_text(experiment.tabulate(config, data, judgements))
    figure = experiment.draw(config, data)
    assert all(axes.has_data() for axes in figure.axes)
    assert sum(axes.get_label() != "<colorbar>" for axes in figure.axes) <= 4
    record = record_module.describe(experiment, "smoke", config)
    folder = result_store.save(tmp_path, Result(record, checks, ()), data, figure)
    assert matplotlib.image.imread(folder / "figure.png").std() > 0
    assert result_store.load(folder).checks == checks
    data_are_the_same(result_store.load_data(folder), data)


def no_two_streams_share_a_key(experiment, shared):
    if experiment.paired:
        of_sweeps = [each for each in shared if "sweeps have the key" in each]
        assert of_sweeps, f"{experiment.name} has no paired sweeps any more; delete its `paired`."
        shared = [each for each in shared if each not in of_sweeps]
    assert shared == []


def nothing_survives_what_should_have_broken_it(name, judgements, data):
    assert [row for row in lab.check.attack_rows(name, judgements) if row.survived] == []
    assert all(judgement.attacks for judgement in judgements)
    # Steps of a run are not samples.
    datasets = [data] if isinstance(data, xr.Dataset) else data.values()
    seeds = [*map(number_of_samples, datasets)]
    most = sum(seeds) if name == "what-decides" else max(seeds)
    assert max(judgement.finding.samples for judgement in judgements) <= most


def number_of_samples(dataset):
    if "seeds" in dataset.coords:
        return int(dataset["seeds"].max())
    # Every class and every start of what-decides has networks of its own, which it pools.
    if {"network", "start"} <= set(dataset.dims):
        return math.prod(dataset.sizes[dim] for dim in ("network", "start", "seed"))
    # A sweep that keeps moments alone has batches of seeds.
    return dataset.sizes["seed" if "seed" in dataset.dims else "batch"]


def data_are_finite_and_labelled(data):
    datasets = [data] if isinstance(data, xr.Dataset) else data.values()
    assert datasets
    for dataset in datasets:
        assert isinstance(dataset, xr.Dataset)
        # Only sweeps have a variable of failed seeds.
        assert {"seed", "batch"} & set(dataset.dims)
        if "failed" in dataset:
            assert not dataset["failed"].any()
        else:
            assert all(np.isfinite(dataset[name]).all() for name in dataset)


def data_are_the_same(found, expected):
    """With coordinates and attributes: a verdict is of the data alone, so that a stored run can be
    judged again.
    """
    one = isinstance(expected, xr.Dataset)
    assert one == isinstance(found, xr.Dataset)
    found, expected = ({"": found}, {"": expected}) if one else (found, expected)
    assert found.keys() == expected.keys()
    for name in expected:
        xr.testing.assert_identical(found[name], expected[name])


def checks_can_be_read(checks):
    for check in checks:
        assert check.says.endswith(".")
        assert check.rule
        low, high = check.interval
        if None not in (low, high):
            assert low <= check.estimate <= high
            if check.predicted is not None:
                assert (low <= check.predicted <= high) == (check.verdict != "refuted")


def tables_are_rectangles_of_text(tables):
    assert tables
    for table in tables:
        assert table.title
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert all(isinstance(cell, str) for row in (table.header, *table.rows) for cell in row)
        assert not any(re.search(r"\bnan\b", cell) for row in table.rows for cell in row)
