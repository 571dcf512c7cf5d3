"""Values made of parameters alone: parameters in other layouts, their sums and products, and
parameters times gains.

Such a value is a sum of terms. A term is one parameter, seen as an array Z, times factors from the
other parameters; in W + A B the factor of A is B, and that of B is A. It is an einsum, in which
axes of equal labels belong together,

    value[labels] = Σ Z[own] · gains[own] · factor[...] · factor[...] ...

so that for activations x that the value meets in a product, the factors between x and Z, and hence
the inputs of Z, are known.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.programs import Equation

AnyArray = Array | np.ndarray
"""The constants of a program may be NumPy arrays."""


class Label:
    """An axis of a product; two axes belong together if they have the same one."""


Labels = tuple[Label, ...]


class Factor(NamedTuple):
    """An array in a product, with a label for each of its axes."""

    array: AnyArray
    labels: Labels


class Term(NamedTuple):
    """One parameter in a value: see the module.

    `view` takes a tree leaf to Z, and `signature` identifies it, so that uses of the same matrices
    can be found; `layers` lists the steps of a scan over stacked parameters. An axis of the value
    without a label does not belong to Z. A gain has the rank of Z, with axes of one entry where it
    does not vary. A window (label, start, size) gives the term's entries of an axis, where
    parameters are side by side. `picks` are one-hot rows by which data chose among matrices. `axes`
    are those of the leaf along the axes of Z, None where a reshape mixed them, and `counted` those
    of them that count matrices.
    """

    leaf: int
    layers: tuple[int, ...]
    view: Callable[[Array], Array]
    signature: tuple[Any, ...]
    own: Labels
    labels: tuple[Label | None, ...]
    factors: tuple[Factor, ...] = ()
    gains: tuple[AnyArray, ...] = ()
    windows: tuple[tuple[Label, int, int], ...] = ()
    picks: tuple[Factor, ...] = ()
    axes: tuple[int | None, ...] = ()
    counted: frozenset[int] = frozenset()

    @property
    def is_plain(self) -> bool:
        """Whether the value is the parameter in another layout, and nothing else."""
        return self.own == self.labels and not (
            self.factors or self.gains or self.windows or self.picks
        )

    def then(
        self, operation: Callable[[Array], Array], axes: tuple[int | None, ...], *signature: Any
    ) -> "Term":
        """A plain term after an operation that moves its entries; `axes` are those of the leaf
        after it.
        """
        view, own = self.view, new_labels(len(axes))
        return self._replace(
            view=lambda leaf: operation(view(leaf)),
            signature=self.signature + signature,
            own=own,
            labels=own,
            axes=axes,
        )

    @property
    def counts(self) -> frozenset[Label]:
        """The axes of Z that count matrices."""
        return frozenset(
            label for label, axis in zip(self.own, self.axes, strict=True) if axis in self.counted
        )

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether it varies along every axis longer than one."""
        return all(
            size == 1 or label is not None for size, label in zip(shape, self.labels, strict=True)
        )


class Made(NamedTuple):
    """A value made of parameters and constants: its terms, empty unless it is a sum of products,
    and the axes along which it only repeats.
    """

    terms: tuple[Term, ...] = ()
    repeats: frozenset[int] = frozenset()


def parameter(leaf: int, rank: int, counted: frozenset[int]) -> Made:
    """The parameter itself; `counted` are its axes that count matrices."""
    own = new_labels(rank)
    return Made((Term(leaf, (), _same, (), own, own, axes=tuple(range(rank)), counted=counted),))


def new_labels(count: int) -> Labels:
    """New labels, unlike those of all other axes."""
    return tuple(Label() for _ in range(count))


def moved(
    term: Term,
    operation: Callable[[Array], Array],
    before: Sequence[int],
    after: Sequence[int],
    equation: Equation,
    signature: tuple[Any, ...],
) -> Term | None:
    """The term after an operation that moves the entries of its value; None where the operation is
    not followed.
    """
    name = equation.name
    if term.is_plain:
        return term.then(operation, _axes_after(term, before, after, equation), name, *signature)
    if name == "transpose":
        return term._replace(
            labels=tuple(term.labels[axis] for axis in equation.parameters["permutation"])
        )
    return (
        _with_axes_of_one(term, before, after) if name in ("reshape", "squeeze", "copy") else None
    )


def _axes_after(
    term: Term, before: Sequence[int], after: Sequence[int], equation: Equation
) -> tuple[int | None, ...]:
    """The axes of the leaf after an operation."""
    if equation.name == "transpose":
        return tuple(term.axes[axis] for axis in equation.parameters["permutation"])
    if equation.name not in ("reshape", "squeeze"):
        return term.axes
    known = [axis for axis, size in zip(term.axes, before, strict=True) if size > 1]
    if [size for size in before if size > 1] != [size for size in after if size > 1]:
        return (None,) * len(after)
    return tuple(known.pop(0) if size > 1 else None for size in after)


def _with_axes_of_one(term: Term, before: Sequence[int], after: Sequence[int]) -> Term | None:
    """The term where only axes of one entry came or went."""
    labels = [label for label, size in zip(term.labels, before, strict=True) if size > 1]
    if [size for size in before if size > 1] != [size for size in after if size > 1]:
        return None
    return term._replace(labels=tuple(labels.pop(0) if size > 1 else None for size in after))


def broadcast(
    term: Term, before: Sequence[int], after: Sequence[int], dimensions: Sequence[int]
) -> Term:
    """The term with new axes, and axes of one entry repeated."""
    labels: list[Label | None] = [None] * len(after)
    for label, size, place in zip(term.labels, before, dimensions, strict=True):
        labels[place] = label if size == after[place] else None
    return term._replace(labels=tuple(labels))


def multiply_by_array(term: Term, array: AnyArray, repeats: frozenset[int]) -> Term:
    """The term times an array of the shape of its value that does not vary along some axes.

    A gain that varies along axes of Z and of a factor belongs to neither: it is left out, like a
    mask.
    """
    varying = {axis for axis, size in enumerate(array.shape) if size > 1 and axis not in repeats}
    labels = {term.labels[axis] for axis in varying}
    still = tuple(slice(None) if axis in varying else slice(0, 1) for axis in range(array.ndim))
    array = windowed(term, array, term.labels)[still]
    if labels <= set(term.own):
        return term._replace(gains=(*term.gains, _aligned(array, term.labels, term.own)))
    for i, factor in enumerate(term.factors):
        if labels <= set(factor.labels):
            gain = _aligned(array, term.labels, factor.labels).astype(factor.array.dtype)
            scaled = factor._replace(array=factor.array * gain)
            return term._replace(factors=(*term.factors[:i], scaled, *term.factors[i + 1 :]))
    return term


def _aligned(array: AnyArray, labels: Sequence[Label | None], wanted: Labels) -> AnyArray:
    """An array with its axes in the order of other labels, and axes of one entry for those that it
    lacks.
    """
    shared = [axis for axis, label in enumerate(labels) if label in wanted]
    order = sorted(shared, key=lambda axis: wanted.index(labels[axis]))
    # The others have one entry.
    others = [axis for axis in range(array.ndim) if axis not in shared]
    sizes = {labels[axis]: array.shape[axis] for axis in shared}
    return array.transpose(*others, *order).reshape([sizes.get(label, 1) for label in wanted])


def multiplied(
    term: Term,
    side: int,
    other: AnyArray,
    contracted: Sequence[Sequence[int]],
    batch: Sequence[Sequence[int]],
) -> Term:
    """The term times the array of another value made of parameters, as in `lax.dot_general`; `side`
    is that of the term.
    """
    labels = named(term)
    theirs = joined(labels, side, other.ndim, contracted, batch)
    operands = [labels, theirs] if side == 0 else [theirs, labels]
    free = [
        [label for axis, label in enumerate(found) if axis not in (*contracted[i], *batch[i])]
        for i, found in enumerate(operands)
    ]
    after = (*(labels[axis] for axis in batch[side]), *free[0], *free[1])
    factor = Factor(windowed(term, other, theirs), theirs)
    return term._replace(labels=after, factors=(*term.factors, factor))


def named(term: Term) -> Labels:
    """The labels of the value, with new ones for the axes that have none."""
    return tuple(Label() if label is None else label for label in term.labels)


def joined(
    labels: Labels,
    side: int,
    rank: int,
    contracted: Sequence[Sequence[int]],
    batch: Sequence[Sequence[int]],
) -> Labels:
    """The labels of the other operand of a product: those of the axes that it shares, and new
    ones.
    """
    shared = {
        theirs: labels[own]
        for axes in (contracted, batch)
        for own, theirs in zip(axes[side], axes[1 - side], strict=True)
    }
    return tuple(shared.get(axis) or Label() for axis in range(rank))


def windowed(term: Term, array: AnyArray, labels: Sequence[Label | None]) -> AnyArray:
    """The entries of an array that belong to the term, where its value has parameters side by
    side.
    """
    for label, start, size in term.windows:
        if label in labels and array.shape[labels.index(label)] > 1:
            array = jax.lax.slice_in_dim(array, start, start + size, axis=labels.index(label))
    return array


def side_by_side(
    made: Sequence[Made], shapes: Sequence[Sequence[int]], axis: int
) -> tuple[Term, ...]:
    """The terms of values that are concatenated along an axis."""
    terms, start = [], 0
    for value, shape in zip(made, shapes, strict=True):
        for term in value.terms:
            label = term.labels[axis]
            # The entries of an axis that does not belong to Z cannot be distinguished.
            if label is not None and term.covers(shape):
                first, size = next((w[1:] for w in term.windows if w[0] is label), (0, shape[axis]))
                others = tuple(window for window in term.windows if window[0] is not label)
                terms.append(term._replace(windows=(*others, (label, start + first, size))))
        start += shape[axis]
    return tuple(terms)


def einsum(factors: Sequence[Factor], labels: Labels) -> Array:
    """The sum of products over all labels except these."""
    numbers = {
        label: i
        for i, label in enumerate(dict.fromkeys((*labels, *(n for f in factors for n in f.labels))))
    }
    operands: list[Any] = []
    for factor in factors:
        operands += [factor.array, [numbers[label] for label in factor.labels]]
    with jax.numpy_dtype_promotion("standard"):
        return jnp.einsum(*operands, [numbers[label] for label in labels], precision="highest")


def _same(leaf: Array) -> Array:
    return leaf
