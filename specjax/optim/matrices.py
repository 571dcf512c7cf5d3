"""The matrices in a tree of parameters, and one batched call for all of the same shape.

A leaf is seen as matrices `(batch, fan_in, fan_out)`, the layout of optax: x @ W maps inputs (rows)
to outputs (columns). `optax.contrib.MuonDimensionNumbers` names the axes of inputs and outputs; all
other axes are batch axes.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.sharding import Sharding
from jaxtyping import Array, ArrayLike, Inexact, Num, PyTree
from optax.contrib import MuonDimensionNumbers

from specjax.optim._float32_wrapper import check_arrays
from specjax.optim._sharded import Placement, call_sharded, of_stack_axis, on_stack_axis, placed
from specjax.optim.fused_projections import Interleaved, Splits, by_leaf, checked
from specjax.optim.leaf_names import leaf_names
from specjax.sizes import AnySize

IN_OUT = MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)
"""The last two axes are (inputs, outputs), leading axes are batch axes: x @ W, the layout of optax
and flax.
"""

OUT_IN = MuonDimensionNumbers(reduction_axis=-1, output_axis=-2)
"""The last two axes are (outputs, inputs), leading axes are batch axes: W @ x, the layout of
equinox, torch and `specjax.models`.
"""

DimensionNumbers = MuonDimensionNumbers | PyTree | Callable[[PyTree], PyTree]
"""One specification for all leaves, a prefix tree of them (None: not a matrix), or a function of
the parameters giving that tree.
"""


@runtime_checkable
class LeafLayout(Protocol):
    """One leaf of a layout."""

    @property
    def name(self) -> str:
        """Its dotted path."""

    @property
    def group(self) -> str:
        """Its label: "matrix", or for AdamW "embedding", "readout" or "other"."""

    @property
    def dimension_numbers(self) -> MuonDimensionNumbers | None:
        """None for a leaf that is not a matrix."""


@runtime_checkable
class Layout(Protocol):
    """The part of a `specjax.diagnostics.MatrixLayout` that optimizers use."""

    @property
    def rows(self) -> Sequence[LeafLayout]:
        """The layout of each leaf."""

    @property
    def splits(self) -> Splits:
        """The widths of fused matrices, by the leaf's name."""


class Fans(NamedTuple):
    """The active inputs and outputs of a padded matrix, each an int or a `Size`; scales use them in
    place of the shape.
    """

    fan_in: AnySize
    fan_out: AnySize


class MatrixView(NamedTuple):
    """How one leaf is seen as matrices: the order of its axes (batch, inputs, outputs) and the
    extents of each kind.

    `split` lists the matrices that the outputs hold; None stands for a single one.
    """

    order: tuple[int, ...]
    batch: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    split: Interleaved | None = None

    @property
    def fans(self) -> Fans:
        """The extents of each matrix."""
        return Fans(math.prod(self.inputs), math.prod(self.outputs))

    @property
    def widths(self) -> tuple[int, ...]:
        """The outputs of each matrix that the outputs hold."""
        return self.split.totals if self.split else (math.prod(self.outputs),)

    @property
    def parts(self) -> tuple[Fans, ...]:
        """The extents of each matrix in the outputs."""
        return tuple(Fans(self.fans.fan_in, width) for width in self.widths)

    def matrices(self, leaf: Num[Array, "..."]) -> Num[Array, "batch fan_in fan_out"]:
        """The leaf as a stack of matrices."""
        return leaf.transpose(self.order).reshape(math.prod(self.batch), *self.fans)

    def leaf(self, matrices: Num[Array, "batch fan_in fan_out"]) -> Num[Array, "..."]:
        """The inverse of `matrices`."""
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return matrices.reshape(self.batch + self.inputs + self.outputs).transpose(inverse)


class Matrices(NamedTuple):
    """The leaves of a tree, each with its view."""

    leaves: list[Array]
    views: list[MatrixView]
    treedef: Any

    def stacks(self) -> list[Array]:
        """Each leaf as its stack of matrices (batch, fan_in, fan_out); fused matrices stay
        together.
        """
        return [view.matrices(leaf) for leaf, view in zip(self.leaves, self.views, strict=True)]

    def tree(self, stacks: Iterable[Array]) -> PyTree:
        """The inverse of `stacks`."""
        return self.treedef.unflatten(
            [view.leaf(stack) for view, stack in zip(self.views, stacks, strict=True)]
        )

    def parts(self) -> list[Array]:
        """The stacks of all matrices; a leaf with fused matrices gives a stack for each of them."""
        return [
            part
            for view, stack in zip(self.views, self.stacks(), strict=True)
            for part in (view.split.apart(stack) if view.split else [stack])
        ]

    def placements(self, sharding: Any, tree: PyTree) -> list[Placement | None]:
        """Where the stack of each of the `parts` is computed, for a sharding of the stack axis or
        for those of the leaves of `tree`; None wherever the compiler decides.
        """
        on_axis = of_stack_axis(sharding)
        of_leaves = (
            [jax.typeof(leaf).sharding for leaf in self.leaves]
            if on_axis
            else prefix_leaves(sharding, tree, Sharding, "sharding")
        )
        found = []
        for view, own in zip(self.views, of_leaves, strict=True):
            known = placed(own, view.order, [*map(len, (view.batch, view.inputs, view.outputs))])
            place = on_stack_axis(sharding, known) if on_axis else known
            found += [place] * len(view.widths)
        return found

    def join(
        self, parts: Iterable[Array], factors: Sequence[Sequence[ArrayLike]] | None = None
    ) -> PyTree:
        """The inverse of `parts`, with each part multiplied by its factor, if there are factors."""
        rest, stacks = iter(parts), []
        for i, view in enumerate(self.views):
            own = [next(rest) for _ in view.widths]
            if factors is not None:
                pairs = zip(own, factors[i], strict=True)
                own = [x * jnp.asarray(factor, x.dtype) for x, factor in pairs]
            stacks.append(view.split.together(own) if view.split else own[0])
        return self.tree(stacks)


def matrices_of(
    tree: PyTree,
    dimension_numbers: DimensionNumbers,
    name: str,
    splits: Splits | None = None,
    *,
    complex_too: bool = False,
) -> Matrices:
    """The matrices in a tree. None and `optax.MaskedNode` hold no leaves and stay as they are.

    Args:
        tree: Parameters or updates.
        dimension_numbers: Which axes of each leaf are the inputs and outputs of its matrices.
        name: The caller, for the error message.
        splits: The widths of matrices that lie side by side in the outputs of a leaf.
        complex_too: Whether the caller takes complex matrices.

    Raises:
        ValueError: for a leaf that is not an array or not a matrix: fewer than two axes, not a real
            floating dtype (nor a complex one where these are taken), or None for its dimension
            numbers; for axes that do not fit the leaf; for dimension numbers that are not a prefix
            of the tree; for splits that name an unknown leaf or do not add up to the leaf's
            outputs.

    """
    check_arrays(tree)
    leaves, treedef = jax.tree.flatten(tree)
    names = leaf_names(tree)
    specs = prefix_leaves(dimension_numbers, tree, MuonDimensionNumbers, "dimension_numbers")
    views = [_view(*each, name, complex_too) for each in zip(names, leaves, specs, strict=True)]
    for i, split in by_leaf(splits or {}, names).items():
        views[i] = views[i]._replace(split=checked(split, math.prod(views[i].outputs), names[i]))
    return Matrices(leaves, views, treedef)


def prefix_leaves(prefix: Any, tree: PyTree, leaf_type: type, name: str) -> list[Any]:
    """The entry of a prefix tree for each leaf of `tree`; an entry is None, a `leaf_type` or any
    other leaf.

    A function of the tree may stand for the prefix tree. Raises ValueError if the structures do not
    fit.
    """
    if is_function(prefix):
        prefix = prefix(tree)
    entries: list[Any] = []
    try:
        jax.tree.map(
            lambda entry, below: entries.extend([entry] * len(jax.tree.leaves(below))),
            prefix,
            tree,
            is_leaf=lambda x: x is None or isinstance(x, leaf_type),
        )
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{name} must be one entry, or a tree with the structure of the parameters or a prefix"
            f" of it, got {jax.tree.structure(prefix)} for {jax.tree.structure(tree)}; jax.tree.map"
            " over the parameters makes such a tree."
        ) from error
    return entries


def by_name(layout: Layout, field: str) -> Callable[[PyTree], PyTree]:
    """A function of parameters that gives a tree with a field of the layout for each leaf.

    Leaves are found by their names, so the parameters may lie in another container than those that
    the layout was made from, such as the state of a flax module, or be some of them. The function
    raises ValueError for a leaf whose name the layout does not have.
    """
    found = {row.name: row for row in layout.rows}

    def tree_of(tree: PyTree) -> PyTree:
        names = leaf_names(tree)
        rows: Sequence[LeafLayout] = layout.rows
        if names != [row.name for row in rows]:
            if unknown := [name for name in names if name not in found]:
                near = [name for name in found if name.endswith("." + unknown[0])]
                raise ValueError(
                    f"The layout has no leaf {unknown[0]}, only {', '.join(near or found)}; make it"
                    " from the parameters that the optimizer gets."
                )
            rows = [found[name] for name in names]
        return jax.tree.unflatten(jax.tree.structure(tree), [getattr(row, field) for row in rows])

    return tree_of


def is_function(x: Any) -> bool:
    """Whether x is a function rather than a tree that can be called, as an equinox module is."""
    return callable(x) and jax.tree_util.treedef_is_leaf(jax.tree.structure(x))


def map_stacked(
    function: Callable[[Array], Array],
    stacks: Iterable[Inexact[Array, "_ _ _"]],
    placements: Sequence[Placement | None] = (),
) -> list[Inexact[Array, "_ ..."]]:
    """`function` of each stack `(batch, fan_in, fan_out)`, called once for all stacks of the same
    matrix shape and dtype.

    With `placements` of all stacks each device calls it for its own matrices, see
    `specjax.optim._sharded`.
    """
    stacks = list(stacks)
    placements = placements or (None,) * len(stacks)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, stack in enumerate(stacks):
        groups.setdefault((placements[index], stack.shape[1:], stack.dtype), []).append(index)
    results: dict[int, Array] = {}
    for (placement, *_), members in groups.items():
        if placement is not None:
            found = call_sharded(function, [stacks[i] for i in members], placement)
            results |= zip(members, found, strict=True)
            continue
        whole = function(
            jnp.concatenate([stacks[i] for i in members])
            if len(members) > 1
            else stacks[members[0]]
        )
        start = 0
        for i in members:
            results[i] = whole[start : start + stacks[i].shape[0]]
            start += stacks[i].shape[0]
    return [results[i] for i in range(len(stacks))]


def is_matrix(leaf: Array, spec: MuonDimensionNumbers) -> bool:
    """The rule for one specification of all leaves: as many axes as it needs, two for `IN_OUT` and
    `OUT_IN`, three for axes 1 and 2, and a floating or complex dtype.
    """
    axes = (*_axes(spec.reduction_axis), *_axes(spec.output_axis))
    needed = max(axis + 1 if axis >= 0 else -axis for axis in axes)
    return leaf.ndim == max(needed, len(axes)) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _view(
    leaf_name: str, leaf: Array | jax.ShapeDtypeStruct, spec: Any, name: str, complex_too: bool
) -> MatrixView:
    remedy = "route it to another transformation with optax.partition or optax.masked"
    if spec is None:
        raise ValueError(
            f"{name} got the leaf {leaf_name}, which dimension_numbers mark as not a matrix (None);"
            f" {remedy}."
        )
    if not jnp.issubdtype(leaf.dtype, jnp.inexact if complex_too else jnp.floating):
        kind = "floating or complex" if complex_too else "real floating"
        raise ValueError(
            f"{name} needs leaves of a {kind} dtype, the leaf {leaf_name} has dtype {leaf.dtype};"
            f" {remedy}."
        )
    if leaf.ndim < 2:
        raise ValueError(
            f"{name} needs matrices, the leaf {leaf_name} has shape {leaf.shape}; {remedy}."
        )
    inputs, outputs = _axes(spec.reduction_axis), _axes(spec.output_axis)
    chosen = [axis % leaf.ndim for axis in inputs + outputs]
    if any(not -leaf.ndim <= axis < leaf.ndim for axis in inputs + outputs) or len(
        set(chosen)
    ) < len(chosen):
        raise ValueError(
            f"The dimension numbers of the leaf {leaf_name} need different axes below {leaf.ndim}"
            f" (its shape is {leaf.shape}), got reduction_axis={spec.reduction_axis} and"
            f" output_axis={spec.output_axis}."
        )
    batch = [axis for axis in range(leaf.ndim) if axis not in chosen]
    of_batch, of_inputs, of_outputs = (
        tuple(leaf.shape[axis] for axis in axes)
        for axes in (batch, chosen[: len(inputs)], chosen[len(inputs) :])
    )
    return MatrixView((*batch, *chosen), of_batch, of_inputs, of_outputs)


def _axes(axes: int | Iterable[int]) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)
