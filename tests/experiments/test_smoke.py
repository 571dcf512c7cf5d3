"""Every experiment at its smallest scale: run, judge, attack, tabulate, draw; nothing comes out as
the opposite of what holds.

What is asked of a run is asked in one test, since the run is what takes the time.
"""

import re

import matplotlib.image
import numpy as np
import pytest
import xarray as xr

from specjax import experiments, lab
from specjax.report import Result, result_store
from specjax.report import record as record_module

OPPOSITE = {"confirmed": "refuted", "refuted": "confirmed"}
# More than four seconds on a slow CPU, but for table-c7, which the README runs.
LONG = {
    "activations",
    "after-initialization",
    "best-filter",
    "best-filter-training",
    "capacity-constants",
    "claims-bias",
    "claims-curvature",
    "claims-expectation",
    "claims-integrability",
    "claims-limits",
    "claims-momentum",
    "claims-newton",
    "claims-polar",
    "claims-reparametrization",
    "condition-number",
    "convergence-curves",
    "decoder-block",
    "decoupling",
    "deep-linear",
    "dominance",
    "field-balance",
    "field-batch",
    "field-edge",
    "field-edge-fixed",
    "field-exponent-muon",
    "field-exponent-numbers",
    "field-exponents",
    "field-grid",
    "field-line-search",
    "field-modes",
    "field-momentum",
    "field-phases",
    "field-quantiles",
    "field-schedule",
    "field-spectra",
    "figure-1",
    "figure-2",
    "figures-14-and-15",
    "figures-3-and-11",
    "gpt-ablation",
    "gpt-snapshot",
    "gpt-telemetry",
    "gradient-rank-window",
    "layered-hessian",
    "matrix-factorization",
    "mean-strength",
    "memory-anisotropy",
    "memory-lambda",
    "memory-logits",
    "memory-minibatch",
    "memory-minibatch-steps",
    "memory-multi-step",
    "memory-one-step",
    "memory-thresholded",
    "muon-convergence",
    "one-step-comparison",
    "orthogonalizer-error",
    "preconditioner-maps",
    "rank-switch",
    "rate-drift",
    "rate-transfer",
    "recall-transformer",
    "relu-features",
    "relu-off-diagonal",
    "row-normalization",
    "scalar-sequences",
    "sign-gradient-lower-bounds",
    "sparse-regression",
    "stable-ranks",
    "target",
    "target-erasure",
    "update-exponents",
    "what-decides",
}
PAIRED = {
    "figure-1": "the Hessian and H_Muon are those of the same networks, of which one is drawn",
    "memory-minibatch": (
        "a sweep for each d, since their draws are not as many; seeds are shared by all d, as in"
        " one sweep"
    ),
}
"""Experiments with sweeps that share a key on purpose."""


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
        pytest.param(name, marks=pytest.mark.slow) if name in LONG else name
        for name in experiments.names()
    ],
)
def test_an_experiment_runs_is_judged_attacked_and_drawn(name, smoke_data, smoke_streams, tmp_path):
    experiment = experiments.load(name)
    config = experiment.at("smoke")
    data = smoke_data(name)
    no_two_streams_share_a_key(name, smoke_streams(name).shared(root=config.seed))
    data_are_finite_and_labelled(data)
    judgements = experiment.judge(config, data)
    nothing_survives_what_should_have_broken_it(name, judgements, data)
    checks = tuple(map(lab.Check.of, judgements))
    checks_can_be_read(checks)
    assert [c.name for c in checks if c.verdict == OPPOSITE.get(c.expected)] == []
    tables_are_rectangles_of_text(experiment.tabulate(config, data, judgements))
    figure = experiment.draw(config, data)
    assert all(axes.has_data() for axes in figure.axes)
    record = record_module.describe(experiment, "smoke", config)
    folder = result_store.save(tmp_path, Result(record, checks, ()), data, figure)
    assert matplotlib.image.imread(folder / "figure.png").std() > 0
    assert result_store.load(folder).checks == checks
    data_are_the_same(result_store.load_data(folder), data)


def no_two_streams_share_a_key(name, shared):
    if name in PAIRED:
        assert any("sweeps have the key" in each for each in shared), (
            f"{name} has no pairs any more; take it out."
        )
        shared = [each for each in shared if "sweeps have the key" not in each]
    assert shared == []


def nothing_survives_what_should_have_broken_it(name, judgements, data):
    assert [row for row in lab.check.attack_rows(name, judgements) if row.survived] == []
    assert all(judgement.attacks for judgement in judgements)
    # The steps of a run are no draws.
    datasets = [data] if isinstance(data, xr.Dataset) else data.values()
    seeds = max(
        int(each["seeds"].max()) if "seeds" in each.coords else each.sizes["seed"]
        for each in datasets
    )
    assert max(judgement.finding.draws for judgement in judgements) <= seeds


def data_are_finite_and_labelled(data):
    datasets = [data] if isinstance(data, xr.Dataset) else data.values()
    assert datasets
    for dataset in datasets:
        assert isinstance(dataset, xr.Dataset)
        # A sweep names its failed seeds; what is not a sweep has no failed part.
        assert "seed" in dataset.dims
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
