"""Lemmas G.1 and G.2, the numbers of steps to an accuracy, and the bulk of Corollary 3.8, on random
matrices.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax.theory import gradient_rank, random_features
from tests.theory.near import leading_axes_are_batch_axes

pytestmark = pytest.mark.usefixtures("x64")

SIZES = st.sampled_from([(2, 1), (4, 3), (4, 7)])
"""(q, p) with q - 1 ≤ p."""

weighted_nuclear_norm_bound = jax.jit(gradient_rank.weighted_nuclear_norm_bound)


@pytest.mark.integration
@given(seed=st.integers(0, 2**31), size=SIZES, spread=st.floats(0, 3))
def test_a_bordered_matrix_keeps_its_smallest_singular_value(seed, size, spread):
    """Lemma G.1."""
    rng, (q, p) = np.random.default_rng(seed), size
    corner, row = (
        rng.standard_normal() * np.exp(spread * rng.standard_normal()),
        rng.standard_normal(p),
    )
    inner = rng.standard_normal((q - 1, p)) * np.exp(spread * rng.standard_normal((q - 1, 1)))
    m = np.block([[np.array([[corner]]), row[None]], [np.zeros((q - 1, 1)), inner]])
    bound = float(
        gradient_rank.bordered_singular_value_bound(
            corner, jnp.asarray(row), np.linalg.svd(inner, compute_uv=False)[q - 2]
        )
    )
    assert np.linalg.svd(m, compute_uv=False)[q - 1] >= bound * (1 - 1e-9)
    # Without a border it is an equality, so the constant is the best.
    bare = float(
        gradient_rank.bordered_singular_value_bound(
            corner, jnp.zeros(p), np.linalg.svd(inner, compute_uv=False)[q - 2]
        )
    )
    m[0, 1:] = 0
    assert np.linalg.svd(m, compute_uv=False)[q - 1] == pytest.approx(bare, rel=1e-6)


@pytest.mark.integration
@given(seed=st.integers(0, 2**31), spread=st.floats(0, 3))
def test_weights_on_columns_keep_a_share_of_the_nuclear_norm(seed, spread):
    """Lemma G.2, and equality where the weights are one on P and zero elsewhere."""
    rng = np.random.default_rng(seed)
    m, weights = (
        rng.standard_normal((5, 7)),
        np.exp(spread * rng.standard_normal(7)) * rng.choice([-1, 1], 7),
    )
    kept = rng.random(7) < 0.6
    kept[rng.integers(7)] = True
    bound = weighted_nuclear_norm_bound(m, weights, kept)
    assert np.linalg.norm(m * weights, "nuc") >= float(bound) * (1 - 1e-9)
    equal = weighted_nuclear_norm_bound(m, kept.astype(float), kept)
    assert np.linalg.norm(m * kept, "nuc") == pytest.approx(float(equal), rel=1e-9)


@pytest.mark.integration
@given(seed=st.integers(0, 2**31), spike=st.floats(2, 1e3), accuracy=st.floats(1e-6, 0.5))
def test_the_steps_to_an_accuracy_suffice(seed, spike, accuracy):
    """For any teacher, so for the expected gap; and for the slowest direction alone one step less
    does not.
    """
    rng = np.random.default_rng(seed)
    eigenvalues = jnp.asarray(np.r_[rng.uniform(0.5, 1.5, 20), spike])
    rate = 1 / jnp.max(eigenvalues)
    first = gradient_rank.expected_gap(eigenvalues, rate, 0)
    steps = gradient_rank.steps_to_relative_gap(eigenvalues, rate, accuracy)
    enough = int(np.ceil(float(steps)))
    assert float(gradient_rank.expected_gap(eigenvalues, rate, enough)) <= accuracy * float(
        first
    ) * (1 + 1e-9)
    slowest = float((1 - rate * jnp.min(eigenvalues)) ** (2 * (float(steps) - 1)))
    assert slowest > accuracy
    absolute = gradient_rank.steps_to_absolute_gap(eigenvalues, rate, first, accuracy * first)
    assert float(absolute) == pytest.approx(float(steps), rel=1e-9)


def test_steps_from_a_gap_that_is_not_positive_spoil_no_other():
    eigenvalues, rate = jnp.asarray(np.tile([0.5, 2.0], (4, 1))), jnp.asarray(np.full(4, 0.5))
    steps = jax.jit(lambda gap: gradient_rank.steps_to_absolute_gap(eigenvalues, rate, gap, 0.1))
    found = steps(np.array([1.0, 0.0, np.inf, np.nan]))
    np.testing.assert_allclose(
        found, [np.log(10) / (-2 * np.log(0.75)), -np.inf, np.inf, np.nan], rtol=1e-6
    )
    with pytest.raises(ValueError, match=r"accuracy must be in \(0, inf\), got 0"):
        gradient_rank.steps_to_absolute_gap(eigenvalues, rate, rate, 0.0)


def test_only_steps_to_an_absolute_gap_have_a_log_of_dimension():
    """Per dimension, with one spike of d and a bulk from 1/2: log(1/δ) relative, log(d/ε)
    absolute.
    """

    @jax.jit
    def steps(eigenvalues):
        rate = 1 / jnp.max(eigenvalues)
        to_absolute = gradient_rank.steps_to_absolute_gap(
            eigenvalues, rate, gradient_rank.expected_gap(eigenvalues, rate, 0), 1e-3
        )
        return gradient_rank.steps_to_relative_gap(eigenvalues, rate, 1e-3), to_absolute

    relative, absolute = np.transpose(
        [np.array(steps(np.r_[np.linspace(0.5, 1.5, d - 1), d])) / d for d in (100, 10_000)]
    )
    assert relative[1] == pytest.approx(relative[0], rel=0.01)
    assert relative[1] == pytest.approx(np.log(1e3), rel=0.01)
    assert absolute[1] - absolute[0] == pytest.approx(np.log(100), rel=0.05)


@pytest.mark.integration
def test_the_cross_bulk_has_the_rank_of_the_inputs():
    d, k = 60, 120

    @jax.jit
    def drawn(key):
        v_bar, v = jax.random.normal(key, (2, k, d)) / np.sqrt(d)
        forms = (random_features.feature_covariance, random_features.cross_bulk)
        return (
            v_bar,
            v,
            *(form(v_bar, v) for form in forms),
            [random_features.feature_mean(w) for w in (v_bar, v)],
        )

    v_bar, v, whole, without, means = jax.device_get(drawn(jax.random.key(0)))
    low, high = random_features.cross_bulk_edges(k / d)
    linear = np.linalg.svd(v_bar @ v.T / 4, compute_uv=False)
    assert low < linear[d - 1] < linear[0] < high
    # Each edge is a product of extreme singular values, which fluctuate by d^(-2/3) = 0.02 at d =
    # 400.
    for shape in ((1200, 400), (2000, 400)):
        extremes = np.linalg.svd(
            np.random.default_rng(0).standard_normal(shape) / 20, compute_uv=False
        )[[-1, 0]]
        np.testing.assert_allclose(
            random_features.cross_bulk_edges(shape[0] / shape[1]), extremes**2 / 4, rtol=0.06
        )
    bulk = np.linalg.svd(without, compute_uv=False)
    assert bulk[d - 1] > low
    assert bulk[d] < 0.4 * np.sqrt(k) / d
    # The difference lies along the spike, which changes the largest singular value.
    np.testing.assert_allclose(whole - np.outer(*means) / (2 * d), without, atol=1e-9)


@pytest.mark.usefixtures("unchecked")
def test_a_bulk_without_a_gap_is_refused():
    with pytest.raises(ValueError, match=r"gamma > 1, got 1\.0"):
        random_features.cross_bulk_edges(1.0)


BATCHES = {
    "shrinkage": (lambda x, rate: gradient_rank.shrinkage(x, rate, 3), (5,), ()),
    "nuclear rank": (
        lambda x, rate: gradient_rank.orthogonal_teacher_nuclear_rank(x, rate, 3),
        (5,),
        (),
    ),
    "gap": (lambda x, rate: gradient_rank.expected_gap(x, rate, 3), (5,), ()),
    "relative steps": (lambda x, rate: gradient_rank.steps_to_relative_gap(x, rate, 0.1), (5,), ()),
    "absolute steps": (
        lambda x, rate: gradient_rank.steps_to_absolute_gap(x, rate, rate, 0.1),
        (5,),
        (),
    ),
    "bordered": (lambda row, a: gradient_rank.bordered_singular_value_bound(a, row, 0.3), (4,), ()),
}


@pytest.mark.parametrize("name", BATCHES)
def test_leading_axes_are_batch_axes(name, rng):
    f, *shapes = BATCHES[name]
    leading_axes_are_batch_axes(f, shapes, rng)
