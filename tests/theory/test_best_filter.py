"""The best spectral map against gradients that are drawn and decomposed, and against the derivative
that it is derived from.
"""

import math

import numpy as np
import pytest

from specjax.theory import best_filter


def drawn_values(seed, d, n, alpha):
    rng = np.random.default_rng(seed)
    u, v = rng.standard_normal((2, n, d)) / math.sqrt(d)
    return np.linalg.svd((u * np.arange(1.0, n + 1)[:, None] ** -alpha).T @ v, compute_uv=False)


def response(s, h, slope):
    """(1/d²) (Σ_{k≠l} (s_k h_k - s_l h_l)/(s_k² - s_l²) + Σ_k h'(s_k)): what a rare item's logit is
    over its frequency.
    """
    squares = s[:, None] ** 2 - s[None, :] ** 2
    np.fill_diagonal(squares, 1.0)
    quotients = ((s * h)[:, None] - (s * h)[None, :]) / squares
    np.fill_diagonal(quotients, slope)
    return quotients.sum() / len(s) ** 2


def test_the_logit_of_a_rare_item_averages_divided_differences():
    rng = np.random.default_rng(0)
    d, share, eps = 12, 0.7, 1e-5
    g = rng.standard_normal((d, d))
    s = np.linalg.svd(g, compute_uv=False)

    def mapped(x):
        return x @ np.linalg.inv(x.T @ x + share**2 * np.eye(d))

    found = []
    for u, v in rng.standard_normal((4000, 2, d)) / math.sqrt(d):
        change = eps * np.outer(u, v)
        found.append(u @ (mapped(g + change) - mapped(g - change)) @ v / (2 * eps))
    expected = response(s, s / (s**2 + share**2), (share**2 - s**2) / (s**2 + share**2) ** 2)
    stderr = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - expected) < 4 * stderr
    assert stderr < 0.05 * abs(expected)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_the_spectrum_and_the_gain_are_those_of_gradients(alpha):
    d, shares = 300, (0.2, 0.5, 1.5)
    gains = []
    for seed in range(4):
        s = drawn_values(seed, d, 6000, alpha)
        s = s / np.median(s)
        polar = response(s, np.ones(d), np.zeros(d))
        gains.append(
            [
                (
                    response(s, h, (share**2 - s**2) / (s**2 + share**2) ** 2)
                    / math.sqrt(np.mean(h**2))
                    / polar
                )
                ** (1 / alpha)
                for share in shares
                for h in [best_filter.ridge(s, share)]
            ]
        )
    mean, spread = np.mean(gains, axis=0), np.std(gains, axis=0)
    predicted = [
        best_filter.gain(alpha, lambda x, share=share: best_filter.ridge(x, share))
        for share in shares
    ]
    # Terms of order 1/d; the three gains are farther apart.
    np.testing.assert_allclose(mean, predicted, atol=0.015)
    assert spread.max() < 0.03
    assert np.ptp(predicted) > 0.05


@pytest.mark.parametrize("alpha", [1.25, 2.0, 3.0])
def test_no_map_is_better_and_the_mean_is_that_of_muons_constant(alpha):
    best = best_filter.gain(alpha)
    assert best == pytest.approx(
        best_filter.gain(alpha, lambda x: best_filter.best_filter(x, alpha)), rel=1e-6
    )
    assert best_filter.gain(alpha, np.ones_like) == pytest.approx(1)
    share = best_filter.best_share(alpha)
    others = [lambda x, f=f: best_filter.ridge(x, f * share) for f in (0.5, 1.0, 2.0)] + [
        lambda x: x**0.1,
        lambda x: x / (x + share),
    ]
    gains = [best_filter.gain(alpha, h) for h in others]
    assert max(gains) == gains[1] < best < gains[1] + 0.005


def test_the_transform_has_the_mean_of_sharp_capacity():
    """Muon's signal is 4/(π(α + 1)) p g(0) by another integral, and 2 E[H] here."""
    for alpha in (1.25, 1.5, 2.0):
        theta = (np.arange(200_000) + 0.5) / 200_000 * math.pi / (2 * alpha)
        r = np.cos(alpha * theta) / np.cos((alpha - 1) * theta)
        s = (np.sin(alpha * theta) - r * np.sin((alpha - 1) * theta)) / r**alpha
        density = 2 * r**alpha * np.cos(alpha * theta) / math.pi
        assert np.trapezoid(density, s) == pytest.approx(1, abs=1e-3)
        assert 2 * np.trapezoid(density * r**alpha * np.sin(alpha * theta), s) == pytest.approx(
            4 / (math.pi * (alpha + 1)), rel=1e-4
        )


def test_exponents_without_a_limit_are_refused():
    for call in (
        best_filter.gain,
        best_filter.best_share,
        lambda alpha: best_filter.best_filter(np.ones(1), alpha),
    ):
        with pytest.raises(ValueError, match="α > 1"):
            call(1.0)
