"""Bytes that a program reads and writes once XLA has fused it, estimated from its jaxpr.

XLA's own analysis before compilation counts every operation by itself, and a polynomial of an array then costs as many passes over memory
as it has terms. Here an elementwise operation is free, and what counts is what must stand in memory: the operands and results of
products, decompositions, sorts, gathers and loops, and what is read from there.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jax.extend import core

# XLA fuses them with what makes their operands, but not with what uses their results.
_REDUCTIONS = frozenset(
    {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin"}
)
# Their operands and results stand in memory, and those of calls with a body, loops for instance. What is neither here nor a reduction is
# taken for elementwise, a broadcast or a change of shape.
_IN_MEMORY = frozenset(
    {
        "dot_general",
        "conv_general_dilated",
        "cholesky",
        "eig",
        "eigh",
        "fft",
        "householder_product",
        "geqrf",
        "lu",
        "qr",
        "svd",
        "schur",
        "triangular_solve",
        "sort",
        "top_k",
        "gather",
        "scatter",
        "scatter-add",
        "cumsum",
        "cumprod",
        "cummax",
        "cummin",
        "cumlogsumexp",
        "pure_callback",
        "ffi_call",
    }
)
# What XLA inlines, by the parameter that holds the body.
INLINED = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


@dataclass
class _Value:
    """One intermediate: its bytes, whether they stand in memory, and whether fused operations have read them from there."""

    size: int
    stored: bool = False
    read: bool = False

    def write(self) -> int:
        """The bytes to have it in memory: none if it is there."""
        written = 0 if self.stored else self.size
        self.stored = True
        return written

    def fetch(self) -> int:
        """The bytes of the one pass that fused operations make over it: none if it is computed on the way."""
        fetched = self.size if self.stored and not self.read else 0
        self.read = self.read or self.stored
        return fetched


def traffic(jaxpr: core.Jaxpr) -> float:
    """The bytes that one evaluation of `jaxpr` reads and writes: a scan as often as it is long, a while loop once."""
    values = {v: _Value(size(v.aval), stored=True) for v in (*jaxpr.invars, *jaxpr.constvars)}
    total = _inside(jaxpr, values)
    return total + sum(_of(v, values).write() for v in jaxpr.outvars)


def _inside(jaxpr: core.Jaxpr, values: dict[core.Var, _Value]) -> float:
    """Of the equations of `jaxpr`; enters what they compute into `values`."""
    total = 0.0
    for eqn in jaxpr.eqns:
        operands = [_of(v, values) for v in eqn.invars]
        name = eqn.primitive.name
        if name in INLINED:
            body = eqn.params[INLINED[name]].jaxpr
            inner = dict(zip(body.invars, operands, strict=True))
            inner |= {v: _Value(size(v.aval), stored=True) for v in body.constvars}
            total += _inside(body, inner)
            values |= {v: _of(w, inner) for v, w in zip(eqn.outvars, body.outvars, strict=True)}
            continue
        results = [_Value(size(v.aval)) for v in eqn.outvars]
        values |= dict(zip(eqn.outvars, results, strict=True))
        bodies = [traffic(body) for body in bodies_of(eqn)]
        if name in _IN_MEMORY or bodies:
            total += sum(v.write() + v.size for v in operands) + sum(v.write() for v in results)
            total += eqn.params.get("length", 1) * sum(bodies)
        else:
            total += sum(v.fetch() for v in operands)
            total += sum(v.write() for v in results) if name in _REDUCTIONS else 0
    return total


def _of(atom: object, values: dict[core.Var, _Value]) -> _Value:
    """The value of a variable; a literal is free."""
    return values[atom] if isinstance(atom, core.Var) else _Value(0)


def bodies_of(eqn: core.JaxprEqn) -> Iterator[core.Jaxpr]:
    """The jaxprs among the parameters of an equation."""
    for parameter in eqn.params.values():
        for candidate in parameter if isinstance(parameter, tuple | list) else (parameter,):
            if isinstance(candidate, core.ClosedJaxpr):
                yield candidate.jaxpr
            elif isinstance(candidate, core.Jaxpr):
                yield candidate


def size(aval: object) -> int:
    """Bytes of an array; a key counts as the two words of its data; tokens and the like have no shape."""
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return int(np.prod(shape)) * getattr(dtype, "itemsize", 0)
