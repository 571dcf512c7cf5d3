"""The sharp constants of capacity against the counts at finite d, whose signals are integrals and
sums, and against samples.
"""

import math

import numpy as np
import pytest
from scipy.special import ndtri

from specjax.theory import finite_capacity, muon_logits, sharp_capacity


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, 3.0])
def test_muons_signal_has_its_constant(alpha):
    """Items between d and the recovered ones, where p_i g is small and many items are rarer."""
    d = 1e8
    p, sizes, items = finite_capacity.nodes(d**4, alpha, d**1.5, 0.5)
    signal = muon_logits.signal(d, p, sizes)
    # The remainder is of order s², and s is below 0.003 here.
    rare = (items > d**1.35) & (items < d**1.5) & (signal < 0.003)
    of_items = 2 * alpha / math.pi * math.sin(math.pi / (2 * alpha))
    expected = 4 / (math.pi * (alpha + 1)) * (d * of_items / items[rare]) ** alpha
    assert rare.sum() > 3
    np.testing.assert_allclose(signal[rare], expected, rtol=1e-4)


@pytest.mark.integration
@pytest.mark.parametrize("optimizer", sharp_capacity.SPECTRAL)
@pytest.mark.parametrize("alpha", [1.4, 1.54, 2.0, 3.0])
def test_finite_counts_tend_to_the_sharp_ones(optimizer, alpha):
    def excess(d):
        n = d ** (2 * alpha + 2)
        return (
            finite_capacity.expected_count(optimizer, d, n, alpha)
            / sharp_capacity.sharp_count(optimizer, d, n, alpha)
            - 1
        )

    assert abs(excess(2.0**20)) < 2e-4
    # The correction of order ln N/d, 2 to 10 % here, leaves its square.
    correction = sharp_capacity.next_order(optimizer, 2.0**10, 2.0 ** (20 * alpha + 20), alpha)
    assert abs(excess(2.0**10)) < 0.006 < -correction / 2


@pytest.mark.slow
def test_common_competitors_outdo_newtons_rare_ones_at_low_alpha():
    def excess(d, alpha):
        n = d ** (2 * alpha + 2)
        return (
            finite_capacity.expected_count("newton", d, n, alpha)
            / sharp_capacity.sharp_count("newton", d, n, alpha)
            - 1
        )

    # (2α - 1) ln d is more than (α - 1) ln N at α = 1.25, for N = d^(2α+2); in the end the count is
    # (3/4)^(1/2.5) = 0.89 times as large.
    assert -0.11 < excess(2.0**60, 1.25) < excess(2.0**30, 1.25) - 0.03
    assert abs(excess(2.0**30, 1.5)) < 1e-3


@pytest.mark.parametrize(("n", "alpha"), [(30_000, 1.5), (30_000, 3.0), (1_000_000, 2.0)])
def test_the_logarithm_is_a_mean_over_draws(n, alpha):
    rng = np.random.default_rng(n)
    uniform, z = rng.random(2_000_000), rng.standard_normal(2_000_000)
    gap = ndtri(uniform ** (1 / n)) - z
    # Below 1/2 is chance: one item of N.
    draws = np.where(gap > 0.5, np.maximum(gap, 0.5), np.inf) ** (-1 / alpha)
    found, stderr = draws.mean(), draws.std() / math.sqrt(len(draws))
    value = sharp_capacity.logarithm(n, alpha)
    chance = 2 * np.mean(gap < 0.5) * 0.5 ** (-1 / alpha)
    assert abs(found - value) < 4 * stderr + chance
    assert chance < 0.005
    leading = (2 * math.log(n)) ** (-1 / (2 * alpha))
    assert abs(found - leading) > 10 * stderr + chance


def test_the_ratio_and_where_it_is_one():
    for alpha in (1.2, 1.5, 2.0, 4.0):
        printed = (4 * math.sqrt(alpha - 1) / (math.pi * (alpha + 1))) ** (1 / alpha) / math.cos(
            math.pi / (2 * alpha)
        )
        assert sharp_capacity.ratio(alpha) == pytest.approx(printed, rel=1e-12)
    at = sharp_capacity.crossing()
    assert 1.53 < at < 1.54
    assert sharp_capacity.ratio(at - 0.01) > 1 > sharp_capacity.ratio(at + 0.01)


def test_what_is_refused():
    with pytest.raises(
        ValueError, match="Sharp constants are known for muon and newton, not for 'gd'"
    ):
        sharp_capacity.constant("gd", 1.5)
    with pytest.raises(ValueError, match="α"):
        sharp_capacity.ratio(1.0)
    with pytest.raises(ValueError, match="2 <= d < n, got d=64 and n=64"):
        sharp_capacity.sharp_count("muon", 64, 64, 1.5)
    with pytest.raises(ValueError, match="n"):
        sharp_capacity.logarithm(1, 1.5)
