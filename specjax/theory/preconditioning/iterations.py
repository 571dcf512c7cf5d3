"""Iteration counts: upper bounds for Muon, and gradient descent (Theorems 1, 3, eqs. 10, 23).

All are real numbers; round up. `largest` is the largest eigenvalue λ_1 of the target and `accuracy`
the error ε in the operator norm, so that only λ_1 / ε enters, not the condition number. Constants
that the paper leaves open are marked as ours. Everything is float64; accuracies, eigenvalues and
rates that are not positive are a ValueError.
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64
from specjax.theory.preconditioning.conditions import check_condition_number, check_decay


@in_float64
@checked
def theorem_1a(largest: ArrayLike, accuracy: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """log(8 λ_1 / ε) / log(1/ρ) steps of Muon on a factorization with k >= d (constant ours).

    The prefactor C is from [√λ_1 / 2, √λ_1]. From Lemma 2 with C <= √λ_1: |x² - λ| <= 4 C ρ^t (√λ +
    C ρ^t) <= 8 λ_1 ρ^t. Raises ValueError for ρ outside [1/2, 1).
    """
    check_in("(0, inf)", largest=largest, accuracy=accuracy)
    check_decay(rho)
    largest, accuracy, rho = floats(largest, accuracy, rho)
    return jnp.log(8 * largest / accuracy) / jnp.log(1 / rho)


@in_float64
@checked
def theorem_1b(largest: ArrayLike, accuracy: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """log(4 λ_1 / ((1 - ρ)² ε)) / log(1/ρ) steps of Muon with r <= k < d (constant ours).

    Prefactors are from [C_0, 2 C_0], C_0 = √λ_1 / 2. From Lemma 11, Δ <= δ = 2 C_0 ρ^t / (1 - ρ)
    gives |x² - λ| <= δ (2 √λ_1 + δ), which is at most ε where δ (2 √λ_1 + √λ_1 / (1 - ρ)) is; 2 +
    1/(1 - ρ) <= 3 / (1 - ρ) leaves 3 λ_1 ρ^t / (1 - ρ)², and the fourth λ_1 is for the distance to
    the auxiliary trajectory. The initialization must be small enough. Raises ValueError for ρ
    outside [2/3, 1).
    """
    check_in("(0, inf)", largest=largest, accuracy=accuracy)
    check_decay(rho, 2 / 3)
    largest, accuracy, rho = floats(largest, accuracy, rho)
    return jnp.log(4 * largest / ((1 - rho) ** 2 * accuracy)) / jnp.log(1 / rho)


@in_float64
@checked
def theorem_3(prefactor: ArrayLike, accuracy: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """log(2 C / ε) / log(1/ρ) steps of Muon in context from Q_0 = 0, C >= ‖S⁻¹‖ / 2 (eq. 75).

    Raises ValueError for ρ outside [1/2, 1).
    """
    check_in("(0, inf)", prefactor=prefactor, accuracy=accuracy)
    check_decay(rho)
    prefactor, accuracy, rho = floats(prefactor, accuracy, rho)
    return jnp.log(2 * prefactor / accuracy) / jnp.log(1 / rho)


@in_float64
@checked
def gradient_flow_factorization(
    lam: ArrayLike, start: ArrayLike, accuracy: ArrayLike, rate: ArrayLike
) -> Float[Array, "..."]:
    """Steps of gradient descent on ¼ (x² - λ)² from `start` to λ - x² = ε, by the flow (ours).

    Exact as rate · λ → 0. u = x² obeys du/dt = 2 (λ - u) u, so t = [log((λ - ε)/ε) - log(u_0/(λ -
    u_0))] / (2 λ): the κ log(1/ε) of eq. 10 for λ = λ_1/κ, with log(λ²/(ε u_0)) for its logarithm.
    Zero where the error is below ε from the start.
    """
    check_in("(0, inf)", lam=lam, accuracy=accuracy, rate=rate)
    lam, start, accuracy, rate = floats(lam, start, accuracy, rate)
    u = start**2
    needed = lam - u > accuracy
    safe = jnp.where(needed, accuracy, lam / 2)
    growth = jnp.log((lam - safe) / safe) - jnp.log(jnp.where(needed, u / (lam - u), 1))
    return jnp.where(needed, growth / (2 * lam * rate), 0)


@in_float64
@checked
def gradient_descent_regression(
    kappa: ArrayLike, accuracy: ArrayLike, rate: ArrayLike = 1.0
) -> Float[Array, "..."]:
    """log ε / log(1 - rate κ⁻³) steps of gradient descent in context from Q_0 = 0 (eq. 21) (ours).

    Exact for 0 < rate <= 1. S has the eigenvalues from 1 to 1/κ and ε is relative to ‖S⁻¹‖ = κ. The
    error of eigenvalue λ is (1 - rate λ³)^t / λ, and the smallest λ has the largest error at every
    t. Rate 2 / (1 + κ⁻³) halves this at best. Raises ValueError for κ below 1.
    """
    check_in("(0, inf)", accuracy=accuracy)
    check_in("(0, 1]", rate=rate)
    check_condition_number(kappa)
    kappa, accuracy, rate = floats(kappa, accuracy, rate)
    return jnp.log(accuracy) / jnp.log1p(-rate * kappa**-3)


@in_float64
@checked
def sign_gradient_quadratic(kappa: ArrayLike, barrier: ArrayLike) -> Float[Array, "..."]:
    """barrier + κ/4, a lower bound for `adversarial.quadratic` (Lemma 12, constant ours).

    `barrier` is the number of steps in which the small eigenvalue is frozen. Then a step is below 2
    b_0 / κ, and b_0 = 2 ε must halve.
    """
    check_in("[0, inf)", barrier=barrier)
    check_condition_number(kappa)
    kappa, barrier = floats(kappa, barrier)
    return barrier + kappa / 4


@in_float64
@checked
def sign_gradient_factorization(kappa: ArrayLike, barrier: ArrayLike) -> Float[Array, "..."]:
    """barrier + κ/12, a lower bound for `adversarial.factorization` (Theorem 2, constant ours).

    Steps below 6 b_0 / κ must halve b_0.
    """
    check_in("[0, inf)", barrier=barrier)
    check_condition_number(kappa)
    kappa, barrier = floats(kappa, barrier)
    return barrier + kappa / 12


@in_float64
@checked
def sign_gradient_regression(kappa: ArrayLike, barrier: ArrayLike) -> Float[Array, "..."]:
    """barrier + κ³/4, a lower bound for `adversarial.regression` (Theorem 4, constant ours)."""
    check_in("[0, inf)", barrier=barrier)
    check_condition_number(kappa)
    kappa, barrier = floats(kappa, barrier)
    return barrier + kappa**3 / 4
