"""Run programs equation by equation, on arrays or on other values."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
from jax import lax

from specjax.programs._loops import scan, while_loop
from specjax.programs._program import Equation, Program, is_variable
from specjax.programs._unreadable import UnreadableProgramError

V = TypeVar("V")
Apply = Callable[[Equation, list[Any]], Sequence[Any]]
Enters = Callable[[Equation], bool]


def interpret(
    program: Program,
    constants: Sequence[V],
    arguments: Sequence[V],
    apply: Callable[[Equation, list[V]], Sequence[V]],
    literal: Callable[[Any], V],
) -> list[V]:
    """The outputs of a program on values of any kind.

    Args:
        program: The program.
        constants: A value for each of its constant variables.
        arguments: A value for each of its inputs.
        apply: Maps an equation and the values of its inputs to those of its outputs.
        literal: Maps a number in the program to a value.
    """
    variables = [*program.constant_variables, *program.inputs]
    values: dict[Any, V] = dict(zip(variables, [*constants, *arguments], strict=True))

    def read(atom: Any) -> V:
        return values[atom] if is_variable(atom) else literal(atom.val)

    for equation in program.equations:
        outputs = apply(equation, [read(atom) for atom in equation.inputs])
        values.update(zip(equation.outputs, outputs, strict=True))
    return [read(atom) for atom in program.outputs]


def evaluate(
    program: Program, arguments: Sequence[Any], apply: Apply, enters: Enters = lambda _: False
) -> list[Any]:
    """The outputs of a program on arrays.

    Each equation is evaluated as it was traced: with 64 bits if it has any, whatever holds around
    the program. Otherwise a scope within the function, `with jax.enable_x64(True)`, would be lost
    in silence.

    Args:
        program: The program.
        arguments: Arrays.
        apply: The outputs of an equation; `equation.bind` gives its own.
        enters: Whether the programs inside a call, loop or branch are evaluated in this way too.
            Other equations with inner programs, and unreadable ones, are applied as a whole.
    """

    def inside(body: Program, *operands: Any) -> list[Any]:
        return evaluate(body, operands, apply, enters)

    def outputs(equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        with jax.enable_x64(equation.has_64_bits):
            found = _entered(equation, inputs, inside) if enters(equation) else None
            return apply(equation, inputs) if found is None else found

    return interpret(program, program.constants, arguments, outputs, lambda value: value)


def scoped(program: Program, shapes: Any) -> Callable[..., Any]:
    """The function that a program was traced from, whose 64-bit scopes survive `vmap`.

    It maps trees to a tree like `shapes`. JAX applies `vmap` to a jitted function, or to a `scan`,
    after the scopes in it have ended: there it would compute 64 bits in 32.
    """
    tree = jax.tree.structure(shapes)

    def function(*arguments: Any) -> Any:
        return jax.tree.unflatten(
            tree, evaluate(program, jax.tree.leaves(arguments), _bind, _has_64_bits_inside)
        )

    return function


def _bind(equation: Equation, inputs: list[Any]) -> list[Any]:
    return equation.bind(*inputs)


def _has_64_bits_inside(equation: Equation) -> bool:
    return any(body.has_64_bits for body in equation.bodies)


def _entered(
    equation: Equation, inputs: list[Any], inside: Callable[..., list[Any]]
) -> list[Any] | None:
    """The outputs of a call, loop or branches with their programs run by `inside`; else None."""
    try:
        called, branches = equation.called, equation.branches
        loop, turns = scan(equation), while_loop(equation)
    except UnreadableProgramError:
        return None
    if called:
        return inside(called, *inputs)
    if branches:
        index, *operands = inputs
        return lax.switch(index, [partial(inside, branch) for branch in branches], *operands)
    if loop:
        return loop.run(inputs, lambda _, operands: inside(loop.body, *operands))
    if turns:
        return turns.run(inputs, partial(inside, turns.test), partial(inside, turns.body))
    return None
