"""Muon: momentum, orthogonalization, a scale by shape, decoupled weight decay (Jordan et al. 2024),
and AdamW for what is no matrix.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Key, PyTree
from optax.contrib import MuonDimensionNumbers

from specjax.arguments import REAL, check_number, checked_but, scheduled
from specjax.optim.float32_wrapper import check_alike, check_arrays, in_float32
from specjax.optim.fused_projections import Splits
from specjax.optim.leaf_names import leaf_names
from specjax.optim.matrices import IN_OUT, DimensionNumbers, is_matrix, prefix_leaves
from specjax.optim.momentum import Convention, momentum
from specjax.optim.orthogonal import Method, orthogonalize
from specjax.optim.routing import Routed, routes
from specjax.optim.scales import Scale, scale_named

MATRIX, OTHER = "matrix", "other"


@checked_but("method")
def muon(
    learning_rate: optax.ScalarOrSchedule,
    *,
    decay: ArrayLike = 0.95,
    convention: Convention = "ema",
    nesterov: bool = True,
    bias_correction: bool = False,
    momentum_dtype: DTypeLike | None = None,
    key: Key[Array, ""] | None = None,
    method: Method | None = None,
    adaptive: bool = False,
    scale: str | Scale = "sqrt_max_1_out_over_in",
    weight_decay: ArrayLike = 0.0,
    weight_decay_mask: PyTree | Callable[[PyTree], PyTree] | None = None,
    dimension_numbers: DimensionNumbers = IN_OUT,
    sizes: PyTree | None = None,
    splits: Splits | None = None,
    labels: PyTree | Callable[[PyTree], PyTree] | None = None,
    other: optax.GradientTransformation | None = None,
    sharding: NamedSharding | None = None,
) -> optax.GradientTransformationExtraArgs:
    """W ← W - learning_rate (scale · polar(momentum) + weight_decay · W) for matrices, `other` for
    all other leaves.

    The defaults are Keller Jordan's. Which leaves are matrices is decided by, in this order:
    `labels`; a tree (or function) of dimension numbers, where None marks a leaf that is not; two
    axes and a floating dtype. The last rule is wrong for stacked layers, and where there is a leaf
    of more axes `init` warns: `specjax.diagnostics.matrix_layout` reads labels, dimension numbers
    and splits off the loss, and `specjax.optim.routing` shows where every leaf goes. Numbers may be
    traced arrays, so a sweep over them is one compiled program: build the optimizer inside the
    vmapped function, or use `specjax.optim.inject_hyperparams` (optax's own takes `labels` and
    whatever else is a function for a schedule unless `static_args` names it).

    Updates and the momentum keep the dtypes of the parameters, each its own in a tree of several.
    In float16 the momentum and the polar factor are computed in float32, and AdamW's state is at
    least float32.

    Args:
        learning_rate: A number, a scalar array or a schedule.
        decay: Of the momentum, in [0, 1).
        convention: Of the momentum, with the next two: see `specjax.optim.momentum`.
        nesterov: Whether the momentum looks ahead.
        bias_correction: Whether the momentum is corrected for its start at zero.
        momentum_dtype: Of the momentum's accumulator; by default the parameters'. In bfloat16 it
            needs the next one.
        key: For the momentum in bfloat16, as in `specjax.optim.momentum`.
        method: How the polar factor is computed; by default `NewtonSchulz()`.
        adaptive: As for `orthogonalize`.
        scale: A name of `specjax.optim.SCALES`, or a function of (fan_in, fan_out).
        weight_decay: Multiplied by the learning rate; matrices only.
        weight_decay_mask: As in `optax.add_decayed_weights`.
        dimension_numbers: As for `orthogonalize`; `OUT_IN` for weights stored as (out, in).
        sizes: As for `orthogonalize`.
        splits: As for `orthogonalize`.
        labels: A prefix tree of "matrix" and "other", or a function of the parameters giving it.
            "matrix" on a leaf of more than two axes makes the leading ones batch axes.
        other: For the leaves that are not matrices; by default AdamW with the same learning rate,
            b1 = 0.9, b2 = 0.95 and no weight decay, as in Keller Jordan's code.
        sharding: Of the stacks of matrices over a mesh, as for `orthogonalize`.

    Returns:
        A complete optimizer; its state is that of `optax.partition`. `update` needs `params`.

    Raises:
        ValueError: at once for a number that is not finite, a wrong decay, convention or scale; at
            init and update for an unknown label, an integer leaf (filter it out:
            `eqx.filter(params, eqx.is_inexact_array)`), or a leaf labelled "matrix" that is none.

    """
    learning_rate = scheduled(learning_rate, "learning_rate", REAL, "muon")
    check_number(weight_decay, "weight_decay", REAL, "muon")
    # In float16 a small gradient would be zero before its polar factor is taken.
    matrix_steps = in_float32(
        optax.chain(
            momentum(
                decay,
                convention,
                nesterov=nesterov,
                bias_correction=bias_correction,
                dtype=momentum_dtype,
                key=key,
            ),
            orthogonalize(
                method,
                scale,
                adaptive=adaptive,
                dimension_numbers=dimension_numbers,
                sizes=sizes,
                splits=splits,
                sharding=sharding,
            ),
            in_float32(
                optax.chain(
                    optax.add_decayed_weights(weight_decay, weight_decay_mask),
                    optax.scale_by_learning_rate(learning_rate),
                )
            ),
        ),
        only=jnp.float16,
    )
    if other is None:
        # In float16 eps would be 0, and so would the squares of gradients below 2e-4.
        other = in_float32(optax.adamw(learning_rate, b1=0.9, b2=0.95, eps=1e-10, weight_decay=0.0))

    def label(params: PyTree) -> PyTree:
        return _labels(params, labels, dimension_numbers)

    steps = optax.partition({MATRIX: matrix_steps, OTHER: other}, label)

    def init(params: PyTree) -> optax.PartitionState:
        label(params)
        if labels is None and isinstance(dimension_numbers, MuonDimensionNumbers):
            _warn_of_stacks(params)
        return steps.init(params)

    def update(
        updates: PyTree,
        state: optax.PartitionState,
        params: PyTree | None = None,
        **extra_args: Any,
    ) -> tuple[PyTree, optax.PartitionState]:
        check_arrays(updates)
        if params is None:
            raise ValueError("muon needs the parameters: update(updates, state, params).")
        check_alike(updates, params)
        return steps.update(updates, state, params, **extra_args)

    formula = scale_named(scale)
    return optax.GradientTransformationExtraArgs(
        Routed(
            init,
            lambda params: routes(params, label(params), dimension_numbers, sizes, splits, formula),
        ),
        update,
    )


def _warn_of_stacks(params: PyTree) -> None:
    """A warning where the rule of two axes meets leaves of more, and stacked vectors that it takes
    for matrices.
    """
    named = [
        (name, leaf.shape)
        for name, leaf in zip(leaf_names(params), jax.tree.leaves(params), strict=True)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    ]
    stacks = [f"{name} {shape}" for name, shape in named if len(shape) > 2]
    if not stacks:
        return
    layers = {shape[0] for _, shape in named if len(shape) > 2}
    vectors = [f"{name} {shape}" for name, shape in named if len(shape) == 2 and shape[0] in layers]
    doubt = f", and may take stacked vectors for matrices: {', '.join(vectors)}" if vectors else ""
    warnings.warn(
        f"muon by two axes alone leaves these to the other optimizer: {', '.join(stacks)}{doubt};"
        " pass labels=, dimension_numbers= and splits= of specjax.diagnostics.matrix_layout(loss,"
        " params, batch).",
        stacklevel=3,
    )


def _labels(params: PyTree, labels: object, dimension_numbers: DimensionNumbers) -> PyTree:
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
        if unknown := {label for label in found if label not in (MATRIX, OTHER)}:
            raise ValueError(
                f'labels must be "{MATRIX}" or "{OTHER}", got {sorted(map(repr, unknown))}.'
            )
    elif isinstance(dimension_numbers, MuonDimensionNumbers):
        found = [MATRIX if is_matrix(leaf) else OTHER for leaf in leaves]
    else:
        specs = prefix_leaves(dimension_numbers, params, MuonDimensionNumbers, "dimension_numbers")
        found = [OTHER if spec is None else MATRIX for spec in specs]
    return jax.tree.unflatten(treedef, found)
