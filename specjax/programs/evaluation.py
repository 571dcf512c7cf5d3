"""Programs run equation by equation, on arrays or on any other values."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import jax
from jax import lax

from specjax.programs.loops import scan, while_loop
from specjax.programs.program import Equation, Program, is_variable
from specjax.programs.unreadable import UnreadableProgramError

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
        apply: The values that an equation makes of those of its inputs.
        literal: The value of a number in the program.
    """
    variables = [*program.constant_variables, *program.inputs]
    values: dict[Any, V] = dict(zip(variables, [*constants, *arguments], strict=True))

    def read(atom: Any) -> V:
        return values[atom] if is_variable(atom) else literal(atom.val)

    for equation in program.equations:
        values.update(
            zip(
                equation.outputs,
                apply(equation, [read(atom) for atom in equation.inputs]),
                strict=True,
            )
        )
    return [read(atom) for atom in program.outputs]


def evaluate(
    program: Program, arguments: Sequence[Any], apply: Apply, enters: Enters = lambda _: False
) -> list[Any]:
    """The outputs of a program on arrays.

    Each equation is evaluated as it was traced: with 64 bits where it has any, whatever holds
    around the program. A function may have a scope of its own, `with jax.enable_x64(True)`, which
    would otherwise be lost in silence.

    Args:
        program: The program.
        arguments: Arrays.
        apply: The outputs of an equation; `equation.bind` gives its own.
        enters: Of which calls, loops and branches the programs inside are evaluated in this way
            too. What else has programs inside, or cannot be read, is applied as a whole.
    """

    def inside(body: Program, *operands: Any) -> list[Any]:
        return evaluate(body, operands, apply, enters)

    def outputs(equation: Equation, inputs: list[Any]) -> Sequence[Any]:
        with jax.enable_x64(equation.has_64_bits):
            found = _entered(equation, inputs, inside) if enters(equation) else None
            return apply(equation, inputs) if found is None else found

    return interpret(program, program.constants, arguments, outputs, lambda value: value)


def scoped(program: Program, shapes: Any) -> Callable[..., Any]:
    """The function of trees, returning one like `shapes`, that a program was traced from, with its
    scopes of 64 bits under `vmap` too.

    `vmap` of a jitted function, or of a `scan`, is applied when the scopes in it have ended: what
    it makes of 64 bits it makes in 32.
    """
    tree = jax.tree.structure(shapes)

    def function(*arguments: Any) -> Any:
        found = evaluate(
            program,
            jax.tree.leaves(arguments),
            _own,
            lambda equation: any(body.has_64_bits for body in equation.bodies),
        )
        return jax.tree.unflatten(tree, found)

    return function


def _own(equation: Equation, inputs: list[Any]) -> list[Any]:
    return equation.bind(*inputs)


def _entered(
    equation: Equation, inputs: list[Any], inside: Callable[..., list[Any]]
) -> list[Any] | None:
    """The outputs of a call, a loop or branches whose programs are evaluated by `inside`; None for
    what else there is.
    """
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
    return (
        turns.run(inputs, partial(inside, turns.test), partial(inside, turns.body))
        if turns
        else None
    )
