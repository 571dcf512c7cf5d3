"""The linear maps of a model, found in its program: every product of a parameter with something that is not one.

The loss is traced once and evaluated operation by operation. A value that is a parameter up to its layout (transposed, reshaped, sliced,
converted, times a number) is followed; where it enters a product W A with other values A, the map W and its inputs A are
recorded. No cooperation of the model is needed, and the names are the paths of the parameters in their tree.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array, Float

from specjax.spectral.scaling import scaled

Kind = Literal["linear", "lookup"]

_LAYOUT = frozenset({"transpose", "reshape", "squeeze", "expand_dims", "slice", "dynamic_slice", "rev", "copy"})
"""Primitives that move the entries of their first operand and change none."""
_CONVERSION = frozenset({"convert_element_type", "reduce_precision", "optimization_barrier", "name"})
_SCALING = frozenset({"mul", "div", "neg"})
"""Primitives that may only multiply a matrix, or what it gives, by a number."""
_SUMS = frozenset({"add", "sub"})
"""Primitives after which what a map gives is still there to be multiplied by a number, beside a bias or a residual stream."""
_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "remat", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call"}
)


class Inputs(NamedTuple):
    """What a map W of shape (m, k) is applied to, in one of three forms: A Aᵀ, A itself where n < k, or counts of its rows.

    A is divided by a power of two, `scale`, so that its squares stay in the range of float32.
    """

    gram: Float[Array, "*maps k k"] | None
    columns: Float[Array, "*maps k n"] | None
    counts: Float[Array, " k"] | None
    scale: Float[Array, "*maps"] | None


class LinearMap(NamedTuple):
    """One use of a parameter as a linear map.

    `matrices` takes a tree leaf (the parameter, its gradient) to the matrices (*maps, m, k) that act on the columns of the inputs;
    `layers` says which steps of a scan over stacked parameters; `maps` are the batch axes of products that are many at once, as those
    of attention heads are. `after` is the number that the product is multiplied by before anything else is done to it than moving its
    entries or adding to it, as an output multiplier is; of several uses that of the last.
    """

    leaf: int
    layers: tuple[int, ...]
    kind: Kind
    matrices: Callable[[Array], Array]
    signature: tuple[Any, ...]
    inputs: Array
    after: Array | float = 1.0

    def parts(self, widths: Sequence[int], leaf: Array) -> list["LinearMap"]:
        """The maps that lie side by side in the outputs of this one; itself if these are others than the widths are of."""
        outputs = jax.eval_shape(self.matrices, leaf).shape[-2]
        if self.kind != "linear" or sum(widths) != outputs:
            return [self]
        ends = list(accumulate(widths, initial=0))
        return [
            self._replace(matrices=partial(_rows, self.matrices, a, b), signature=(*self.signature, "part", a, b))
            for a, b in pairwise(ends)
        ]


def _rows(matrices: Callable[[Array], Array], start: int, stop: int, leaf: Array) -> Array:
    return matrices(leaf)[..., start:stop, :]


def linear_maps(loss: Callable[[Sequence[Array]], Array], leaves: Sequence[Array]) -> list[LinearMap]:
    """The maps of `loss` in the order of their first use; uses of the same matrix share one entry, with all their inputs.

    Maps inside `while_loop` and `cond` are not seen. To be called under `jax.jit`, as a scan over layers is unrolled.
    """
    closed, shape = jax.make_jaxpr(loss, return_shape=True)(list(leaves))
    if getattr(shape, "shape", None) != ():
        raise ValueError(f"The model must return one number, its loss, got {shape}.")
    found: list[LinearMap] = []
    followed = [_Followed(i, (), _same, ()) for i in range(len(leaves))]
    _evaluate(closed.jaxpr, closed.consts, leaves, followed, found)
    return _merged(found)


def inputs_of(linear_map: LinearMap) -> Inputs:
    """The inputs in the smaller of the two forms; counts for a lookup."""
    if linear_map.kind == "lookup":
        return Inputs(None, None, linear_map.inputs, None)
    a, power = scaled(linear_map.inputs)
    scale = power[..., 0, 0]
    if a.shape[-1] < a.shape[-2]:
        return Inputs(None, a, None, scale)
    return Inputs(jnp.einsum("...kn,...ln->...kl", a, a, precision="highest"), None, None, scale)


class _Followed(NamedTuple):
    """A value that is the leaf `leaf` up to its layout: `view` of the leaf."""

    leaf: int
    layers: tuple[int, ...]
    view: Callable[[Array], Array]
    signature: tuple[Any, ...]

    def then(self, operation: Callable[[Array], Array], *signature: Any) -> "_Followed":
        view = self.view
        return self._replace(view=lambda leaf: operation(view(leaf)), signature=self.signature + signature)


class _Product(NamedTuple):
    """A value that is what the map at `place` gives, times a number and beside what was added to it."""

    place: int


_Origin = _Followed | _Product | None


def _same(leaf: Array) -> Array:
    return leaf


def _evaluate(
    jaxpr: core.Jaxpr,
    consts: Sequence[Any],
    arguments: Sequence[Any],
    followed: Sequence[_Origin],
    found: list[LinearMap],
) -> tuple[list[Any], list[_Origin]]:
    """The outputs of a program, those among them that are a parameter or a product, and on the way its linear maps."""
    values: dict[Any, Any] = {}
    origins: dict[Any, _Followed | _Product] = {}

    def value(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    def origin(atom: Any) -> _Origin:
        return None if isinstance(atom, core.Literal) else origins.get(atom)

    values.update(zip(jaxpr.constvars, consts, strict=True))
    for var, argument, source in zip(jaxpr.invars, arguments, followed, strict=True):
        values[var] = argument
        if source is not None:
            origins[var] = source
    for eqn in jaxpr.eqns:
        inputs, sources = [value(a) for a in eqn.invars], [origin(a) for a in eqn.invars]
        outputs, results = _apply(eqn, inputs, sources, found)
        for var, output, result in zip(eqn.outvars, outputs, results, strict=True):
            values[var] = output
            if result is not None:
                origins[var] = result
    return [value(a) for a in jaxpr.outvars], [origin(a) for a in jaxpr.outvars]


def _apply(
    eqn: core.JaxprEqn, inputs: list[Any], origins: list[_Origin], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    name = eqn.primitive.name
    sources = [origin if isinstance(origin, _Followed) else None for origin in origins]
    if name in _CALLS and any(origins):
        inner = next(eqn.params[p] for p in ("jaxpr", "call_jaxpr", "fun_jaxpr") if p in eqn.params)
        program, consts = (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, ())
        return _evaluate(program, consts, inputs, origins, found)
    if not any(sources):
        kept: list[_Origin] = [_still(eqn, inputs, origins, found), *[None] * len(eqn.outvars)]
        return _bound(eqn, inputs), kept[: len(eqn.outvars)]
    if name == "scan":
        return _unrolled(eqn, inputs, sources, found)
    outputs = _bound(eqn, inputs)
    result: _Origin = None
    first = sources[0]
    if name == "dot_general" and (sources[0] is None) != (sources[1] is None):
        found.append(_product(eqn, inputs, sources))
        result = _Product(len(found) - 1)
    elif name == "gather" and first is not None:
        lookups = _lookup(eqn, inputs, first)
        found.extend(lookups)
        result = _Product(len(found) - 1) if lookups else None
    elif name in _LAYOUT and first is not None:
        # Slices at computed places are never taken for the same matrix.
        place = (object(),) if inputs[1:] else ()
        result = first.then(
            lambda leaf: _bound(eqn, [leaf, *inputs[1:]])[0], name, str(sorted(eqn.params.items(), key=str)), *place
        )
    elif name == "split" and first is not None:
        return outputs, [
            first.then(partial(_output, eqn, i), name, str(sorted(eqn.params.items(), key=str)), i)
            for i in range(len(outputs))
        ]
    elif name in _CONVERSION and first is not None:
        # The gradient of a parameter is not rounded to the precision of the product.
        result = first
    elif any(isinstance(origin, _Product) for origin in origins):
        # A bias, or a gain, which is no number.
        result = _still(eqn, inputs, origins, found)
    elif name in _SCALING:
        result = _scaled(eqn, inputs, sources)
    return outputs, [result] + [None] * (len(outputs) - 1)


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
    if name not in _SCALING or any(jnp.ndim(x) for x in others) or (name == "div" and side == 1):
        return None
    known = found[product.place]
    number = -1.0 if name == "neg" else others[0]
    found[product.place] = known._replace(after=known.after / number if name == "div" else known.after * number)
    return product


def _output(eqn: core.JaxprEqn, i: int, leaf: Array) -> Array:
    return _bound(eqn, [leaf])[i]


def _scaled(eqn: core.JaxprEqn, inputs: list[Any], sources: list[_Followed | None]) -> _Followed | None:
    """A parameter times or over a number; times another parameter, or a vector, it is another matrix."""
    side = next(i for i, source in enumerate(sources) if source is not None)
    source, others = sources[side], [x for i, x in enumerate(inputs) if i != side]
    if any(jnp.ndim(x) for x in others) or (eqn.primitive.name == "div" and side == 1):
        return None

    def scaled(leaf: Array) -> Array:
        arguments = [x.astype(leaf.dtype) if isinstance(x, jax.Array) else x for x in others]
        return _bound(eqn, [*arguments[:side], leaf, *arguments[side:]])[0]

    assert source is not None
    return source.then(scaled, eqn.primitive.name, object())


def _bound(eqn: core.JaxprEqn, inputs: list[Any]) -> list[Any]:
    """One operation of a program on other values, as a program of its own: how a primitive is called depends on JAX's version."""
    given = {v: x for v, x in zip(eqn.invars, inputs, strict=True) if not isinstance(v, core.Literal)}
    debug = core.DebugInfo("linear_maps", eqn.primitive.name, ("",) * len(given), ("",) * len(eqn.outvars))
    program = core.Jaxpr([], list(given), list(eqn.outvars), [eqn], eqn.effects, debug)
    return list(core.jaxpr_as_fun(core.ClosedJaxpr(program, []))(*given.values()))


def _unrolled(
    eqn: core.JaxprEqn, inputs: list[Any], sources: list[_Followed | None], found: list[LinearMap]
) -> tuple[list[Any], list[_Origin]]:
    """A scan, step by step: the step's slice of a stacked parameter is a parameter of its own."""
    params = eqn.params
    consts, carries = params["num_consts"], params["num_consts"] + params["num_carry"]
    carry, collected = inputs[consts:carries], []
    for step in range(params["length"]):
        i = params["length"] - 1 - step if params["reverse"] else step
        slices = [x[i] for x in inputs[carries:]]
        # A carried value is another one after a step: only constants and slices are followed.
        inner = [
            *sources[:consts],
            *[None] * params["num_carry"],
            *(s and s.then(itemgetter(i))._replace(layers=(*s.layers, i)) for s in sources[carries:]),
        ]
        program = params["jaxpr"]
        outputs, _ = _evaluate(program.jaxpr, program.consts, [*inputs[:consts], *carry, *slices], inner, found)
        carry = outputs[: params["num_carry"]]
        collected.append(outputs[params["num_carry"] :])
    if params["reverse"]:
        collected.reverse()
    stacked = [jnp.stack(ys) for ys in zip(*collected, strict=True)]
    return [*carry, *stacked], [None] * len(eqn.outvars)


def _product(eqn: core.JaxprEqn, inputs: list[Any], sources: list[_Followed | None]) -> LinearMap:
    """A product with one parameter: W's axes in the order (batch, free, contracted), the inputs' (batch, contracted, free)."""
    (contract, batch), side = eqn.params["dimension_numbers"], 0 if sources[0] is not None else 1
    source, other = sources[side], inputs[1 - side]
    assert source is not None

    def grouped(x: Array, place: int, *, contracted_first: bool) -> Array:
        free = [axis for axis in range(x.ndim) if axis not in (*contract[place], *batch[place])]
        groups = (contract[place], free) if contracted_first else (free, contract[place])
        x = x.transpose(*batch[place], *groups[0], *groups[1])
        count = len(batch[place])
        sizes = x.shape[:count], x.shape[count : count + len(groups[0])], x.shape[count + len(groups[0]) :]
        return x.reshape(*sizes[0], *(_size(s) for s in sizes[1:]))

    view = source.then(
        lambda w: grouped(w, side, contracted_first=False), ("product", tuple(contract[side]), tuple(batch[side]))
    )
    return LinearMap(
        view.leaf, view.layers, "linear", view.view, view.signature, grouped(other, 1 - side, contracted_first=True)
    )


def _lookup(eqn: core.JaxprEqn, inputs: list[Any], source: _Followed) -> list[LinearMap]:
    """Rows of a matrix picked by indices: the map Wᵀ on one-hot columns, of which the counts are all that matters."""
    table, indices = inputs
    axes, sizes = eqn.params["dimension_numbers"].start_index_map, eqn.params["slice_sizes"]
    if jnp.ndim(table) != 2 or tuple(sizes) != (1, table.shape[1]) or 0 not in axes:
        return []
    rows = indices[..., axes.index(0)].ravel()
    counts = jnp.zeros(table.shape[0], jnp.float32).at[rows].add(1.0, mode="drop")
    view = source.then(lambda w: w.T, "lookup")
    return [LinearMap(view.leaf, view.layers, "lookup", view.view, view.signature, counts)]


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


def _size(extents: Sequence[int]) -> int:
    size = 1
    for extent in extents:
        size *= extent
    return size
