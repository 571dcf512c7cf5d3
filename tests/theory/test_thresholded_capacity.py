"""Counts after several thresholded steps, against simulated memories in NumPy and against the
formulas for one step.
"""

import numpy as np
import pytest

from specjax.theory import capacity, finite_capacity, muon_logits, thresholded_capacity
from tests.wrong_calls import wrong_calls


def simulated(optimizer, d, n, alpha, after, etas, rng):
    """Counts after each step of one sample, and the mean square of W's singular values, by dense
    linear algebra.
    """
    u, v = rng.standard_normal((2, n, d)) / np.sqrt(d)
    item = np.arange(1.0, n + 1)
    p = item**-alpha / np.sum(item**-alpha)
    w, counts, squares = 0, [], []
    for bound, eta in zip(after, etas, strict=True):
        g = (u * (p * (item > bound))[:, None]).T @ v
        left, _, right = np.linalg.svd(g)
        w = w + eta * (left @ right if optimizer == "muon" else g)
        logits = v @ w.T @ u.T
        own = np.diagonal(logits).copy()
        np.fill_diagonal(logits, -np.inf)
        counts.append(np.sum(own > logits.max(axis=1)))
        squares.append(np.sum(w**2) / d)
    return counts, squares


@pytest.mark.parametrize("optimizer", ["muon", "gd"])
def test_one_step_is_that_of_the_formula_for_one(optimizer):
    found = thresholded_capacity.expected_counts(
        optimizer, 64, 2000, 1.5, [0.0], None if optimizer == "muon" else [3.0]
    )
    tolerance = 1e-4 if optimizer == "muon" else 3e-3
    assert found == pytest.approx(
        [finite_capacity.expected_count(optimizer, 64, 2000, 1.5)], rel=tolerance
    )


def test_a_threshold_below_one_item_changes_nothing():
    same = thresholded_capacity.expected_counts("muon", 64, 2000, 1.5, [0.0, 0.0])
    assert same[1] == pytest.approx(same[0], rel=1e-3)


@pytest.mark.integration
def test_spreads_are_those_of_simulated_memories():
    """Of the logits of frequent items, whose signals are saturated: with a linear response they
    would be 2.3 and more.
    """
    d, n, alpha = 60, 900, 1.25
    rng, items = np.random.default_rng(0), np.arange(1.0, 6.0)
    p, sizes, at = finite_capacity.nodes(float(n), alpha, 1e6, 1 / alpha)
    steps = muon_logits.muon_steps(d, p, sizes, at, [0.0])
    expected = muon_logits.spreads(steps, p[:5], items)[0]
    draws = []
    for _ in range(400):
        u, v = rng.standard_normal((2, n, d)) / np.sqrt(d)
        left, _, right = np.linalg.svd((u * np.arange(1.0, n + 1)[:, None] ** -alpha).T @ v)
        draws.append(np.sum((u[:5] @ left @ right) * v[:5], axis=1) / np.linalg.norm(v[:5], axis=1))
    found = d * np.var(draws, axis=0, ddof=1)
    np.testing.assert_allclose(
        found.mean(), expected.mean(), rtol=0.13
    )  # four standard errors of 2000 squares
    assert expected.max() < 1.2


@pytest.mark.integration
@pytest.mark.parametrize(
    ("optimizer", "alpha", "draws", "allowance"), [("muon", 2.0, 10, 0.02), ("gd", 1.5, 60, 0.02)]
)
def test_counts_are_those_of_simulated_memories(optimizer, alpha, draws, allowance):
    """Within 4 standard errors and the next order in 1/d; those of the step before are 15 % off and
    more.
    """
    d, n, steps = 80, 1200, 3
    after = thresholded_capacity.thresholds(
        optimizer, d, alpha, steps, 1 / 4 if optimizer == "muon" else 1.0
    )
    etas = thresholded_capacity.rates(d, alpha, steps) if optimizer == "gd" else None
    rngs = map(np.random.default_rng, range(draws))
    counts = np.array(
        [simulated(optimizer, d, n, alpha, after, etas or [1.0] * steps, rng)[0] for rng in rngs]
    )
    mean, stderr = counts.mean(0), counts.std(0, ddof=1) / np.sqrt(draws)
    expected = thresholded_capacity.expected_counts(optimizer, d, n, alpha, after, etas)
    assert np.all(np.abs(mean - expected)[1:] < (4 * stderr + allowance * expected)[1:])
    assert np.all(np.abs(np.diff(expected)) > 4 * stderr[1:] + allowance * expected[1:])


def test_several_muon_steps_overlap_as_simulated_memories_do():
    """The mean square of W's singular values is Σ κ_rs of a rare item: 4.2 after three steps, 3 or
    9 without or with all overlap.
    """
    d, n, alpha = 80, 1200, 1.5
    after = thresholded_capacity.thresholds("muon", d, alpha, 3, 1 / 4)
    rngs = map(np.random.default_rng, range(6))
    squares = np.array([simulated("muon", d, n, alpha, after, [1.0] * 3, rng)[1] for rng in rngs])
    p, sizes, items = finite_capacity.nodes(float(n), alpha, 1e6, 1 / alpha, after)
    steps = muon_logits.muon_steps(d, p, sizes, items, after)
    _, kappas = muon_logits.logits(steps, p[-1:], items[-1:])
    expected = [kappas[:t, :t].sum() for t in (1, 2, 3)]
    np.testing.assert_allclose(squares.mean(0), expected, rtol=0.01)
    # For one and the same step it is 1 for every item, however large its share of the gradient is.
    np.testing.assert_allclose(
        muon_logits.logits(steps, p, items)[1][[0, 1, 2], [0, 1, 2]], 1, atol=1e-4
    )


@pytest.mark.parametrize("alpha", [1.25, 2.0])
def test_the_last_item_has_the_exponent_of_the_theorem_far_out(alpha):
    d = 2.0**30

    def last(d, steps):
        after = thresholded_capacity.thresholds("muon", d, alpha, steps, 1 / 8)
        return thresholded_capacity.last_item(d, d ** (2 * alpha + 2), alpha, after)

    found = [np.log2(last(2 * d, t) / last(d, t)) for t in (1, 2, 3)]
    expected = np.array(capacity.multi_step_exponents("muon", alpha, 3)[1:]) - 1 / (
        2 * alpha * np.log(d)
    )
    np.testing.assert_allclose(found, expected, atol=0.01)


WRONG_CALLS = """
thresholded_capacity.expected_counts("newton", 8, 99, 1.5, [0.0])
    Several steps are predicted for
thresholded_capacity.expected_counts("muon", 8, 99, 1.5, [1.0])
    Thresholds need to ascend from 0
thresholded_capacity.expected_counts("muon", 8, 99, 1.5, [0.0, 95.0])
    Thresholds need to ascend
thresholded_capacity.expected_counts("gd", 8, 99, 1.5, [0.0])
    Gradient descent needs a learning
thresholded_capacity.expected_counts("muon", 8, 99, 1.0, [0.0])
    The exponents hold for power laws
"""


@pytest.mark.parametrize(("call", "sentence"), wrong_calls(WRONG_CALLS))
def test_bad_arguments_are_refused_in_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        eval(call)
