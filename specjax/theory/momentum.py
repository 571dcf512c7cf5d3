"""Bias and variance of an exponential moving average beside the newest sample (claims 5 and 6).

The average m_t = γ m_{t-1} + (1 - γ) g_t of independent samples g_t = μ + ε_t with Var ε_t = σ²,
started at m_0, is compared with g_t itself, both as estimates of μ. Everything depends on s = μ²/σ²
(for m_0 = 0) and γ alone. The functions are elementwise in arrays that broadcast, are evaluated in
float64, and raise ValueError for γ outside (0, 1), or a negative σ or s.
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64


@in_float64
@checked
def ema_mse(
    mu: ArrayLike, sigma: ArrayLike, gamma: ArrayLike, t: ArrayLike, start: ArrayLike = 0.0
) -> Float[Array, "..."]:
    """E[(m_t - μ)²] = (μ - m_0)² γ^(2t) + σ² v (1 - γ^(2t)), exact.

    Here v = (1 - γ)/(1 + γ); Claim 5 has m_0 = 0.

    Examples:
        >>> from specjax.theory import momentum
        >>> round(float(momentum.ema_mse(mu=0.0, sigma=1.0, gamma=0.9, t=100)), 3)
        0.053
    """
    check_in("(0, 1)", gamma=gamma)
    check_in("[0, inf)", sigma=sigma)
    mu, sigma, gamma, t, start = floats(mu, sigma, gamma, t, start)
    kept = gamma ** (2 * t)
    return (mu - start) ** 2 * kept + sigma**2 * stationary_variance(gamma) * (1 - kept)


@in_float64
@checked
def debiased_ema_mse(sigma: ArrayLike, gamma: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
    """E[(m_t / (1 - γ^t) - μ)²] = σ² v (1 + γ^t) / (1 - γ^t) for m_0 = 0; exact [ours].

    There is no bias. The value falls from σ² at t = 1, so with Adam's correction the average helps
    from the second step on at every μ.
    """
    check_in("(0, 1)", gamma=gamma)
    check_in("[0, inf)", sigma=sigma)
    check_in("[1, inf)", t=t)
    sigma, gamma, t = floats(sigma, gamma, t)
    return sigma**2 * stationary_variance(gamma) * (1 + gamma**t) / (1 - gamma**t)


@in_float64
@checked
def stationary_variance(gamma: ArrayLike) -> Float[Array, "..."]:
    """The variance of the average at large t, in units of σ²: v = (1 - γ)/(1 + γ).

    Examples:
        >>> from specjax.theory import momentum
        >>> round(float(momentum.stationary_variance(0.5)), 2)
        0.33
    """
    check_in("(0, 1)", gamma=gamma)
    (gamma,) = floats(gamma)
    return (1 - gamma) / (1 + gamma)


@in_float64
@checked
def improvement_time(snr: ArrayLike, gamma: ArrayLike) -> Float[Array, "..."]:
    """T*: the average started at 0 beats the newest sample exactly in steps t > T* (Claim 6).

    T* = ln[2γ / ((1 + γ) s - (1 - γ))] / (2 ln γ) for s = `snr` > v. For s < `first_step_snr` it is
    below 1, and the first step gains; for s <= v every step gains and the result is -inf.

    Examples:
        >>> from specjax.theory import momentum
        >>> round(float(momentum.improvement_time(snr=5.0, gamma=0.9)), 1)
        7.8
    """
    check_in("(0, 1)", gamma=gamma)
    check_in("[0, inf)", snr=snr)
    snr, gamma = floats(snr, gamma)
    excess = (1 + gamma) * snr - (1 - gamma)
    safe = jnp.where(excess > 0, excess, 1)
    return jnp.where(excess > 0, jnp.log(2 * gamma / safe) / (2 * jnp.log(gamma)), -jnp.inf)


@in_float64
@checked
def first_step_snr(gamma: ArrayLike) -> Float[Array, "..."]:
    """(2 + γ - γ²) / (γ (1 + γ)): m_1 beats g_1 iff s is below it, not only s < v [ours]."""
    check_in("(0, 1)", gamma=gamma)
    (gamma,) = floats(gamma)
    return (2 + gamma - gamma**2) / (gamma * (1 + gamma))


@in_float64
@checked
def improves(snr: ArrayLike, gamma: ArrayLike, t: ArrayLike) -> Array:
    """Whether E[(m_t - μ)²] < σ²: (s - v) γ^(2t) < 2γ / (1 + γ), the correct form of Claim 6."""
    check_in("(0, 1)", gamma=gamma)
    check_in("[0, inf)", snr=snr)
    snr, gamma, t = floats(snr, gamma, t)
    return (snr - stationary_variance(gamma)) * gamma ** (2 * t) < 2 * gamma / (1 + gamma)


@in_float64
@checked
def improves_as_printed(snr: ArrayLike, gamma: ArrayLike, t: ArrayLike) -> Array:
    """The inequality s γ^(2t) < (1 - γ^(2t)) / (1 + γ) of Claim 6, which is wrong: see
    `improves`.
    """
    check_in("(0, 1)", gamma=gamma)
    check_in("[0, inf)", snr=snr)
    snr, gamma, t = floats(snr, gamma, t)
    kept = gamma ** (2 * t)
    return snr * kept < (1 - kept) / (1 + gamma)
