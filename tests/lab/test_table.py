"""Tables of means at each size, with the slopes of their logarithms."""

import numpy as np
import xarray as xr

from specjax import lab

D = np.array([8, 32])


def test_a_table_by_size_has_means_errors_and_slopes():
    means = np.array([[2.0, 8.0], [3.0, 3.0]])
    noise = 0.01 * np.random.default_rng(0).standard_normal((2, 2, 400))
    draws = xr.DataArray(
        means[..., None] * (1 + noise),
        {"rule": ["a", "b"], "d": D, "seed": np.arange(400)},
        ("rule", "d", "seed"),
    )
    table = lab.table.table_by_size(
        "title", {"count": draws, "formula": xr.DataArray([4.0, 1.0], {"d": D}, "d")}, "d"
    )
    assert table.title == "title"
    assert table.header == ("", "d = 8", "d = 32", "slope")
    assert [row[0] for row in table.rows] == ["count rule = a", "count rule = b", "formula"]
    for row, slope in zip(table.rows[:2], (1.0, 0.0), strict=True):
        mean, error = (float(part) for part in row[-1].split(" ± "))
        assert abs(mean - slope) <= 0.01
        # Of the logarithm of one mean over another, over ln 4.
        assert abs(error - 0.01 * 2**0.5 / 20 / np.log(4)) < 0.006
    assert table.rows[2][1:] == ("4", "1", "-1.00")


def test_values_that_are_logarithms_have_their_own_slope():
    logs = xr.DataArray(np.log([4.0, 1.0]), {"d": D}, "d")
    assert lab.table.table_by_size("", {"x": logs}, "d", of_logs=True).rows[0][-1] == "-1.00"
