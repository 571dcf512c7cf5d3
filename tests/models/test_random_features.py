"""Random-feature regression: its gradient, gradient descent in closed form against steps, spiked
moments as assumed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import random_features as model
from specjax.models import spiked
from specjax.sizes import Size

pytestmark = pytest.mark.usefixtures("x64")

K, D, N, M = 12, 6, 30, 5


@pytest.fixture(scope="module")
def teacher_student():
    """Model II: features of both networks, teacher, moments."""

    @jax.jit
    def drawn(key):
        keys = jax.random.split(key, 4)
        v, v_bar = (model.weights(one, K, D) for one in keys[:2])
        x = jax.random.normal(keys[2], (D, N))
        return (
            model.relu_features(v, x),
            model.relu_features(v_bar, x),
            jax.random.normal(keys[3], (M, K)),
        )

    with jax.enable_x64(True):
        return drawn(jax.random.key(0))


@pytest.mark.integration
def test_the_gradient_is_that_of_the_loss(teacher_student):
    a, a_bar, teacher = teacher_student
    w = np.random.default_rng(0).standard_normal((M, K))

    @jax.jit
    def three(w):
        y = teacher @ a_bar
        by_moments = w @ model.second_moment(a, a) - teacher @ model.second_moment(a_bar, a)
        return jax.grad(model.loss)(w, a, y), model.gradient(w, a, y), by_moments

    expected, gradient, by_moments = three(w)
    np.testing.assert_allclose(gradient, expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(by_moments, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.integration
@pytest.mark.parametrize("realizable", [True, False])
@pytest.mark.parametrize(("slowdown", "offset"), [(1.0, 0.0), (1.5, 0.0), (1.0, 2.0)])
def test_gradient_descent_in_closed_form_is_gradient_descent(
    teacher_student, realizable, slowdown, offset
):
    a, a_bar, teacher = teacher_student
    a_bar = a if realizable else a_bar
    b, y = model.second_moment(a, a), teacher @ a_bar
    path = model.trajectory(
        b, model.second_moment(a_bar, a), teacher, slowdown=slowdown, offset=offset
    )
    rate = 1 / (offset + slowdown * jnp.linalg.eigvalsh(b)[-1])
    np.testing.assert_allclose(path.rate, rate, rtol=1e-12)
    least = jnp.sum((y - y @ jnp.linalg.pinv(a) @ a) ** 2) / (2 * N)
    w = jnp.zeros((M, K))
    for steps in range(4):
        g = model.gradient(w, a, y)
        np.testing.assert_allclose(model.gradient_at(path, steps), g, atol=1e-12)
        np.testing.assert_allclose(
            model.gap_at(path, steps), model.loss(w, a, y) - least, rtol=1e-9
        )
        singular_values = jnp.linalg.svd(model.rotated_gradient_at(path, steps), compute_uv=False)
        np.testing.assert_allclose(singular_values, jnp.linalg.svd(g, compute_uv=False), atol=1e-12)
        w = w - rate * g


@pytest.mark.integration
def test_the_first_step_is_gd_step(teacher_student):
    a, _, teacher = teacher_student
    path = model.trajectory(model.second_moment(a, a), model.second_moment(a, a), teacher)
    w = model.gd_step(jnp.zeros((M, K)), a, teacher @ a)
    np.testing.assert_allclose(
        model.gradient(w, a, teacher @ a), model.gradient_at(path, 1), atol=1e-12
    )


def test_a_singular_second_moment_leaves_the_gap_finite(teacher_student):
    a, _, teacher = teacher_student
    few = a[:, : K // 2]
    path = model.trajectory(model.second_moment(few, few), model.second_moment(few, few), teacher)
    np.testing.assert_allclose(
        model.gap_at(path, 0), model.loss(jnp.zeros((M, K)), few, teacher @ few), rtol=1e-9
    )


def test_features():
    x = jnp.asarray([[1.0, -2.0]])
    np.testing.assert_allclose(model.relu_features(jnp.asarray([[3.0]]), x), [[3.0, 0.0]])
    expected = [[1 / (1 + np.exp(-1.0)) * 5, -2 / (1 + np.exp(2.0)) * -10]]
    np.testing.assert_allclose(
        model.swiglu_features(jnp.asarray([[1.0]]), jnp.asarray([[5.0]]), x), expected, rtol=1e-6
    )


def test_a_longer_step_than_the_stable_one_is_refused(teacher_student):
    a, _, teacher = teacher_student
    b, teacher = (np.asarray(x, np.float32) for x in (np.asarray(a) @ np.asarray(a).T, teacher))
    with pytest.raises(
        ValueError,
        match=r"A step of at most 1/‖B‖_op needs slowdown >= 1 and offset >= 0, got 0\.5 and 0",
    ):
        model.trajectory(jnp.asarray(b), jnp.asarray(b), jnp.asarray(teacher), slowdown=0.5)


@pytest.fixture(scope="module")
def moments():
    """A spiked draw and a teacher-student draw of 40 features, alone and padded to 48."""
    with jax.enable_x64(True):
        spikes, cross = jnp.asarray([50.0, 20.0]), jnp.asarray([30.0, 10.0])

        @jax.jit
        def drawn(key):
            return [
                (
                    spiked.spiked(key, k, spikes),
                    *spiked.teacher_student(key, k, spikes, cross, rank),
                )
                for k, rank in ((40, 15), (Size(48, 40), Size(24, 15)))
            ]

        return jax.tree.map(np.asarray, drawn(jax.random.key(2)))


@pytest.mark.slow
@pytest.mark.integration
def test_spiked_moments_are_as_the_assumptions_say(moments):
    low, high = spiked.BULK
    for b in moments[0][:2]:
        eigenvalues = jnp.linalg.eigvalsh(b)
        # Weyl: between those of the spikes, and those plus the bulk's largest.
        assert np.all((eigenvalues[:-2] >= low) & (eigenvalues[:-2] <= high))
        assert np.all(
            (eigenvalues[-2:] >= jnp.asarray([20.0, 50.0]))
            & (eigenvalues[-2:] <= jnp.asarray([20.0, 50.0]) + high)
        )
    _, b, b_bar = moments[0]
    values = jnp.linalg.svd(b_bar, compute_uv=False)
    assert np.all((values[2:13] >= low) & (values[2:13] <= high))
    assert np.all(values[17:] < 1e-12)
    # Both have the same right spike directions: B̄ - Σ̄ lives on the range of the spikes of B.
    top = jnp.linalg.eigh(b)[1][:, -2:]
    right = jnp.linalg.svd(b_bar)[2][:2].T
    assert float(jnp.linalg.svd(top.T @ right, compute_uv=False)[-1]) > 0.95


@pytest.mark.integration
def test_padding_does_not_change_spiked_moments(moments):
    for alone, wide in zip(*moments, strict=True):
        np.testing.assert_allclose(wide[:40, :40], alone, atol=1e-12)
        assert np.all(np.abs(wide[40:]) < 1e-12)
        assert np.all(np.abs(wide[:, 40:]) < 1e-12)


def test_impossible_spikes_are_refused():
    key, spikes = jax.random.key(0), jnp.ones(3)
    with pytest.raises(ValueError, match=r"A spiked model needs from 1 to k=2 spikes, got 3\."):
        spiked.spiked(key, 2, spikes)
    with pytest.raises(
        ValueError, match=r"The bulk must be an interval above 0, got \(0\.0, 1\.0\)\."
    ):
        spiked.spiked(key, 4, spikes, bulk=(0.0, 1.0))
