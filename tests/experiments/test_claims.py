"""The fourteen claims: each is judged, and the page shows what the ledger and the runs say."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import experiments, lab
from specjax.experiments.claims.curvature import one_indefinite
from specjax.experiments.claims.measured_claims import Measured

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers" / "claims.md"
NAMES = [name for name in experiments.names() if name.startswith("claims-")]


def test_each_claim_is_judged_in_its_own_words():
    """A claim on which only statements of ours were made would be none of the document's."""
    printed = {
        row
        for name in NAMES
        for statement in experiments.load(name).statements
        if not statement.corrected
        for row in statement.cites
    }
    assert {f"claim-{n}" for n in range(1, 15)} <= printed


def test_the_page_names_every_experiment():
    assert set(re.findall(r"`specjax run (claims-[a-z]+)`", PAGE.read_text())) == set(NAMES)


ERRORS = xr.Dataset(
    {
        name: ("seed", np.full(30, value))
        for name, value in {"a": 0.0, "b": 0.0, "wrong": 1.0}.items()
    }
)


@pytest.mark.parametrize(
    ("controls", "attacks"),
    [
        ({"another": "wrong"}, ["another: a", "another: b"]),
        ({"one": {"a": "wrong"}, "other": {"b": lambda found: found["wrong"]}}, ["one", "other"]),
    ],
)
def test_each_error_of_a_statement_has_its_own_control(controls, attacks):
    states = lab.Statements()
    both = Measured(states, rounding=1e-9).agree("both", "claim-2", ("a", "b"), controls)(
        "a and b are rounding."
    )
    assert states == [both]
    judgement = both.judge(None, ERRORS)
    assert judgement.verdict == "confirmed"
    assert [(a.name, a.finding.verdict) for a in judgement.attacks] == [
        (name, "refuted") for name in attacks
    ]
    # A statement that looked at one of the two only would survive the attack on the other.
    assert both.judge(None, ERRORS.assign(b=ERRORS["wrong"])).verdict != "confirmed"


@pytest.mark.parametrize(
    "controls", [{"another": {"a": "wrong"}}, {"another": {"a": "wrong", "c": "wrong"}}]
)
def test_an_error_that_no_control_breaks_does_not_import(controls):
    with pytest.raises(
        ValueError, match=r"'both' break the errors .*, and it is on \['a', 'b'\]; break each"
    ):
        Measured(lab.Statements(), rounding=1e-9).agree("both", "claim-2", ("a", "b"), controls)


def test_the_matrix_of_claim_10_has_eigenvalues_of_both_signs():
    """Negative definite ones, which have no logarithm either, would not show that an indefinite one
    has none.
    """
    x = np.random.default_rng(0).normal(size=(40, 6, 3, 5))
    clouds = np.asarray(jax.vmap(one_indefinite)(jnp.asarray(x @ np.swapaxes(x, -1, -2))))
    signs = np.sign(np.linalg.eigvalsh(clouds))
    np.testing.assert_array_equal(signs[:, 0], np.broadcast_to([-1, 1, 1], (40, 3)))
    np.testing.assert_array_equal(signs[:, 1:], 1)
