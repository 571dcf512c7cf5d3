"""Steps without the items up to a bound, by eq. 5 (associative-memory, Section 4)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.models.associative_memory.gradients import init
from specjax.models.associative_memory.steps import polar_step


def thresholded_muon(
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    bounds: Float[Array, " steps"],
) -> Float[Array, "steps d d"]:
    """W after each step W_t = W_{t-1} + polar(Σ_{i > d_t} q_i u_i v_iᵀ) of Muon (Theorem 4.1).

    `bounds` are d_1, d_2, ...: before step t, the items 1 to d_t have left. The polar factor is
    computed in float64 as in `one_step`.
    """
    item = jnp.arange(1, len(q) + 1, dtype=q.dtype)

    def step(w: Array, bound: Array) -> tuple[Array, Array]:
        w = w + polar_step(u, v, jnp.where(item > bound, q, 0))
        return w, w

    return jax.lax.scan(step, init(u), bounds)[1]


def thresholded_descent(
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    bounds: Float[Array, " steps"],
    rates: Float[Array, " steps"],
) -> Float[Array, "steps d d"]:
    """W after each step W_t = W_{t-1} + η_t Σ_{i > d_t} q_i u_i v_iᵀ of descent (Theorem 4.2)."""
    item = jnp.arange(1, len(q) + 1, dtype=q.dtype)
    left = item[None, :] > bounds[:, None]
    shares = q[None, :] * jnp.cumsum(jnp.where(left, rates[:, None], 0), axis=0)
    return jax.lax.map(lambda share: (u * share[:, None]).T @ v, shares)
