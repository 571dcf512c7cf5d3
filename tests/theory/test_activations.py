"""Gaussian moments against an independent quadrature; the table of Figure 12; the GELU row as
printed.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory import activations as theory
from specjax.theory.activations import ACTIVATIONS
from tests.theory.near import close, leading_axes_are_batch_axes

VARIANCES = np.array([0.1, 0.3, 1.0, 4.0, 25.0])
GRID = np.linspace(-14, 14, 560_001)
WEIGHT = np.exp(-(GRID**2) / 2) / np.sqrt(2 * np.pi)


def by_trapezoids(f):
    """The mean and the second moment at each variance."""
    f = jax.jit(f)
    values = np.array([f(GRID * np.sqrt(variance)) for variance in VARIANCES])
    return np.trapezoid(WEIGHT * values, GRID), np.trapezoid(WEIGHT * values**2, GRID)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.usefixtures("x64")
def test_moments_are_the_integrals(name):
    activation = ACTIVATIONS[name]
    means, seconds = by_trapezoids(activation.function)
    mean, second = jax.jit(lambda v: (activation.mean(v), activation.second(v)))(VARIANCES)
    # The trapezoid rule sees a kink to the square of its step, 2.5e-9.
    np.testing.assert_allclose(mean, means, rtol=1e-7, atol=2e-8)
    np.testing.assert_allclose(second, seconds, rtol=1e-7)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.usefixtures("x64")
def test_slopes_and_bends_are_suprema(name):
    activation, t = ACTIVATIONS[name], np.linspace(-9, 9, 36_001)
    first = np.diff(jax.jit(activation.function)(t)) / (t[1] - t[0])
    second = np.diff(first) / (t[1] - t[0])
    if np.isfinite(activation.slope):
        assert np.max(np.abs(first)) == pytest.approx(activation.slope, rel=1e-5)
    if np.isfinite(activation.bend):
        assert np.max(np.abs(second)) == pytest.approx(activation.bend, rel=1e-4)


@pytest.mark.parametrize("below", [0.3, -2.0])
@pytest.mark.usefixtures("x64")
def test_a_leaky_relu_of_another_slope(below):
    own = theory.leaky_relu(below)
    np.testing.assert_array_equal(own.function(jnp.asarray([-3.0, 0.0, 0.5])), [-3 * below, 0, 0.5])
    means, seconds = by_trapezoids(own.function)
    np.testing.assert_allclose(own.mean(jnp.asarray(VARIANCES)), means, rtol=1e-7)
    np.testing.assert_allclose(own.second(jnp.asarray(VARIANCES)), seconds, rtol=1e-7)
    assert own[3:] == (max(1, abs(below)), np.inf, False)


@pytest.mark.integration
@pytest.mark.usefixtures("x64")
def test_the_table_of_figure_12():
    """β/α for every variance where σ is homogeneous; with p = 0.1, q = 1 for the leaky ReLU."""
    table = {
        "abs": np.pi / 2,
        "relu": np.pi,
        "leaky_relu": np.pi * 1.01 / 0.81,
        "square": 3.0,
        "relu_squared": 6.0,
    }
    for name, bound in table.items():
        np.testing.assert_allclose(theory.row_nsr(ACTIVATIONS[name], VARIANCES), bound, rtol=1e-12)
        # Of rows with different variances: equal for degree one, below for degree two only if
        # weighted so; never above.
        assert theory.nsr(ACTIVATIONS[name], jnp.asarray(VARIANCES)) == pytest.approx(
            bound, rel=1e-12
        )
    assert theory.row_nsr(ACTIVATIONS["gelu"], 1e8) == pytest.approx(np.pi, rel=1e-3)
    assert np.all(theory.nsr(ACTIVATIONS["tanh"], jnp.asarray(VARIANCES)) == np.inf)


@pytest.mark.usefixtures("x64")
def test_the_gelu_row_needs_the_least_variance_not_its_square():
    v = jnp.asarray(VARIANCES)
    mean_squared = ACTIVATIONS["gelu"].mean(v) ** 2
    for smallest in (0.1, 1.0, 4.0):
        seen = v >= smallest
        ratios = jnp.where(seen, theory.gelu_alpha(smallest) * v / mean_squared, 0)
        # With equality at the smallest variance.
        assert jnp.max(ratios) == pytest.approx(1, rel=1e-12)
        bound = theory.gelu_nsr_bound(smallest)
        assert jnp.all(jnp.where(seen, theory.row_nsr(ACTIVATIONS["gelu"], v), 0) <= bound)
    # 0.1498 > 0.1273 of the spec's example.
    assert theory.gelu_alpha_as_printed(4.0) == pytest.approx(0.14979, rel=1e-4)
    assert theory.gelu_alpha_as_printed(4.0) * 4 > ACTIVATIONS["gelu"].mean(jnp.asarray(4.0)) ** 2


@pytest.mark.integration
def test_swiglu_moments_by_simulation():
    """Correlated gate and linear parts, as of weights that are not orthogonal."""
    v, w, c = 1.5, 0.7, 0.6
    a, noise = jax.random.normal(jax.random.key(0), (2, 2_000_000))
    a = np.sqrt(v) * np.asarray(a, np.float64)
    b = c / v * a + np.sqrt(w - c**2 / v) * np.asarray(noise, np.float64)
    z = a / (1 + np.exp(-a)) * b
    mean, second = theory.swiglu_moments(v, w, c)
    for sample, exact in ((z, mean), (z**2, second)):
        error = sample.std() / np.sqrt(sample.size)
        assert abs(sample.mean() - exact) < 4 * error
        assert 4 * error < 0.02 * exact


@pytest.mark.usefixtures("x64")
def test_the_gelus_noise_to_signal_bound_is_one_over_its_share():
    s = np.array([0.1, 1.0, 4.0])
    close(theory.gelu_nsr_bound(s) * theory.gelu_alpha(s), np.ones(3))


@pytest.mark.usefixtures("x64")
def test_leading_axes_of_variances_are_batch_axes(rng):
    leading_axes_are_batch_axes(lambda v: theory.nsr(ACTIVATIONS["gelu"], v), [(6,)], rng)
