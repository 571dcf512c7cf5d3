"""Half-precision leaves in float32, for steps whose squares, small constants or scalar arguments a half-precision dtype does not hold."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from specjax.spectral.scaling import at_least_float32


def in_float32(inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """The transformation of updates and parameters in at least float32, its updates rounded to the dtypes they came in.

    So its state is float32 too, and stays so whatever the dtypes of the numbers it was built with.
    """
    step = optax.with_extra_args_support(inner)

    def init(params: PyTree) -> Any:
        return step.init(_wide(params))

    def update(updates: PyTree, state: Any, params: PyTree | None = None, **extra_args: Any) -> tuple[PyTree, Any]:
        wide, state = step.update(_wide(updates), state, None if params is None else _wide(params), **extra_args)
        return optax.tree.cast_like(wide, updates), state

    return optax.GradientTransformationExtraArgs(init, update)


def _wide(tree: PyTree) -> PyTree:
    def wide(leaf: Array) -> Array:
        # What is no float is for the inner transformation to refuse.
        return at_least_float32(leaf) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf

    return jax.tree.map(wide, tree)
