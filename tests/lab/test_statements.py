"""Statements: what they refuse to be without, and what an attack that they survive makes of a
verdict.
"""

import dataclasses
import json

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from specjax import lab
from specjax.lab import Judgement
from specjax.lab.check import Check
from specjax.lab.drawing import COLORS

SIZES = np.array([8, 16, 32, 64, 128])
RNG = np.random.default_rng(0)
DATA = xr.Dataset(
    {"y": (("d", "seed"), 2 * SIZES[:, None] * (1 + 0.05 * RNG.normal(size=(5, 300))))},
    coords={"d": SIZES},
)
LEDGER = lab.ledger.Ledger(
    "paper", {"theorem-1": lab.ledger.Row("theorem-1", "theorem", "Section 1", "y is 2d.")}
)


class Config(lab.Config):
    ds: tuple[int, ...] = lab.config.sizes(8, 16, help="sizes")


def doubled(config, data):
    return 2.0 * data.d


def zero(config, data):
    return data.assign(y=0 * data["y"] + RNG.normal(size=data["y"].shape))


def judged(statement: lab.Statement, data: xr.Dataset = DATA) -> Judgement:
    return statement.judge(Config(), data)


def test_a_statement_takes_its_name_from_its_function():
    @lab.statement("theorem-1", "y is 2d.", rivals={"d": lambda config, data: 1.0 * data.d})
    def the_mean(config, data):
        return lab.equals(data["y"], doubled(config, data))

    assert the_mean.name == "the-mean"
    judgement = judged(the_mean)
    assert judgement.verdict == "confirmed"
    assert judgement.reason == ""
    assert [(a.kind, a.name, a.finding.verdict) for a in judgement.attacks] == [
        ("rival", "d", "refuted")
    ]


def test_a_statement_without_sentence_uses_its_docstring():
    def doubled_mean(config, data):
        """The mean of y is
        2d.
        """
        return lab.equals(data["y"], doubled(config, data))

    rivals = {"d": 1.0}
    assert lab.statement("theorem-1", rivals=rivals)(doubled_mean).says == "The mean of y is 2d."
    assert lab.statement("theorem-1", "y is 2d.", rivals=rivals)(doubled_mean).says == "y is 2d."
    with pytest.raises(
        ValueError, match="'silent' says nothing; give it a sentence, or its function a docstring"
    ):
        lab.statement("theorem-1", name="silent", rivals=rivals)(
            lambda config, data: doubled_mean(config, data)
        )


def test_a_confirmed_control_leaves_nothing_confirmed():
    """The rule that a bound "no draw is below -1000" is true of noise as well."""

    @lab.statement("theorem-1", "y is above -1000.", controls={"noise": zero})
    def weak(config, data):
        return lab.above(data["y"], -1000.0, "-1000")

    judgement = judged(weak)
    assert judgement.finding.verdict == "confirmed"
    assert judgement.verdict == "inconclusive"
    assert "the control 'noise'" in judgement.reason

    @lab.statement("theorem-1", "y is above 1.", controls={"noise": zero})
    def strong(config, data):
        return lab.above(data["y"], 1.0, "1")

    assert judged(strong).verdict == "confirmed"


def test_a_refutation_needs_a_rival_or_control_that_is_confirmed():
    @lab.statement(
        "theorem-1", "y is 5d.", rivals={"3d": lambda config, data: 3.0 * data.d}, holds=False
    )
    def without(config, data):
        return lab.equals(data["y"], 5.0 * data.d)

    judgement = judged(without)
    assert judgement.finding.verdict == "refuted"
    assert judgement.verdict == "inconclusive"
    assert "none fits the data" in judgement.reason

    @lab.statement("theorem-1", "y is 5d.", rivals={"2d": doubled}, holds=False)
    def within(config, data):
        return lab.equals(data["y"], 5.0 * data.d)

    assert judged(within).verdict == "refuted"


def test_a_verdict_that_turns_in_training_is_inconclusive():
    loss = xr.DataArray(
        np.array([3.0, 2.0, 0.5])[:, None] + 0.01 * RNG.normal(size=(3, 50)),
        dims=("step", "seed"),
        coords={"step": [10, 100, 1000]},
        name="loss",
    )
    data = xr.Dataset({"loss": loss})

    def statement(threshold: float) -> lab.Statement:
        @lab.statement(
            "theorem-1",
            "The loss is above.",
            controls={"trained": lambda c, d: d - 5},
            along="step",
            name="loss-above",
        )
        def above(config, data):
            return lab.above(data["loss"], threshold, "a threshold")

        return above

    turning, lasting = judged(statement(1.0), data), judged(statement(0.1), data)
    assert turning.verdict == "inconclusive"
    assert (
        turning.reason
        == "It depends on the length: confirmed from step = 10, refuted from step = 1000."
    )
    assert Check.from_judgement(turning).depends is True
    assert lasting.verdict == "confirmed"
    assert Check.from_judgement(lasting).depends is False


def test_noise_at_one_length_is_no_dependence_on_it():
    spread = np.array([50.0, 0.01])[:, None]
    data = xr.Dataset(
        {"loss": (("step", "seed"), 3 + spread * RNG.normal(size=(2, 50)))}, coords={"step": [1, 2]}
    )

    @lab.statement(
        "theorem-1", "The loss is above 2.", controls={"less": lambda c, d: d - 5}, along="step"
    )
    def above(config, data):
        return lab.above(data["loss"], 2.0, "2")

    judgement = judged(above, data)
    assert judgement.verdict == "inconclusive"
    assert (
        judgement.reason
        == "It is not decided at every length: inconclusive from step = 1, confirmed from step = 2."
    )
    assert Check.from_judgement(judgement).depends is False


def test_a_control_that_is_confirmed_at_one_length_survives():
    data = xr.Dataset(
        {"loss": (("step", "seed"), 3 + 0.01 * RNG.normal(size=(2, 50)))}, coords={"step": [1, 2]}
    )

    def broken_at_the_end(config, data):
        return data.assign(
            loss=data["loss"] - xr.DataArray([0, 5], dims="step", coords={"step": [1, 2]})
        )

    @lab.statement(
        "theorem-1", "The loss is above 2.", controls={"late": broken_at_the_end}, along="step"
    )
    def above(config, data):
        return lab.above(data["loss"], 2.0, "2")

    assert judged(above, data).survivors == ("the control 'late'",)


def test_rivals_of_a_training_are_cut_along_its_length_too():
    data = xr.Dataset(
        {
            "loss": (
                ("step", "seed"),
                np.array([3.0, 2.0])[:, None] + 0.01 * RNG.normal(size=(2, 50)),
            )
        },
        coords={"step": [1, 2]},
    )
    form = xr.DataArray([3.0, 2.0], dims="step", coords={"step": [1, 2]})

    @lab.statement("theorem-1", "The loss.", rivals={"less": lambda c, d: form - 1}, along="step")
    def loss(config, data):
        return lab.equals(data["loss"], form)

    assert judged(loss, data).verdict == "confirmed"


def test_a_check_is_json_and_holds_what_the_verdict_follows_from():
    @lab.statement(
        "theorem-1", "The median of y is 2d.", rivals={"d": lambda config, data: 1.0 * data.d}
    )
    def median(config, data):
        return lab.equals(data["y"].isel(seed=slice(10)), doubled(config, data), by="median")

    check = Check.from_judgement(judged(median))
    assert check.verdict == "inconclusive"
    assert check.interval == (None, None)  # of ten samples
    assert check.samples == 10
    assert check.cites == ("theorem-1",)
    assert check.rivals[0]["name"] == "d"
    assert check.rivals[0]["excluded"] is False
    assert check.attacks == (
        {"kind": "rival", "name": "d", "verdict": "inconclusive", "survived": False},
    )
    assert check.expected == "confirmed"
    assert check.surprising
    assert check.rule.startswith("confirmed if")
    assert Check.parsed(json.loads(json.dumps(dataclasses.asdict(check), allow_nan=False))) == check


def test_attack_rows_mark_the_survivors():
    @lab.statement("theorem-1", "y is above -1000.", controls={"noise": zero})
    def weak(config, data):
        return lab.above(data["y"], -1000.0, "-1000")

    rows = lab.check.attack_rows("e", [judged(weak)])
    assert [(row.attack, row.outcome, row.survived) for row in rows] == [
        ("control: noise", "confirmed", True)
    ]


def test_a_bound_by_rounding_survives_exchanged_sides():
    """The rule is given noise of its own: 1.05 y is at most y up to a rounding of a tenth."""

    @lab.statement(
        "theorem-1",
        "z is at most y.",
        controls={"2 y": lab.controls.replacing("z", lambda data: 2 * data["y"])},
    )
    def at_most(config, data):
        return lab.inequality(data["z"], data["y"], slack=0.3, rounding=0.1)

    judgement = judged(at_most, DATA.assign(z=1.05 * DATA["y"]))
    assert judgement.finding.verdict == "confirmed"
    assert judgement.verdict == "inconclusive"
    assert judgement.survivors == ("the perturbation 'the two sides exchanged'",)


def test_an_experiment_keeps_the_statements_of_its_making():
    states = lab.Statements()

    @states("theorem-1", "y is 2d.", rivals={"d": lambda config, data: 1.0 * data.d})
    def the_mean(config, data):
        return lab.equals(data["y"], doubled(config, data))

    def twice(config, data):
        return lab.equals(2 * data["y"], 2 * doubled(config, data))

    states("theorem-1", "2y is 4d.", name="twice", rivals={"d": 1.0})(twice)
    made = experiment(*states)
    states("theorem-1", "Too late.", name="late", rivals={"d": 1.0})(twice)
    assert [each.name for each in made.statements] == ["the-mean", "twice"]
    assert judged(states[0]) == judged(the_mean)
    with pytest.raises(ValueError, match="neither a rival nor a control"):
        states("theorem-1", "y is 2d.")(the_mean.relation)
    assert len(states) == 3


@pytest.fixture
def fine() -> lab.Statement:
    @lab.statement("theorem-1", "y is 2d.", rivals={"d": lambda config, data: 1.0 * data.d})
    def mean(config, data):
        return lab.equals(data["y"], doubled(config, data))

    return mean


def experiment(*statements: lab.Statement, **changed) -> lab.Experiment:
    fields = {
        "title": "t",
        "summary": "s",
        "config": Config,
        "measure": lambda config, key: DATA,
    } | changed
    return lab.Experiment("e", LEDGER, statements=statements, **fields)


def test_an_experiment_judges_and_draws_itself(fine):
    made = experiment(fine, scales={"smoke": {"ds": (8,)}})
    assert made.at("smoke").ds == (8,)
    assert made.at("quick").ds == (8, 16)
    assert made.at("quick", seed=3).seed == 3
    data = made.run(made.at("quick"))
    assert [j.verdict for j in made.judge(made.at("quick"), data)] == ["confirmed"]
    assert len(made.draw(made.at("quick"), data).axes) == 1


def test_figures_have_the_labs_colours_and_leave_global_ones(fine):
    def figure(config, data):
        drawn = Figure()
        drawn.subplots().plot([0, 1])
        return drawn

    before = mpl.rcParams["axes.prop_cycle"]
    made = experiment(fine, figure=figure)
    (line,) = made.draw(made.at("quick"), DATA).axes[0].lines
    assert line.get_color() == COLORS[0]
    assert mpl.rcParams["axes.prop_cycle"] == before


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda fine: lab.statement("theorem-1", "y.")(lambda config, data: None), "kebab-case"),
        (
            lambda fine: lab.statement("theorem-1", "y.", name="y")(fine.relation),
            "'y' has neither a rival nor a control",
        ),
        (
            lambda fine: lab.statement((), "y.", name="y", rivals={"a": 1.0})(fine.relation),
            "'y' cites nothing",
        ),
        (lambda fine: experiment(), "states nothing"),
        (lambda fine: experiment(fine, fine), "two statements called 'mean'"),
        (lambda fine: experiment(fine, scales={"huge": {}}), "unknown scale 'huge'"),
        (lambda fine: experiment(fine).at("huge"), "There is no scale 'huge'"),
        (
            lambda fine: experiment(
                lab.statement("theorem-2", "y.", name="y", rivals={"a": 1.0})(fine.relation)
            ),
            "'y' of e cites 'theorem-2', which is not a row of the ledger of paper",
        ),
    ],
)
def test_what_is_no_statement_does_not_import(fine, call, match):
    with pytest.raises(ValueError, match=match):
        call(fine)
