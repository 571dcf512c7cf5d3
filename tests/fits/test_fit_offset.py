"""The fit of y = E + A xᵇ: exact on exact data, equal to scipy's, honest about an offset of zero,
and refused where undetermined.
"""

import matplotlib as mpl
import numpy as np
import pytest
from scipy.optimize import curve_fit

from specjax.fits import draw_fit, fit_offset, fit_power_law
from specjax.fits._regression import fit_curve, rise
from tests.fits.samples import X, alike, array, coupled, exact, independent


def _above_one(x):
    return 1 + 30 / x


@pytest.mark.parametrize(
    ("offset", "prefactor", "exponent"), [(1, 30, -1), (-2, -5, -0.4), (0, 3, -2.5), (7, 1e-3, 1.5)]
)
def test_exact_curves_are_recovered_without_noise(offset, prefactor, exponent):
    y = offset + prefactor * X**exponent
    fit = fit_offset(exact(y), "d")
    assert fit.exponent == pytest.approx(exponent, rel=1e-7)
    assert fit.offset == pytest.approx(offset, rel=1e-6, abs=1e-8)
    assert fit.prefactor == pytest.approx(prefactor, rel=1e-6)
    assert fit.stderr == 0
    assert fit.interval == (fit.exponent, fit.exponent)
    assert fit.offset_interval == (fit.offset, fit.offset)
    np.testing.assert_allclose(fit.predict(X[None]), y[None], rtol=1e-8)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(fit.local_exponents, np.diff(np.log(y)) / np.log(2), rtol=1e-9)
    np.testing.assert_allclose(fit.band(X), [y, y], rtol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_fit_is_scipy_curve_fit(weighted):
    data = independent(np.random.default_rng(1), 400, _above_one) if weighted else alike(_above_one)
    means, stderrs = (
        data.values.mean(axis=1),
        data.values.std(axis=1, ddof=1) / np.sqrt(data.sizes["seed"]),
    )
    (offset, prefactor, exponent), _ = curve_fit(
        lambda x, e, a, b: e + a * x**b,
        X,
        means,
        p0=(1, 30, -1),
        sigma=(
            np.exp(np.polyval(np.polyfit(np.log(X), np.log(stderrs), 1), np.log(X)))
            if weighted
            else None
        ),
        xtol=1e-14,
        ftol=1e-14,
    )
    fit = fit_offset(data, "d", resamples=100)
    assert fit.exponent == pytest.approx(exponent, rel=1e-6)
    assert fit.offset == pytest.approx(offset, rel=1e-6)
    assert fit.prefactor == pytest.approx(prefactor, rel=1e-6)
    assert abs(fit.exponent + 1) > 1e-3


def test_the_basis_is_smooth_through_the_logarithm():
    """At b = 0 the curve is a line in log x; the best of the curves is found there as elsewhere,
    with E and A infinite.
    """
    b = np.array([-1e-6, -1e-13, 0.0, 1e-6])
    np.testing.assert_allclose(rise(X, b), np.tile(np.log(X / 16) / np.log(32), (4, 1)), atol=1e-5)
    y = 3 + 2 * np.log(X)
    curve = fit_curve(X, y[None], np.ones((1, 6)))
    assert abs(curve.exponent[0]) < 1e-6
    steep = 5 + X**-0.01
    assert fit_curve(X, steep[None], np.ones((1, 6))).exponent[0] == pytest.approx(-0.01, rel=1e-4)


def test_an_offset_of_zero_is_within_its_interval():
    fit = fit_offset(coupled(np.random.default_rng(2), 200, lambda x: 30 / x), "d")
    assert fit.offset_interval[0] < 0 < fit.offset_interval[1]
    assert fit.offset_interval[1] < 0.05
    assert fit.interval[0] < -1 < fit.interval[1]
    assert fit.prefactor_interval[0] < 30 < fit.prefactor_interval[1]
    other = fit_offset(coupled(np.random.default_rng(2), 200, _above_one), "d")
    assert 0.8 < other.offset_interval[0] < 1 < other.offset_interval[1] < 1.2
    # The power law without an offset has an exponent that is nowhere near.
    assert fit_power_law(coupled(np.random.default_rng(2), 200, _above_one), "d").exponent > -0.6


def test_means_need_not_be_positive():
    data = coupled(np.random.default_rng(3), 100, _above_one)
    below = fit_offset(data - 3, "d")
    assert (below.means < 0).any()
    above = fit_offset(data, "d")
    assert below.exponent == pytest.approx(above.exponent, rel=1e-6)
    assert below.offset == pytest.approx(above.offset - 3, rel=1e-6)
    assert below.interval == pytest.approx(above.interval, rel=1e-4)


@pytest.fixture(scope="module")
def fits():
    """Fits to independent data sets of one truth."""
    rng = np.random.default_rng(4)
    return [fit_offset(coupled(rng, 60, _above_one), "d", resamples=200) for _ in range(70)]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "truth"), [("interval", -1), ("offset_interval", 1), ("prefactor_interval", 30)]
)
def test_intervals_cover(fits, name, truth):
    low, high = np.array([getattr(fit, name) for fit in fits]).T
    assert np.mean((low <= truth) & (truth <= high)) >= 0.84  # 4 standard errors below 0.95


@pytest.mark.integration
def test_standard_error_is_the_true_one(fits):
    true = np.std([fit.exponent for fit in fits], ddof=1)
    assert np.mean([fit.stderr for fit in fits]) == pytest.approx(
        true, rel=0.34
    )  # 4 standard errors of `true`


@pytest.mark.parametrize(
    ("curve", "why"),
    [
        (lambda x: 2 + 0 * x, "prefactor is 0 within noise|0 within noise|end of its range"),
        (lambda x: 5 + np.log(x), "exponent is 0 within noise"),
        (lambda x: 1 + 5.0 * (x == 16), "exponent runs to the end of its range"),
    ],
)
def test_undetermined_curves_are_refused(curve, why):
    with pytest.raises(ValueError, match=rf"do not determine E \+ A·d\^b for 'y': .*({why})"):
        fit_offset(independent(np.random.default_rng(6), 100, curve), "d")


def test_refusals():
    data = coupled(np.random.default_rng(7), 20, _above_one)
    with pytest.raises(ValueError, match="means are all equal"):
        fit_offset(exact(np.ones(6)), "d")
    with pytest.raises(ValueError, match="at least 4 points along 'd', got 3"):
        fit_offset(data.isel(d=slice(3)), "d")
    with pytest.raises(ValueError, match="at least 100 resamples"):
        fit_offset(data, "d", resamples=10)
    with pytest.raises(ValueError, match="positive x"):
        fit_offset(data, "d").band(-1.0)


def test_plot_shows_the_offset():
    mpl.use("Agg")
    fit = fit_offset(coupled(np.random.default_rng(8), 60, _above_one), "d")
    legend = [text.get_text() for text in draw_fit(fit).get_legend().get_texts()]
    low, high = fit.offset_interval
    assert f"offset {fit.offset:.3g}, 95 % in [{low:.3g}, {high:.3g}]" in legend
    negative = fit_offset(array(coupled(np.random.default_rng(8), 60, _above_one).values - 3), "d")
    assert draw_fit(negative).get_yscale() == "linear"
    mpl.pyplot.close("all")
