"""Exact expectations, variances and covariances of words in Gaussian matrices.

Integration by parts (Isserlis 1918, Stein 1981): E[X_ab f(X)] = Σ_cd Cov(X_ab, X_cd) E[∂f/∂X_cd].
On a graph, each step removes one Gaussian node with each other node of its symbol in turn, and
joins the two at each of their axes. Many of the resulting words differ only by a rotation, a
transpose or the names of indices, and are one graph. So all words of one length are carried
together, from the longest down, each once with its coefficient, and no pairing is enumerated: tr((U
Uᵀ)⁹) has 34 million pairings, but fewer than 30 different graphs at any length.
"""

import math
import time
import warnings
from collections import Counter
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

from specjax.arguments import checked_but, shown
from specjax.moments._expression import Expression, contract
from specjax.moments._graph import (
    Component,
    Gaussian,
    Graph,
    Node,
    Orthogonal,
    Vertex,
    assemble,
    merge,
    unpack,
)
from specjax.moments._polynomial import Exact, Monomial, Polynomial, multiply_monomials

Names = str | Collection[str] | None
"""Gaussian symbols to average over: one, several, or all."""
_Coefficient = dict[Monomial, Exact]


_PATIENCE = 0.5  # seconds after which a warning about a long word is issued
_LONG = 5.0  # remaining seconds from which the warning is issued


class LongWordWarning(UserWarning):
    """The average of a word takes long."""


@checked_but("word", "a", "b")
def expectation(word: Expression, *, over: Names = None, most: int = 20_000) -> Expression:
    """E[word], exact at every size: polynomials in sizes and scales times contractions of the
    constants.

    Args:
        word: A scalar, a matrix or an array of any rank; the expectation is taken entry by entry.
        over: The names of the Gaussian symbols to average over, such as the inputs "x" at given
            weights; by default all.
        most: The largest number of different words at any stage, which bounds memory and time.

    Returns:
        An expression of the same shape without these symbols. Words with an odd number of factors
        of one of them have mean zero.

    Raises:
        TypeError: a `word` that is not an expression.
        ValueError: more than `most` different words at some stage (the message estimates the time),
            orthogonal matrices in the word, or a name in `over` of a symbol that is not Gaussian.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "d")
        >>> moments.expectation(moments.trace(W @ W.T))
        d n
    """
    return given_others(word, _averaged_names(over, word), most=most)


def given_others(word: Expression, names: frozenset[str], *, most: int) -> Expression:
    """Average over the Gaussian symbols of these names; ValueError if a word is too long."""
    started = time.perf_counter()
    levels: dict[int, dict[Graph, _Coefficient]] = {}
    for graph, polynomial in word.terms.items():
        counts = _counts(graph, names)
        if all(count % 2 == 0 for count in counts.values()):
            level = levels.setdefault(counts.total(), {})
            level[graph] = dict(polynomial.terms)
    longest = max(levels, default=0)
    expanded, is_announced = 0, False
    for length in range(longest, 0, -2):
        below = levels.setdefault(length - 2, {})
        for graph, coefficient in levels.pop(length, {}).items():
            expanded += 1
            for paired in _paired(graph, names):
                _add(
                    below.setdefault(paired.graph, {}), coefficient, paired.monomial, paired.number
                )
            taken = time.perf_counter() - started
            if len(below) > most:
                raise ValueError(_too_long(below, names, length, longest, most, taken / expanded))
            if not is_announced and taken > _PATIENCE:
                is_announced = True
                left = taken / expanded * _steps(below, names)
                if left > _LONG:
                    warnings.warn(
                        f"The average of a word of {longest} Gaussian factors may take up to"
                        f" {duration(left)}; fewer different constants between them make it"
                        " shorter.",
                        LongWordWarning,
                        stacklevel=3,
                    )
    return Expression(word.shape, {graph: Polynomial(c) for graph, c in levels.get(0, {}).items()})


@checked_but("word", "a", "b")
def covariance(
    a: Expression, b: Expression, *, over: Names = None, most: int = 20_000
) -> Expression:
    """E[a b] - E[a] E[b], entry by entry; errors as `expectation`, and for unequal shapes.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "d")
        >>> square = moments.squared_norm(W)
        >>> moments.covariance(square, square)
        2 d n
    """
    names = _averaged_names(over, a, b)
    if a.shape != b.shape:
        raise ValueError(
            f"A covariance entry by entry needs equal shapes, got {a.shape} and {b.shape}."
        )
    mean_a, mean_b, product = (given_others(each, names, most=most) for each in (a, b, a * b))
    return product - mean_a * mean_b


@checked_but("word", "a", "b")
def variance(word: Expression, *, over: Names = None, most: int = 20_000) -> Expression:
    """The variance of each entry, exact; arguments and errors as `expectation`.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "d")
        >>> moments.variance(moments.squared_norm(W))
        2 d n
    """
    return covariance(word, word, over=over, most=most)


@checked_but("word", "a", "b")
def total_variance(word: Expression, *, over: Names = None, most: int = 20_000) -> Expression:
    """E‖word‖_F² - ‖E word‖_F², the sum of all entries' variances; errors as `expectation`.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "d")
        >>> moments.total_variance(W @ W.T)
        d n^2 + d n
    """
    names = _averaged_names(over, word)
    axes = tuple(range(word.ndim))
    square, mean = contract((word, word), (axes, axes), ()), given_others(word, names, most=most)
    return given_others(square, names, most=most) - contract((mean, mean), (axes, axes), ())


def check_expressions(*words: Expression) -> None:
    """Raise TypeError for anything but expressions."""
    for word in words:
        if not isinstance(word, Expression):
            raise TypeError(
                f"An expectation is that of an Expression, got {type(word).__name__}; of several at"
                " once, jax.tree.map(expectation, words)."
            )


def gaussian_names(*words: Expression) -> frozenset[str]:
    """The names of the Gaussian symbols of several words."""
    return frozenset(
        name
        for word in words
        for name, symbol in word.symbols.items()
        if isinstance(symbol, Gaussian)
    )


def _averaged_names(over: Names, *words: Expression) -> frozenset[str]:
    """The names of the Gaussian symbols that words are averaged over: `over`, or all of them."""
    check_expressions(*words)
    symbols = {name: symbol for word in words for name, symbol in word.symbols.items()}
    if orthogonal := [name for name, symbol in symbols.items() if isinstance(symbol, Orthogonal)]:
        raise ValueError(
            f"The word has the orthogonal matrices {', '.join(orthogonal)}; average it by"
            " haar_expectation, and haar_variance."
        )
    gaussian = gaussian_names(*words)
    if over is not None and not (
        isinstance(over, str | tuple | list | set | frozenset)
        and all(isinstance(name, str) for name in over)
    ):
        raise ValueError(
            f"over needs the name of a Gaussian symbol, or several, got {shown(over)}."
        )
    names = gaussian if over is None else frozenset((over,) if isinstance(over, str) else over)
    if unknown := sorted(names - gaussian):
        raise ValueError(
            f"The word has no Gaussian symbol {', '.join(unknown)} to average over; it has"
            f" {', '.join(sorted(gaussian)) or 'none'}."
        )
    return names


class _Paired(NamedTuple):
    """A remaining graph, and the number and sizes that multiply it."""

    graph: Graph
    monomial: Monomial
    number: Exact


@lru_cache(maxsize=1 << 12)
def _paired(graph: Graph, names: frozenset[str]) -> tuple[_Paired, ...]:
    """Integrate by parts once: remove a node of `names` and another of its symbol in every way."""
    counts = _counts(graph, names)
    name = min(counts, key=lambda name: (counts[name], name))
    first = next(
        c
        for c, component in enumerate(graph)
        if any(symbol.name == name for symbol, _ in component.nodes)
    )
    total: Counter[tuple[Graph, Monomial]] = Counter()
    variance: Polynomial | None = None
    for c, component in enumerate(graph[first:], first):
        together = (graph[first],) if c == first else (graph[first], component)
        others = tuple(rest for r, rest in enumerate(graph) if r not in (first, c))
        vertices, nodes = unpack(together)
        pivot = next(n for n, (symbol, _) in enumerate(nodes) if symbol.name == name)
        start = 0 if c == first else len(graph[first].nodes)
        for n in range(start, len(nodes)):
            if n == pivot or nodes[n][0].name != name:
                continue
            variance = nodes[n][0].variance  # type: ignore[union-attr]
            joined = _join(vertices, nodes, pivot, n)
            if joined is not None:
                left, number, monomial = joined
                total[tuple(sorted((*left, *others))), monomial] += number
    if variance is None:
        return ()
    return tuple(
        _Paired(left, multiply_monomials(monomial, power), number * scale)
        for (left, monomial), number in total.items()
        for power, scale in variance.terms.items()
    )


def _join(
    vertices: list[Vertex], nodes: list[Node], a: int, b: int
) -> tuple[tuple[Component, ...], int, Monomial] | None:
    """Replace two nodes of one symbol by their covariance; None where that is zero."""
    symbol, legs = nodes[a]
    assert isinstance(symbol, Gaussian)
    rest = [node for n, node in enumerate(nodes) if n not in (a, b)]
    same = []
    for factor, ends in zip(symbol.covariance, zip(legs, nodes[b][1], strict=True), strict=True):
        if factor is None:
            same.append(ends)
        else:
            rest.append((factor, ends))
    merged = merge(vertices, same)
    if merged is None:
        return None
    kept, place = merged
    found = assemble(kept, [(each, tuple(place[leg] for leg in ends)) for each, ends in rest])
    return found.graph, found.number, found.monomial


def _add(total: _Coefficient, coefficient: _Coefficient, monomial: Monomial, number: Exact) -> None:
    for power, value in coefficient.items():
        product = multiply_monomials(power, monomial)
        total[product] = total.get(product, 0) + value * number


def _counts(graph: Graph, names: frozenset[str]) -> Counter[str]:
    """How often each symbol of these names occurs."""
    return Counter(
        symbol.name for component in graph for symbol, _ in component.nodes if symbol.name in names
    )


def _steps(graphs: Iterable[Graph], names: frozenset[str]) -> int:
    """Estimate the remaining number of pairings, as if all resulting words were different."""
    return sum(
        math.prod(math.prod(range(count - 1, 0, -2)) for count in _counts(graph, names).values())
        for graph in graphs
    )


def _too_long(
    graphs: dict[Graph, _Coefficient],
    names: frozenset[str],
    length: int,
    longest: int,
    most: int,
    seconds: float,
) -> str:
    """The error for too many words, with an estimate of the time."""
    steps = _steps(graphs, names)
    return (
        f"The word is too long: of {longest} Gaussian factors, after {(longest - length) // 2 + 1}"
        f" of {longest // 2} pairings, more than most={most} different words are left, with up to"
        f" {steps:.1e} pairings, which would take up to {duration(seconds * steps)}; shorten the"
        " word, name fewer different constants, or raise most."
    )


def duration(seconds: float) -> str:
    """A duration in words, for messages."""
    for unit, length in (("years", 3.15e7), ("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return (
                f"{seconds / length:.0f} {unit}"
                if seconds < 1e6 * length
                else f"{seconds / length:.0e} {unit}"
            )
    return f"{seconds:.0f} seconds"
