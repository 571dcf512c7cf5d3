"""Gaussian moments of activations σ(t), t ~ N(0, v), and noise-to-signal ratios of features.

NSR(z) = E‖z‖² / ‖E z‖² of z = σ(W x) bounds the effective rank of E[z zᵀ], and with it the stable
rank of many columns of features (spectral-criterion, Section 2.1 and Figure 12). For x ~ N(0, Σ) it
depends only on the variances v_i = w_iᵀ Σ w_i of the rows of W.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import legendre

_Numbers = Float[Array, "..."]

_REACH = 12.0
"""Where the density is below 1e-31; 200 nodes on each side of 0 are exact for v <= 100."""


class Activation(NamedTuple):
    """A scalar function, its Gaussian moments and bounds on its derivatives.

    `mean` and `second` are E σ(t) and E σ(t)² for t ~ N(0, v) as functions of v, closed forms
    unless `quadrature`. `slope` and `bend` are the suprema of |σ'| and |σ''|, infinite if
    unbounded.
    """

    function: Callable[[Float[Array, "..."]], Float[Array, "..."]]
    mean: Callable[[_Numbers], _Numbers]
    second: Callable[[_Numbers], _Numbers]
    slope: float
    bend: float
    quadrature: bool = False


@checked
def gaussian_mean(f: Callable[[_Numbers], _Numbers], variance: ArrayLike) -> _Numbers:
    """E f(t), t ~ N(0, v), by quadrature on both sides of 0; accurate for v up to 100.

    Examples:
        >>> from specjax.theory import activations
        >>> round(float(activations.gaussian_mean(jnp.square, 2.0)), 2)
        2.0
    """
    v = _floats(variance)[..., None]
    along = (1,) * (v.ndim - 1) + (-1,)
    nodes, weights = legendre(200)
    x = jnp.asarray((nodes + 1) * _REACH / 2, v.dtype).reshape(along)
    density = (
        jnp.asarray(weights * _REACH / 2, v.dtype).reshape(along)
        * jnp.exp(-(x**2) / 2)
        / np.sqrt(2 * np.pi)
    )
    t = jnp.sqrt(v) * x
    return jnp.sum(density * (f(t) + f(-t)), axis=-1)


@checked
def leaky_relu(below: float) -> Activation:
    """t for t ≥ 0 and `below`·t for t < 0; `below` = 0 is the ReLU, -1 the absolute value."""
    return Activation(
        lambda t: jnp.where(t >= 0, t, below * t),
        lambda v: (1 - below) * jnp.sqrt(v / (2 * np.pi)),
        lambda v: (1 + below**2) * v / 2,
        max(1.0, abs(below)),
        np.inf,
    )


def _gelu_second(v: _Numbers) -> _Numbers:
    """E[t² Φ(t)²]: by Stein's identity v E[Φ²] + v² E[(Φ²)''], E[Φ²] = 1/4 + asin(v/(1+v))/2π,
    E[φ²] = 1/(2π √(1+2v)).
    """
    share = v / (1 + v)
    return v / 4 + v * jnp.arcsin(share) / (2 * np.pi) + v * share / (np.pi * jnp.sqrt(1 + 2 * v))


def _gelu(t: _Numbers) -> _Numbers:
    return jax.nn.gelu(t, approximate=False)


def _second_by_quadrature(f: Callable[[_Numbers], _Numbers]) -> Callable[[_Numbers], _Numbers]:
    return lambda v: gaussian_mean(lambda t: f(t) ** 2, v)


ACTIVATIONS: dict[str, Activation] = {
    "relu": leaky_relu(0.0),
    "leaky_relu": leaky_relu(0.1),
    "abs": leaky_relu(-1.0),
    "square": Activation(lambda t: t**2, lambda v: v, lambda v: 3 * v**2, np.inf, 2.0),
    "relu_squared": Activation(
        lambda t: jnp.maximum(t, 0) ** 2, lambda v: v / 2, lambda v: 3 * v**2 / 2, np.inf, 2.0
    ),
    # The extrema of σ' solve t = ±√2; |σ''| = |2 - t²| φ(t) is largest at 0.
    "gelu": Activation(
        _gelu,
        lambda v: v / jnp.sqrt(2 * np.pi * (1 + v)),
        _gelu_second,
        (1 + math.erf(1)) / 2 + math.exp(-1) / math.sqrt(math.pi),
        2 / np.sqrt(2 * np.pi),
    ),
    "silu": Activation(
        jax.nn.silu,
        lambda v: gaussian_mean(jax.nn.silu, v),
        _second_by_quadrature(jax.nn.silu),
        slope=1.0998396,
        bend=0.5,
        quadrature=True,
    ),
    "tanh": Activation(
        jnp.tanh,
        jnp.zeros_like,
        _second_by_quadrature(jnp.tanh),
        slope=1.0,
        bend=4 / (3 * np.sqrt(3)),
        quadrature=True,
    ),
    "erf": Activation(
        jax.lax.erf,
        jnp.zeros_like,
        lambda v: 2 / np.pi * jnp.arcsin(2 * v / (1 + 2 * v)),
        2 / np.sqrt(np.pi),
        # |σ''| = (4/√π) |t| exp(-t²) at t = 1/√2.
        4 / np.sqrt(2 * np.pi * np.e),
    ),
}
"""Activations of one argument by name. SwiGLU has two: see `swiglu_moments`."""


@checked
def nsr(activation: Activation, variances: Float[Array, "*batch rows"]) -> Float[Array, "*batch"]:
    """NSR(z) = Σ E σ(t_i)² / Σ (E σ(t_i))² for t_i ~ N(0, v_i), exact; infinite for an odd σ.

    Examples:
        >>> from specjax.theory import activations
        >>> relu = activations.leaky_relu(0.0)
        >>> round(float(activations.nsr(relu, jnp.ones(3))), 2)
        3.14
    """
    v = _floats(variances)
    return jnp.sum(activation.second(v), axis=-1) / jnp.sum(activation.mean(v) ** 2, axis=-1)


@checked
def row_nsr(activation: Activation, variance: ArrayLike) -> _Numbers:
    """E σ(t)² / (E σ(t))² of one row; NSR(z) is at most its maximum, and equal for equal rows.

    Constant in v for ReLU (π), |t| (π/2), leaky ReLU, t² (3) and ReLU² (6) (spectral-criterion,
    Figure 12 and Lemma 2.4).
    """
    v = _floats(variance)
    return activation.second(v) / activation.mean(v) ** 2


@checked
def gelu_nsr_bound(smallest_variance: ArrayLike) -> _Numbers:
    """2π (1 + s)/s with s = min_i w_iᵀ Σ w_i: the GELU bound of Figure 12, with s_*² read as s."""
    s = _floats(smallest_variance)
    return 2 * np.pi * (1 + s) / s


@checked
def gelu_alpha(smallest_variance: ArrayLike) -> _Numbers:
    """α = s/(2π (1 + s)), corrected: α v ≤ (E GELU(t))² for v ≥ s = min_i w_iᵀ Σ w_i."""
    s = _floats(smallest_variance)
    return s / (2 * np.pi * (1 + s))


@checked
def gelu_alpha_as_printed(smallest_variance: ArrayLike) -> _Numbers:
    """s_*²/(2π (1 + s_*²)) with s_* = min_i w_iᵀ Σ w_i, as printed: too large for s_* > 1.

    The claim α v ≤ (E GELU(t))² of Figure 12 is then false. Kept to measure the difference; use
    `gelu_alpha`.
    """
    return gelu_alpha(_floats(smallest_variance) ** 2)


@checked
def swiglu_moments(
    gate: ArrayLike, linear: ArrayLike, covariance: ArrayLike
) -> tuple[_Numbers, _Numbers]:
    """E z and E z² of z = SiLU(a) b for centered Gaussian a, b with covariance c.

    Their variances are `gate` v and `linear` w. E z = c E SiLU'(a) = c/2, exactly, since SiLU'(a) +
    SiLU'(-a) = 1. E z² = (w - c²/v) E SiLU(a)² + (c/v)² E a² SiLU(a)², by quadrature. For
    independent weights c is of order 1/√d, so NSR(z) grows as d, unlike that of a ReLU.
    """
    v, w, c = _floats(gate), _floats(linear), _floats(covariance)
    square = ACTIVATIONS["silu"].second(v)
    fourth = gaussian_mean(lambda t: (t * jax.nn.silu(t)) ** 2, v)
    return c / 2, (w - c**2 / v) * square + (c / v) ** 2 * fourth


def _floats(x: ArrayLike) -> Array:
    return jnp.asarray(x, jnp.result_type(float))
