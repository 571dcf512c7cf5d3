"""A traced program as constants, inputs, equations and outputs, for every version of JAX."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax.extend import core

from specjax.programs._unreadable import UnreadableProgramError

# From 0.11 on ClosedJaxpr is an alias of Jaxpr, and may be removed.
_JAXPRS = tuple(getattr(core, name) for name in ("Jaxpr", "ClosedJaxpr") if hasattr(core, name))
_CALLS = frozenset(
    """
    jit pjit closed_call core_call checkpoint remat remat2 custom_jvp_call custom_vjp_call
    custom_vjp_call_jaxpr
    """.split()  # noqa: SIM905  (a list would have a line for each)
)
"""Primitives that run one program once, on their own inputs, by all names in supported versions."""


class Parameters(dict[str, Any]):
    """The parameters of an equation by name, mostly those of the function of `jax.lax`.

    Raises:
        UnreadableProgramError: on reading a parameter that the primitive lacks in this version of
            JAX.
    """

    def __init__(self, primitive: str, parameters: Mapping[str, Any]):
        super().__init__(parameters)
        self._primitive = primitive

    def __missing__(self, name: str) -> Any:
        raise UnreadableProgramError(f"the parameter {name!r} of the primitive {self._primitive!r}")


@dataclass(frozen=True, eq=False)
class Program:
    """A traced program (a jaxpr).

    Attributes:
        constants: The values of `constant_variables`, which the traced function closed over. An
            inner program may have constant variables without values.
    """

    _jaxpr: Any
    constants: tuple[Any, ...] = field(repr=False)

    @staticmethod
    def of(traced: Any) -> "Program":
        """The program of a `jax.stages.Traced`, or of a jaxpr, open or closed.

        Raises:
            UnreadableProgramError: it is neither in this version of JAX.
        """
        closed = traced.jaxpr if isinstance(traced, jax.stages.Traced) else traced
        jaxpr = getattr(closed, "jaxpr", closed)
        if not isinstance(jaxpr, _JAXPRS):
            raise UnreadableProgramError(f"a program of type {type(jaxpr).__name__}")
        return Program(jaxpr, tuple(getattr(closed, "consts", ())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self._jaxpr is other._jaxpr

    def __hash__(self) -> int:
        return id(self._jaxpr)

    @property
    def constant_variables(self) -> tuple[Any, ...]:
        """The variables of the constants."""
        return tuple(self._jaxpr.constvars)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The variables of the arguments."""
        return tuple(self._jaxpr.invars)

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The returned variables and literals."""
        return tuple(self._jaxpr.outvars)

    @cached_property
    def equations(self) -> tuple["Equation", ...]:
        """The equations in order."""
        return tuple(Equation.of(place, eqn) for place, eqn in enumerate(self._jaxpr.eqns))

    @cached_property
    def has_64_bits(self) -> bool:
        """Whether an equation has a 64-bit number among its inputs, outputs or inner programs."""
        return any(equation.has_64_bits for equation in self.equations)

    def __call__(self, *arguments: Any) -> list[Any]:
        """The outputs as a list, by JAX's own evaluation."""
        return list(jax.core.eval_jaxpr(self._jaxpr, self.constants, *arguments))


@dataclass(frozen=True, eq=False)
class Equation:
    """One operation of a program.

    Attributes:
        place: Its index in the program.
        name: The name of its primitive, such as "dot_general".
        inputs: Variables and literals; see `shape_of`, `dtype_of` and `is_variable`.
        outputs: Variables.
        parameters: By name.
    """

    place: int
    name: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    parameters: Parameters
    _eqn: Any = field(repr=False)

    @staticmethod
    def of(place: int, eqn: Any) -> "Equation":
        """The equation of a jaxpr."""
        try:
            name = str(eqn.primitive.name)
            inputs, outputs = tuple(eqn.invars), tuple(eqn.outvars)
            return Equation(place, name, inputs, outputs, Parameters(name, eqn.params), eqn)
        except AttributeError as error:
            raise UnreadableProgramError(f"an equation of type {type(eqn).__name__}") from error

    @cached_property
    def bodies(self) -> tuple[Program, ...]:
        """The programs in its parameters: of a call, a loop, branches, or a reduction."""
        return tuple(map(Program.of, _jaxprs(self.parameters.values())))

    @cached_property
    def called(self) -> Program | None:
        """The program that the equation runs once on its inputs (`jit`, `remat`, custom
        derivatives), or None.

        It may be evaluated in place of the equation.
        """
        return self.bodies[0] if self.name in _CALLS and self.bodies else None

    @cached_property
    def wrapped(self) -> Program | None:
        """The program that the equation runs on its inputs, judged by its shapes; for reading only.

        An unknown equation may do more than run it: a function with a `vmap` rule would lose the
        rule.
        """
        if self.called or len(self.bodies) != 1 or self.name in ("scan", "while", "cond"):
            return self.called
        (body,) = self.bodies
        # The program of a shard has smaller arrays. The operation of a reduction has scalar shapes.
        is_run = (
            _alike(body.inputs, self.inputs)
            and _alike(body.outputs, self.outputs)
            and any(map(shape_of, body.inputs))
        )
        return body if is_run or self.name == "shard_map" else None

    @cached_property
    def branches(self) -> tuple[Program, ...]:
        """The programs of a `cond`, one of which runs on all inputs but the first; else empty."""
        return tuple(map(Program.of, self.parameters["branches"])) if self.name == "cond" else ()

    @property
    def is_by_platform(self) -> bool:
        """Whether its branches are versions for platforms (`lax.platform_dependent`)."""
        return "branches_platforms" in self.parameters

    @cached_property
    def has_64_bits(self) -> bool:
        """Whether it has a 64-bit number in its inputs, its outputs, or an inner program."""
        return any(map(_is_64_bit, (*self.inputs, *self.outputs))) or any(
            body.has_64_bits for body in self.bodies
        )

    def bind(self, *values: Any) -> list[Any]:
        """The outputs of the operation itself, in the scope of 64 bits in which it was traced.

        It is wrapped in a program of its own, since calling a primitive depends on the version of
        JAX.

        Raises:
            UnreadableProgramError: this version of JAX makes programs in an unknown way.
        """
        given = {
            atom: value
            for atom, value in zip(self.inputs, values, strict=True)
            if is_variable(atom)
        }
        try:
            debug = core.DebugInfo(
                "specjax", self.name, ("",) * len(given), ("",) * len(self.outputs)
            )
            alone = core.Jaxpr([], [*given], [*self.outputs], [self._eqn], self._eqn.effects, debug)
            call = core.jaxpr_as_fun(_JAXPRS[-1](alone, []))
        except (AttributeError, TypeError) as error:
            raise UnreadableProgramError(
                f"the primitive {self.name!r} as a program of its own"
            ) from error
        with jax.enable_x64(self.has_64_bits):
            return list(call(*given.values()))


def trace(function: Callable[..., Any], *arguments: Any) -> tuple[Program, Any]:
    """The program of a function at arguments, and the tree of the shapes it returns."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return Program.of(closed), shapes


def is_traced(value: object) -> bool:
    """Whether JAX is tracing a value, so that only its shape and dtype are known."""
    return isinstance(value, jax.core.Tracer)


def is_variable(atom: Any) -> bool:
    """Whether an input of an equation or output of a program is a variable, not a literal."""
    return not isinstance(atom, core.Literal)


def shape_of(atom: Any) -> tuple[Any, ...]:
    """The shape of a variable or literal; () for a token or another without one."""
    return tuple(getattr(atom.aval, "shape", ()))


def dtype_of(atom: Any) -> Any:
    """The dtype of a variable or literal; None if it has none."""
    return getattr(atom.aval, "dtype", None)


def _alike(ones: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Whether two lists of atoms have the same shapes and dtypes."""
    kinds = [[(shape_of(atom), dtype_of(atom)) for atom in atoms] for atoms in (ones, others)]
    return kinds[0] == kinds[1]


def _is_64_bit(atom: Any) -> bool:
    dtype = dtype_of(atom)
    # NumPy does not know the dtype of a key. A complex number has two parts.
    return isinstance(dtype, np.dtype) and dtype.itemsize >= (16 if dtype.kind == "c" else 8)


def _jaxprs(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, _JAXPRS):
            yield value
        elif isinstance(value, tuple | list):
            yield from _jaxprs(value)
