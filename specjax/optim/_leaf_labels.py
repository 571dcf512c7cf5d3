"""Which leaves `muon` orthogonalizes: the label of every leaf, from `labels` or from dimension
numbers.
"""

import warnings

import jax
import jax.numpy as jnp
from jaxtyping import PyTree
from optax.contrib import MuonDimensionNumbers

from specjax.optim._adamw_groups import LABELS, MATRIX, OTHER
from specjax.optim.leaf_names import leaf_names
from specjax.optim.matrices import DimensionNumbers, is_matrix, prefix_leaves


def labels_of(params: PyTree, labels: object, dimension_numbers: DimensionNumbers) -> PyTree:
    """The tree of labels."""
    leaves, treedef = jax.tree.flatten(params)
    for name, leaf in zip(leaf_names(params), leaves, strict=True):
        is_array = hasattr(leaf, "dtype")
        if not is_array or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            what = f"of dtype {leaf.dtype}" if is_array else f"of type {type(leaf).__name__}"
            raise ValueError(
                f"muon cannot update the leaf {name} {what}; leave it out with eqx.filter(params,"
                " eqx.is_inexact_array), or set its updates to zero with optax.partition."
            )
    if labels is not None:
        found = prefix_leaves(labels, params, str, "labels")
        if unknown := {label for label in found if label not in LABELS}:
            raise ValueError(
                f"labels must be among {', '.join(LABELS)}, got {sorted(map(repr, unknown))}."
            )
    elif isinstance(dimension_numbers, MuonDimensionNumbers):
        found = [MATRIX if is_matrix(leaf, dimension_numbers) else OTHER for leaf in leaves]
    else:
        specs = prefix_leaves(
            dimension_numbers, params, MuonDimensionNumbers, "muon_weight_dimension_numbers"
        )
        found = [OTHER if spec is None else MATRIX for spec in specs]
    return jax.tree.unflatten(treedef, found)


def warn_of_stacks(params: PyTree, spec: MuonDimensionNumbers) -> None:
    """Warn of leaves of more than two axes that are not taken, and of stacked vectors that look
    like matrices.
    """
    named = [
        (name, leaf.shape, is_matrix(leaf, spec))
        for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    left = [(name, shape) for name, shape, taken in named if len(shape) > 2 and not taken]
    if not left:
        return
    stacks, layers = [f"{name} {shape}" for name, shape in left], {shape[0] for _, shape in left}
    vectors = [
        f"{name} {shape}"
        for name, shape, taken in named
        if taken and len(shape) == 2 and shape[0] in layers
    ]
    doubt = f", and may take stacked vectors for matrices: {', '.join(vectors)}" if vectors else ""
    warnings.warn(
        f"muon without a layout leaves these to the other optimizer: {', '.join(stacks)}{doubt};"
        " pass layout=specjax.diagnostics.matrix_layout(loss, params, batch).",
        stacklevel=3,
    )
