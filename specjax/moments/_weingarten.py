"""Weingarten functions of the orthogonal group: averages of products of entries of a Haar matrix.

E[Q_{i1 j1} ⋯ Q_{i2k j2k}] is the sum over all pairs of pairings p, q of the 2k factors, where p
pairs equal rows and q equal columns, of Wg(p, q). The matrix Wg is the inverse of n^loops(p, q),
where loops(p, q) counts the loops of p and q together; Wg depends on their lengths alone and is
rational in n (Collins and Śniady 2006; Collins and Matsumoto 2017).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from specjax.moments._polynomial import Exact

Pairing = tuple[tuple[int, int], ...]
Lengths = tuple[int, ...]
"""Half the lengths of the loops of two pairings, from the longest: a partition of k."""


class Weingarten(NamedTuple):
    """Wg of 2k factors at every size n >= k.

    Attributes:
        numerators: For each of the `Lengths` the coefficients of a polynomial in n, lowest power
            first.
        shifts: The denominator is the product of (n + a) to the power m over these a: m.

    """

    numerators: Mapping[Lengths, tuple[Exact, ...]]
    shifts: Mapping[int, int]

    def at(self, lengths: Lengths, n: int) -> Fraction:
        """Evaluate at one size."""
        below = Fraction(1)
        for shift, power in self.shifts.items():
            below *= Fraction(n + shift) ** power
        return (
            sum((c * Fraction(n) ** i for i, c in enumerate(self.numerators[lengths])), Fraction(0))
            / below
        )


@cache
def pairings(count: int) -> tuple[Pairing, ...]:
    """All ways to pair 0, …, count - 1."""
    return tuple(_pairings(tuple(range(count))))


def loop_lengths(p: Pairing, q: Pairing) -> Lengths:
    """Half the lengths of the loops that two pairings make."""
    first, second = (
        {a: b for pair in pairing for a, b in (pair, pair[::-1])} for pairing in (p, q)
    )
    lengths = []
    left = set(first)
    while left:
        here, length = left.pop(), 0
        start = here
        while True:
            other = first[here]
            here = second[other]
            left -= {other, here}
            length += 1
            if here == start:
                break
        lengths.append(length)
    return tuple(sorted(lengths, reverse=True))


@cache
def weingarten(k: int) -> Weingarten:
    """Solve Σ_q n^loops(p, q) Wg(q, r) = (1 if p = r else 0) at enough n to fix the rational Wg.

    Its poles are among those of 1/∏ (n + 2j - i) over the boxes (i, j) of a diagram with k boxes,
    for all diagrams (Collins and Matsumoto 2017, Section 4.2); so a multiple of all these products
    is a denominator.
    """
    shifts: Counter[int] = Counter()
    for diagram in _partitions(k):
        shifts |= Counter(2 * j - i for i, row in enumerate(diagram) for j in range(row))
    types = tuple(_partitions(k))
    counts = _equations(k, types)
    sizes = range(k, k + shifts.total() - k + 1)
    solved = [_solution(counts, n) for n in sizes]
    below = []
    for n in sizes:
        value = 1
        for shift, power in shifts.items():
            value *= (n + shift) ** power
        below.append(value)
    numerators = {}
    for place, lengths in enumerate(types):
        values = [solution[place] * scale for solution, scale in zip(solved, below, strict=True)]
        numerators[lengths] = _interpolated(sizes, values)
    return Weingarten(numerators, dict(shifts))


def _pairings(items: Sequence[int]) -> Iterator[Pairing]:
    if not items:
        yield ()
        return
    first, *rest = items
    for place, partner in enumerate(rest):
        for others in _pairings(rest[:place] + rest[place + 1 :]):
            yield ((first, partner), *others)


def _partitions(total: int, most: int | None = None) -> Iterator[Lengths]:
    if total == 0:
        yield ()
        return
    for part in range(min(total, most or total), 0, -1):
        for rest in _partitions(total - part, part):
            yield (part, *rest)


def _equations(k: int, types: Sequence[Lengths]) -> list[list[Counter[int]]]:
    """Count, for a pairing r of each type, the q of each type of (q, r) by their loop number."""
    every = pairings(2 * k)
    first = every[0]
    with_first = {q: loop_lengths(first, q) for q in every}
    examples = {lengths: q for q, lengths in with_first.items()}
    equations = []
    for lengths in types:
        found = {other: Counter[int]() for other in types}
        for q in every:
            found[loop_lengths(q, examples[lengths])][len(with_first[q])] += 1
        equations.append([found[other] for other in types])
    return equations


def _solution(counts: Sequence[Sequence[Counter[int]]], n: int) -> list[Fraction]:
    """Wg of every type at one n, by elimination; the last type is that of equal pairings."""
    rows = [
        [Fraction(sum(c * n**loops for loops, c in entry.items())) for entry in equation]
        for equation in counts
    ]
    rows = [[*row, Fraction(place == len(rows) - 1)] for place, row in enumerate(rows)]
    for column in range(len(rows)):
        pivot = next(r for r in range(column, len(rows)) if rows[r][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [x / rows[column][column] for x in rows[column]]
        for r, row in enumerate(rows):
            if r != column:
                rows[r] = [x - row[column] * y for x, y in zip(row, rows[column], strict=True)]
    return [row[-1] for row in rows]


def _interpolated(points: Sequence[int], values: Sequence[Fraction]) -> tuple[Exact, ...]:
    """Interpolate by Newton's divided differences; coefficients from the lowest power."""
    differences = list(values)
    for order in range(1, len(points)):
        for i in range(len(points) - 1, order - 1, -1):
            differences[i] = (differences[i] - differences[i - 1]) / (points[i] - points[i - order])
    coefficients = [Fraction(0)] * len(points)
    for point, difference in zip(reversed(points), reversed(differences), strict=True):
        raised = [Fraction(0), *coefficients[:-1]]
        coefficients = [a - point * b for a, b in zip(raised, coefficients, strict=True)]
        coefficients[0] += difference
    return tuple(coefficients)
