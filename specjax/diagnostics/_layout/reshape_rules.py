"""Rules for operations that move the entries of a value: layouts, slices, rows that an index picks,
and concatenation.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from specjax.diagnostics._layout.abstract_value import Value, from_all
from specjax.diagnostics._layout.axis_pieces import (
    Entries,
    Term,
    blurred,
    broadcast,
    cut,
    dropped,
    entries,
    extent,
    fitted,
    reshaped,
    transposed,
    unknown,
    without,
)
from specjax.diagnostics._layout.consumers import use_up
from specjax.diagnostics._layout.uses import Uses
from specjax.programs import Equation, shape_of

Rule = Callable[[Equation, list[Value], Uses, Hashable], list[Value]]
"""The outputs of an operation from its operands; `place` is its place in the program. It records
uses.
"""


def ints(equation: Equation, name: str) -> tuple[int, ...]:
    """A parameter of an operation that lists axes or sizes."""
    return as_ints(equation.parameters[name])


def as_ints(numbers: Sequence[Any]) -> tuple[int, ...]:
    """Axes or sizes, which may be NumPy's integers."""
    return tuple(int(n) for n in numbers)


def shapes_of(equation: Equation) -> list[tuple[int, ...]]:
    """The shapes of the outputs."""
    return [shape_of(variable) for variable in equation.outputs]


def _moved(
    equation: Equation,
    value: Value,
    uses: Uses,
    place: Hashable,
    move: Callable[[Term], Term | None],
    others: Sequence[Value] = (),
) -> list[Value]:
    """A value with its entries moved; records a parameter that cannot be followed as lost."""
    (shape,) = shapes_of(equation)
    moved = [move(term) for term in value.terms]
    for term, after in zip(value.terms, moved, strict=True):
        if after is None and not term.statistic and term in value.parameters():
            use_up(value._replace(terms=(term,)), "lost", uses, place, equation.name)
    result = from_all([value, *others], shape, moved)
    return [result if any(moved) else result._replace(data=result.data or value.is_parameter)]


def _transpose(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    return _moved(
        equation,
        values[0],
        uses,
        place,
        lambda term: transposed(term, ints(equation, "permutation")),
    )


def _reshape(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    return _moved(
        equation, values[0], uses, place, lambda term: reshaped(term, shapes_of(equation)[0])
    )


def _broadcast(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    shape, dimensions = ints(equation, "shape"), ints(equation, "broadcast_dimensions")
    value = values[0]
    (result,) = _moved(
        equation, value, uses, place, lambda term: broadcast(term, shape, dimensions)
    )
    varying = {
        place
        for axis, place in enumerate(dimensions)
        if axis not in value.repeated and value.shape[axis] == shape[place]
    }
    return [result._replace(repeated=frozenset(range(len(shape))) - varying)]


def _squeeze(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    return _moved(
        equation,
        values[0],
        uses,
        place,
        lambda term: dropped(term, ints(equation, "dimensions"), "index"),
    )


def _slice(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    starts, stops = ints(equation, "start_indices"), ints(equation, "limit_indices")
    steps = ints(equation, "strides") if equation.parameters["strides"] else (1,) * len(starts)
    ranges = [
        (a, len(range(a, b, step)), step) for a, b, step in zip(starts, stops, steps, strict=True)
    ]
    return _moved(equation, values[0], uses, place, lambda term: _cut(term, ranges, uses))


def _cut(term: Term, ranges: Sequence[tuple[int, int, int]], uses: Uses) -> Term | None:
    for axis, (start, size, step) in enumerate(ranges):
        before = term.axes[axis]
        if (start, size, step) == (0, extent(before), 1):
            continue
        after = cut(term, axis, start, size, step)
        if after is None:
            after = term._replace(
                axes=(*term.axes[:axis], blurred(before, size), *term.axes[axis + 1 :])
            )
        term = after
        uses.cut(term, before)
    return term


def _split(equation: Equation, values: list[Value], uses: Uses, _place: Hashable) -> list[Value]:
    (value, axis), results, start = (values[0], int(equation.parameters["axis"])), [], 0
    for shape, size in zip(shapes_of(equation), ints(equation, "sizes"), strict=True):
        ranges = [(start, size, 1) if i == axis else (0, n, 1) for i, n in enumerate(value.shape)]
        results.append(value.of(shape, [_cut(term, ranges, uses) for term in value.terms]))
        start += size
    return results


def _unstack(equation: Equation, values: list[Value], uses: Uses, _place: Hashable) -> list[Value]:
    value, axis = values[0], int(equation.parameters["axis"])
    results = []
    for start, shape in enumerate(shapes_of(equation)):
        ranges = [(start, 1, 1) if i == axis else (0, n, 1) for i, n in enumerate(value.shape)]
        cuts = [_cut(term, ranges, uses) for term in value.terms]
        results.append(value.of(shape, [term and dropped(term, [axis], "index") for term in cuts]))
    return results


def _dynamic_slice(
    equation: Equation, values: list[Value], uses: Uses, place: Hashable
) -> list[Value]:
    value, indices = values[0], values[1:]
    sizes = ints(equation, "slice_sizes")
    chosen = [i for i, (n, size) in enumerate(zip(value.shape, sizes, strict=True)) if size < n]
    by_data = any(indices[i].data for i in chosen)

    def move(term: Term) -> Term:
        for axis in chosen:
            term = (
                without(term, term.axes[axis], "gather" if by_data else "index")
                if sizes[axis] == 1
                else term
            )
            kept = unknown(1) if sizes[axis] == 1 else blurred(term.axes[axis], sizes[axis])
            term = term._replace(axes=(*term.axes[:axis], kept, *term.axes[axis + 1 :]))
        return term

    results = _moved(equation, value, uses, place, move, indices)
    return [_looked_up(result, uses, place) for result in results]


def _gather(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    value, indices = values
    numbers, sizes = equation.parameters["dimension_numbers"], ints(equation, "slice_sizes")
    (shape,) = shapes_of(equation)
    batching = tuple(numbers.operand_batching_dims)
    kept = [
        axis
        for axis in range(len(value.shape))
        if axis not in (*numbers.collapsed_slice_dims, *batching)
    ]
    one = len(indices.shape) == 1 and not indices.data

    def move(term: Term) -> Term:
        for axis in numbers.collapsed_slice_dims:
            term = without(term, term.axes[axis], "index" if one else "gather")
        for axis in batching:
            term = without(term, term.axes[axis], "batch")
        axes = [unknown(n) for n in shape]
        for axis, position in zip(kept, numbers.offset_dims, strict=True):
            axes[position] = (
                term.axes[axis]
                if sizes[axis] == value.shape[axis]
                else blurred(term.axes[axis], sizes[axis])
            )
        return term._replace(axes=tuple(axes))

    result = _moved(equation, value, uses, place, move, [indices])[0]
    # Constant positions pick rows as tokens do.
    picked = result if one or not value.is_parameter else result._replace(data=True)
    return [_looked_up(picked, uses, place)]


def _looked_up(value: Value, uses: Uses, place: Hashable) -> Value:
    """Rows that data picked are activations; matrices that data picked wait for the product that
    they enter.
    """
    rows = [
        t
        for t in value.parameters()
        if len({p.axis for axis in t.axes for p in axis if p.source}) <= 1
    ]
    if not value.is_picked or len(rows) < len(value.parameters()):
        return value
    return use_up(value, "lookup", uses, place)


def _concatenate(
    equation: Equation, values: list[Value], uses: Uses, place: Hashable
) -> list[Value]:
    return _joined(equation, values, uses, place)


def _joined(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    (shape,) = shapes_of(equation)
    if any(value.data for value in values):
        values = [
            use_up(v, "joined", uses, place, "concatenate") if v.is_parameter else v for v in values
        ]
    seen: set[tuple[int, int, Entries | None]] = set()
    for value in values:
        parts = {part for term in value.tags() for part in _parts(term)}
        # Halves that are joined again, as for rotary positions, are not separate matrices. A part
        # that comes twice, as at two times, does not show that.
        for part in parts:
            others = {s for s in seen if s[:2] == part[:2] and s != part}
            uses.rejoined |= others | {part} if others else set()
        seen |= parts
    terms = [fitted(term, shape) for value in values for term in value.terms]
    return [from_all(values, shape, terms)]


def _parts(term: Term) -> set[tuple[int, int, Entries | None]]:
    """The ranges of outputs that a term has, with their use and axis."""
    pieces = {
        (p.source, p.axis)
        for axis in term.axes
        for p in axis
        if p.source is not None and p.source[0] == "output"
    }
    return {(source[1], axis, entries(term, source, axis)) for source, axis in pieces}


def _stack(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    axis = int(equation.parameters["axis"])
    longer = [
        v.of(
            (*v.shape[:axis], 1, *v.shape[axis:]),
            [t._replace(axes=(*t.axes[:axis], (), *t.axes[axis:])) for t in v.terms],
        )
        for v in values
    ]
    return _joined(equation, longer, uses, place)


def _pad(equation: Equation, values: list[Value], uses: Uses, place: Hashable) -> list[Value]:
    return _moved(
        equation,
        values[0],
        uses,
        place,
        lambda term: fitted(term, shapes_of(equation)[0]),
        values[1:],
    )


def _all_gather(
    equation: Equation, values: list[Value], uses: Uses, place: Hashable
) -> list[Value]:
    (shape,), axis, tiled = (
        shapes_of(equation),
        equation.parameters["all_gather_dimension"],
        equation.parameters["tiled"],
    )

    def move(term: Term) -> Term:
        axes = term.axes if tiled else (*term.axes[:axis], unknown(shape[axis]), *term.axes[axis:])
        return fitted(term._replace(axes=axes), shape)

    return _moved(equation, values[0], uses, place, move)


MOVES: dict[str, Rule] = {
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "squeeze": _squeeze,
    "slice": _slice,
    "split": _split,
    "unstack": _unstack,
    "stack": _stack,
    "dynamic_slice": _dynamic_slice,
    "gather": _gather,
    "concatenate": _concatenate,
    "pad": _pad,
    "all_gather": _all_gather,
}
