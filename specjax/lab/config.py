"""Configurations: frozen dataclasses whose fields are flags of the command line and refuse, in one sentence, what cannot be judged.

    class Config(lab.Config):
        widths: tuple[int, ...] = lab.sizes(16, 32, 64, 128, 256, points=5, help="hidden units")
        seeds: int = lab.seeds(4000)

Every configuration has the field `seed`, from which all randomness comes: `sizes.stream(key, name)` makes one key for each use.
"""

import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, dataclass_transform


def sizes(*default: int, least: int = 1, points: int = 1, count: int | None = None, help: str) -> Any:
    """A field of sizes in ascending order, at least `points` of them, or `count` if given, each at least `least`."""
    return _field(default, _ascending("sizes", least, points, count), help)


def ascending(
    *default: float | int, least: float | int, points: int = 1, first: float | int | None = None, help: str
) -> Any:
    """A field of finite numbers in ascending order, at least `points` of them, each at least `least`; `first` is the first, if given."""
    in_order = _ascending("numbers", least, points)

    def check(name: str, value: tuple[float | int, ...]) -> None:
        in_order(name, value)
        if first is not None and value[0] != first:
            raise ValueError(f"{name} needs {first:g} as its first number, got {value}.")

    return _field(tuple(map(float, default)), check, help)


def integer(default: int, *, least: int = 1, most: int | None = None, help: str) -> Any:
    """A field of one integer from `least` to `most`, which is a flag of the command line with the text `help`; others are refused."""
    return _field(default, _between(least, most), help)


def number(
    default: float | int,
    *,
    above: float | int = -math.inf,
    below: float | int = math.inf,
    least: float | int = -math.inf,
    help: str,
) -> Any:
    """A field of one finite number strictly between `above` and `below`, and at least `least`."""

    def check(name: str, value: float) -> None:
        if not (math.isfinite(value) and above < value < below and least <= value):
            at_least = "" if math.isinf(least) else f" of at least {least:g}"
            ends = "" if math.isinf(above) and math.isinf(below) else f" between {above:g} and {below:g}, ends excluded"
            raise ValueError(f"{name} must be a finite number{at_least}{ends}, got {value}.")

    return _field(float(default), check, help)


def numbers(
    *default: float | int,
    above: float | int = -math.inf,
    below: float | int = math.inf,
    count: int | None = None,
    help: str,
) -> Any:
    """A field of one or more different finite numbers strictly between `above` and `below`; `count` of them, if given."""

    def check(name: str, value: tuple[float, ...]) -> None:
        if not value or len(set(value)) < len(value) or not all(math.isfinite(v) and above < v < below for v in value):
            raise ValueError(
                f"{name} needs one or more different finite numbers between {above:g} and {below:g}, got {value}."
            )
        if count is not None and len(value) != count:
            raise ValueError(f"{name} needs {count} numbers, got {value}.")

    return _field(tuple(map(float, default)), check, help)


def grid(*default: float | int, count: int | None = None, help: str) -> Any:
    """A field of positive numbers in ascending order, to take the best of: three or more, so that one lies inside, or `count`."""

    def check(name: str, value: tuple[float, ...]) -> None:
        in_order = all(low < high for low, high in pairwise((0.0, *value, math.inf)))
        if not in_order or (len(value) < 3 if count is None else len(value) != count):
            number = "3 or more" if count is None else f"{count}"
            raise ValueError(
                f"{name} needs {number} positive numbers in ascending order, so that one lies inside, got {value}."
            )

    return _field(tuple(map(float, default)), check, help)


def seeds(default: int, *, least: int = 2, help: str = "independent draws") -> Any:
    """A field for a number of draws; one draw has no standard error."""
    return _field(default, _between(least, None), help)


def text(default: str, *, help: str) -> Any:
    """A field of text."""
    return _field(default, None, help)


def switch(default: bool, *, help: str) -> Any:
    """A field that is true or false."""
    return _field(default, None, help)


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(sizes, ascending, integer, number, numbers, grid, seeds, text, switch),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration: subclasses become frozen dataclasses, and every field is checked when one is made.

    What concerns several fields at once is checked in `__post_init__`, after `super().__post_init__()`.
    """

    seed: int = dataclasses.field(default=0, metadata={"help": "root of all randomness"})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to 2^32 - 1, got {self.seed}.")
        for field in dataclasses.fields(self):
            if "check" in field.metadata:
                field.metadata["check"](field.name, getattr(self, field.name))


def _ascending(called: str, least: float | int, points: int, count: int | None = None) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        in_order = all(low < high for low, high in pairwise(value))
        enough = len(value) >= points if count is None else len(value) == count
        if not enough or not in_order or not all(least <= each < math.inf for each in value):
            number = f"{points} or more " if points > 1 else ""
            number = number if count is None else f"{count} "
            raise ValueError(
                f"{name} needs {number}different {called} in ascending order, each at least {least:g}, got {tuple(value)}."
            )

    return check


def _between(least: int, most: int | None) -> Callable[[str, Any], None]:
    def check(name: str, value: int) -> None:
        if value < least or (most is not None and value > most):
            raise ValueError(
                f"{name} must be at least {least}{'' if most is None else f' and at most {most}'}, got {value}."
            )

    return check


def _field(default: Any, check: Callable[[str, Any], None] | None, help: str) -> Any:
    checked = {} if check is None else {"check": check}
    return dataclasses.field(default=default, metadata={"help": help, **checked})
