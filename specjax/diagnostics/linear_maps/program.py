"""The linear maps of a model, found in its program: every product of a parameter with something that is not one.

The loss is traced once and evaluated operation by operation. What is made of parameters alone is followed (`terms`); where it enters a
product W A with other values A, the map W and its inputs A are recorded (`uses`). No cooperation of the model is needed, and the names
are the paths of the parameters in their tree.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array

from specjax.diagnostics.layout.program import uses_in
from specjax.diagnostics.layout.rows import row
from specjax.diagnostics.linear_maps.linear_map import LinearMap
from specjax.diagnostics.linear_maps.terms import (
    Made,
    Term,
    broadcast,
    moved,
    multiplied,
    parameter,
    side_by_side,
    times,
)
from specjax.diagnostics.linear_maps.uses import of_convolution, of_lookup, of_product, of_ragged_product, picked

_LAYOUT = frozenset({"transpose", "reshape", "squeeze", "expand_dims", "slice", "dynamic_slice", "rev", "copy"})
"""Primitives that move the entries of their first operand and change none."""
_CONVERSION = frozenset({"convert_element_type", "reduce_precision", "optimization_barrier", "name"})
_SCALING = frozenset({"mul", "div", "neg"})
_SUMS = frozenset({"add", "sub"})
"""Primitives after which what a map gives is still there to be multiplied by a number, beside a bias or a residual stream."""
_ELEMENTWISE = (
    _SCALING
    | _SUMS
    | {"sqrt", "rsqrt", "square", "integer_pow", "pow", "abs", "max", "min", "exp", "log", "tanh", "logistic", "sign"}
)
"""Primitives that repeat what their operands repeat; what others give may vary along every axis."""
_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
)


class _Product(NamedTuple):
    """A value that is what the maps at `places` give, times a number and beside what was added to it."""

    places: tuple[int, ...]


_Origin = Made | _Product | None
"""What a value is: made of parameters and constants, what maps give, or something else that depends on data."""


def linear_maps(loss: Callable[[Sequence[Array]], Array], leaves: Sequence[Array]) -> list[LinearMap]:
    """The maps of `loss` in the order of their first use; uses of the same matrix share one entry, with all their inputs.

    All branches of a `cond` are evaluated, and inputs in those that are not taken are zero. Not seen are maps inside `while_loop`, which
    has no derivative in reverse mode, and inside `shard_map`. To be called under `jax.jit`, as a scan over layers is unrolled.
    """
    closed, shape = jax.make_jaxpr(loss, return_shape=True)(list(leaves))
    if getattr(shape, "shape", None) != ():
        raise ValueError(f"The model must return one number, its loss, got {shape}.")
    found: list[LinearMap] = []
    parameters = [
        parameter(i, x.ndim, counted)
        for i, (x, counted) in enumerate(zip(leaves, _counted(closed, leaves), strict=True))
    ]
    _evaluate(closed.jaxpr, closed.consts, leaves, parameters, found)
    return _merged(found)


def _counted(closed: core.ClosedJaxpr, leaves: Sequence[Array]) -> list[frozenset[int]]:
    """The axes of each leaf that count matrices by its layout, as those of experts that a product sums over."""
    uses = uses_in(closed, len(leaves), constants_are_data=True)
    rows = [row("", i, x.shape, uses, real=True) for i, x in enumerate(leaves)]
    return [
        frozenset(axis for axis, role in enumerate(found.axes) if role == "batch") if found else frozenset()
        for found in rows
    ]


def _evaluate(
    jaxpr: core.Jaxpr,
    consts: Sequence[Any],
    arguments: Sequence[Any],
    followed: Sequence[_Origin],
    found: list[LinearMap],
) -> tuple[list[Any], list[_Origin]]:
    """The outputs of a program and what they are, and on the way its linear maps."""
    values: dict[Any, Any] = {}
    origins: dict[Any, _Origin] = {}

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    def origin(atom: Any) -> _Origin:
        return Made() if isinstance(atom, core.Literal) else origins[atom]

    values.update(zip(jaxpr.constvars, consts, strict=True))
    # An array that the loss closes over may be a batch.
    origins.update((var, None if np.shape(const) else Made()) for var, const in values.items())
    for var, argument, source in zip(jaxpr.invars, arguments, followed, strict=True):
        values[var], origins[var] = argument, source
    for eqn in jaxpr.eqns:
        inputs, sources = [value(a) for a in eqn.invars], [origin(a) for a in eqn.invars]
        outputs, results = _apply(eqn, inputs, sources, found)
        for var, output, result in zip(eqn.outvars, outputs, results, strict=True):
            values[var], origins[var] = output, result
    return [value(a) for a in jaxpr.outvars], [origin(a) for a in jaxpr.outvars]


def _apply(
    eqn: core.JaxprEqn, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    name, of_parameters = eqn.primitive.name, any(map(_has_terms, origins))
    has_product = any(isinstance(origin, _Product) for origin in origins)
    if name in _CALLS and (of_parameters or has_product):
        inner = next(eqn.params[p] for p in ("jaxpr", "call_jaxpr", "fun_jaxpr") if p in eqn.params)
        program, consts = (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, ())
        return _evaluate(program, consts, inputs, origins, found)
    if name == "scan" and of_parameters:
        return _unrolled(eqn, inputs, origins, found)
    if name == "cond" and of_parameters:
        return _branches(eqn, inputs, origins, found)
    outputs = _bound(eqn, inputs)
    uses = _uses(eqn, inputs, origins) if of_parameters else []
    if uses:
        found.extend(uses)
        product = _Product(tuple(range(len(found) - len(uses), len(found))))
        return outputs, [product, *[None] * (len(outputs) - 1)]
    if has_product:
        # A bias, or a gain, which is no number.
        kept: list[_Origin] = [_still(eqn, inputs, origins, found), *[None] * len(outputs)]
        return outputs, kept[: len(outputs)]
    return outputs, [_made(eqn, i, inputs, origins, output) for i, output in enumerate(outputs)]


def _has_terms(origin: _Origin) -> bool:
    return isinstance(origin, Made) and bool(origin.terms)


def _uses(eqn: core.JaxprEqn, inputs: list[Any], origins: list[_Origin]) -> list[LinearMap]:
    """The maps of an operation in which a value made of parameters meets one that is not."""
    name, sides = eqn.primitive.name, [i for i, origin in enumerate(origins) if _has_terms(origin)]
    made = origins[sides[0]]
    assert isinstance(made, Made)
    if name == "dot_general" and len(sides) == 1:
        return of_product(eqn, made, sides[0], inputs[1 - sides[0]])
    if name == "gather" and sides == [0]:
        return of_lookup(eqn, inputs[0], inputs[1], made)
    if name == "ragged_dot_general" and sides == [1]:
        return of_ragged_product(eqn, inputs, made)
    if name == "conv_general_dilated" and sides == [1]:
        return of_convolution(eqn, inputs[0], made)
    return []


def _made(eqn: core.JaxprEqn, place: int, inputs: list[Any], origins: list[_Origin], output: Any) -> Made | None:
    """What an operation without products makes of values; None if that depends on data. `place` is that of the output."""
    name, first = eqn.primitive.name, origins[0] if origins else None
    # A number from data, as a temperature, leaves a matrix a matrix.
    made = [Made() if origin is None and not np.shape(x) else origin for x, origin in zip(inputs, origins, strict=True)]
    all_made = [origin for origin in made if isinstance(origin, Made)]
    if isinstance(first, Made) and name in _CONVERSION:
        # The gradient of a parameter is not rounded to the precision of the product.
        return first
    if isinstance(first, Made) and name in _LAYOUT | {"broadcast_in_dim", "split", "gather"}:
        found = (
            picked(eqn, inputs[0], inputs[1], first)
            if name == "gather"
            else _rearranged(eqn, place, inputs, first, output)
        )
        return None if None in origins and not found.terms else found
    if len(all_made) < len(made) or (None in origins and name not in _SCALING):
        return None
    if name == "dot_general":
        return _product_of_parameters(eqn, inputs, all_made)
    if name == "concatenate":
        return Made(side_by_side(all_made, [x.shape for x in inputs], eqn.params["dimension"]))
    if name not in _ELEMENTWISE:
        return Made()
    repeats = _repeats(inputs, all_made, len(np.shape(output)))
    if name in _SUMS:
        return Made(_sum(eqn, inputs, all_made, output), repeats)
    if name in _SCALING:
        return Made(_scaled(eqn, inputs, all_made, output), repeats)
    return Made((), repeats)


def _repeats(inputs: list[Any], made: list[Made], rank: int) -> frozenset[int]:
    """The axes along which no operand varies."""
    constant = [
        {axis for axis, size in enumerate(np.shape(x)) if size == 1 or axis in m.repeats}
        for x, m in zip(inputs, made, strict=True)
        if np.shape(x)
    ]
    return frozenset(range(rank)).intersection(*constant)


def _rearranged(eqn: core.JaxprEqn, place: int, inputs: list[Any], made: Made, output: Array) -> Made:
    name, before = eqn.primitive.name, np.shape(inputs[0])
    # Slices at computed places are never taken for the same matrix.
    signature = (str(sorted(eqn.params.items(), key=str)), place, *([object()] if inputs[1:] else []))
    if name == "broadcast_in_dim":
        dimensions = [int(axis) for axis in eqn.params["broadcast_dimensions"]]
        terms = tuple(broadcast(term, before, output.shape, dimensions) for term in made.terms)
        kept = {p for axis, p in enumerate(dimensions) if axis not in made.repeats and before[axis] == output.shape[p]}
        return Made(terms, frozenset(range(output.ndim)) - kept)

    def operation(leaf: Array) -> Array:
        return _bound(eqn, [leaf, *inputs[1:]])[place]

    moves = [moved(term, operation, before, output.shape, eqn, signature) for term in made.terms]
    order = eqn.params["permutation"] if name == "transpose" else ()
    repeats = frozenset(place for place, axis in enumerate(order) if axis in made.repeats)
    return Made(tuple(term for term in moves if term), repeats)


def _product_of_parameters(eqn: core.JaxprEqn, inputs: list[Any], made: list[Made]) -> Made:
    contracted, batch = eqn.params["dimension_numbers"]
    return Made(
        tuple(
            multiplied(term, side, inputs[1 - side], contracted, batch)
            for side in (0, 1)
            for term in made[side].terms
            if term.covers(inputs[side].shape)
        )
    )


def _sum(eqn: core.JaxprEqn, inputs: list[Any], made: list[Made], output: Array) -> tuple[Term, ...]:
    """The terms of both; what is added along other axes is a bias of a parameter."""
    return tuple(
        _times(term, -1.0) if side == 1 and eqn.primitive.name == "sub" else term
        for side, (x, m) in enumerate(zip(inputs, made, strict=True))
        for term in m.terms
        if np.shape(x) == output.shape and term.covers(output.shape)
    )


def _scaled(eqn: core.JaxprEqn, inputs: list[Any], made: list[Made], output: Array) -> tuple[Term, ...]:
    """Terms times or over numbers and arrays; an array that does not vary along all axes is a gain."""
    is_quotient, terms = eqn.primitive.name == "div", []
    for side, (x, m) in enumerate(zip(inputs, made, strict=True)):
        if np.shape(x) != output.shape or (is_quotient and side == 1):
            continue
        other: Any = inputs[1 - side] if len(inputs) == 2 else -1.0
        factor = 1 / other if is_quotient else other
        repeats = made[1 - side].repeats if len(inputs) == 2 else frozenset()
        terms += [
            times(term, factor, repeats) if np.shape(factor) else _times(term, factor)
            for term in m.terms
            if term.covers(output.shape)
        ]
    return tuple(terms)


def _times(term: Term, number: Any) -> Term:
    view = term.view
    return term._replace(
        view=lambda leaf: view(leaf) * jnp.asarray(number, leaf.dtype), signature=(*term.signature, object())
    )


def _still(eqn: core.JaxprEqn, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]) -> _Product | None:
    """The product that the result of an operation still is; a number that multiplies it is noted with its map."""
    name, places = eqn.primitive.name, [i for i, origin in enumerate(origins) if isinstance(origin, _Product)]
    if len(places) != 1:
        return None
    side, product = places[0], origins[places[0]]
    assert isinstance(product, _Product)
    if name in _SUMS or ((name in _LAYOUT or name in _CONVERSION) and side == 0):
        return product
    others = [x for i, x in enumerate(inputs) if i != side]
    if name not in _SCALING or any(np.shape(x) for x in others) or (name == "div" and side == 1):
        return None
    number = -1.0 if name == "neg" else others[0]
    for place in product.places:
        known = found[place]
        found[place] = known._replace(after=known.after / number if name == "div" else known.after * number)
    return product


def _bound(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any]:
    """One operation of a program on other values, as a program of its own: how a primitive is called depends on JAX's version."""
    given = {v: x for v, x in zip(eqn.invars, inputs, strict=True) if not isinstance(v, core.Literal)}
    debug = core.DebugInfo("linear_maps", eqn.primitive.name, ("",) * len(given), ("",) * len(eqn.outvars))
    program = core.Jaxpr([], list(given), list(eqn.outvars), [eqn], eqn.effects, debug)
    return list(core.jaxpr_as_fun(core.ClosedJaxpr(program, []))(*given.values()))


def _unrolled(
    eqn: core.JaxprEqn, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    """A scan, step by step: the step's slice of a stacked parameter is a parameter of its own."""
    params = eqn.params
    consts, carries = params["num_consts"], params["num_consts"] + params["num_carry"]
    carry, collected = inputs[consts:carries], []
    constant = [origin if isinstance(origin, Made) else None for origin in origins[:consts]]
    for step in range(params["length"]):
        i = params["length"] - 1 - step if params["reverse"] else step
        slices = [x[i] for x in inputs[carries:]]
        # A carried value is another one after a step: only constants and slices are followed.
        inner: list[_Origin] = [
            *constant,
            *[None] * params["num_carry"],
            *(_step(origin, i) if isinstance(origin, Made) else None for origin in origins[carries:]),
        ]
        program = params["jaxpr"]
        outputs, _ = _evaluate(program.jaxpr, program.consts, [*inputs[:consts], *carry, *slices], inner, found)
        carry = outputs[: params["num_carry"]]
        collected.append(outputs[params["num_carry"] :])
    if params["reverse"]:
        collected.reverse()
    stacked = [jnp.stack(ys) for ys in zip(*collected, strict=True)]
    return [*carry, *stacked], [None] * len(eqn.outvars)


def _step(stack: Made, i: int) -> Made:
    """What a step of a scan has of a stack of parameters."""
    return Made(
        tuple(
            term.then(itemgetter(i), term.axes[1:])._replace(layers=(*term.layers, i))
            for term in stack.terms
            if term.is_plain
        )
    )


def _branches(
    eqn: core.JaxprEqn, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    """All branches of a `cond`: the maps of those that are not taken have zeros for inputs, which change no rank."""
    (index, *operands), results = inputs, []
    given = [origin if isinstance(origin, Made) else None for origin in origins[1:]]
    for i, branch in enumerate(eqn.params["branches"]):
        first = len(found)
        outputs, _ = _evaluate(branch.jaxpr, branch.consts, operands, given, found)
        found[first:] = [m._replace(inputs=jnp.where(index == i, m.inputs, 0)) for m in found[first:]]
        results.append(outputs)
    chosen = [jax.lax.select_n(index, *outputs) for outputs in zip(*results, strict=True)]
    return chosen, [None] * len(chosen)


def _merged(found: list[LinearMap]) -> list[LinearMap]:
    """Uses of the same matrices side by side, as a layer that is applied twice sees the columns of both."""
    merged: dict[tuple[Any, ...], LinearMap] = {}
    for use in found:
        key = (use.leaf, use.layers, use.kind, use.signature)
        if key in merged:
            inputs = merged[key].inputs
            both = inputs + use.inputs if use.kind == "lookup" else jnp.concatenate([inputs, use.inputs], axis=-1)
            use = use._replace(inputs=both)
        merged[key] = use
    return list(merged.values())
