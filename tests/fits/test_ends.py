"""Exponents and limits that data do not contradict: their ends are scipy's, their coverage is the stated one, growth has no limit."""

import numpy as np
import pytest
from scipy import optimize, stats

from specjax.fits import ends
from tests.fits.samples import X, coupled, exact, independent

SEEDS = 60


def chi_square(data, columns: np.ndarray, offset: float = 0.0) -> float:
    """T² of the nearest combination of the columns, by the inverse of the whole covariance."""
    inverse = np.linalg.inv(np.cov(data.values) / data.sizes["seed"])
    y = data.values.mean(axis=1) - offset
    best = np.linalg.solve(columns.T @ inverse @ columns, columns.T @ inverse @ y)
    return float((y - columns @ best) @ inverse @ (y - columns @ best))


COLUMNS = {
    "offset": lambda b: np.stack([np.ones_like(X), (X / X[0]) ** b], axis=1),
    "subleading": lambda b: np.stack([X**b, X[0] * X ** (b - 1)], axis=1),
}


def room(least: float, significance: float) -> float:
    """Rao's test of one parameter: (n - p) ΔT²/(n - 1 + T²) is F(1, n - p), p the freedom of the misfit without it."""
    p = len(X) - 2
    return float(stats.f.isf(significance, 1, SEEDS - p) * (SEEDS - 1 + least) / (SEEDS - p))


@pytest.mark.parametrize("make", [coupled, independent])
@pytest.mark.parametrize("curve", [lambda x: 2 - 8 / x, lambda x: 0.5 + 9 * x**-0.7, lambda x: x**0.4 * (1 + 9 / x)])
def test_the_ends_are_where_scipys_misfit_rises_by_the_quantile(make, curve):
    data = make(np.random.default_rng(3), SEEDS, curve)
    for end in ends(data, "d", significance=0.05):
        # From 1 on the subleading term, with a c beyond the largest x, would be the leading one of an exponent less by 1.
        b, least = min(
            (
                (found.x, found.fun)
                for low, high in [(-3, -1.5), (-1.5, -0.5), (-0.5, 0.2), (0.2, 1)]
                for found in [
                    optimize.minimize_scalar(
                        lambda b, model: chi_square(data, COLUMNS[model](b)),
                        bounds=(low, high),
                        args=(end.model,),
                        method="bounded",
                    )
                ]
            ),
            key=lambda found: found[1],
        )
        assert end.exponent == pytest.approx(b, abs=2e-3)
        for at in end.exponents:
            if abs(at) < 3:
                rise = chi_square(data, COLUMNS[end.model](at)) - least
                assert rise == pytest.approx(room(least, 0.05), rel=1e-3)
        if end.limits is not None:
            for limit in filter(np.isfinite, end.limits):
                nearest = optimize.minimize_scalar(
                    lambda b, limit: chi_square(data, COLUMNS["offset"](b)[:, 1:], limit),
                    args=(limit,),
                    bounds=(end.exponents[0], min(end.exponents[1], -1e-6)),
                    method="bounded",
                )
                assert nearest.fun - least == pytest.approx(room(least, 0.05), rel=2e-2)


@pytest.mark.slow
@pytest.mark.parametrize("make", [coupled, independent])
def test_intervals_hold_the_true_exponent_and_limit_as_often_as_they_say(make):
    sweeps, hits = 600, np.zeros(3)
    for seed in range(sweeps):
        rng = np.random.default_rng(seed)
        offset, _ = ends(make(rng, 300, lambda x: 2 - 20 * x**-1.0), "d", significance=0.05)
        _, subleading = ends(make(rng, 300, lambda x: 3 * x**0.3 * (1 + 20 / x)), "d", significance=0.05)
        hits += [
            offset.exponents[0] <= -1 <= offset.exponents[1],
            offset.limits[0] <= 2 <= offset.limits[1],
            subleading.exponents[0] <= 0.3 <= subleading.exponents[1],
        ]
    # Four standard errors of a share of 600; an interval of 0.9 or 0.99 would be 5 and 4 of them away.
    np.testing.assert_allclose(hits / sweeps, 0.95, atol=4 * np.sqrt(0.95 * 0.05 / sweeps))


def test_growth_has_no_limit_and_a_limit_no_growth():
    growing, _ = ends(coupled(np.random.default_rng(0), 400, lambda x: x**0.2), "d", significance=1e-4)
    assert growing.exponents[0] > 0
    assert growing.limits == (-np.inf, np.inf)
    approaching, _ = ends(coupled(np.random.default_rng(0), 400, lambda x: 2 - 20 / x), "d", significance=1e-4)
    assert approaching.exponents[1] < 0
    assert np.isfinite(approaching.limits).all()
    # A logarithm is the border between the two: as far as any growth, with limits from some number on.
    border, _ = ends(coupled(np.random.default_rng(0), 400, np.log), "d", significance=1e-4)
    assert border.exponents[0] < 0 < border.exponents[1]
    assert np.isfinite(border.limits[0])
    assert border.limits[1] == np.inf


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (exact(X, seeds=20), "has none at d=16"),
        (independent(np.random.default_rng(0), 6, lambda x: x), "needs more seeds than widths, got 6"),
        (-independent(np.random.default_rng(0), 60, lambda x: x), "is asked of positive means"),
        (independent(np.random.default_rng(0), 60, lambda x: x).isel(d=slice(4)), "at least 5 points along 'd', got 4"),
    ],
)
@pytest.mark.filterwarnings("ignore::specjax.fits.RoughFitWarning")
def test_data_without_ends_are_refused_in_a_sentence(data, match):
    with pytest.raises(ValueError, match=match):
        ends(data, "d", significance=0.05)


def test_a_significance_is_a_probability():
    with pytest.raises(ValueError, match="between 0 and 1, got 1"):
        ends(independent(np.random.default_rng(0), 60, lambda x: x), "d", significance=1.0)
