import dataclasses
import json

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.report.verify import verified


@pytest.fixture
def holds(result):
    return result.checks[0]


def test_array_scalars_become_numbers_json_knows(holds):
    check = dataclasses.replace(holds)
    # Past the type checks of the test run, which outside it are not there.
    object.__setattr__(check, "predicted", np.float32(1.0))
    object.__setattr__(check, "measured", jnp.float32(0.5))
    object.__setattr__(check, "interval", (np.int64(0), jnp.float32(2)))
    (plain,) = verified("toy", [check])
    assert json.loads(json.dumps([plain.predicted, plain.measured, plain.interval])) == [1.0, 0.5, [0.0, 2.0]]


def test_good_checks_pass_unchanged(result):
    assert verified("toy", result.checks) == result.checks


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"measured": float("nan")}, r"Check 'holds' of toy has a measurement that is not finite \(nan\)"),
        ({"predicted": float("inf")}, r"has a prediction that is not finite \(inf\)"),
        ({"interval": (0.0, float("inf"))}, r"has an interval that is not finite"),
        ({"interval": (2.0, 1.0)}, r"has the interval \[2.0, 1.0\]; the lower end comes first"),
        ({"name": "Slope of loss"}, r"Check 'Slope of loss' of toy needs a kebab-case name"),
        ({"name": "slope_of_loss"}, r"needs a kebab-case name"),
    ],
)
def test_what_checks_json_cannot_hold_is_refused(result, holds, change, sentence):
    with pytest.raises(ValueError, match=sentence):
        verified("toy", [result.checks[1], dataclasses.replace(holds, **change)])


def test_a_repeated_name_is_refused(result, holds):
    with pytest.raises(ValueError, match="toy has two checks called 'holds'"):
        verified("toy", [*result.checks, holds])
