"""The test of a predicted exponent is the interval's, and what is left of an exponent without the
smallest widths.
"""

import numpy as np
import pytest
from scipy import stats

from specjax.fits import drop_smallest, fit_offset, fit_power_law
from tests.fits.samples import X, coupled, exact, independent


def _power_law(x):
    return 3 * x**-0.5


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("seeds", [12, 200])
def test_the_p_value_at_an_interval_end_is_one_less_its_level(level, seeds):
    fit = fit_power_law(
        coupled(np.random.default_rng(1), seeds, _power_law), "d", level=level, resamples=4000
    )
    for end in fit.interval:
        assert fit.p_value(end) == pytest.approx(1 - level, rel=1e-6)


def test_the_p_value_is_that_of_students_t_for_normal_means():
    fit = fit_power_law(coupled(np.random.default_rng(2), 30, _power_law), "d", resamples=20_000)
    for errors in (1.0, -2.0):
        assert fit.p_value(fit.exponent + errors * fit.stderr) == pytest.approx(
            2 * stats.t.sf(abs(errors), 29), abs=0.05
        )
    assert fit.p_value(np.median(fit.replicates.exponent)) == pytest.approx(1, abs=1e-9)


def test_far_predictions_have_the_least_p_value_of_replicates():
    fit = fit_power_law(coupled(np.random.default_rng(3), 60, _power_law), "d", resamples=1000)
    far = fit.p_value(0.5)
    assert far == pytest.approx(2 * stats.t.cdf(stats.norm.ppf(1 / 1001) * np.sqrt(59 / 60), 59))
    finer = fit_power_law(coupled(np.random.default_rng(3), 60, _power_law), "d", resamples=10_000)
    assert finer.p_value(0.5) < far / 5


@pytest.mark.integration
def test_p_values_are_uniform_under_the_null():
    rng = np.random.default_rng(4)
    fits = [fit_power_law(coupled(rng, 40, _power_law), "d", resamples=300) for _ in range(200)]
    assert stats.kstest([fit.p_value(-0.5) for fit in fits], "uniform").pvalue > 1e-3
    assert stats.kstest([fit.p_value(-0.495) for fit in fits], "uniform").pvalue < 1e-3


def test_an_exponent_above_an_offset_is_tested_too():
    fit = fit_offset(coupled(np.random.default_rng(5), 100, lambda x: 1 + 30 / x), "d")
    assert fit.p_value(-1) > 0.05
    assert fit.p_value(-0.5) < 0.05


def test_no_test_without_noise_or_number():
    fit = fit_power_law(exact(_power_law(X)), "d")
    with pytest.raises(ValueError, match="no seed noise"):
        fit.p_value(-0.5)
    with pytest.raises(ValueError, match="finite number, got nan"):
        fit.p_value(float("nan"))


def test_dropping_widths_is_fitting_without_them():
    data = independent(np.random.default_rng(6), 400, lambda x: 3 * x**-0.5 * (1 + 20 / x))
    dropped = drop_smallest(data, "d")
    np.testing.assert_array_equal(dropped["d"], X[:4])
    for k in range(3):
        fit = fit_power_law(data.isel(d=slice(k, None)), "d")
        at = dropped.isel(d=k)
        assert at["exponent"] == pytest.approx(fit.exponent, rel=1e-9)
        assert (at["low"], at["high"]) == pytest.approx(fit.interval, rel=1e-6)
        assert at["shift"] == pytest.approx(fit.exponent - dropped["exponent"][0].item(), abs=1e-9)


@pytest.mark.integration
def test_shifts_show_a_term_that_the_model_lacks():
    rng = np.random.default_rng(7)
    bent = drop_smallest(coupled(rng, 100, lambda x: 3 * x**-0.5 * (1 + 5 / x)), "d")
    assert (bent["shift_low"][1:3] > 0).all()
    dropped = [drop_smallest(coupled(rng, 60, _power_law), "d").isel(d=1) for _ in range(150)]
    # 4 standard errors below 0.95
    assert (
        np.mean([bool((each["shift_low"] <= 0) & (each["shift_high"] >= 0)) for each in dropped])
        >= 0.87
    )


def test_widths_to_drop_are_enough():
    data = coupled(np.random.default_rng(8), 20, _power_law)
    with pytest.raises(ValueError, match="at least 4 points along 'd', got 3"):
        drop_smallest(data.isel(d=slice(3)), "d")
