"""Averages, variances and covariances of words with random orthogonal matrices.

A word with 2k factors of a matrix Q is averaged by joining their rows by one pairing and their
columns by another, and weighting the remaining graph by the Weingarten function of the two; this
holds at sizes of at least k. Sizes appear in denominators, so an average is a `Quotient`.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from specjax.arguments import checked_but
from specjax.moments._expectation import check_expressions, duration, gaussian_names, given_others
from specjax.moments._expression import Expression
from specjax.moments._graph import (
    Assembled,
    Constant,
    Graph,
    Node,
    Orthogonal,
    Size,
    Vertex,
    assemble,
    merge,
    unpack,
)
from specjax.moments._polynomial import (
    Monomial,
    Polynomial,
    multiply_monomials,
    polynomial,
    summed,
    symbol,
)
from specjax.moments._quotient import Quotient, Shift, in_lowest_terms, too_small
from specjax.moments._weingarten import Lengths, loop_lengths, pairings, weingarten

SECONDS = 1e-5
"""Time for a pair of pairings, about, where all remaining graphs are different."""


@checked_but("word", "a", "b")
def haar_expectation(word: Expression, *, most: int = 10) -> Quotient:
    """E[word] over its orthogonal and Gaussian matrices, exact at sizes of half the factors or
    more.

    Args:
        word: A scalar, a matrix or an array of any rank, with matrices made by `haar`.
        most: The most factors of one orthogonal matrix in a term: 10 are 945² pairs of pairings, 12
            are 10395².

    Returns:
        The average, in lowest terms. A matrix whose size is a number has no denominator.

    Raises:
        TypeError: a `word` that is not an expression.
        ValueError: a term of more than `most` factors, a numeric size below half of them, or as
            `expectation`.

    Examples:
        >>> from specjax import moments
        >>> Q = moments.haar("Q", "n")
        >>> moments.haar_expectation(moments.trace(Q) ** 4)
        3
    """
    check_expressions(word)
    matrices = [found for found in word.symbols.values() if isinstance(found, Orthogonal)]
    average = given_others(word, gaussian_names(word), most=20_000)
    below: Counter[Shift] = Counter()
    least: Counter[str] = Counter()
    for matrix in matrices:
        average, shifts, half = _averaged(average, matrix, most)
        if isinstance(size := matrix.shape[0], str):
            below += Counter({(size, shift): power for shift, power in shifts.items()})
            least |= Counter({size: half})
    return in_lowest_terms(average, below, least)


@checked_but("word", "a", "b")
def haar_covariance(a: Expression, b: Expression, *, most: int = 10) -> Quotient:
    """E[a b] - E[a] E[b], entry by entry; errors as `haar_expectation`, and for unequal shapes.

    A term of a b has the factors of both: five factors each are the ten that `most` allows.

    Examples:
        >>> from specjax import moments
        >>> Q = moments.haar("Q", "n")
        >>> moments.haar_covariance(moments.trace(Q), moments.trace(Q))
        1
    """
    check_expressions(a, b)
    if a.shape != b.shape:
        raise ValueError(
            f"A covariance entry by entry needs equal shapes, got {a.shape} and {b.shape}."
        )
    mean_a, mean_b, product = (haar_expectation(each, most=most) for each in (a, b, a * b))
    return product - mean_a * mean_b


@checked_but("word", "a", "b")
def haar_variance(word: Expression, *, most: int = 10) -> Quotient:
    """The exact variance of each entry; arguments and errors as `haar_covariance`.

    Examples:
        >>> from specjax import moments
        >>> Q, A = moments.haar("Q", "n"), moments.constant("A", "n", "n")
        >>> moments.haar_variance(moments.trace(A @ Q))
        tr(A Aᵀ) / n
    """
    return haar_covariance(word, word, most=most)


def _averaged(
    word: Expression, matrix: Orthogonal, most: int
) -> tuple[Expression, Mapping[int, int], int]:
    """Average over one matrix; return numerator, denominator shifts, half the largest count."""
    name, size = matrix.name, matrix.shape[0]
    halves: dict[Graph, int] = {}
    for graph in word.terms:
        count = sum(found.name == name for component in graph for found, _ in component.nodes)
        if count > most:
            pairs = math.prod(range(count - 1, 0, -2)) ** 2
            raise ValueError(
                f"A term has {count} factors of the orthogonal matrix {name}, more than"
                f" most={most}: its pairs of pairings would take up to {duration(SECONDS * pairs)};"
                " shorten the word, or raise most."
            )
        if count % 2 == 0:
            halves[graph] = count // 2
    half = max(halves.values(), default=0)
    if isinstance(size, int) and size < half:
        raise ValueError(too_small(half, size))
    shifts = weingarten(half).shifts if isinstance(size, str) else {}
    terms: dict[Graph, list[Polynomial]] = {}
    for graph, k in halves.items():
        factors = _numerators(k, size, shifts)
        for joined, number, monomial, lengths in _joined(graph, matrix, k):
            part = factors[lengths] * Polynomial({monomial: number}) * word.terms[graph]
            terms.setdefault(joined, []).append(part)
    return (
        Expression(word.shape, {graph: summed(parts) for graph, parts in terms.items()}),
        shifts,
        half,
    )


def _numerators(k: int, size: Size, shifts: Mapping[int, int]) -> dict[Lengths, Polynomial]:
    """Weingarten functions of 2k factors times the product of these shifts, or at one size."""
    wg = weingarten(k)
    if isinstance(size, int):
        return {lengths: polynomial(wg.at(lengths, size)) for lengths in wg.numerators}
    missing = polynomial(1)
    for shift, power in shifts.items():
        missing = missing * (symbol(size) + shift) ** (power - wg.shifts.get(shift, 0))
    return {
        lengths: missing * summed(c * symbol(size) ** i for i, c in enumerate(coefficients))
        for lengths, coefficients in wg.numerators.items()
    }


def _joined(graph: Graph, matrix: Orthogonal, k: int) -> list[tuple[Graph, int, Monomial, Lengths]]:
    """The graphs and factors left by each pairing of rows and one of columns, merged if equal."""
    columns = pairings(2 * k)
    rows = tuple((2 * i, 2 * i + 1) for i in range(k))
    lengths = [loop_lengths(rows, pairing) for pairing in columns]
    total: Counter[tuple[Graph, Monomial, Lengths]] = Counter()
    for (half, monomial), count in _rows_joined(graph, matrix, k).items():
        vertices, nodes = unpack(half)
        ends = [leg for found, legs in nodes if found.name == matrix.name for leg in legs]
        rest = [node for node in nodes if node[0].name != matrix.name]
        for pairing, loops in zip(columns, lengths, strict=True):
            left = _left(vertices, rest, [(ends[a], ends[b]) for a, b in pairing])
            if left is not None:
                total[left.graph, multiply_monomials(monomial, left.monomial), loops] += (
                    count * left.number
                )
    return [
        (joined, number, monomial, loops) for (joined, monomial, loops), number in total.items()
    ]


def _rows_joined(graph: Graph, matrix: Orthogonal, k: int) -> Counter[tuple[Graph, Monomial]]:
    """The graphs left by each pairing of rows, as nodes between paired columns; few differ."""
    vertices, nodes = unpack(graph)
    factors = [legs for found, legs in nodes if found.name == matrix.name]
    rest = [node for node in nodes if node[0].name != matrix.name]
    pair = Constant(matrix.name, matrix.shape, symmetric=True)
    total: Counter[tuple[Graph, Monomial]] = Counter()
    for pairing in pairings(2 * k):
        joined = [(pair, (factors[a][1], factors[b][1])) for a, b in pairing]
        left = _left(
            vertices, [*rest, *joined], [(factors[a][0], factors[b][0]) for a, b in pairing]
        )
        if left is not None:
            total[left.graph, left.monomial] += left.number
    return total


def _left(
    vertices: list[Vertex], nodes: Sequence[Node], same: Sequence[tuple[int, int]]
) -> Assembled | None:
    """Unite pairs of vertices; None where two are held at different places."""
    merged = merge(vertices, same)
    if merged is None:
        return None
    kept, place = merged
    return assemble(kept, [(found, tuple(place[leg] for leg in legs)) for found, legs in nodes])
