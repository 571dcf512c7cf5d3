"""Numbers for expressions at given sizes, scales and constants, in float64 or exact."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Rational
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.arguments import host_array, shown
from specjax.moments._graph import Component, Constant, Graph, Size, Symbol
from specjax.moments._polynomial import Polynomial
from specjax.programs import is_traced


def evaluate(
    shape: Sequence[Size], terms: Mapping[Graph, Polynomial], values: Mapping[str, Any]
) -> Array:
    """The array of an expression without Gaussian symbols; works under `jit`, `vmap` and `grad`.

    Args:
        shape: The shape of the expression.
        terms: Its contractions with their coefficients.
        values: By name: sizes and scales, numbers or arrays that broadcast against each other, and
            constants, arrays of their shapes. The sizes of constants need not be given, and names
            that the expression lacks are ignored. A size that is the extent of an axis of the
            result is one int.

    Returns:
        float64, of the broadcast shape of sizes and scales, then the axes of the expression.

    Raises:
        ValueError: remaining random symbols, a name without a value, or constants of the wrong
            shape or without the requested entry.
    """
    symbols = _symbols(terms)
    if random := [name for name, symbol in symbols.items() if not isinstance(symbol, Constant)]:
        raise ValueError(
            f"An expression has a value after `expectation`, and the symbols {', '.join(random)}"
            " are random."
        )
    named = {n for c in terms.values() for n in c.names} | {
        size for size in shape if isinstance(size, str)
    }
    of_constants = {
        size for symbol in symbols.values() for size in symbol.shape if isinstance(size, str)
    }
    arrays = {name: values[name] for name in symbols if name in values}
    used = named | of_constants | set(arrays)
    for name in {*used} & {*values}:
        if not is_traced(values[name]) and np.iscomplexobj(
            host_array(values[name], name, "A value")
        ):
            raise ValueError(f"A value needs real numbers as {name}, got {shown(values[name])}.")
    sizes = known_sizes(symbols, {name: value for name, value in values.items() if name in used})
    check_names(named | set(symbols), values, {**sizes, **arrays})
    with jax.enable_x64(True):
        batch = jnp.broadcast_shapes(*(jnp.shape(value) for value in sizes.values()))
        numbers = {
            name: jnp.broadcast_to(jnp.asarray(value, jnp.float64), batch)
            for name, value in sizes.items()
        }
        constants = {name: jnp.asarray(value, jnp.float64) for name, value in arrays.items()}
        extent = {
            size: size if isinstance(size, int) else _length(size, sizes[size]) for size in shape
        }
        total = jnp.zeros((*batch, *(extent[size] for size in shape)))
        for graph, coefficient in terms.items():
            factor = jnp.broadcast_to(_number(coefficient, numbers), batch)
            array = _array(graph, shape, extent, constants)
            total = total + factor.reshape(batch + (1,) * len(shape)) * array.reshape(
                (1,) * len(batch) + array.shape
            )
        return total


def exact(
    shape: Sequence[Size], terms: Mapping[Graph, Polynomial], values: Mapping[str, Any]
) -> Any:
    """The exact value of a scalar without symbols: an int or Fraction, or an object array of them.

    Raises:
        ValueError: an expression with axes, symbols or roots of sizes, a name without a value, a
            value that is neither int nor Fraction.
    """
    if shape or any(graph for graph in terms):
        raise ValueError(
            "An exact value is that of a scalar without symbols left; call the expression for a"
            " float64 one."
        )
    powers = {
        (name, power) for c in terms.values() for monomial in c.terms for name, power in monomial
    }
    if roots := sorted(name for name, power in powers if not isinstance(power, int)):
        raise ValueError(
            f"The expression has roots of {', '.join(roots)}; call it for a float64 value."
        )
    needed = {name for name, _ in powers}
    check_names(needed, values, values)
    numbers = {name: _exact_numbers(name, values[name]) for name in needed}
    zero = sum((0 * number for number in numbers.values()), start=Fraction(0))
    total = sum((coefficient.evaluate(numbers) for coefficient in terms.values()), start=zero)
    return np.frompyfunc(lambda x: int(x) if x.denominator == 1 else x, 1, 1)(total)


def _exact_numbers(name: str, value: Any) -> Any:
    """A Fraction, or an object array of them."""
    given = np.asarray(value, object)
    if not all(isinstance(number, Rational) for number in given.ravel()):
        raise ValueError(f"Exact values need integers or Fractions, got {name}={value!r}.")
    return np.frompyfunc(Fraction, 1, 1)(given)


def _symbols(terms: Mapping[Graph, Polynomial]) -> dict[str, Symbol]:
    return {
        symbol.name: symbol
        for graph in terms
        for component in graph
        for symbol, _ in component.nodes
    }


def known_sizes(symbols: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the sizes and scales, given or from constants' shapes; ValueError if they differ."""
    arrays = {name: value for name, value in values.items() if name in symbols}
    sizes = {name: value for name, value in values.items() if name not in symbols}
    for name, array in arrays.items():
        wanted, found = symbols[name].shape, jnp.shape(array)
        if len(wanted) != len(found):
            raise ValueError(f"{name} has the shape {wanted}, got an array of shape {found}.")
        for size, extent in zip(wanted, found, strict=True):
            known = size if isinstance(size, int) else sizes.setdefault(size, extent)
            if not is_traced(known) and np.any(np.asarray(known) != extent):
                raise ValueError(
                    f"{name} has the shape {wanted} with {size} = {known}, got an array of shape"
                    f" {found}."
                )
    return sizes


def check_names(needed: set[str], values: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise ValueError for a name without a value."""
    if lacking := sorted(needed - set(known)):
        raise ValueError(
            f"A value needs {', '.join(lacking)}; got {', '.join(sorted(values)) or 'nothing'}."
        )


def _number(coefficient: Polynomial, numbers: Mapping[str, Array]) -> Array:
    total = jnp.zeros(())
    for monomial, number in coefficient.terms.items():
        term = jnp.asarray(float(number), jnp.float64)
        for name, power in monomial:
            term = term * (
                numbers[name] ** power if isinstance(power, int) else numbers[name] ** float(power)
            )
        total = total + term
    return total


def _length(name: str, size: Any) -> int:
    """The length of an axis as an int; ValueError unless it is one whole number."""
    if np.ndim(size) or size != int(size) or size < 0:
        raise ValueError(
            f"The size {name} is the length of an axis of the result, one whole number of at least"
            f" 0, got {size}."
        )
    return int(size)


def _array(
    graph: Graph, shape: Sequence[Size], extent: Mapping[Size, int], constants: Mapping[str, Array]
) -> Array:
    """The product of the components, with its axes in order."""
    operands: list[Any] = []
    count = len(shape)
    for component in graph:
        more, labels = _operands(component, shape, extent, constants, count)
        operands += more
        count = labels
    if not operands:
        return jnp.ones(())
    return jnp.einsum(*operands, list(range(len(shape))), precision="highest")


def _operands(
    component: Component,
    shape: Sequence[Size],
    extent: Mapping[Size, int],
    constants: Mapping[str, Array],
    count: int,
) -> tuple[list[Any], int]:
    """The arguments of `einsum` for a component, and the label count; axis s has label s."""
    operands: list[Any] = []
    labels = []
    for vertex in component.vertices:
        if vertex.slots and vertex.pin < 0:
            labels.append(vertex.slots[0])
        else:
            labels.append(count)
            count += 1
    for symbol, legs in component.nodes:
        array, kept = constants[symbol.name], []
        for axis, leg in reversed(list(enumerate(legs))):
            if component.vertices[leg].pin >= 0:
                place = _within(component.vertices[leg].pin, array.shape[axis], symbol.name)
                array = jnp.take(array, place, axis=axis)
            else:
                kept.append(labels[leg])
        operands += [array, kept[::-1]]
    for vertex in component.vertices:
        for place, slot in enumerate(vertex.slots):
            size = extent[shape[slot]]
            if vertex.pin >= 0:
                operands += [
                    jnp.zeros(size).at[_within(vertex.pin, size, "the identity")].set(1),
                    [slot],
                ]
            elif place > 0:
                operands += [jnp.eye(size), [vertex.slots[0], slot]]
            elif not component.nodes:
                operands += [jnp.ones(size), [slot]]
    return operands, count


def _within(place: int, size: int, name: str) -> int:
    if place >= size:
        raise ValueError(
            f"The expression has the entry at place {place} of an axis of {name}, which here has"
            f" the size {size}."
        )
    return place
