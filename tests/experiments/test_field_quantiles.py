"""Statements on quantiles of the momentum: each holds on made-up data, and controls turn it."""

import numpy as np
import pytest
import xarray as xr

from specjax.experiments.field import momentum_spectra
from specjax.experiments.field.language import BLOCKS, KINDS
from specjax.experiments.field.quantiles import EXPERIMENT, Config

CONFIG = Config()
REACHED = {"Muon, 5 steps": 0.8, "1 step": 0.2}
LOSSES = {"exact": 2.0, "5 steps": 2.0, "1 step": 2.1}


def made_up(**changed):
    """Exponents of M and levels for which every statement holds, with noise of 1 %."""
    of = {"noise": -0.25, "others": -0.3, "last": -0.45, "late": 0.3} | changed
    rng = np.random.default_rng(0)
    coords = {
        "width": list(CONFIG.widths),
        "seed": np.arange(CONFIG.seeds),
        "step": list(CONFIG.lengths),
        "kind": list(KINDS),
        "block": np.arange(1, BLOCKS + 1),
        "q": list(momentum_spectra.QUANTILES),
        "polar": list(momentum_spectra.METHODS),
        "trained": list(momentum_spectra.TRAINED),
    }
    arrays = {name: xr.DataArray(values, {name: values}, name) for name, values in coords.items()}

    def noisy(values, *dims, scale=0.01):
        template = xr.DataArray(
            scale * rng.standard_normal([len(coords[dim]) for dim in dims]),
            {dim: coords[dim] for dim in dims},
            dims,
        )
        return (values + 0 * template) * np.exp(template)

    common, matrices = ("width", "seed", "step"), ("kind", "block")
    weights = 48.0 * arrays["width"].astype(float) ** 2
    power = xr.where(arrays["block"] == BLOCKS, of["last"], of["others"])
    reached = xr.DataArray(
        [
            [REACHED.get(m, 0.6)] * (BLOCKS - 1) + [REACHED.get(m, of["late"])]
            for m in coords["polar"]
        ],
        {"polar": coords["polar"], "block": coords["block"]},
    )
    losses = xr.DataArray(
        [LOSSES[name] for name in coords["trained"]], {"trained": coords["trained"]}
    )
    return xr.Dataset(
        {
            "quantile": noisy(weights**power, *common, *matrices, "q"),
            "noise": noisy(weights ** of["noise"], *common, *matrices, "q"),
            "reached": noisy(reached, *common, "polar", *matrices),
            "error": noisy(reached, *common, "polar", *matrices),
            "loss": noisy(losses, *common, "trained", scale=0.001),
        }
    )


@pytest.fixture(scope="module")
def judged():
    found = EXPERIMENT.judge(CONFIG, made_up())
    return {judgement.statement.name: judgement for judgement in found}


@pytest.mark.integration
def test_every_statement_holds_on_data_made_for_it(judged):
    assert {judgement.verdict for judgement in judged.values()} == {"confirmed"}


def test_each_control_turns_its_statement(judged):
    for name, judgement in judged.items():
        controls = {
            attack.name: attack.finding.verdict
            for attack in judgement.attacks
            if attack.kind == "control"
        }
        assert set(controls) == set(judgement.statement.controls), name
        assert "confirmed" not in controls.values(), (name, controls)
        assert "refuted" in {*controls.values(), *of_rivals(judgement)}, (name, controls)


def of_rivals(judgement):
    return [a.finding.verdict for a in judgement.attacks if a.kind == "rival"]


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"last": -0.3}, "last-is-steeper"),
        ({"others": -0.45}, "mild"),
        ({"noise": -0.4}, "faster-than-noise"),
        ({"late": 0.59}, "others-miss-late-blocks"),
    ],
)
def test_data_without_the_effect_do_not_confirm_it(changed, name):
    (statement,) = (s for s in EXPERIMENT.statements if s.name == name)
    assert statement.judge(CONFIG, made_up(**changed)).verdict != "confirmed"
