"""Means with their intervals, against the formulas of scipy and of the standard library."""

import statistics

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from specjax import sweep
from specjax.experiments.means import Mean, mean_of

# A mean far from zero, where a sum of squares would cancel, and few draws, where n and n - 1 differ.
DRAWS = 1e3 + np.random.default_rng(0).standard_normal((5, 7, 3))


def test_a_mean_of_all_draws_is_that_of_the_standard_library():
    draws = DRAWS[:, 0, 0]
    mean, stderr = mean_of(draws)
    assert mean == pytest.approx(statistics.fmean(draws), rel=1e-15)
    assert stderr == pytest.approx(statistics.stdev(draws) / 5**0.5, rel=1e-9)
    assert mean_of(DRAWS) == pytest.approx((DRAWS.mean(), stats.sem(DRAWS, axis=None)), rel=1e-12)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_means_over_an_axis_are_those_of_scipy(axis):
    found = mean_of(DRAWS, axis)
    np.testing.assert_allclose(found.mean, np.average(DRAWS, axis), rtol=1e-15)
    np.testing.assert_allclose(found.stderr, stats.sem(DRAWS, axis), rtol=1e-12)


def test_intervals_are_four_standard_errors_to_either_side():
    # Deviations of 3, 3, -3 and -3: s² = 12 and s/√n = √3.
    found = mean_of(np.array([13.0, 13.0, 7.0, 7.0]))
    assert (found.low, found.high) == pytest.approx((10 - 4 * 3**0.5, 10 + 4 * 3**0.5), rel=1e-15)
    several = Mean(np.array([1.0, -2.0]), np.array([0.25, 0.0]))
    assert (several.low.tolist(), several.high.tolist()) == ([0.0, -2.0], [2.0, -2.0])


def test_labelled_means_have_intervals_too():
    data = xr.DataArray(DRAWS[..., 0], dims=("seed", "width"))
    found = Mean(*sweep.mean_and_stderr(data))
    assert found.low.dims == ("width",)
    np.testing.assert_allclose(found.low, mean_of(DRAWS[..., 0], axis=0).low, rtol=1e-15)


@pytest.mark.parametrize(
    ("mean", "stderr", "text"),
    [
        (0.12345, 0.00449, "0.123 ± 0.004"),
        (1234.5, 20.0, "1.23e+03 ± 2e+01"),
        (np.float32(-2.0), np.float64(0.0), "-2 ± 0"),
    ],
)
def test_a_mean_has_three_digits_in_tables_and_its_error_one(mean, stderr, text):
    assert str(Mean(mean, stderr)) == f"{Mean(mean, stderr)}" == text


@pytest.mark.parametrize(("shape", "axis", "n"), [((1,), None, 1), ((0,), None, 0), ((4, 1), 1, 1), ((1, 4), 0, 1)])
def test_fewer_than_two_draws_are_refused(shape, axis, n):
    with pytest.raises(ValueError, match=rf"^A standard error needs at least 2 draws, got {n}; run more seeds\.$"):
        mean_of(np.ones(shape), axis)
