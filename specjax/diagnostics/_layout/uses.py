"""The uses of the parameters of a program: one record for each use, and the fate of its outputs."""

from collections.abc import Hashable, Set
from typing import Literal, NamedTuple

from specjax.diagnostics._layout.abstract_value import Value
from specjax.diagnostics._layout.axis_pieces import Axis, Entries, Left, Source, Term, entries

UseKind = Literal[
    "linear", "convolution", "lookup", "gain", "bias", "elementwise", "joined", "statistic", "lost"
]

ANOTHER_PARAMETER = "another parameter"
"""The detail of a use in which a parameter meets another parameter instead of activations."""


Axes = Set[int]


class Use(NamedTuple):
    """One use of one parameter: its pieces that are inputs, outputs, and batch axes, and the axes
    that had left before.
    """

    leaf: int
    kind: UseKind
    term: Term
    inputs: Axis = ()
    outputs: Axis = ()
    batch: Axis = ()
    left: frozenset[Left] = frozenset()
    detail: str = ""

    def range_of(self, axis: int) -> Entries | None:
        """The entries of an axis of the parameter that are used."""
        return entries(self.term, ("leaf", self.leaf), axis)


class Uses:
    """The uses of all parameters, by their place in the program, with the facts found later.

    `cuts` are the entries that the outputs of a use are cut into, by (use, axis), and `rejoined`
    those (use, axis, entries) that were put together again; `counted` are output axes that count
    matrices, being a batch axis of a later product with a parameter; `weighted` are output axes
    along which weights computed from data multiply the outputs, one number for all entries of the
    other axes, and `in_pairs` are uses whose outputs are multiplied in pairs, head by head; `heads`
    are the numbers of attention heads in a use's outputs; `origins` are the
    output axes that an input axis of a use comes from; `consumed` has a bit for each use whose
    outputs reach another use.
    """

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.found: dict[int, Use] = {}
        self.cuts: dict[tuple[int, int], set[Entries | None]] = {}
        self.rejoined: set[tuple[int, int, Entries | None]] = set()
        self.counted: set[tuple[int, int]] = set()
        self.weighted: set[tuple[int, int]] = set()
        self.in_pairs: set[int] = set()
        self.heads: dict[int, int] = {}
        self.origins: dict[tuple[int, int], set[tuple[int, int]]] = {}
        self.consumed = 0

    def record(self, place: Hashable, use: Use) -> int:
        """The number of the use at this place of the program. It stays the same when a loop's body
        is read again.
        """
        number = self.numbers.setdefault((place, use.leaf, use.kind, use.detail), len(self.numbers))
        self.found[number] = use
        return number

    def of(self, leaf: int) -> list[tuple[int, Use]]:
        """The uses of a parameter, in order."""
        return [(number, use) for number, use in sorted(self.found.items()) if use.leaf == leaf]

    def multiply(self, one: Value, other: Value, one_axes: Axes, other_axes: Axes) -> None:
        """Records an elementwise product of activations, each of which varies along its axes.

        Weights that vary along fewer axes than outputs may be those of experts. They come from a
        use of their own, unlike the norm of the outputs. Where each varies along an axis that the
        other does not, their common axes count heads.
        """
        pairs = (one, other, one_axes, other_axes), (other, one, other_axes, one_axes)
        for outputs, weights, all_axes, along in pairs:
            if along < all_axes and weights.behind & ~outputs.behind:
                self.weighted |= _leading(outputs, along)
            if along - all_axes and all_axes - along:
                self.in_pairs |= {number for number, _ in _leading(outputs, along & all_axes)}

    def cut(self, term: Term, axis: Axis) -> None:
        """Records that the outputs of uses were cut to this term along this axis."""
        for source, place in {
            (p.source, p.axis) for p in axis if p.source is not None and p.source[0] == "output"
        }:
            self.cuts.setdefault((source[1], place), set()).add(entries(term, source, place))


def _leading(outputs: Value, along: Axes) -> set[tuple[int, int]]:
    """The output axes, as (use, axis), that lie along these axes and before all others."""
    found = set()
    for term in outputs.tags():
        for source in term.sources():
            places = {
                place: {p.axis for p in axis if p.source == source and p.size > 1}
                for place, axis in enumerate(term.axes)
            }
            held = {place for place, axes in places.items() if axes}
            if held & along and held - along and max(held & along) < min(held - along):
                found |= {(source[1], axis) for place in held & along for axis in places[place]}
    return found


def leaf(number: int) -> Source:
    """The parameter as a source."""
    return "leaf", number


def output(number: int) -> Source:
    """The outputs of a use as a source."""
    return "output", number
