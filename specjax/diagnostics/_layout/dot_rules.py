"""Rules for products. A product of a parameter with activations shows its inputs and outputs, and a
product of activations shows heads; products of parameters are followed.

In a chain of parameters, such as x (W + A B), every factor has its inputs on the side of x.
"""

from collections.abc import Hashable, Sequence
from itertools import product as pairs

from specjax.diagnostics._layout.abstract_value import Value, distinct, from_all
from specjax.diagnostics._layout.axis_pieces import (
    Axis,
    Bond,
    Left,
    Source,
    Term,
    extent,
    renamed,
    unknown,
)
from specjax.diagnostics._layout.uses import ANOTHER_PARAMETER, Use, UseKind, Uses

Dims = tuple[Sequence[int], Sequence[int]]
"""Axes of the left and of the right factor that belong together."""


def multiply(
    values: list[Value],
    contracted: Dims,
    batch: Dims,
    shape: tuple[int, ...],
    uses: Uses,
    place: Hashable,
) -> Value:
    """The product of two values over `contracted` axes, with `batch` axes first, as in
    `lax.dot_general`.
    """
    sides = [side for side, value in enumerate(values) if value.is_parameter]
    if len(sides) == 2:
        return _multiply_parameters(values, contracted, batch, shape)
    if sides:
        return _multiply_parameter(values, sides[0], contracted, batch, shape, uses, place)
    result = from_all(values, shape)
    free = [_free(value, side, contracted, batch) for side, value in enumerate(values)]
    if all(value.data for value in values):
        if contracted[0] or all(free):
            _note_heads(values, contracted, batch, uses)
        else:
            # Over batch axes alone, as in einsum("bef,be->bef"), a product is elementwise.
            side = 1 if free[1] else 0
            every = frozenset(range(len(values[side].shape)))
            uses.multiply(values[side], values[1 - side], every, frozenset(batch[side]))
    terms = [
        _placed(
            term,
            [term.axes[a] for a in batch[side]],
            [term.axes[a] for a in free[side]],
            side,
            values,
            free,
        )
        for side, value in enumerate(values)
        for term in value.tags()
    ]
    return result._replace(terms=distinct(terms))


def finish_product(term: Term, uses: Uses, place: Hashable) -> None:
    """Records a product of parameters that meets activations without a further product: the right
    factor acts first, as in A B x.
    """
    for source in term.sources():
        if source[0] == "leaf":
            inputs = tuple(p for bond in term.bonds for p in bond.first if p.source == source)
            outputs = tuple(p for bond in term.bonds for p in bond.second if p.source == source)
            rest = tuple(p for axis in term.axes for p in axis if p.source == source)
            ends = (inputs, outputs or rest) if inputs else (rest, outputs)
            _record(term, source, *ends, (), uses, place)


def _multiply_parameter(
    values: list[Value],
    side: int,
    contracted: Dims,
    batch: Dims,
    shape: tuple[int, ...],
    uses: Uses,
    place: Hashable,
) -> Value:
    value, other = values[side], values[1 - side]
    free = [_free(v, i, contracted, batch) for i, v in enumerate(values)]
    # One-hot columns pick the rows of a table.
    hot = any(
        p.source is not None and p.source[0] == "one-hot"
        for t in other.terms
        for a in contracted[1 - side]
        for p in t.axes[a]
    )
    terms, own = [], 0
    for term in value.parameters():
        if term.statistic:
            continue
        names: dict[Source, Source] = {}
        inputs, outputs = (
            tuple(p for a in axes for p in term.axes[a]) for axes in (contracted[side], free[side])
        )
        counted = tuple(p for a in batch[side] for p in term.axes[a])
        for source, (ins, outs) in _oriented(term, inputs, outputs).items():
            own_batch = tuple(p for p in counted if p.source == source)
            number = _record(term, source, ins, outs, own_batch, uses, place, lookup=hot)
            names[source] = ("output", number)
            own |= 1 << number
            if ins and outs:
                _note_origins(number, source, term, other, contracted, batch, side, uses)
        at = [term.axes[a] for a in batch[side]], [term.axes[a] for a in free[side]]
        terms.append(_placed(renamed(term, names), *_renamed_axes(at, names), side, values, free))
    uses.consumed |= other.uses()
    return Value(shape, distinct(terms), True, own, other.behind | other.before, other.earlier)


def _multiply_parameters(
    values: list[Value], contracted: Dims, batch: Dims, shape: tuple[int, ...]
) -> Value:
    left, right = values
    free = [_free(v, i, contracted, batch) for i, v in enumerate(values)]
    terms = []
    for first, second in pairs(left.parameters(), right.parameters()):
        axes = (
            *(first.axes[a] for a in batch[0]),
            *(first.axes[a] for a in free[0]),
            *(second.axes[a] for a in free[1]),
        )
        bond = Bond(
            *(
                tuple(p for a in dims for p in t.axes[a])
                for t, dims in zip((first, second), contracted, strict=True)
            )
        )
        gone = {
            Left(p.source, p.axis, "batch")
            for a in batch[1]
            for p in second.axes[a]
            if p.source is not None
        }
        # A parameter times itself is a statistic of it, as in a penalty on W Wᵀ - I.
        statistic = (
            first.statistic
            or second.statistic
            or bool(set(first.sources()) & set(second.sources()))
        )
        terms.append(
            Term(
                axes,
                (*first.starts, *second.starts),
                first.left | second.left | gone,
                (*first.bonds, *second.bonds, bond),
                statistic,
                first.frozen | second.frozen,
            )
        )
    return from_all(values, shape, terms)


def _oriented(term: Term, inputs: Axis, outputs: Axis) -> dict[Source, tuple[Axis, Axis]]:
    """The inputs and outputs of every parameter of a term, from the axes of the whole inwards along
    the bonds.
    """
    leaves = [source for source in term.sources() if source[0] == "leaf"]
    ends = {
        s: ([p for p in inputs if p.source == s], [p for p in outputs if p.source == s])
        for s in leaves
    }
    bonds, reached = list(term.bonds), {s for s in leaves if ends[s][0]}
    while bonds:
        bond = next(
            (b for b in bonds if {p.source for p in (*b.first, *b.second)} & reached), bonds[0]
        )
        bonds.remove(bond)
        near, far = (
            (bond.first, bond.second)
            if {p.source for p in bond.first} & reached
            else (bond.second, bond.first)
        )
        for piece in near:
            if piece.source in ends:
                ends[piece.source][1].append(piece)
        for piece in far:
            if piece.source in ends:
                ends[piece.source][0].append(piece)
                reached.add(piece.source)
    return {source: (tuple(ins), tuple(outs)) for source, (ins, outs) in ends.items()}


def _record(
    term: Term,
    source: Source,
    inputs: Axis,
    outputs: Axis,
    batch: Axis,
    uses: Uses,
    place: Hashable,
    *,
    lookup: bool = False,
) -> int:
    left = frozenset(gone for gone in term.left if gone.source == source)
    detail = ANOTHER_PARAMETER if term.bonds else ""
    kind: UseKind = "lookup" if lookup else "linear"
    return uses.record(place, Use(source[1], kind, term, inputs, outputs, batch, left, detail))


def _note_heads(values: list[Value], contracted: Dims, batch: Dims, uses: Uses) -> None:
    """Axes of outputs that are batch axes of a product of activations count the heads of
    attention.
    """
    for side, value in enumerate(values):
        for term in value.tags():
            for source in term.sources():
                heads = _entries(term, batch[side], source)
                if heads > 1:
                    summed = _entries(term, contracted[side], source)
                    every = extent(
                        tuple(p for axis in term.axes for p in axis if p.source == source)
                    )
                    # Several queries may share a key, so the entries that are not summed over count
                    # queries.
                    uses.heads[source[1]] = every // summed if summed > 1 else heads


def _note_origins(
    number: int,
    source: Source,
    term: Term,
    other: Value,
    contracted: Dims,
    batch: Dims,
    side: int,
    uses: Uses,
) -> None:
    """Records the uses from which the activations of a product come, and their axes that count
    matrices.
    """
    for tag in other.tags():
        for axis in batch[1 - side]:
            uses.counted |= {(p.source[1], p.axis) for p in tag.axes[axis] if p.source is not None}
        for own, theirs in zip(contracted[side], contracted[1 - side], strict=True):
            origins = {(p.source[1], p.axis) for p in tag.axes[theirs] if p.source is not None}
            for piece in term.axes[own]:
                if piece.source == source:
                    uses.origins.setdefault((number, piece.axis), set()).update(origins)


def _entries(term: Term, axes: Sequence[int], source: Source) -> int:
    return extent(tuple(p for axis in axes for p in term.axes[axis] if p.source == source))


def _free(value: Value, side: int, contracted: Dims, batch: Dims) -> list[int]:
    return [
        axis for axis in range(len(value.shape)) if axis not in (*contracted[side], *batch[side])
    ]


def _placed(
    term: Term,
    batch: Sequence[Axis],
    own: Sequence[Axis],
    side: int,
    values: Sequence[Value],
    free: Sequence[Sequence[int]],
) -> Term:
    """A term of one side of a product, with the axes of the other side."""
    others = [unknown(values[1 - side].shape[axis]) for axis in free[1 - side]]
    sides = (own, others) if side == 0 else (others, own)
    return Term((*batch, *sides[0], *sides[1]), term.starts)


def _renamed_axes(
    axes: tuple[Sequence[Axis], Sequence[Axis]], names: dict[Source, Source]
) -> tuple[list[Axis], list[Axis]]:
    batch, own = (list(renamed(Term(tuple(part)), names).axes) for part in axes)
    return batch, own
