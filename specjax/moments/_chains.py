"""The graphs that all pairings of rows and of columns of an orthogonal matrix leave in a word.

Rows are paired one by one: two factors become a chain, a symmetric node between their columns. Then
columns are paired: two chains become a longer one, or the ends of one chain close a loop. Many
graphs are equal on the way, and each is carried once, so 12 factors are not 10395² pairs.
"""

import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from specjax.moments._expectation import duration
from specjax.moments._graph import (
    Constant,
    Graph,
    Node,
    Orthogonal,
    assemble,
    merge,
    unpack,
)
from specjax.moments._polynomial import Monomial, multiply_monomials
from specjax.moments._weingarten import Lengths

Factors = Counter[tuple[Monomial, Lengths]]
"""How often a graph occurs, by the sizes that multiply it and the loops of the two pairings."""
_Pairs = list[tuple[int, int]]


class _Step(NamedTuple):
    """A graph after one more pair, what multiplies it, and half the length of a closed loop."""

    graph: Graph
    monomial: Monomial
    closed: Lengths
    number: int


def joined(graph: Graph, matrix: Orthogonal, k: int, words: int) -> dict[Graph, Factors]:
    """Pair the rows and the columns of the 2k factors of `matrix` in all ways.

    Raises:
        ValueError: more than `words` different graphs at some stage.
    """
    chains = {_chain(matrix, length).name: length for length in range(1, k + 1)}
    level: dict[Graph, Factors] = {graph: Counter({((), ()): 1})}
    started, expanded = time.perf_counter(), 0
    for pairs in range(2 * k):
        below: dict[Graph, Factors] = {}
        for each, factors in level.items():
            expanded += 1
            for step in _paired(each, matrix, {matrix.name: 0} if pairs < k else chains):
                total = below.setdefault(step.graph, Counter())
                for (monomial, loops), count in factors.items():
                    lengths = tuple(sorted((*loops, *step.closed), reverse=True))
                    product = multiply_monomials(monomial, step.monomial)
                    total[product, lengths] += count * step.number
            if len(below) > words:
                seconds = (time.perf_counter() - started) / expanded
                raise ValueError(_too_many(matrix.name, k, pairs + 1, words, seconds))
        level = below
    return level


def _chain(matrix: Orthogonal, length: int) -> Constant:
    """The node of `length` pairs of rows. Its name is no identifier, so no other symbol has it."""
    return Constant(f"{matrix.name}/{length}", matrix.shape, symmetric=True)


def _paired(graph: Graph, matrix: Orthogonal, lengths: dict[str, int]) -> list[_Step]:
    """Pair an end of the first node that has a length with every other end.

    A factor has length 0 and one end, its row; a chain has two ends.
    """
    first = next(c for c, part in enumerate(graph) if _places(part.nodes, lengths))
    total: Counter[tuple[Graph, Monomial, Lengths]] = Counter()
    for c, component in enumerate(graph[first:], first):
        together = (graph[first],) if c == first else (graph[first], component)
        others = [part for r, part in enumerate(graph) if r not in (first, c)]
        vertices, nodes = unpack(together)
        pivot, *places = _places(nodes, lengths)
        start = 0 if c == first else len(graph[first].nodes)
        ways = [
            (place, way)
            for place in places
            if place >= start
            for way in _ways(nodes[pivot], nodes[place], matrix, lengths)
        ]
        length = lengths[nodes[pivot][0].name]
        if c == first and length:
            ends = nodes[pivot][1]
            ways.append((pivot, ([(ends[0], ends[1])], [], (length,))))
        for place, (same, added, closed) in ways:
            merged = merge(vertices, same)
            if merged is None:
                continue
            kept, moved = merged
            rest = [node for n, node in enumerate(nodes) if n not in (pivot, place)]
            left = assemble(
                kept, [(found, tuple(moved[leg] for leg in legs)) for found, legs in rest + added]
            )
            whole = tuple(sorted((*left.graph, *others)))
            total[whole, left.monomial, closed] += left.number
    return [_Step(*step, number) for step, number in total.items()]


def _ways(
    one: Node, other: Node, matrix: Orthogonal, lengths: dict[str, int]
) -> Iterator[tuple[_Pairs, list[Node], Lengths]]:
    """The ends that become one and the new chain, where an end of `one` meets each of `other`."""
    (a, b), (c, d) = one[1], other[1]
    length = lengths[one[0].name] + lengths[other[0].name]
    if not length:
        yield [(a, c)], [(_chain(matrix, 1), (b, d))], ()
        return
    longer = _chain(matrix, length)
    yield [(b, c)], [(longer, (a, d))], ()
    yield [(b, d)], [(longer, (a, c))], ()


def _places(nodes: Sequence[Node], lengths: dict[str, int]) -> list[int]:
    return [place for place, (symbol, _) in enumerate(nodes) if symbol.name in lengths]


def _too_many(name: str, k: int, pairs: int, words: int, seconds: float) -> str:
    """The error for too many graphs, with an estimate of the time, as if all were different."""
    rows, columns = max(k - pairs, 0), min(2 * k - pairs, k)
    left = words * math.prod(range(2 * rows - 1, 0, -2)) * math.prod(range(2 * columns - 1, 0, -2))
    return (
        f"The word is too long: of its {2 * k} factors of the orthogonal matrix {name}, after"
        f" {pairs} of {2 * k} pairings more than words={words} different words are left, which"
        f" would take up to {duration(seconds * left)}; shorten it, name fewer different constants,"
        " or raise words."
    )
