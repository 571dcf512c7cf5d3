"""Scalar sequences of Muon's decoupled spectrum, and bounds (Section 3.1, Lemmas 1, 2, 9, 11).

Factorization (eq. 27): x ← x - η_t sign((x² - λ) x), with the two roots ±√λ. In-context regression
(eq. 73): q ← q - η_t sign(q - c). The distance to the nearest root satisfies Δ_{t+1} <= |Δ_t - η_t|
(eq. 35), the only property used by the bounds. Everything is elementwise in arrays that broadcast,
and sign(0) = 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import floats


@checked
def factorization_step(x: ArrayLike, lam: ArrayLike, rate: ArrayLike) -> Float[Array, "..."]:
    """x - rate · sign((x² - λ) x), Muon's scalar step on ¼ (x² - λ)² (eq. 27); x = 0 is fixed."""
    x, lam, rate = floats(x, lam, rate)
    return x - rate * jnp.sign((x**2 - lam) * x)


@checked
def regression_step(q: ArrayLike, c: ArrayLike, rate: ArrayLike) -> Float[Array, "..."]:
    """q - rate · sign(q - c) for an eigenvalue c of the minimizer, 1/λ in the paper (eq. 73)."""
    q, c, rate = floats(q, c, rate)
    return q - rate * jnp.sign(q - c)


@checked
def distance(x: ArrayLike, lam: ArrayLike) -> Float[Array, "..."]:
    """Δ = | |x| - √λ |, the distance to the nearer of ±√λ (eq. 34)."""
    x, lam = floats(x, lam)
    return jnp.abs(jnp.abs(x) - jnp.sqrt(lam))


@checked
def tail(rates: Float[Array, "*batch steps"]) -> Float[Array, "*batch steps"]:
    """S_t = Σ_{s>=t} rates_s along the last axis, the remaining travel: Δ_t <= S_t (Lemma 11)."""
    return jnp.flip(jnp.cumsum(jnp.flip(rates, -1), -1), -1)


@checked
def geometric_tail(rate: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """rate / (1 - ρ), the sum of all steps from one of size `rate` on, at a constant prefactor."""
    rate, rho = floats(rate, rho)
    return rate / (1 - rho)


@checked
def distance_bound(prefactor: ArrayLike, rho: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
    """2 C ρ^t >= Δ_t for η_t = C ρ^t, ρ in [1/2, 1), Δ_0 <= 2 C (eqs. 28a and 74)."""
    prefactor, rho, t = floats(prefactor, rho, t)
    return 2 * prefactor * rho**t


@checked
def error_bound(
    prefactor: ArrayLike, rho: ArrayLike, lam: ArrayLike, t: ArrayLike
) -> Float[Array, "..."]:
    """4 C ρ^t (√λ + C ρ^t) >= |x_t² - λ| under the same conditions (Lemma 2, eq. 28b)."""
    prefactor, rho, lam, t = floats(prefactor, rho, lam, t)
    step = prefactor * rho**t
    return 4 * step * (jnp.sqrt(lam) + step)


@checked
def travel_bound(prefactor: ArrayLike, rho: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
    """C ρ^t / (1 - ρ) >= Δ_t for ρ in [1/2, 1) and all Δ_0 <= C / (1 - ρ) that can arrive (ours).

    If Δ_0 <= 2 C too, `distance_bound` is smaller for ρ > 1/2.
    """
    prefactor, rho, t = floats(prefactor, rho, t)
    return geometric_tail(prefactor * rho**t, rho)


@checked
def random_prefactor_bound(least: ArrayLike, rho: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
    """2 C_0 ρ^t / (1 - ρ) >= Δ_t for prefactors in [C_0, 2 C_0] (Lemma 11, eq. 124a).

    For ρ in [2/3, 1) and Δ_0 <= C_0 / (1 - ρ).
    """
    least, rho, t = floats(least, rho, t)
    return geometric_tail(2 * least * rho**t, rho)


@checked
def least_decay(least: ArrayLike, largest: ArrayLike) -> Float[Array, "..."]:
    """C_max / (C_max + C_min), the least ρ with which prefactors in [C_min, C_max] always arrive.

    After one overshooting step of C_max the rest must lead back: C_max <= C_min ρ / (1 - ρ). This
    gives the paper's conditions, 1/2 for a constant prefactor and 2/3 for [C_0, 2 C_0]; below it
    `overshooting_prefactors` never arrives [sharpness ours].
    """
    least, largest = floats(least, largest)
    return largest / (largest + least)


@checked
def overshooting_prefactors(
    least: ArrayLike, largest: ArrayLike, steps: int
) -> Float[Array, " steps"]:
    """C_max once, then C_min: from Δ_0 = 0+ it ends C_max - C_min ρ / (1 - ρ) away."""
    least, largest = floats(least, largest)
    return jnp.full((steps,), least).at[0].set(largest)


@checked
def factorization_path(
    start: Float[Array, "*shape"], lam: Float[Array, "*shape"], rates: Float[Array, " steps"]
) -> Float[Array, "times ..."]:
    """x_0, ..., x_steps of eq. 27, entry by entry."""
    return _path(factorization_step, start, lam, rates)


@checked
def regression_path(
    start: Float[Array, "*shape"], c: Float[Array, "*shape"], rates: Float[Array, " steps"]
) -> Float[Array, "times ..."]:
    """q_0, ..., q_steps of eq. 73, entry by entry."""
    return _path(regression_step, start, c, rates)


def _path(step, start: Array, root: Array, rates: Array) -> Array:  # type: ignore[no-untyped-def]
    def advance(x: Array, rate: Array) -> tuple[Array, Array]:
        x = step(x, root, jnp.broadcast_to(rate, x.shape))
        return x, x

    _, path = jax.lax.scan(advance, start, rates)
    return jnp.concatenate([start[None], path])
