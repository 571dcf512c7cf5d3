"""Mutants of data and formulas: which statements they turn, by statements whose fate is known."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import lab
from specjax.cli import _judge
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


def outcomes(statement, data=DATA):
    rows = mutants.mutant_rows("mine", [statement], None, data)
    return {row.mutant: row.outcome for row in rows}


@pytest.mark.integration
def test_a_mutated_closed_form_keeps_its_digits():
    @lab.statement("eq-1", "Its share is 1 - 1/(4 θ²).", rivals={"none": 0.0})
    def share(config, data):
        kept = polar_signal.kept_shares(np.full(4, 4.0), 4, 4)
        dtypes.append(kept.dtype)
        return lab.near(data["loss"].isel(optimizer=1), float(kept[0]), 1.0, "1")

    dtypes = []
    assert ("share", "polar_signal.kept_shares × 1.1") in fates(share)
    assert set(dtypes) == {np.dtype(np.float64)}


def test_an_order_says_that_half_of_it_would_do():
    @lab.statement("eq-1", "Muon is ahead.", controls=NOTHING)
    def order(config, data):
        loss = data["loss"]
        return lab.ahead(loss.sel(optimizer="adam"), loss.sel(optimizer="muon"), least=0)

    assert outcomes(order) == {
        "noise of the same mean": "inconclusive",
        "labels permuted": "inconclusive",
        # Twice the effect is farther on the right side.
        "half the effect": "not sharp here",
    }
    assert "Holds with room to spare" in order.find(None, DATA).reason


@pytest.mark.parametrize(("least", "outcome"), [(0, "not sharp here"), (1e-9, "confirmed")])
def test_an_order_is_true_of_an_effect_of_any_size(least, outcome):
    @lab.statement("eq-1", "The second is ahead of the first.", controls=NOTHING)
    def order(config, data):
        first, second = (data["size"].sel(of=name) for name in "ab")
        return lab.ahead(first, second, least=least)

    # Both are small beside the third: twice the effect, of logarithms, shrinks them and their lead.
    sizes = [0.1, 0.001, 1000] * np.random.default_rng(0).lognormal(0, 0.75, (24, 3))
    data = xr.Dataset({"size": (("seed", "of"), sizes)}, {"of": list("abc")})
    found = order.find(None, data)
    assert found.verdict == "confirmed"
    assert not found.reason
    assert outcomes(order, data)["twice the effect"] == outcome


def test_a_lead_near_its_least_survives_half_only_in_silence():
    @lab.statement("eq-1", "Muon is ahead by 0.6.", controls=NOTHING)
    def order(config, data):
        loss = data["loss"]
        return lab.ahead(loss.sel(optimizer="adam"), loss.sel(optimizer="muon"), least=0.6)

    assert outcomes(order)["half the effect"] == "refuted"


def test_half_of_a_lead_keeps_the_noise_of_the_data():
    lead = np.linspace(-0.4, 1.0, 60)
    data = xr.Dataset({"gain": (("seed", "arm"), np.stack([lead, -lead], 1))}, {"arm": [0, 1]})

    @lab.statement("eq-1", "The first is ahead.", controls=NOTHING)
    def ahead(config, data):
        gain = data["gain"]
        return lab.ahead(gain.isel(arm=0), gain.isel(arm=1), least=0)

    found = ahead.find(None, data)
    assert (found.verdict, found.reason) == ("confirmed", "")
    # With half of the noise as well it would be confirmed.
    assert outcomes(ahead, data)["half the effect"] == "inconclusive"


@pytest.mark.parametrize(("name", "factor"), [("half the effect", 0.5), ("twice the effect", 2.0)])
@pytest.mark.parametrize("scale", [np.exp, np.asarray])
def test_sizes_of_an_effect(name, factor, scale):
    rows = RNG.normal([0.0, 1.0, 3.0], 0.3, (50, 3)) + RNG.normal(0, 1, (50, 1))
    back = np.log if scale is np.exp else np.asarray
    changed = back(mutants.DATA_MUTANTS[name](scale(rows), RNG))
    for first, second in ((0, 1), (1, 2)):
        was, now = (each[:, second] - each[:, first] for each in (rows, changed))
        assert now.mean() == pytest.approx(factor * was.mean())
        assert now.std() == pytest.approx(was.std())
    assert changed.mean(1) == pytest.approx(rows.mean(1))


def ratio_of_capacities(within):
    """A statement that a ratio is its closed form to a share of it, and samples for which it is."""
    value = sharp_capacity.ratio(2.0)
    samples = xr.Dataset({"x": ("seed", RNG.normal(value, 0.01 * value, 60))})

    @lab.statement("eq-1", "The ratio of capacities.", controls=NOTHING)
    def ratio(config, data):
        return lab.near(data["x"], sharp_capacity.ratio(2.0), within * value, f"{within:.0%}")

    return ratio, samples


def test_a_margin_that_a_wrong_formula_meets_says_so():
    ratio, samples = ratio_of_capacities(0.5)

    reason = ratio.find(None, samples).reason
    assert "Not sharp to a tenth: 1.1 times the target would do." in reason
    assert "Holds with room to spare" in reason
    found = outcomes(ratio, samples)
    assert found["sharp_capacity.ratio × 1.1"] == "not sharp here"
    assert found["sharp_capacity.ratio × 0.9"] == "not sharp here"


def test_a_weaker_bound_of_a_formula_is_no_mutant():
    value = sharp_capacity.ratio(2.0)
    samples = xr.Dataset({"x": ("seed", RNG.normal(0.95 * value, 0.001 * value, 60))})

    @lab.statement("eq-1", "At most the ratio of capacities.", controls=NOTHING)
    def ratio(config, data):
        return lab.below(data["x"], sharp_capacity.ratio(2.0), "the ratio")

    found = outcomes(ratio, samples)
    assert "sharp_capacity.ratio × 1.1" not in found
    assert found["sharp_capacity.ratio × 0.9"] == "refuted"


@pytest.mark.usefixtures("x64")
def test_the_unit_of_a_number_compared_with_0_is_no_formula():
    value = sharp_capacity.ratio(2.0)
    samples = xr.Dataset({"x": ("seed", RNG.normal(0, 0.01, 60))})

    @lab.statement("eq-1", "It is 0.", controls=NOTHING)
    def nothing(config, data):
        return lab.equals(data["x"] / sharp_capacity.ratio(2.0), 0.0)

    @lab.statement("eq-1", "It is the ratio.", controls=NOTHING)
    def remainder(config, data):
        return lab.equals(data["x"] + value - sharp_capacity.ratio(2.0), 0.0)

    with_rival = {"a tenth": 0.1 * value}
    for each, same in ((nothing, True), (remainder, False)):
        statement = dataclasses.replace(each, rivals=with_rival)
        assert statement.find(None, samples).verdict == "confirmed"
        assert ("sharp_capacity.ratio × 1.1" in outcomes(statement, samples)) is not same


@pytest.mark.integration
def test_data_without_effect_satisfy_a_statement_of_constancy():
    sizes = 2.0 ** np.arange(3, 9)
    norm = RNG.normal(1, 0.01, (60, 6)) * (1 + 1 / sizes)
    data = xr.Dataset({"norm": (("seed", "d"), norm)}, {"d": sizes})

    @lab.statement("eq-1", "It settles.", controls=NOTHING)
    def constant(config, data):
        return lab.settles(data["norm"], "d")

    assert set(outcomes(constant, data).values()) == {"true without effect"}


@pytest.mark.integration
def test_a_statement_of_every_label_is_not_turned_by_their_order():
    values = RNG.normal([3.0, 1.0, 2.0], 0.1, (60, 3))
    data = xr.Dataset({"gain": (("seed", "step"), values)}, {"step": [1, 2, 3]})

    @lab.statement("eq-1", "It is positive at every step.", controls=NOTHING)
    def every(config, data):
        return lab.above(data["gain"], 0.5, "a half")

    @lab.statement("eq-1", "It is above a half at the first step.", controls=NOTHING)
    def first(config, data):
        return lab.above(data["gain"].isel(step=0), 0.5, "a half")

    @lab.statement("eq-1", "It is above a number of each step.", controls=NOTHING)
    def own(config, data):
        return lab.above(data["gain"], 0.5 + data["step"] / 50, "its number")

    assert outcomes(every, data)["labels permuted"] == "true without effect"
    assert outcomes(first, data)["labels permuted"] == "confirmed"
    assert outcomes(own, data)["labels permuted"] == "confirmed"


@pytest.mark.integration
def test_names_of_quantities_are_labels():
    dims = ("seed", "d")
    adam, muon = RNG.normal([[4.0, 2.0]], 0.1, (60, 2)), RNG.normal([[3.0, 1.0]], 0.1, (60, 2))
    data = xr.Dataset({"adam": (dims, adam), "muon": (dims, muon)})
    other = xr.Dataset({"muon": (dims, muon[:, 1:])})

    @lab.statement("eq-1", "Muon is ahead on average.", controls=NOTHING)
    def ahead(config, data):
        return lab.ahead(data["adam"].isel(d=1), data["muon"].isel(d=1), least=0)

    @lab.statement("eq-1", "Muon is ahead of Adam in another run.", controls=NOTHING)
    def runs(config, data):
        return lab.ahead(data["one"]["adam"].isel(d=1), data["two"]["muon"].isel(d=0), least=0)

    turned = {"inconclusive", "refuted"}
    assert outcomes(ahead, data)["labels permuted"] in turned
    assert outcomes(runs, {"one": data, "two": other})["labels permuted"] in turned


@pytest.mark.integration
def test_no_effect_may_lie_within_a_bound():
    sizes = np.array([1.0, 2.0])
    values = RNG.normal([2.0, 1.5], 0.05, (60, 2))
    data = xr.Dataset({"norm": (("seed", "d"), values)}, {"d": sizes})

    @lab.statement("eq-1", "It falls by less than half.", controls=NOTHING)
    def lasts(config, data):
        norm = data["norm"]
        return lab.above(norm.isel(d=1) - 0.5 * norm.isel(d=0), 0.0, "half")

    assert outcomes(lasts, data)["noise of the same mean"] == "true without effect"
    assert outcomes(lasts, data)["twice the effect"] != "true without effect"


@pytest.mark.integration
def test_labels_that_differ_by_less_than_a_bound():
    dims, labels = ("seed", "optimizer"), {"optimizer": ["adam", "muon"]}
    data = xr.Dataset({"loss": (dims, RNG.normal([2.0, 2.2], 0.05, (60, 2)))}, labels)
    adam, muon = (data["loss"].sel(optimizer=name) for name in ("adam", "muon"))
    assert float((muon / adam).min()) > 1 / 2

    @lab.statement("eq-1", "Muon's is no less than half.", controls=NOTHING)
    def ratio(config, data):
        loss = data["loss"]
        return lab.above(loss.sel(optimizer="muon") / loss.sel(optimizer="adam"), 0.5, "half")

    @lab.statement("eq-1", "Muon's is more than a half.", controls=NOTHING)
    def number(config, data):
        return lab.above(data["loss"].sel(optimizer="muon"), 0.5, "a half")

    # Equal losses are nearer to the bound, and satisfy it.
    assert outcomes(ratio, data)["noise of the same mean"] == "true without effect"
    # Equal losses below a half would not.
    assert outcomes(number, data)["labels permuted"] == "confirmed"


def test_every_inequality_holds_of_equal_sides():
    dims = ("seed", "row")
    first = RNG.uniform([0.5, 0.97], [0.95, 1.0], (60, 2))
    data = xr.Dataset({"first": (dims, first), "second": (dims, np.ones((60, 2)))})

    @lab.statement("eq-1", "The first is at most the second.", controls=NOTHING)
    def bound(config, data):
        first, second = data["first"].isel(row=0), data["second"].isel(row=0)
        return lab.inequality(first, second, slack=0.4)

    # A quantity that is 1 everywhere is compared as well.
    assert outcomes(bound, data)["labels permuted"] == "refuted"


@pytest.mark.integration
def test_the_nearest_label_decides_about_all():
    values = RNG.normal([1.0, 2.0, 9.0], 0.1, (60, 3))
    data = xr.Dataset({"gain": (("seed", "step"), values)}, {"step": [0, 1, 2]})

    @lab.statement("eq-1", "It is below 4 at the first two steps.", controls=NOTHING)
    def early(config, data):
        return lab.below(data["gain"].isel(step=slice(2)), 4.0, "four")

    @lab.statement("eq-1", "It is below 20 at the last two steps.", controls=NOTHING)
    def late(config, data):
        return lab.below(data["gain"].isel(step=slice(1, None)), 20.0, "twenty")

    @lab.statement("eq-1", "It is below 20 at the last two, by step.", controls=NOTHING)
    def by_step(config, data):
        gain = data["gain"].isel(step=slice(1, None))
        return lab.below(gain, 20.0 + 0 * gain["step"], "twenty")

    assert outcomes(early, data)["labels permuted"] != "true without effect"
    # 4 at both, which is nearer to the threshold than 2 and farther than 9.
    assert outcomes(late, data)["labels permuted"] == "true without effect"
    assert outcomes(by_step, data)["labels permuted"] == "confirmed"


@pytest.mark.integration
def test_a_correction_may_lie_within_the_margin():
    correction = sharp_capacity.next_order("muon", 256, 5000, 1.5)
    # A tenth of it moves the form by 0.0052; the data are 0.0065 off.
    assert correction == pytest.approx(-0.052, abs=5e-4)
    spread = np.linspace(-1, 1, 60) / np.linspace(-1, 1, 60).std(ddof=1)

    def outcome_of(within, name, noise=0.002):
        def near_or_above(config, data):
            form = sharp_capacity.next_order("muon", 256, 5000, 1.5)
            if within is None:
                return lab.above(data["x"], 1 + 1.5 * form, "one and a half of it")
            form = 1 + form
            return lab.near(data["x"], form, within, "its margin")

        data = xr.Dataset({"x": ("seed", 1 + correction - 0.0065 + noise * spread)})
        statement = lab.statement("eq-1", "A correction.", controls=NOTHING)(near_or_above)
        assert statement.find(None, data).verdict == "confirmed"
        assert statement.find(None, data).reason == ""
        return outcomes(statement, data)[f"sharp_capacity.next_order × {name}"]

    assert outcome_of(0.0095, 0.9) == "refuted"
    assert outcome_of(0.0095, 1.1) == "confirmed"
    assert outcome_of(0.012, 1.1) == "within its margin"
    assert outcome_of(None, 0.9, noise=0.018) == "within its margin"


def test_half_of_differences_may_be_most_of_a_distance():
    lead = np.linspace(-0.4, 1.0, 60) + np.log(3)
    data = xr.Dataset({"rank": (("seed", "of"), np.exp(np.stack([lead, 0.8 * lead], 1)))})

    def outcome_of(least):
        @lab.statement("eq-1", "The first rank is large.", controls=NOTHING)
        def large(config, data):
            return lab.above(np.log(data["rank"].isel(of=0)), least, "the least rank")

        found = large.find(None, data)
        assert (found.verdict, found.reason) == ("confirmed", "")
        return outcomes(large, data)["half the effect"]

    # The first is 1.4 ± 0.23 in the mean, and 1.33 where its lead over the second is halved.
    assert outcome_of(1.0) == "within its margin"


def test_a_number_survives_no_size_of_the_effect():
    @lab.statement("eq-1", "The ratio is 2.", controls=NOTHING)
    def ratio(config, data):
        loss = data["loss"]
        return lab.near(
            loss.sel(optimizer="adam") / loss.sel(optimizer="muon"), 2.0, 0.3, "three tenths"
        )

    assert not any(fates(ratio).values())
    assert len(fates(ratio)) == 4


@pytest.mark.integration
def test_noise_of_the_same_mean_leaves_a_mean_as_it_is():
    @lab.statement("eq-1", "Losses are positive.", controls=NOTHING)
    def positive(config, data):
        return lab.above(data["loss"].mean("optimizer"), 0.0, "nothing")

    assert outcomes(positive)["noise of the same mean"] == "true without effect"
    # A permutation within a sample leaves its mean.
    assert "labels permuted" not in outcomes(positive)


@pytest.mark.integration
def test_a_constant_of_every_label_has_no_size_to_change():
    data = xr.Dataset({"norm": (("seed", "d"), RNG.normal(2, 0.1, (60, 3)))}, {"d": [1, 2, 4]})

    @lab.statement("eq-1", "It is 2 at every d.", rivals={"1": 1.0})
    def constant(config, data):
        return lab.equals(data["norm"], 2.0)

    @lab.statement("eq-1", "It is 2 at the first.", rivals={"1": 1.0})
    def first(config, data):
        return lab.equals(data["norm"].isel(d=0), 2.0)

    @lab.statement("eq-1", "It is 2 at the first, to 0.1.", controls=NOTHING)
    def coarse(config, data):
        return lab.near(data["norm"].isel(d=0), 2.0, 0.1, "a tenth")

    assert outcomes(constant, data)["half the effect"] == "true without effect"
    # Its rival is excluded, which a margin does not show.
    assert outcomes(first, data)["half the effect"] == "true without effect"
    assert outcomes(coarse, data)["half the effect"] == "within its margin"


@pytest.mark.integration
def test_growth_with_room_says_so():
    d = 2.0 ** np.arange(3, 11)
    norm = d * RNG.normal(1, 0.01, (50, 8))
    data = xr.Dataset({"norm": (("seed", "d"), norm)}, {"d": d})

    @lab.statement("eq-1", "It grows.", controls=NOTHING)
    def grows(config, data):
        return lab.grows(data["norm"], "d")

    assert outcomes(grows, data)["half the effect"] == "not sharp here"
    assert outcomes(grows, data).get("twice the effect") != "confirmed"


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
    ratio, samples = ratio_of_capacities(0.05)

    found = fates(ratio, data=samples)
    assert found["ratio", "sharp_capacity.ratio × 1.1"] is False
    # The factor of both optimizers cancels, which changes no number.
    assert ("ratio", "sharp_capacity.constant × 1.1") not in found
    assert sharp_capacity.ratio(2.0) == value


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_numbers_of_a_formula_may_be_in_lists():
    value = float(deep_linear.backward_moments((2, 3, 2))[0][1])
    samples = xr.Dataset({"x": ("seed", RNG.normal(value, 0.01 * value, 60))})

    @lab.statement("eq-21", "The second scalar.", controls=NOTHING)
    def scalar(config, data):
        (_, r), _ = deep_linear.backward_moments((2, 3, 2))
        return lab.near(data["x"], float(r), 0.6, "5 %")

    found = outcomes(scalar, samples)
    assert found["deep_linear.backward_moments × 1.1"] == "refuted"
    assert found["deep_linear.backward_moments × 0.9"] == "refuted"


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
        smaller = data["smaller"]
        return lab.inequality(smaller, xr.ones_like(smaller), slack=0.5)

    def fate(low, high):
        dims = ("seed", "row")
        smaller = RNG.uniform(low, high, (60, 3))
        data = xr.Dataset({"smaller": (dims, smaller)})
        return set(outcomes(bound, data).values())

    assert fate(0.55, 0.65) == {"not sharp here"}
    assert "confirmed" in fate(0.85, 0.95)


def test_the_last_line_counts_survivors_and_the_others(capsys):
    fates = ("confirmed", "refuted", mutants.WITHOUT, mutants.UNSHARP, mutants.WITHIN)
    _judge._print_mutants([mutants.MutantRow("mine", "order", "noise", each) for each in fates])
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("SURVIVES") for line in lines[1:-1]] == [True] + 4 * [False]
    assert lines[-1] == (
        "5 mutants, 1 survive (1 true without effect, 1 not sharp here, 1 within its margin)"
    )
