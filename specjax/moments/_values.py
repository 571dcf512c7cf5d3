"""Values exchanged by the equations of a traced function: expressions, and places."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from specjax.moments._expression import Expression, contract, uniform
from specjax.moments._graph import Size
from specjax.moments._polynomial import Polynomial, rational


@dataclass(frozen=True)
class Places:
    """An array whose entries are their own index along one axis, as in identities and masks."""

    shape: tuple[Size, ...]
    axis: int


Value = Expression | Places
Rule = Callable[[Sequence[Any], tuple[Size, ...], Mapping[str, Any]], Value]


def literal(value: Any) -> Expression:
    """Convert a number of the program, or an array with one repeated entry.

    Raises:
        ValueError: an array with different entries, whose values at other sizes are unknown.
    """
    array = np.asarray(value)
    if array.size == 0 or (array != array.ravel()[0]).any():
        raise ValueError(
            f"The function has an array of shape {array.shape} with numbers of its own; pass it as"
            " an argument, in `constant`."
        )
    return uniform(array.shape, rational(array.ravel()[0].item()))


def size_of(extent: Any) -> Size:
    """The size of an axis of the program: a number or a name.

    Raises:
        ValueError: a combination of sizes, as of an axis made by joining two.
    """
    if isinstance(extent, int | np.integer):
        return int(extent)
    if not (name := str(extent)).isidentifier():
        raise ValueError(
            f"The function makes an axis of size {name}; sizes of axes are names or numbers, so"
            " keep axes apart: jnp.sum(a * b) in place of jnp.vdot(a, b)."
        )
    return name


def every(word: Any) -> tuple[int, ...]:
    """The axes as labels of a contraction."""
    return tuple(range(len(word.shape)))


def spread(
    word: Expression, shape: tuple[Size, ...], dims: Sequence[int] | None = None
) -> Expression:
    """Broadcast the operand to a larger shape: nothing changes along new axes and axes of size 1.

    `dims` are its axes in that shape, by default all, or none for a scalar.
    """
    if word.shape == shape:
        return word
    dims = dims if dims is not None else range(len(shape)) if word.shape else ()
    # An axis of size 1 that becomes longer repeats its one entry, which is its sum.
    labels = [
        dim if size == shape[dim] else len(shape) + dim
        for dim, size in zip(dims, word.shape, strict=True)
    ]
    return contract((word,), (labels,), range(len(shape)), sizes=dict(enumerate(shape)))


def number(word: Any, what: str) -> Polynomial:
    """The polynomial in sizes and scales that is every entry; ValueError if there is none."""
    try:
        return word.value
    except ValueError as error:
        raise ValueError(
            f"The function is not polynomial: {what!r} of something that is not a number, of shape"
            f" {word.shape}."
        ) from error


def constant_number(value: Polynomial) -> int | Fraction:
    """A polynomial as a number; ValueError if it depends on sizes or scales."""
    if value.names:
        raise ValueError(
            f"The function needs a number to decide by, and has {value}, which depends on sizes."
        )
    return value.terms.get((), 0)
