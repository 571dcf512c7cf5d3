"""Logits of a memory: signals and the largest interaction (associative-memory, Appendix B.2)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def signal_slope(
    without: Float[Array, "d d"],
    u: Float[Array, " d"],
    v: Float[Array, " d"],
    lam: float | Float[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """φ'(0) of φ(q) = uᵀ h_λ(G + q u vᵀ) v, G = `without`, as the three sums of Appendix B.2.

    Here h_λ(s) = s/√(s² + λ²). With a and b the components of u and v along the left and right
    singular vectors of G, they are the antisymmetric part, ¼ Σ_kl (h_k + h_l)/(s_k + s_l) (a_k b_l
    - a_l b_k)², the symmetric one, ¼ Σ_kl (h_k - h_l)/(s_k - s_l) (a_k b_l + a_l b_k)² without its
    diagonal, and that diagonal, Σ_k h'(s_k) (a_k b_k)²: the formula of Daleckii and Krein. λ is
    positive.
    """
    left, s, right = jnp.linalg.svd(without)
    a, b = left.T @ u, right @ v
    h, derivative = s / jnp.hypot(s, lam), lam**2 / jnp.hypot(s, lam) ** 3

    def quotient(over: Array, under: Array) -> Array:
        return jnp.where(under == 0, 0, over / jnp.where(under == 0, 1, under))

    sums = quotient(h[:, None] + h[None, :], s[:, None] + s[None, :])
    differences = quotient(h[:, None] - h[None, :], s[:, None] - s[None, :])
    cross = a[:, None] * b[None, :]
    return (
        0.25 * jnp.sum(sums * (cross - cross.T) ** 2),
        0.25 * jnp.sum(differences * (cross + cross.T) ** 2),
        jnp.sum(derivative * (a * b) ** 2),
    )


def signals(
    without: Float[Array, "d d"],
    u: Float[Array, " d"],
    v: Float[Array, " d"],
    spikes: Float[Array, " spikes"],
    step: Callable[[Float[Array, "d d"]], Float[Array, "d d"]],
) -> Float[Array, " spikes"]:
    """φ(q) = uᵀ h(G + q u vᵀ) v, G = `without`, h = `step`, at all q in `spikes` (Appendix B.2)."""
    spike = jnp.outer(u, v)
    return jax.lax.map(lambda q: u @ step(without + q * spike) @ v, spikes)


def largest_interaction(
    u: Float[Array, "n d"], v: Float[Array, "n d"], w: Float[Array, "d d"]
) -> Float[Array, ""]:
    """max |u_jᵀ W v_i| over all i ≠ j, in O(N d) memory."""

    def max_of_item(inputs: tuple[Array, Array]) -> Array:
        i, y = inputs
        return jnp.max(jnp.where(jnp.arange(len(u)) == i, 0, jnp.abs(u @ y)))

    return jnp.max(jax.lax.map(max_of_item, (jnp.arange(len(u)), v @ w.T), batch_size=256))
