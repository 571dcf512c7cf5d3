"""E[G_i G_iᵀ] of a two-layer ReLU network W_2 σ(W_1 x) with N(0, 1) weights and x ~ N(0, I).

W_1: d_1×d_0, W_2: d_2×d_1, target Φ: d_2×d_0. Everything is exact at every finite size
(outer-product, Theorem 3) and vectorized over the sizes, in float64; sizes below 1 are a
ValueError. The off-diagonal of layer 1 is sharper than the theorem.

The addition from a batch of n independent inputs follows from gradients at one input: see
`specjax.theory.relu_one_input`.
"""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import polygamma
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64

_Numbers = Float[Array, "..."]


@in_float64
@checked
def alpha(d0: ArrayLike, d1: ArrayLike) -> _Numbers:
    """α = E[tr H²] = d_1 d_0 (d_0 + 2)/4 + d_1 (d_1 - 1) d_0² E[g(θ)²] (outer-product, C.5).

    H = E_x[σ(W_1 x) σ(W_1 x)ᵀ]. With g the arc-cosine kernel, 4π² E[g(θ)²] = (d - 1)(d² + 2d +
    2)/d³ + π²/4d + ψ₁(d/2)/2d at d = d_0. [ours] In φ = π/2 - θ it is the mean of cos² φ + 2φ sin φ
    cos φ + (π²/4 + φ²) sin² φ, since the rest is odd. `kappa_1` has the means of φ² and of φ sin φ
    cos φ; that of φ² cos² φ is E[cos² φ] times E[φ²] at d + 2, and ψ₁(x + 1) = ψ₁(x) - 1/x².
    """
    check_in("[1, inf)", d0=d0, d1=d1)
    d0, d1 = floats(d0, d1)
    square = (d0 - 1) * (d0**2 + 2 * d0 + 2) / d0**3 + np.pi**2 / (4 * d0) + _squared_angle(d0) / d0
    return d1 * d0 * (d0 + 2) / 4 + d1 * (d1 - 1) * d0**2 * square / (4 * np.pi**2)


@in_float64
@checked
def kappa_1(d0: ArrayLike) -> _Numbers:
    """κ_1 = E[(sin² θ + (π - θ)²)/4π² + sin θ cos θ (π - θ)/2π²] (outer-product, eq. 36).

    It tends to 1/4π² + 1/16. At d = d_0 it is 1/16 + [(d - 1)(d + 2)/d² + ψ₁(d/2)/2]/4π². [ours] φ
    = π/2 - θ has the density ∝ cos^(d-2) φ, which is even: so E[sin² θ] = 1 - 1/d, E[(π - θ)²] =
    π²/4 + E[φ²], and E[φ sin φ cos φ] = (d - 1)/d² by parts. E exp(itφ) is a constant over Γ((d +
    t)/2) Γ((d - t)/2), so that E[φ²] = ψ₁(d/2)/2.
    """
    check_in("[1, inf)", d0=d0)
    (d0,) = floats(d0)
    return 1 / 16 + ((d0 - 1) * (d0 + 2) / d0**2 + _squared_angle(d0)) / (4 * np.pi**2)


@in_float64
@checked
def kappa_2(d0: ArrayLike) -> _Numbers:
    """κ_2 = E[sin θ (π - θ)]/2π², used by the paper for the off-diagonal (outer-product, eq. 37).

    It tends to 1/4π. It is Γ(x)²/(4π Γ(x - 1/2) Γ(x + 1/2)) with x = d_0/2. [ours] Since sin θ is
    even about π/2, it is E[sin θ]/4π.
    """
    check_in("[1, inf)", d0=d0)
    (d0,) = floats(d0)
    return _mean_sine(d0) / (4 * np.pi)


# log(Γ(y)²/(Γ(y - 1/2) Γ(y + 1/2))) in powers 1 to 9 of 1/y, by Stirling's series; exact to
# rounding for y > 20.
_GAMMA_RATIO = (
    -1 / 4,
    -1 / 8,
    -5 / 96,
    -1 / 64,
    -1 / 320,
    -1 / 384,
    -25 / 7168,
    -1 / 2048,
    29 / 9216,
)


def _mean_sine(d: Array) -> Array:
    """E[sin θ] = Γ(x)²/(Γ(x - 1/2) Γ(x + 1/2)), x = d/2, for two independent N(0, I_d) vectors.

    From its value at x + 20 by Γ(x + 1) = x Γ(x): at large d, differences of log Γ lose digits.
    """
    x = d / 2
    product = jnp.ones_like(x)
    for j in range(20):
        product = product * (1 - 1 / (4 * (x + j) ** 2))
    powers = jnp.asarray((*_GAMMA_RATIO[::-1], 0.0), x.dtype)
    return product * jnp.exp(jnp.polyval(powers, 1 / (x + 20)))


def _squared_angle(d: Array) -> Array:
    """E[(π/2 - θ)²] = ψ₁(d/2)/2 for the angle of two independent N(0, I_d) vectors."""
    return polygamma(1, d / 2) / 2


@in_float64
@checked
def expected_outer_product_2(
    target: Float[Array, "d2 d0"], d1: ArrayLike
) -> Float[Array, "*d1 d2 d2"]:
    """E[G_2 G_2ᵀ] = α I + (d_1/4) Φ Φᵀ, for each d_1 (outer-product, eq. 38)."""
    (target,) = floats(target)
    d2, d0 = target.shape
    isotropic, width = alpha(d0, d1)[..., None, None], floats(d1)[0][..., None, None]
    each_d1 = (1,) * (width.ndim - 2) + (d2, d2)
    return isotropic * jnp.eye(d2).reshape(each_d1) + width / 4 * (target @ target.T).reshape(
        each_d1
    )


@in_float64
@checked
def diagonal_1(
    d0: ArrayLike, d1: ArrayLike, d2: ArrayLike, target_norm_squared: ArrayLike
) -> _Numbers:
    """E[(G_1 G_1ᵀ)_aa] = d_0 d_2²/4 + d_0 d_2 [(d_1 - 1) κ_1 + 1/2] + ‖Φ‖_F²/4 (eq. 39)."""
    check_in("[1, inf)", d0=d0, d1=d1, d2=d2)
    check_in("[0, inf)", target_norm_squared=target_norm_squared)
    d0, d1, d2, norm_squared = floats(d0, d1, d2, target_norm_squared)
    return d0 * d2**2 / 4 + d0 * d2 * ((d1 - 1) * kappa_1(d0) + 0.5) + norm_squared / 4


@in_float64
@checked
def off_diagonal_1(d0: ArrayLike, d2: ArrayLike) -> _Numbers:
    """E[(G_1 G_1ᵀ)_ac] = d_0 d_2/4π for a != c, exact; the paper has d_0 d_2 κ_2 + O(d_2 √d_0).

    Only T_3 = d_2 E[F(w_a, w_c)·F(w_c, w_a)] survives (eq. 52). Write both factors F(u, v) =
    E_x[σ'(uᵀx) σ(vᵀx) x] with the independent Gaussians x and y and exchange the averages:
    E_u[σ'(uᵀx) σ(uᵀy)] = ‖y‖ (1 + cos φ)/(2√2π), φ the angle of x and y. So T_3/d_2 = E[(x·y)
    ‖x‖‖y‖ (1 + cos φ)²]/8π = E[‖x‖²‖y‖²] E[cos φ (1 + cos φ)²]/8π = d_0² (2/d_0)/8π.

    Examples:
        >>> from specjax.theory import relu_network
        >>> round(float(relu_network.off_diagonal_1(2, 3)), 2)
        0.48
    """
    check_in("[1, inf)", d0=d0, d2=d2)
    d0, d2 = floats(d0, d2)
    return d0 * d2 / (4 * np.pi)


@in_float64
@checked
def off_diagonal_1_as_printed(d0: ArrayLike, d2: ArrayLike) -> _Numbers:
    """d_0 d_2 κ_2, the printed off-diagonal of layer 1 (eq. 40), 36% too small at d_0 = 2.

    At d_0 = 25 it is 2% too small. Kept to measure the difference; use `off_diagonal_1`.
    """
    check_in("[1, inf)", d0=d0, d2=d2)
    d0, d2 = floats(d0, d2)
    return d0 * d2 * kappa_2(d0)
