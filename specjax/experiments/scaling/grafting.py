"""Directions of a matrix optimizer with another's size, with spectral norm 1, or by block."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from specjax.spectral.float_range import ratio
from specjax.spectral.gram_power_norm import squared_norm


def with_norm_of(
    direction: optax.GradientTransformation, other: optax.GradientTransformation
) -> optax.GradientTransformation:
    """A direction with another update's Frobenius norm: grafting (Anil et al. 2020)."""

    def init(params: PyTree) -> tuple[optax.OptState, optax.OptState]:
        return direction.init(params), other.init(params)

    def update(
        updates: PyTree, state: tuple[optax.OptState, optax.OptState], params: PyTree | None = None
    ) -> tuple[PyTree, tuple[optax.OptState, optax.OptState]]:
        towards, one = direction.update(updates, state[0], params)
        sized, two = other.update(updates, state[1], params)
        return jax.tree.map(_with_norm, towards, sized), (one, two)

    return optax.GradientTransformation(init, update)


def _with_norm(x: Float[Array, "m n"], like: Float[Array, "m n"]) -> Float[Array, "m n"]:
    return ratio(x, jnp.linalg.norm(x)) * jnp.linalg.norm(like)


def with_spectral_norm(direction: optax.GradientTransformation) -> optax.GradientTransformation:
    """A direction of square matrices over its spectral norm, found to a hundredth by squaring."""
    divided = optax.stateless(
        lambda updates, _: jax.tree.map(lambda x: ratio(x, jnp.sqrt(squared_norm(x))), updates)
    )
    return optax.chain(direction, divided)


def in_blocks(direction: optax.GradientTransformation, size: int) -> optax.GradientTransformation:
    """A direction of every block (size, size) of a matrix with extents multiples of `size`."""

    def cut(x: Float[Array, "m n"]) -> Float[Array, "i j b b"]:
        m, n = x.shape
        return x.reshape(m // size, size, n // size, size).swapaxes(1, 2)

    def update(
        updates: PyTree, state: optax.OptState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.OptState]:
        del params
        found, state = direction.update(jax.tree.map(cut, updates), state)
        return (
            jax.tree.map(lambda x, like: x.swapaxes(1, 2).reshape(like.shape), found, updates),
            state,
        )

    return optax.GradientTransformation(
        lambda params: direction.init(jax.tree.map(cut, params)), update
    )
