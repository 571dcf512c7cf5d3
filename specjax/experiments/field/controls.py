"""Controls of several experiments of this folder."""

from collections.abc import Callable, Mapping
from typing import Any

from specjax import lab


def exchange(
    dim: str, first: Any, second: Any, *, of: str | None = None
) -> dict[str, Callable[[Any, Any], Any]]:
    """A control that exchanges two coordinates of `dim`, in all data or the dataset `of`."""
    other = {first: second, second: first}
    control = lab.controls.changing(lambda data: lab.controls.at_labels(data, dim, other), of=of)
    return {f"{first} and {second} exchanged": control}


def part_way(
    dim: str, other: Mapping[Any, Any], *, share: float = 0.5, of: str | None = None
) -> dict[str, Callable[[Any, Any], Any]]:
    """A control with coordinates of `dim` moved a part of the way to others, by default half of it:
    a wrong number that is nearer than an exchange.
    """
    names = ", ".join(f"{first} {share:g} of the way to {end}" for first, end in other.items())
    control = lab.controls.changing(
        lambda data: lab.controls.toward(data, dim, other, share), of=of
    )
    return {names: control}


def repeat_place(dim: str, place: int) -> Callable[[Any, Any], Any]:
    """A control with the values at one place of `dim` at every place."""
    return lab.controls.changing(lambda data: lab.controls.at_places(data, dim, place))
