"""Curves through what is predicted, and points side by side."""

import numpy as np
import xarray as xr
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from scipy import stats

from specjax.lab.drawing import COLORS, draw_beside, draw_predicted


def test_a_prediction_is_a_line_through_means_in_their_colour():
    rng = np.random.default_rng(0)
    sizes, kinds, fine = [16, 64, 256], ["a", "b"], np.geomspace(8, 512, 7)
    samples = xr.DataArray(
        rng.normal(size=(2, 3, 25)), {"kind": kinds, "d": sizes}, ("kind", "d", "seed")
    )
    predicted = xr.DataArray(
        np.arange(14.0).reshape(7, 2), {"d": fine, "kind": kinds}, ("d", "kind")
    )
    axes = Figure().subplots()
    draw_predicted(axes, samples, predicted, "d", "kind", "kind {}".format)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["kind a", "kind b"]
    for k, container in enumerate(axes.containers):
        points, _, (bars,) = container.lines
        values = samples.values[k]
        np.testing.assert_allclose(points.get_ydata(orig=False), values.mean(axis=1))
        heights = [segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]
        np.testing.assert_allclose(heights, 2 * 4 * values.std(axis=1, ddof=1) / 5)
        line = next(
            each for each in axes.lines if each.get_linestyle() == "-" and each.get_ydata()[0] == k
        )
        np.testing.assert_allclose(line.get_xdata(), fine)
        np.testing.assert_allclose(line.get_ydata(), predicted.values[:, k])
        assert to_hex(line.get_color()) == to_hex(points.get_color()) == COLORS[k].lower()
    # Sizes over a factor of sixteen have a logarithmic axis with a tick at each.
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["16", "64", "256"]


def test_points_of_one_label_stand_side_by_side():
    # Without skewness, for which the two sides of an interval differ.
    half = np.random.default_rng(0).normal(size=(50, 3, 2))
    samples = xr.DataArray(
        np.concatenate([half, -half]) + np.arange(6.0).reshape(3, 2),
        {"arm": ["a", "b", "c"], "step": [10, 20]},
        ("seed", "arm", "step"),
    )
    axes = Figure().subplots()
    draw_beside(axes, samples, "arm", "step", "after {} steps".format)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["a", "b", "c"]
    # Student's quantile of 100 samples with the probability of 4 standard errors.
    quantile = stats.t.ppf(stats.norm.cdf(4), 99)
    labels = [container.get_label() for container in axes.containers]
    assert labels == ["after 10 steps", "after 20 steps"]
    for k, container in enumerate(axes.containers):
        points, _, (bars,) = container.lines
        values = samples.values[:, :, k]
        np.testing.assert_allclose(points.get_xdata(orig=False), np.arange(3) + 0.2 * k - 0.1)
        np.testing.assert_allclose(points.get_ydata(orig=False), values.mean(axis=0))
        heights = [segment[1, 1] - segment[0, 1] for segment in bars.get_segments()]
        np.testing.assert_allclose(heights, 2 * quantile * values.std(axis=0, ddof=1) / 10)
