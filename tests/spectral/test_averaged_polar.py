"""Averages of gradients and the polar factor: identities, the theory of the bias, and Monte
Carlo.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.spectral import averaged_polar, polar
from tests.reference.spectra import matrix_with

MU = matrix_with([2.0, 1.5, 1.0], (4, 3), 0)
SAMPLES = MU + 0.5 * np.random.default_rng(0).standard_normal((8, 4, 3))


@jax.jit
def all_averages(samples):
    return {
        "of mean": averaged_polar.polar_of_mean(samples),
        "mean of": averaged_polar.mean_of_polar(samples),
        **{
            f"batches of {size}": averaged_polar.microbatched_polar(samples, size)
            for size in (1, 2, 4, 8)
        },
        **{
            f"{groups} groups": averaged_polar.jackknifed_polar(samples, groups)
            for groups in (2, 4)
        },
        "jackknife": averaged_polar.jackknifed_polar(samples),
    }


mean_of_rank_one_polar = jax.jit(averaged_polar.mean_of_rank_one_polar)
second_order_bias = jax.jit(averaged_polar.second_order_bias)


def factor(x):
    """By numpy's own decomposition."""
    u, _, vt = np.linalg.svd(x, full_matrices=False)
    return u @ vt


@pytest.mark.integration
def test_each_average_is_what_its_name_says():
    found = all_averages(jnp.asarray(SAMPLES, jnp.float32))
    of_mean, mean_of = factor(SAMPLES.sum(axis=0)), factor(SAMPLES).mean(axis=0)
    halves = (factor(SAMPLES[:4].mean(axis=0)) + factor(SAMPLES[4:].mean(axis=0))) / 2
    quarters = [factor(np.delete(SAMPLES, (i, i + 1), axis=0).mean(axis=0)) for i in (0, 2, 4, 6)]
    leave_one_out = [factor(np.delete(SAMPLES, i, axis=0).mean(axis=0)) for i in range(8)]
    expected = {
        "of mean": of_mean,
        "mean of": mean_of,
        "batches of 1": mean_of,
        "batches of 2": factor((SAMPLES[::2] + SAMPLES[1::2]) / 2).mean(axis=0),
        "batches of 4": halves,
        "batches of 8": of_mean,
        # Of two groups each is the rest without the other.
        "2 groups": 2 * of_mean - halves,
        "4 groups": 4 * of_mean - 3 * sum(quarters) / 4,
        "jackknife": 8 * of_mean - 7 * sum(leave_one_out) / 8,
    }
    assert set(found) == set(expected)
    for name, average in found.items():
        np.testing.assert_allclose(
            average, expected[name], atol=1e-5 if name == "jackknife" else 2e-6, err_msg=name
        )


@pytest.mark.integration
def test_leading_axes_are_batch_axes():
    batch = jnp.asarray(np.stack([SAMPLES, 2 - SAMPLES]), jnp.float32)
    found, slices = all_averages(batch), [all_averages(g) for g in batch]
    for name, average in found.items():
        np.testing.assert_allclose(
            average, jnp.stack([each[name] for each in slices]), atol=1e-6, err_msg=name
        )


@pytest.mark.integration
def test_rank_one_samples_need_no_decomposition():
    rng = np.random.default_rng(1)
    left, right = (rng.standard_normal((6, n)).astype(np.float32) for n in (4, 3))
    left[2] = 0
    expected = jax.jit(averaged_polar.mean_of_polar)(left[:, :, None] * right[:, None, :])
    np.testing.assert_allclose(mean_of_rank_one_polar(left, right), expected, atol=1e-6)


def test_groups_that_do_not_divide_the_samples_are_refused():
    samples = jnp.asarray(SAMPLES, jnp.float32)
    with pytest.raises(
        ValueError, match=r"size must be positive and divide the 8 samples, got 3\."
    ):
        averaged_polar.microbatched_polar(samples, 3)
    for groups in (1, 3):
        with pytest.raises(
            ValueError, match=rf"at least 2 groups that divide the 8 samples, got groups={groups}\."
        ):
            averaged_polar.jackknifed_polar(samples, groups)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_second_order_bias_is_half_the_second_derivative():
    directions = np.random.default_rng(2).standard_normal((4, 3, 2))
    step = 1e-3
    expected = sum(
        (factor(MU + step * f) - 2 * factor(MU) + factor(MU - step * f)) / step**2 / 2
        for f in np.moveaxis(directions, -1, 0)
    )
    np.testing.assert_allclose(second_order_bias(MU, directions), expected, atol=1e-5)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_second_order_bias_of_a_vector_is_a_shrinkage():
    # polar(v) = v/‖v‖: isotropic noise σ in d dimensions shortens it by (d - 1) σ² / (2 ‖v‖²), and
    # turns it nowhere.
    v, sigma, d = 2.0 * np.eye(5, 1), 0.3, 5
    factor = sigma * np.eye(5)[:, None, :]
    expected = -(d - 1) * sigma**2 / (2 * 4.0) * np.eye(5, 1)
    np.testing.assert_allclose(second_order_bias(v, factor), expected, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_the_jackknife_removes_the_bias_of_order_one_over_k():
    k, draws = 6, 20_000
    deviations = 0.5

    def both_signs(key):
        noise = deviations * jax.random.normal(key, (k, 4, 3))
        both = jnp.stack([jnp.asarray(MU)[None] + noise, jnp.asarray(MU)[None] - noise])
        return jnp.stack(
            [
                jnp.mean(f(both), axis=0)
                for f in (averaged_polar.polar_of_mean, averaged_polar.jackknifed_polar)
            ]
        )

    found = np.asarray(jax.jit(jax.vmap(both_signs))(jax.random.split(jax.random.key(0), draws)))
    factor = deviations * jnp.eye(12).reshape(4, 3, 12)
    expected = np.asarray(averaged_polar.second_order_bias(jnp.asarray(MU), factor)) / k
    direction = expected / np.linalg.norm(expected)
    along = np.sum((found - np.asarray(polar(jnp.asarray(MU)))) * direction, axis=(2, 3))
    mean, stderr = along.mean(axis=0), along.std(axis=0) / np.sqrt(draws)
    size = np.linalg.norm(expected)
    assert np.max(4 * stderr) < size / 8
    # The remainder of either is of order 1/k², a sixth of the first-order bias at most.
    assert abs(mean[0] - size) < size / 6
    assert abs(mean[1]) < size / 6


@pytest.mark.parametrize("size", [1e-30, 1e-23, 1.0, 1e20, 1e30])
def test_rank_one_factors_of_any_size_are_normalized(size):
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((6, 4)), rng.standard_normal((6, 3))
    expected = np.mean(
        [
            np.outer(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
            for a, b in zip(left, right, strict=True)
        ],
        axis=0,
    )
    for sizes in ((size, 1.0), (1.0, size), (size, size)):
        found = mean_of_rank_one_polar(
            *(np.float32(s * x) for s, x in zip(sizes, (left, right), strict=True))
        )
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.integration
def test_a_zero_sample_has_zero_derivative_in_rank_one_averages():
    """The closed-form derivative of the polar factors, which takes the directions that leave a zero
    matrix for none.
    """
    rng = np.random.default_rng(2)
    left, right, weights = (
        rng.standard_normal(s).astype(np.float32) for s in ((6, 4), (6, 3), (4, 3))
    )
    left[[2, 4]] = right[[3, 4]] = 0
    by_factors = jax.grad(
        lambda a, b: jnp.sum(weights * averaged_polar.mean_of_polar(a[:, :, None] * b[:, None, :])),
        (0, 1),
    )
    by_rank_one = jax.grad(
        lambda a, b: jnp.sum(weights * averaged_polar.mean_of_rank_one_polar(a, b)), (0, 1)
    )
    gradients = jax.jit(lambda a, b: (by_rank_one(a, b), by_factors(a, b)))(left, right)
    for mine, exact in zip(*gradients, strict=True):
        np.testing.assert_allclose(mine, exact, atol=2e-6)
