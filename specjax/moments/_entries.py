"""Rules for identities, masks and single entries, rows or columns of arrays in traced functions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from specjax.moments._expression import Expression, contract, uniform
from specjax.moments._graph import Size
from specjax.moments._values import (
    Places,
    Rule,
    Value,
    constant_number,
    every,
    number,
    size_of,
    spread,
)


def _iota(_: Sequence[Any], shape: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    return Places(shape, params["dimension"])


def _equal(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    """Return ones where two places are equal: an identity, or one entry."""
    a, b = inputs if isinstance(inputs[0], Places) else inputs[::-1]
    labels = list(range(len(shape)))
    if not isinstance(a, Places):
        return uniform(
            shape, int(constant_number(number(a, "eq")) == constant_number(number(b, "eq")))
        )
    sizes = dict(enumerate(shape))
    if isinstance(b, Places):
        if shape[a.axis] != shape[b.axis]:
            raise ValueError(
                f"The function compares places along axes of sizes {shape[a.axis]} and"
                f" {shape[b.axis]}; only square ones."
            )
        labels[b.axis] = a.axis
        return contract((), (), labels, sizes=sizes)
    return contract(
        (), (), labels, sizes=sizes, pins={a.axis: int(constant_number(number(b, "eq")))}
    )


def _select(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    which, no, yes = (spread(each, shape) for each in inputs)
    return no + _masked(which, yes - no)


def _masked(mask: Expression, word: Expression) -> Expression:
    return contract((mask, word), (every(word), every(word)), every(word))


def _less(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    a, b = (constant_number(number(each, "lt")) for each in inputs)
    return uniform(shape, int(a < b))


def _slice(inputs: Sequence[Any], shape: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    if params["strides"] is not None and any(stride != 1 for stride in params["strides"]):
        raise ValueError(
            "The function takes every so many entries of an axis; only whole axes and single places"
            " are followed."
        )
    return _take(inputs[0], params["start_indices"], shape)


def _dynamic_slice(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    word, *starts = inputs
    return _take(word, [_place(start) for start in starts], shape)


def _gather(inputs: Sequence[Any], _: tuple[Size, ...], params: Mapping[str, Any]) -> Value:
    """Take rows, columns and the like at one place; arrays of places are refused."""
    word, index = inputs
    numbers = params["dimension_numbers"]
    if index.ndim != 1 or numbers.operand_batching_dims:
        raise ValueError(
            "The function takes entries at an array of places; only whole axes and single places"
            " are followed."
        )
    starts = [_place(index) if axis in numbers.start_index_map else 0 for axis in range(word.ndim)]
    taken = _take(word, starts, tuple(size_of(extent) for extent in params["slice_sizes"]))
    collapsed = tuple(int(axis) for axis in numbers.collapsed_slice_dims)
    return taken.sum(collapsed) if collapsed else taken


def _place(index: Expression) -> int:
    """Return the place of an entry as an int; ValueError if it depends on a size."""
    value = number(index, "an entry")
    if value.names:
        raise ValueError(
            f"The function takes the place {value}; entries are followed at places that are numbers"
            " from 0 on."
        )
    return int(constant_number(value))


def _take(word: Expression, starts: Sequence[Any], shape: tuple[Size, ...]) -> Expression:
    """Keep whole axes; of the others take one place, as an axis of size 1."""
    result, pins = [], {}
    for axis, (size, kept, start) in enumerate(zip(word.shape, shape, starts, strict=True)):
        result.append(axis if size == kept else word.ndim + axis)
        if size != kept:
            if kept != 1:
                raise ValueError(
                    f"The function takes {kept} of {size} entries; only whole axes and single"
                    " places are followed."
                )
            if not isinstance(start, int | np.integer):
                raise ValueError(
                    f"The function takes the place {start}; entries are followed at places that are"
                    " numbers from 0 on."
                )
            pins[axis] = int(start)
    return contract(
        (word,), (every(word),), result, sizes={word.ndim + axis: 1 for axis in pins}, pins=pins
    )


def _dynamic_update_slice(inputs: Sequence[Any], shape: tuple[Size, ...], _: Any) -> Value:
    """Replace single places by the update, as the derivative of an entry does."""
    word, update, *starts = inputs
    pins = {
        axis: _place(start)
        for axis, start in enumerate(starts)
        if update.shape[axis] != shape[axis]
    }
    if any(update.shape[axis] != 1 for axis in pins):
        raise ValueError(
            f"The function replaces {update.shape} of {shape}; only whole axes and single places"
            " are followed."
        )
    mask = contract((), (), range(len(shape)), sizes=dict(enumerate(shape)), pins=pins)
    return word + _masked(mask, spread(update, shape) - word)


ENTRY_RULES: Mapping[str, Rule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "eq": _equal,
    "gather": _gather,
    "iota": _iota,
    "lt": _less,
    "select_n": _select,
    "slice": _slice,
}

OF_PLACES = frozenset(("add", "broadcast_in_dim", "convert_element_type", "copy", "eq"))
"""The operations that accept `Places`."""
