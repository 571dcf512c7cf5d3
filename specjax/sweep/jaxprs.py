"""Programs evaluated operation by operation."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend import core

INLINED = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""What XLA inlines, by the parameter that holds the body."""

Results = Callable[[core.JaxprEqn, list[Any], core.Jaxpr], Sequence[Any]]
"""The results of an operation on its operands, within a program."""


def evaluate(jaxpr: core.Jaxpr, consts: Sequence[Any], arguments: Sequence[Any], results: Results) -> list[Any]:
    """The outputs of a program whose operations give `results`.

    Each operation is evaluated as it was traced: with 64 bits where it has any, whatever holds around the program. A measurement may have
    a scope of its own, `with jax.enable_x64(True)`, which would otherwise be lost in silence.
    """
    values: dict[core.Var, Any] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for eqn in jaxpr.eqns:
        with jax.enable_x64(_has_64_bits(eqn)):
            found = results(eqn, [read(atom) for atom in eqn.invars], jaxpr)
        values |= dict(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _has_64_bits(eqn: core.JaxprEqn) -> bool:
    dtypes = (getattr(atom.aval, "dtype", None) for atom in (*eqn.invars, *eqn.outvars))
    # Complex numbers of 128 bits are two of 64; keys have dtypes of their own, which NumPy does not know.
    if any(
        isinstance(dtype, np.dtype) and (dtype.itemsize == 16 or (dtype.itemsize == 8 and dtype.kind != "c"))
        for dtype in dtypes
    ):
        return True
    return any(_has_64_bits(inner) for body in core.jaxprs_in_params(eqn.params) for inner in body.eqns)


def unchanged(eqn: core.JaxprEqn, operands: list[Any], within: core.Jaxpr) -> list[Any]:
    """The results of the operation itself."""
    given = {atom: value for atom, value in zip(eqn.invars, operands, strict=True) if isinstance(atom, core.Var)}
    alone = core.Jaxpr((), [*given], eqn.outvars, [eqn], eqn.effects, within.debug_info.with_unknown_names())
    return core.jaxpr_as_fun(core.ClosedJaxpr(alone, ()))(*given.values())
