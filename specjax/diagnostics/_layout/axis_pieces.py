"""Tracks which part of a parameter lies along which axis of a value, through transpositions,
reshapes and slices.

An axis of an array is a list of pieces, the outermost first, as the digits of a number: entry (i,
j) of the pieces (n, m) is entry i·m + j of the axis. A piece is a range of entries of one axis of
its source, `stride` apart. So a kernel (d, 3·h) that is reshaped to (d, 3, h) has the pieces (axis
1, 3 entries, h apart) and (axis 1, h entries, 1 apart), so a slice along either axis is a known set
of entries of the kernel.
"""

from collections.abc import Sequence
from math import prod
from typing import Literal, NamedTuple

Source = tuple[Literal["leaf", "output", "iota", "one-hot"], int]
"""A parameter, the outputs of a use of one, the numbers 0, 1, 2, …, or one-hot rows."""

How = Literal["scan", "index", "batch", "gather", "ragged", "sum"]
"""The way an axis of a source left a value: a scan over it, an index, a batch axis of a product, a
pick by data, a ragged product, or a sum.
"""


class Piece(NamedTuple):
    """`size` entries of an axis of a source, `stride` apart.

    The source is None for an axis that is not followed; the stride is None where the axis is known
    but its entries are not.
    """

    source: Source | None
    axis: int
    size: int
    stride: int | None


Axis = tuple[Piece, ...]


class Left(NamedTuple):
    """An axis of a source that left a value, and how."""

    source: Source
    axis: int
    how: How


class Entries(NamedTuple):
    """`width` neighbours from `start` on, and the same again `times` in all, every `period`
    entries.
    """

    start: int
    width: int
    times: int = 1
    period: int = 0

    @property
    def interval(self) -> tuple[int, int] | None:
        """The entries [start, stop), None unless they are neighbours."""
        return (self.start, self.start + self.width) if self.times == 1 else None


class Bond(NamedTuple):
    """The pieces of two parameters that were summed over in a product of them."""

    first: Axis
    second: Axis


class Term(NamedTuple):
    """A value's axes in pieces.

    A product of parameters has pieces of several sources and a bond for each product; a sum of
    parameters is several terms. `starts` are the first entries of axes that were cut. A
    `statistic`, such as a norm, holds only sums over the source. No gradient reaches the `frozen`
    sources.
    """

    axes: tuple[Axis, ...]
    starts: tuple[tuple[Source, int, int], ...] = ()
    left: frozenset[Left] = frozenset()
    bonds: tuple[Bond, ...] = ()
    statistic: bool = False
    frozen: frozenset[Source] = frozenset()

    def sources(self) -> tuple[Source, ...]:
        """The sources in the order of the axes and then of the bonds."""
        axes = [*self.axes, *(axis for bond in self.bonds for axis in bond)]
        found = [piece.source for axis in axes for piece in axis if piece.source is not None]
        return tuple(dict.fromkeys([*found, *(gone.source for gone in sorted(self.left))]))

    def start(self, source: Source, axis: int) -> int:
        """The first entry of an axis of the source."""
        return next((first for of, place, first in self.starts if (of, place) == (source, axis)), 0)

    def covers(self, shape: Sequence[int]) -> bool:
        """Whether it varies along every axis longer than one."""
        return all(
            n == 1 or any(p.source for p in axis) for n, axis in zip(shape, self.axes, strict=True)
        )


def whole(source: Source, shape: Sequence[int]) -> Term:
    """The source itself; a scalar has no axes, and its only entry counts as left."""
    left = frozenset() if shape else frozenset({Left(source, 0, "index")})
    return Term(
        tuple((Piece(source, axis, size, 1),) for axis, size in enumerate(shape)), left=left
    )


def unknown(size: int) -> Axis:
    """An axis with unknown entries."""
    return (Piece(None, 0, size, 1),) if size > 1 else ()


def extent(axis: Axis) -> int:
    """Its number of entries."""
    return prod(piece.size for piece in axis)


def blurred(axis: Axis, size: int) -> Axis:
    """The same sources along an axis of another size, at positions that are no longer known."""
    pieces = [Piece(p.source, p.axis, 1, None) for p in axis if p.source is not None]
    if not pieces:
        return unknown(size)
    return (*pieces[:-1], pieces[-1]._replace(size=size))


def fitted(term: Term, shape: Sequence[int]) -> Term:
    """The term with the axes of another shape, such as that of a shard."""
    axes = tuple(
        a if extent(a) == n else blurred(a, n) for a, n in zip(term.axes, shape, strict=True)
    )
    return term._replace(axes=axes)


def transposed(term: Term, permutation: Sequence[int]) -> Term:
    """The axes in another order."""
    return term._replace(axes=tuple(term.axes[axis] for axis in permutation))


def broadcast(term: Term, shape: Sequence[int], dimensions: Sequence[int]) -> Term:
    """New axes, and axes of one entry repeated; `dimensions` says where the old ones are, as in
    `lax.broadcast_in_dim`.
    """
    axes = [unknown(size) for size in shape]
    gone: list[Piece] = []
    for axis, place in zip(term.axes, dimensions, strict=True):
        if extent(axis) == shape[place]:
            axes[place] = axis
        else:
            gone.extend(axis)
    return without(term._replace(axes=tuple(axes)), gone, "index")


def reshaped(term: Term, shape: Sequence[int]) -> Term | None:
    """The axes merged and cut to another shape; None where a cut goes through entries whose
    positions are unknown.
    """
    queue = [piece for axis in term.axes for piece in axis]
    axes: list[Axis] = []
    for size in shape:
        axis: list[Piece] = []
        missing = size
        while missing > 1 or (size == 1 and not axis and queue and queue[0].size == 1):
            if not queue:
                return None
            piece = queue.pop(0)
            if missing % piece.size == 0:
                axis.append(piece)
                missing //= piece.size
            elif piece.size % missing == 0 and piece.stride is not None:
                rest = piece.size // missing
                axis.append(piece._replace(size=missing, stride=piece.stride * rest))
                queue.insert(0, piece._replace(size=rest))
                missing = 1
            else:
                return None
        axes.append(_merged(axis))
    # Drop axes of one entry that the new shape does not have.
    return without(term._replace(axes=tuple(axes)), queue, "index")


def cut(term: Term, axis: int, start: int, size: int, step: int = 1) -> Term | None:
    """The entries start, start + step, … of an axis; None unless they are a range of one piece."""
    pieces = term.axes[axis]
    if (start, size, step) == (0, extent(pieces), 1):
        return term
    inner = extent(pieces[1:])
    if not pieces:
        return term
    first = pieces[0]
    kept: Axis
    if len(pieces) == 1:
        kept, term = (
            (first._replace(size=size, stride=_multiply_stride(first.stride, step)),),
            _moved(term, first, start),
        )
    elif step == 1 and start % inner == 0 and size % inner == 0:
        kept = (first._replace(size=size // inner), *pieces[1:])
        term = _moved(term, first, start // inner)
    elif step == 1 and start // inner == (start + size - 1) // inner:
        term = _moved(term, first, start // inner)
        rest = term._replace(axes=(*term.axes[:axis], pieces[1:], *term.axes[axis + 1 :]))
        return cut(without(rest, [first], "index"), axis, start % inner, size)
    else:
        return None
    return term._replace(axes=(*term.axes[:axis], kept, *term.axes[axis + 1 :]))


def dropped(term: Term, axes: Sequence[int], how: How) -> Term:
    """The term without these axes."""
    gone = [piece for axis in axes for piece in term.axes[axis]]
    kept = tuple(axis for place, axis in enumerate(term.axes) if place not in axes)
    return without(term._replace(axes=kept), gone, how)


def without(term: Term, pieces: Sequence[Piece], how: How) -> Term:
    """The term, with a note that these pieces have left it."""
    gone = {Left(piece.source, piece.axis, how) for piece in pieces if piece.source is not None}
    return term._replace(left=term.left | gone)


def entries(term: Term, source: Source, axis: int) -> Entries | None:
    """The entries of an axis of the source that a term has; None where they are unknown or do not
    form such blocks.
    """
    pieces = [
        p for a in term.axes for p in a if (p.source, p.axis) == (source, axis) and p.size > 1
    ]
    if any(piece.stride is None for piece in pieces):
        return None
    width, times, period = 1, 1, 0
    for piece in sorted(pieces, key=lambda piece: piece.stride or 0):
        if not period and piece.stride == width:
            width *= piece.size
        elif piece.stride == (times * period or piece.stride):
            period, times = period or piece.stride or 0, times * piece.size
        else:
            return None
    return Entries(term.start(source, axis), width, times, period)


def renamed(term: Term, names: dict[Source, Source]) -> Term:
    """The term with its sources renamed, as the outputs of products have the axes of their
    parameters; sources without a name become unknown.
    """

    def axis_of(axis: Axis) -> Axis:
        pieces = [
            p._replace(source=names.get(p.source)) if p.source is not None else p for p in axis
        ]
        return tuple(p if p.source is not None else Piece(None, 0, p.size, 1) for p in pieces)

    starts = tuple(
        (names[source], axis, first) for source, axis, first in term.starts if source in names
    )
    return Term(tuple(axis_of(axis) for axis in term.axes), starts)


def _merged(pieces: Sequence[Piece]) -> Axis:
    """Joins neighbouring pieces that are consecutive entries of one axis."""
    merged: list[Piece] = []
    for piece in pieces:
        last = merged[-1] if merged else None
        if last is not None and last.source is None and piece.source is None:
            merged[-1] = last._replace(size=last.size * piece.size)
        elif (
            last is not None
            and last.stride is not None
            and piece.stride is not None
            and (last.source, last.axis, last.stride)
            == (piece.source, piece.axis, piece.stride * piece.size)
        ):
            merged[-1] = piece._replace(size=last.size * piece.size)
        else:
            merged.append(piece)
    return tuple(merged)


def _moved(term: Term, piece: Piece, entries: int) -> Term:
    """The term with the first entry of a piece moved."""
    if piece.source is None or piece.stride is None or not entries:
        return term
    source, axis = piece.source, piece.axis
    first = term.start(source, axis) + entries * piece.stride
    others = tuple(s for s in term.starts if s[:2] != (source, axis))
    return term._replace(starts=(*others, (source, axis, first)))


def _multiply_stride(stride: int | None, step: int) -> int | None:
    return None if stride is None else stride * step
