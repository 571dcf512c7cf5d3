"""The polar factor is not the best filter: which spectral map of the gradient stores most items in one step, and how many more.

The associative-memory paper holds that no separable map has a better exponent than the polar factor (Appendix C). Among maps of one
exponent the best is known, and so is what it gains (`specjax.theory.best_filter`; docs/beyond/best-filter.md).
"""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes
from specjax.experiments.associative_memory import judging, sweeps
from specjax.lab.drawing import COLORS
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import best_filter as theory

FILTERS = ["polar", "best", "ridge", "ridge, ℓ × 4", "ridge, ℓ / 4"]
"""1; the Hilbert transform of the spectrum; s/(s² + ℓ²) with the ℓ that theory has for α; and with others."""
NODES = np.geomspace(1e-6, 1e6, 4000)
"""Singular values over their median at which the best filter is tabulated."""


class Config(lab.Config):
    """Items, dimensions, exponents and draws."""

    n: int = lab.integer(10_000, least=2, help="items N")
    dims: tuple[int, ...] = lab.sizes(64, 128, 256, least=4, points=2, help="dimensions d")
    alphas: tuple[float, ...] = lab.numbers(1.25, 1.5, 2.0, above=1, help="exponents of the frequencies")
    seeds: int = lab.seeds(20, help="draws of the embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        sweeps.check_items(self.n, self.dims)


@sweeps.in_float64()
def filtered(
    u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"], table: Float[Array, " nodes"], share: Float[Array, ""]
) -> Float[Array, "filters d d"]:
    """Steps from W = 0 by all filters, up to a factor, which changes no recovery."""
    gradient = sweeps.gradient_at_zero(u, v, q)
    left, s, right = jnp.linalg.svd(gradient)
    x = s / jnp.median(s)
    best = jnp.interp(jnp.log(x), jnp.log(jnp.asarray(NODES)), table)
    maps = [jnp.ones_like(x), best, *(x / (x**2 + (factor * share) ** 2) for factor in (1.0, 4.0, 0.25))]
    return jnp.stack([(left * (h / jnp.max(h))[None, :]) @ right for h in maps]).astype(jnp.float32)
