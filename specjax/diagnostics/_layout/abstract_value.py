"""An abstract value of a program: the parts of parameters that it holds, and whether it depends on
data.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from specjax.diagnostics._layout.axis_pieces import Term


class Value(NamedTuple):
    """The terms of a value, whether it depends on data, and bits for uses of parameters that it
    depends on.

    The terms of a parameter refer to parameters. Those of an activation refer to the outputs of
    uses, so that a later cut shows which columns belong together. A parameter that depends on data
    was picked by an index. `behind` has the uses whose outputs the value is made of, `before` those
    whose outputs went through another use first, and `earlier` those of earlier steps of a loop.
    Along the axes `repeated` all its entries are equal.
    """

    shape: tuple[int, ...]
    terms: tuple[Term, ...] = ()
    data: bool = False
    behind: int = 0
    before: int = 0
    earlier: int = 0
    repeated: frozenset[int] = frozenset()

    @property
    def is_parameter(self) -> bool:
        """Whether it holds entries of parameters."""
        return any(not term.statistic for term in self.parameters())

    @property
    def is_picked(self) -> bool:
        """Whether it holds entries of parameters that data chose."""
        return self.data and self.is_parameter

    def parameters(self) -> list[Term]:
        """The terms of parameters."""
        return [
            term for term in self.terms if any(source[0] == "leaf" for source in term.sources())
        ]

    def tags(self) -> list[Term]:
        """The terms of outputs."""
        return [
            term for term in self.terms if any(source[0] == "output" for source in term.sources())
        ]

    def uses(self) -> int:
        """The bits of all uses on which it depends."""
        return self.behind | self.before | self.earlier

    def of(self, shape: Sequence[int], terms: Iterable[Term | None]) -> "Value":
        """A value computed from this one alone."""
        return self._replace(shape=tuple(shape), terms=distinct(terms), repeated=frozenset())


def from_all(
    values: Sequence[Value], shape: Sequence[int], terms: Iterable[Term | None] = ()
) -> Value:
    """A value computed from several."""
    return Value(
        tuple(shape),
        distinct(terms),
        any(value.data for value in values),
        reduce(or_, (value.behind for value in values), 0),
        reduce(or_, (value.before for value in values), 0),
        reduce(or_, (value.earlier for value in values), 0),
    )


def distinct(terms: Iterable[Term | None]) -> tuple[Term, ...]:
    """Each term once, in order."""
    return tuple(dict.fromkeys(term for term in terms if term is not None))
