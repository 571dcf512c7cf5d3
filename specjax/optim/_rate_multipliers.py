"""Factors on the learning rates of single leaves, found by their names."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, PyTree

from specjax.arguments import REAL, check_number
from specjax.optim.fused_projections import ending_in
from specjax.optim.leaf_names import leaf_names
from specjax.spectral.float_range import at_least_float32


def multipliers_of(tree: PyTree, multipliers: Mapping[str, ArrayLike] | None) -> list[ArrayLike]:
    """The factor of each leaf, 1 where no name fits.

    A key is the name of a leaf or its end after a dot; where several fit, the longest counts.
    Raises ValueError for a name that no leaf has, and for a factor that is not one finite number.
    """
    names = leaf_names(tree)
    factors: list[ArrayLike] = [1.0] * len(names)
    for key in sorted(multipliers or (), key=len):
        check_number(multipliers[key], f"multipliers[{key!r}]", REAL, "muon")  # type: ignore[index]
        places = ending_in(key, names)
        if not places:
            raise ValueError(
                f"multipliers name the leaf {key!r}, but the leaves are {', '.join(names)}; take"
                " one of these names or its end."
            )
        for place in places:
            factors[place] = multipliers[key]  # type: ignore[index]
    return factors


def multiplied(updates: PyTree, multipliers: Mapping[str, ArrayLike] | None) -> PyTree:
    """The updates times the factors of their leaves, computed in at least float32."""
    if not multipliers:
        return updates
    leaves, treedef = jax.tree.flatten(updates)

    def multiply_leaf(leaf: Array, factor: ArrayLike) -> Array:
        wide = at_least_float32(leaf)
        return (wide * jnp.asarray(factor, wide.dtype)).astype(leaf.dtype)

    factors = multipliers_of(updates, multipliers)
    steps = [multiply_leaf(*pair) for pair in zip(leaves, factors, strict=True)]
    return jax.tree.unflatten(treedef, steps)
