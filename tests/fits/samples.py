"""Synthetic sweeps with known truth that the tests of fits share."""

from collections.abc import Callable

import numpy as np
import xarray as xr

X = np.array([16.0, 32.0, 64.0, 128.0, 256.0, 512.0])
Curve = Callable[[np.ndarray], np.ndarray]


def array(y: np.ndarray, x: np.ndarray = X) -> xr.DataArray:
    """`y` of shape (widths, seeds) as a sweep gives it."""
    return xr.DataArray(
        y, dims=("d", "seed"), coords={"d": x, "seed": np.arange(y.shape[1])}, name="y"
    )


def exact(y: np.ndarray, seeds: int = 2) -> xr.DataArray:
    """The same at every seed."""
    return array(np.repeat(np.asarray(y)[:, None], seeds, axis=1))


def coupled(rng: np.random.Generator, seeds: int, curve: Curve) -> xr.DataArray:
    """Seeds that move all widths together by 50 % and each alone by 5 %; the mean is exactly
    `curve`.
    """
    shared, own = rng.normal(size=seeds), rng.normal(size=(len(X), seeds))
    return array(curve(X)[:, None] * np.exp(0.5 * shared - 0.125 + 0.05 * own - 0.00125))


def independent(rng: np.random.Generator, seeds: int, curve: Curve) -> xr.DataArray:
    """Uniform noise of 6 to 52 %, independent between widths."""
    relative = np.linspace(0.1, 0.9, len(X))[:, None]
    return array(curve(X)[:, None] * (1 + relative * rng.uniform(-1, 1, size=(len(X), seeds))))


def heavy_tailed(rng: np.random.Generator, seeds: int, curve: Curve) -> xr.DataArray:
    """Lognormal noise of skewness 6.2 (σ = 1), independent between widths."""
    return array(curve(X)[:, None] * np.exp(rng.normal(size=(len(X), seeds)) - 0.5))


def alike(curve: Curve) -> xr.DataArray:
    """Noise of the same standard deviation at every width, so that weights have no effect, and
    means off the curve.
    """
    pattern = np.random.default_rng(100).normal(size=40)
    misfit = np.random.default_rng(101).normal(size=len(X))
    return array(curve(X)[:, None] + 0.01 * (misfit[:, None] + pattern - pattern.mean()))
