"""Matrices that a measurement hands to LAPACK, one after the other.

Batched calls may wait for each other and never return, in one program or in calls side by side (`specjax.spectral.one_by_one`). So
`in_turn` evaluates a measurement's own program with every decomposition, also those in loops and branches, taken for one matrix at a time.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from specjax.spectral.one_by_one import DECOMPOSITIONS, decomposes, one_by_one
from specjax.sweep.jaxprs import INLINED, evaluate, unchanged


def in_turn(traced: jax.stages.Traced) -> Callable[..., Any]:
    """The function that was traced, in which LAPACK never gets a batch on a CPU, of its own or of a `vmap` around it."""
    closed, tree = traced.jaxpr, jax.tree.structure(traced.out_info)
    body = partial(_body, closed) if decomposes(closed.jaxpr) else core.jaxpr_as_fun(closed)
    return lambda *arguments: jax.tree.unflatten(tree, body(*jax.tree.leaves(arguments)))


def _results(eqn: core.JaxprEqn, operands: list[Any], within: core.Jaxpr) -> Sequence[Any]:
    name, params = eqn.primitive.name, eqn.params
    if name in DECOMPOSITIONS and name != "ffi_call":
        return _each(eqn, operands)
    if name == "ffi_call" or any(map(decomposes, core.jaxprs_in_params(params))):
        if name in INLINED:
            return _body(params[INLINED[name]], *operands)
        if name == "scan":
            return _scan(params, operands)
        if name == "while":
            return _while(params, operands)
        if name == "cond":
            index, *chosen_from = operands
            return lax.switch(index, [partial(_body, branch) for branch in params["branches"]], *chosen_from)
        if name == "custom_linear_solve":
            lengths, behind = params["const_lengths"], sum(params["const_lengths"])
            before = lengths.matvec + lengths.vecmat
            return _body(params["jaxprs"].solve, *operands[before : before + lengths.solve], *operands[behind:])
        # What is inside cannot be seen to: then the whole of it in turn.
        return one_by_one(lambda *values: unchanged(eqn, [*values], within), *operands)
    return unchanged(eqn, operands, within)


def _each(eqn: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
    def one(*matrices: Any) -> tuple[Any, ...]:
        found = eqn.primitive.bind(*matrices, **eqn.params)
        return tuple(found) if eqn.primitive.multiple_results else (found,)

    each = partial(one_by_one, one)
    for _ in range(operands[0].ndim - 2):
        each = jax.vmap(each)
    return each(*operands)


def _body(body: core.ClosedJaxpr, *operands: Any) -> list[Any]:
    return evaluate(body.jaxpr, body.consts, operands, _results)


def _scan(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    consts, carried = params["num_consts"], params["num_carry"]

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        outputs = _body(params["jaxpr"], *operands[:consts], *carry, *xs)
        return outputs[:carried], outputs[carried:]

    start, xs = operands[consts : consts + carried], operands[consts + carried :]
    carry, ys = lax.scan(step, start, xs, params["length"], params["reverse"])
    return [*carry, *ys]


def _while(params: dict[str, Any], operands: list[Any]) -> list[Any]:
    of_test, of_body = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]

    def goes_on(carry: list[Any]) -> Any:
        return _body(params["cond_jaxpr"], *operands[:of_test], *carry)[0]

    def step(carry: list[Any]) -> list[Any]:
        return _body(params["body_jaxpr"], *operands[of_test:of_body], *carry)

    if not params["cond_jaxpr"].out_avals[0].shape:
        return lax.while_loop(goes_on, step, operands[of_body:])

    # Under a `vmap` of the user's the loop has a test for each member. It ends with the last one, and who has ended stays as it is.
    def step_of_those_left(carry: list[Any]) -> list[Any]:
        on, new = goes_on(carry), step(carry)
        return [
            jnp.where(on.reshape(on.shape + (1,) * (a.ndim - on.ndim)), b, a) for a, b in zip(carry, new, strict=True)
        ]

    return lax.while_loop(lambda carry: jnp.any(goes_on(carry)), step_of_those_left, operands[of_body:])
