"""Linear networks that learn a diagonal matrix, by plain steps along gradients or polar factors."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax import spectral
from specjax.models import deep_linear
from specjax.models.deep_linear import Params

N = 6
Path = tuple[Float[Array, "steps _ _"], ...]
OPTIMIZERS: dict[str, Callable[[Array], Array]] = {
    "Muon": spectral.polar,
    "gradient descent": lambda x: x,
}
"""The step along a gradient; "Muon" has no momentum, as in both papers."""


def spectrum(least: Array | float) -> Float[Array, " n"]:
    """Modes from 1 down to `least`."""
    return least ** (jnp.arange(float(N)) / (N - 1))


def gaussian(key: Key[Array, ""], layers: int, scale: float) -> Params:
    """Independent entries N(0, scale²/n)."""
    return tuple(scale / N**0.5 * weight for weight in deep_linear.init(key, (N,) * (layers + 1)))


def descend(
    start: Params, modes: Float[Array, " n"], rates: Float[Array, " steps"], optimizer: str
) -> Path:
    """The weights after every step; with two layers the product W₂ W₁ is P Qᵀ."""
    direction = OPTIMIZERS[optimizer]

    def step(weights: Params, rate: Array) -> tuple[Params, Params]:
        gradients = deep_linear.gradient(weights, jnp.diag(modes))
        weights = tuple(w - rate * direction(g) for w, g in zip(weights, gradients, strict=True))
        return weights, weights

    path: Path = jax.lax.scan(step, start, rates)[1]
    return path


def product(path: Path) -> Float[Array, "steps n n"]:
    """W_L ⋯ W₁ after every step."""
    result = path[0]
    for weights in path[1:]:
        result = weights @ result
    return result


def values(path: Path) -> Float[Array, "steps n"]:
    """The modes of the product, its diagonal, after every step."""
    return jnp.diagonal(product(path), axis1=1, axis2=2)


def first_above(path: Float[Array, "steps n"], levels: Float[Array, " n"]) -> Array:
    """The first step after which each value is above its level, or the number of steps."""
    above = path > levels[None]
    return jnp.where(jnp.any(above, axis=0), jnp.argmax(above, axis=0) + 1, path.shape[0])
