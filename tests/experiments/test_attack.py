"""Every statement on the lab, attacked on the data of a smoke run: nothing survives what should have broken it."""

import pytest
import xarray as xr

from specjax import experiments, lab
from tests.experiments.test_smoke import LONG

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in experiments.names()]
)
def test_no_statement_survives_its_attacks(name, smoke_data):
    experiment = experiments.load(name)
    data = smoke_data(name)
    judgements = experiment.judge(experiment.at("smoke"), data)
    assert [row for row in lab.attack_rows(name, judgements) if row.survived] == []
    assert all(judgement.attacks for judgement in judgements)
    # The steps of a run are no draws.
    assert max(judgement.finding.draws for judgement in judgements) <= _seeds(data)


def _seeds(data) -> int:
    """The seeds of a run, at the points with most."""
    datasets = [data] if isinstance(data, xr.Dataset) else data.values()
    return max(int(found["seeds"].max()) if "seeds" in found.coords else found.sizes["seed"] for found in datasets)
