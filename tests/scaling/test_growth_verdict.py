"""Verdicts of the lab's relations on samples whose growth is known."""

import numpy as np
import pytest
import xarray as xr

from specjax.scaling._growth_verdict import behaviour

WIDTHS = np.array([16, 32, 64, 128, 256, 512])


def draws(exponent, widths=WIDTHS, seeds=16, noise=0.02):
    y = widths[:, None] ** exponent * np.exp(
        noise * np.random.default_rng(0).normal(size=(len(widths), seeds))
    )
    return xr.DataArray(y, {"width": widths, "seed": range(seeds)}, ("width", "seed"), name="size")


@pytest.mark.parametrize("widths", [WIDTHS, WIDTHS[1:5]])
@pytest.mark.parametrize(
    ("exponent", "verdict"),
    [(-1, "vanishes"), (-0.5, "vanishes"), (0, "stable"), (0.5, "grows"), (1, "grows")],
)
def test_powers_have_their_verdict_and_exponent(exponent, verdict, widths):
    found = behaviour(draws(float(exponent), widths))
    assert found.verdict == verdict
    assert found.exponent == pytest.approx(exponent, abs=0.05)
    assert found.interval[0] < found.exponent < found.interval[1]


def test_noise_leaves_it_open_and_says_how_far():
    found = behaviour(draws(0.25, noise=0.5))
    assert found.verdict == "not decided"
    assert "local exponent" in found.reason


def test_zeros_are_zero_and_nan_decides_nothing():
    assert behaviour(draws(0.0) * 0).verdict == "zero"
    broken = draws(0.0)
    broken[2, 5] = np.nan
    found = behaviour(broken)
    assert (found.verdict, found.reason) == (
        "not decided",
        "It is NaN or infinite at width 64 in 1 of 16 seeds.",
    )
