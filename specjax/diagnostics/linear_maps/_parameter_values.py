"""The effect of the operations of a program on values that depend on parameters alone."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.diagnostics.linear_maps._terms import (
    Made,
    Term,
    broadcast,
    moved,
    multiplied,
    multiply_by_array,
    side_by_side,
)
from specjax.diagnostics.linear_maps._uses import picked
from specjax.programs import Equation

LAYOUT = frozenset(
    {"transpose", "reshape", "squeeze", "expand_dims", "slice", "dynamic_slice", "rev", "copy"}
)
"""Primitives that move the entries of their first operand and change none."""
CONVERSION = frozenset({"convert_element_type", "reduce_precision", "optimization_barrier", "name"})
SCALING = frozenset({"mul", "div", "neg"})
SUMS = frozenset({"add", "sub"})
"""Primitives that keep the output of a map, up to a factor and beside a bias or a residual
stream.
"""
ELEMENTWISE = (
    SCALING
    | SUMS
    | {
        "sqrt",
        "rsqrt",
        "square",
        "integer_pow",
        "pow",
        "abs",
        "max",
        "min",
        "exp",
        "log",
        "tanh",
        "logistic",
        "sign",
    }
)
"""Primitives that repeat the entries that their operands repeat; the results of others may vary
along every axis.
"""


def made_by(
    equation: Equation, place: int, inputs: list[Any], origins: Sequence[object], output: Any
) -> Made | None:
    """The result of an operation without products on values; None if it depends on data. `place` is
    that of the output.
    """
    name, first = equation.name, origins[0] if origins else None
    # A scalar from data, such as a temperature, keeps a matrix a matrix.
    made = [
        Made() if origin is None and not np.shape(x) else origin
        for x, origin in zip(inputs, origins, strict=True)
    ]
    all_made = [origin for origin in made if isinstance(origin, Made)]
    if isinstance(first, Made) and name in CONVERSION:
        # The gradient of a parameter is not rounded to the precision of the product.
        return first
    if isinstance(first, Made) and name in LAYOUT | {"broadcast_in_dim", "split", "gather"}:
        found = (
            picked(equation, inputs[0], inputs[1], first)
            if name == "gather"
            else _rearranged(equation, place, inputs, first, output)
        )
        return None if None in origins and not found.terms else found
    if len(all_made) < len(made) or (None in origins and name not in SCALING):
        return None
    if name == "dot_general":
        return _product_of_parameters(equation, inputs, all_made)
    if name == "concatenate":
        return Made(
            side_by_side(all_made, [x.shape for x in inputs], equation.parameters["dimension"])
        )
    if name not in ELEMENTWISE:
        return Made()
    repeats = _repeats(inputs, all_made, len(np.shape(output)))
    if name in SUMS:
        return Made(_sum(equation, inputs, all_made, output), repeats)
    if name in SCALING:
        return Made(_scaled(equation, inputs, all_made, output), repeats)
    return Made((), repeats)


def _repeats(inputs: list[Any], made: list[Made], rank: int) -> frozenset[int]:
    """The axes along which no operand varies."""
    constant = [
        {axis for axis, size in enumerate(np.shape(x)) if size == 1 or axis in m.repeats}
        for x, m in zip(inputs, made, strict=True)
        if np.shape(x)
    ]
    return frozenset(range(rank)).intersection(*constant)


def _rearranged(
    equation: Equation, place: int, inputs: list[Any], made: Made, output: Array
) -> Made:
    name, before = equation.name, np.shape(inputs[0])
    # Slices at computed places never count as the same matrix.
    signature = (
        str(sorted(equation.parameters.items(), key=str)),
        place,
        *([object()] if inputs[1:] else []),
    )
    if name == "broadcast_in_dim":
        dimensions = [int(axis) for axis in equation.parameters["broadcast_dimensions"]]
        terms = tuple(broadcast(term, before, output.shape, dimensions) for term in made.terms)
        kept = {
            p
            for axis, p in enumerate(dimensions)
            if axis not in made.repeats and before[axis] == output.shape[p]
        }
        return Made(terms, frozenset(range(output.ndim)) - kept)

    def operation(leaf: Array) -> Array:
        return equation.bind(leaf, *inputs[1:])[place]

    moves = [
        moved(term, operation, before, output.shape, equation, signature) for term in made.terms
    ]
    order = equation.parameters["permutation"] if name == "transpose" else ()
    repeats = frozenset(place for place, axis in enumerate(order) if axis in made.repeats)
    return Made(tuple(term for term in moves if term), repeats)


def _product_of_parameters(equation: Equation, inputs: list[Any], made: list[Made]) -> Made:
    contracted, batch = equation.parameters["dimension_numbers"]
    return Made(
        tuple(
            multiplied(term, side, inputs[1 - side], contracted, batch)
            for side in (0, 1)
            for term in made[side].terms
            if term.covers(inputs[side].shape)
        )
    )


def _sum(
    equation: Equation, inputs: list[Any], made: list[Made], output: Array
) -> tuple[Term, ...]:
    """The terms of both; an addend along other axes is a bias of a parameter."""
    return tuple(
        _multiply_by_number(term, -1.0) if side == 1 and equation.name == "sub" else term
        for side, (x, m) in enumerate(zip(inputs, made, strict=True))
        for term in m.terms
        if np.shape(x) == output.shape and term.covers(output.shape)
    )


def _scaled(
    equation: Equation, inputs: list[Any], made: list[Made], output: Array
) -> tuple[Term, ...]:
    """Terms times or over numbers and arrays; an array that does not vary along all axes is a
    gain.
    """
    is_quotient, terms = equation.name == "div", []
    for side, (x, m) in enumerate(zip(inputs, made, strict=True)):
        if np.shape(x) != output.shape or (is_quotient and side == 1):
            continue
        other: Any = inputs[1 - side] if len(inputs) == 2 else -1.0
        factor = 1 / other if is_quotient else other
        repeats = made[1 - side].repeats if len(inputs) == 2 else frozenset()
        terms += [
            multiply_by_array(term, factor, repeats)
            if np.shape(factor)
            else _multiply_by_number(term, factor)
            for term in m.terms
            if term.covers(output.shape)
        ]
    return tuple(terms)


def _multiply_by_number(term: Term, number: Any) -> Term:
    view = term.view
    return term._replace(
        view=lambda leaf: view(leaf) * jnp.asarray(number, leaf.dtype),
        signature=(*term.signature, object()),
    )
