"""Moments, means and standard errors over seeds are those of float64 numpy, however they are cut,
and hide nothing.
"""

from functools import reduce

import numpy as np
import pytest
import xarray as xr

from specjax.sweep import mean_and_stderr, total
from specjax.sweep.seed_moments import merge, moments_of


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
    mean, stderr = mean_and_stderr(
        xr.Dataset({"y": data, "failed": data > 0}, attrs={"plan": "auto"})
    )
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
    with pytest.raises(ValueError, match="'seed' needs that dimension"):
        mean_and_stderr(data.rename(seed="time"))
    with pytest.raises(ValueError, match=r"missing in \['constant'\]"):
        mean_and_stderr(xr.Dataset({"y": data, "constant": ("d", np.ones(3))}))


def _blocks():
    """Blocks of seeds, shapes (3, n), with NaN and inf in places and one block without any seed."""
    rng = np.random.default_rng(1)
    blocks = [rng.lognormal(sigma=2, size=(3, n)) for n in (1, 40, 0, 7, 300)]
    blocks[1][0, 5], blocks[1][2, :] = np.nan, np.inf
    return blocks


def _assert_numpys(moments, y):
    """`moments` are those of numpy on the finite entries of each row of `y`."""
    for i, row in enumerate(y):
        row = row[np.isfinite(row)]
        assert moments.count[i] == len(row)
        if len(row) == 0:
            assert [field[i] for field in moments] == [0, 0, 0, np.inf, -np.inf]
            continue
        np.testing.assert_allclose(moments.mean[i], row.mean(), rtol=1e-14)
        np.testing.assert_allclose(moments.m2[i], np.sum((row - row.mean()) ** 2), rtol=1e-12)
        assert (moments.min[i], moments.max[i]) == (row.min(), row.max())


def test_moments_of_blocks_and_of_their_merge_are_numpys():
    blocks = _blocks()
    parts = [moments_of(block, axis=1) for block in blocks]
    for part, block in zip(parts, blocks, strict=True):
        _assert_numpys(part, block)
    _assert_numpys(reduce(merge, parts), np.concatenate(blocks, axis=1))
    _assert_numpys(reduce(merge, parts[::-1]), np.concatenate(blocks, axis=1))
    assert reduce(merge, parts).count.dtype == np.int64


def test_merging_with_nothing_changes_nothing():
    some, nothing = moments_of(_blocks()[3], axis=1), moments_of(np.zeros((3, 0)), axis=1)
    for whole in (merge(some, nothing), merge(nothing, some)):
        for field, expected in zip(whole, some, strict=True):
            np.testing.assert_array_equal(field, expected)
    assert merge(nothing, nothing).count.tolist() == [0, 0, 0]
    assert merge(nothing, nothing).min.tolist() == [np.inf] * 3


def test_merge_is_associative_to_rounding():
    a, b, c = (moments_of(block, axis=1) for block in (_blocks()[i] for i in (0, 3, 4)))
    left, right = merge(merge(a, b), c), merge(a, merge(b, c))
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_moments_keep_the_spread_about_a_large_offset():
    """At 1e8 a sum of squares in float64 has lost the variance of 1 to its first digit."""
    y = np.random.default_rng(2).normal(size=4000)
    shifted = (1e8 + y).reshape(1, -1)
    exact = shifted[0] - 1e8
    whole = reduce(merge, [moments_of(block, axis=1) for block in np.split(shifted, 8, axis=1)])
    np.testing.assert_allclose(whole.m2[0], np.sum((exact - exact.mean()) ** 2), rtol=1e-7)
    naive = np.sum(shifted**2) - shifted.sum() ** 2 / 4000
    assert abs(naive / whole.m2[0] - 1) > 1e-3


def _batches(y, size):
    """`y` of shape (3, seeds) as a dataset of moments, batches of `size` seeds."""
    parts = [moments_of(y[:, i : i + size], axis=1) for i in range(0, y.shape[1], size)]
    count, mean, m2, least, greatest = (
        np.stack(field, axis=1) for field in zip(*parts, strict=True)
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        variables = {
            "y": np.where(count > 0, mean, np.nan),
            "y.variance": np.where(count > 1, m2 / (count - 1), np.nan),
            "y.min": least,
            "y.max": greatest,
            "count": count,
        }
    data = xr.Dataset(
        {name: (("d", "batch"), value) for name, value in variables.items()}, {"d": [4, 8, 16]}
    )
    data["y"].attrs["units"] = "m"
    return data.assign_attrs(plan="auto")


def test_total_is_the_moments_of_all_seeds():
    y = 1e6 + np.random.default_rng(4).normal(size=(3, 70))
    y[1, 12:40] = np.nan
    whole = total(_batches(y, 10))
    assert set(whole) == {"y", "y.variance", "y.min", "y.max", "y.stderr", "count"}
    assert whole["y"].dims == ("d",)
    assert (whole.attrs, whole["y"].attrs, whole["y.stderr"].attrs) == ({"plan": "auto"},) + (
        {"units": "m"},
    ) * 2
    assert whole["count"].values.tolist() == [70, 42, 70]
    np.testing.assert_allclose(whole["y"], np.nanmean(y, axis=1), rtol=1e-15)
    np.testing.assert_allclose(whole["y.variance"], np.nanvar(y, axis=1, ddof=1), rtol=1e-9)
    np.testing.assert_allclose(
        whole["y.stderr"] ** 2, np.nanvar(y, axis=1, ddof=1) / [70, 42, 70], rtol=1e-9
    )
    np.testing.assert_array_equal(whole["y.min"], np.nanmin(y, axis=1))
    np.testing.assert_array_equal(whole["y.max"], np.nanmax(y, axis=1))


def test_total_of_no_seed_and_of_one():
    y = np.full((3, 4), np.nan)
    y[0, 1], y[1, :2] = 3.0, (2.0, 4.0)
    whole = total(_batches(y, 2))
    np.testing.assert_array_equal(whole["count"], [1, 2, 0])
    np.testing.assert_array_equal(whole["y"], [3, 3, np.nan])
    np.testing.assert_array_equal(whole["y.variance"], [np.nan, 2, np.nan])
    np.testing.assert_array_equal(whole["y.stderr"], [np.nan, 1, np.nan])
    np.testing.assert_array_equal(whole["y.max"], [3, 4, np.nan])


def test_total_of_outputs_with_their_own_dimensions():
    y = np.random.default_rng(5).normal(size=(3, 20, 2))
    one, other = (_batches(y[..., i], 5) for i in range(2))
    joined = xr.concat([one.drop_vars("count"), other.drop_vars("count")], "y_dim_0").assign(
        count=one["count"]
    )
    np.testing.assert_allclose(total(joined)["y"].transpose("d", ...), y.mean(axis=1), rtol=1e-13)
    np.testing.assert_allclose(
        total(joined)["y.stderr"].sel(y_dim_0=1), total(other)["y.stderr"], rtol=1e-13
    )


def test_total_refuses_what_holds_no_moments():
    data = _batches(np.ones((3, 20)), 5)
    for lacking in (
        data.drop_vars("count"),
        data.drop_vars("y.min"),
        data[["count"]],
        data.isel(batch=0),
    ):
        with pytest.raises(ValueError, match=r"total needs .*reduce='moments'"):
            total(lacking)


def test_mean_and_stderr_of_moments_are_over_batches():
    y = np.random.default_rng(6).normal(size=(3, 60))
    mean, stderr = mean_and_stderr(_batches(y, 5))
    assert list(mean) == list(stderr) == ["y"]
    means = y.reshape(3, 12, 5).mean(axis=2)
    np.testing.assert_allclose(mean["y"], y.mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(stderr["y"], means.std(axis=1, ddof=1) / np.sqrt(12), rtol=1e-12)


def test_mean_and_stderr_where_each_width_has_its_own_seeds():
    y = np.random.default_rng(7).normal(size=(3, 400))
    y[1, 100:], y[2, 30:] = np.nan, np.nan
    data = xr.DataArray(
        y,
        dims=("d", "seed"),
        coords={"seed": np.arange(400), "seeds": ("d", [400, 100, 30])},
        name="y",
    )
    mean, stderr = mean_and_stderr(data)
    for i, n in enumerate([400, 100, 30]):
        np.testing.assert_allclose(mean[i], y[i, :n].mean(), rtol=1e-13)
        np.testing.assert_allclose(stderr[i], y[i, :n].std(ddof=1) / np.sqrt(n), rtol=1e-13)
    # After a selection of seeds a width has those of its own that are left.
    assert mean_and_stderr(data[:, 25:])[0][2] == pytest.approx(y[2, 25:30].mean(), rel=1e-13)
    with pytest.raises(ValueError, match="at least 2 entries along 'seed', got 1"):
        mean_and_stderr(data[:, 29:])
    data[1, 7] = np.nan
    assert np.isfinite(mean_and_stderr(xr.Dataset({"y": data}))[1]["y"]).values.tolist() == [
        True,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="'seeds' needs one positive integer"):
        mean_and_stderr(data.assign_coords(seeds=("d", [400.0, 100.0, 30.0])))
