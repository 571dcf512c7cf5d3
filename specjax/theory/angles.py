"""The arc-cosine kernels: averages of a ReLU network over its inputs, as functions of the angle θ between the weights of two units.

For independent u, v ~ N(0, I_d) the angle has the density ∝ sin^(d-2) θ on [0, π] and is independent of the norms. Averages over it that
`relu_network` needs are closed forms there.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# arccos x = √(1 - x) times this polynomial, lowest power first, for 0 <= x <= 1, to 2e-8 (Abramowitz and Stegun, 4.4.46).
_ARCCOS = (
    1.5707963050,
    -0.2145988016,
    0.0889789874,
    -0.0501743046,
    0.0308918810,
    -0.0170881256,
    0.0066700901,
    -0.0012624911,
)


@jax.custom_jvp
def arccos(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The angle in [0, π] with cosine x; NaN outside [-1, 1]. In float32 to 5e-7, in float64 `jnp.arccos`.

    XLA on a CPU computes `jnp.arccos` one entry at a time, 60 times slower than this polynomial, and the kernels below need d_1²
    angles for each draw of a network (`scripts/benchmarks/sweep.py`).
    """
    if x.dtype != jnp.float32:
        return jnp.arccos(x)
    magnitude = jnp.abs(x)
    polynomial = jnp.full_like(x, _ARCCOS[-1])
    for coefficient in _ARCCOS[-2::-1]:
        polynomial = polynomial * magnitude + coefficient
    acute = jnp.sqrt(1 - magnitude) * polynomial
    return jnp.where(x < 0, np.pi - acute, acute)


@arccos.defjvp
def _arccos_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (dx,) = primals, tangents
    return arccos(x), -dx / jnp.sqrt((1 - x) * (1 + x))


def arc_cosine_0(theta: Float[Array, "..."]) -> Float[Array, "..."]:
    """(π - θ)/2π = E[σ'(uᵀx) σ'(vᵀx)] for the ReLU σ and x ~ N(0, I) (Cho and Saul 2009; outer-product, eq. 44)."""
    return (np.pi - theta) / (2 * np.pi)


def arc_cosine_1(theta: Float[Array, "..."]) -> Float[Array, "..."]:
    """g(θ) = (sin θ + (π - θ) cos θ)/2π = E[σ(uᵀx) σ(vᵀx)]/(‖u‖‖v‖) (Cho and Saul 2009; outer-product, eq. 43)."""
    return arc_cosine_1_of(theta, jnp.sin(theta), jnp.cos(theta))


def arc_cosine_1_of(
    theta: Float[Array, "..."], sine: Float[Array, "..."], cosine: Float[Array, "..."]
) -> Float[Array, "..."]:
    """:func:`arc_cosine_1` where the sine and cosine of θ are at hand, as they are if θ comes from a scalar product."""
    return (sine + (np.pi - theta) * cosine) / (2 * np.pi)
