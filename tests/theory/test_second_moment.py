"""Preconditioned directions against scipy's matrix functions, and second moments against
samples.
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from specjax import spectral
from specjax.theory import second_moment as theory
from tests.reference.spectra import matrix_with, orthogonal
from tests.theory.near import close

pytestmark = pytest.mark.usefixtures("x64")
MU = {shape: matrix_with([2.0, 1.0, 0.5], shape, 3) for shape in ((3, 5), (5, 3))}


def definite(n, seed):
    a = np.random.default_rng(seed).standard_normal((n, n))
    return a @ a.T + 0.1 * np.eye(n)


@pytest.mark.parametrize("p", [-0.5, -0.25, 0.5])
def test_powers_are_scipys_and_pseudo_inverses_if_singular(p):
    m = definite(4, 0)
    np.testing.assert_allclose(
        theory.symmetric_power(jnp.asarray(m), p),
        scipy.linalg.fractional_matrix_power(m, p),
        atol=1e-10,
    )
    q = orthogonal(4, 0)[:, :2]
    singular = theory.symmetric_power(jnp.asarray(q @ np.diag([4.0, 9.0]) @ q.T), p)
    np.testing.assert_allclose(singular, q @ np.diag([4.0**p, 9.0**p]) @ q.T, atol=1e-12)


@pytest.mark.integration
@pytest.mark.parametrize("shape", MU)
def test_without_noise_both_directions_are_the_polar_factor(shape):
    mu = jnp.asarray(MU[shape])
    left, right, full = theory.isotropic_moments(mu, 0.0)
    factor = spectral.polar(mu)
    np.testing.assert_allclose(theory.left_direction(left, mu), factor, atol=1e-12)
    np.testing.assert_allclose(theory.kronecker_direction(left, right, mu), factor, atol=1e-12)
    np.testing.assert_allclose(
        theory.full_direction(full, mu), mu / jnp.linalg.norm(mu), atol=1e-12
    )
    assert theory.condition_residual(left, mu) < 1e-14


@pytest.mark.parametrize("shape", MU)
def test_moments_of_batch_means_are_those_of_samples(shape):
    mu, sigma, batch, n = MU[shape], 0.7, 3, 40_000
    noise = np.random.default_rng(0).standard_normal((n, batch, *shape)).mean(axis=1)
    g = mu + sigma * noise
    flat = g.reshape(n, -1, 1)
    products = (g @ g.transpose(0, 2, 1), g.transpose(0, 2, 1) @ g, flat @ flat.transpose(0, 2, 1))
    for samples, closed in zip(
        products, theory.isotropic_moments(jnp.asarray(mu), sigma, batch), strict=True
    ):
        stderr = samples.std(axis=0) / np.sqrt(n)
        assert np.max(np.abs(samples.mean(axis=0) - closed) / stderr) < 4.5
        # The nearest wrong formula: rows for columns, or a batch ignored, moves the diagonal by
        # more than ten of these.
        assert np.max(stderr) < sigma**2 / batch / 10


@pytest.mark.parametrize("shape", MU)
@pytest.mark.parametrize(("sigma", "batch"), [(0.3, ()), (np.float32(2), (np.float32(4),))])
def test_isotropic_directions_have_closed_forms(shape, sigma, batch):
    """A batch of one where none is given; in the precision of μ whatever that of the noise."""
    mu, (m, n), tau = MU[shape], shape, float(sigma) ** 2 / float(*batch or (1,))
    flat = mu.reshape(-1, 1)
    moments = (
        mu @ mu.T + n * tau * np.eye(m),
        mu.T @ mu + m * tau * np.eye(n),
        flat @ flat.T + tau * np.eye(m * n),
    )
    for found, expected in zip(
        theory.isotropic_moments(jnp.asarray(mu), sigma, *batch), moments, strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)
    for f, moment, vectors in (
        (theory.isotropic_left_direction, moments[0], mu),
        (theory.isotropic_full_direction, moments[2], flat),
    ):
        expected = (scipy.linalg.fractional_matrix_power(moment, -0.5) @ vectors).reshape(shape)
        np.testing.assert_allclose(f(jnp.asarray(mu), sigma, *batch), expected, atol=1e-11)


def test_the_residuals_vanish_exactly_where_the_directions_agree():
    mu = MU[(5, 3)]
    q, _ = np.linalg.qr(mu)
    z = np.random.default_rng(0).standard_normal((5, 5))
    beside, factor = z - q @ (q.T @ z), np.asarray(spectral.polar(jnp.asarray(mu)))
    u, s, _ = np.linalg.svd(mu, full_matrices=False)
    moments = {
        "equal": mu @ mu.T + beside @ beside.T,
        # c = 3 on the columns of μ, and anything beside them.
        "parallel": 3 * u @ np.diag(s**2) @ u.T + beside @ beside.T,
        "neither": mu @ mu.T + 0.1 * z @ z.T,
    }
    for name, moment in moments.items():
        direction = scipy.linalg.fractional_matrix_power(moment + 0j, -0.5).real @ mu
        error = np.linalg.norm(direction - factor)
        angle = 1 - np.sum(direction * factor) / np.linalg.norm(direction) / np.linalg.norm(factor)
        residual = theory.condition_residual(jnp.asarray(moment), jnp.asarray(mu))
        turned = theory.direction_residual(jnp.asarray(moment), jnp.asarray(mu))
        assert (residual < 1e-12) == (name == "equal") == (error < 1e-9)
        assert (turned < 1e-12) == (name != "neither") == (angle < 1e-9)


def test_residuals_are_relative_distances_at_the_best_multiple(rng):
    mu, z = rng.standard_normal((4, 2)), rng.standard_normal((4, 4))
    moment = z @ z.T
    moved, cubed = moment @ mu, mu @ mu.T @ mu
    found = theory.condition_residual(jnp.asarray(moment), jnp.asarray(mu))
    close(found, np.linalg.norm(moved - cubed) / np.linalg.norm(cubed))
    _, (rest,), _, _ = np.linalg.lstsq(cubed.reshape(-1, 1), moved.ravel())
    close(
        theory.direction_residual(jnp.asarray(moment), jnp.asarray(mu)),
        math.sqrt(rest) / np.linalg.norm(moved),
    )


def test_the_power_of_a_moment_of_rank_one():
    v = np.array([1.0, 2.0, 2.0])
    found = theory.symmetric_power(jnp.asarray(np.outer(v, v)), -0.5)
    np.testing.assert_allclose(found, np.outer(v, v) / 27, atol=1e-12)
