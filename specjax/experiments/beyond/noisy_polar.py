"""Polar factors of signals in Gaussian noise, and momentum before and after them."""

from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.sizes import AnySize

THETAS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Signals in units of the noise's norm, μ/(σ √n)."""
SEVERAL = (0.5, 1.0, 2.0, 4.0)
BETA, PAST = 0.9, 60
"""Of the momentum, and the gradients in its average; β^60 is 0.002."""
WIDE = 4
"""Columns over rows of the matrices that are not square."""


def factor(noise: Float[Array, "m n"], long: AnySize, *thetas: Any) -> Float[Array, "m n"]:
    """The polar factor of noise with signals θ_k √long at its first diagonal entries, which are no
    special place, as rotations leave the noise as it is.
    """
    places = jnp.arange(len(thetas))
    scale = jnp.sqrt(jnp.asarray(sizes.active(long), noise.dtype))
    signals = scale * jnp.stack([jnp.asarray(theta, noise.dtype) for theta in thetas])
    return spectral.polar(noise.at[places, places].add(signals), method=spectral.SVD())


def run_one(config: Any, key: Key[Array, ""], shape: str) -> xr.Dataset:
    """What is kept of one signal in square matrices, or in wide ones, by their rows."""

    def one(key: Array, n: AnySize, theta: Array) -> dict[str, Array]:
        columns = n if shape == "square" else sizes.times(n, WIDE)
        noise = sizes.normal(sizes.stream(key, shape), (n, columns))
        return {"kept": factor(noise, columns, theta)[0, 0]}

    over = {"n": sweep.widths(*config.ns), "theta": sweep.values(*THETAS)}
    return lab.seeded_sweep(key, "one", one, config.seeds, **over)


def run_several(config: Any, key: Key[Array, ""]) -> xr.Dataset:
    """What is kept of several signals at a time, in square matrices."""

    def several(key: Array, n: AnySize) -> dict[str, Array]:
        found = factor(sizes.normal(key, (n, n)), n, *SEVERAL)
        return {"kept": jnp.diagonal(found)[: len(SEVERAL)]}

    n = sweep.widths(config.ns[-1])
    terms = lab.seeded_sweep(key, "several", several, config.seeds, n=n).isel(n=0, drop=True)
    return sweep.labelled(terms, "theta", theta=list(SEVERAL))


def run_momentum(config: Any, key: Key[Array, ""]) -> xr.Dataset:
    """What is kept of one signal by momentum before and after the polar factor."""

    def momenta(key: Array, theta: Array) -> dict[str, Array]:
        n = config.momentum_size
        weights = (1 - BETA) * BETA ** jnp.arange(float(PAST)) / (1 - BETA**PAST)
        noise = jax.random.normal(key, (PAST, n, n))
        before = factor(jnp.tensordot(weights, noise, 1), n, theta)
        after = jnp.tensordot(weights, jax.vmap(lambda z: factor(z, n, theta))(noise), 1)
        both = {"before": before, "after": after}
        return {name: jnp.stack([o[0, 0], jnp.sum(o**2)]) for name, o in both.items()}

    thetas = sweep.values(*THETAS)
    found = lab.seeded_sweep(key, "momentum", momenta, config.momentum_seeds, theta=thetas)
    return sweep.labelled(found, "part", part=["kept", "squares"])
