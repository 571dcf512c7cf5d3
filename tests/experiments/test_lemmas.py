"""The formulas and the worst cases of three papers' lemmas against independent computations.

Averages over normal numbers are exact: a grid of three points for each, whose moments it has, or an
integral over the angle.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy import stats

from specjax import moments, spectral
from specjax.experiments.associative_memory import bounds
from specjax.experiments.associative_memory import lemma_samples as memory
from specjax.experiments.associative_memory.lemmas import second_moment
from specjax.experiments.outer_product import lemma_forms as forms
from specjax.experiments.outer_product.identities import covariance, pair_places, traces
from specjax.experiments.outer_product.lemma_samples import PATTERNS, SYMMETRIC, factors
from specjax.experiments.preconditioning import lemma_samples as preconditioning
from tests.reference.moments import gaussian_average

D2 = 2


def test_lemma_25_is_the_integral_over_the_angle_of_the_input():
    u, v, steps = np.array([2.0, 1.0]), np.array([-0.5, 1.5]), 200_000
    angle = 2 * np.pi * (np.arange(steps) + 0.5) / steps
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    # The mean of the squared length of x is 2.
    exact = 2 * np.mean(((x @ u > 0) * np.maximum(x @ v, 0))[:, None] * x, axis=0)
    theta = np.arccos(u @ v / np.sqrt((u @ u) * (v @ v)))
    found = {
        name: form(u, v, np.sqrt((v @ v) / (u @ u)), theta) for name, form in forms.KINK.items()
    }
    # The mask jumps at an angle, which costs a step of the sum.
    np.testing.assert_allclose(found.pop("(49)"), exact, rtol=0, atol=1e-4)
    assert min(np.abs(wrong - exact).max() for wrong in found.values()) > 0.01


def test_lemma_26_is_the_average_over_a_grid():
    def products(w):
        p = w.T @ w
        return np.array([p[a, k] * p[c, e] for a, k, c, e in (map(int, each) for each in PATTERNS)])

    exact = gaussian_average(products, [(D2, 4)], degree=4)
    data = xr.Dataset(
        {"products": (("d2", "indices"), exact[None])}, {"d2": [D2], "indices": list(PATTERNS)}
    )
    np.testing.assert_allclose(forms.pairings({"products": data})[0], exact, atol=1e-10)


@pytest.mark.parametrize("m", [2, 3])
def test_lemmas_10_and_11_are_averages_over_a_grid(m):
    matrix = SYMMETRIC[:2, :2]

    def means(x):
        p = x @ matrix @ x.T
        return np.array([*(p @ p)[:2, :2].ravel(), np.trace(p) ** 2])

    exact = gaussian_average(means, [(m, 2)], degree=4)
    data = {"forms": xr.Dataset({"matrix": (("p", "q"), matrix)}, {"m": [m]})}
    found = [*np.ravel(forms.form_of_squares(data)), float(forms.form_of_trace(data)[0])]
    np.testing.assert_allclose(found, exact, atol=1e-10)


def test_lemma_12_is_an_average_over_a_grid_of_one_layer():
    rng = np.random.default_rng(0)
    first, last = rng.normal(size=(2, 3)), rng.normal(size=(2, 2))
    product = factors([first, np.zeros((2, 2)), last], np.eye(3), np.eye(2))
    a, b = product["A_2"], product["B_2"]

    def outer_product(w):
        g = last.T @ (last @ w @ first - forms.TARGET) @ first.T
        return g @ g.T

    exact = gaussian_average(outer_product, [(2, 2)], degree=2)
    found = {name: form(a, b) for name, form in forms.CONDITIONAL.items()}
    np.testing.assert_allclose(found.pop("(31)"), exact, rtol=1e-10)
    assert min(np.abs(wrong / exact - 1).max() for wrong in found.values()) > 0.01


def test_the_bent_direction_needs_more_than_the_first_term():
    bent, n = preconditioning.BENT, 3
    moved = np.concatenate([(bent[:n] - bent[:n].T) / 2, bent[n:]])
    assert np.linalg.norm(bent, 2) == pytest.approx(1)
    # The derivative of the polar factor at [I; 0].
    assert np.linalg.norm(moved, 2) == pytest.approx(2 / np.sqrt(3))
    start = np.eye(4, 3)
    u, _, vt = np.linalg.svd(start + 1e-6 * bent, full_matrices=False)
    np.testing.assert_allclose((u @ vt - start) / 1e-6, moved, atol=1e-5)


@pytest.mark.parametrize("columns", preconditioning.COLUMNS)
def test_the_least_singular_value_is_that_of_a_decomposition(columns):
    for key in jax.random.split(jax.random.key(columns), 5):
        found = preconditioning.sample_least(key, columns, 2)["least"]
        x = np.asarray(jax.random.normal(key, (columns + 2, 2)), float)[:, :columns]
        scale = np.sqrt(columns + 2) - np.sqrt(columns - 1)
        least = np.linalg.svd(x, compute_uv=False)[-1]
        assert float(found) == pytest.approx(least / scale, rel=1e-4)


@pytest.mark.integration
def test_the_mean_slope_is_the_trace_of_the_derivative():
    d, lam = 4, 0.3
    with jax.enable_x64(True):
        g = jax.random.normal(jax.random.key(1), (d, d), jnp.float64)
        s = jnp.linalg.svd(g, compute_uv=False)
        maps = memory.maps(s, lam)
        assert [*maps] == [*memory.MAPS]
        for h in maps.values():
            derivative = jax.jacfwd(lambda x, h=h: spectral.spectral_map(x, h))(g)
            # The mean of aᵀ D[a bᵀ] b over independent a and b of variance 1/d.
            exact = np.einsum("klkl", derivative) / d**2
            assert float(memory.mean_slope(s, h)) == pytest.approx(float(exact), rel=1e-8)


@pytest.mark.parametrize("d", [2, 3])
def test_second_moments_of_a_covariance_are_averages_over_a_grid(d):
    def square(u):
        return np.array(np.sum((u.T @ np.diag(memory.ITEMS) @ u / d) ** 2))

    exact = gaussian_average(square, [(3, d)], degree=4)
    data = {"squares": xr.Dataset(coords={"d": [d]})}
    assert float(second_moment(memory.Config(), data)[0]) == pytest.approx(float(exact))
    # As printed.
    assert float(second_moment(memory.Config(), data, 2)[0]) > 1.05 * exact


@pytest.mark.integration
def test_the_largest_normal_has_the_exponent_of_its_tail():
    found = memory.draw_maxima(jax.random.key(0), 3)
    uniform = np.asarray(jax.random.uniform(jax.random.key(0), (2, 3)), float)
    log_n = 10 ** (6 + 2 * uniform[1])

    def log_count(log_n):
        at = np.sqrt(2 * log_n) - found.c.values * np.log(log_n) / np.sqrt(log_n)
        return log_n + stats.norm.logsf(at)

    expected = (log_count(4 * log_n) - log_count(log_n)) / np.log(4)
    np.testing.assert_allclose(found.slope, expected, rtol=1e-6)


@pytest.mark.parametrize(("d", "k"), [(2, 3), (5, 2), (4, 7)])
def test_traces_of_wishart_powers_are_those_of_the_engine(d, k):
    u = moments.gaussian("U", "d", "k")
    for power, found in traces(float(d), float(k)).items():
        exact = moments.expectation(moments.trace(moments.matrix_power(u @ u.T, power)))
        assert float(found) == pytest.approx(float(exact(d=d, k=k)), rel=1e-12)


def test_sums_over_pairings_are_averages_over_a_grid():
    # z of a Cholesky factor has the covariance ρ^|i-j| of an autoregression.
    factor = np.linalg.cholesky(covariance(0.5)[:4, :4])

    def product(x):
        z = factor @ x
        return np.array([z[0] * z[1] * z[2] * z[3], z[0] ** 2 * z[2] ** 2, z[0] * z[1] * z[2]])

    exact = gaussian_average(product, [(4,)], degree=4)
    of = covariance(0.5)
    found = [
        sum(np.prod([of[pair] for pair in pairs]) for pairs in pair_places(indices))
        for indices in ((0, 1, 2, 3), (0, 0, 2, 2), (0, 1, 2))
    ]
    np.testing.assert_allclose(found, exact, atol=1e-10)


@pytest.mark.parametrize("terms", [0, 1, 4])
def test_the_cut_series_of_an_inverse_is_off_by_a_geometric_tail(terms):
    rho = 0.3
    with jax.enable_x64(True):
        found = bounds.sample_series(jax.random.key(0), jnp.float64(rho), terms)["series"]
    # At E = -ρ I the tail of the inverse is ρ^(K+1)/(1 - ρ); the inverse root's is below it.
    assert float(found[2, 1]) == pytest.approx(1 / (1 - rho), rel=1e-12)
    exact = (1 - rho) ** -0.5 - np.polynomial.Polynomial([1, 1 / 2, 3 / 8, 5 / 16, 35 / 128])(rho)
    if terms == 4:
        assert float(found[1, 1]) == pytest.approx(exact / rho**5, rel=1e-9)
