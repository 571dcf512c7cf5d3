"""Optima of swept curves: polyfit's vertices, the true minimum in the interval, standard errors of
fresh data, ends and divergence said.
"""

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot as plt

from specjax.fits import RoughFitWarning, draw_optimum, optimum
from tests.wrong_calls import wrong_calls

SIZES = np.array([16.0, 32.0, 64.0, 128.0])
RATES = 2.0 ** np.arange(-6, 3)
LOG = np.log(RATES)


def array(y, sizes=SIZES, rates=RATES):
    """`y` of shape (sizes, rates, seeds) as a sweep gives it."""
    coords = {"width": sizes, "rate": rates, "seed": np.arange(y.shape[2])}
    return xr.DataArray(y, coords, ("width", "rate", "seed"), name="loss")


def parabolas(optima, seeds=12, bend=0.3):
    """1 + bend (log rate - log optimum)², the same at every seed."""
    y = 1 + bend * (LOG - np.log(optima)[:, None]) ** 2
    return np.repeat(y[..., None], seeds, axis=2)


def noisy(rng, optima, seeds=12, noise=0.02):
    """Parabolas with noise of each seed that its widths share in part."""
    y = parabolas(optima, seeds)
    shared = rng.normal(size=(1, len(RATES), seeds))
    return array(y + noise * (shared + rng.normal(size=y.shape)))


def test_optima_of_parabolas_and_their_exponent_are_exact():
    optima = 0.9 * SIZES**-0.5
    found = optimum(array(parabolas(optima)), over="rate", dim="width")
    np.testing.assert_allclose(found.optima, optima, rtol=1e-12)
    np.testing.assert_array_equal(found.minima, parabolas(optima)[..., 0].min(axis=1))
    assert found.exponent == pytest.approx(-0.5, abs=1e-12)
    assert (found.stderr, found.places) == (0.0, ("inside",) * 4)
    # Numbers below zero have no logarithms, so all parabolas are equal.
    below = optimum(array(parabolas(optima) - 2), over="rate", dim="width")
    np.testing.assert_allclose(below.intervals, np.stack([optima, optima], axis=1), rtol=1e-9)
    assert below.interval == pytest.approx((-0.5, -0.5), abs=1e-9)


def test_a_vertex_is_polyfits_on_any_grid_in_any_order():
    rates = np.array([0.01, 0.05, 0.07, 0.3, 1.0])
    y = np.array([[3.0, 1.4, 1.0, 1.9, 5.0]] * 2)[..., None] + 0.01 * np.random.default_rng(
        0
    ).normal(size=(2, 5, 20))
    found = optimum(
        array(y, SIZES[:2], rates).isel(width=[1, 0], rate=[3, 1, 0, 4, 2]),
        over="rate",
        dim="width",
    )
    for size in range(2):
        bend, slope, _ = np.polyfit(np.log(rates[1:4]), y[size, 1:4].mean(axis=1), 2)
        assert np.log(found.optima[size]) == pytest.approx(-slope / (2 * bend), abs=1e-9)
        assert found.minima[size] == pytest.approx(y[size, 2].mean())


@pytest.mark.integration
def test_standard_errors_match_fresh_data_and_intervals_cover():
    truth, optima, sweeps = -0.5, 0.9 * SIZES**-0.5, 150
    found = [
        optimum(noisy(np.random.default_rng(i), optima, seeds=30), "rate", "width")
        for i in range(sweeps)
    ]
    exponents = np.array([each.exponent for each in found])
    spread = exponents.std()
    assert abs(exponents.mean() - truth) < 4 * spread / np.sqrt(sweeps)
    # A standard deviation of 150 numbers has a relative error of 1/√300; the bootstrap's own are
    # averaged.
    assert np.mean([each.stderr for each in found]) == pytest.approx(
        spread, rel=4 / np.sqrt(2 * sweeps)
    )
    hits = np.mean([each.interval[0] <= truth <= each.interval[1] for each in found])
    assert hits > 0.95 - 4 * np.sqrt(0.95 * 0.05 / sweeps)
    low, high = np.stack([each.intervals for each in found]).transpose(2, 0, 1)
    assert ((low <= optima) & (optima <= high)).mean() > 0.95 - 4 * np.sqrt(0.95 * 0.05 / sweeps)
    # And they say something: an interval is shorter than a step of the grid.
    assert np.median(np.log(high / low)) < np.log(2)


@pytest.mark.parametrize("steep", [1.5, 3.0, 5.0, 8.0])
def test_intervals_hold_the_minimum_of_curves_beyond_parabolas(steep):
    """y = 1/r + (r/r₀)^s: slow below, steep above; its minimum is at r = (r₀^s / s)^(1/(s + 1))."""
    scales = 1.3 * SIZES**-0.4
    optima = (scales**steep / steep) ** (1 / (steep + 1))
    y = 1 / RATES + (RATES / scales[:, None]) ** steep
    found = optimum(array(np.repeat(y[..., None], 2, axis=2)), over="rate", dim="width")
    assert (found.intervals[:, 0] <= optima).all()
    assert (optima <= found.intervals[:, 1]).all()
    exponent = np.polyfit(np.log(SIZES), np.log(optima), 1)[0]
    assert found.interval[0] <= exponent <= found.interval[1]


def test_the_interval_beside_a_cliff_holds_the_minimum():
    y = parabolas(np.full(4, 0.5))
    y[:, RATES > 0.5] = 1e30
    found = optimum(array(y), over="rate", dim="width")
    np.testing.assert_allclose(found.optima, 0.5 / np.sqrt(2), rtol=1e-6)
    assert (found.intervals[:, 0] <= 0.5 / np.sqrt(2) * (1 + 1e-9)).all()
    assert (found.intervals[:, 1] >= 0.5 * (1 - 1e-9)).all()
    assert abs(found.exponent) < 1e-9


def test_the_optimum_is_of_the_mean_over_seeds():
    own, bends = np.array([0.1, 0.7]), np.array([0.1, 1.0])
    y = 1 + bends * (LOG[:, None] - np.log(own)) ** 2
    found = optimum(
        array(np.repeat(y[None], 4, axis=0).repeat(6, axis=2)), over="rate", dim="width"
    )
    assert np.log(found.optima[0]) == pytest.approx(bends @ np.log(own) / bends.sum(), abs=1e-9)
    assert np.log(found.optima[0]) - np.log(own).mean() > 0.7


def test_a_size_with_its_optimum_at_a_grid_end_is_left_out():
    optima = np.array([4.0, 0.8, 0.4, 0.2])
    found = optimum(array(parabolas(optima)), over="rate", dim="width")
    assert found.places == ("largest", "inside", "inside", "inside")
    assert np.isnan(found.optima[0])
    assert found.intervals[0, 1] == np.inf
    assert found.exponent == pytest.approx(-1, abs=1e-9)
    assert "without width 16, where it is an end of the grid" in repr(found)
    assert "a better one may lie above" in found.table()

    low = optimum(array(parabolas(np.full(4, 1e-3))), over="rate", dim="width")
    assert low.places == ("smallest",) * 4
    assert (low.intervals[:, 0] == 0).all()
    assert np.isnan(low.exponent)
    assert low.interval == (-np.inf, np.inf)


def test_a_minimum_often_at_the_end_in_resamples_counts_as_end():
    y = parabolas(np.full(4, 0.2))
    y[0] = 2.0
    rng = np.random.default_rng(0)
    y[0, :2] = 1.0 + 0.5 * rng.normal(size=(2, 12))
    y[0, 1] += y[0, 0].mean() - y[0, 1].mean() - 0.01
    found = optimum(array(y), over="rate", dim="width")
    assert found.best[0] == 1
    assert found.places == ("smallest", "inside", "inside", "inside")


def test_a_point_that_is_not_finite_in_one_seed_is_not_the_best():
    y = parabolas(np.full(4, 0.5))
    y[2, RATES >= 0.5, 3] = np.nan
    y[2, RATES >= 0.5, 5] = np.inf
    found = optimum(array(y), over="rate", dim="width")
    assert found.places == ("inside", "inside", "beside divergence", "inside")
    # All that lies between the neighbours of the least point; the vertex of the parabola below it
    # is the true optimum.
    np.testing.assert_allclose(found.intervals[2], [0.125, 0.5], rtol=1e-9)
    assert found.optima[2] == pytest.approx(0.5)
    assert np.isnan(found.means[2, RATES >= 0.5]).all()


def test_batches_and_numbers_of_seeds_of_each_width_are_taken():
    data = noisy(np.random.default_rng(1), 0.9 * SIZES**-0.5, seeds=20)
    batches = optimum(data.rename(seed="batch"), over="rate", dim="width")
    assert batches.optima == pytest.approx(optimum(data, over="rate", dim="width").optima)
    assert batches.resampled == "20 batches"

    few = data.assign_coords(seeds=("width", [20, 20, 20, 12]))
    cut = few.where(few.seed < few.seeds)
    found = optimum(cut, over="rate", dim="width")
    assert np.isfinite(found.means).all()
    last = optimum(data.isel(width=[2, 3], seed=slice(12)), over="rate", dim="width")
    assert found.optima[3] == pytest.approx(last.optima[1])
    assert found.optima[:3] == pytest.approx(batches.optima[:3])


def test_it_prints_in_a_line_and_draws_a_curve_for_each_size():
    found = optimum(noisy(np.random.default_rng(0), 0.9 * SIZES**-0.5), over="rate", dim="width")
    low, high = found.interval
    assert (
        repr(found)
        == f"rate of least loss: exponent {found.exponent:.3g} in width ({low:.3g} to {high:.3g},"
        f" 95 %, bootstrap of 12 seeds and a shift of {found.shift:.2f}); loss there: exponent"
        f" {found.value_exponent:.3g} ({found.value_interval[0]:.3g} to"
        f" {found.value_interval[1]:.3g})"
    )
    assert len(found.table().splitlines()) == 5
    axes = draw_optimum(found)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        f"width {size:g}" for size in SIZES
    ]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    # Powers of ten alone, or with all between them, would be too few or overlap.
    ticks = [float(text.get_text()) for text in axes.get_xticklabels()]
    assert 3 <= len(ticks) <= 8
    assert len(axes.get_xticks(minor=True)) == 0
    plt.close("all")


GOOD = array(parabolas(np.full(4, 0.5)))


WRONG_CALLS = r"""
optimum(GOOD.to_dataset(), "rate", "width")
    got a Dataset; pass a DataArray
optimum(GOOD, "lr", "width")
    needs exactly the dimensions \('width', 'lr', 'seed'\)
optimum(GOOD.isel(rate=slice(2)), "rate", "width")
    at least 3 points along 'rate', got 2
optimum(GOOD.assign_coords(rate=RATES - RATES[0]), "rate", "width")
    in 'rate' needs a coordinate of positive
optimum(GOOD.isel(seed=[0]), "rate", "width")
    needs at least 2 seeds, got 1
optimum(GOOD.where((GOOD.width > 16) & (GOOD.rate < 1)), "rate", "width")
    At width 16 some seed is NaN or infinite at every 'rate' from 0.015625 to 4; sweep other values
    .the largest at which no seed is: 0.5 at width 32
"""


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "match"), wrong_calls(WRONG_CALLS))
def test_data_without_optima_are_refused_in_a_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        eval(call)


def test_few_seeds_are_warned_of():
    with pytest.warns(RoughFitWarning, match="rest on 5 seeds"):
        optimum(noisy(np.random.default_rng(0), np.full(4, 0.5), seeds=5), "rate", "width")


def test_the_optimal_value_has_an_exponent_and_a_stated_bias():
    """Of nine equal rates the least mean is 1.5 standard errors too low, as is known of normals;
    seeds that did not choose are right.
    """
    rng = np.random.default_rng(0)
    sizes, rates, seeds = 2.0 ** np.arange(4, 10), 2.0 ** np.arange(9), 50
    corrected, plain = [], []
    for _ in range(20):
        noise = rng.normal(size=(len(sizes), len(rates), seeds))
        flat = 3 * sizes[:, None, None] ** -0.5 * (1 + 0.2 * noise)
        data = xr.DataArray(
            flat, dims=("d", "rate", "seed"), coords={"d": sizes, "rate": rates}, name="loss"
        )
        found = optimum(data, over="rate", dim="d")
        truth = 3 * sizes**-0.5
        corrected.append(np.mean(found.values / truth) - 1)
        plain.append(np.mean(found.minima / truth) - 1)
    # The expected least of nine standard normals is -1.485.
    assert np.mean(plain) == pytest.approx(-1.485 * 0.2 / np.sqrt(seeds), rel=0.1)
    # 120 means with a standard error of 0.028 each, nearly independent.
    assert abs(np.mean(corrected)) < 4 * 0.2 / np.sqrt(seeds) / np.sqrt(120)


def test_the_exponent_of_the_value_is_that_of_the_law():
    rng = np.random.default_rng(1)
    sizes, rates = 2.0 ** np.arange(4, 10), 2.0 ** np.linspace(-3, 3, 13)
    curve = sizes[:, None] ** -0.5 * (1 + np.log(rates) ** 2)
    data = xr.DataArray(
        curve[..., None] * (1 + 0.1 * rng.normal(size=(6, 13, 40))),
        dims=("d", "rate", "seed"),
        coords={"d": sizes, "rate": rates},
        name="loss",
    )
    found = optimum(data, over="rate", dim="d")
    low, high = found.value_interval
    assert low < -0.5 < high
    assert high - low < 0.1
    assert "; loss there: exponent -0.4" in str(found)
    ends = optimum(data.isel(rate=slice(0, 3)), over="rate", dim="d")
    assert (
        "fewer than two sizes have their least point inside of the grid from 0.125 to 0.25"
        in str(ends)
    )
    assert np.isnan(ends.value_exponent)
