"""What the random-feature experiments of the spectral-criterion paper compute, beside the models'
own steps, and that they can fail.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from specjax import sizes
from specjax.experiments.spectral_criterion import (
    figures_3_11,
    figures_14_15,
    one_step,
    random_features,
)
from specjax.models import random_features as model

pytestmark = pytest.mark.usefixtures("x64")

SMALL = figures_3_11.Config(k=6, relu_steps=12, swiglu_steps=12, restart_steps=3)
loss, gradient, gd_step, spectral_step = map(
    jax.jit, (model.loss, model.gradient, model.gd_step, model.spectral_step)
)


@pytest.fixture(scope="module")
def trajectory():
    """Gaps and ranks of one small ReLU problem, with its features and teacher."""
    with jax.enable_x64(True):
        key = jax.random.key(3)
        a, teacher = jax.jit(lambda key: figures_3_11.draw(key, "relu", 6, 3, 24))(key)
        found = jax.jit(lambda key: figures_3_11.trajectories(key, "relu", 6, SMALL))(key)
        return a, teacher, {name: np.asarray(value) for name, value in found.items()}


@pytest.mark.integration
def test_spectral_descent_in_the_eigenbasis_is_that_of_the_data(trajectory):
    a, teacher, found = trajectory
    y, w = teacher @ a, jnp.zeros((6, 6))
    for step in range(4):
        np.testing.assert_allclose(found["spectral_gap"][step], loss(w, a, y), rtol=1e-8)
        g = np.asarray(gradient(w, a, y))
        rank = np.linalg.norm(g, "nuc") ** 2 / np.linalg.norm(g) ** 2
        np.testing.assert_allclose(found["spectral_rank"][step], rank, rtol=1e-8)
        w = spectral_step(w, a, y)


@pytest.mark.integration
def test_gradient_descent_and_restarts_are_those_of_the_data(trajectory):
    a, teacher, found = trajectory
    y, path = teacher @ a, [jnp.zeros((6, 6))]
    for _ in range(int(figures_3_11.restart_times(12)[1])):
        path.append(gd_step(path[-1], a, y))
    np.testing.assert_allclose(
        found["gd_gap"][: len(path)], [loss(w, a, y) for w in path], rtol=1e-8
    )
    w = path[int(figures_3_11.restart_times(12)[1])]
    for step in range(3):
        np.testing.assert_allclose(found["restarted_gap"][1, step], loss(w, a, y), rtol=1e-8)
        w = spectral_step(w, a, y)


@pytest.mark.integration
def test_the_stable_rank_is_that_of_the_features(trajectory):
    a, _, found = trajectory
    singular_values = np.linalg.svd(np.asarray(a), compute_uv=False)
    np.testing.assert_allclose(
        found["stable_rank"], np.sum(singular_values**2) / singular_values[0] ** 2, rtol=1e-10
    )


@pytest.mark.integration
def test_what_is_judged_is_read_off_the_curves(trajectory):
    """Lengths are a quarter, half and all of 12 iterations, and restarts are compared after 3
    iterations.
    """
    _, _, found = trajectory
    for name in ("gd", "spectral"):
        np.testing.assert_allclose(found[name], np.log10(found[f"{name}_gap"][[3, 6, 12]]))
        assert found[f"{name}_holds"] == (found[f"{name}_rank"] >= found["stable_rank"]).all()
    starts = figures_3_11.restart_times(12)
    inside = starts + 3 <= 12
    np.testing.assert_allclose(
        found["continued"][inside], np.log10(found["gd_gap"][starts[inside] + 3])
    )
    np.testing.assert_allclose(found["restarted"], np.log10(found["restarted_gap"][:, 3]))


def test_the_last_time_is_exact_on_a_power_law():
    steps = jnp.asarray([1, 2, 4, 8, 16])
    values = 10 / steps.astype(float)
    np.testing.assert_allclose(
        random_features.last_time(steps, values, jnp.asarray(2.5)), 4, rtol=1e-12
    )
    np.testing.assert_allclose(
        random_features.last_time(steps, values, jnp.asarray(1.5)), 10 / 1.5, rtol=1e-12
    )


@pytest.fixture(scope="module")
def problems():
    """One output and a wide matrix, and few samples: the two shapes at the ends of nr/st."""
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(4), 400)
        found = [
            jax.jit(jax.vmap(lambda key, sizes=sizes: one_step.measure_problem(key, *sizes)))(keys)
            for sizes in ((1, 6, 12), (8, 8, 4))
        ]
        return xr.Dataset(
            {name: (("shape", "seed"), np.stack([f[name] for f in found])) for name in found[0]}
        )


@pytest.mark.integration
def test_the_drawn_problems_cover_every_range_of_the_rule(problems):
    advantage = problems["advantage"].values
    for low, high in ((0, 0.5), (0.5, 1), (1, 2), (2, np.inf)):
        assert np.sum((advantage >= low) & (advantage < high)) >= 20


@pytest.mark.slow
@pytest.mark.integration
def test_smooth_curvatures_bound_their_hessians_closely():
    """On one sample with outputs near zero, where the losses are curved the most."""
    z = jnp.asarray([[0.05], [-0.02]])
    for name, (smooth, curvature) in one_step.LOSSES.items():
        hessian = jax.hessian(lambda z, f=smooth: f(z, jnp.asarray([[1.0], [-1.0]]) * 0.1))(
            z
        ).reshape(2, 2)
        assert 0.99 * curvature <= float(jnp.linalg.norm(hessian, 2)) <= curvature * (1 + 1e-12), (
            name
        )


@pytest.mark.integration
def test_figures_14_and_15_have_the_ranks_of_gradient_steps():
    key, k, d, c = jax.random.key(5), 8, 4, 1.0
    v, v_bar, x = np.split(
        np.asarray(model.weights(sizes.stream(key, "rows"), 4 * k, d)), [k, 2 * k]
    )
    teacher = np.asarray(model.weights(sizes.stream(key, "teacher"), k, k))
    a, a_bar = (np.maximum(w @ (np.sqrt(d) * x.T), 0) for w in (v, v_bar))
    found = jax.jit(lambda key: figures_14_15.ranks(key, k, d, ((0, 0.0), (1, c), (3, 0.0))))(key)
    for row, target in zip(np.asarray(found), (teacher @ a, teacher @ a_bar), strict=True):
        for rank, (steps, offset) in zip(row, ((0, 0.0), (1, c), (3, 0.0)), strict=True):
            w, rate = np.zeros((k, k)), 1 / (offset + np.linalg.norm(a, 2) ** 2 / a.shape[1])
            for _ in range(steps):
                w = w - rate * (w @ a - target) @ a.T / a.shape[1]
            g = (w @ a - target) @ a.T
            assert rank == pytest.approx(
                np.linalg.norm(g, "nuc") ** 2 / np.linalg.norm(g) ** 2, rel=1e-5
            )


def test_sizes_and_times_of_the_figures():
    times = figures_14_15.recorded_steps(figures_14_15.Config())
    assert times[:2] == [0, 1]
    assert times[-1] == 1024
    ranks = figures_3_11.rank_times(1000)
    assert ranks[0] == 0
    assert ranks[-1] == 1000
    np.testing.assert_array_equal(figures_3_11.restart_times(1000), np.arange(100, 1000, 100))
