"""The edges of the bulk of the covariance of ReLU features against the eigenvalues of drawn
covariances.
"""

import math
import re

import numpy as np
import pytest

from specjax.theory import feature_bulk
from tests.wrong_calls import wrong_calls


def extreme_eigenvalues(k, d, draws, rng):
    """Of the covariance of max(V x, 0), x ~ N(0, I): E a_i a_j = ‖v_i‖‖v_j‖ (sin θ + (π - θ) cos
    θ)/2π less the product of the means.
    """
    found = []
    for _ in range(draws):
        v = rng.standard_normal((k, d)) / math.sqrt(d)
        lengths = np.linalg.norm(v, axis=1)
        angle = np.arccos(np.clip(v @ v.T / np.outer(lengths, lengths), -1, 1))
        second = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
        found.append(
            np.linalg.eigvalsh(np.outer(lengths, lengths) * (second - 1 / (2 * np.pi)))[[0, -1]]
        )
    return np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(draws)


SIZES = [
    *((100, gamma, 40) for gamma in (1.0, 2.0, 3.0)),
    *((200, gamma, 12) for gamma in (1.0, 2.0)),
    *(
        pytest.param(d, gamma, 12, marks=pytest.mark.integration)
        for d, gamma in ((200, 3.0), (400, 1.0), (400, 2.0))
    ),
    pytest.param(400, 3.0, 12, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("d", "gamma", "draws"), SIZES)
def test_the_edges_at_finite_d_are_those_of_draws(d, gamma, draws):
    k = int(gamma * d)
    mean, error = extreme_eigenvalues(k, d, draws, np.random.default_rng(d + k))
    low, high = feature_bulk.bulk_edges(k, d)
    assert abs(mean[0] - low) < 4 * error[0] + 0.005 * low
    assert abs(mean[1] - high) < 4 * error[1] + 0.02 * high
    assert 4 * error[0] < 0.04 * low
    # The limit is many standard errors away; so are, together, the parts of the correction to it.
    limit = feature_bulk.limiting_bulk_edges(gamma)[0]
    assert limit - mean[0] > 10 * error[0]
    assert limit - mean[0] > 0.05 * limit


@pytest.mark.parametrize("gamma", [0.3, 1.0, 2.5])
def test_the_edges_at_finite_d_tend_to_the_limit(gamma):
    limit = np.array(feature_bulk.limiting_bulk_edges(gamma))
    distances = [
        abs(np.array(feature_bulk.bulk_edges(int(gamma * d), d)) - limit) / limit
        for d in (10**3, 10**5)
    ]
    assert (distances[1] < 0.02).all()
    assert (distances[1] < distances[0] / 3).all()


def test_the_lower_edge_has_the_correction_of_two_semicircles():
    """At γ ≫ 1, where ¼VVᵀ is far above: the quadratic part √(2γ/d)/2π and, beside it, the lengths
    √(2/d) (π-2)/4π.
    """
    k, d = 400_000, 20_000
    semicircle = math.hypot(
        math.sqrt(2 * k / d**2) / (2 * math.pi), math.sqrt(8 / d) * (math.pi - 2) / (4 * math.pi)
    )
    low, limit = feature_bulk.bulk_edges(k, d)[0], feature_bulk.limiting_bulk_edges(k / d)[0]
    # (1 - √ψ)² instead of 1 - 2√ψ, and the null space of V, which is 1 - 1/γ of all: a twentieth.
    assert limit - low == pytest.approx(semicircle, rel=0.08)


def test_the_limits_are_those_of_marchenko_and_pastur_moved():
    assert feature_bulk.limiting_bulk_edges(1.5)[0] == pytest.approx(0.25 - 1 / (2 * math.pi))
    assert feature_bulk.limiting_bulk_edges(4.0)[1] == pytest.approx(
        9 / 4 + 0.25 - 1 / (2 * math.pi)
    )
    assert feature_bulk.limiting_bulk_edges(0.25)[0] == pytest.approx(
        1 / 16 + 0.25 - 1 / (2 * math.pi)
    )


WRONG_CALLS = """
feature_bulk.bulk_edges(0, 5)
    The bulk needs k >= 1 rows of length d >= 2, got k=0 and d=5.
feature_bulk.bulk_edges(5, 1)
    The bulk needs k >= 1 rows of length d >= 2, got k=5 and d=1.
feature_bulk.limiting_bulk_edges(0.0)
    The bulk needs a positive ratio gamma = k/d, got 0.0.
"""


@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_sizes_without_a_bulk_are_refused(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        eval(call)
