"""How many iterations: the upper bounds for Muon, and what gradient descent needs (preconditioning,
Theorems 1 and 3, eqs. 10 and 23).

All are real numbers; round up. `largest` is the largest eigenvalue λ_1 of the target and `accuracy`
the error ε in the operator norm, so that only λ_1 / ε enters, never the condition number. Constants
that the paper leaves open are ours and named so. All is float64; accuracies, eigenvalues and rates
that are not positive are a ValueError.
"""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked
from specjax.theory.closed_forms import check_in, floats, in_float64
from specjax.theory.preconditioning.conditions import check_condition_number, check_decay


@in_float64
@checked
def theorem_1a(largest: ArrayLike, accuracy: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """log(8 λ_1 / ε) / log(1/ρ): Muon on a factorization with k >= d and a prefactor C from [√λ_1 /
    2, √λ_1] (constant ours).

    From Lemma 2 with C <= √λ_1: |x² - λ| <= 4 C ρ^t (√λ + C ρ^t) <= 8 λ_1 ρ^t. Raises ValueError
    for ρ outside [1/2, 1).
    """
    check_in("(0, inf)", largest=largest, accuracy=accuracy)
    check_decay(rho)
    largest, accuracy, rho = floats(largest, accuracy, rho)
    return jnp.log(8 * largest / accuracy) / jnp.log(1 / rho)


@in_float64
@checked
def theorem_1b(largest: ArrayLike, accuracy: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """log(4 λ_1 / ((1 - ρ)² ε)) / log(1/ρ) iterations: r <= k < d, prefactors from [C_0, 2 C_0],
    C_0 = √λ_1 / 2 (constant ours).

    From Lemma 11, Δ <= δ = 2 C_0 ρ^t / (1 - ρ) gives |x² - λ| <= δ (2 √λ_1 + δ), which is at most ε
    where δ (2 √λ_1 + √λ_1 / (1 - ρ)) is; 2 + 1/(1 - ρ) <= 3 / (1 - ρ) leaves 3 λ_1 ρ^t / (1 - ρ)²,
    and 1 of 4 for the distance to the auxiliary trajectory. It needs an initialization small
    enough. Raises ValueError for ρ outside [2/3, 1).
    """
    check_in("(0, inf)", largest=largest, accuracy=accuracy)
    check_decay(rho, 2 / 3)
    largest, accuracy, rho = floats(largest, accuracy, rho)
    return jnp.log(4 * largest / ((1 - rho) ** 2 * accuracy)) / jnp.log(1 / rho)


@in_float64
@checked
def theorem_3(prefactor: ArrayLike, accuracy: ArrayLike, rho: ArrayLike) -> Float[Array, "..."]:
    """log(2 C / ε) / log(1/ρ): Muon on in-context regression from Q_0 = 0, with C >= ‖S⁻¹‖ / 2
    (Theorem 3, eq. 75).

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
    """Steps of gradient descent on ¼ (x² - λ)² from x_0 = `start` until λ - x² = ε, by the flow:
    exact as rate · λ → 0 (ours).

    u = x² obeys du/dt = 2 (λ - u) u, so t = [log((λ - ε)/ε) - log(u_0/(λ - u_0))] / (2 λ): the κ
    log(1/ε) of eq. 10 for λ = λ_1/κ, with log(λ²/(ε u_0)) for its logarithm. Zero where the error
    is below ε from the start.
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
    """Steps log ε / log(1 - rate κ⁻³) of gradient descent on in-context regression from Q_0 = 0,
    for 0 < rate <= 1 (eq. 21) (ours, exact).

    S has the eigenvalues from 1 to 1/κ and ε is relative to ‖S⁻¹‖ = κ. The error of eigenvalue λ is
    (1 - rate λ³)^t / λ, and the smallest λ has the largest error at every t. Rate 2 / (1 + κ⁻³)
    halves this at best. Raises ValueError for κ below 1.
    """
    check_in("(0, inf)", accuracy=accuracy)
    check_in("(0, 1]", rate=rate)
    check_condition_number(kappa)
    kappa, accuracy, rate = floats(kappa, accuracy, rate)
    return jnp.log(accuracy) / jnp.log1p(-rate * kappa**-3)


@in_float64
@checked
def sign_gradient_quadratic(kappa: ArrayLike, barrier: ArrayLike) -> Float[Array, "..."]:
    """At least barrier + κ/4 steps: SignGD on the quadratic instance of `adversarial.quadratic`
    (Lemma 12) (constant ours).

    `barrier` is the number of steps in which the small eigenvalue is frozen. Afterwards a step is
    below 2 b_0 / κ and b_0 = 2 ε must halve.
    """
    check_in("[0, inf)", barrier=barrier)
    check_condition_number(kappa)
    kappa, barrier = floats(kappa, barrier)
    return barrier + kappa / 4


@in_float64
@checked
def sign_gradient_factorization(kappa: ArrayLike, barrier: ArrayLike) -> Float[Array, "..."]:
    """At least barrier + κ/12 steps: SignGD on the 2×2 factorization of `adversarial.factorization`
    (Theorem 2) (constant ours).

    Steps below 6 b_0 / κ must take b_0 to half of itself.
    """
    check_in("[0, inf)", barrier=barrier)
    check_condition_number(kappa)
    kappa, barrier = floats(kappa, barrier)
    return barrier + kappa / 12


@in_float64
@checked
def sign_gradient_regression(kappa: ArrayLike, barrier: ArrayLike) -> Float[Array, "..."]:
    """At least barrier + κ³/4 steps: SignGD on the in-context instance of `adversarial.regression`
    (Theorem 4) (constant ours).
    """
    check_in("[0, inf)", barrier=barrier)
    check_condition_number(kappa)
    kappa, barrier = floats(kappa, barrier)
    return barrier + kappa**3 / 4
