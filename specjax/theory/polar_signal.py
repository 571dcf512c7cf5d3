"""What the polar factor keeps of a signal in Gaussian noise, for large matrices.

Let G = M + σ Z, Z an m × n matrix of independent standard normals, and M of fixed rank with
singular values μ_k and singular vectors u_k, v_k. In the limit of large m and n with m/n fixed

    E[polar(G)] = Σ_k f(μ_k) u_k v_kᵀ,    f(μ) = (2/π) ∫_0^∞ μ p / (1 + μ² p) dt,

where p(t) is the smaller root of σ⁴ m n p² - (σ² (m + n) + t²) p + 1 = 0. For it polar(G) is
written as (2/π) ∫ G (Gᵀ G + t²)⁻¹ dt. With a = (t/m) tr (X Xᵀ + t²)⁻¹ and b = (t/n) tr (Xᵀ X +
t²)⁻¹ of the noise X = σ Z, both scalars in the limit, a = 1/(t + σ² n b) and b = 1/(t + σ² m a), so
that p = a b has the quadratic. A term μ u vᵀ changes the resolvent by a matrix of rank two: uᵀ G
(Gᵀ G + t²)⁻¹ v = μ p/(1 + μ² p).

For m = n the integral is (2/π) (1/θ + (1 - 1/θ²) arctan θ), θ = μ/(σ √n). It is smooth at θ = 1,
where the largest singular vectors begin to see the signal (Baik, Ben Arous, Péché 2005;
Benaych-Georges, Nadakuditi 2012). For small μ it is μ E‖Z‖_*/(σ m n), which by Stein's lemma is
exact in m and n to first order.

A signal of a rank that grows with n fills a part of the noise. Let θ_k = μ_k/(σ √n) for n ≥ m, and

    α(q) = (1/n) (n - r + Σ_k q/(q + θ_k²)),    β(q) = α(q) - (n - m)/n,
    f_k = (2/π) ∫_(q₀)^∞ θ_k t(q)/(q + θ_k²)² dq,    t² = (q - α)(q - β)/q,

q₀ being the largest root of q = α(q). For fixed rank α = 1 and β = m/n, and q is 1/p above, in
units of σ² n. If all r = n = m singular values are θ ≥ 1, f is 1 - 1/(4 θ²).

Beyond the papers; derived in docs/beyond/polar-signal.md and docs/beyond/polar-rank.md.
"""

from functools import partial

import jax
import numpy as np
from jax import numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64

_NEWTON = 60
"""Steps to the root q₀; even where it is double each step halves the distance."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)


@in_float64
@checked
def kept_share(
    mu: ArrayLike, m: ArrayLike, n: ArrayLike, sigma: ArrayLike = 1.0
) -> Float[Array, "..."]:
    """f(μ), the mean of uᵀ polar(M + σ Z) v for a term μ u vᵀ of M, in [0, 1); asymptotic.

    It is 1 where the polar factor has the signal whole, and μ E‖Z‖_*/(σ m n) where it is small. The
    error is of order 1/n; at m = n = 16 it is below 0.01.

    Args:
        mu: Singular value of the signal, any shape.
        m: Rows, broadcast against `mu`.
        n: Columns.
        sigma: Standard deviation of an entry of the noise; of the mean over a batch of B samples
            it falls as 1/√B.

    Returns:
        A float64 array.

    Raises:
        ValueError: μ < 0, m < 1, n < 1 or σ <= 0.

    Examples:
        >>> from specjax.theory import polar_signal
        >>> round(float(polar_signal.kept_share(8.0, 64, 64)), 4)  # θ = 1: 2/π
        0.6366
    """
    check_in("[0, inf)", mu=mu)
    check_in("[1, inf)", m=m, n=n)
    check_in("(0, inf)", sigma=sigma)
    mu, m, n, sigma = floats(mu, m, n, sigma)
    # In units in which the noise has σ² max(m, n) = 1, and its singular values are of order 1.
    long = jnp.maximum(m, n)
    return _kept(mu / (sigma * jnp.sqrt(long)), jnp.minimum(m, n) / long)


# One program, since each operation of a first run compiles alone otherwise.
@jax.jit
@jnp.vectorize
def _kept(theta: Float[Array, ""], ratio: Float[Array, ""]) -> Float[Array, ""]:
    """f(θ) of matrices with the short side over the long one."""
    # t = s tan φ with s of the order at which the integrand falls.
    scale, phi = jnp.maximum(theta, 1.0), np.pi / 4 * (_NODES + 1)
    t = scale * np.tan(phi)
    # The smaller root of c p² - (1 + c + t²) p + 1 = 0, without cancellation.
    p = 2 / (1 + ratio + t**2 + jnp.sqrt((1 - ratio) ** 2 + 2 * (1 + ratio) * t**2 + t**4))
    return jnp.sum(theta * p / (1 + theta**2 * p) * scale / np.cos(phi) ** 2 * _WEIGHTS) / 2


@in_float64
@checked
def kept_shares(mus: ArrayLike, m: int, n: int, sigma: ArrayLike = 1.0) -> Float[Array, "*batch r"]:
    """f_k, the means of u_kᵀ polar(M + σ Z) v_k for all singular values μ_k of M at once, whose
    number may grow with n; asymptotic.

    Strong terms leave less room to the noise, so that each share is larger than `kept_share` of
    that term alone.

    Args:
        mus: Singular values of the signal, zeros included or not, at most min(m, n).
        m: Rows.
        n: Columns.
        sigma: Standard deviation of an entry of the noise, a number or one for each batch.

    Returns:
        A float64 array.

    Raises:
        ValueError: μ < 0, no or more than min(m, n) singular values, m < 1, n < 1 or σ <= 0.

    Examples:
        >>> import numpy as np
        >>> from specjax.theory import polar_signal
        >>> found = polar_signal.kept_shares(np.full(64, 8.0), 64, 64)  # θ = 1: 1 - 1/4
        >>> round(float(found[0]), 4)
        0.75
    """
    check_in("[0, inf)", mus=mus)
    check_in("[1, inf)", m=m, n=n)
    check_in("(0, inf)", sigma=sigma)
    mus, sigma = floats(mus, sigma)
    if mus.ndim == 0 or not 0 < mus.shape[-1] <= min(m, n):
        raise ValueError(
            f"mus needs 1 to {min(m, n)} singular values of {m} x {n} matrices on its last axis,"
            f" got the shape {mus.shape}."
        )
    short, long = floats(min(m, n), max(m, n))
    norm = sigma * jnp.sqrt(long)
    # A number stays one: strict promotion of ranks refuses an axis that a batch lacks.
    thetas = mus / (norm[..., None] if norm.ndim else norm)
    return _kept_together(thetas, short / long, long)


@jax.jit
@partial(jnp.vectorize, signature="(r),(),()->(r)")
def _kept_together(
    thetas: Float[Array, " r"], ratio: Float[Array, ""], long: Float[Array, ""]
) -> Float[Array, " r"]:
    """f_k of signals in units of the noise's norm; the short side is `ratio` times `long`."""
    squares = thetas**2

    def alpha(q: Array) -> Array:
        one = jnp.expand_dims(squares, tuple(range(q.ndim)))
        return 1 - jnp.sum(one / (q[..., None] + one), axis=-1) / long

    def newton(_: Array, q: Array) -> Array:
        # q - α(q) is convex and not negative at 1, so that the steps fall to the largest root.
        slope = 1 - jnp.sum(squares / (q + squares) ** 2) / long
        return jnp.where(slope > 0, jnp.maximum(q - (q - alpha(q)) / slope, 0), q)

    start = jnp.sqrt(jax.lax.fori_loop(0, _NEWTON, newton, jnp.ones(())))
    # √q = √q₀ + s tan² φ, which takes the root of t at q₀ away; s is the place of the integrand.
    tangent, scale = np.tan(np.pi / 4 * (_NODES + 1))[None], jnp.maximum(thetas, start)[:, None]
    root = start + scale * tangent**2
    q = root**2
    beside = alpha(q)
    t = jnp.sqrt(jnp.maximum((q - beside) * (q - beside + 1 - ratio), 0)) / root
    measure = 2 * root * 2 * scale * tangent * (1 + tangent**2)
    share = thetas[:, None] * t / (q + squares[:, None]) ** 2 * measure
    return jnp.sum(share * _WEIGHTS[None], axis=-1) / 2


@in_float64
@checked
def square_kept_share(theta: ArrayLike) -> Float[Array, "..."]:
    """f for m = n in closed form, (2/π) (1/θ + (1 - 1/θ²) arctan θ), θ = μ/(σ √n); asymptotic.

    Raises:
        ValueError: θ < 0.

    Examples:
        >>> from specjax.theory import polar_signal
        >>> round(float(polar_signal.square_kept_share(0.1)), 4)  # 8θ/3π less its cube
        0.0845
    """
    check_in("[0, inf)", theta=theta)
    return _square_kept(*floats(theta))


@jax.jit
def _square_kept(theta: Float[Array, "..."]) -> Float[Array, "..."]:
    small = theta < 0.02
    safe = jnp.where(small, 1.0, theta)
    exact = 1 / safe + (1 - safe**-2) * jnp.arctan(safe)
    # To order θ⁵, where the closed form cancels.
    series = theta * (4 / 3 - theta**2 * (8 / 15 - theta**2 * 12 / 35))
    return 2 / np.pi * jnp.where(small, series, exact)


@in_float64
@checked
def momentum_gain(
    mu: ArrayLike, m: ArrayLike, n: ArrayLike, beta: ArrayLike, sigma: ArrayLike = 1.0
) -> Float[Array, "..."]:
    """f of the averaged gradient over f of one: what momentum before the polar factor keeps more of
    the signal than momentum after it, which averages factors of single gradients.

    The average Σ (1 - β) βⁱ G_i over a long past has the signal of one gradient and noise smaller
    by √((1 - β)/(1 + β)). For a weak signal the gain is √((1 + β)/(1 - β)), for a strong one 1;
    asymptotic.

    Raises:
        ValueError: as `kept_share`, or β outside [0, 1).

    Examples:
        >>> from specjax.theory import polar_signal
        >>> round(float(polar_signal.momentum_gain(0.01, 64, 64, 0.9)), 2)  # √19
        4.36
    """
    check_in("[0, 1)", beta=beta)
    (beta,) = floats(beta)
    averaged = kept_share(mu, m, n, jnp.asarray(sigma) * jnp.sqrt((1 - beta) / (1 + beta)))
    return averaged / kept_share(mu, m, n, sigma)
