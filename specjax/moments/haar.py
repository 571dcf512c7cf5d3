"""Averages of words with random orthogonal matrices, at every size that has as many rows as half the factors.

The average over a matrix Q of 2k factors joins their rows by one pairing and their columns by another, and counts the graph that is left
with the Weingarten function of the two. Sizes stand below fractions then, so an average is a `Quotient`.
"""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.moments.evaluation import check_names, known_sizes
from specjax.moments.expectation import duration, given_constants
from specjax.moments.expression import Expression, as_expression
from specjax.moments.graph import Assembled, Graph, Node, Orthogonal, Size, Vertex, assemble, merge, unpack
from specjax.moments.polynomial import Monomial, Polynomial, polynomial, summed, symbol
from specjax.moments.weingarten import Lengths, Pairing, loop_lengths, pairings, weingarten

Shift = tuple[str, int]
"""A factor (name + number) of a denominator."""
SECONDS = 5e-5
"""About what one pair of pairings takes."""


@dataclass(frozen=True)
class Quotient:
    """An expression over a product of factors such as n, n - 1 and n + 2: the average of a word with orthogonal matrices.

    Attributes:
        numerator: An expression without random symbols, with no factor in common with the denominator.
        below: The factors of the denominator with their powers.
        least: The size from which on the formula holds, for each size of an orthogonal matrix: half as many as there are factors.

    """

    numerator: Expression
    below: tuple[tuple[Shift, int], ...]
    least: tuple[tuple[str, int], ...]

    @property
    def denominator(self) -> Polynomial:
        """The product of the factors."""
        total = polynomial(1)
        for (name, shift), power in self.below:
            total = total * (symbol(name) + shift) ** power
        return total

    def __call__(self, **values: Any) -> Array:
        """The number or the array, in float64, as of an `Expression`; ValueError for sizes at which the formula does not hold."""
        sizes = known_sizes(self.numerator.symbols, values)
        self._check(sizes)
        axes = self.numerator.ndim
        with jax.enable_x64(True):
            above, below = self.numerator(**values), jnp.ones(())
            for (name, shift), power in self.below:
                below = below * (jnp.asarray(sizes[name], jnp.float64) + shift) ** power
            batch = jnp.broadcast_shapes(above.shape[: above.ndim - axes], below.shape)
            below = jnp.broadcast_to(below, batch).reshape(batch + (1,) * axes)
            return jnp.broadcast_to(above, batch + above.shape[above.ndim - axes :]) / below

    def exact(self, **values: Any) -> Any:
        """A scalar without constants at integer sizes: a Fraction, or an object array; ValueError as `Expression.exact` and a call."""
        self._check(values)
        above, below = (part.exact(**values) for part in (self.numerator, as_expression(self.denominator)))
        return above * (1 / np.frompyfunc(Fraction, 1, 1)(below))

    def latex(self) -> str:
        """The quotient in LaTeX, without dollars."""
        above = self.numerator.latex()
        return f"\\frac{{{above}}}{{{' '.join(self._factors(latex=True))}}}" if self.below else above

    def __str__(self) -> str:
        factors = self._factors()
        if not factors:
            return str(self.numerator)
        above = f"({self.numerator})" if len(self.numerator.parts()) > 1 else str(self.numerator)
        return f"{above} / {factors[0]}" if len(factors) == 1 else f"{above} / ({' '.join(factors)})"

    __repr__ = __str__

    def _factors(self, latex: bool = False) -> list[str]:
        written = []
        for (name, shift), power in self.below:
            factor = (symbol(name) + shift).text(latex)
            factor = factor if shift == 0 else f"({factor})"
            written.append(factor if power == 1 else f"{factor}^{power}")
        return written

    def _check(self, sizes: Mapping[str, Any]) -> None:
        check_names({name for name, _ in self.least}, sizes, sizes)
        for name, least in self.least:
            if not isinstance(sizes[name], jax.core.Tracer) and np.any(np.asarray(sizes[name]) < least):
                raise ValueError(_too_small(least, np.min(np.asarray(sizes[name]))))


def haar_expectation(word: Expression, *, most: int = 8) -> Quotient:
    """E[word] over its orthogonal matrices and its Gaussian ones, exact at every size from half the number of factors on.

    Args:
        word: A scalar, a matrix or an array of any rank, with matrices made by `haar`.
        most: How many factors of one orthogonal matrix a term may have: 8 are 105² pairs of pairings, 10 are 945².

    Returns:
        The average, in lowest terms. A matrix whose size is a number has no denominator.

    Raises:
        TypeError: something else than an expression.
        ValueError: a term of more than `most` factors, a size that is a number below half of them, or as `expectation`.
    """
    if not isinstance(word, Expression):
        raise TypeError(f"An expectation is that of an Expression, got {type(word).__name__}.")
    matrices = {name: found for name, found in word.symbols.items() if isinstance(found, Orthogonal)}
    average = given_constants(word, most=20_000)
    below: Counter[Shift] = Counter()
    least: Counter[str] = Counter()
    for name, matrix in matrices.items():
        average, shifts, half = _averaged(average, name, matrix.shape[0], most)
        if isinstance(size := matrix.shape[0], str):
            below += Counter({(size, shift): power for shift, power in shifts.items()})
            least |= Counter({size: half})
    average, left = _in_lowest_terms(average, below)
    return Quotient(average, tuple(sorted(left.items())), tuple(sorted(least.items())))


def _averaged(word: Expression, name: str, size: Size, most: int) -> tuple[Expression, Mapping[int, int], int]:
    """The average over one matrix times a denominator, the shifts of that, and half the factors of the longest term."""
    halves: dict[Graph, int] = {}
    for graph in word.terms:
        count = sum(found.name == name for component in graph for found, _ in component.nodes)
        if count > most:
            pairs = math.prod(range(count - 1, 0, -2)) ** 2
            raise ValueError(
                f"A term has {count} factors of the orthogonal matrix {name}, more than most={most}: its pairs of pairings would take "
                f"about {duration(SECONDS * pairs)}; shorten the word, or raise most."
            )
        if count % 2 == 0:
            halves[graph] = count // 2
    half = max(halves.values(), default=0)
    if isinstance(size, int) and size < half:
        raise ValueError(_too_small(half, size))
    shifts = weingarten(half).shifts if isinstance(size, str) else {}
    terms: dict[Graph, list[Polynomial]] = {}
    for graph, k in halves.items():
        factors = _numerators(k, size, shifts)
        for joined, number, monomial, lengths in _joined(graph, name, k):
            part = factors[lengths] * Polynomial({monomial: number}) * word.terms[graph]
            terms.setdefault(joined, []).append(part)
    return Expression(word.shape, {graph: summed(parts) for graph, parts in terms.items()}), shifts, half


def _numerators(k: int, size: Size, shifts: Mapping[int, int]) -> dict[Lengths, Polynomial]:
    """The Weingarten functions of 2k factors times the product of these shifts, or at a size that is a number."""
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


def _joined(graph: Graph, name: str, k: int) -> list[tuple[Graph, int, Monomial, Lengths]]:
    """What is left of a graph for each pair of pairings of rows and columns, with its factor; equal ones are one."""
    vertices, nodes = unpack(graph)
    ends = [legs for found, legs in nodes if found.name == name]
    rest = [node for node in nodes if node[0].name != name]
    total: Counter[tuple[Graph, Monomial, Lengths]] = Counter()
    for rows in pairings(2 * k):
        for columns in pairings(2 * k):
            left = _left(vertices, rest, ends, rows, columns)
            if left is not None:
                total[left.graph, left.monomial, loop_lengths(rows, columns)] += left.number
    return [(joined, number, monomial, lengths) for (joined, monomial, lengths), number in total.items()]


def _left(
    vertices: list[Vertex], rest: list[Node], ends: list[tuple[int, ...]], rows: Pairing, columns: Pairing
) -> Assembled | None:
    same = [(ends[a][axis], ends[b][axis]) for axis, pairing in enumerate((rows, columns)) for a, b in pairing]
    merged = merge(vertices, same)
    if merged is None:
        return None
    kept, place = merged
    return assemble(kept, [(found, tuple(place[leg] for leg in legs)) for found, legs in rest])


def _in_lowest_terms(word: Expression, below: Counter[Shift]) -> tuple[Expression, Counter[Shift]]:
    """The expression and its denominator without the factors that divide both."""
    left: Counter[Shift] = Counter()
    for (name, shift), power in below.items():
        for spent in range(power):
            divided = {graph: c.divided(name, shift) for graph, c in word.terms.items()}
            if any(quotient is None for quotient in divided.values()):
                left[name, shift] = power - spent
                break
            word = Expression(word.shape, {graph: quotient for graph, quotient in divided.items() if quotient})
    return word, left


def _too_small(least: int, size: Any) -> str:
    return (
        f"The word has up to {2 * least} factors of an orthogonal matrix, and its average is known for matrices of {least} rows or more, "
        f"got {size}."
    )
