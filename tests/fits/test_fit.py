"""Exponents: exact on exact power laws, equal to independent least squares, and with intervals that
cover under coupling.
"""

import re
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from scipy import stats
from scipy.optimize import curve_fit

from specjax.fits import RoughFitWarning, asymptotic_exponent, draw_fit, fit_offset, fit_power_law
from tests.fits.samples import X, alike, array, coupled, exact, heavy_tailed, independent


def _coupled(rng, seeds=100):
    return coupled(rng, seeds, lambda x: 3 * x**-0.5)


def _independent(rng, seeds=60, curve=lambda x: 2 * x**-1.5):
    return independent(rng, seeds, curve)


def _smooth(errors):
    """The power law through standard deviations."""
    return np.exp(np.polyval(np.polyfit(np.log(X), np.log(errors), 1), np.log(X)))


def test_exact_power_law_is_recovered_without_noise():
    fit = fit_power_law(exact(3 * X**-1.25), "d")
    assert fit.exponent == pytest.approx(-1.25, abs=1e-10)
    assert fit.prefactor == pytest.approx(3, rel=1e-10)
    assert (fit.model, fit.subleading, fit.offset, fit.offset_interval) == (
        "power law",
        0,
        0,
        (0, 0),
    )
    assert fit.prefactor_interval == (fit.prefactor, fit.prefactor)
    assert fit.stderr == 0
    assert fit.interval == (fit.exponent, fit.exponent)
    np.testing.assert_allclose(fit.local_exponents, -1.25, atol=1e-10)
    np.testing.assert_array_equal(fit.local_stderrs, 0)
    np.testing.assert_array_equal(fit.local_intervals, np.stack([fit.local_exponents] * 2, axis=-1))
    np.testing.assert_allclose(fit.predict(np.array([[1.0, 4.0]])), [[3, 3 * 4**-1.25]], rtol=1e-10)


def test_local_exponents_of_a_curve_that_is_no_power_law():
    fit = fit_power_law(exact(X**2 + X), "d")
    expected = [np.log((b**2 + b) / (a**2 + a)) / np.log(2) for a, b in pairwise(X)]
    np.testing.assert_allclose(fit.local_exponents, expected, rtol=1e-12)


def test_widths_may_come_in_any_order_and_dimensions_transposed():
    data = _coupled(np.random.default_rng(1))
    shuffled = data.isel(d=[3, 0, 5, 1, 4, 2]).transpose("seed", "d")
    one, other = fit_power_law(data, "d"), fit_power_law(shuffled, "d")
    assert (one.exponent, one.interval) == (other.exponent, other.interval)
    np.testing.assert_array_equal(other.widths, X)


def test_means_are_taken_in_float64():
    y = (1 + 1e-3 * np.random.default_rng(2).normal(size=(2, 20_000))).astype(np.float32)
    with pytest.warns(RoughFitWarning, match="A fit to 2 points along 'd'"):
        fit = fit_power_law(array(y, X[:2]), "d", resamples=100)
    np.testing.assert_allclose(fit.means, y.astype(np.float64).mean(axis=1), rtol=1e-14)


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_two_widths_have_the_interval_of_their_log_ratio(level):
    """With two widths b is a difference of two log means, whose standard error follows from the two
    variances.
    """
    rng = np.random.default_rng(3)
    y = np.array([[2.0], [1.0]]) * (1 + 0.3 * rng.normal(size=(2, 2000)))
    with pytest.warns(RoughFitWarning, match="sweep at least 4"):
        fit = fit_power_law(array(y, X[:2]), "d", level=level, resamples=2000)
    variance = sum(np.var(row, ddof=1) / 2000 / row.mean() ** 2 for row in y)
    stderr = np.sqrt(variance) / np.log(2)
    assert fit.stderr == pytest.approx(stderr, rel=0.08)  # 5 standard errors of 2000 resamples
    width = {0.95: 3.92, 0.5: 1.349}[level] * stderr
    assert fit.interval[1] - fit.interval[0] == pytest.approx(width, rel=0.12)
    np.testing.assert_allclose(fit.local_intervals[0], fit.interval, rtol=1e-9)


def test_plain_fit_is_numpy_weighted_polyfit():
    data = _independent(np.random.default_rng(4))
    mean, stderr = data.values.mean(axis=1), data.values.std(axis=1, ddof=1) / np.sqrt(60)
    slope, intercept = np.polyfit(np.log(X), np.log(mean), 1, w=1 / _smooth(stderr / mean))
    fit = fit_power_law(data, "d")
    assert fit.exponent == pytest.approx(slope, rel=1e-9)
    assert fit.prefactor == pytest.approx(np.exp(intercept), rel=1e-9)
    assert (
        abs(fit.exponent - np.polyfit(np.log(X), np.log(mean), 1)[0]) > 1e-3
    )  # the weights matter here
    np.testing.assert_allclose(fit.stderrs, stderr, rtol=1e-12)


def test_subleading_fit_is_scipy_curve_fit():
    data = _independent(
        np.random.default_rng(5), seeds=2000, curve=lambda x: 3 * x**2 * (1 + 20 / x)
    )
    mean, stderr = data.values.mean(axis=1), data.values.std(axis=1, ddof=1) / np.sqrt(2000)
    (a, b, c), _ = curve_fit(
        lambda x, log_a, b, c: log_a + b * np.log(x) + np.log1p(c / x),
        X,
        np.log(mean),
        p0=(np.log(3), 2, 20),
        sigma=_smooth(stderr / mean),
        xtol=1e-14,
        ftol=1e-14,
    )
    fit = fit_power_law(data, "d", subleading=True, resamples=100)
    assert fit.exponent == pytest.approx(b, rel=1e-6)
    assert fit.subleading == pytest.approx(c, rel=1e-5)
    assert fit.prefactor == pytest.approx(np.exp(a), rel=1e-5)


@pytest.mark.parametrize("c", [7.0, -7.0, -15.0, 300.0])
def test_a_subleading_term_is_recovered_if_plain_fits_are_biased(c):
    data = exact(3 * X**2 * (1 + c / X))
    fit = fit_power_law(data, "d", subleading=True)
    assert fit.exponent == pytest.approx(2, abs=1e-7)
    assert fit.subleading == pytest.approx(c, rel=1e-6)
    assert fit.prefactor == pytest.approx(3, rel=1e-6)
    np.testing.assert_allclose(fit.predict(X), data.values[:, 0], rtol=1e-8)
    assert abs(fit_power_law(data, "d").exponent - 2) > 0.03


def test_fit_to_means_of_equal_precision_is_the_normal_equations():
    """Relative noise of one size at all widths has no effect on a weighted fit: it is the
    least-squares line.
    """
    data = 3 * array(X[:, None] ** -0.5 * np.exp(alike(lambda x: 0 * x).values))
    spread = data.values.std(axis=1) / data.values.mean(axis=1)
    np.testing.assert_allclose(spread, spread[0], rtol=1e-12)
    design = np.stack([np.ones(6), np.log(X)], axis=1)
    log_prefactor, exponent = np.linalg.solve(
        design.T @ design, design.T @ np.log(data.values.mean(axis=1))
    )
    fit = fit_power_law(data, "d")
    assert fit.exponent == pytest.approx(exponent, rel=1e-12)
    assert fit.prefactor == pytest.approx(np.exp(log_prefactor), rel=1e-12)


def test_noisy_fit_lies_within_its_error_of_the_truth():
    fit = fit_power_law(_coupled(np.random.default_rng(6), seeds=400), "d")
    assert 0 < fit.stderr < 0.01
    assert abs(fit.exponent + 0.5) < 4 * fit.stderr
    assert (np.abs(fit.local_exponents + 0.5) < 4 * fit.local_stderrs).all()
    assert (fit.local_intervals[:, 0] < fit.local_exponents).all()
    assert (fit.local_exponents < fit.local_intervals[:, 1]).all()


@pytest.mark.integration
def test_intervals_cover_under_coupling():
    rng = np.random.default_rng(7)
    fits = [fit_power_law(_coupled(rng, seeds=60), "d", resamples=400) for _ in range(300)]
    covered = np.mean([fit.interval[0] <= -0.5 <= fit.interval[1] for fit in fits])
    assert 0.90 <= covered <= 0.99


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore:The intervals of 'y' rest on 8 seeds")
def test_intervals_cover_with_few_seeds():
    """With 8 seeds a plain percentile interval covers about 86 %; the expanded one makes up for
    most of it.
    """
    rng = np.random.default_rng(8)
    fits = [fit_power_law(_coupled(rng, seeds=8), "d", resamples=400) for _ in range(400)]
    covered = np.mean([fit.interval[0] <= -0.5 <= fit.interval[1] for fit in fits])
    assert 0.90 <= covered <= 0.99


@pytest.mark.integration
def test_bootstrap_error_is_right_where_independence_is_wrong():
    rng = np.random.default_rng(9)
    fits = [fit_power_law(_coupled(rng), "d", resamples=200) for _ in range(300)]
    true = np.std([fit.exponent for fit in fits], ddof=1)
    bootstrap = np.mean([fit.stderr for fit in fits])
    assert bootstrap == pytest.approx(true, rel=0.15)  # the standard error of `true` is 4 %
    log_x = np.log(X)
    first = fits[0]
    weights = (first.means / first.stderrs) ** 2
    center = np.sum(weights * log_x) / np.sum(weights)
    independent = 1 / np.sqrt(np.sum(weights * (log_x - center) ** 2))
    assert independent > 2 * true


def test_a_width_without_spread_has_the_weight_of_neighbours():
    y = _independent(np.random.default_rng(10)).values
    y[2] = y[2].mean()
    fit = fit_power_law(array(y), "d")
    relative = y.std(axis=1, ddof=1) / y.mean(axis=1)
    others = np.delete(np.arange(6), 2)
    line = np.polyfit(np.log(X[others]), np.log(relative[others]), 1)
    slope, _ = np.polyfit(
        np.log(X), np.log(y.mean(axis=1)), 1, w=np.exp(-np.polyval(line, np.log(X)))
    )
    assert fit.exponent == pytest.approx(slope, rel=1e-9)


@pytest.mark.integration
def test_weights_do_not_follow_the_noise_of_each_width():
    """Of skewed noise a mean that came out high has a high variance; weights by that variance put
    the curve low.
    """
    rng = np.random.default_rng(26)
    ours, own = [], []
    for _ in range(200):
        data = heavy_tailed(rng, 60, lambda x: 3 * x**-0.5)
        ours.append(np.log(fit_power_law(data, "d", resamples=100).predict(64.0) / (3 / 8)))
        means, spread = data.values.mean(axis=1), data.values.std(axis=1, ddof=1)
        line = np.polyfit(np.log(X), np.log(means), 1, w=means / spread)
        own.append(np.polyval(line, np.log(64.0)) - np.log(3 / 8))
    assert np.mean(own) < -5 * np.std(own) / np.sqrt(200)
    gained = np.array(ours) - own
    assert np.mean(gained) > 4 * np.std(gained) / np.sqrt(200)
    assert np.mean(gained) > 0.4 * abs(np.mean(own))


def test_resampling_is_fixed_by_its_seed():
    data = _coupled(np.random.default_rng(11))
    assert fit_power_law(data, "d").interval == fit_power_law(data, "d").interval
    assert fit_power_law(data, "d").interval != fit_power_law(data, "d", seed=1).interval


def test_asymptotic_exponent_covers_a_second_subleading_term():
    fit = asymptotic_exponent(exact(X**-1 * (1 + 4 / X + 30 / X**2)), "d")
    assert fit.stderr == 0
    assert abs(fit.exponent + 1) > 1e-4
    assert fit.interval[0] < -1 < fit.interval[1]
    assert fit.interval[1] - fit.interval[0] == pytest.approx(2 * abs(fit.shift))


def test_a_term_that_grows_is_not_subleading():
    # x² (1 + c/x) with c beyond every width is x¹ for all purposes: the fit must say 1, not 2.
    nearly_linear = X * (1 + 0.001 * np.sin(X))
    assert fit_power_law(exact(nearly_linear), "d", subleading=True).exponent == pytest.approx(
        1, abs=0.02
    )


def test_asymptotic_exponent_adds_noise_and_shift():
    data = _coupled(np.random.default_rng(12), seeds=2000)
    data = data * (1 + 10 / data["d"])
    fit = asymptotic_exponent(data, "d")
    whole = fit_power_law(data, "d", subleading=True)
    rest = fit_power_law(data.isel(d=slice(1, None)), "d", subleading=True)
    assert (fit.exponent, fit.stderr) == pytest.approx((rest.exponent, rest.stderr), rel=1e-12)
    assert fit.shift == pytest.approx(rest.exponent - whole.exponent, abs=1e-8)
    half = 4 * rest.stderr + abs(fit.shift)
    assert fit.interval == pytest.approx((rest.exponent - half, rest.exponent + half))
    assert fit.interval[0] < -0.5 < fit.interval[1]


def test_refusals_of_shape_and_size():
    data = _coupled(np.random.default_rng(13))
    with pytest.raises(
        ValueError,
        match=r"exactly the dimensions \('d', 'seed'\) or \('d', 'batch'\), got \('lr', ",
    ):
        fit_power_law(data.expand_dims(lr=2), "d")
    with pytest.raises(ValueError, match="exactly the dimensions"):
        fit_power_law(data.mean("seed"), "d")
    with pytest.raises(ValueError, match="at least 2 points along 'd', got 1"):
        fit_power_law(data.isel(d=[0]), "d")
    with pytest.raises(ValueError, match="at least 4 points along 'd', got 3"):
        fit_power_law(data.isel(d=slice(3)), "d", subleading=True)
    with pytest.raises(ValueError, match="at least 5 points along 'd', got 4"):
        asymptotic_exponent(data.isel(d=slice(4)), "d")
    with pytest.raises(ValueError, match="at least 2 seeds, got 1"):
        fit_power_law(data.isel(seed=[0]), "d")
    with pytest.raises(ValueError, match="positive, different numbers"):
        fit_power_law(data.assign_coords(d=X - 16), "d")
    with pytest.raises(ValueError, match="positive, different numbers"):
        fit_power_law(data.drop_vars("d"), "d")
    with pytest.raises(ValueError, match="at least 100 resamples, got 10"):
        fit_power_law(data, "d", resamples=10)
    with pytest.raises(ValueError, match=r"level needs to be between 0 and 1, got 95\.0"):
        fit_power_law(data, "d", level=95.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_failed_seeds_are_named(bad):
    data = _coupled(np.random.default_rng(14))
    data[2, 17] = bad
    data[4, 31] = bad
    with pytest.raises(ValueError, match=r"2 seeds .*\[17, 31\].*without_failed"):
        fit_power_law(data, "d")


def test_means_that_have_no_logarithm_are_refused():
    data = _coupled(np.random.default_rng(15))
    with pytest.raises(ValueError, match=r"'y' has mean -.* at d=16; fit minus the data"):
        fit_power_law(-data, "d")
    y = data.values.copy()
    y[3] += (
        5 * np.abs(y[3]).max() * np.random.default_rng(16).permuted(np.repeat([-1, 1], 50))
        - 0.99 * y[3].mean()
    )
    with pytest.raises(ValueError, match=r"at d=128 is within noise of zero.*more seeds"):
        fit_power_law(array(y), "d")


def test_an_undetermined_subleading_term_is_refused():
    # Vanishing at the smallest width and a power law beyond it: c runs to -16.
    with pytest.raises(ValueError, match="do not determine a subleading term of 'y'"):
        fit_power_law(exact(np.where(np.arange(6) == 0, 1e-8, 1.0) * X), "d", subleading=True)


def test_fits_say_when_they_are_rough():
    data = _coupled(np.random.default_rng(17), seeds=9)
    with pytest.warns(
        RoughFitWarning,
        match=r"of .data. rest on 9 seeds, and below 10 they are rough; run more seeds",
    ):
        asymptotic_exponent(data * (1 + 1 / data["d"]), "d")
    with pytest.warns(
        RoughFitWarning, match="rest on 9 batches, .* cut the seeds into more batches"
    ):
        fit_power_law(data.rename(seed="batch"), "d", resamples=100)
    with pytest.warns(RoughFitWarning, match="A fit to 3 points along 'd' cannot show"):
        fit_power_law(array(np.repeat(X[:3, None], 20, axis=1), X[:3]), "d")


def _ragged(data, counts):
    """`data` of which each width has its own number of seeds."""
    there = data["seed"] < xr.DataArray(counts, dims="d")
    return data.where(there).transpose(*data.dims).assign_coords(seeds=("d", counts))


COUNTS = [400, 400, 200, 100, 40, 12]


def test_each_width_may_have_its_own_seeds():
    whole = _independent(np.random.default_rng(18), seeds=400)
    fit = fit_power_law(_ragged(whole, COUNTS), "d")
    means = np.array([row[:n].mean() for row, n in zip(whole.values, COUNTS, strict=True)])
    stderrs = np.array(
        [row[:n].std(ddof=1) / np.sqrt(n) for row, n in zip(whole.values, COUNTS, strict=True)]
    )
    np.testing.assert_allclose(fit.means, means, rtol=1e-13)
    np.testing.assert_allclose(fit.stderrs, stderrs, rtol=1e-12)
    assert fit.exponent == pytest.approx(
        np.polyfit(
            np.log(X),
            np.log(means),
            1,
            w=np.sqrt(COUNTS) / _smooth(stderrs / means * np.sqrt(COUNTS)),
        )[0],
        rel=1e-9,
    )
    # The last local exponent is a difference of independent log means, most of whose variance is
    # from 12 seeds.
    variance = np.sum((stderrs[-2:] / means[-2:]) ** 2)
    assert fit.local_stderrs[-1] == pytest.approx(np.sqrt(variance) / np.log(2), rel=0.15)
    assert 11 < fit.freedom < 399
    reversed_ = _ragged(whole, COUNTS).isel(d=slice(None, None, -1))
    assert fit_power_law(reversed_, "d").interval == pytest.approx(fit.interval, rel=1e-12)
    assert (
        asymptotic_exponent(_ragged(whole, COUNTS), "d").stderr
        > asymptotic_exponent(whole, "d").stderr
    )


def test_the_coupling_of_the_seeds_that_two_widths_share_is_kept():
    """Two widths with n₁ > n₂ seeds of correlation ρ: the variance of their difference has
    -2ρσ₁σ₂/n₁.
    """
    data = _coupled(np.random.default_rng(19), seeds=400)
    y = data.values
    fit = fit_power_law(_ragged(data, [400, 400, 400, 400, 400, 200]), "d", resamples=4000)
    relative = [y[4] / y[4].mean(), y[5, :200] / y[5, :200].mean()]
    shared = np.cov(relative[0][:200], relative[1])[0, 1]
    variance = (
        np.var(relative[0], ddof=1) / 400 + np.var(relative[1], ddof=1) / 200 - 2 * shared / 400
    )
    assert fit.local_stderrs[-1] == pytest.approx(
        np.sqrt(variance) / np.log(2), rel=0.06
    )  # 5 standard errors


@pytest.mark.integration
def test_intervals_cover_where_widths_have_their_own_seeds():
    rng = np.random.default_rng(20)
    fits = [
        fit_power_law(
            _ragged(_coupled(rng, seeds=80), [80, 80, 40, 40, 20, 10]), "d", resamples=300
        )
        for _ in range(200)
    ]
    covered = np.mean([fit.interval[0] <= -0.5 <= fit.interval[1] for fit in fits])
    assert 0.90 <= covered <= 0.99


def test_what_a_width_lacks_is_absent_and_what_it_has_is_finite():
    data = _ragged(_independent(np.random.default_rng(21), seeds=400), COUNTS)
    data[5, 7] = np.nan
    with pytest.raises(ValueError, match=r"1 seeds have NaN or inf \(the first: \[7\]\)"):
        fit_power_law(data, "d")
    with pytest.raises(ValueError, match=r"at least 2 seeds, got 1"):
        fit_power_law(data.isel(seed=slice(11, None)), "d")
    # Without the coordinate absent and failed seeds look the same.
    with pytest.raises(ValueError, match="389 seeds have NaN"):
        fit_power_law(data.isel(d=[0, 1, 2, 5]).drop_vars("seeds"), "d")


def test_batches_are_replicates():
    data = _coupled(np.random.default_rng(22), seeds=600)
    batches = array(data.values.reshape(6, 20, 30).mean(axis=2)).rename(seed="batch")
    one, other = fit_power_law(data, "d"), fit_power_law(batches, "d")
    np.testing.assert_allclose(one.means, other.means, rtol=1e-12)
    assert other.freedom == 19
    assert one.stderr / 2 < other.stderr < one.stderr * 2
    limit = asymptotic_exponent(batches, "d")
    assert limit.interval[0] < -0.5 < limit.interval[1]


def test_band_of_two_widths_is_that_of_their_means():
    """At a width itself the curve through two points is the mean there, whose interval follows from
    its standard error.
    """
    y = np.array([[2.0], [1.0]]) * (1 + 0.3 * np.random.default_rng(23).normal(size=(2, 2000)))
    with pytest.warns(RoughFitWarning):
        fit = fit_power_law(array(y, X[:2]), "d", resamples=4000)
    low, high = fit.band(X[:2])
    np.testing.assert_allclose((high - low) / 2, 1.96 * fit.stderrs, rtol=0.1)
    np.testing.assert_allclose((high + low) / 2, fit.means, atol=0.3 * fit.stderrs.min())
    wide = fit.band(X[:2], simultaneous=True)
    with pytest.warns(RoughFitWarning):
        narrow = fit_power_law(array(y, X[:2]), "d", level=0.5).band(X[:2])
    assert (narrow[1] - narrow[0] < 0.45 * (high - low)).all()
    # Two independent intervals hold together at 95 % if each does at √0.95: 2.236 standard errors.
    np.testing.assert_allclose((wide[1] - wide[0]) / 2, 2.236 * fit.stderrs, rtol=0.1)


def test_bands_hold_the_curve_and_widen_away_from_the_data():
    fit = fit_power_law(_independent(np.random.default_rng(24)), "d")
    x = np.array([[8.0, 64.0], [512.0, 1e6]])
    low, high = fit.band(x)
    assert low.shape == high.shape == x.shape
    assert ((low < fit.predict(x)) & (fit.predict(x) < high)).all()
    ratio = high / low
    assert ratio[0, 1] < ratio[1, 0] < ratio[1, 1]
    together = fit.band(x, simultaneous=True)
    assert ((together[0] < low) & (high < together[1])).all()
    noiseless = fit_power_law(exact(3 * X**-1.25), "d")
    for end in noiseless.band(X, simultaneous=True):
        np.testing.assert_allclose(end, 3 * X**-1.25, rtol=1e-9)
    with pytest.raises(ValueError, match="positive x"):
        fit.band(0.0)
    negative = fit_power_law(exact(X * (1 - 7 / X)), "d", subleading=True)
    with pytest.raises(ValueError, match="as large as the leading one at d=5"):
        negative.band(np.array([5.0, 20.0]))


@pytest.fixture
def agg():
    mpl.use("Agg")
    yield
    mpl.pyplot.close("all")


@pytest.mark.usefixtures("agg")
def test_plot_shows_data_curve_band_and_interval():
    data = _coupled(np.random.default_rng(25)).assign_attrs(units="m")
    fit = fit_power_law(data, "d")
    ax = draw_fit(fit)
    assert draw_fit(fit, ax) is ax
    (bars, *_), curve = ax.containers[0], ax.lines[-1]
    np.testing.assert_array_equal(bars.get_ydata(), fit.means)
    np.testing.assert_allclose(curve.get_ydata(), fit.predict(curve.get_xdata()))
    low, high = fit.band(X)
    area = ax.collections[-1].get_paths()[0]
    for x, y, inside in [
        (100.0, fit.predict(100.0), True),
        (16.0, 1.01 * high[0], False),
        (512.0, 0.99 * low[-1], False),
    ]:
        assert area.contains_point((x, float(y))) is inside
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert (
        f"exponent {fit.exponent:.3f}, 95 % in [{fit.interval[0]:.3f}, {fit.interval[1]:.3f}]"
        in legend
    )
    assert (ax.get_xscale(), ax.get_yscale(), ax.get_xlabel(), ax.get_ylabel()) == (
        "log",
        "log",
        "d",
        "y [m]",
    )


def test_fits_print_in_one_line():
    data = coupled(np.random.default_rng(0), 400, lambda x: 3 * x**0.5)
    fit = fit_power_law(data, "d")
    low, high = fit.interval
    line = (
        f"exponent {fit.exponent:.3g} ({low:.3g} to {high:.3g}, 95 %, bootstrap of 400 seeds), R² "
    )
    assert str(fit).startswith(line)
    assert repr(fit) == str(fit)
    batched = fit_power_law(data.rename(seed="batch").isel(batch=slice(40)), "d")
    assert "bootstrap of 40 batches" in str(batched)
    assert (
        str(fit_power_law(exact(X**0.5), "d")) == "exponent 0.5 (0.5 to 0.5, no seed noise), R² 1"
    )
    above = fit_offset(coupled(np.random.default_rng(0), 400, lambda x: 1 + 30 / x), "d")
    assert re.fullmatch(
        r"offset \S+ \(\S+ to \S+\), exponent -\S+ \(\S+ to \S+, 95 %, bootstrap of 400 seeds\),"
        r" R² .*",
        str(above),
    )
    at_infinity = asymptotic_exponent(data, "d")
    assert re.fullmatch(
        r"exponent \S+ \(\S+ to \S+, 4 standard errors and a shift of .*\), R² \S+",
        str(at_infinity),
    )


def test_r_squared_is_that_of_the_line_through_log_means():
    """Without seed noise all means have the same weight, and R² is the square of Pearson's
    correlation.
    """
    means = heavy_tailed(np.random.default_rng(0), 60, lambda x: 3 * x**0.5).mean("seed").values
    correlation = stats.pearsonr(np.log(X), np.log(means))[0]
    assert fit_power_law(exact(means), "d").r_squared == pytest.approx(correlation**2)
