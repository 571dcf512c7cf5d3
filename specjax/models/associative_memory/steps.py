"""One step from W = 0 in float64; rounding in float32 would decide which items are recovered."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax import spectral
from specjax.models.associative_memory.gradients import gradient_at_zero
from specjax.models.associative_memory.newton_step import HessianAtZero, newton_step
from specjax.spectral.float_range import exactly_scaled
from specjax.theory.closed_forms import in_float64


@in_float64
@partial(jax.jit, static_argnames=("optimizers", "ridge"))
def one_step(
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    optimizers: tuple[str, ...],
    ridge: float = 0.0,
) -> Float[Array, "optimizers d d"]:
    """W after one step from zero of each optimizer, up to a factor, which changes no recovery.

    The singular values of the gradient decay to d^(-α-1), and those of the Hessian to d^-α, of the
    largest, below float32 rounding. So the sums over the frequent items, the polar factor and the
    solution use float64.

    Args:
        u: Unembeddings.
        v: Embeddings.
        q: Frequencies of the items, in descending order.
        optimizers: Any of "gd", "muon" and "newton".
        ridge: ρ of `newton_step`.
    """
    centred = u - jnp.mean(u, axis=0)[None, :]
    gradient = -_frequent_in_float64(centred, v, q)

    def newton() -> Array:
        left = jnp.matmul(centred.T, centred, precision=jax.lax.Precision.HIGHEST) / u.shape[0]
        hessian = HessianAtZero(left.astype(jnp.float64), _frequent_in_float64(v, v, q))
        return newton_step(gradient, hessian, ridge)

    steps = {"gd": lambda: -gradient, "muon": lambda: -spectral.polar(gradient), "newton": newton}
    # Newton's entries may exceed the range of float32, and their scale does not matter.
    return jnp.stack([exactly_scaled(steps[name]()).astype(jnp.float32) for name in optimizers])


@in_float64
@jax.jit
def stabilized_steps(
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    lambdas: Float[Array, " k"],
) -> Float[Array, "k d d"]:
    """h_λ(-∇L(0)) for each λ >= 0 with h_λ(s) = s/√(s² + λ²), in float64; λ = 0 is `polar_step`."""
    down = _frequent_in_float64(u - jnp.mean(u, axis=0)[None, :], v, q)
    # vmap over λ alone decomposes the gradient once, unlike a loop.
    maps = jax.vmap(lambda lam: spectral.stabilized_sign(down, lam))(lambdas.astype(jnp.float64))
    return maps.astype(jnp.float32)


@in_float64
@partial(jax.jit, static_argnames="maps")
def mapped_steps(
    u: Float[Array, "n d"],
    v: Float[Array, "n d"],
    q: Float[Array, " n"],
    active: Int[Array, ""],
    maps: Callable[..., Array],
    *arguments: Array,
) -> Float[Array, "k d d"]:
    """U h(S) Vᵀ of -∇L(0) = U S Vᵀ for several maps h, in float64, each up to a factor.

    `maps(x, *arguments)` returns a row for each map from the singular values over their median. The
    first `active` columns of u and v are not padding.
    """
    left, s, right = jnp.linalg.svd(_frequent_in_float64(u - jnp.mean(u, axis=0)[None, :], v, q))
    median = (s[(active - 1) // 2] + s[active // 2]) / 2
    inside = jnp.arange(len(s), dtype=active.dtype) < active

    def step(h: Array) -> Array:
        h = jnp.where(inside, h, 0)
        return ((left * (h / jnp.max(jnp.abs(h)))[None, :]) @ right).astype(jnp.float32)

    return jax.lax.map(step, maps(jnp.where(inside, s / median, 1), *arguments))


@in_float64
@jax.jit
def gradient_singular_values(
    u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"]
) -> Float[Array, " d"]:
    """Singular values of ∇L(0), descending, in float64: they span a factor d^(α+1) (Lemma C.3)."""
    gradient = gradient_at_zero(*(a.astype(jnp.float64) for a in (u, v, q)))
    return jnp.linalg.svd(gradient, compute_uv=False).astype(jnp.float32)


@in_float64
@jax.jit
def polar_step(
    u: Float[Array, "n d"], v: Float[Array, "n d"], q: Float[Array, " n"]
) -> Float[Array, "d d"]:
    """The polar factor of Σ q_i u_i v_iᵀ, in float64 as in `one_step`."""
    return spectral.polar(_frequent_in_float64(u, v, q)).astype(jnp.float32)


def _frequent_in_float64(a: Array, b: Array, q: Array) -> Array:
    """Σ_i q_i a_i b_iᵀ with the first 8 d items in float64; rarer ones round negligibly."""
    head = min(len(q), 8 * a.shape[1])
    tail = jnp.matmul(a[head:].T, b[head:] * q[head:, None], precision=jax.lax.Precision.HIGHEST)
    wide_a, wide_b, wide_q = (x[:head].astype(jnp.float64) for x in (a, b, q))
    return jnp.matmul(wide_a.T, wide_b * wide_q[:, None]) + tail.astype(jnp.float64)
