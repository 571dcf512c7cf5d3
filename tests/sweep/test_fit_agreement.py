"""The test of a predicted exponent is the interval's, and what is left of an exponent without the smallest widths."""

import numpy as np
import pytest
from scipy import stats

from specjax.sweep import agreement, drop_smallest, fit_offset, fit_power_law
from tests.sweep.samples import X, coupled, exact, independent


def _power_law(x):
    return 3 * x**-0.5


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("seeds", [12, 200])
def test_the_p_value_at_the_end_of_an_interval_is_one_less_its_level(level, seeds):
    fit = fit_power_law(coupled(np.random.default_rng(1), seeds, _power_law), "d", level=level, resamples=4000)
    for end in fit.interval:
        assert agreement(fit, end).p_value == pytest.approx(1 - level, rel=1e-6)


def test_the_p_value_is_that_of_students_t_for_normal_means():
    fit = fit_power_law(coupled(np.random.default_rng(2), 30, _power_law), "d", resamples=20_000)
    for errors in (1.0, -2.0):
        test = agreement(fit, fit.exponent + errors * fit.stderr)
        assert test.standard_errors == pytest.approx(errors)
        assert test.distance == pytest.approx(errors * fit.stderr)
        assert test.p_value == pytest.approx(2 * stats.t.sf(abs(errors), 29), abs=0.05)
    assert agreement(fit, np.median(fit.replicates.exponent)).p_value == pytest.approx(1, abs=1e-9)


def test_far_predictions_have_the_p_value_that_the_replicates_can_tell():
    fit = fit_power_law(coupled(np.random.default_rng(3), 60, _power_law), "d", resamples=1000)
    far = agreement(fit, 0.5)
    assert (
        far.p_value == far.resolution == pytest.approx(2 * stats.t.cdf(stats.norm.ppf(1 / 1001) * np.sqrt(59 / 60), 59))
    )
    finer = fit_power_law(coupled(np.random.default_rng(3), 60, _power_law), "d", resamples=10_000)
    assert agreement(finer, 0.5).p_value < far.p_value / 5


def test_p_values_are_uniform_under_the_null():
    rng = np.random.default_rng(4)
    fits = [fit_power_law(coupled(rng, 40, _power_law), "d", resamples=300) for _ in range(200)]
    assert stats.kstest([agreement(fit, -0.5).p_value for fit in fits], "uniform").pvalue > 1e-3
    assert stats.kstest([agreement(fit, -0.495).p_value for fit in fits], "uniform").pvalue < 1e-3


def test_an_exponent_above_an_offset_is_tested_too():
    fit = fit_offset(coupled(np.random.default_rng(5), 100, lambda x: 1 + 30 / x), "d")
    assert agreement(fit, -1).p_value > 0.05
    assert agreement(fit, -0.5).p_value < 0.05


def test_no_test_without_noise_or_number():
    fit = fit_power_law(exact(_power_law(X)), "d")
    with pytest.raises(ValueError, match="no seed noise"):
        agreement(fit, -0.5)
    with pytest.raises(ValueError, match="finite number, got nan"):
        agreement(fit, float("nan"))


@pytest.mark.parametrize("subleading", [False, True])
def test_dropping_widths_is_fitting_without_them(subleading):
    data = independent(np.random.default_rng(6), 400, lambda x: 3 * x**-0.5 * (1 + 20 / x))
    dropped = drop_smallest(data, "d", subleading=subleading, resamples=200)
    assert len(dropped.exponents) == (3 if subleading else 4)
    for k in range(len(dropped.exponents)):
        if len(X) - k == 3:
            continue
        fit = fit_power_law(data.isel(d=slice(k, None)), "d", subleading=subleading, resamples=200)
        assert dropped.exponents[k] == pytest.approx(fit.exponent, rel=1e-9)
        assert dropped.stderrs[k] == pytest.approx(fit.stderr, rel=1e-6)
        assert dropped.intervals[k] == pytest.approx(fit.interval, rel=1e-6)
        assert dropped.shifts[k] == pytest.approx(fit.exponent - dropped.exponents[0], abs=1e-9)
    np.testing.assert_array_equal(dropped.smallest, X[: len(dropped.exponents)])


def test_shifts_show_a_term_that_the_model_lacks():
    rng = np.random.default_rng(7)
    bent = drop_smallest(coupled(rng, 100, lambda x: 3 * x**-0.5 * (1 + 5 / x)), "d", most=2)
    assert (bent.shift_intervals[1:, 0] > 0).all()
    covered = [
        drop_smallest(coupled(rng, 60, _power_law), "d", most=1, resamples=200).shift_intervals[1] for _ in range(150)
    ]
    assert np.mean([low <= 0 <= high for low, high in covered]) >= 0.87  # 4 standard errors below 0.95


def test_table_of_dropped_widths():
    table = drop_smallest(exact(_power_law(X)), "d", most=1, level=0.9).table().splitlines()
    assert table[0] == "| dropped | smallest d | exponent | 90 % interval | shift | 90 % interval |"
    assert table[3] == "| 1 | 32 | -0.5000 | [-0.5000, -0.5000] | 0.0000 | [0.0000, 0.0000] |"


def test_widths_to_drop_are_checked():
    data = coupled(np.random.default_rng(8), 20, _power_law)
    for most in (0, 4):
        with pytest.raises(ValueError, match=f"can leave out 1 to 3, got most={most}"):
            drop_smallest(data, "d", most=most)
    with pytest.raises(ValueError, match="at least 5 points"):
        drop_smallest(data.isel(d=slice(4)), "d", subleading=True)
