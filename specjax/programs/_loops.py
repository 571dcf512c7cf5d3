"""The loops of programs: their bodies, and how many inputs are constants or carried.

Each spelling of a `scan` is one function of `_SPELLINGS`; add new ones there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

from specjax.programs._program import Equation, Parameters, Program, shape_of
from specjax.programs._unreadable import UnreadableProgramError


@dataclass(frozen=True)
class Scan:
    """A `lax.scan`: `body` maps (constants, carry, entries of xs) to (carry, entries of ys).

    `consts` and `carry` count the inputs of the body.
    """

    consts: int
    carry: int
    body: Program
    length: int
    reverse: bool

    def split(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """The inputs of the equation as constants, initial carry, and xs."""
        end = self.consts + self.carry
        return [*inputs[: self.consts]], [*inputs[self.consts : end]], [*inputs[end:]]

    def run(
        self, inputs: Sequence[Any], step: Callable[[Any, list[Any]], Sequence[Any]]
    ) -> list[Any]:
        """The outputs of the loop whose body is `step(index, inputs)`; `index` counts from 0."""
        consts, start, xs = self.split(inputs)

        def one(carry: list[Any], given: tuple[Any, list[Any]]) -> tuple[list[Any], list[Any]]:
            index, entries = given
            outputs = [*step(index, [*consts, *carry, *entries])]
            return outputs[: self.carry], outputs[self.carry :]

        indices = jnp.arange(self.length, dtype=jnp.uint32)
        carry, ys = lax.scan(one, start, (indices, xs), self.length, self.reverse)
        return [*carry, *ys]


@dataclass(frozen=True)
class While:
    """A `lax.while_loop`; constants of `test`, then of `body`, precede the carry in its inputs."""

    test_consts: int
    body_consts: int
    test: Program
    body: Program

    def split(self, inputs: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """The inputs as constants of the test, constants of the body, and initial carry."""
        end = self.test_consts + self.body_consts
        return [*inputs[: self.test_consts]], [*inputs[self.test_consts : end]], [*inputs[end:]]

    def run(
        self,
        inputs: Sequence[Any],
        test: Callable[..., Sequence[Any]],
        body: Callable[..., Sequence[Any]],
    ) -> list[Any]:
        """The outputs of the loop with `test` and `body` in place of its programs."""
        test_consts, body_consts, start = self.split(inputs)

        def test_carry(carry: list[Any]) -> Any:
            return test(*test_consts, *carry)[0]

        def step(carry: list[Any]) -> list[Any]:
            return [*body(*body_consts, *carry)]

        if not shape_of(self.test.outputs[0]):
            return lax.while_loop(test_carry, step, start)

        # Under a `vmap` the loop has a test for each member. It ends with the last, and a member
        # that has ended keeps its values.
        def step_unfinished(carry: list[Any]) -> list[Any]:
            on, new = test_carry(carry), step(carry)
            rows = [on.reshape(on.shape + (1,) * (a.ndim - on.ndim)) for a in carry]
            return [jnp.where(row, b, a) for row, a, b in zip(rows, carry, new, strict=True)]

        return lax.while_loop(lambda carry: jnp.any(test_carry(carry)), step_unfinished, start)


def scan(equation: Equation) -> Scan | None:
    """The scan of an equation; None if it is not a scan.

    Raises:
        UnreadableProgramError: JAX spells it in an unknown way.
    """
    if equation.name != "scan":
        return None
    parameters = equation.parameters
    lengths = next(
        (found for spelling in _SPELLINGS if (found := spelling(parameters)) is not None), None
    )
    if lengths is None:
        raise UnreadableProgramError(
            f"the primitive 'scan' with the parameters {', '.join(parameters)}"
        )
    consts, carry = lengths
    return Scan(
        consts, carry, Program.of(parameters["jaxpr"]), parameters["length"], parameters["reverse"]
    )


def while_loop(equation: Equation) -> While | None:
    """The while loop of an equation; None if it is not one."""
    if equation.name != "while":
        return None
    given = equation.parameters
    test, body = Program.of(given["cond_jaxpr"]), Program.of(given["body_jaxpr"])
    return While(given["cond_nconsts"], given["body_nconsts"], test, body)


def _by_numbers(parameters: Parameters) -> tuple[int, int] | None:
    """JAX 0.10: two counts."""
    if "num_consts" in parameters and "num_carry" in parameters:
        return parameters["num_consts"], parameters["num_carry"]
    return None


def _by_trees(parameters: Parameters) -> tuple[int, int] | None:
    """JAX 0.11 and later: a tree of the inputs, whose three parts are constants, carry and xs."""
    unpack = getattr(parameters.get("ft_in"), "unpack", tuple)
    lengths = [len(part.vals) for part in unpack() if hasattr(part, "vals")]
    return (lengths[0], lengths[1]) if len(lengths) == 3 else None


_SPELLINGS = (_by_numbers, _by_trees)
