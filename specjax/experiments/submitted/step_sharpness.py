"""The curvature of a loss along a step, over the square of its length."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def sharpness(
    loss: Callable[[Array], Array], w: Float[Array, "m n"], step: Float[Array, "m n"]
) -> Float[Array, ""]:
    """⟨D, ∇²L D⟩ / ‖D‖² of a step D."""
    change = jax.jvp(jax.grad(loss), (w,), (step,))[1]
    return jnp.vdot(step, change) / jnp.vdot(step, step)
