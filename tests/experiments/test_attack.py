"""Every statement on the lab, attacked on the data of a smoke run: nothing survives what should have broken it."""

import pytest

from specjax import experiments, lab
from specjax.experiments.bridge import own

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("name", experiments.on_the_lab())
def test_no_statement_survives_its_attacks(name, smoke_data):
    experiment = experiments.on_the_lab()[name]
    judgements = experiment.judge(experiment.at("smoke"), own(smoke_data(name)))
    assert [row for row in lab.attack_rows(name, judgements) if row.survived] == []
    assert all(judgement.attacks for judgement in judgements)
