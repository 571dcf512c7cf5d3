"""Closed forms of numbers are float64 without a scope of the caller's, and refuse what lies outside
their domain.
"""

import re

import numpy as np
import pytest

from specjax.theory import (
    capacity,
    finite_capacity,
    gradient_rank,
    polar_newton,
    random_features,
    relu_network,
    wishart,
)
from specjax.theory.preconditioning import iterations


def test_results_are_float64_where_float32_overflows_or_rounds():
    third = 10**18 + 3 * (10**6 + 1) * 10**12 + (10**12 + 3 * 10**6 + 4) * 10**6
    assert float(wishart.wishart_moments(10**6, 10**6)[2]) == pytest.approx(third, rel=1e-15)
    # log1p(-κ⁻³) = -1e-15.
    assert float(iterations.gradient_descent_regression(1e5, 1e-3)) == pytest.approx(
        np.log(1e3) * 1e15, rel=1e-12
    )
    found = [
        random_features.spike(10**6),
        relu_network.alpha(3, 4),
        gradient_rank.late_nuclear_rank_uniform(9, 1, 2, 3),
    ]
    assert {str(x.dtype) for x in found} == {"float64"}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: wishart.wishart_moments(0, 3), "d must be in [1, inf), got 0."),
        (lambda: relu_network.alpha(0, 3), "d0 must be in [1, inf), got 0."),
        (lambda: relu_network.kappa_1(np.array([2.0, np.nan])), "d0 must be in [1, inf), got nan."),
        (lambda: iterations.theorem_1a(1.0, 0.0, 0.5), "accuracy must be in (0, inf), got 0."),
        (
            lambda: iterations.gradient_descent_regression(2.0, 0.1, 1.5),
            "rate must be in (0, 1], got 1.5.",
        ),
        (lambda: polar_newton.newton_errors(0.0, 1.0, 2), "smallest must be in (0, inf), got 0."),
        (lambda: finite_capacity.distinct_items(0, 1.5, 3), "n must be in [1, inf), got 0."),
        (
            lambda: capacity.one_step_exponent("gd", 1.5, -1.0),
            "batch_exponent must be in [0, inf], got -1.",
        ),
        (
            lambda: gradient_rank.late_nuclear_rank_uniform(9, 0, 2, 3),
            "low must be in (0, inf), got 0.",
        ),
    ],
)
def test_what_lies_outside_the_domain_is_refused(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()
