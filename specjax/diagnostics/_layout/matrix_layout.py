"""Reads the role of every leaf off the loss: matrices with their inputs, outputs and batch axes,
tables that are looked up, gains and biases.

The rule that two axes make a matrix would orthogonalize stacked biases (layers, width) and leave
out stacked weights (layers, d, width). The role of a parameter in the program of the loss does not
depend on its storage.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree
from optax.contrib import MuonDimensionNumbers

from specjax.arguments import checked
from specjax.diagnostics._layout.interpreter import uses_in
from specjax.diagnostics._layout.leaf_classification import Kind, Label, LayoutRow, row
from specjax.optim.fused_projections import Interleaved, ending_in
from specjax.optim.leaf_names import is_box, leaf_names
from specjax.optim.matrices import matrices_of
from specjax.programs import UnreadableProgramError, trace

_DATA_DECIDES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)


@dataclass(frozen=True)
class MatrixLayout:
    """A row for every inexact leaf, in the order of the tree; `str` of it is the table.

    `optim.muon(rate, layout=layout)` takes the whole object.
    """

    rows: tuple[LayoutRow, ...]
    treedef: Any

    @property
    def labels(self) -> PyTree:
        """A tree like the inexact leaves of the parameters, or with a leaf for each variable of
        flax: "matrix" or "other".
        """
        return self.treedef.unflatten([found.label for found in self.rows])

    @property
    def dimension_numbers(self) -> PyTree:
        """A tree of `optax.contrib.MuonDimensionNumbers`, None for a leaf that is not a matrix."""
        return self.treedef.unflatten([found.dimension_numbers for found in self.rows])

    @property
    def splits(self) -> dict[str, tuple[int, ...] | Interleaved]:
        """The matrices side by side, or in turns, in a leaf's outputs, by the leaf's name, where
        there are several.
        """
        return {
            found.name: found.splits
            for found in self.rows
            if found.splits is not None and found.label == "matrix"
        }

    def labelled(self, *, readout: Label | None = None, **kinds: Label) -> "MatrixLayout":
        """The layout with other labels for readouts or for rows of a kind, as in
        `labelled(readout="other")`.

        Raises:
            ValueError: for an unknown kind or label, or "matrix" for a leaf without dimension
                numbers.

        """
        known = Kind.__args__  # type: ignore[attr-defined]
        if wrong := [kind for kind in kinds if kind not in known]:
            raise ValueError(
                f"Unknown kind of leaves {wrong[0]!r}; choose one of readout, {', '.join(known)}."
            )
        if wrong := [
            label
            for label in (readout or "other", *kinds.values())
            if label not in ("matrix", "other")
        ]:
            raise ValueError(f'A label is "matrix" or "other", got {wrong[0]!r}.')
        rows = []
        for found in self.rows:
            label = (
                readout
                if readout is not None and found.readout
                else kinds.get(found.kind, found.label)
            )
            if label == "matrix" and found.dimension_numbers is None:
                raise ValueError(
                    f"The leaf {found.name} cannot be labelled a matrix: {found.reason}."
                )
            rows.append(found._replace(label=label))
        return MatrixLayout(tuple(rows), self.treedef)

    def with_leaf(
        self,
        name: str,
        dimension_numbers: MuonDimensionNumbers | None,
        splits: tuple[int, ...] | Interleaved | None = None,
    ) -> "MatrixLayout":
        """The layout with another role for one leaf, or for all leaves whose names end so: its
        dimension numbers and splits, or None for a leaf that is not a matrix.

        Raises:
            ValueError: for a name that no leaf has, or axes that do not fit.

        Examples:
            >>> import jax.numpy as jnp, optax
            >>> from specjax import diagnostics
            >>> params = {"heads": jnp.ones((4, 2, 8))}
            >>> loss = lambda p, x: jnp.sum(jnp.einsum("bd,dhk->bhk", x, p["heads"]))
            >>> layout = diagnostics.matrix_layout(loss, params, jnp.ones((3, 4)))
            >>> each = layout.with_leaf("heads", optax.contrib.MuonDimensionNumbers(0, 2))
            >>> layout.rows[0].matrices, each.rows[0].matrices
            (((1, 4, 16),), ((2, 4, 8),))

        """
        names = [found.name for found in self.rows]
        chosen = ending_in(name, names)
        if not chosen:
            raise ValueError(f"The layout has no leaf {name!r}, only {', '.join(names)}.")
        rows = list(self.rows)
        for i in chosen:
            if dimension_numbers is not None:
                shaped = jax.ShapeDtypeStruct(rows[i].shape, jnp.float32)
                matrices_of({names[i]: shaped}, dimension_numbers, "with_leaf")
            rows[i] = rows[i]._replace(
                label="other" if dimension_numbers is None else "matrix",
                dimension_numbers=dimension_numbers,
                splits=splits,
                other_reading=None,
                reason="as you say",
            )
        return MatrixLayout(tuple(rows), self.treedef)

    def __str__(self) -> str:
        table = [
            ["leaf", "shape", "axes", "holds", "label", "why"],
            *(_cells(found) for found in self.rows),
        ]
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in table
        )


@checked
def matrix_layout(
    loss: Callable[[PyTree, PyTree], Any], params: PyTree, batch: PyTree
) -> MatrixLayout:
    """Finds the role of every leaf in the program of a loss: labels and dimension numbers for
    `optim.muon`, with the reason in words.

    The loss is traced once and nothing is computed, so arrays may be abstract (`jax.eval_shape`,
    `jax.ShapeDtypeStruct`). Parameters are followed through transpositions, reshapes, slices, sums
    and products with other parameters (low-rank adapters, weight norms), concatenation, `vmap`,
    `jit`, `remat`, `scan`, `while_loop`, `cond` and `shard_map`, into matrix products,
    convolutions, ragged products and look-ups.

    A kernel (d, heads, head) is one matrix from d to heads · head; an axis that counts layers or
    experts is a batch axis. Outputs (expert, hidden) that weights from a router multiply before the
    sum over experts bear two readings, experts or gated heads; the layout takes them for experts,
    says so, and keeps the other as `other_reading` (`MatrixLayout.with_leaf` sets it). Attention
    shows its heads by products of activations.

    A leaf whose outputs are cut apart again holds several matrices (`splits`), unless the parts
    come together again as those of rotary positions do. Where a leaf has several uses the first
    product counts.

    Args:
        loss: `loss(params, batch)`, one number, or (number, anything).
        params: A tree; leaves other than arrays, as in equinox modules, are passed through.
        batch: The batch of the loss. If it has no arrays, the arrays that the loss closes over
            count as data.

    Raises:
        ValueError: for a leaf that the loss does not use; a loss that is not one number; one whose
            program depends on the values of its arguments, as with a boolean mask for an index.
        UnreadableProgramError: if the program has a form of JAX that specjax does not know; a
            subclass of ValueError.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import diagnostics
        >>> params = {"weight": jnp.ones((4, 16)), "bias": jnp.ones(16)}
        >>> loss = lambda params, x: jnp.sum(jnp.tanh(x @ params["weight"] + params["bias"]))
        >>> diagnostics.matrix_layout(loss, params, jnp.ones((3, 4))).labels
        {'bias': 'other', 'weight': 'matrix'}

    """
    treedef: Any
    batch_treedef: Any
    leaves, treedef = jax.tree.flatten(params)
    names = leaf_names(params)
    traced = [i for i, x in enumerate(leaves) if _is_array(x)]
    # Integers and keys are traced too, but they are not parameters.
    order = sorted(traced, key=lambda i: not jnp.issubdtype(leaves[i].dtype, jnp.inexact))
    parameters = [i for i in order if jnp.issubdtype(leaves[i].dtype, jnp.inexact)]
    batch_leaves, batch_treedef = jax.tree.flatten(batch)
    data = [i for i, x in enumerate(batch_leaves) if _is_array(x)]

    def traced_with(known: Mapping[int, Array]) -> Any:
        """The program of the loss where some leaves of the batch have values."""
        unknown = [i for i in data if i not in known]

        def loss_of_arrays(arrays: Sequence[Any], batch_arrays: Sequence[Any]) -> Any:
            given = _replaced(
                _replaced(batch_leaves, list(known), list(known.values())), unknown, batch_arrays
            )
            # Values made only of known values are known too.
            with jax.ensure_compile_time_eval() if known else nullcontext():
                return loss(
                    treedef.unflatten(_replaced(leaves, order, arrays)),
                    batch_treedef.unflatten(given),
                )

        return trace(
            loss_of_arrays,
            [_abstract(leaves[i]) for i in order],
            [_abstract(batch_leaves[i]) for i in unknown],
        )

    try:
        program, shape = traced_with({})
    except _DATA_DECIDES as error:
        names_in_batch = leaf_names(batch)
        deciding = [names_in_batch[i] for i in data if _decides(i, batch_leaves[i], traced_with)]
        whose = (
            f"the batch's leaf {' and '.join(deciding)}"
            if deciding
            else "the parameters or the batch"
        )
        raise ValueError(
            f"The loss cannot be traced, because its program depends on the values of {whose}, as"
            " with a boolean mask for an index or an `if` on an array:"
            f" {str(error).splitlines()[0]}"
        ) from error
    first = shape[0] if isinstance(shape, tuple | list) and len(shape) else shape
    if getattr(first, "shape", None) != ():
        raise ValueError(f"The loss must be one number, or (number, anything), got {shape}.")
    try:
        uses = uses_in(program, len(parameters), constants_are_data=not data)
    except UnreadableProgramError as error:
        way_out = "or give optim.muon its labels= and muon_weight_dimension_numbers= yourself."
        raise UnreadableProgramError(error.what, way_out) from error
    rows: dict[int, LayoutRow] = {}
    for number, i in enumerate(parameters):
        real = jnp.issubdtype(leaves[i].dtype, jnp.floating)
        found = row(names[i], number, tuple(leaves[i].shape), uses, real=real)
        if found is None:
            raise ValueError(
                f"The loss does not use the leaf {names[i]} of shape {tuple(leaves[i].shape)}, so"
                " its role is unknown; leave it out of the parameters."
            )
        rows[i] = found
    places = iter(range(len(leaves)))
    # A flax box becomes one leaf; its entry also stands for the array inside, as a prefix of the
    # tree.
    inexact = jax.tree.map(
        lambda x: next((i for i in [next(places) for _ in jax.tree.leaves(x)] if i in rows), None),
        params,
        is_leaf=is_box,
    )
    return MatrixLayout(tuple(rows[i] for i in sorted(rows)), jax.tree.structure(inexact))


def _is_array(x: object) -> bool:
    return isinstance(x, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct)


def _decides(place: int, x: Any, traced_with: Callable[[Mapping[int, Array]], Any]) -> bool:
    """Whether a loss whose program depends on values can be traced, or fails elsewhere, once the
    values of x, at this place, are known.
    """
    if not jnp.issubdtype(x.dtype, jnp.number) and x.dtype != bool:
        return False
    try:
        traced_with({place: jnp.zeros(x.shape, x.dtype)})
    except _DATA_DECIDES:
        return False
    except Exception:
        return True
    return True


def _abstract(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(
        x.shape, jax.dtypes.canonicalize_dtype(x.dtype, allow_extended_dtype=True)
    )


def _replaced(leaves: Sequence[Any], places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    result = list(leaves)
    for place, value in zip(places, values, strict=True):
        result[place] = value
    return result


def _cells(found: LayoutRow) -> list[str]:
    holds = " + ".join(
        f"{count if count > 1 else ''}{' of ' if count > 1 else ''}{fan_in} x {fan_out}"
        for count, fan_in, fan_out in found.matrices
    )
    shape = " x ".join(map(str, found.shape)) or "scalar"
    return [found.name, shape, " ".join(found.axes), holds, found.label, found.reason]
