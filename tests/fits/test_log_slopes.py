"""Slopes in every sample are those of straight lines, and the jackknife has the mean and the spread
of many repetitions.
"""

import numpy as np
import pytest
import xarray as xr

from specjax import fits, sweep


def test_slopes_are_those_of_straight_lines():
    rng = np.random.default_rng(0)
    d = np.array([16, 24, 48, 96])
    values = xr.DataArray(
        rng.standard_normal((4, 3)), dims=("d", "seed"), coords={"d": d}, name="y"
    )
    found = fits.log_slopes(values, "d")
    np.testing.assert_allclose(found, np.polyfit(np.log(d), values.values, 1)[0], rtol=1e-10)
    assert found.name == "slope of y"


def test_pseudo_values_have_the_slope_and_spread_of_log_means():
    rng = np.random.default_rng(0)
    d = np.array([16, 24, 48])
    means = 3 * (d / 16.0) ** 1.3
    draws = xr.DataArray(
        rng.poisson(means, (4000, 3)).astype(float), dims=("seed", "d"), coords={"d": d}
    )

    def slopes(mean):
        return fits.log_slopes(np.log(mean), "d")

    mean, stderr = sweep.mean_and_stderr(fits.jackknife(draws, slopes))
    assert abs(float(mean) - 1.3) < 4 * float(stderr)
    # The spread of slopes of means of 40 samples.
    many = slopes(draws.coarsen(seed=40).mean())
    assert float(stderr) * 10 == pytest.approx(float(many.std()), rel=0.3)
    # Single logarithms of such counts are biased by more than noise.
    biased = slopes(np.maximum(draws, 0.01)).mean()
    assert abs(float(biased) - 1.3) > 4 * float(stderr)


def test_one_draw_has_no_jackknife():
    with pytest.raises(ValueError, match="one sample of two or more, got 1"):
        fits.jackknife(xr.DataArray([1.0], dims="seed"), lambda mean: mean)
