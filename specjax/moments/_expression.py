"""Sums of polynomials times contractions: words, traced functions and expectations.

Every operation on arrays (products, transposes, traces, diagonals, sums, broadcasts, entries) is
one generalized `einsum`, `contract`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product as combinations
from numbers import Integral, Real
from types import MappingProxyType
from typing import Any

from jaxtyping import Array

from specjax.moments._evaluation import evaluate, exact
from specjax.moments._graph import (
    Graph,
    Size,
    Symbol,
    Vertex,
    assemble,
    merge,
    place_of_axis,
    unpack,
)
from specjax.moments._polynomial import (
    Exact,
    Monomial,
    Polynomial,
    PolynomialLike,
    by_degree,
    polynomial,
    summed,
)
from specjax.moments._printing import expression_text
from specjax.moments._symbols import add_symbol


@dataclass(frozen=True, eq=False)
class Expression:
    """An array of symbolic shape, polynomial in the entries of Gaussian and constant symbols;
    immutable.

    As in NumPy, `@` is the product of matrices and vectors, `.T` the transpose, `*` and `**` are
    elementwise, `x[i, j]` is an entry, `x[i]` a row and `x[:, j]` a column at literal places.
    Numbers and polynomials in sizes and scales multiply any expression and are added to scalars
    only. Two expressions are equal if they are the same sum of the same contractions, however they
    were written.

    Attributes:
        shape: The sizes of the axes, names or numbers.
        terms: The coefficient of each contraction.

    """

    shape: tuple[Size, ...]
    terms: Mapping[Graph, Polynomial]

    # A named size cannot be iterated over, and NumPy's numbers defer to these operators.
    __iter__ = None
    __array_ufunc__ = None

    def __post_init__(self) -> None:
        kept = {graph: coefficient for graph, coefficient in self.terms.items() if coefficient}
        object.__setattr__(self, "terms", MappingProxyType(kept))

    @cached_property
    def symbols(self) -> Mapping[str, Symbol]:
        """All symbols by name, with covariances; raises ValueError for two of one name."""
        found: dict[str, Symbol] = {}
        for graph in self.terms:
            for component in graph:
                for symbol, _ in component.nodes:
                    add_symbol(found, symbol)
        return MappingProxyType(dict(sorted(found.items())))

    @property
    def names(self) -> frozenset[str]:
        """The sizes and scales in the coefficients."""
        return frozenset().union(*(coefficient.names for coefficient in self.terms.values()))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def T(self) -> "Expression":
        """The axes in reverse order."""
        axes = tuple(range(self.ndim))
        return contract((self,), (axes,), axes[::-1])

    def sum(self, axis: int | Sequence[int] | None = None) -> "Expression":
        """The sum over all axes, or over the given ones."""
        axes = range(self.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        summed_axes = {place_of_axis(a, self.shape) for a in axes}
        every = tuple(range(self.ndim))
        return contract((self,), (every,), tuple(a for a in every if a not in summed_axes))

    def __getitem__(self, places: int | slice | tuple[int | slice, ...]) -> "Expression":
        places = places if isinstance(places, tuple) else (places,)
        pins = {axis: place for axis, place in enumerate(places) if not isinstance(place, slice)}
        whole = all(place == slice(None) for place in places if isinstance(place, slice))
        if (
            len(places) > self.ndim
            or not whole
            or not all(isinstance(p, Integral) and p >= 0 for p in pins.values())
        ):
            raise ValueError(
                f"An entry of shape {self.shape} has up to {self.ndim} places, each counted from 0"
                f" or ':', got {places}."
            )
        for axis, place in pins.items():
            if isinstance(size := self.shape[axis], int) and place >= size:
                raise ValueError(
                    f"An axis of size {size} has the places 0 to {size - 1}, got {place}."
                )
        every = tuple(range(self.ndim))
        kept = tuple(axis for axis in every if axis not in pins)
        return contract(
            (self,), (every,), kept, pins={axis: int(place) for axis, place in pins.items()}
        )

    def __matmul__(self, other: "Expression") -> "Expression":
        if not isinstance(other, Expression):
            return NotImplemented
        if not 1 <= self.ndim <= 2 or not 1 <= other.ndim <= 2:
            raise ValueError(
                f"A product needs matrices or vectors, got shapes {self.shape} and {other.shape};"
                " numbers take *."
            )
        if self.shape[-1] != other.shape[0]:
            raise ValueError(
                f"The sizes of a product do not chain: shapes {self.shape} and {other.shape};"
                " transpose one of them with .T."
            )
        left, right = ((0, 1)[2 - self.ndim :]), ((1, 2)[: other.ndim])
        return contract(
            (self, other), (left, right), tuple(a for a in (0, 2) if a in (*left, *right))
        )

    def __add__(self, other: "Operand") -> "Expression":
        if not isinstance(other, Expression | Polynomial | Real):
            return NotImplemented
        other = as_expression(other)
        if self.shape != other.shape:
            raise ValueError(
                f"A sum needs equal shapes, got {self.shape} and {other.shape}; a number times a"
                " matrix is 2 * identity(size)."
            )
        _check_symbols((self, other))
        graphs = {**self.terms, **other.terms}
        return Expression(
            self.shape,
            {
                graph: summed(e.terms[graph] for e in (self, other) if graph in e.terms)
                for graph in graphs
            },
        )

    def __mul__(self, other: "Operand") -> "Expression":
        if isinstance(other, Polynomial | Real):
            factor = polynomial(other)
            return Expression(
                self.shape,
                {graph: coefficient * factor for graph, coefficient in self.terms.items()},
            )
        if not isinstance(other, Expression):
            return NotImplemented
        every = tuple(range(max(self.ndim, other.ndim)))
        if self.ndim and other.ndim and self.shape != other.shape:
            raise ValueError(
                f"An elementwise product needs equal shapes, got {self.shape} and {other.shape};"
                " matrices take @."
            )
        return contract((self, other), (every[: self.ndim], every[: other.ndim]), every)

    def __pow__(self, power: int | float | Fraction) -> "Expression":
        if isinstance(power, Integral) and power >= 0:
            result = uniform(self.shape, 1)
            for _ in range(int(power)):
                result = result * self
            return result
        return uniform(self.shape, self.value**power)

    def __truediv__(self, other: "Operand") -> "Expression":
        return self * (
            polynomial(1) / (other.value if isinstance(other, Expression) else polynomial(other))
        )

    def __neg__(self) -> "Expression":
        return self * -1

    def __sub__(self, other: "Operand") -> "Expression":
        if not isinstance(other, Expression | Polynomial | Real):
            return NotImplemented
        return self + -as_expression(other)

    def __rsub__(self, other: "Operand") -> "Expression":
        return as_expression(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expression):
            return NotImplemented
        return self.shape == other.shape and self.terms == other.terms

    def __hash__(self) -> int:
        return hash((self.shape, frozenset(self.terms.items())))

    @property
    def value(self) -> Polynomial:
        """The polynomial that is every entry.

        Raises:
            ValueError: an entry with a symbol in it, or entries that differ.
        """
        total = polynomial(0)
        for graph, coefficient in self.terms.items():
            if any(
                component.nodes or component.vertices[0] != component.vertices[0]._replace(pin=-1)
                for component in graph
            ):
                raise ValueError(f"This is not a polynomial in sizes and scales alone: {self}.")
            if any(len(component.vertices[0].slots) > 1 for component in graph):
                raise ValueError(f"The entries are not all the same polynomial: {self}.")
            total = total + coefficient
        return total

    def __call__(self, **values: Any) -> Array:
        """The number or the array at sizes, scales and constants given by name; see `evaluate`."""
        return evaluate(self.shape, self.terms, values)

    def exact(self, **values: Any) -> Any:
        """The exact value at integer or rational sizes and scales; see `evaluation.exact`."""
        return exact(self.shape, self.terms, values)

    def parts(self, along: str | Collection[str] | None = None) -> tuple["Expression", ...]:
        """The terms as expressions, sorted from the highest degree.

        Args:
            along: None gives one monomial per term. With names of sizes or scales, a term has one
                contraction and one power of each of these: along "k" the polynomial d² k + 3 d k is
                one term, and along () each contraction has one term.

        """
        names = (along,) if isinstance(along, str) else along
        terms: dict[tuple[Graph, Monomial], dict[Monomial, Exact]] = {}
        for graph, coefficient in self.terms.items():
            for monomial, number in coefficient.terms.items():
                kept = (
                    monomial
                    if names is None
                    else tuple((name, p) for name, p in monomial if name in names)
                )
                terms.setdefault((graph, kept), {})[monomial] = number
        ordered = sorted(
            terms.items(), key=lambda term: (*min(map(by_degree, term[1])), term[0][0])
        )
        return tuple(
            Expression(self.shape, {graph: Polynomial(term)}) for (graph, _), term in ordered
        )

    def dropped(self, along: str | Collection[str] | None = None) -> dict[str, "Expression"]:
        """The expression without each of its `parts`, by name: the wrong formulas nearest to it."""
        return {f"without {part}": self - part for part in self.parts(along)}

    def latex(self) -> str:
        """The expression in LaTeX, without dollars."""
        return expression_text(self.shape, self.terms, latex=True)

    def __str__(self) -> str:
        return expression_text(self.shape, self.terms)

    __repr__ = __str__


Operand = Expression | Polynomial | int | float | Fraction


def as_expression(value: Operand) -> Expression:
    """A number or a polynomial as a scalar expression."""
    return value if isinstance(value, Expression) else Expression((), {(): polynomial(value)})


def contract(
    operands: Sequence[Expression],
    axes: Sequence[Sequence[int]],
    result: Sequence[int],
    *,
    sizes: Mapping[int, Size] | None = None,
    pins: Mapping[int, int] | None = None,
) -> Expression:
    """Contract labelled axes as `numpy.einsum` does, and also make diagonals, new axes and entries.

    Args:
        operands: The factors; may be empty.
        axes: The label of each axis of each operand. Axes of one label are one index, summed unless
            it is in `result`.
        result: The labels of the axes of the result. A repeated label makes a diagonal array; a
            label that no operand has makes an axis along which nothing changes.
        sizes: The sizes of labels that no operand has.
        pins: The place at which a label is held. It is then not an axis, or an axis with zeros at
            all other places.

    Raises:
        ValueError: axes of one label with two sizes, or two different symbols of one name.
    """
    extent: dict[int, Size] = {}
    for operand, labels in zip(operands, axes, strict=True):
        for label, size in zip(labels, operand.shape, strict=True):
            if extent.setdefault(label, size) != size:
                raise ValueError(
                    f"One index has the sizes {extent[label]} and {size}; they must be equal."
                )
    _check_symbols(operands)
    extent.update(
        (label, size)
        for label, size in (sizes or {}).items()
        if label in result and label not in extent
    )
    shape = tuple(extent[label] for label in result)
    terms: dict[Graph, list[Polynomial]] = {}
    for factors in combinations(*(operand.terms.items() for operand in operands)):
        found = _contracted([graph for graph, _ in factors], axes, result, extent, pins or {})
        if found is None:
            continue
        coefficient = Polynomial({found.monomial: found.number})
        for _, factor in factors:
            coefficient = coefficient * factor
        terms.setdefault(found.graph, []).append(coefficient)
    return Expression(shape, {graph: summed(coefficients) for graph, coefficients in terms.items()})


def uniform(shape: Sequence[Size], value: PolynomialLike) -> Expression:
    """The array of this shape with the same number or polynomial in every entry."""
    axes = tuple(range(len(shape)))
    return contract((), (), axes, sizes=dict(zip(axes, shape, strict=True))) * polynomial(value)


def _contracted(
    graphs: Sequence[Graph],
    axes: Any,
    result: Any,
    extent: Mapping[int, Size],
    pins: Mapping[int, int],
) -> Any:
    """One term of a contraction from `assemble`; None where an index is held at two values."""
    places = {label: place for place, label in enumerate(extent)}
    slots = {
        label: tuple(slot for slot, other in enumerate(result) if other == label)
        for label in extent
    }
    vertices = [Vertex(size, slots[label], pins.get(label, -1)) for label, size in extent.items()]
    nodes: list = []
    same: list[tuple[int, int]] = []
    for graph, labels in zip(graphs, axes, strict=True):
        some_vertices, some_nodes = unpack(graph)
        start = len(vertices)
        for v, vertex in enumerate(some_vertices):
            same += [(places[labels[slot]], start + v) for slot in vertex.slots]
            vertices.append(vertex._replace(slots=()))
        nodes += [(symbol, tuple(start + leg for leg in legs)) for symbol, legs in some_nodes]
    merged = merge(vertices, same)
    if merged is None:
        return None
    kept, place = merged
    return assemble(kept, [(symbol, tuple(place[leg] for leg in legs)) for symbol, legs in nodes])


def _check_symbols(expressions: Sequence[Expression]) -> None:
    found: dict[str, Symbol] = {}
    for expression in expressions:
        for symbol in expression.symbols.values():
            add_symbol(found, symbol)
