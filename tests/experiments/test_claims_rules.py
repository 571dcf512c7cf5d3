"""The rules that the claims brought: identities with a control, and differences; and the verdict on a claim from its checks."""

import dataclasses

import numpy as np
import pytest

from specjax.experiments import verdicts
from specjax.experiments.claims.contract import Config, corrected, of_claim, outcome, printed

WORDS = ("kebab-name", "claims, Claim 1", "A statement.")


@pytest.mark.parametrize(
    ("error", "control", "verdict"),
    [
        ([0.0, 1e-9], [0.3, 2e-8], "confirmed"),
        ([0.0, 1e-8], [0.3], "confirmed"),
        ([0.0, 1.1e-8], [0.3], "refuted"),
        # One draw of the control that passes shows that the measurement is blind.
        ([0.0, 1e-9], [0.3, 1e-8], "inconclusive"),
        # An error is an error, whatever the control.
        ([0.5], [1e-9], "refuted"),
    ],
)
def test_an_identity_holds_up_to_rounding_and_where_its_control_does_not(error, control, verdict):
    check = verdicts.equality_check(*WORDS, error=np.array(error), control=np.array(control), tolerance=1e-8)
    assert (check.verdict, check.measured, check.predicted) == (verdict, max(error), 0.0)
    assert f"{min(control):.3g}" in check.rule


@pytest.mark.parametrize(
    ("difference", "stderr", "verdict"),
    [
        (0.5, 0.0, "confirmed"),
        (-0.5, 0.0, "confirmed"),
        (0.1, 0.0, "refuted"),
        (0.0, 0.02, "refuted"),
        (0.5, 0.09, "confirmed"),
        (0.5, 0.1, "inconclusive"),
        (0.05, 0.02, "inconclusive"),
        (-0.05, 0.02, "inconclusive"),
        (0.0, 1.0, "inconclusive"),
    ],
)
def test_a_difference_counts_beyond_the_resolution_and_four_standard_errors(difference, stderr, verdict):
    check = verdicts.difference_check(*WORDS, difference=difference, stderr=stderr, resolution=0.1)
    assert check.verdict == verdict
    assert check.interval == (difference - 4 * stderr, difference + 4 * stderr)


def judged(number, **found):
    check = verdicts.bound_check(*WORDS, smallest_margin=0.0)
    roles = {"printed": printed, "corrected": corrected}
    return [
        dataclasses.replace(check, name=roles[key.split("_")[0]](number, key, "")[0], verdict=verdict)
        for key, verdict in found.items()
    ]


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"printed_a": "confirmed", "printed_b": "confirmed"}, "holds"),
        ({"printed_a": "confirmed", "printed_b": "refuted"}, "holds in part"),
        ({"printed_a": "refuted", "printed_b": "refuted"}, "false"),
        ({"printed_a": "refuted", "printed_b": "inconclusive"}, "undecided"),
        # Ours do not count.
        ({"printed_a": "refuted", "corrected_b": "confirmed"}, "false"),
        ({"printed_a": "confirmed", "corrected_b": "refuted"}, "holds"),
        ({"corrected_b": "confirmed"}, "undecided"),
    ],
)
def test_the_verdict_on_a_claim_follows_from_its_printed_checks(found, verdict):
    others = judged(14, printed_a="refuted") + judged(2, printed_a="inconclusive")
    checks = others + judged(1, **found)
    assert len(of_claim(1, checks)) == len(found)
    assert outcome(1, checks) == verdict


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"only": ()}, "only takes different numbers of claims from 1 to 14"),
        ({"only": (4, 4)}, "only takes different numbers of claims from 1 to 14"),
        ({"only": (0,)}, "only takes different numbers of claims from 1 to 14"),
        ({"only": (15,)}, "only takes different numbers of claims from 1 to 14"),
        ({"matrices": 19}, "matrices must be at least 20, for a verdict, got 19."),
        ({"samples": 0}, "samples must be at least 1000"),
        ({"gradients": -1}, "gradients must be at least 500"),
        ({"seed": -1}, "seed must be from 0"),
    ],
)
def test_configurations_that_cannot_be_judged_are_refused(fields, sentence):
    with pytest.raises(ValueError, match=sentence):
        Config(**fields)
