"""Compare two traces of a function, and find the outputs that depend on given inputs."""

from collections.abc import Collection, Iterator
from itertools import zip_longest
from typing import Any

import numpy as np

from specjax.programs._program import Program, is_variable


def are_alike(one: Program, other: Program) -> bool:
    """Whether two programs have equal operations, literals and constants, in equal order."""
    return all(_is_same(*pair) for pair in zip_longest(_numbers(one), _numbers(other)))


def _numbers(program: Program) -> Iterator[Any]:
    """The constants, the name of each operation, and its literals."""
    yield from program.constants
    for equation in program.equations:
        yield equation.name
        yield from (atom.val for atom in equation.inputs if not is_variable(atom))
        for body in equation.bodies:
            yield from _numbers(body)


def _is_same(one: Any, other: Any) -> bool:
    # Both traces close over the same arrays, unless each makes its own.
    if one is other:
        return True
    if isinstance(one, str) or isinstance(other, str):
        return type(one) is type(other) and bool(one == other)
    try:
        first, second = np.asarray(one), np.asarray(other)
    except TypeError:
        return type(one) is type(other)  # keys
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return first.dtype.kind not in "biufc" or first.tobytes() == second.tobytes()


def reached(program: Program, places: Collection[int]) -> set[int]:
    """The places of the outputs that depend on the inputs at some places.

    An equation with inner programs other than a call, such as a loop, is assumed to mix all of its
    inputs.
    """
    variables = {program.inputs[place] for place in places}
    for equation in program.equations:
        taken = {
            place
            for place, atom in enumerate(equation.inputs)
            if is_variable(atom) and atom in variables
        }
        if not taken:
            continue
        called = equation.called
        passes = called is not None and len(called.inputs) == len(equation.inputs)
        outputs = (
            reached(called, taken)
            if called is not None and passes
            else range(len(equation.outputs))
        )
        variables.update(equation.outputs[place] for place in outputs)
    return {
        place
        for place, atom in enumerate(program.outputs)
        if is_variable(atom) and atom in variables
    }
