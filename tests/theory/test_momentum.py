"""The moving average against brute force: the sum of its weights, step by step, and a
simulation.
"""

import re
from decimal import Decimal, localcontext
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specjax.theory import momentum

GAMMAS = st.floats(0.05, 0.97)


def weights(gamma, t):
    """What m_t gives to each of g_1 ... g_t, by running the recursion on unit vectors."""
    m = np.zeros(t)
    for step in range(t):
        m = gamma * m + (1 - gamma) * np.eye(t)[step]
    return m


@given(
    gamma=GAMMAS,
    mu=st.floats(-3, 3),
    sigma=st.floats(0.1, 3),
    start=st.floats(-3, 3),
    t=st.integers(1, 30),
)
@pytest.mark.usefixtures("x64")
def test_the_error_is_squared_bias_plus_summed_squared_weights(gamma, mu, sigma, start, t):
    w = weights(gamma, t)
    bias = start * gamma**t + mu * w.sum() - mu
    expected = bias**2 + sigma**2 * np.sum(w**2)
    assert momentum.ema_mse(mu, sigma, gamma, t, start) == pytest.approx(
        expected, rel=1e-10, abs=1e-12
    )


@given(gamma=GAMMAS, sigma=st.floats(0.1, 3), t=st.integers(1, 30))
@pytest.mark.usefixtures("x64")
def test_the_debiased_average_has_normalized_weights(gamma, sigma, t):
    w = weights(gamma, t)
    w = w / w.sum()
    assert momentum.debiased_ema_mse(sigma, gamma, t) == pytest.approx(
        sigma**2 * np.sum(w**2), rel=1e-10
    )


@given(gamma=GAMMAS, log_snr=st.floats(-4, 4))
@pytest.mark.usefixtures("x64")
def test_the_threshold_is_where_the_errors_cross(gamma, log_snr):
    snr, times = 10.0**log_snr, np.arange(1, 400)
    gains = np.asarray(momentum.ema_mse(np.sqrt(snr), 1.0, gamma, times)) < 1
    threshold = float(momentum.improvement_time(snr, gamma))
    assert np.array_equal(gains, times > threshold)
    assert np.array_equal(np.asarray(momentum.improves(snr, gamma, times)), gains)
    assert gains[0] == (snr < momentum.first_step_snr(gamma))
    # Continuous time too: the two errors are equal at T* where it is finite.
    if np.isfinite(threshold):
        assert momentum.ema_mse(np.sqrt(snr), 1.0, gamma, threshold) == pytest.approx(1, rel=1e-8)


@pytest.mark.usefixtures("x64")
def test_the_stationary_variance_counts_once_the_past_is_lost():
    """γ = 1/20: m_1 has the error s/400 + 0.95², below 1 for s = 38 and above it for s = 40."""
    assert (
        momentum.improves(np.array([38.0, 40.0]), 0.05, 1).tolist()
        == [38 / 400 + 0.9025 < 1, 40 / 400 + 0.9025 < 1]
        == [True, False]
    )


@pytest.mark.usefixtures("x64")
def test_below_the_stationary_variance_every_step_gains():
    assert momentum.improvement_time(0.99 * momentum.stationary_variance(0.9), 0.9) == -np.inf
    assert momentum.improvement_time(1.01 * momentum.stationary_variance(0.9), 0.9) > -np.inf
    # At v = 1/3 itself, γ = 1/2 in binary exactly: 1.5/3 - 0.5 = 0.
    assert momentum.improvement_time(1 / 3, 0.5) == -np.inf
    # Equal errors do not improve: with γ = 1/2 and t = 1, (s - 1/3)/4 = 2/3 at s = 3.
    assert not bool(momentum.improves(3, 0.5, 1))


@pytest.mark.usefixtures("x64")
def test_the_printed_inequality_is_another_one():
    # At s = 1, γ = 0.9 the first step gains: m_1 = 0.1 g_1 has the error 0.81 + 0.01 < 1. The
    # printed inequality denies it.
    assert momentum.ema_mse(1.0, 1.0, 0.9, 1) == pytest.approx(0.82)
    assert bool(momentum.improves(1.0, 0.9, 1))
    assert not bool(momentum.improves_as_printed(1.0, 0.9, 1))


@pytest.mark.parametrize("gamma", [0.5, 0.75, 0.9375])
@pytest.mark.usefixtures("x64")
def test_the_printed_inequality_in_whole_numbers(gamma):
    """s γ^(2t) (1 + γ) < 1 - γ^(2t), in fractions, at the s where both sides are equal and a little
    to either side.
    """
    times = np.arange(1, 12)
    for t in times.tolist():
        kept = Fraction(gamma) ** (2 * t)
        equal = float((1 - kept) / (kept * (1 + Fraction(gamma))))
        snr = np.array([0.01, 1 - 1e-9, 1 + 1e-9, 100]) * equal
        expected = [Fraction(s) * kept * (1 + Fraction(gamma)) < 1 - kept for s in snr.tolist()]
        assert expected == [True, True, False, False]
        assert np.asarray(momentum.improves_as_printed(snr, gamma, t)).tolist() == expected
    # γ = 1/2 and t = 1: 2/4 is not below (3/4)/(3/2).
    assert not bool(momentum.improves_as_printed(2, 0.5, 1))
    assert bool(momentum.improves_as_printed(2 - 2**-40, 0.5, 1))


@pytest.mark.parametrize(
    ("gamma", "snr"), [(0.9999, 1e4), (0.5, 10.0), (1 - 1e-6, 1e6), (0.05, 30.0)]
)
def test_the_threshold_is_float64_without_a_scope(gamma, snr):
    """In 40 digits; in float32 it is 46042.0 for 46049.65 at γ = 0.9999 and s = 10⁴."""
    with localcontext() as context:
        context.prec = 40
        g, s = Decimal(gamma), Decimal(snr)
        expected = (2 * g / ((1 + g) * s - (1 - g))).ln() / (2 * g.ln())
        other = (1 - g) / (1 + g)
    assert float(momentum.improvement_time(snr, gamma)) == pytest.approx(float(expected), rel=1e-9)
    assert float(momentum.stationary_variance(gamma)) == pytest.approx(float(other), rel=1e-14)
    results = [
        momentum.ema_mse(1.0, 1.0, gamma, 3),
        momentum.debiased_ema_mse(1.0, gamma, 3),
        momentum.first_step_snr(gamma),
        momentum.improvement_time(jnp.float32(snr), jnp.float32(gamma)),
    ]
    assert {str(x.dtype) for x in results} == {"float64"}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("gamma", [0.0, 1.0, -0.5, 1.5, float("nan")])
def test_a_decay_outside_its_interval_is_refused(gamma):
    sentence = f"^{re.escape(f'gamma must be in (0, 1), got {gamma:g}.')}$"
    for call in (
        lambda: momentum.ema_mse(1.0, 1.0, gamma, 3),
        lambda: momentum.debiased_ema_mse(1.0, gamma, 3),
        lambda: momentum.stationary_variance(gamma),
        lambda: momentum.improvement_time(2.0, np.array([0.5, gamma])),
        lambda: momentum.first_step_snr(gamma),
        lambda: momentum.improves(2.0, gamma, 1),
        lambda: momentum.improves_as_printed(2.0, gamma, 1),
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(ValueError, match=r"^t must be in \[1, inf\), got 0\.$"):
        momentum.debiased_ema_mse(1.0, 0.5, 0)
    with pytest.raises(ValueError, match=r"^snr must be in \[0, inf\), got -1\.$"):
        momentum.improvement_time(-1.0, 0.5)
