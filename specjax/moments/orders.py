"""How an expectation grows with sizes that grow together: its exponents and coefficients, the first correction among them."""

from dataclasses import dataclass

from specjax.moments.expression import Expression
from specjax.moments.graph import Graph
from specjax.moments.polynomial import Exact, Monomial, Polynomial, PolynomialLike, check_name, polynomial, summed


@dataclass(frozen=True)
class Orders:
    """An expression by powers of one growing size, the highest first.

    Attributes:
        along: The size that grows.
        parts: Each power of it with its coefficient, which does not depend on it.

    """

    along: str
    parts: tuple[tuple[Exact, Expression], ...]

    @property
    def exponent(self) -> Exact:
        """The exponent at infinity, which a fit of a power law tends to."""
        return self.parts[0][0]

    @property
    def leading(self) -> Expression:
        """The coefficient of the highest power."""
        return self.parts[0][1]

    @property
    def correction(self) -> tuple[Exact, Expression] | None:
        """The next power below and its coefficient: where a fit with one subleading term should find it. None for a single power."""
        return self.parts[1] if len(self.parts) > 1 else None

    def __str__(self) -> str:
        powers = [f"{self.along}^{exponent}" for exponent, _ in self.parts]
        width = max((len(power) for power in powers), default=0)
        return "\n".join(f"{power:<{width}}  {part}" for power, (_, part) in zip(powers, self.parts, strict=True))


def orders(word: Expression, along: str, **sizes: PolynomialLike) -> Orders:
    """The powers of a size that grows, with sizes that grow with it.

    Args:
        word: What `expectation` or `variance` has returned.
        along: The name of what grows: a size of `word`, or a new name.
        **sizes: Sizes and scales of `word` as polynomials, so that `orders(word, "w", d=w, k=rho * w**2)` with `w = symbol("w")` and
            `rho = symbol("rho")` has d = w and k = rho w². Those that are not named, constants among them, stay fixed.

    Returns:
        The powers with their coefficients.

    Raises:
        ValueError: an expression that is zero, names that it lacks, or a sum put for a size that has a negative or fractional power.
    """
    check_name(along)
    if lacking := sorted(set(sizes) - word.names - {size for size in word.shape if isinstance(size, str)}):
        raise ValueError(
            f"The expression has no {', '.join(lacking)}; it has {', '.join(sorted(word.names)) or 'no sizes'}."
        )
    put = {name: polynomial(value) for name, value in sizes.items()}
    found: dict[Exact, dict[Graph, Polynomial]] = {}
    for graph, coefficient in word.terms.items():
        for power, part in _by_power(_substituted(coefficient, put), along).items():
            found.setdefault(power, {})[graph] = part
    if not found:
        raise ValueError("An expression that is zero has no order of growth.")
    return Orders(along, tuple((power, Expression(word.shape, found[power])) for power in sorted(found, reverse=True)))


def _substituted(coefficient: Polynomial, sizes: dict[str, Polynomial]) -> Polynomial:
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
