"""Intervals of the lab against their definitions: tails summed one by one."""

import math
from math import comb

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from specjax import lab
from specjax.lab import estimates
from specjax.lab.estimates import TAIL


def draws(values: np.ndarray) -> xr.DataArray:
    return xr.DataArray(values, dims=("d", "seed"), coords={"d": [2, 3]}, name="y")


def tail_from(n: int, p: float, k: int) -> float:
    """P(at least k of n)."""
    return sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize("n", [2, 5, 300])
def test_a_mean_has_students_interval_or_longer_if_skewed(n):
    y = np.random.default_rng(0).normal(size=(2, n))
    found = estimates.estimate(draws(y))
    for row in range(2):
        low, high = stats.ttest_1samp(y[row], 0.0).confidence_interval(1 - 2 * TAIL)
        t, skewness, error = (
            stats.t.isf(TAIL, n - 1),
            stats.skew(y[row]),
            y[row].std(ddof=1) / math.sqrt(n),
        )
        longer = (2 * t**2 + 1) / 6 * skewness / math.sqrt(n) * error
        np.testing.assert_allclose(
            [found.low[row], found.high[row]],
            [low + min(longer, 0), high + max(longer, 0)],
            rtol=1e-6,
        )
    assert found.samples == n


@pytest.mark.integration
@pytest.mark.parametrize(("sigma", "most"), [(1.0, 0), (2.0, 12)])
def test_half_the_mean_of_skewed_draws_is_rarely_confirmed(sigma, most):
    """Of 50 samples most means are too small, and so are their standard errors: by Student's t 7
    and 57 of 200 samples confirmed it.

    At sigma = 2 the skewness of a law is 414, of which 50 samples show 5.
    """
    rng, confirmed, true = np.random.default_rng(0), 0, math.exp(sigma**2 / 2)
    for _ in range(200):
        y = xr.DataArray(np.exp(sigma * rng.normal(size=50)), dims="seed", name="y")
        confirmed += lab.equals(y, 0.5 * true).judge({"the mean": true}).verdict == "confirmed"
    assert confirmed <= most


def test_two_samples_decide_nothing_and_many_use_four_errors():
    rng = np.random.default_rng(1)
    few, many = (estimates.estimate(draws(rng.normal(size=(2, n)))) for n in (2, 100_000))
    assert float((few.high - few.low).min()) > 1000
    np.testing.assert_allclose((many.high - many.low) / 2, 4 / np.sqrt(100_000), rtol=0.01)


def test_distances_are_four_at_the_ends_of_the_interval():
    found = estimates.estimate(draws(np.random.default_rng(2).normal(size=(2, 50))))
    np.testing.assert_allclose(found.distance(found.high), 4.0)
    np.testing.assert_allclose(found.distance(found.low), 4.0)
    lopsided = estimates.known(1.0, 0.5, 3.0, 10)
    np.testing.assert_allclose(
        [lopsided.distance(number) for number in (0.5, 1.0, 2.0, 3.0)], [4.0, 0.0, 2.0, 4.0]
    )
    same = estimates.estimate(draws(np.ones((2, 5))))
    assert (same.distance(1.0) == 0).all()
    assert np.isinf(same.distance(1.0 + 1e-7)).all()


def test_several_numbers_per_point_have_their_own_dimension():
    found = estimates.estimate(draws(np.random.default_rng(2).normal(size=(2, 30))))
    ends = xr.concat(
        [found.high, found.low - 1.0], xr.DataArray(["high", "below"], dims="end", name="end")
    )
    np.testing.assert_allclose(found.distance(ends).sel(end="high", d=[3, 2]), 4.0)
    assert found.contains(ends).sel(d=3).transpose("end").values.tolist() == [True, False]
    assert found.contains(ends).sizes == {"d": 2, "end": 2}


@pytest.mark.parametrize(("n", "q"), [(60, 0.5), (400, 0.9), (45, 0.3)])
def test_a_quantile_interval_ends_at_allowed_order_statistics(n, q):
    # Of 0, 1, ..., n - 1 an order statistic says its own rank.
    found = estimates.estimate(draws(np.tile(np.arange(n, dtype=float), (2, 1))), ("quantile", q))
    low, high = int(found.low[0]) + 1, int(found.high[0]) + 1
    # The low end lies above the quantile where fewer than `low` draws lie under it, and the high
    # end below it where `high` or more do.
    assert 1 - tail_from(n, q, low) <= TAIL < 1 - tail_from(n, q, low + 1)
    assert tail_from(n, q, high) <= TAIL < tail_from(n, q, high - 1)


def test_few_draws_have_no_interval_of_a_median():
    found = estimates.estimate(draws(np.random.default_rng(0).normal(size=(2, 10))), "median")
    assert np.isneginf(found.low).all()
    assert np.isposinf(found.high).all()


@pytest.mark.parametrize(("n", "k"), [(20, 7), (200, 0), (30, 30), (1000, 990)])
def test_a_share_has_clopper_and_pearsons_interval(n, k):
    happened = np.zeros((2, n), bool)
    happened[:, :k] = True
    found = estimates.share(draws(happened))
    low, high = float(found.low[0]), float(found.high[0])
    if k > 0:
        assert tail_from(n, low, k) == pytest.approx(TAIL, rel=1e-6)
    else:
        assert low == 0
    if k < n:
        assert 1 - tail_from(n, high, k + 1) == pytest.approx(TAIL, rel=1e-6)
    else:
        assert high == 1


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: estimates.estimate(np.zeros(3)), "not a ndarray"),
        (lambda: estimates.estimate(xr.DataArray(np.zeros(3), dims="d")), r"dimensions \('d',\)"),
        (
            lambda: estimates.estimate(draws(np.full((2, 3), np.nan))),
            "6 numbers that are not finite",
        ),
        (
            lambda: estimates.estimate(draws(np.zeros((2, 3))), ("quantile", 1.0)),
            "between 0 and 1, got 1.0",
        ),
        (lambda: estimates.share(draws(np.zeros((2, 3)))), "true or false, got float64"),
    ],
)
def test_what_cannot_be_estimated_is_told_in_a_sentence(call, match):
    with pytest.raises(ValueError, match=match):
        call()
