"""Hermite series against kernels in closed form, and their bounds against what is really left
out.
"""

import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad

from specjax import moments
from tests.wrong_calls import wrong_calls

RHO = np.array([-1.0, -0.6, 0.0, 0.3, 0.9, 0.999, 1.0])
THETA = np.arccos(RHO)
RELU = (np.sin(THETA) + (np.pi - THETA) * RHO) / (2 * np.pi)


@pytest.mark.parametrize("degree", [1, 6, 25, 120])
def test_the_arc_cosine_kernel_lies_within_the_bound(degree):
    series = moments.hermite(jax.nn.relu, degree)
    left = RELU - np.asarray(series.product(RHO))
    bound = np.asarray(series.bound(RHO))
    assert (np.abs(left) <= bound).all()
    # At ρ = 1 all of the tail is left out, and nothing else.
    assert left[-1] == pytest.approx(bound[-1], rel=1e-6)
    assert (series.mean, series.second) == pytest.approx(
        (1 / math.sqrt(2 * math.pi), 0.5), rel=1e-13
    )


@pytest.mark.parametrize("v", [0.2, 1.0, 6.0])
def test_the_kernel_of_erf_is_an_arcsine_at_every_variance(v):
    """Williams (1997): E erf(s) erf(t) = (2/π) arcsin(2vρ/(1 + 2v)), all of which a moderate degree
    has.
    """
    series = moments.hermite(jax.lax.erf, 60, variance=v)
    exact = 2 / np.pi * np.arcsin(2 * v * RHO / (1 + 2 * v))
    error = np.abs(np.asarray(series.product(RHO)) - exact)
    assert (error <= np.asarray(series.bound(RHO))).all()
    assert error[3] < 1e-13


def test_two_activations_have_the_series_of_their_product():
    """E[1(s > 0) max(t, 0)] = (1 + ρ)/(2 √(2π)); the lower degree of the two counts."""
    step = moments.hermite(lambda t: jnp.heaviside(t, 0.5), 40)
    relu = moments.hermite(jax.nn.relu, 30)
    exact = (1 + RHO) / (2 * math.sqrt(2 * math.pi))
    for first, second in ((step, relu), (relu, step)):
        error = np.abs(np.asarray(first.product(RHO, second)) - exact)
        assert (error <= np.asarray(first.bound(RHO, second))).all()
    assert float(step.product(0.3, relu)) == pytest.approx(exact[3], rel=1e-13)


def test_a_polynomial_is_its_own_series():
    cubic = moments.hermite(lambda t: t**3 - 3 * t + 2 * t, 5)
    np.testing.assert_allclose(cubic.coefficients, [0, 2, 0, math.sqrt(6), 0, 0], atol=1e-13)
    assert cubic.tail(3) < 1e-13
    assert cubic.tail(2) == pytest.approx(6, rel=1e-13)


@pytest.mark.parametrize("f", [jnp.tanh, jax.nn.silu, jax.nn.gelu])
def test_smooth_activations_have_trapezoidal_averages(f):
    """It converges faster than any power for smooth functions that decay as the normal density."""
    series = moments.hermite(f, 12, variance=2.0)
    t = np.linspace(-14, 14, 4001)
    density = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi) * (t[1] - t[0])
    with jax.enable_x64(True):
        y = np.asarray(f(jnp.asarray(math.sqrt(2) * t)))
    assert series.second == pytest.approx(np.sum(density * y**2), rel=5e-13)
    for n in range(4):
        he = np.polynomial.hermite_e.hermeval(t, np.eye(4)[n]) / math.sqrt(math.factorial(n))
        assert series.coefficients[n] == pytest.approx(np.sum(density * y * he), abs=5e-13)


def test_the_kernels_slope_is_the_kernel_of_the_derivative():
    """d/dρ E σ(s)σ(t) = E σ'(s)σ'(t) = (π - θ)/2π."""
    series = moments.hermite(jax.nn.relu, 150)
    with jax.enable_x64(True):
        slope = jax.jit(jax.grad(series.product))(0.3)
    assert float(slope) == pytest.approx((np.pi - THETA[3]) / (2 * np.pi), rel=1e-9)


def hard_tanh(t):
    return jnp.clip(t, -1, 1)


def test_kinks_that_are_not_named_are_noticed():
    with pytest.raises(
        ValueError,
        match=(
            r"^Two quadratures of the function differ by .*; name all points where it is not smooth"
            r" in kinks"
        ),
    ):
        moments.hermite(hard_tanh, 10)
    second = quad(lambda t: t * t * math.exp(-t * t / 2), 0, 1)[0] * math.sqrt(
        2 / math.pi
    ) + math.erfc(math.sqrt(0.5))
    for v in (1.0, 0.25):
        end = math.sqrt(v)
        series = moments.hermite(
            lambda t, end=end: hard_tanh(t / end), 10, variance=v, kinks=(-end, end)
        )
        assert series.second == pytest.approx(second, rel=1e-13)


BAD = """
moments.hermite(jnp.tanh, -1)
    A degree is an int from 0 to 200, got -1.
moments.hermite(jnp.tanh, 4, variance=0.0)
    A variance is positive and finite, got 0.0.
moments.hermite(jnp.tanh, 4).product(1.5)
    A correlation is in [-1, 1], got 1.5.
moments.hermite(jnp.tanh, 4).bound(-2.0)
    A correlation is in [-1, 1], got -2.0.
moments.hermite(jnp.sum, 4)
    An activation takes each number to a finite real one; for (400,) it gave float64 of shape ().
moments.hermite(jnp.log, 4)
    An activation takes each number to a finite real one; for (400,) it gave float64 of shape
    (400,), not all finite.
"""


@pytest.mark.parametrize(("call", "message"), wrong_calls(BAD))
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_call_is_refused_in_one_sentence(call, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        eval(call)
