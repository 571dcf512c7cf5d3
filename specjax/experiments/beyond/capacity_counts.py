"""Counts of one step of Muon and of Newton's method, measured and by formula."""

from collections.abc import Sequence

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from scipy.optimize import brentq

from specjax import fits, lab
from specjax.experiments.associative_memory import item_counts, sampled_items
from specjax.experiments.associative_memory.item_counts import Data
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import finite_capacity, sharp_capacity

SPECTRAL = sharp_capacity.SPECTRAL
EARLY, TURNING, LATE = 1.2, 1.4, 2.0
"""Exponents at which Muon is ahead, at which the lead depends on d, and with Newton ahead."""
ALPHAS = (EARLY, TURNING, 1.6, LATE)
FAR = (2.0**16, 2.0**20)
"""Dimensions at which the finite-size formula is compared with its limit."""


def counts(
    n: int, dims: Sequence[int], seeds: int, optimizers: tuple[str, ...], key: Key[Array, ""]
) -> xr.Dataset:
    """Items recovered after one step on N items, by dimension, exponent and optimizer."""

    def count_at(key: Array, d: AnySize, alpha: Array) -> dict[str, Array]:
        u, v, q = sampled_items.sample(key, n, d, alpha)
        return sampled_items.capacities(u, v, memory.one_step(u, v, q, optimizers))

    return sampled_items.run(
        sampled_items.map_alphas(count_at, ALPHAS),
        dims,
        seeds,
        key,
        alpha=ALPHAS,
        optimizer=optimizers,
    )


def far_out(seeds: int, key: Key[Array, ""]) -> xr.Dataset:
    """The formula's ratio of counts over its limit, and where it is 1, at random large d.

    N is d^(2α+2), the number that Theorem 3.1 requires.
    """

    def finite_ratio(alpha: float, d: float) -> float:
        muon, newton = (
            finite_capacity.expected_count(name, d, d ** (2 * alpha + 2), alpha)
            for name in SPECTRAL
        )
        return muon / newton

    low, high = np.log(FAR)
    ds = np.exp(low + (high - low) * np.asarray(jax.random.uniform(key, (seeds,)), float))
    ratios = [[finite_ratio(alpha, float(d)) for d in ds] for alpha in ALPHAS[1:]]
    level = [brentq(lambda alpha, d=d: finite_ratio(alpha, d) - 1, 1.4, 2.0, xtol=1e-4) for d in ds]
    return xr.Dataset(
        {
            "d": ("seed", ds),
            "ratio": (("alpha", "seed"), ratios),
            "crossing": ("seed", level),
        },
        {"alpha": list(ALPHAS[1:])},
    )


def sharp(
    d: xr.DataArray | int, n: xr.DataArray | int, alpha: xr.DataArray, optimizer: str = "muon"
) -> xr.DataArray:
    """The count by `sharp_capacity` at every combination of the coordinates."""
    return lab.closed_form(
        np.vectorize(lambda *at: sharp_capacity.sharp_count(optimizer, *at)), d, n, alpha
    )


def ratio(data: Data) -> xr.DataArray:
    """Muon's count over Newton's, by seed."""
    count = data["dimensions"]["count"].astype(float)
    return (
        count.sel(optimizer="muon", drop=True) / count.sel(optimizer="newton", drop=True)
    ).rename("Muon / Newton")


def formula_ratio(data: Data, n: int) -> xr.DataArray:
    """The ratio of the counts of `finite_capacity`."""
    formula = item_counts.formula(data["dimensions"]["count"], n)
    return formula.sel(optimizer="muon", drop=True) / formula.sel(optimizer="newton", drop=True)


def limit(alpha: xr.DataArray) -> xr.DataArray:
    """The ratio of the sharp constants."""
    return lab.closed_form(np.vectorize(sharp_capacity.ratio), alpha)


def slope_in_logarithm(counts: xr.DataArray) -> xr.DataArray:
    """The slope of the logarithm of counts over log log N."""
    logs = item_counts.log(counts)
    return fits.log_slopes(logs.assign_coords(n=np.log(logs.n.astype(float))), "n").rename(
        "slope over log log N"
    )
