"""Runs a transformation of half-precision leaves in float32, since half precision cannot hold the
squares and small constants of a step.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, PyTree

from specjax.arguments import checked
from specjax.optim.leaf_names import leaf_names
from specjax.spectral.float_range import at_least_float32


@checked
def in_float32(
    inner: optax.GradientTransformation, *, only: DTypeLike | None = None
) -> optax.GradientTransformationExtraArgs:
    """Runs a transformation in at least float32 and rounds its updates to the dtypes of the
    parameters, without these to the dtypes they came in.

    Its state is float32 too, whatever the dtypes of its hyperparameters. Around a chain it also
    avoids rounding between the links.

    Args:
        inner: Any transformation.
        only: The dtype of the leaves that are widened; by default every half-precision dtype.

    Raises:
        ValueError: at init and update for a leaf that is not an array.
    """
    step = optax.with_extra_args_support(inner)

    def init(params: PyTree) -> Any:
        return step.init(_wide(params, only))

    def update(
        updates: PyTree, state: Any, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, Any]:
        updates, like = with_params(updates, params)
        wide_params = None if params is None else _wide(params, only)
        wide, state = step.update(_wide(updates, only), state, wide_params, **extra_args)
        return optax.tree.cast_like(wide, like), state

    return optax.GradientTransformationExtraArgs(init, update)


def with_params(updates: PyTree, params: PyTree | None) -> tuple[PyTree, PyTree]:
    """The updates in the wider of their own dtypes and those of the parameters, and a tree that has
    the dtypes of the results: the parameters, or the updates if there are none of their structure.

    So a bfloat16 gradient of a float32 parameter does not make its whole step bfloat16.
    """
    check_arrays(updates)
    structures: list[Any] = [jax.tree.structure(tree) for tree in (updates, params)]
    if structures[0] != structures[1]:
        return updates, updates

    def wider(u: Array, x: Array) -> Array:
        return u.astype(jnp.promote_types(u.dtype, x.dtype))

    with jax.numpy_dtype_promotion("standard"):
        return jax.tree.map(wider, updates, params), params


def check_arrays(tree: PyTree) -> None:
    """Raises ValueError for a tree with a leaf that is not an array."""
    for i, leaf in enumerate(jax.tree.leaves(tree)):
        if not hasattr(leaf, "dtype"):
            name = leaf_names(tree)[i]
            raise ValueError(
                f"An optimizer needs arrays as leaves, the leaf {name} is of type"
                f" {type(leaf).__name__}; take jnp.asarray of it, or leave it out with"
                " eqx.filter(params, eqx.is_inexact_array)."
            )


def check_alike(updates: PyTree, params: PyTree) -> None:
    """Raises ValueError unless parameters and updates have the same structure and shapes."""
    structures: list[Any] = [jax.tree.structure(tree) for tree in (updates, params)]
    if structures[0] != structures[1]:
        one, other = (str(each).removeprefix("PyTreeDef") for each in structures)
        raise ValueError(
            f"An optimizer needs parameters with the structure of the updates, got {other} for"
            f" {one}."
        )
    for i, (u, x) in enumerate(zip(jax.tree.leaves(updates), jax.tree.leaves(params), strict=True)):
        if u.shape != x.shape:
            name = leaf_names(updates)[i]
            raise ValueError(
                f"An optimizer needs parameters of the shapes of the updates, the leaf {name} has"
                f" {x.shape} for {u.shape}."
            )


def kept_dtype(leaf: Array) -> DTypeLike:
    """The dtype that stores a gradient until the next step: the leaf's own, but float32 for
    float16, in which small gradients underflow.
    """
    return jnp.float32 if leaf.dtype == jnp.float16 else leaf.dtype


def _wide(tree: PyTree, only: DTypeLike | None) -> PyTree:
    check_arrays(tree)

    def wide(leaf: Array) -> Array:
        # Leave whole numbers: the inner transformation rejects them.
        chosen = jnp.issubdtype(leaf.dtype, jnp.inexact) and only in (None, leaf.dtype)
        return at_least_float32(leaf) if chosen else leaf

    return jax.tree.map(wide, tree)
