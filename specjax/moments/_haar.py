"""Averages, variances and covariances of words with random orthogonal matrices.

A word with 2k factors of a matrix Q is averaged by joining their rows by one pairing and their
columns by another (`_chains`), and weighting what remains by the Weingarten function of the two;
this holds at sizes of at least k. Sizes appear in denominators, so an average is a `Quotient`.
"""

import math
from collections import Counter
from collections.abc import Mapping

from specjax.arguments import checked_but
from specjax.moments._chains import joined
from specjax.moments._expectation import check_expressions, duration, gaussian_names, given_others
from specjax.moments._expression import Expression
from specjax.moments._graph import Graph, Orthogonal, Size
from specjax.moments._polynomial import Monomial, Polynomial, polynomial, summed, symbol
from specjax.moments._quotient import Quotient, Shift, in_lowest_terms, too_small
from specjax.moments._weingarten import Lengths, weingarten

SECONDS = 1e-4
"""Time for each pairing of the factors in the Weingarten function, about."""


@checked_but("word", "a", "b")
def haar_expectation(word: Expression, *, most: int = 12, words: int = 200_000) -> Quotient:
    """E[word] over its orthogonal and Gaussian matrices, exact at sizes of half the factors or
    more.

    Args:
        word: A scalar, a matrix or an array of any rank, with matrices made by `haar`.
        most: The most factors of one orthogonal matrix in a term. Their Weingarten function takes a
            second for 12, and more than ten times as long for each two more.
        words: The largest number of different words at any stage, which bounds memory and time.

    Returns:
        The average, in lowest terms. A matrix whose size is a number has no denominator.

    Raises:
        TypeError: a `word` that is not an expression.
        ValueError: a term of more than `most` factors, more than `words` different words at some
            stage (the message estimates the time), a numeric size below half of the factors, or as
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
        average, shifts, half = _averaged(average, matrix, most, words)
        if isinstance(size := matrix.shape[0], str):
            below += Counter({(size, shift): power for shift, power in shifts.items()})
            least |= Counter({size: half})
    return in_lowest_terms(average, below, least)


@checked_but("word", "a", "b")
def haar_covariance(
    a: Expression, b: Expression, *, most: int = 12, words: int = 200_000
) -> Quotient:
    """E[a b] - E[a] E[b], entry by entry; errors as `haar_expectation`, and for unequal shapes.

    A term of a b has the factors of both: six factors each are the twelve that `most` allows.

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
    mean_a, mean_b, product = (
        haar_expectation(each, most=most, words=words) for each in (a, b, a * b)
    )
    return product - mean_a * mean_b


@checked_but("word", "a", "b")
def haar_variance(word: Expression, *, most: int = 12, words: int = 200_000) -> Quotient:
    """The exact variance of each entry; arguments and errors as `haar_covariance`.

    Examples:
        >>> from specjax import moments
        >>> Q, A = moments.haar("Q", "n"), moments.constant("A", "n", "n")
        >>> moments.haar_variance(moments.trace(A @ Q))
        tr(A Aᵀ) / n
    """
    return haar_covariance(word, word, most=most, words=words)


def _averaged(
    word: Expression, matrix: Orthogonal, most: int, words: int
) -> tuple[Expression, Mapping[int, int], int]:
    """Average over one matrix; return numerator, denominator shifts, half the largest count."""
    name, size = matrix.name, matrix.shape[0]
    halves: dict[Graph, int] = {}
    for graph in word.terms:
        count = sum(found.name == name for component in graph for found, _ in component.nodes)
        if count > most:
            every = math.prod(range(count - 1, 0, -2))
            raise ValueError(
                f"A term has {count} factors of the orthogonal matrix {name}, more than"
                f" most={most}: their Weingarten function takes {duration(SECONDS * every)} or"
                " more; shorten the word, or raise most."
            )
        if count % 2 == 0:
            halves[graph] = count // 2
    half = max(halves.values(), default=0)
    if isinstance(size, int) and size < half:
        raise ValueError(too_small(half, size))
    shifts = weingarten(half).shifts if isinstance(size, str) else {}
    terms: dict[Graph, list[Polynomial]] = {}
    for graph, k in halves.items():
        numerators = _numerators(k, size, shifts)
        for left, factors in joined(graph, matrix, k, words).items():
            by_lengths: dict[Lengths, dict[Monomial, int]] = {}
            for (monomial, lengths), number in factors.items():
                by_lengths.setdefault(lengths, {})[monomial] = number
            part = summed(numerators[loops] * Polynomial(c) for loops, c in by_lengths.items())
            terms.setdefault(left, []).append(part * word.terms[graph])
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
