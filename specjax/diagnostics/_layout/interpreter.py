"""Reads a program once, without computing numbers, and finds the uses of its parameters through
calls, branches and loops.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from specjax.diagnostics._layout.abstract_value import Value, distinct, from_all
from specjax.diagnostics._layout.axis_pieces import dropped, fitted, unknown, whole
from specjax.diagnostics._layout.consumers import use_up
from specjax.diagnostics._layout.primitive_rules import apply
from specjax.diagnostics._layout.uses import Uses, leaf
from specjax.programs import Equation, Program, Scan, While, interpret, scan, shape_of, while_loop


def uses_in(program: Program, parameters: int, *, constants_are_data: bool) -> Uses:
    """The uses of the first `parameters` arguments of a program; the others are data, and its
    constants may be data too.
    """
    uses = Uses()
    arguments = []
    for number, shape in enumerate(map(shape_of, program.inputs)):
        arguments.append(
            Value(shape, (whole(leaf(number), shape),))
            if number < parameters
            else Value(shape, data=True)
        )
    shapes = map(shape_of, program.constant_variables)
    constants = [Value(shape, data=constants_are_data and bool(shape)) for shape in shapes]
    for value in read(program, constants, arguments, uses, ()):
        if value.is_parameter:
            use_up(value, "statistic", uses, "the loss")
    return uses


def read(
    program: Program,
    constants: Sequence[Value],
    arguments: Sequence[Value],
    uses: Uses,
    place: tuple[Hashable, ...],
) -> list[Value]:
    """The outputs of a program; `place` identifies the call."""

    def outputs(equation: Equation, values: list[Value]) -> list[Value]:
        return _outputs(equation, values, uses, (*place, equation.place))

    return interpret(program, constants, arguments, outputs, lambda number: Value(np.shape(number)))


def _outputs(
    equation: Equation, values: list[Value], uses: Uses, place: tuple[Hashable, ...]
) -> list[Value]:
    if loop := scan(equation):
        return _scan(loop, values, uses, place)
    if turns := while_loop(equation):
        return _while(turns, values, uses, place)
    if equation.branches:
        branches = [
            _called(b, values[1:], uses, (*place, i)) for i, b in enumerate(equation.branches)
        ]
        return [_joined(list(results), uses, place) for results in zip(*branches, strict=True)]
    if equation.wrapped:
        # The program of one shard has smaller axes than the whole array.
        found = zip(
            _called(equation.wrapped, values, uses, place),
            map(shape_of, equation.outputs),
            strict=True,
        )
        return [_fit_to_shape(value, shape) for value, shape in found]
    return apply(equation, values, uses, place)


def _called(
    program: Program, values: Sequence[Value], uses: Uses, place: tuple[Hashable, ...]
) -> list[Value]:
    arguments = [
        _fit_to_shape(v, shape_of(var)) for v, var in zip(values, program.inputs, strict=True)
    ]
    return read(
        program,
        [Value(shape_of(var)) for var in program.constant_variables],
        arguments,
        uses,
        place,
    )


def _scan(loop: Scan, values: list[Value], uses: Uses, place: tuple[Hashable, ...]) -> list[Value]:
    constants, carry, xs = loop.split(values)
    slices = [v.of(v.shape[1:], [dropped(term, [0], "scan") for term in v.terms]) for v in xs]
    carry, collected = _repeated(loop.body, constants, carry, slices, uses, place)
    stacked = [
        v.of(
            (loop.length, *v.shape),
            [term._replace(axes=(unknown(loop.length), *term.axes)) for term in v.terms],
        )
        for v in collected
    ]
    return [*carry, *stacked]


def _while(
    loop: While, values: list[Value], uses: Uses, place: tuple[Hashable, ...]
) -> list[Value]:
    _, constants, carry = loop.split(values)
    return _repeated(loop.body, constants, carry, [], uses, place)[0]


def _repeated(
    body: Program,
    constants: list[Value],
    carry: list[Value],
    slices: list[Value],
    uses: Uses,
    place: tuple[Hashable, ...],
) -> tuple[list[Value], list[Value]]:
    """The carried and the collected values of a loop: its body is read until its carried values do
    not change.
    """
    recorded = dict(uses.found)
    while True:
        # Discard the uses of an earlier reading, which may have treated an activation as a
        # constant.
        uses.found = dict(recorded)
        outputs = _called(body, [*constants, *carry, *slices], uses, place)
        after, collected = outputs[: len(carry)], outputs[len(carry) :]
        in_body, uses.found = uses.found, recorded
        joined = [
            _carried(a, b, uses, (*place, i))
            for i, (a, b) in enumerate(zip(carry, after, strict=True))
        ]
        uses.found = {**in_body, **recorded}
        if joined == carry:
            return carry, collected
        carry = joined


def _carried(before: Value, after: Value, uses: Uses, place: Hashable) -> Value:
    """A value that a loop carries: a parameter that does not change, or an activation of which only
    the uses are known.
    """
    joined = _joined([before, after], uses, place)
    return joined._replace(
        terms=tuple(joined.parameters()), behind=0, before=0, earlier=joined.uses()
    )


def _joined(values: list[Value], uses: Uses, place: Hashable) -> Value:
    """One of several values."""
    if any(v.data and not v.is_parameter for v in values):
        values = [
            use_up(v, "joined", uses, place, "a branch or a loop") if v.is_parameter else v
            for v in values
        ]
    return from_all(
        values, values[0].shape, distinct(term for value in values for term in value.terms)
    )


def _fit_to_shape(value: Value, shape: tuple[int, ...]) -> Value:
    if value.shape == shape or len(value.shape) != len(shape):
        return value._replace(shape=shape)
    return value.of(shape, [fitted(term, shape) for term in value.terms])
