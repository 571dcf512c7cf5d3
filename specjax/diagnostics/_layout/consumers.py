"""The end of a parameter: the operation in which it becomes an activation, or is lost."""

from collections.abc import Hashable

from specjax.diagnostics._layout.abstract_value import Value
from specjax.diagnostics._layout.axis_pieces import Term
from specjax.diagnostics._layout.dot_rules import finish_product
from specjax.diagnostics._layout.uses import Use, UseKind, Uses


def use_up(value: Value, kind: UseKind, uses: Uses, place: Hashable, detail: str = "") -> Value:
    """Records the use of a parameter in an operation with activations, and returns the activation
    that it becomes.
    """
    for term in value.parameters():
        if term.statistic:
            continue
        if term.bonds:
            finish_product(term, uses, place)
            continue
        for kind_of_source, number in term.sources():
            if kind_of_source == "leaf":
                found: UseKind = "lookup" if value.data else kind
                uses.record(place, use_of(number, found, term, detail))
    return value._replace(terms=tuple(value.tags()), data=True)


def use_of(number: int, kind: UseKind, term: Term, detail: str) -> Use:
    """The use of a parameter with all its pieces, none of which is an input."""
    pieces = tuple(p for axis in term.axes for p in axis if p.source == ("leaf", number))
    left = frozenset(gone for gone in term.left if gone.source == ("leaf", number))
    return Use(number, kind, term, outputs=pieces, left=left, detail=detail)
