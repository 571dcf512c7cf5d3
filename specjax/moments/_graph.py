"""Contractions of symbols as graphs, in a canonical form: equal contractions are equal objects.

A vertex is an index with its size, a node is a symbol with one vertex for each of its axes. So tr(U
Uᵀ U Uᵀ) is a ring of four nodes, an entry of a product is a path, and an index that occurs four
times, as in Σ U_ia⁴, is a vertex that four nodes share. A summed index has no mark; a vertex that
is an axis of the result has the positions of that axis as `slots`, and an index held at a value has
a `pin`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from specjax.moments._polynomial import Monomial, Polynomial, multiply_monomials

Size = str | int
"""An extent: the name of a size, or a number."""


@dataclass(frozen=True)
class Constant:
    """A matrix or array that is not random; `symmetric` if it is equal to its transpose."""

    name: str
    shape: tuple[Size, ...]
    symmetric: bool = False

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Gaussian:
    """An array with jointly Gaussian entries of mean zero, E[X_ab X_cd] = variance · R_ac · C_bd
    for the two axes of a matrix.

    `covariance` has the symmetric constant of each axis, R and C here, or None for the identity.
    """

    name: str
    shape: tuple[Size, ...]
    variance: Polynomial
    covariance: tuple[Constant | None, ...]
    symmetric = False

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True)
class Orthogonal:
    """A random square matrix, uniform (Haar) on the orthogonal group."""

    name: str
    shape: tuple[Size, Size]
    symmetric = False

    def __hash__(self) -> int:
        return hash(self.name)


Symbol = Constant | Gaussian | Orthogonal
Node = tuple[Symbol, tuple[int, ...]]


class Vertex(NamedTuple):
    """An index: its size, its axes in the result, and the value at which it is held (-1: none)."""

    size: Size
    slots: tuple[int, ...] = ()
    pin: int = -1

    @property
    def bound(self) -> bool:
        """Whether the index is summed."""
        return not self.slots and self.pin < 0


@dataclass(frozen=True, eq=False)
class Component:
    """A connected graph in canonical form, compared by that form."""

    vertices: tuple[Vertex, ...]
    nodes: tuple[Node, ...]
    key: tuple = field(init=False)
    _hash: int = field(init=False)

    def __post_init__(self) -> None:
        key = (
            tuple(_vertex_key(v) for v in self.vertices),
            tuple((s.name, legs) for s, legs in self.nodes),
        )
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "_hash", hash(key))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Component) and self.key == other.key and self.nodes == other.nodes

    def __lt__(self, other: "Component") -> bool:
        return self.key < other.key

    def __hash__(self) -> int:
        return self._hash


Graph = tuple[Component, ...]
"""A product of connected graphs, sorted."""


class Assembled(NamedTuple):
    """A canonical graph times a number and a monomial, from the indices without a node."""

    graph: Graph
    number: int
    monomial: Monomial


def unpack(graph: Iterable[Component]) -> tuple[list[Vertex], list[Node]]:
    """The vertices of all components one after the other, and the nodes on them."""
    vertices: list[Vertex] = []
    nodes: list[Node] = []
    for component in graph:
        start = len(vertices)
        vertices += component.vertices
        nodes += [(symbol, tuple(start + leg for leg in legs)) for symbol, legs in component.nodes]
    return vertices, nodes


def merge(
    vertices: Sequence[Vertex], pairs: Iterable[tuple[int, int]]
) -> tuple[list[Vertex], list[int]] | None:
    """Unite each pair of vertices; return the new vertices and each old one's place among them.

    None if two united vertices are held at different values.
    """
    root = list(range(len(vertices)))
    for a, b in pairs:
        first, second = _representative(root, a), _representative(root, b)
        root[max(first, second)] = min(first, second)
    groups: dict[int, list[Vertex]] = {}
    for v, vertex in enumerate(vertices):
        groups.setdefault(_representative(root, v), []).append(vertex)
    merged = []
    for group in groups.values():
        pins = {vertex.pin for vertex in group if vertex.pin >= 0}
        if len(pins) > 1:
            return None
        slots = tuple(sorted(slot for vertex in group for slot in vertex.slots))
        merged.append(Vertex(group[0].size, slots, pins.pop() if pins else -1))
    places = {r: place for place, r in enumerate(groups)}
    return merged, [places[_representative(root, v)] for v in range(len(vertices))]


def _representative(root: Sequence[int], v: int) -> int:
    """The representative of the group of v in a forest of parents."""
    while root[v] != v:
        v = root[v]
    return v


def assemble(vertices: Sequence[Vertex], nodes: Sequence[Node]) -> Assembled:
    """The canonical form: sorted connected components; a summed index without node is a factor."""
    number = 1
    monomial: Monomial = ()
    components = []
    for some_vertices, some_nodes in _connected(vertices, nodes):
        if some_nodes or some_vertices[0].slots:
            components.append(_canonical(tuple(some_vertices), tuple(some_nodes)))
        elif some_vertices[0].pin < 0:
            size = some_vertices[0].size
            if isinstance(size, int):
                number *= size
            else:
                monomial = multiply_monomials(monomial, ((size, 1),))
    return Assembled(tuple(sorted(components)), number, monomial)


def _connected(
    vertices: Sequence[Vertex], nodes: Sequence[Node]
) -> Iterator[tuple[list[Vertex], list[Node]]]:
    """The connected components, each with its vertices numbered from zero."""
    at: list[list[int]] = [[] for _ in vertices]
    for n, (_, legs) in enumerate(nodes):
        for leg in set(legs):
            at[leg].append(n)
    seen = [False] * len(vertices)
    for start in range(len(vertices)):
        if seen[start]:
            continue
        seen[start] = True
        found, taken, place = [start], [], {start: 0}
        used = set()
        for v in found:
            for n in at[v]:
                if n in used:
                    continue
                used.add(n)
                taken.append(n)
                for leg in nodes[n][1]:
                    if not seen[leg]:
                        seen[leg] = True
                        place[leg] = len(found)
                        found.append(leg)
        yield (
            [vertices[v] for v in found],
            [(nodes[n][0], tuple(place[v] for v in nodes[n][1])) for n in taken],
        )
    for symbol, legs in nodes:
        if not legs:
            yield [], [(symbol, legs)]


@lru_cache(maxsize=1 << 14)
def _canonical(vertices: tuple[Vertex, ...], nodes: tuple[Node, ...]) -> Component:
    """Find the least labelling of a connected graph by refining colours and branching on ties.

    McKay's method (Practical graph isomorphism, 1981) without its automorphism group: of vertices
    whose exchange leaves the graph the same, only one is tried.
    """
    keys = [_vertex_key(vertex) for vertex in vertices]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    leaves = _leaves(
        [ranks[key] for key in keys], [(s.name, s.symmetric, legs) for s, legs in nodes]
    )
    best = min(leaves, key=lambda labels: _code(labels, nodes))
    ordered = [
        vertex for _, vertex in sorted(zip(best, vertices, strict=True), key=lambda pair: pair[0])
    ]
    return Component(tuple(ordered), tuple(sorted(_relabelled(best, nodes), key=_node_key)))


_Bare = tuple[str, bool, tuple[int, ...]]


def _leaves(colors: list[int], nodes: list[_Bare]) -> Iterator[list[int]]:
    """Labellings whose least one is the same for every numbering of the same graph."""
    colors = _refined(colors, nodes)
    sizes = Counter(colors)
    repeated = [color for color, count in sizes.items() if count > 1]
    if not repeated:
        yield colors
        return
    cell = min(repeated, key=lambda color: (sizes[color], color))
    tried: list[int] = []
    for v in (v for v, color in enumerate(colors) if color == cell):
        if any(_exchangeable(v, other, nodes) for other in tried):
            continue
        tried.append(v)
        # Doubled colours leave room to place v below its class.
        yield from _leaves([2 * color - (u == v) for u, color in enumerate(colors)], nodes)


def _refined(colors: list[int], nodes: list[_Bare]) -> list[int]:
    """Split colours by the neighbours of each vertex until nothing splits any more."""
    count = -1
    while True:
        around: list[list[tuple]] = [[] for _ in colors]
        for name, symmetric, legs in nodes:
            seen = tuple(colors[leg] for leg in legs)
            if symmetric:
                seen = tuple(sorted(seen))
            for place, leg in enumerate(legs):
                around[leg].append((name, 0 if symmetric else place, seen))
        signatures = [
            (color, tuple(sorted(found))) for color, found in zip(colors, around, strict=True)
        ]
        ranks = {signature: rank for rank, signature in enumerate(sorted(set(signatures)))}
        colors = [ranks[signature] for signature in signatures]
        if len(ranks) == count:
            return colors
        count = len(ranks)


def _exchangeable(a: int, b: int, nodes: list[_Bare]) -> bool:
    """Whether exchanging two vertices leaves the nodes unchanged."""
    exchange = {a: b, b: a}
    touched = [node for node in nodes if a in node[2] or b in node[2]]
    exchanged = [
        (name, symmetric, tuple(exchange.get(leg, leg) for leg in legs))
        for name, symmetric, legs in touched
    ]
    return Counter(_ordered(node) for node in touched) == Counter(
        _ordered(node) for node in exchanged
    )


def _ordered(node: _Bare) -> _Bare:
    name, symmetric, legs = node
    return name, symmetric, tuple(sorted(legs)) if symmetric else legs


def _relabelled(labels: Sequence[int], nodes: Iterable[Node]) -> list[Node]:
    moved = [(symbol, tuple(labels[leg] for leg in legs)) for symbol, legs in nodes]
    return [(symbol, tuple(sorted(legs)) if symbol.symmetric else legs) for symbol, legs in moved]


def _code(labels: Sequence[int], nodes: Iterable[Node]) -> list[tuple[str, tuple[int, ...]]]:
    return sorted(_node_key(node) for node in _relabelled(labels, nodes))


def _node_key(node: Node) -> tuple[str, tuple[int, ...]]:
    return node[0].name, node[1]


def _vertex_key(vertex: Vertex) -> tuple[str, tuple[int, ...], int]:
    return str(vertex.size), vertex.slots, vertex.pin


def place_of_axis(axis: int, shape: Sequence[Size]) -> int:
    """The axis counted from the first; raises ValueError for an axis that `shape` does not have."""
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"An expression of shape {tuple(shape)} has no axis {axis}.")
    return axis % len(shape)
