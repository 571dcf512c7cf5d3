"""The linear maps of a model, found in its program: every product of a parameter with a value that
depends on data.

The loss is traced once and evaluated operation by operation. Values made of parameters alone are
followed (`terms`); where such a value enters a product W A with other values A, the map W and its
inputs A are recorded (`uses`). No cooperation of the model is needed, and the names are the paths
of the parameters in their tree.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from specjax.diagnostics._layout.interpreter import uses_in
from specjax.diagnostics._layout.leaf_classification import row
from specjax.diagnostics.linear_maps._linear_map import LinearMap
from specjax.diagnostics.linear_maps._parameter_values import (
    CONVERSION,
    LAYOUT,
    SCALING,
    SUMS,
    made_by,
)
from specjax.diagnostics.linear_maps._terms import (
    Made,
    parameter,
)
from specjax.diagnostics.linear_maps._uses import (
    convolution_maps,
    lookup_maps,
    of_ragged_product,
    product_maps,
)
from specjax.programs import Equation, Program, Scan, interpret, is_variable, scan, trace


class _Product(NamedTuple):
    """A value that is the output of the maps at `places`, times a number and plus other terms."""

    places: tuple[int, ...]


_Origin = Made | _Product | None
"""The origin of a value: made of parameters and constants, the output of maps, or None for other
values that depend on data.
"""


def linear_maps(
    loss: Callable[[Sequence[Array]], Array], leaves: Sequence[Array]
) -> list[LinearMap]:
    """The maps of `loss` in the order of their first use; uses of the same matrix share one entry,
    with all their inputs.

    It evaluates all branches of a `cond`, with zero inputs in those that are not taken. It leaves
    out maps inside `while_loop`, which has no derivative in reverse mode, and inside `shard_map`.
    Call it under `jax.jit`, since it unrolls a scan over layers.
    """
    program, shape = trace(loss, list(leaves))
    if getattr(shape, "shape", None) != ():
        raise ValueError(f"The model must return one number, its loss, got {shape}.")
    found: list[LinearMap] = []
    parameters = [
        parameter(i, x.ndim, counted)
        for i, (x, counted) in enumerate(zip(leaves, _counted(program, leaves), strict=True))
    ]
    _evaluate(program, leaves, parameters, found)
    return _merged(found)


def _counted(program: Program, leaves: Sequence[Array]) -> list[frozenset[int]]:
    """The axes of each leaf that count matrices by its layout, such as experts that a product sums
    over.
    """
    uses = uses_in(program, len(leaves), constants_are_data=True)
    rows = [row("", i, x.shape, uses, real=True) for i, x in enumerate(leaves)]
    return [
        (
            frozenset(axis for axis, role in enumerate(found.axes) if role == "batch")
            if found
            else frozenset()
        )
        for found in rows
    ]


def _evaluate(
    program: Program, arguments: Sequence[Any], followed: Sequence[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    """The outputs of a program and their origins; collects its linear maps on the way."""
    uses = Counter(
        atom
        for inputs in (*(equation.inputs for equation in program.equations), program.outputs)
        for atom in inputs
        if is_variable(atom)
    )

    def outputs(equation: Equation, given: list[tuple[Any, _Origin]]) -> list[tuple[Any, _Origin]]:
        inputs = [value for value, _ in given]
        # A number that multiplies one of several uses, as in a leaky ReLU, does not multiply what
        # the map gives.
        origins = [
            None if isinstance(origin, _Product) and uses[atom] > 1 else origin
            for atom, (_, origin) in zip(equation.inputs, given, strict=True)
        ]
        return list(zip(*_apply(equation, inputs, origins, found), strict=True))

    # An array that the loss closes over may be a batch.
    constants: list[tuple[Any, _Origin]] = [
        (x, None if np.shape(x) else Made()) for x in program.constants
    ]
    known = list(zip(arguments, followed, strict=True))
    results = interpret(program, constants, known, outputs, lambda number: (number, Made()))
    return [value for value, _ in results], [origin for _, origin in results]


def _apply(
    equation: Equation, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    of_parameters = any(map(_has_terms, origins))
    has_product = any(isinstance(origin, _Product) for origin in origins)
    if equation.called and (of_parameters or has_product):
        return _evaluate(equation.called, inputs, origins, found)
    if of_parameters and (loop := scan(equation)):
        return _unrolled(loop, inputs, origins, found)
    if of_parameters and equation.branches:
        return _branches(equation.branches, inputs, origins, found)
    outputs = equation.bind(*inputs)
    uses = _uses(equation, inputs, origins) if of_parameters else []
    if uses:
        found.extend(uses)
        product = _Product(tuple(range(len(found) - len(uses), len(found))))
        return outputs, [product, *[None] * (len(outputs) - 1)]
    if has_product:
        # A bias, or a gain that is not a scalar.
        kept: list[_Origin] = [_still(equation, inputs, origins, found), *[None] * len(outputs)]
        return outputs, kept[: len(outputs)]
    return outputs, [
        made_by(equation, i, inputs, origins, output) for i, output in enumerate(outputs)
    ]


def _has_terms(origin: _Origin) -> bool:
    return isinstance(origin, Made) and bool(origin.terms)


def _uses(equation: Equation, inputs: list[Any], origins: list[_Origin]) -> list[LinearMap]:
    """The maps of an operation in which a value made of parameters meets one that is not."""
    name, sides = equation.name, [i for i, origin in enumerate(origins) if _has_terms(origin)]
    made = origins[sides[0]]
    assert isinstance(made, Made)
    if name == "dot_general" and len(sides) == 1:
        return product_maps(equation, made, sides[0], inputs[1 - sides[0]])
    if name == "gather" and sides == [0]:
        return lookup_maps(equation, inputs[0], inputs[1], made)
    if name == "ragged_dot_general" and sides == [1]:
        return of_ragged_product(equation, inputs, made)
    if name == "conv_general_dilated" and sides == [1]:
        return convolution_maps(equation, inputs[0], made)
    return []


def _still(
    equation: Equation, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> _Product | None:
    """The product that the result of an operation still is, or None; a number that multiplies it is
    noted with its map.
    """
    name, places = (
        equation.name,
        [i for i, origin in enumerate(origins) if isinstance(origin, _Product)],
    )
    if len(places) != 1:
        return None
    side, product = places[0], origins[places[0]]
    assert isinstance(product, _Product)
    if name in SUMS or ((name in LAYOUT or name in CONVERSION) and side == 0):
        return product
    others = [x for i, x in enumerate(inputs) if i != side]
    if name not in SCALING or any(np.shape(x) for x in others) or (name == "div" and side == 1):
        return None
    number = -1.0 if name == "neg" else others[0]
    for place in product.places:
        known = found[place]
        found[place] = known._replace(
            after=known.after / number if name == "div" else known.after * number
        )
    return product


def _unrolled(
    loop: Scan, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    """Evaluates a scan step by step; the slice of a stacked parameter in a step is a separate
    parameter.
    """
    (consts, carry, xs), collected = loop.split(inputs), []
    constant, _, stacks = loop.split(
        [origin if isinstance(origin, Made) else None for origin in origins]
    )
    for step in range(loop.length):
        i = loop.length - 1 - step if loop.reverse else step
        slices = [x[i] for x in xs]
        # A carried value changes after a step, so only constants and slices are followed.
        inner: list[_Origin] = [
            *constant,
            *[None] * loop.carry,
            *(stack and _step(stack, i) for stack in stacks),
        ]
        outputs, _ = _evaluate(loop.body, [*consts, *carry, *slices], inner, found)
        carry = outputs[: loop.carry]
        collected.append(outputs[loop.carry :])
    if loop.reverse:
        collected.reverse()
    stacked = [jnp.stack(ys) for ys in zip(*collected, strict=True)]
    return [*carry, *stacked], [None] * (len(carry) + len(stacked))


def _step(stack: Made, i: int) -> Made:
    """The slice of a stack of parameters in one step of a scan."""
    return Made(
        tuple(
            term.then(itemgetter(i), term.axes[1:])._replace(layers=(*term.layers, i))
            for term in stack.terms
            if term.is_plain
        )
    )


def _branches(
    branches: Sequence[Program], inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    """Evaluates all branches of a `cond`. The maps of branches that are not taken have zeros for
    inputs, which do not change a rank.
    """
    (index, *operands), results = inputs, []
    given = [origin if isinstance(origin, Made) else None for origin in origins[1:]]
    for i, branch in enumerate(branches):
        first = len(found)
        outputs, _ = _evaluate(branch, operands, given, found)
        found[first:] = [
            m._replace(inputs=jnp.where(index == i, m.inputs, 0)) for m in found[first:]
        ]
        results.append(outputs)
    chosen = [jax.lax.select_n(index, *outputs) for outputs in zip(*results, strict=True)]
    return chosen, [None] * len(chosen)


def _merged(found: list[LinearMap]) -> list[LinearMap]:
    """Joins the uses of the same matrices, since a layer that is applied twice sees the columns of
    both.
    """
    merged: dict[tuple[Any, ...], LinearMap] = {}
    for use in found:
        key = (use.leaf, use.layers, use.kind, use.signature)
        if key in merged:
            inputs = merged[key].inputs
            both = (
                inputs + use.inputs
                if use.kind == "lookup"
                else jnp.concatenate([inputs, use.inputs], axis=-1)
            )
            use = use._replace(inputs=both)
        merged[key] = use
    return list(merged.values())
