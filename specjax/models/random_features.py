"""Regression on random features: L(W) = (1/2n)‖W A - Y‖_F², W ∈ R^{m×k}, features A ∈ R^{k×n} in
columns.

Model I (realizable) has Y = W_# A, model II (teacher-student) Y = W̄ Ā with features Ā of other
weights. With B = A Aᵀ/n and B̄ = Ā Aᵀ/n the gradient is ∇L(W) = W B - W̄ B̄; model I is B̄ = B.
Gradient descent from W_0 = 0 is solved in closed form (spectral-criterion, Section 3): one
eigendecomposition of B gives every step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from specjax.linalg import eigh, eigvalsh
from specjax.sizes import AnySize, active, normal
from specjax.theory.gradient_rank import shrinkage
from specjax.theory.one_step import spectral_direction


def relu_features(v: Float[Array, "k d"], x: Float[Array, "d n"]) -> Float[Array, "k n"]:
    """σ(V X) with the ReLU σ."""
    return jax.nn.relu(v @ x)


def swiglu_features(
    gate: Float[Array, "k d"], value: Float[Array, "k d"], x: Float[Array, "d n"]
) -> Float[Array, "k n"]:
    """SiLU(V_1 X) ∘ (V_2 X), with V_1 the `gate` and V_2 the `value` (spectral-criterion, Section
    1.2.2).
    """
    return jax.nn.silu(gate @ x) * (value @ x)


def weights(key: Key[Array, ""], k: AnySize, d: AnySize) -> Float[Array, "k d"]:
    """V with independent N(0, 1/d) entries: rows of unit length on average."""
    return normal(key, (k, d)) / jnp.sqrt(jnp.asarray(active(d), jnp.result_type(float)))


def second_moment(
    a_bar: Float[Array, "*batch rows n"], a: Float[Array, "*batch k n"]
) -> Float[Array, "*batch rows k"]:
    """B̄ = Ā Aᵀ/n; the caller corrects n if zero samples pad the arrays."""
    return a_bar @ a.mT / a.shape[-1]


def loss(
    w: Float[Array, "m k"], a: Float[Array, "k n"], y: Float[Array, "m n"]
) -> Float[Array, ""]:
    """(1/2n)‖W A - Y‖_F²."""
    return jnp.sum((w @ a - y) ** 2) / (2 * a.shape[1])


def gradient(
    w: Float[Array, "m k"], a: Float[Array, "k n"], y: Float[Array, "m n"]
) -> Float[Array, "m k"]:
    """∇L(W) = (W A - Y) Aᵀ/n."""
    return (w @ a - y) @ a.T / a.shape[1]


def gd_step(
    w: Float[Array, "m k"], a: Float[Array, "k n"], y: Float[Array, "m n"]
) -> Float[Array, "m k"]:
    """W - ∇L(W)/L_F, L_F = ‖A‖_op²/n: gradient descent (spectral-criterion, Section 1.2)."""
    return w - gradient(w, a, y) / eigvalsh(second_moment(a, a))[-1]


def spectral_step(
    w: Float[Array, "m k"], a: Float[Array, "k n"], y: Float[Array, "m n"]
) -> Float[Array, "m k"]:
    """W - (‖∇L‖_*/L_op) polar(∇L), L_op = ‖A‖_F²/n: SpecGD (spectral-criterion, Section 1.2)."""
    return w - spectral_direction(gradient(w, a, y)) * (a.shape[1] / jnp.sum(a**2))


class Trajectory(NamedTuple):
    """Gradient descent from W_0 = 0, solved by B = U diag(λ) Uᵀ, with -W̄ B̄ U and the step size η.

    `eigenvalues` ascend, `vectors` is U, `initial` is ∇L(0) U.
    """

    eigenvalues: Float[Array, " k"]
    vectors: Float[Array, "k k"]
    initial: Float[Array, "m k"]
    rate: Float[Array, ""]


def trajectory(
    b: Float[Array, "k k"],
    b_bar: Float[Array, "rows k"],
    teacher: Float[Array, "m rows"],
    *,
    slowdown: float = 1.0,
    offset: float = 0.0,
) -> Trajectory:
    """Gradient descent with η = 1/(offset + slowdown · λ_1(B)) for B, B̄ and the teacher W̄.

    Model I is `b_bar` = `b` with the teacher W_#.

    Args:
        b: B, symmetric positive semidefinite.
        b_bar: B̄.
        teacher: W̄.
        slowdown: c of η = 1/(c‖B‖_op) (spectral-criterion, Theorem 3.6), at least 1.
        offset: c of η = 1/(c + ‖B‖_op) (spectral-criterion, Lemma 3.5), at least 0.

    Raises:
        ValueError: slowdown below 1 or offset below 0, where the step is longer than 1/λ_1.

    """
    if not (slowdown >= 1 and offset >= 0):
        raise ValueError(
            f"A step of at most 1/‖B‖_op needs slowdown >= 1 and offset >= 0, got {slowdown} and"
            f" {offset}."
        )
    eigenvalues, vectors = eigh(b)
    return Trajectory(
        eigenvalues,
        vectors,
        -(teacher @ b_bar) @ vectors,
        1 / (offset + slowdown * eigenvalues[-1]),
    )


def gradient_at(path: Trajectory, steps: int | Int[Array, ""]) -> Float[Array, "m k"]:
    """∇L(W_t) = -W̄ B̄ (I - ηB)^t at t = `steps`, exact (spectral-criterion, Lemma 3.10)."""
    return rotated_gradient_at(path, steps) @ path.vectors.T


def rotated_gradient_at(path: Trajectory, steps: int | Int[Array, ""]) -> Float[Array, "m k"]:
    """∇L(W_t) U, the gradient in the eigenbasis of B, which needs one matrix product less."""
    return path.initial * shrinkage(path.eigenvalues, path.rate, steps)[None, :]


def gap_at(path: Trajectory, steps: int | Int[Array, ""]) -> Float[Array, ""]:
    """L(W_t) - min L = ½ tr(G_0 (I - ηB)^{2t} B⁺ G_0ᵀ), exact for B⁺ without rounding-size λ."""
    rounding = (
        path.eigenvalues.shape[0] * jnp.finfo(path.eigenvalues.dtype).eps * path.eigenvalues[-1]
    )
    trained = path.eigenvalues > rounding
    shrunk = shrinkage(path.eigenvalues, path.rate, 2 * steps)
    weight = jnp.where(trained, shrunk / jnp.where(trained, path.eigenvalues, 1), 0)
    return jnp.sum(path.initial**2 * weight[None, :]) / 2


def rotated_error_at(path: Trajectory, steps: int | Int[Array, ""]) -> Float[Array, "m k"]:
    """(W_t - W_*) U, W_* the minimizer, for invertible B; times diag(λ), the rotated gradient."""
    return rotated_gradient_at(path, steps) / path.eigenvalues[None, :]


class SpectralDescent(NamedTuple):
    """The gap to the minimum and nr(∇L) at iterations 0, 1, ... of SpecGD."""

    gap: Float[Array, " steps"]
    nuclear_rank: Float[Array, " steps"]


def spectral_descent(
    path: Trajectory, rotated_error: Float[Array, "m k"], steps: int
) -> SpectralDescent:
    """SpecGD for `steps` iterations of `spectral_step` from W_* + `rotated_error` Uᵀ, in the
    eigenbasis of B.

    The step is equivariant under rotations, and in the eigenbasis the products with B are scalings.
    """
    values, trace = path.eigenvalues[None, :], jnp.sum(path.eigenvalues)

    def step(error: Array, _: None) -> tuple[Array, SpectralDescent]:
        g = error * values
        direction = spectral_direction(g)
        # ⟨G, ‖G‖_* polar(G)⟩ = ‖G‖_*².
        rank = jnp.sum(g * direction) / jnp.sum(g**2)
        return error - direction / trace, SpectralDescent(jnp.sum(g * error) / 2, rank)

    return jax.lax.scan(step, rotated_error, length=steps + 1)[1]
