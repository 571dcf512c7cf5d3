"""A program read once, without a number: what its parameters are used for, through calls, branches and loops."""

from collections.abc import Hashable, Sequence
from typing import Any

from jax.extend import core

from specjax.diagnostics.layout.ends import use_up
from specjax.diagnostics.layout.pieces import dropped, fitted, unknown, whole
from specjax.diagnostics.layout.rules import apply
from specjax.diagnostics.layout.uses import Uses, leaf
from specjax.diagnostics.layout.values import Value, distinct, from_all


def uses_in(closed: core.ClosedJaxpr, parameters: int, *, constants_are_data: bool) -> Uses:
    """The uses of the first `parameters` arguments of a program; the others are data, and so may be its constants."""
    uses = Uses()
    jaxpr = closed.jaxpr
    arguments = []
    for number, var in enumerate(jaxpr.invars):
        shape = _shape(var)
        arguments.append(
            Value(shape, (whole(leaf(number), shape),)) if number < parameters else Value(shape, data=True)
        )
    constants = [Value(_shape(var), data=constants_are_data and bool(_shape(var))) for var in jaxpr.constvars]
    for value in read(jaxpr, constants, arguments, uses, ()):
        if value.is_parameter:
            use_up(value, "statistic", uses, "the loss")
    return uses


def read(
    jaxpr: core.Jaxpr, constants: Sequence[Value], arguments: Sequence[Value], uses: Uses, place: tuple[Hashable, ...]
) -> list[Value]:
    """The outputs of a program; `place` says where it is called."""
    values: dict[Any, Value] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def value(atom: Any) -> Value:
        return Value(_shape(atom)) if isinstance(atom, core.Literal) else values[atom]

    for number, eqn in enumerate(jaxpr.eqns):
        outputs = _outputs(eqn, [value(atom) for atom in eqn.invars], uses, (*place, number))
        values.update(zip(eqn.outvars, outputs, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _outputs(eqn: core.JaxprEqn, values: list[Value], uses: Uses, place: tuple[Hashable, ...]) -> list[Value]:
    name = eqn.primitive.name
    if name == "scan":
        return _scan(eqn, values, uses, place)
    if name == "while":
        return _while(eqn, values, uses, place)
    if name == "cond":
        branches = [_called(b, values[1:], uses, (*place, i)) for i, b in enumerate(eqn.params["branches"])]
        return [_joined(list(results), uses, place) for results in zip(*branches, strict=True)]
    programs = [p for p in eqn.params.values() if isinstance(p, core.Jaxpr | core.ClosedJaxpr)]
    if len(programs) == 1 and len(_open(programs[0]).invars) == len(values):
        shapes = [_shape(var) for var in eqn.outvars]
        # The program of one shard has smaller axes than the whole.
        return [_of_shape(v, s) for v, s in zip(_called(programs[0], values, uses, place), shapes, strict=True)]
    return apply(eqn, values, uses, place)


def _called(
    program: core.Jaxpr | core.ClosedJaxpr, values: Sequence[Value], uses: Uses, place: tuple[Hashable, ...]
) -> list[Value]:
    jaxpr = _open(program)
    arguments = [_of_shape(v, _shape(var)) for v, var in zip(values, jaxpr.invars, strict=True)]
    return read(jaxpr, [Value(_shape(var)) for var in jaxpr.constvars], arguments, uses, place)


def _scan(eqn: core.JaxprEqn, values: list[Value], uses: Uses, place: tuple[Hashable, ...]) -> list[Value]:
    first, last = eqn.params["num_consts"], eqn.params["num_consts"] + eqn.params["num_carry"]
    constants, carry = values[:first], values[first:last]
    slices = [v.of(v.shape[1:], [dropped(term, [0], "scan") for term in v.terms]) for v in values[last:]]
    carry, collected = _repeated(eqn.params["jaxpr"], constants, carry, slices, uses, place)
    length = eqn.params["length"]
    stacked = [
        v.of((length, *v.shape), [term._replace(axes=(unknown(length), *term.axes)) for term in v.terms])
        for v in collected
    ]
    return [*carry, *stacked]


def _while(eqn: core.JaxprEqn, values: list[Value], uses: Uses, place: tuple[Hashable, ...]) -> list[Value]:
    first = eqn.params["cond_nconsts"]
    last = first + eqn.params["body_nconsts"]
    carry, _ = _repeated(eqn.params["body_jaxpr"], values[first:last], values[last:], [], uses, place)
    return carry


def _repeated(
    body: core.ClosedJaxpr,
    constants: list[Value],
    carry: list[Value],
    slices: list[Value],
    uses: Uses,
    place: tuple[Hashable, ...],
) -> tuple[list[Value], list[Value]]:
    """The carried and the collected values of a loop: its body is read until what it carries does not change."""
    recorded = dict(uses.found)
    while True:
        # What an earlier reading recorded may take an activation for a constant.
        uses.found = dict(recorded)
        outputs = _called(body, [*constants, *carry, *slices], uses, place)
        after, collected = outputs[: len(carry)], outputs[len(carry) :]
        in_body, uses.found = uses.found, recorded
        joined = [_carried(a, b, uses, (*place, i)) for i, (a, b) in enumerate(zip(carry, after, strict=True))]
        uses.found = {**in_body, **recorded}
        if joined == carry:
            return carry, collected
        carry = joined


def _carried(before: Value, after: Value, uses: Uses, place: Hashable) -> Value:
    """A value that a loop carries: a parameter that stays, or an activation of which no more is known than its uses."""
    joined = _joined([before, after], uses, place)
    return joined._replace(terms=tuple(joined.parameters()), behind=0, before=0, earlier=joined.uses())


def _joined(values: list[Value], uses: Uses, place: Hashable) -> Value:
    """One of several values."""
    if any(v.data and not v.is_parameter for v in values):
        values = [use_up(v, "joined", uses, place, "a branch or a loop") if v.is_parameter else v for v in values]
    return from_all(values, values[0].shape, distinct(term for value in values for term in value.terms))


def _of_shape(value: Value, shape: tuple[int, ...]) -> Value:
    if value.shape == shape or len(value.shape) != len(shape):
        return value._replace(shape=shape)
    return value.of(shape, [fitted(term, shape) for term in value.terms])


def _open(program: core.Jaxpr | core.ClosedJaxpr) -> core.Jaxpr:
    return program.jaxpr if isinstance(program, core.ClosedJaxpr) else program


def _shape(atom: Any) -> tuple[int, ...]:
    return tuple(getattr(atom.aval, "shape", ()))
