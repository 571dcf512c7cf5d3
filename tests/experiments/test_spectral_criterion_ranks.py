"""The half of the spectral-criterion experiments on stable ranks and layered models: verdicts, and the opposite ones on controls."""

import dataclasses

import pytest

from specjax.experiments import load

SMALLER = {
    "layered-hessian": {},
}


def scaled(factor):
    """All of a dataset's variable times a factor."""
    return lambda values: values * factor


CONTROLS = {
    "layered-hessian": {
        "proposition-4-3": ("sweep", "depth_2.ratio", scaled(1e5)),
        "proposition-4-3-samplewise": ("sweep", "depth_2.samplewise_ratio", scaled(1e5)),
        "euclidean-step": ("sweep", "depth_3.euclidean_slack", scaled(0.4)),
        "spectral-step": ("sweep", "depth_3.spectral_slack", scaled(0.4)),
    },
}
"""For a check: a dataset, a variable and a change under which its verdict must be the opposite one."""


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLER)
def test_verdicts_and_their_opposites(name, tmp_path):
    experiment = load(name)
    config = dataclasses.replace(experiment.scales["smoke"], **SMALLER[name])
    data = experiment.run(config)
    found = {check.name: check.verdict for check in experiment.checks(config, data)}
    assert set(experiment.refuted) <= set(found)
    for check in experiment.checks(config, data):
        assert check.verdict in (experiment.expected(check), "inconclusive"), check
    for check, (dataset, variable, change) in CONTROLS[name].items():
        changed = {key: value.copy(deep=True) for key, value in data.items()}
        changed[dataset][variable] = changed[dataset][variable].copy(data=change(changed[dataset][variable].values))
        turned = {c.name: c.verdict for c in experiment.checks(config, changed)}
        assert {found[check], turned[check]} == {"confirmed", "refuted"}, check
    experiment.plot(config, data).savefig(tmp_path / "figure.png")
    assert all(len(row) == len(table.header) for table in experiment.tables(config, data) for row in table.rows)


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("stable-ranks", "ns", (32, 128)),
        ("activations", "widths", (8, 4)),
        ("activations", "seeds", 1),
        ("decoder-block", "d", 2),
        ("decoder-block", "lengths", (8, 16)),
        ("layered-hessian", "width", 1),
        ("layered-hessian", "samples", (4, 8)),
    ],
)
def test_configurations_that_cannot_be_judged_are_refused(name, field, value):
    with pytest.raises(ValueError, match=r"needs|must be at least|at least 2"):
        dataclasses.replace(load(name).scales["smoke"], **{field: value})
