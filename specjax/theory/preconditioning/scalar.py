"""The scalar sequences that Muon's spectrum decouples into, and what bounds them (preconditioning,
Section 3.1, Lemmas 1, 2, 9, 11).

Factorization (eq. 27): x ← x - η_t sign((x² - λ) x), with the two roots ±√λ. In-context regression
(eq. 73): q ← q - η_t sign(q - c). Both move the distance Δ_t to the nearest root by |Δ_t - η_t| at
most (eq. 35), and that is all that the bounds use. Everything is elementwise in arrays that
broadcast, and sign(0) = 0.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import floats


@checked
def factorization_step(x: ArrayLike, lam: ArrayLike, rate: ArrayLike) -> Float[Array, "..."]:
    """The step x - rate · sign((x² - λ) x), the scalar form of Muon on ¼ (x² - λ)² (eq. 27). x = 0
    stays where it is.
    """
    x, lam, rate = floats(x, lam, rate)
    return x - rate * jnp.sign((x**2 - lam) * x)


@checked
def regression_step(q: ArrayLike, c: ArrayLike, rate: ArrayLike) -> Float[Array, "..."]:
    """The step q - rate · sign(q - c), where c is an eigenvalue of the minimizer, 1/λ in the paper
    (eq. 73).
    """
    q, c, rate = floats(q, c, rate)
    return q - rate * jnp.sign(q - c)


@checked
def distance(x: ArrayLike, lam: ArrayLike) -> Float[Array, "..."]:
    """Δ = | |x| - √λ |, the distance to the nearer of ±√λ (eq. 34)."""
    x, lam = floats(x, lam)
    return jnp.abs(jnp.abs(x) - jnp.sqrt(lam))


@checked
def tail(rates: Float[Array, "*batch steps"]) -> Float[Array, "*batch steps"]:
    """S_t = Σ_{s>=t} rates_s along the last axis: how far a sequence can still move. Δ_t <= S_t is
    what Lemma 11 proves.
    """
    return jnp.flip(jnp.cumsum(jnp.flip(rates, -1), -1), -1)


@checked
def geometric_tail(rate: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """The sum rate / (1 - ρ) of all steps from one of size `rate` on, at a constant prefactor."""
    rate, rho = floats(rate, rho)
    return rate / (1 - rho)


@checked
def distance_bound(prefactor: ArrayLike, rho: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
    """2 C ρ^t >= Δ_t for η_t = C ρ^t, ρ in [1/2, 1) and Δ_0 <= 2 C (Lemma 2, eq. 28a; Lemma 9, eq.
    74).
    """
    prefactor, rho, t = floats(prefactor, rho, t)
    return 2 * prefactor * rho**t


@checked
def error_bound(
    prefactor: ArrayLike, rho: ArrayLike, lam: ArrayLike, t: ArrayLike
) -> Float[Array, "..."]:
    """4 C ρ^t (√λ + C ρ^t) >= |x_t² - λ| under the same conditions (Lemma 2, eq. 28b): Δ (Δ + 2 √λ)
    with Δ = 2 C ρ^t.
    """
    prefactor, rho, lam, t = floats(prefactor, rho, lam, t)
    step = prefactor * rho**t
    return 4 * step * (jnp.sqrt(lam) + step)


@checked
def travel_bound(prefactor: ArrayLike, rho: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
    """C ρ^t / (1 - ρ) >= Δ_t for ρ in [1/2, 1) and Δ_0 <= C / (1 - ρ), all starts that can arrive
    at all (ours).

    It allows the farthest start; where Δ_0 <= 2 C too, `distance_bound` is the smaller for ρ > 1/2.
    """
    prefactor, rho, t = floats(prefactor, rho, t)
    return geometric_tail(prefactor * rho**t, rho)


@checked
def random_prefactor_bound(least: ArrayLike, rho: ArrayLike, t: ArrayLike) -> Float[Array, "..."]:
    """2 C_0 ρ^t / (1 - ρ) >= Δ_t for any prefactors in [C_0, 2 C_0], ρ in [2/3, 1), Δ_0 <= C_0 / (1
    - ρ) (Lemma 11, eq. 124a).
    """
    least, rho, t = floats(least, rho, t)
    return geometric_tail(2 * least * rho**t, rho)


@checked
def least_decay(least: ArrayLike, largest: ArrayLike) -> Float[Array, "..."]:
    """C_max / (C_max + C_min): the smallest ρ for which steps with prefactors in [C_min, C_max]
    arrive from everywhere.

    After one step of C_max that overshoots, the rest must lead back: C_max <= C_min ρ / (1 - ρ). So
    1/2 for a constant prefactor and 2/3 for [C_0, 2 C_0], the two conditions of the paper; below it
    `overshooting_prefactors` never arrives [sharpness ours].
    """
    least, largest = floats(least, largest)
    return largest / (largest + least)


@checked
def overshooting_prefactors(
    least: ArrayLike, largest: ArrayLike, steps: int
) -> Float[Array, " steps"]:
    """C_max once, then C_min: from Δ_0 = 0+ the sequence ends C_max - C_min ρ / (1 - ρ) away,
    positive for ρ below `least_decay`.
    """
    least, largest = floats(least, largest)
    return jnp.full((steps,), least).at[0].set(largest)


@checked
def factorization_path(
    start: Float[Array, "*shape"], lam: Float[Array, "*shape"], rates: Float[Array, " steps"]
) -> Float[Array, "times ..."]:
    """x_0, ..., x_steps of eq. 27, each entry by itself."""
    return _path(factorization_step, start, lam, rates)


@checked
def regression_path(
    start: Float[Array, "*shape"], c: Float[Array, "*shape"], rates: Float[Array, " steps"]
) -> Float[Array, "times ..."]:
    """q_0, ..., q_steps of eq. 73, each entry by itself."""
    return _path(regression_step, start, c, rates)


def _path(step, start: Array, root: Array, rates: Array) -> Array:  # type: ignore[no-untyped-def]
    def advance(x: Array, rate: Array) -> tuple[Array, Array]:
        x = step(x, root, jnp.broadcast_to(rate, x.shape))
        return x, x

    _, path = jax.lax.scan(advance, start, rates)
    return jnp.concatenate([start[None], path])
