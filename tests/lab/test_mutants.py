"""Mutants of data and formulas: which statements they turn, by statements whose fate is known."""

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import lab
from specjax.lab import mutants
from specjax.theory import deep_linear, polar_signal, sharp_capacity

RNG = np.random.default_rng(3)
NOTHING = {"nothing": lambda _, data: 0 * data}
DATA = xr.Dataset(
    {
        "loss": (("seed", "optimizer"), RNG.normal([2.0, 1.0], 0.1, (60, 2))),
        "right": (("seed", "optimizer"), RNG.random((60, 2)) < [0.9, 0.1]),
    },
    {"optimizer": ["adam", "muon"]},
)


def fates(*statements, data=DATA):
    rows = mutants.mutant_rows("mine", statements, None, data)
    return {(row.statement, row.mutant): row.survived for row in rows}


def test_a_mutated_closed_form_keeps_its_digits():
    @lab.statement("eq-1", "Its share is 1 - 1/(4 θ²).", rivals={"none": 0.0})
    def share(config, data):
        kept = polar_signal.kept_shares(np.full(4, 4.0), 4, 4)
        dtypes.append(kept.dtype)
        return lab.near(data["loss"].isel(optimizer=1), float(kept[0]), 1.0, "1")

    dtypes = []
    assert ("share", "polar_signal.kept_shares × 1.1") in fates(share)
    assert set(dtypes) == {np.dtype(np.float64)}


def test_an_order_survives_half_of_the_effect():
    @lab.statement("eq-1", "Muon is ahead.", controls=NOTHING)
    def order(config, data):
        loss = data["loss"]
        return lab.ahead(loss.sel(optimizer="adam"), loss.sel(optimizer="muon"), least=0)

    assert fates(order) == {
        ("order", "noise of the same mean"): False,
        ("order", "labels permuted"): False,
        # Twice the effect is farther on the right side.
        ("order", "half the effect"): True,
    }


def test_a_number_survives_no_size_of_the_effect():
    @lab.statement("eq-1", "The ratio is 2.", controls=NOTHING)
    def ratio(config, data):
        loss = data["loss"]
        return lab.near(
            loss.sel(optimizer="adam") / loss.sel(optimizer="muon"), 2.0, 0.3, "three tenths"
        )

    assert not any(fates(ratio).values())
    assert len(fates(ratio)) == 4


def test_a_statement_on_nothing_survives_noise():
    @lab.statement("eq-1", "Losses are positive.", controls=NOTHING)
    def positive(config, data):
        return lab.above(data["loss"].mean("optimizer"), 0.0, "nothing")

    assert fates(positive)[("positive", "noise of the same mean")]
    # A permutation within a sample leaves its mean.
    assert ("positive", "labels permuted") not in fates(positive)


def test_shares_are_permuted_and_not_stretched():
    @lab.statement("eq-1", "The first is right.", controls=NOTHING)
    def right(config, data):
        return lab.fraction(data["right"].sel(optimizer="adam"), more_than=0.5)

    assert fates(right) == {
        ("right", "noise of the same mean"): False,
        ("right", "labels permuted"): False,
    }


def test_a_statement_that_the_data_refute_has_no_rows():
    @lab.statement("eq-1", "Adam is ahead.", controls=NOTHING, holds=False)
    def refuted(config, data):
        loss = data["loss"]
        return lab.ahead(loss.sel(optimizer="muon"), loss.sel(optimizer="adam"), least=0)

    assert fates(refuted) == {}


def test_each_formula_that_a_statement_calls_is_wrong_once():
    value = sharp_capacity.ratio(2.0)
    samples = xr.Dataset({"x": ("seed", RNG.normal(value, 0.01 * value, 60))})

    @lab.statement("eq-1", "The ratio of capacities.", controls=NOTHING)
    def ratio(config, data):
        return lab.near(data["x"], sharp_capacity.ratio(2.0), 0.05 * value, "5 %")

    found = fates(ratio, data=samples)
    assert found["ratio", "sharp_capacity.ratio × 1.1"] is False
    # The factor of both optimizers cancels, which changes no number.
    assert ("ratio", "sharp_capacity.constant × 1.1") not in found
    assert sharp_capacity.ratio(2.0) == value


@pytest.mark.usefixtures("x64")
def test_the_numbers_of_a_formula_may_be_in_lists():
    value = float(deep_linear.backward_moments((2, 3, 2))[0][1])
    samples = xr.Dataset({"x": ("seed", RNG.normal(value, 0.01 * value, 60))})

    @lab.statement("eq-21", "The second scalar.", controls=NOTHING)
    def scalar(config, data):
        (_, r), _ = deep_linear.backward_moments((2, 3, 2))
        return lab.near(data["x"], float(r), 0.6, "5 %")

    (row,) = [
        row
        for row in mutants.mutant_rows("mine", [scalar], None, samples)
        if row.mutant.startswith("deep_linear.backward_moments")
    ]
    assert row.outcome == "refuted"


def test_several_datasets_keep_their_names_and_coordinates():
    data = {"first": DATA, "second": DATA.isel(seed=slice(30))}

    @lab.statement("eq-1", "Muon is ahead.", controls=NOTHING)
    def order(config, data):
        loss = data["second"]["loss"]
        return lab.ahead(loss.sel(optimizer="adam"), loss.sel(optimizer="muon"), least=0)

    assert fates(order, data=data)["order", "labels permuted"] is False


@pytest.mark.parametrize("name", list(mutants.DATA_MUTANTS))
def test_mutants_keep_the_mean_of_a_sample_or_of_all(name):
    rows = RNG.normal(3, 1, (400, 5))
    changed = mutants.DATA_MUTANTS[name](rows, np.random.default_rng(0))
    assert changed.shape == rows.shape
    assert changed.mean() == pytest.approx(rows.mean(), abs=0.1)
    assert not np.allclose(changed, rows)
    assert jnp.isfinite(changed).all()


def test_a_bound_that_is_not_sharp_says_so_and_does_not_survive():
    @lab.statement("eq-1", "It is at most 1.", controls=NOTHING)
    def bound(config, data):
        return lab.inequality(data["smaller"], data["larger"], slack=0.5)

    def outcomes(low, high):
        dims = ("seed", "row")
        smaller = RNG.uniform(low, high, (60, 3))
        data = xr.Dataset({"smaller": (dims, smaller), "larger": (dims, np.ones((60, 3)))})
        return {row.outcome for row in mutants.mutant_rows("mine", [bound], None, data)}

    assert outcomes(0.55, 0.65) == {"not sharp here"}
    assert "confirmed" in outcomes(0.85, 0.95)
