"""What the outputs of a program depend on: the numbers in it, by which two traces of one pure function are the same, and its inputs."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from specjax.programs.program import Program, is_variable


def numbers(program: Program) -> tuple[Any, ...]:
    """The names of all operations of a program in order, with its literals and constants, to be compared with those of another."""
    return tuple(_numbers(program))


def _numbers(program: Program) -> Iterator[Any]:
    for constant in program.constants:
        yield _plain(constant)
    for equation in program.equations:
        yield equation.name
        for atom in equation.inputs:
            if not is_variable(atom):
                yield _plain(atom.val)
        for body in equation.bodies:
            yield from _numbers(body)


def _plain(value: Any) -> Any:
    """A number as bytes, with its type; the type alone of what is no array of numbers, as a key."""
    try:
        array = np.asarray(value)
    except TypeError:
        return str(type(value))
    return (str(array.dtype), array.shape, array.tobytes()) if array.dtype.kind in "biufc" else str(array.dtype)


def reached(program: Program, places: Collection[int]) -> set[int]:
    """The places of the outputs that depend on the inputs at some places.

    What has programs in it but calls, as a loop, is taken to mix all of its inputs.
    """
    found = {program.inputs[place] for place in places}
    for equation in program.equations:
        taken = {place for place, atom in enumerate(equation.inputs) if is_variable(atom) and atom in found}
        if not taken:
            continue
        called = equation.called
        passes = called is not None and len(called.inputs) == len(equation.inputs)
        outputs = reached(called, taken) if called is not None and passes else range(len(equation.outputs))
        found.update(equation.outputs[place] for place in outputs)
    return {place for place, atom in enumerate(program.outputs) if is_variable(atom) and atom in found}
