"""Averages over the angle θ of two Gaussian vectors; arc-cosine kernels (Cho and Saul 2009).

For independent u, v ~ N(0, I_d) the angle has density ∝ sin^(d-2) θ on [0, π] and is independent of
the norms. The averages are computed by Gauss–Legendre quadrature, exact to rounding for the smooth
functions used here, at every d >= 1 and jit-able in d.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from jaxtyping import ArrayLike as _ArrayLike

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, legendre

# arccos x = √(1 - x) times this polynomial, lowest power first, to 2e-8 on [0, 1] (Abramowitz and
# Stegun, 4.4.46).
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

# sin^(d-2) θ is below 1e-20 of its maximum beyond this many multiples of 1/√d from π/2.
_REACH = 10.0


@checked
def angle_mean(
    q: Callable[[Float[Array, "..."]], Float[Array, "..."]], d: _ArrayLike
) -> Float[Array, "..."]:
    """E[q(θ)] for the angle θ of two independent N(0, I_d) vectors.

    Args:
        q: A smooth function of the angle, applied elementwise.
        d: Dimensions, any shape, whole numbers >= 1 (at d = 1 the angle is 0 or π).

    Returns:
        The averages, in the shape of d and JAX's default float dtype, to a few roundings.

    Raises:
        ValueError: d < 1.

    Examples:
        >>> from specjax.theory import angles
        >>> round(float(angles.angle_mean(lambda theta: jnp.cos(theta) ** 2, 4)), 2)
        0.25
    """
    check_in("[1, inf)", d=d)
    dimension = jnp.asarray(d, jnp.result_type(float))[..., None]
    reach = jnp.minimum(_REACH / jnp.sqrt(dimension), np.pi / 2)
    along = (1,) * (dimension.ndim - 1) + (-1,)
    nodes, weights = legendre(200)
    offset = reach * jnp.asarray(nodes, dimension.dtype).reshape(along)
    # log cos is computed from 1 - cos, which is small at large d: a power of the rounded cosine
    # would lose log10(d) digits.
    log_cosine = jnp.log1p(-2 * jnp.sin(offset / 2) ** 2)
    density = jnp.exp(jnp.maximum(dimension - 2, 0) * log_cosine)
    weight = jnp.asarray(weights, dimension.dtype).reshape(along) * density
    smooth = jnp.sum(weight * q(np.pi / 2 - offset), axis=-1) / jnp.sum(weight, axis=-1)
    ends = (q(jnp.zeros_like(dimension)) + q(jnp.full_like(dimension, np.pi)))[..., 0] / 2
    return jnp.where(dimension[..., 0] < 2, ends, smooth)


@jax.custom_jvp
def arccos(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The angle in [0, π] with cosine x, to 5e-7 in float32; NaN outside [-1, 1].

    In float64 it is `jnp.arccos`, which XLA computes on a CPU one entry at a time, 60 times slower
    than this polynomial; the kernels below need d_1² angles for each sampled network
    (`scripts/benchmarks/sweep.py`).
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


@checked
def arc_cosine_0(theta: Float[Array, "..."]) -> Float[Array, "..."]:
    """(π - θ)/2π = E[σ'(uᵀx) σ'(vᵀx)] for the ReLU σ, x ~ N(0, I) (outer-product, eq. 44)."""
    return (np.pi - theta) / (2 * np.pi)


@checked
def arc_cosine_1(theta: Float[Array, "..."]) -> Float[Array, "..."]:
    """g(θ) = (sin θ + (π - θ) cos θ)/2π = E[σ(uᵀx) σ(vᵀx)]/(‖u‖‖v‖) (outer-product, eq. 43).

    Examples:
        >>> from specjax.theory import angles
        >>> [round(float(angles.arc_cosine_1(theta)), 2) for theta in (0.0, jnp.pi / 2)]
        [0.5, 0.16]
    """
    return arc_cosine_1_of(theta, jnp.sin(theta), jnp.cos(theta))


@checked
def arc_cosine_1_of(
    theta: Float[Array, "..."], sine: Float[Array, "..."], cosine: Float[Array, "..."]
) -> Float[Array, "..."]:
    """`arc_cosine_1` from a known sine and cosine of θ, as for θ from a scalar product."""
    return (sine + (np.pi - theta) * cosine) / (2 * np.pi)
