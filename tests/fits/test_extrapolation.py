"""Exponents, limits, logarithms that data do not contradict: ends are scipy's, their coverage is
the stated one, growth has no limit.
"""

import numpy as np
import pytest
import xarray as xr
from scipy import optimize, stats

from specjax.fits import _log_models, extrapolate
from specjax.fits._extrapolation import extrapolate_sample
from specjax.fits._goodness_of_fit import whitened
from specjax.fits._resampling import sample_of
from tests.fits.samples import X, coupled, exact, independent

SEEDS = 60


def chi_square(data, columns: np.ndarray, offset: float = 0.0) -> float:
    """T² of the nearest combination of the columns, by the inverse of the whole covariance."""
    inverse = np.linalg.inv(np.cov(data.values) / data.sizes["seed"])
    y = data.values.mean(axis=1) - offset
    best = np.linalg.solve(columns.T @ inverse @ columns, columns.T @ inverse @ y)
    return float((y - columns @ best) @ inverse @ (y - columns @ best))


def offset(b: float) -> np.ndarray:
    return np.stack([np.ones_like(X), (X / X[0]) ** b], axis=1)


def room(least: float, significance: float, parameters: int = 3) -> float:
    """Rao's test of one parameter: (n - p) ΔT²/(n - 1 + T²) is F(1, n - p), p the freedom of the
    misfit without it.
    """
    p = len(X) - parameters + 1
    return float(stats.f.isf(significance, 1, SEEDS - p) * (SEEDS - 1 + least) / (SEEDS - p))


CURVES = [lambda x: 2 - 8 / x, lambda x: 0.5 + 9 * x**-0.7, lambda x: x**0.4 * (1 + 9 / x)]


@pytest.mark.parametrize("make", [coupled, independent])
@pytest.mark.parametrize("curve", CURVES)
def test_offset_interval_ends_where_scipys_misfit_has_risen(make, curve):
    data = make(np.random.default_rng(3), SEEDS, curve)
    end, *_ = extrapolate_sample(sample_of(data, "d", least=5), 0.05, tolerance=0.0)
    b, least = min(
        (
            (found.x, found.fun)
            for low, high in [(-3, -1.5), (-1.5, -0.5), (-0.5, 0.2), (0.2, 1)]
            for found in [
                optimize.minimize_scalar(
                    lambda b: chi_square(data, offset(b)), bounds=(low, high), method="bounded"
                )
            ]
        ),
        key=lambda found: found[1],
    )
    assert end.exponent == pytest.approx(b, abs=2e-3)
    for at in end.exponents:
        if abs(at) < 3:
            assert chi_square(data, offset(at)) - least == pytest.approx(
                room(least, 0.05), rel=1e-3
            )
    for limit in filter(np.isfinite, end.limits):
        nearest = optimize.minimize_scalar(
            lambda b, limit: chi_square(data, offset(b)[:, 1:], limit),
            args=(limit,),
            bounds=(end.exponents[0], min(end.exponents[1], -1e-6)),
            method="bounded",
        )
        assert nearest.fun - least == pytest.approx(room(least, 0.05), rel=2e-2)


def log_chi_square(data, columns: np.ndarray, left_out: np.ndarray | float = 0.0) -> float:
    """T² of log means to the nearest combination of columns, to first order in the noise."""
    means = data.values.mean(axis=1)
    inverse = np.linalg.inv(np.cov(data.values) / data.sizes["seed"] / np.outer(means, means))
    y = np.log(means) - left_out
    best = np.linalg.solve(columns.T @ inverse @ columns, columns.T @ inverse @ y)
    return float((y - columns @ best) @ inverse @ (y - columns @ best))


SECOND_TERMS = [(0, 0), (-1, 0), (-0.5, 0), (0.5, 0), (1, 0), (0, 0.2), (0, 0.35), (0, 0.6), (0, 1)]


@pytest.mark.integration
@pytest.mark.parametrize("make", [pytest.param(coupled, marks=pytest.mark.slow), independent])
@pytest.mark.parametrize("curve", CURVES)
def test_correction_interval_ends_where_scipys_misfit_has_risen(make, curve):
    """For a given b: over the power, the size and the kind of the correction, by an optimizer that
    knows nothing of closed forms.
    """
    data = make(np.random.default_rng(3), SEEDS, curve)
    _, end, _ = extrapolate_sample(
        sample_of(data, "d", least=5), 0.05, tolerance=0.0, second_terms=True
    )
    _, plain, _ = extrapolate(data, "d", significance=0.05, tolerance=0.0)

    def misfit(b: float, square: float, log: float) -> float:
        def of(shape: np.ndarray) -> float:
            power, share = shape
            first = (X[0] / X) ** power
            term = first * (1 + square * first + log * np.log(X / X[0]))
            term = term / term.max()
            # The correction is smaller than the leading term at the largest x.
            s = -8 + (np.log1p(1 / term[-1]) + 8) * share
            return log_chi_square(
                data, np.ones((len(X), 1)), b * np.log(X) + np.log1p(np.expm1(s) * term)
            )

        starts = [(power, share) for power in (0.6, 1.2, 2.0) for share in (0.6, 0.8, 1.0)]
        bounds = [(0.5, 2.0), (0.0, 1.0)]
        return min(
            optimize.minimize(of, start, bounds=bounds, method="L-BFGS-B").fun for start in starts
        )

    def of_any_kind(b: float) -> float:
        return min(misfit(b, *kind) for kind in SECOND_TERMS)

    assert misfit(end.exponent, 0, 0) == pytest.approx(end.misfit, rel=1e-3, abs=1e-4)
    for found, nearest in ((end, of_any_kind), (plain, lambda b: misfit(b, 0, 0))):
        low, high = found.exponents
        least = min(nearest(b) for b in np.linspace(low, high, 9))
        for at, beyond in ((low, -1), (high, 1)):
            # The grid of powers ends a little before the last curve.
            assert nearest(at) - least <= 1.02 * room(least, 0.05, 4)
            assert nearest(at + beyond * 0.2 * (high - low)) - least > room(least, 0.05, 4)


@pytest.mark.parametrize("make", [coupled, independent])
def test_the_ends_of_a_logarithm_are_those_of_least_squares(make):
    data = make(np.random.default_rng(3), SEEDS, lambda x: x**0.7 * np.log(x))
    *_, end = extrapolate(data, "d", significance=0.05, tolerance=0.0)
    units = [1.0, *(X[0] * np.exp(-np.geomspace(0.7, 10, 16)))]
    columns = [
        np.stack([np.ones_like(X), np.log(X), np.log(np.log(X / unit))], axis=1) for unit in units
    ]
    least = min(log_chi_square(data, each) for each in columns)
    assert end.misfit == pytest.approx(least, rel=1e-6)
    assert end.unit in units

    def risen(at: float, place: int) -> float:
        """Of the nearest curve with this power of the logarithm, or with this exponent and a power
        of at most 3.
        """
        if place == 2:
            return (
                min(log_chi_square(data, each[:, :2], at * each[:, 2]) for each in columns) - least
            )

        def of_power(c: float, each: np.ndarray) -> float:
            return log_chi_square(data, each[:, :1], at * each[:, 1] + c * each[:, 2])

        found = [
            optimize.minimize_scalar(of_power, args=(each,), bounds=(-3, 3), method="bounded")
            for each in columns
        ]
        return min(each.fun for each in found) - least

    for place, interval in ((1, end.exponents), (2, end.powers)):
        for at in interval:
            assert risen(at, place) == pytest.approx(room(least, 0.05, 4), rel=1e-3)
    assert end.exponents[0] < 0.7 < end.exponents[1]
    assert end.powers[0] < 1 < end.powers[1]


def test_precise_data_have_room_for_terms_that_no_model_has():
    """Of means to nine digits every model of a law with more terms is contradicted, unless it may
    miss them by one in a thousand.
    """
    data = exact(X**-0.5 * (1 + 1 / X + 3 / X**2), 20) * (
        1 + 1e-9 * np.random.default_rng(0).normal(size=(6, 20))
    )
    _, strict, _ = extrapolate(data, "d", significance=1e-4, tolerance=0.0)
    _, tolerant, _ = extrapolate(data, "d", significance=1e-4)
    assert strict.p_misfit < 1e-9
    assert tolerant.p_misfit > 0.1
    assert tolerant.exponents[0] < -0.5 < tolerant.exponents[1]


@pytest.mark.slow
@pytest.mark.parametrize("make", [coupled, independent])
def test_intervals_hold_exponent_and_limit_at_their_level(make):
    sweeps, hits = 600, np.zeros(3)
    for seed in range(sweeps):
        rng = np.random.default_rng(seed)
        # A model that is rejected by chance would get one more term otherwise.
        offset, *_ = extrapolate_sample(
            sample_of(make(rng, 300, lambda x: 2 - 20 * x**-1.0), "d", least=5), 0.05, tolerance=0.0
        )
        logs = sample_of(make(rng, 300, lambda x: 3 * x**0.3 * np.log(x)), "d", least=5)
        # In its own unit: a free one makes the interval longer.
        logarithm = _log_models.logarithmic(whitened(logs, 0.05), 0.05)
        hits += [
            offset.exponents[0] <= -1 <= offset.exponents[1],
            offset.limits[0] <= 2 <= offset.limits[1],
            logarithm.exponents[0] <= 0.3 <= logarithm.exponents[1],
        ]
    # Four standard errors of a share of 600; an interval of 0.9 or 0.99 would be 5 and 4 of them
    # away.
    np.testing.assert_allclose(hits / sweeps, 0.95, atol=4 * np.sqrt(0.95 * 0.05 / sweeps))


def test_growth_has_no_limit_and_a_limit_no_growth():
    growing, *_ = extrapolate(
        coupled(np.random.default_rng(0), 400, lambda x: x**0.2), "d", significance=1e-4
    )
    assert growing.exponents[0] > 0
    assert growing.limits == (-np.inf, np.inf)
    approaching, *_ = extrapolate(
        coupled(np.random.default_rng(0), 400, lambda x: 2 - 20 / x), "d", significance=1e-4
    )
    assert approaching.exponents[1] < 0
    assert np.isfinite(approaching.limits).all()
    # A logarithm is the border between the two: as far as any growth, with limits from some number
    # on.
    border, *_ = extrapolate(coupled(np.random.default_rng(0), 400, np.log), "d", significance=1e-4)
    assert border.exponents[0] < 0 < border.exponents[1]
    assert np.isfinite(border.limits[0])
    assert border.limits[1] == np.inf


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (exact(X, seeds=20), "has none at d=16"),
        (
            independent(np.random.default_rng(0), 6, lambda x: x),
            "needs more seeds than widths, got 6",
        ),
        (-independent(np.random.default_rng(0), 60, lambda x: x), "need positive means"),
        (
            independent(np.random.default_rng(0), 60, lambda x: x).isel(d=slice(4)),
            "at least 5 points along 'd', got 4",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::specjax.fits.RoughFitWarning")
def test_data_without_ends_are_refused_in_a_sentence(data, match):
    with pytest.raises(ValueError, match=match):
        extrapolate(data, "d", significance=0.05)


def test_a_significance_is_a_probability():
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        extrapolate(independent(np.random.default_rng(0), 60, lambda x: x), "d", significance=1.0)


@pytest.mark.parametrize("tolerance", [-1.0, 1.0, np.nan])
def test_a_tolerance_is_not_negative(tolerance):
    with pytest.raises(ValueError, match=r"a number in \[0, 1\) as tolerance, got"):
        extrapolate(
            coupled(np.random.default_rng(0), 60, lambda x: x),
            "d",
            significance=0.05,
            tolerance=tolerance,
        )


def of_law(mean, seeds: int, repetition: int) -> xr.DataArray:
    """Samples at eight sizes with noise of 10 %."""
    x = 2.0 ** np.arange(4, 12)
    noise = np.random.default_rng([5, seeds, repetition]).standard_normal((8, seeds))
    return xr.DataArray(
        mean(x)[:, None] * (1 + 0.1 * noise), dims=("x", "seed"), coords={"x": x}, name="y"
    )


@pytest.mark.integration
def test_a_limit_with_two_terms_lies_in_its_interval():
    """One term is rejected here, and its limit would be wrong by 20 %."""
    inside, extended = 0, 0
    for repetition in range(30):
        data = of_law(lambda x: 1 + 3 * x**-0.5 - 2 / x, 12800, repetition)
        offset, *_ = extrapolate(data, "x", significance=0.05, slowest=0.25)
        extended += offset.formula == "E + A x⁻ᵍ + B x⁻²ᵍ"
        inside += offset.limits[0] <= 1 <= offset.limits[1]
        assert offset.limits[1] - offset.limits[0] < 0.5
    assert extended >= 25
    assert inside >= 26


def test_a_rejected_model_gets_one_more_term_if_sizes_bear_it():
    data = of_law(lambda x: x - 2 * np.sqrt(x) + 4, 3200, 0)
    one = extrapolate_sample(sample_of(data, "x", least=5), 0.01)
    assert max(model.p_misfit for model in one) < 0.01
    offset, corrected, logarithm = extrapolate(data, "x", significance=0.01)
    assert corrected.formula == "a xᵇ exp(p x⁻ᵍ + q x⁻²ᵍ)"
    assert corrected.exponents[0] < 1 < corrected.exponents[1]
    assert corrected.p_misfit > 0.01
    assert (offset.p_misfit, logarithm.p_misfit) < (0.01, 1.0)
    # Six sizes leave nothing to reject six parameters with.
    few = extrapolate(data.isel(x=slice(6)), "x", significance=0.01)
    assert few[2].formula == "a xᵇ (log x)ᶜ"
