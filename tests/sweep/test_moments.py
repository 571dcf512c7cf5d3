"""Means and standard errors over seeds are those of float64 numpy, and hide nothing."""

import numpy as np
import pytest
import xarray as xr

from specjax.sweep import mean_and_stderr


def _data():
    # Offset so large that a float32 sum of squares would lose the spread.
    y = (1000 + np.random.default_rng(0).normal(size=(3, 400))).astype(np.float32)
    return xr.DataArray(y, dims=("d", "seed"), name="y", attrs={"units": "m"})


def test_mean_and_stderr_are_those_of_float64():
    data = _data()
    mean, stderr = mean_and_stderr(data)
    exact = data.values.astype(np.float64)
    np.testing.assert_allclose(mean, exact.sum(axis=1) / 400, rtol=1e-14)
    np.testing.assert_allclose(stderr, np.sqrt(exact.var(axis=1) / 399), rtol=1e-10)
    assert mean.dtype == stderr.dtype == np.float64
    assert mean.attrs == stderr.attrs == {"units": "m"}


def test_datasets_keep_their_names_and_lose_the_flag():
    data = _data()
    mean, stderr = mean_and_stderr(xr.Dataset({"y": data, "failed": data > 0}, attrs={"plan": "auto"}))
    assert list(mean) == list(stderr) == ["y"]
    np.testing.assert_array_equal(stderr["y"], mean_and_stderr(data)[1])
    assert mean.attrs == stderr.attrs == {"plan": "auto"}
    assert stderr["y"].attrs == {"units": "m"}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_failed_seed_shows(bad):
    data = _data()
    data[1, 7] = bad
    mean, stderr = mean_and_stderr(data)
    assert np.isfinite(mean).values.tolist() == [True, False, True]
    assert np.isfinite(stderr).values.tolist() == [True, False, True]


def test_refusals():
    data = _data()
    with pytest.raises(ValueError, match="at least 2 entries along 'seed', got 1"):
        mean_and_stderr(data.isel(seed=[0]))
    with pytest.raises(ValueError, match="'time' needs that dimension"):
        mean_and_stderr(data, "time")
    with pytest.raises(ValueError, match=r"missing in \['constant'\]"):
        mean_and_stderr(xr.Dataset({"y": data, "constant": ("d", np.ones(3))}))
