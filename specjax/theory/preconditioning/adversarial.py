"""Instances on which the steps of SignGD grow with the condition number (Theorems 2 and 4).

With R = [[1, 1], [1, -1]] / √2 a sign vector is, in the coordinates R z = (a, b), ±√2 along one
axis: SignGD moves one coordinate at a time, and a while it dominates the gradient. The starts below
keep |a| above a threshold τ as long as the steps allow (Lemma 15), which freezes b; then the steps
are too small to move b quickly. Starts are built backward from the schedule, which must be given in
full and must not increase.

A start is bad for one schedule only; nothing here bounds SignGD from a generic start.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Bool, Float, Int

from specjax.arguments import checked, checked_but
from specjax.programs import is_traced
from specjax.theory.closed_forms import floats
from specjax.theory.preconditioning.conditions import check_condition_number, check_non_increasing

RADIUS = 0.25
"""c: |d_1| <= c, |d_2| <= c/√κ, 3 c + c² < 1 give λ_i |d_i| <= |g_i| <= 3 λ_i |d_i|."""


class Barrier(NamedTuple):
    """The first coordinate that freezes b through step `frozen` - 1, and that step count."""

    start: Float[Array, ""]
    frozen: Int[Array, ""]


class Instance(NamedTuple):
    """A problem and a start that is bad for one schedule.

    `matrix` is the Hessian (quadratic), the target M (factorization) or the covariance S
    (regression), shape (2, 2); `start` is the vector z_0 (2,), or the matrix X_0 or Q_0 (2, 2);
    `accuracy` is the error that SignGD does not reach before the bound, and `frozen` is the number
    of steps of the barrier: those with learning rates of at least `least_rate`.
    """

    matrix: Float[Array, "2 2"]
    start: Float[Array, "2 ..."]
    accuracy: Float[Array, ""]
    frozen: Int[Array, ""]
    least_rate: Float[Array, ""]


class QuadraticInstance(Instance):
    """½ zᵀ H z, whose error is |z|."""

    __slots__ = ()

    def direction(self, z: Float[Array, "2"]) -> Float[Array, "2"]:
        """SignGD's step at learning rate 1."""
        return jnp.sign(self.matrix @ z)

    def error(self, z: Float[Array, "2"]) -> Float[Array, ""]:
        """The distance to the minimum."""
        return jnp.linalg.norm(z)


class FactorizationInstance(Instance):
    """¼ ‖X Xᵀ - M‖_F², whose error is ‖X Xᵀ - M‖_F."""

    __slots__ = ()

    def direction(self, x: Float[Array, "2 2"]) -> Float[Array, "2 2"]:
        """SignGD's step at learning rate 1, with ties as in `tied_sign`."""
        return tied_sign((x @ x.T - self.matrix) @ x)

    def error(self, x: Float[Array, "2 2"]) -> Float[Array, ""]:
        """The distance between X Xᵀ and M."""
        return jnp.linalg.norm(x @ x.T - self.matrix)


class RegressionInstance(Instance):
    """½ ‖(S Q - I) S^{1/2}‖_F², whose error is ‖Q - S⁻¹‖_F."""

    __slots__ = ()

    def direction(self, q: Float[Array, "2 2"]) -> Float[Array, "2 2"]:
        """SignGD's step at learning rate 1, with ties as in `tied_sign`."""
        return tied_sign(self.matrix @ (self.matrix @ q - jnp.eye(2, dtype=q.dtype)) @ self.matrix)

    def error(self, q: Float[Array, "2 2"]) -> Float[Array, ""]:
        """The distance to the minimum."""
        (a, b), _ = self.matrix
        return jnp.linalg.norm(
            q - jnp.stack([jnp.stack([a, -b]), jnp.stack([-b, a])]) / ((a - b) * (a + b))
        )


class Followed(NamedTuple):
    """Steps taken, whether the accuracy was reached, and the largest barrier move of b."""

    steps: Int[Array, ""]
    arrived: Bool[Array, ""]
    moved: Float[Array, ""]


@checked
def follow(
    instance: QuadraticInstance | FactorizationInstance | RegressionInstance,
    rates: Float[Array, " steps"],
    start: Float[Array, "2 ..."] | None = None,
) -> Followed:
    """SignGD from an instance's start, or another, to the accuracy or the schedule's end."""

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        x, t, _ = state
        return (t < rates.shape[0]) & (instance.error(x) > instance.accuracy)

    def turn(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, t, moved = state
        after = x - rates[t] * instance.direction(x)
        change = jnp.abs(_second(after) - _second(x))
        return after, t + 1, jnp.where(t < instance.frozen, jnp.maximum(moved, change), moved)

    first = instance.start if start is None else start
    initial = first, jnp.zeros((), int), jnp.zeros_like(instance.accuracy)
    last, steps, moved = jax.lax.while_loop(unfinished, turn, initial)
    return Followed(steps, instance.error(last) <= instance.accuracy, moved)


def rotation() -> Float[Array, "2 2"]:
    """R = [[1, 1], [1, -1]] / √2, symmetric and its own inverse."""
    return jnp.asarray([[1, 1], [1, -1]], jnp.result_type(float)) / jnp.sqrt(floats(2.0)[0])


@checked
def first_moves(a: ArrayLike, b: ArrayLike, kappa: ArrayLike) -> Bool[Array, "..."]:
    """Whether SignGD on ½ (a² + b²/κ) moves a and leaves b: κ |a| > |b| (Lemma 14)."""
    a, b, kappa = floats(a, b, kappa)
    return kappa * jnp.abs(a) > jnp.abs(b)


@checked_but("moves")
def barrier(moves: Float[Array, " steps"], tau: ArrayLike) -> Barrier:
    """a_0 such that a ← a - moves_t sign(a) keeps |a_t| >= τ through the last t with moves_t >= 2 τ
    (Lemma 15).

    Backward from a_T = moves_T / 2 the iterate before a_{t+1} is a_t = moves_t - a_{t+1}, positive;
    forward the signs alternate, and τ <= a_t <= moves_t - τ. Without such a t the barrier has no
    steps and a_0 = 0.

    Raises:
        ValueError: concrete moves that are not positive or that increase.

    """
    check_non_increasing(moves)
    (tau,) = floats(tau)
    held = moves >= 2 * tau
    frozen = jnp.sum(held)

    def back(after: Array, step: tuple[Array, Array, Array]) -> tuple[Array, None]:
        move, index, is_held = step
        before = jnp.where(index == frozen - 1, move / 2, move - after)
        return jnp.where(is_held, before, after), None

    start, _ = jax.lax.scan(
        back, jnp.zeros_like(tau), (moves, jnp.arange(moves.shape[0]), held), reverse=True
    )
    return Barrier(start, frozen)


@checked
def quadratic(
    kappa: ArrayLike, rates: Float[Array, " steps"], accuracy: ArrayLike
) -> QuadraticInstance:
    """½ zᵀ H z with H = R diag(1, 1/κ) R: |z| <= ε takes at least `frozen` + κ/4 steps (Lemma 12).

    b_0 = 2 ε and τ = b_0 / κ, slightly more, so that the inequality of Lemma 14 is strict. A step
    moves a or b by √2 η_t. Raises ValueError for κ below 1 or learning rates that increase.
    """
    check_condition_number(kappa)
    kappa, accuracy = floats(kappa, accuracy)
    second, move = 2 * accuracy, jnp.sqrt(floats(2.0)[0])
    tau = _above(second / kappa)
    first = barrier(move * rates, tau)
    z = rotation() @ jnp.stack([first.start, second])
    return QuadraticInstance(
        _rotated(jnp.ones_like(kappa), 1 / kappa), z, accuracy, first.frozen, 2 * tau / move
    )


@checked
def factorization(kappa: ArrayLike, rates: Float[Array, " steps"]) -> FactorizationInstance:
    """M = R diag(1, 1/κ) R, X_0 = R diag(1 + a_0, κ^(-1/2) + b_0) R, for the bound of Theorem 2.

    ‖X Xᵀ - M‖_F <= 1/(5 κ) takes at least `frozen` + κ/12 steps. b_0 = c/√κ, τ = 3 b_0/κ and a step
    moves an eigenvalue by 2 η_t; the first rate must be at most c/2 = 1/8 for X_0 to be in the
    region of `RADIUS`. Raises ValueError for a larger one, κ below 1 or learning rates that
    increase.
    """
    check_condition_number(kappa)
    if not is_traced(rates) and rates[0] > RADIUS / 2:
        raise ValueError(
            f"The factorization instance needs a first learning rate of at most {RADIUS / 2}, got"
            f" {float(rates[0]):g}; scale the schedule."
        )
    (kappa,) = floats(kappa)
    root = 1 / jnp.sqrt(kappa)
    second = RADIUS * root
    tau = _above(3 * second / kappa)
    first = barrier(2 * rates, tau)
    start = _rotated(1 + first.start, root + second)
    return FactorizationInstance(
        _rotated(jnp.ones_like(kappa), 1 / kappa), start, 0.2 / kappa, first.frozen, tau
    )


@checked
def regression(
    kappa: ArrayLike, rates: Float[Array, " steps"], accuracy: ArrayLike
) -> RegressionInstance:
    """S = R diag(1, 1/κ) R, Q_0 = S⁻¹ + R diag(a_0, b_0) R, for the bound of Theorem 4.

    ‖Q - S⁻¹‖_F <= ε takes at least `frozen` + κ³/4 steps. On matrices of this form the objective is
    a quadratic with the eigenvalues 1 and κ⁻³, so b_0 = 2 ε and τ = b_0 κ⁻³; a step moves an
    eigenvalue by 2 η_t. Any ε will do. Raises ValueError for κ below 1 or learning rates that
    increase.
    """
    check_condition_number(kappa)
    kappa, accuracy = floats(kappa, accuracy)
    second = 2 * accuracy
    tau = _above(second / kappa**3)
    first = barrier(2 * rates, tau)
    start = _rotated(1 + first.start, kappa + second)
    return RegressionInstance(
        _rotated(jnp.ones_like(kappa), 1 / kappa), start, accuracy, first.frozen, tau
    )


@checked
def tied_sign(gradient: Float[Array, "2 2"]) -> Float[Array, "2 2"]:
    """Signs of a 2×2 matrix after averaging its two diagonal and two other entries (Lemma 16).

    In exact arithmetic both pairs are equal. Entrywise signs of entries of rounding size would
    leave the invariant set.
    """
    # Twice the averages: each entry and its opposite.
    return jnp.sign(gradient + gradient[::-1, ::-1])


def _second(x: Array) -> Array:
    """The coordinate along the eigenvector of 1/κ: b of a vector, p - q of [[p, q], [q, p]]."""
    return (x[0] - x[1]) / jnp.sqrt(floats(2.0)[0]) if x.ndim == 1 else x[0, 0] - x[0, 1]


def _rotated(first: Array, second: Array) -> Array:
    """R diag(first, second) R, written out so that equal entries are equal to the last bit."""
    mean, half = (first + second) / 2, (first - second) / 2
    return jnp.stack([jnp.stack([mean, half]), jnp.stack([half, mean])])


def _above(tau: Array) -> Array:
    """A threshold 1e-7 above τ, so that rounding stays above τ."""
    return tau * (1 + 1e-7)
