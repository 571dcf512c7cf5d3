"""Exponents: exact on exact power laws, equal to independent least squares, and with intervals that cover under coupling."""

from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import curve_fit

from specjax.sweep import asymptotic_exponent, fit_power_law

X = np.array([16.0, 32.0, 64.0, 128.0, 256.0, 512.0])


def _array(y, x=X):
    """`y` of shape (widths, seeds) as a sweep gives it."""
    return xr.DataArray(y, dims=("d", "seed"), coords={"d": x, "seed": np.arange(y.shape[1])}, name="y")


def _exact(y, seeds=2):
    return _array(np.repeat(np.asarray(y)[:, None], seeds, axis=1))


def _coupled(rng, seeds=100, exponent=-0.5, x=X):
    """A power law whose seeds move all widths together by 50 % and each alone by 5 %, with mean exactly 3 x^exponent."""
    shared, own = rng.normal(size=seeds), rng.normal(size=(len(x), seeds))
    return _array(3 * x[:, None] ** exponent * np.exp(0.5 * shared - 0.125 + 0.05 * own - 0.00125), x)


def _independent(rng, seeds=60, curve=lambda x: 2 * x**-1.5):
    """Noise that differs between widths, so that weights matter."""
    relative = np.linspace(0.1, 0.9, len(X))[:, None]
    return _array(curve(X)[:, None] * (1 + relative * rng.uniform(-1, 1, size=(len(X), seeds))))


def test_exact_power_law_is_recovered_without_noise():
    fit = fit_power_law(_exact(3 * X**-1.25), "d")
    assert fit.exponent == pytest.approx(-1.25, abs=1e-10)
    assert fit.prefactor == pytest.approx(3, rel=1e-10)
    assert fit.subleading is None
    assert fit.stderr == 0
    assert fit.interval == (fit.exponent, fit.exponent)
    np.testing.assert_allclose(fit.local_exponents, -1.25, atol=1e-10)
    np.testing.assert_array_equal(fit.local_stderrs, 0)
    np.testing.assert_array_equal(fit.local_intervals, np.stack([fit.local_exponents] * 2, axis=-1))
    np.testing.assert_allclose(fit.predict(np.array([[1.0, 4.0]])), [[3, 3 * 4**-1.25]], rtol=1e-10)


def test_local_exponents_of_a_curve_that_is_no_power_law():
    fit = fit_power_law(_exact(X**2 + X), "d")
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
    fit = fit_power_law(_array(y, X[:2]), "d", resamples=100)
    np.testing.assert_allclose(fit.means, y.astype(np.float64).mean(axis=1), rtol=1e-14)


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_two_widths_have_the_interval_of_their_log_ratio(level):
    """With two widths b is a difference of two log means, whose standard error follows from the two variances."""
    rng = np.random.default_rng(3)
    y = np.array([[2.0], [1.0]]) * (1 + 0.3 * rng.normal(size=(2, 2000)))
    fit = fit_power_law(_array(y, X[:2]), "d", level=level, resamples=2000)
    variance = sum(np.var(row, ddof=1) / 2000 / row.mean() ** 2 for row in y)
    stderr = np.sqrt(variance) / np.log(2)
    assert fit.stderr == pytest.approx(stderr, rel=0.08)  # 5 standard errors of 2000 resamples
    width = {0.95: 3.92, 0.5: 1.349}[level] * stderr
    assert fit.interval[1] - fit.interval[0] == pytest.approx(width, rel=0.12)
    np.testing.assert_allclose(fit.local_intervals[0], fit.interval, rtol=1e-9)


def test_plain_fit_is_numpy_weighted_polyfit():
    data = _independent(np.random.default_rng(4))
    mean, stderr = data.values.mean(axis=1), data.values.std(axis=1, ddof=1) / np.sqrt(60)
    slope, intercept = np.polyfit(np.log(X), np.log(mean), 1, w=mean / stderr)
    fit = fit_power_law(data, "d")
    assert fit.exponent == pytest.approx(slope, rel=1e-9)
    assert fit.prefactor == pytest.approx(np.exp(intercept), rel=1e-9)
    assert abs(fit.exponent - np.polyfit(np.log(X), np.log(mean), 1)[0]) > 1e-3  # the weights matter here
    np.testing.assert_allclose(fit.stderrs, stderr, rtol=1e-12)


def test_subleading_fit_is_scipy_curve_fit():
    data = _independent(np.random.default_rng(5), curve=lambda x: 3 * x**2 * (1 + 20 / x))
    mean, stderr = data.values.mean(axis=1), data.values.std(axis=1, ddof=1) / np.sqrt(60)
    (a, b, c), _ = curve_fit(
        lambda x, log_a, b, c: log_a + b * np.log(x) + np.log1p(c / x),
        X,
        np.log(mean),
        p0=(np.log(3), 2, 20),
        sigma=stderr / mean,
        xtol=1e-14,
        ftol=1e-14,
    )
    fit = fit_power_law(data, "d", subleading=True, resamples=100)
    assert fit.exponent == pytest.approx(b, rel=1e-6)
    assert fit.subleading == pytest.approx(c, rel=1e-5)
    assert fit.prefactor == pytest.approx(np.exp(a), rel=1e-5)


@pytest.mark.parametrize("c", [7.0, -7.0, -15.0, 300.0])
def test_subleading_term_is_recovered_where_the_plain_fit_is_biased(c):
    data = _exact(3 * X**2 * (1 + c / X))
    fit = fit_power_law(data, "d", subleading=True)
    assert fit.exponent == pytest.approx(2, abs=1e-7)
    assert fit.subleading == pytest.approx(c, rel=1e-6)
    assert fit.prefactor == pytest.approx(3, rel=1e-6)
    np.testing.assert_allclose(fit.predict(X), data.values[:, 0], rtol=1e-8)
    assert abs(fit_power_law(data, "d").exponent - 2) > 0.03


def test_noisy_fit_lies_within_its_error_of_the_truth():
    fit = fit_power_law(_coupled(np.random.default_rng(6), seeds=400), "d")
    assert 0 < fit.stderr < 0.01
    assert abs(fit.exponent + 0.5) < 4 * fit.stderr
    assert (np.abs(fit.local_exponents + 0.5) < 4 * fit.local_stderrs).all()
    assert (fit.local_intervals[:, 0] < fit.local_exponents).all()
    assert (fit.local_exponents < fit.local_intervals[:, 1]).all()


def test_intervals_cover_under_coupling():
    rng = np.random.default_rng(7)
    fits = [fit_power_law(_coupled(rng, seeds=60), "d", resamples=400) for _ in range(300)]
    covered = np.mean([fit.interval[0] <= -0.5 <= fit.interval[1] for fit in fits])
    assert 0.90 <= covered <= 0.99


def test_intervals_cover_with_few_seeds():
    """With 8 seeds a plain percentile interval covers about 86 %; the expanded one makes up for most of it."""
    rng = np.random.default_rng(8)
    fits = [fit_power_law(_coupled(rng, seeds=8), "d", resamples=400) for _ in range(400)]
    covered = np.mean([fit.interval[0] <= -0.5 <= fit.interval[1] for fit in fits])
    assert 0.90 <= covered <= 0.99


def test_bootstrap_error_is_the_true_one_where_the_independent_formula_is_not():
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


def test_a_width_without_spread_is_weighted_as_the_most_precise():
    y = _independent(np.random.default_rng(10)).values
    y[2] = y[2].mean()
    fit = fit_power_law(_array(y), "d")
    relative = y.std(axis=1, ddof=1) / y.mean(axis=1)
    relative[2] = np.min(np.delete(relative, 2))
    slope, _ = np.polyfit(np.log(X), np.log(y.mean(axis=1)), 1, w=1 / relative)
    assert fit.exponent == pytest.approx(slope, rel=1e-9)


def test_resampling_is_fixed_by_its_seed():
    data = _coupled(np.random.default_rng(11))
    assert fit_power_law(data, "d").interval == fit_power_law(data, "d").interval
    assert fit_power_law(data, "d").interval != fit_power_law(data, "d", seed=1).interval


def test_asymptotic_exponent_covers_a_second_subleading_term():
    fit = asymptotic_exponent(_exact(X**-1 * (1 + 4 / X + 30 / X**2)), "d")
    assert fit.stderr == 0
    assert abs(fit.exponent + 1) > 1e-4
    assert fit.interval[0] < -1 < fit.interval[1]
    assert fit.interval[1] - fit.interval[0] == pytest.approx(2 * abs(fit.shift))


def test_a_term_that_grows_is_not_subleading():
    # x² (1 + c/x) with c beyond every width is x¹ for all purposes: the fit must say 1, not 2.
    nearly_linear = X * (1 + 0.001 * np.sin(X))
    assert fit_power_law(_exact(nearly_linear), "d", subleading=True).exponent == pytest.approx(1, abs=0.02)


def test_asymptotic_exponent_adds_noise_and_shift():
    data = _coupled(np.random.default_rng(12), seeds=2000)
    data = data * (1 + 10 / data["d"])
    fit = asymptotic_exponent(data, "d")
    whole = fit_power_law(data, "d", subleading=True)
    rest = fit_power_law(data.isel(d=slice(1, None)), "d", subleading=True)
    assert (fit.exponent, fit.stderr) == (rest.exponent, rest.stderr)
    assert fit.shift == pytest.approx(rest.exponent - whole.exponent, abs=1e-8)
    half = 4 * rest.stderr + abs(fit.shift)
    assert fit.interval == pytest.approx((rest.exponent - half, rest.exponent + half))
    assert fit.interval[0] < -0.5 < fit.interval[1]


def test_refusals_of_shape_and_size():
    data = _coupled(np.random.default_rng(13))
    with pytest.raises(ValueError, match=r"exactly the dimensions \('d', 'seed'\), got \('lr', 'd', 'seed'\)"):
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
    y[3] += 5 * np.abs(y[3]).max() * np.random.default_rng(16).permuted(np.repeat([-1, 1], 50)) - 0.99 * y[3].mean()
    with pytest.raises(ValueError, match=r"at d=128 is within noise of zero.*more seeds"):
        fit_power_law(_array(y), "d")


def test_an_undetermined_subleading_term_is_refused():
    # Vanishing at the smallest width and a power law beyond it: c runs to -16.
    with pytest.raises(ValueError, match="do not determine a subleading term of 'y'"):
        fit_power_law(_exact(np.where(np.arange(6) == 0, 1e-8, 1.0) * X), "d", subleading=True)
