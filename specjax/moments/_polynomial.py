"""Exact polynomials in named sizes and scales, with rational coefficients and rational powers."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from numbers import Integral, Rational, Real
from types import MappingProxyType
from typing import Any

from specjax.arguments import checked, shown

Exact = int | Fraction
Monomial = tuple[tuple[str, Exact], ...]
"""Powers by name, sorted by name, without zeros: (("d", 2), ("k", 1)) is d² k."""


@dataclass(frozen=True, eq=False)
class Polynomial:
    """A sum of rational coefficients times monomials; operators also take exact numbers.

    A divisor, and the base of a power other than a positive integer, must be one monomial: `k**-1`
    and `(4 * k)**Fraction(1, 2)` are allowed, `(d + 1)**-1` is not.
    """

    terms: Mapping[Monomial, Exact]

    def __post_init__(self) -> None:
        kept = {monomial: _plain(number) for monomial, number in self.terms.items() if number}
        object.__setattr__(self, "terms", MappingProxyType(kept))

    def __add__(self, other: "PolynomialLike") -> "Polynomial":
        if not isinstance(other, Polynomial | Real):
            return NotImplemented
        return summed((self, polynomial(other)))

    def __mul__(self, other: "PolynomialLike") -> "Polynomial":
        if not isinstance(other, Polynomial | Real):
            return NotImplemented
        total: dict[Monomial, Exact] = {}
        for b, y in polynomial(other).terms.items():
            for a, x in self.terms.items():
                product = multiply_monomials(a, b)
                total[product] = total.get(product, 0) + x * y
        return Polynomial(total)

    def __pow__(self, power: int | float | Fraction) -> "Polynomial":
        if isinstance(power, Integral) and power >= 0:
            result = polynomial(1)
            for _ in range(int(power)):
                result = result * self
            return result
        if len(self.terms) != 1:
            raise ValueError(f"Only one monomial has the power {power}, got {self}.")
        ((monomial, number),) = self.terms.items()
        exponent = Fraction(rational(power))
        return Polynomial(
            {tuple((name, _plain(p * exponent)) for name, p in monomial): _root(number, exponent)}
        )

    def __truediv__(self, other: "PolynomialLike") -> "Polynomial":
        if not isinstance(other, Polynomial | Real):
            return NotImplemented
        return self * polynomial(other) ** -1

    def __neg__(self) -> "Polynomial":
        return self * -1

    def __sub__(self, other: "PolynomialLike") -> "Polynomial":
        if not isinstance(other, Polynomial | Real):
            return NotImplemented
        return self + -polynomial(other)

    def __rsub__(self, other: "PolynomialLike") -> "Polynomial":
        return polynomial(other) - self

    def __rtruediv__(self, other: "PolynomialLike") -> "Polynomial":
        return polynomial(other) / self

    __radd__ = __add__
    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Polynomial | Rational) and self.terms == polynomial(other).terms  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    @property
    def names(self) -> frozenset[str]:
        """The sizes and scales that occur."""
        return frozenset(name for monomial in self.terms for name, _ in monomial)

    def text(self, latex: bool = False) -> str:
        """The sum as text (or LaTeX, without dollars), from the highest degree."""
        ordered = sorted(
            self.terms.items(), key=lambda item: (-sum(power for _, power in item[0]), item[0])
        )
        return joined(
            [(number, monomial_text(monomial, latex)) for monomial, number in ordered], latex
        )

    def divided(self, name: str, shift: Exact) -> "Polynomial | None":
        """The quotient by (name + shift), which may have negative powers; None if inexact."""
        groups: dict[tuple[Monomial, Exact], dict[int, Exact]] = {}
        for monomial, number in self.terms.items():
            power = dict(monomial).get(name, 0)
            whole = math.floor(power)
            rest = tuple((other, p) for other, p in monomial if other != name)
            groups.setdefault((rest, power - whole), {})[whole] = number
        found: dict[Monomial, Exact] = {}
        for (rest, fraction), numbers in groups.items():
            lowest = min(*numbers, 0)
            carried: Exact = 0
            for power in range(max(numbers), lowest, -1):
                carried = numbers.get(power, 0) - shift * carried
                left = power - 1 + fraction
                found[multiply_monomials(rest, ((name, left),) if left else ())] = carried
            if numbers.get(lowest, 0) != shift * carried:
                return None
        return Polynomial(found)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Evaluate in the arithmetic of `values`: exact for int and Fraction, or elementwise."""
        total: Any = 0
        for monomial, number in self.terms.items():
            term: Any = number
            for name, power in monomial:
                term = term * values[name] ** power
            total = total + term
        return total


PolynomialLike = Polynomial | int | float | Fraction


@checked
def symbol(name: str) -> Polynomial:
    """A size or scale as a polynomial, for variances and coefficients such as 2 / k.

    Raises:
        ValueError: a name that is not an identifier.

    Examples:
        >>> from specjax import moments
        >>> k = moments.symbol("k")
        >>> k * (k + 1)
        k^2 + k
        >>> W = moments.gaussian("W", "k", "d", variance=2 / k)
        >>> moments.expectation(moments.squared_norm(W))
        2 d
    """
    return Polynomial({((check_name(name), 1),): 1})


def polynomial(number: PolynomialLike) -> Polynomial:
    """Convert a number, a float as the simplest fraction that rounds to it: 0.1 is 1/10."""
    return number if isinstance(number, Polynomial) else Polynomial({(): rational(number)})


def rational(number: Real | float) -> Exact:
    """The simplest fraction that rounds to `number` in float64; rational numbers stay as they are.

    Raises:
        ValueError: a number that is not finite.
    """
    if isinstance(number, Rational):
        return _plain(Fraction(number))
    if not isinstance(number, Real) or not math.isfinite(number):
        raise ValueError(f"Coefficients are finite numbers, got {shown(number)}.")
    for digits in range(1, 16):
        simple = Fraction(float(number)).limit_denominator(10**digits)
        if float(simple) == float(number):
            return _plain(simple)
    return _plain(Fraction(float(number)))


def summed(polynomials: Iterable[Polynomial]) -> Polynomial:
    """The sum of any number of polynomials."""
    total: dict[Monomial, Exact] = {}
    for each in polynomials:
        for monomial, number in each.terms.items():
            total[monomial] = total.get(monomial, 0) + number
    return Polynomial(total)


def multiply_monomials(a: Monomial, b: Monomial) -> Monomial:
    """The product of two monomials."""
    if not a or not b:
        return a or b
    powers = dict(a)
    for name, power in b:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def check_name(name: str) -> str:
    """Return an identifier such as "d", "d_0" or "Phi"; ValueError for any other name."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f'A name is an identifier such as "d", "d0" or "Phi", got {name!r}.')
    return name


def joined(terms: Iterable[tuple[Exact, str]], latex: bool = False) -> str:
    """Write a sum of numbers times factors given as text; an empty factor is one."""
    text = ""
    for number, factor in terms:
        sign = (" - " if number < 0 else " + ") if text else ("-" if number < 0 else "")
        size = _plain(Fraction(-number if number < 0 else number))
        written = (
            f"\\frac{{{size.numerator}}}{{{size.denominator}}}"
            if latex and size.denominator != 1
            else str(size)
        )
        text += sign + (written if not factor else factor if size == 1 else f"{written} {factor}")
    return text or "0"


def monomial_text(monomial: Monomial, latex: bool = False) -> str:
    """Write a monomial, with powers by ^, in LaTeX in braces."""
    factors = []
    for name, power in monomial:
        base = name_text(name, latex)
        exponent = (
            f"{{{power}}}"
            if latex
            else str(power)
            if isinstance(power, int) and power > 0
            else f"({power})"
        )
        factors.append(base if power == 1 else f"{base}^{exponent}")
    return " ".join(factors)


def name_text(name: str, latex: bool = False) -> str:
    """Write a name; in LaTeX with Greek letters and subscripts (d0 and d_in)."""
    if not latex:
        return name
    stem, subscript = _split_name(name)
    letter = (
        f"\\{stem}" if stem.lower() in _GREEK else stem if len(stem) == 1 else f"\\mathrm{{{stem}}}"
    )
    return letter + (f"_{{{subscript}}}" if subscript else "")


_GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "pi",
        "rho",
        "sigma",
        "tau",
        "upsilon",
        "phi",
        "chi",
        "psi",
        "omega",
    ]
)


def _split_name(name: str) -> tuple[str, str]:
    """Split a name into the letters and the subscript."""
    stem, _, subscript = name.partition("_")
    letters = stem.rstrip("0123456789")
    return (letters or stem), (stem[len(letters) :] if letters else "") + subscript


def _plain(number: Exact) -> Exact:
    """Convert a whole number to an int, whose arithmetic is ten times as fast as a fraction's."""
    return number if isinstance(number, int) else int(number) if number.denominator == 1 else number


def _root(number: Exact, exponent: Fraction) -> Exact:
    """The power of a number if it is rational; ValueError if not."""
    base = Fraction(number) ** exponent.numerator
    above, below = (
        _whole_root(part, exponent.denominator) for part in (base.numerator, base.denominator)
    )
    if above is None or below is None:
        raise ValueError(
            f"{number} has no rational power {exponent}; give the whole scale a name of its own."
        )
    return _plain(Fraction(above, below))


def _whole_root(number: int, degree: int) -> int | None:
    if degree == 1:
        return number
    near = round(number ** (1 / degree)) if number >= 0 else -1
    return next(
        (root for root in (near - 1, near, near + 1) if root >= 0 and root**degree == number), None
    )


def by_degree(monomial: Monomial) -> tuple[Exact, Monomial]:
    """Sorting key of monomials, the highest degree first."""
    return -sum(power for _, power in monomial), monomial
