"""The effect of each operation of a program on the pieces of parameters, and the operations that
use them.

Products, convolutions and indexing by data say which axes of a parameter are inputs and outputs.
Elementwise operations with activations make it a gain or a bias. Everything else moves its entries,
or is a statistic of it.
"""

from collections.abc import Hashable, Iterable, Sequence

from specjax.diagnostics._layout.abstract_value import Value, from_all
from specjax.diagnostics._layout.axis_pieces import (
    Axis,
    Term,
    broadcast,
    dropped,
    extent,
    reshaped,
    unknown,
    whole,
)
from specjax.diagnostics._layout.consumers import use_of, use_up
from specjax.diagnostics._layout.dot_rules import Dims, multiply
from specjax.diagnostics._layout.reshape_rules import MOVES, Rule, as_ints, ints, shapes_of
from specjax.diagnostics._layout.uses import ANOTHER_PARAMETER, Use, UseKind, Uses
from specjax.programs import Equation

_KEEPS_ONE_HOT = frozenset(
    {
        "convert_element_type",
        "copy",
        "stop_gradient",
        "reduce_precision",
        "optimization_barrier",
        "name",
    }
)
_KINDS: dict[str, UseKind] = {
    "mul": "gain",
    "div": "gain",
    "add": "bias",
    "sub": "bias",
    "add_any": "bias",
}


def apply(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    """The outputs of one operation without an inner program; records its uses."""
    rule = _RULES.get(equation.name)
    if rule is not None:
        return rule(equation, values, uses, place)
    shapes = shapes_of(equation)
    if any(value.terms for value in values) and _is_elementwise(values, shapes):
        return [
            _elementwise(
                equation.name, [_repeat_to_shape(v, shape) for v in values], shape, uses, place
            )
            for shape in shapes
        ]
    return _opaque(equation, values, uses, place)


def _is_elementwise(values: Sequence[Value], shapes: Sequence[tuple[int, ...]]) -> bool:
    return all(
        not value.shape
        or (
            len(value.shape) == len(shape)
            and all(n in (1, m) for n, m in zip(value.shape, shape, strict=True))
        )
        for value in values
        for shape in shapes
    )


def _repeat_to_shape(value: Value, shape: tuple[int, ...]) -> Value:
    """An operand with its axes of one entry repeated."""
    if value.shape in ((), shape):
        return value
    longer = value.of(shape, [broadcast(term, shape, range(len(shape))) for term in value.terms])
    axes = {axis for axis, n in enumerate(value.shape) if n < shape[axis]}
    return longer._replace(repeated=value.repeated | axes)


def _elementwise(
    name: str, values: Sequence[Value], shape: tuple[int, ...], uses: Uses, place: Hashable
) -> Value:
    same = [value for value in values if value.shape == shape]
    if len(same) == 1 and name in _KEEPS_ONE_HOT:
        terms: Iterable[Term] = same[0].terms
        if name == "stop_gradient":
            terms = [term._replace(frozen=frozenset(term.sources())) for term in terms]
        return from_all(values, shape, terms)
    active = [value for value in values if value.data and not value.is_picked]
    meets_another = sum(value.is_parameter for value in values) > 1
    if active or (meets_another and any(value.is_picked for value in values)):
        values = [
            use_up(v, _KINDS.get(name, "elementwise"), uses, place, name) if v.is_parameter else v
            for v in values
        ]
        result = from_all(values, shape)
        same = [value for value in values if value.shape == shape]
        result = result._replace(repeated=frozenset.intersection(*(v.repeated for v in same)))
        if name == "mul" and len(same) == 2:
            one, other = same
            every = frozenset(range(len(shape)))
            uses.multiply(one, other, every - one.repeated, every - other.repeated)
        # An input of another map, such as the stream of residual blocks, is cut for other reasons.
        tags = [
            t
            for v in values
            if v.shape == shape
            for t in v.tags()
            if not _is_before(t, result.before)
        ]
        hot = [_one_hot(v, shape) for v in values] if name == "eq" else []
        return result._replace(
            terms=tuple(dict.fromkeys([*tags, *(t for t in hot if t is not None)]))
        )
    return from_all(values, shape, _combined(name, values, shape, uses, place))


def _is_before(term: Term, before: int) -> bool:
    return all(before >> number & 1 for kind, number in term.sources() if kind == "output")


def _one_hot(value: Value, shape: tuple[int, ...]) -> Term | None:
    """The one-hot rows that result where numbers 0, 1, 2, … along an axis are compared with
    data.
    """
    for term in value.terms:
        if value.shape == shape and ("iota", 0) in term.sources():
            axes = tuple(
                tuple(p._replace(source=("one-hot", 0)) for p in axis if p.source) or unknown(n)
                for axis, n in zip(term.axes, shape, strict=True)
            )
            return Term(axes)
    return None


def _combined(
    name: str, values: Sequence[Value], shape: tuple[int, ...], uses: Uses, place: Hashable
) -> list[Term]:
    """Combines parameters with each other and with constants: those that have all axes are the
    result, and the others scale or shift it.
    """
    terms = [
        (term, value.shape == shape and term.covers(shape))
        for value in values
        for term in value.parameters()
    ]
    full = [term for term, covers in terms if covers and not term.statistic]
    if not full:
        return [term for term, _ in terms if len(term.axes) == len(shape)]
    leaves = {source for term in full for source in term.sources()}
    for term, covers in terms:
        if not (covers or term.statistic or leaves & set(term.sources())):
            for _, number in term.sources():
                kind = _KINDS.get(name, "elementwise")
                uses.record(place, use_of(number, kind, term, ANOTHER_PARAMETER))
    return full


def _opaque(
    equation: Equation, values: Sequence[Value], uses: Uses, place: Hashable
) -> list[Value]:
    """An unknown operation, whose operands are not followed further."""
    for value in values:
        if value.is_parameter:
            use_up(value, "lost", uses, place, equation.name)
    result = from_all([v._replace(data=v.data or v.is_parameter) for v in values], ())
    return [result._replace(shape=shape) for shape in shapes_of(equation)]


def _reduce(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    axes = ints(equation, "axes")
    results = []
    for value, shape in zip(values, shapes_of(equation), strict=False):
        terms = []
        for term in value.terms:
            is_parameter = term in value.parameters()
            if is_parameter and not term.statistic:
                alone = value._replace(terms=(term,), data=False)
                use_up(alone, "statistic", uses, place, equation.name)
            less = dropped(term, axes, "sum")
            terms.append(less._replace(statistic=True) if is_parameter else less)
        results.append(value.of(shape, terms))
    return results


def _dot_general(
    equation: Equation, values: list[Value], uses: Uses, place: Hashable
) -> list[Value]:
    contracted, batch = (
        (as_ints(a), as_ints(b)) for a, b in equation.parameters["dimension_numbers"]
    )
    return [_product(values, contracted, batch, shapes_of(equation)[0], uses, place)]


def _ragged_dot(
    equation: Equation, values: list[Value], uses: Uses, place: Hashable
) -> list[Value]:
    numbers = equation.parameters["ragged_dot_dimension_numbers"]
    groups = as_ints(numbers.rhs_group_dimensions)
    contracted, batch = ((as_ints(a), as_ints(b)) for a, b in numbers.dot_dimension_numbers)
    right = values[1]
    # Every row has the matrix of its group: the axis of groups leaves before the product.
    shape = tuple(n for axis, n in enumerate(right.shape) if axis not in groups)
    right = right.of(shape, [dropped(term, groups, "ragged") for term in right.terms])
    shift = [
        tuple(axis - sum(g < axis for g in groups) for axis in dims[1])
        for dims in (contracted, batch)
    ]
    return [
        _product(
            [values[0], right],
            (contracted[0], shift[0]),
            (batch[0], shift[1]),
            shapes_of(equation)[0],
            uses,
            place,
        )
    ]


def _product(
    values: list[Value],
    contracted: Dims,
    batch: Dims,
    shape: tuple[int, ...],
    uses: Uses,
    place: Hashable,
) -> Value:
    if all(value.is_parameter for value in values):
        # Rows that data picked count as activations where they meet a parameter.
        values = [
            use_up(value, "lookup", uses, place) if value.is_picked else value for value in values
        ]
    if (
        not contracted[0]
        and any(value.is_parameter for value in values)
        and any(value.data for value in values)
    ):
        values = [
            use_up(value, "gain", uses, place, "mul") if value.is_parameter else value
            for value in values
        ]
    return multiply(values, contracted, batch, shape, uses, place)


def _convolution(
    equation: Equation, values: list[Value], uses: Uses, place: Hashable
) -> list[Value]:
    left, right = values
    (shape,), numbers, groups = (
        shapes_of(equation),
        equation.parameters["dimension_numbers"],
        equation.parameters["feature_group_count"],
    )
    if left.is_parameter and not left.is_picked:
        left = use_up(left, "lost", uses, place, "conv_general_dilated, as its input")
    elif left.is_picked:
        left = use_up(left, "lookup", uses, place)
    result = from_all([left, right], shape)._replace(data=True)
    if not right.is_parameter:
        return [result]
    out_axis, tags, bits = numbers.rhs_spec[0], [], 0
    for term in right.parameters():
        inputs = tuple(p for axis in numbers.rhs_spec[1:] for p in term.axes[axis])
        outputs = term.axes[out_axis]
        grouped = _in_groups(outputs, groups)
        for kind, number in term.sources():
            if kind != "leaf" or term.statistic:
                continue
            own = [
                tuple(p for p in axis if p.source == (kind, number)) for axis in (inputs, *grouped)
            ]
            left_axes = frozenset(gone for gone in term.left if gone.source == (kind, number))
            use = uses.record(
                place, Use(number, "convolution", term, own[0], own[2], own[1], left_axes)
            )
            axes = [unknown(n) for n in shape]
            axes[numbers.out_spec[1]] = tuple(
                p._replace(source=("output", use)) if p.source else p for p in outputs
            )
            tags.append(Term(tuple(axes)))
            bits |= 1 << use
    uses.consumed |= left.uses()
    return [result._replace(terms=tuple(tags), behind=bits, before=left.behind | left.before)]


def _in_groups(outputs: Axis, groups: int) -> tuple[Axis, Axis]:
    """The output axis of a grouped convolution as (groups, outputs of each)."""
    if groups == 1:
        return (), outputs
    size = extent(outputs)
    cut_up = reshaped(Term((outputs,)), (groups, size // groups))
    return cut_up.axes if cut_up is not None else (outputs, ())  # type: ignore[return-value]


def _iota(equation: Equation, _values: list[Value], _uses: Uses, _place: Hashable) -> list[Value]:
    (shape,), axis = shapes_of(equation), equation.parameters["dimension"]
    term = whole(("iota", 0), shape)
    axes = tuple(
        a if place_ == axis else unknown(n)
        for place_, (a, n) in enumerate(zip(term.axes, shape, strict=True))
    )
    return [Value(shape, (Term(axes),))]


_RULES: dict[str, Rule] = {
    **MOVES,
    "dot_general": _dot_general,
    "ragged_dot_general": _ragged_dot,
    "conv_general_dilated": _convolution,
    "iota": _iota,
    **dict.fromkeys(
        (
            "reduce_sum",
            "reduce_max",
            "reduce_min",
            "reduce_prod",
            "reduce_and",
            "reduce_or",
            "argmax",
            "argmin",
        ),
        _reduce,
    ),
}
