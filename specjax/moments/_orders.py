"""Growth of an expectation with sizes that grow together: exponents and coefficients."""

from collections.abc import Mapping
from dataclasses import dataclass

from specjax.arguments import checked
from specjax.moments._expression import Expression, as_expression
from specjax.moments._graph import Graph
from specjax.moments._polynomial import (
    Exact,
    Monomial,
    Polynomial,
    PolynomialLike,
    check_name,
    polynomial,
    summed,
)
from specjax.moments._quotient import Quotient


@dataclass(frozen=True)
class Orders:
    """An expression by powers of one growing size, from the highest.

    Attributes:
        along: The size that grows.
        parts: Powers of `along` with coefficients free of it; the first two where the powers have
            no end, as for 1/(n + 2).

    """

    along: str
    parts: tuple[tuple[Exact, Expression], ...]

    @property
    def exponent(self) -> Exact:
        """The exponent at infinity, the limit of a power-law fit."""
        return self.parts[0][0]

    @property
    def leading(self) -> Expression:
        """The coefficient of the highest power."""
        return self.parts[0][1]

    @property
    def correction(self) -> tuple[Exact, Expression] | None:
        """The next power and its coefficient, for a fit with one subleading term, or None."""
        return self.parts[1] if len(self.parts) > 1 else None

    def __str__(self) -> str:
        powers = [f"{self.along}^{exponent}" for exponent, _ in self.parts]
        width = max((len(power) for power in powers), default=0)
        return "\n".join(
            f"{power:<{width}}  {part}" for power, (_, part) in zip(powers, self.parts, strict=True)
        )


@checked
def orders(word: Expression | Quotient, along: str, **sizes: PolynomialLike) -> Orders:
    """The powers of a growing size, where other sizes may grow with it.

    Args:
        word: The result of `expectation`, `variance`, `haar_expectation` or another average.
        along: The name of the growing size: a size of `word`, or a new name.
        **sizes: Sizes and scales of `word` as polynomials, so that `orders(word, "w", d=w, k=rho *
            w**2)` with `w = symbol("w")` and `rho = symbol("rho")` has d = w and k = rho w². The
            others, and constants, stay fixed.

    Returns:
        The powers with their coefficients.

    Raises:
        ValueError: an expression that is zero, unknown names, or a sum substituted for a size with
            a negative or fractional power, or for one that leads a denominator.

    Examples:
        >>> from specjax import moments
        >>> W = moments.gaussian("W", "n", "d")
        >>> print(moments.orders(moments.expectation(moments.trace(W @ W.T @ W @ W.T)), "n"))
        n^2  d
        n^1  d^2 + d
    """
    check_name(along)
    above, below = (
        (word.numerator, word.denominator) if isinstance(word, Quotient) else (word, polynomial(1))
    )
    names = above.names | below.names
    if lacking := sorted(
        set(sizes) - names - {size for size in above.shape if isinstance(size, str)}
    ):
        raise ValueError(
            f"The expression has no {', '.join(lacking)}; it has"
            f" {', '.join(sorted(names)) or 'no sizes'}."
        )
    put = {name: polynomial(value) for name, value in sizes.items()}
    dividend = _powers(above, along, put)
    divisor = {
        power: part.value for power, part in _powers(as_expression(below), along, put).items()
    }
    if not dividend:
        raise ValueError("An expression that is zero has no order of growth.")
    if not divisor:
        raise ValueError(f"The denominator {below} is zero at the sizes {sizes}.")
    return Orders(along, tuple(sorted(_divided(dividend, divisor).items(), reverse=True)))


def _powers(
    word: Expression, along: str, sizes: Mapping[str, Polynomial]
) -> dict[Exact, Expression]:
    found: dict[Exact, dict[Graph, Polynomial]] = {}
    for graph, coefficient in word.terms.items():
        for power, part in _by_power(_substituted(coefficient, sizes), along).items():
            found.setdefault(power, {})[graph] = part
    return {power: Expression(word.shape, terms) for power, terms in found.items()}


def _divided(
    above: dict[Exact, Expression], below: Mapping[Exact, Polynomial]
) -> dict[Exact, Expression]:
    """Long division from the highest power; only two powers if the divisor is a sum."""
    top = max(below)
    found: dict[Exact, Expression] = {}
    while above and (len(below) == 1 or len(found) < 2):
        power = max(above)
        part = above.pop(power) / below[top]
        found[power - top] = part
        for lower, coefficient in below.items():
            if lower == top:
                continue
            at = power - top + lower
            rest = above.pop(at, 0 * part) - part * coefficient
            if rest.terms:
                above[at] = rest
    return found


def _substituted(coefficient: Polynomial, sizes: Mapping[str, Polynomial]) -> Polynomial:
    parts = []
    for monomial, number in coefficient.terms.items():
        part = polynomial(number)
        for name, power in monomial:
            part = part * sizes.get(name, Polynomial({((name, 1),): 1})) ** power
        parts.append(part)
    return summed(parts)


def _by_power(coefficient: Polynomial, along: str) -> dict[Exact, Polynomial]:
    found: dict[Exact, dict[Monomial, Exact]] = {}
    for monomial, number in coefficient.terms.items():
        rest = tuple((name, power) for name, power in monomial if name != along)
        found.setdefault(dict(monomial).get(along, 0), {})[rest] = number
    return {power: Polynomial(terms) for power, terms in found.items()}
