"""Expressions over products of factors such as n - 1: means over orthogonal matrices."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.moments._evaluation import check_names, known_sizes
from specjax.moments._expression import Expression, Operand, as_expression
from specjax.moments._polynomial import Polynomial, polynomial, symbol
from specjax.programs import is_traced

Shift = tuple[str, int]
"""A factor (name + number) of a denominator."""


@dataclass(frozen=True)
class Quotient:
    """An expression over a product of factors such as n + 2: a mean over orthogonal matrices.

    Sums and products with expressions and quotients of the same shape are entry by entry; numbers
    and polynomials multiply all entries.

    Attributes:
        numerator: An expression without random symbols, coprime to the denominator.
        below: The factors of the denominator with their powers.
        least: The least value of each orthogonal matrix's size at which the formula holds: half the
            number of factors.

    """

    numerator: Expression
    below: tuple[tuple[Shift, int], ...]
    least: tuple[tuple[str, int], ...]

    @property
    def denominator(self) -> Polynomial:
        """The product of the factors."""
        return _product(dict(self.below))

    def __call__(self, **values: Any) -> Array:
        """The float64 number or array, as for `Expression`; ValueError for sizes below `least`."""
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
        """The exact value, a Fraction or array; ValueError as `Expression.exact` and a call."""
        self._check(values)
        above, below = (
            part.exact(**values) for part in (self.numerator, as_expression(self.denominator))
        )
        return above * (1 / np.frompyfunc(Fraction, 1, 1)(below))

    def __add__(self, other: "Quotient | Operand") -> "Quotient":
        other = _as_quotient(other)
        mine, others = (Counter(dict(each.below)) for each in (self, other))
        common = mine | others
        above = self.numerator * _product(common - mine) + other.numerator * _product(
            common - others
        )
        return in_lowest_terms(
            above, common, Counter(dict(self.least)) | Counter(dict(other.least))
        )

    def __mul__(self, other: "Quotient | Operand") -> "Quotient":
        other = _as_quotient(other)
        below = Counter(dict(self.below)) + Counter(dict(other.below))
        least = Counter(dict(self.least)) | Counter(dict(other.least))
        return in_lowest_terms(self.numerator * other.numerator, below, least)

    def __neg__(self) -> "Quotient":
        return self * -1

    def __sub__(self, other: "Quotient | Operand") -> "Quotient":
        return self + _as_quotient(other) * -1

    def __rsub__(self, other: "Quotient | Operand") -> "Quotient":
        return _as_quotient(other) - self

    __radd__ = __add__
    __rmul__ = __mul__

    def latex(self) -> str:
        """The quotient in LaTeX, without dollars."""
        above = self.numerator.latex()
        return (
            f"\\frac{{{above}}}{{{' '.join(self._factors(latex=True))}}}" if self.below else above
        )

    def __str__(self) -> str:
        factors = self._factors()
        if not factors:
            return str(self.numerator)
        above = f"({self.numerator})" if len(self.numerator.parts()) > 1 else str(self.numerator)
        return (
            f"{above} / {factors[0]}" if len(factors) == 1 else f"{above} / ({' '.join(factors)})"
        )

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
            if not is_traced(sizes[name]) and np.any(np.asarray(sizes[name]) < least):
                raise ValueError(too_small(least, np.min(np.asarray(sizes[name]))))


def in_lowest_terms(
    above: Expression, below: Mapping[Shift, int], least: Mapping[str, int]
) -> Quotient:
    """Cancel the common factors; the result holds at sizes of at least `least`."""
    left: Counter[Shift] = Counter()
    for (name, shift), power in below.items():
        for spent in range(power):
            divided = {graph: c.divided(name, shift) for graph, c in above.terms.items()}
            if any(quotient is None for quotient in divided.values()):
                left[name, shift] = power - spent
                break
            above = Expression(
                above.shape, {graph: quotient for graph, quotient in divided.items() if quotient}
            )
    return Quotient(above, tuple(sorted(left.items())), tuple(sorted(least.items())))


def _as_quotient(value: Quotient | Operand) -> Quotient:
    return value if isinstance(value, Quotient) else Quotient(as_expression(value), (), ())


def _product(shifts: Mapping[Shift, int]) -> Polynomial:
    total = polynomial(1)
    for (name, shift), power in shifts.items():
        total = total * (symbol(name) + shift) ** power
    return total


def too_small(least: int, size: Any) -> str:
    """The error for a size at which the formula does not hold."""
    return (
        f"The word has up to {2 * least} factors of an orthogonal matrix, and its average is known"
        f" for matrices of {least} rows or more, got {size}."
    )
