"""Every experiment at its smallest scale: run, judge, tabulate, draw, and nothing comes out as the opposite of what holds."""

import math
import re

import matplotlib.image
import numpy as np
import pytest
import xarray as xr

from specjax import experiments
from specjax.report.verify import verified

OPPOSITE = {"confirmed": "refuted", "refuted": "confirmed"}
# Much compilation: sweeps of training loops. Their parts have fast tests of their own.
LONG = {
    "gpt-ablation",
    "recall-transformer",
    "sparse-regression",
}


@pytest.mark.parametrize("name", experiments.names())
def test_an_experiment_says_what_it_is(name):
    experiment = experiments.load(name)
    assert experiment.name == name
    assert set(experiment.scales) == {"smoke", "quick", "paper"}
    assert len({type(config) for config in experiment.scales.values()}) == 1
    assert all(text.strip() for text in (experiment.paper, experiment.source, experiment.title, experiment.summary))


def test_an_unknown_experiment_is_refused_with_the_known_names():
    with pytest.raises(
        ValueError, match=r"There is no experiment 'figure-3'; there are table-c7, figure-2, .*, claims-polar, .*\."
    ):
        experiments.load("figure-3")


@pytest.mark.integration
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in experiments.names()]
)
def test_an_experiment_runs_and_judges_and_draws_what_it_found(name, smoke_data, tmp_path):
    experiment = experiments.load(name)
    config = experiment.scales["smoke"]
    data = smoke_data(name)
    data_are_finite_and_labelled(data)
    checks = experiment.checks(config, data)
    checks_keep_the_contract(experiment, checks)
    assert [c.name for c in checks if c.verdict == OPPOSITE.get(experiment.expected(c))] == []
    tables_are_rectangles_of_text(experiment.tables(config, data))
    figure_can_be_saved(experiment.plot(config, data), tmp_path / "figure.png")
    checks_can_be_made_again_from_stored_data(experiment, config, data, checks, tmp_path / "data.nc")


def data_are_finite_and_labelled(data):
    assert data
    for dataset in data.values():
        assert isinstance(dataset, xr.Dataset)
        # A sweep names its failed seeds; what is not a sweep has no failed part.
        assert "seed" in dataset.dims
        if "failed" in dataset:
            assert not dataset["failed"].any()
        else:
            assert all(np.isfinite(dataset[name]).all() for name in dataset)


def checks_keep_the_contract(experiment, checks):
    # `verified` refuses repeated names, names that are not kebab-case and numbers that are not finite.
    assert [check.name for check in verified(experiment.name, checks)] == [check.name for check in checks]
    for check in checks:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", check.name)
        assert check.source.startswith(experiment.paper)
        assert check.statement.endswith(".")
        assert check.rule
        assert check.measured is None or math.isfinite(check.measured)
        if check.interval is not None:
            low, high = check.interval
            assert -math.inf < low <= check.measured <= high < math.inf
            if check.predicted is not None:
                assert (low <= check.predicted <= high) == (check.verdict != "refuted")


def tables_are_rectangles_of_text(tables):
    assert tables
    for table in tables:
        assert table.title
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}
        assert all(isinstance(cell, str) for row in (table.header, *table.rows) for cell in row)
        assert not any("nan" in cell for row in table.rows for cell in row)


def figure_can_be_saved(figure, path):
    assert figure.axes
    assert all(axes.has_data() for axes in figure.axes)
    figure.savefig(path, dpi=50)
    assert matplotlib.image.imread(path).std() > 0


def checks_can_be_made_again_from_stored_data(experiment, config, data, checks, path):
    xr.DataTree.from_dict(dict(data)).to_netcdf(path, engine="h5netcdf")
    with xr.open_datatree(path, engine="h5netcdf") as tree:
        stored = {name: node.to_dataset() for name, node in tree.children.items()}
        assert experiment.checks(config, stored) == checks
