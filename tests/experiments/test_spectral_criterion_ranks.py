"""The half of the spectral-criterion experiments on stable ranks and layered models: what they
refuse.
"""

import dataclasses

import pytest

from specjax.experiments import load


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
        dataclasses.replace(load(name).at("smoke"), **{field: value})
