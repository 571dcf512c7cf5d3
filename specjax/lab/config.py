"""Configurations: frozen dataclasses whose fields are flags of the command line, each with its own
check.

    class Config(lab.Config): widths: tuple[int, ...] = lab.config.sizes(16, 32, 64, 128, 256,
        points=5, help="hidden units") seeds: int = lab.config.seeds(4000)

Every configuration has the field `seed`, from which all randomness comes: `sizes.stream(key, name)`
makes one key for each use.

The default of a field passes the same check as a typed value.
"""

import dataclasses
import math
from collections.abc import Callable
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, dataclass_transform

from specjax.arguments import checked_but

MOST_SIZE = 2**20
"""Largest size of a field: a square float32 matrix with that side takes 4 TiB, more than any device
has.
"""
MOST_COUNT = 2**31 - 1
"""Largest number of steps or samples, which are counted in int32."""
_FLOAT32 = float.fromhex("0x1.fffffep+127")
"""Largest float32 number, the dtype of experiments."""


@checked_but("default")
def sizes(
    *default: int,
    least: int = 1,
    most: int = MOST_SIZE,
    points: int = 1,
    count: int | None = None,
    help: str,
) -> Any:
    """A field of sizes in ascending order from `least` to `most`: at least `points`, or exactly
    `count`.

    For numbers of steps or samples, which are not sides of matrices, take
    `most=lab.config.MOST_COUNT`.
    """
    return _field(default, _ascending("sizes", least, points, count, most), help)


@checked_but("default")
def ascending(
    *default: float | int,
    least: float | int,
    points: int = 1,
    first: float | int | None = None,
    help: str,
) -> Any:
    """A field of at least `points` finite numbers in ascending order from `least` on; `first`, if
    given, must be the first.
    """
    in_order = _ascending("numbers", least, points)

    def check(name: str, value: Any) -> None:
        in_order(name, value)
        if first is not None and value[0] != first:
            raise ValueError(f"{name} needs {first:g} as its first number, got {value}.")

    return _field(_floats(default), check, help)


@checked_but("default")
def integer(default: int, *, least: int = 1, most: int = MOST_SIZE, help: str) -> Any:
    """A field of one integer from `least` to `most`, with the text `help` for its flag.

    For a number of steps or samples take `most=lab.config.MOST_COUNT`.
    """
    return _field(default, _between(least, most), help)


@checked_but("default")
def number(
    default: float | int,
    *,
    above: float | int = -math.inf,
    below: float | int = math.inf,
    least: float | int = -math.inf,
    help: str,
) -> Any:
    """A field of one finite number strictly between `above` and `below`, and at least `least`."""

    def check(name: str, value: Any) -> None:
        if not (_is_float32(value) and above < value < below and least <= value):
            at_least = "" if math.isinf(least) else f" of at least {least:g}"
            ends = (
                ""
                if math.isinf(above) and math.isinf(below)
                else f" between {above:g} and {below:g}, ends excluded"
            )
            raise ValueError(
                f"{name} must be a finite number{at_least}{ends}, got {_shown(value)}."
            )

    return _field(_floats(default), check, help)


@checked_but("default")
def numbers(
    *default: float | int,
    above: float | int = -math.inf,
    below: float | int = math.inf,
    count: int | None = None,
    help: str,
) -> Any:
    """A field of different finite numbers strictly between `above` and `below`: one or more, or
    `count`.
    """

    def check(name: str, value: Any) -> None:
        good = _each(value, lambda v: _is_float32(v) and above < v < below)
        if not good or not value or len(set(value)) < len(value):
            ends = (
                ""
                if math.isinf(above) and math.isinf(below)
                else f" between {above:g} and {below:g}"
            )
            raise ValueError(
                f"{name} needs one or more different finite numbers{ends}, got {_shown(value)}."
            )
        if count is not None and len(value) != count:
            raise ValueError(f"{name} needs {count} numbers, got {value}.")

    return _field(_floats(default), check, help)


@checked_but("default")
def grid(*default: float | int, count: int | None = None, help: str) -> Any:
    """A field of positive numbers in ascending order to choose the best from: three or more, so
    that one is inside, or `count`.
    """

    def check(name: str, value: Any) -> None:
        in_order = _each(value, _is_float32) and all(
            low < high for low, high in pairwise((0.0, *value))
        )
        if not in_order or (len(value) < 3 if count is None else len(value) != count):
            number = "3 or more" if count is None else f"{count}"
            raise ValueError(
                f"{name} needs {number} positive numbers in ascending order, so that one lies"
                f" inside, got {_shown(value)}."
            )

    return _field(_floats(default), check, help)


@checked_but("default")
def seeds(default: int, *, least: int = 2, help: str = "independent samples") -> Any:
    """A field for the number of seeds, at least 2, since one has no standard error."""
    return _field(default, _between(least, MOST_COUNT), help)


@checked_but("default")
def root_seed(default: int, *, help: str) -> Any:
    """The field `seed` of a configuration whose default is not 0."""
    return _field(default, _between(0, 2**32 - 1), help)


@checked_but("default")
def text(default: str, *, help: str) -> Any:
    """A field of text."""
    return _field(default, _require_type(str, "text"), help)


@checked_but("default")
def switch(default: bool, *, help: str) -> Any:
    """A field that is true or false."""
    return _field(default, _require_type(bool, "True or False"), help)


@dataclass_transform(
    frozen_default=True,
    kw_only_default=True,
    field_specifiers=(
        sizes,
        ascending,
        integer,
        number,
        numbers,
        grid,
        seeds,
        root_seed,
        text,
        switch,
    ),
)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """A configuration: subclasses become frozen dataclasses, whose fields are checked on
    construction.

    Check conditions on several fields in `__post_init__`, after `super().__post_init__()`.
    """

    seed: int = dataclasses.field(default=0, metadata={"help": "root of all randomness"})

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)

    def __post_init__(self) -> None:
        if not _is_int(self.seed) or not 0 <= self.seed < 2**32:
            raise ValueError(f"seed must be from 0 to 2^32 - 1, got {_shown(self.seed)}.")
        for field in dataclasses.fields(self):
            if "check" in field.metadata:
                field.metadata["check"](field.name, getattr(self, field.name))


def _ascending(
    called: str,
    least: float | int,
    points: int,
    count: int | None = None,
    most: float | int = _FLOAT32,
) -> Callable[[str, Any], None]:
    is_one = _is_int if called == "sizes" else _is_float32

    def check(name: str, value: Any) -> None:
        good = _each(value, lambda v: is_one(v) and v >= least) and all(
            low < high for low, high in pairwise(value)
        )
        if not good or (len(value) < points if count is None else len(value) != count):
            number = f"{points} or more " if points > 1 else ""
            number = number if count is None else f"{count} "
            raise ValueError(
                f"{name} needs {number}different {called} in ascending order, each at least"
                f" {least:g}, got {_shown(value)}."
            )
        if value and value[-1] > most:
            raise ValueError(f"{name} needs {called} of at most {most}, got {_shown(value)}.")

    return check


def _between(least: int, most: int) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if not _is_int(value):
            raise ValueError(f"{name} must be an integer, got {_shown(value)}.")
        if value < least or value > most:
            ends = (
                f" and at most {most}"
                if value > most or most not in (MOST_SIZE, MOST_COUNT)
                else ""
            )
            raise ValueError(f"{name} must be at least {least}{ends}, got {_shown(value)}.")

    return check


def _require_type(kind: type, wanted: str) -> Callable[[str, Any], None]:
    def check(name: str, value: Any) -> None:
        if not isinstance(value, kind):
            raise ValueError(f"{name} must be {wanted}, got {_shown(value)}.")

    return check


def _is_int(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_float32(value: Any) -> bool:
    """Whether a value is a finite real number that float32 can hold."""
    return isinstance(value, Real) and not isinstance(value, bool) and abs(value) <= _FLOAT32  # type: ignore[operator]


def _each(values: Any, holds: Callable[[Any], bool]) -> bool:
    return isinstance(values, tuple | list) and all(map(holds, values))


def _floats(default: Any) -> Any:
    """Whole numbers as floats; other values stay for the check of the field to refuse."""
    if isinstance(default, tuple):
        return tuple(map(_floats, default))
    return float(default) if _is_float32(default) else default


def _shown(value: Any) -> str:
    """A value as an error shows it; too large numbers say so."""
    if isinstance(value, float) and _FLOAT32 < abs(value) < math.inf:
        return f"{value}, beyond 3.4e38, the largest of float32"
    try:
        text = " ".join(repr(tuple(value) if isinstance(value, list) else value).split())
    except ValueError:  # an int of more digits than Python prints
        return f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:40]} ... {text[-20:]}"


def _field(default: Any, check: Callable[[str, Any], None], help: str) -> Any:
    check("The default of a field", default)
    return dataclasses.field(default=default, metadata={"help": help, "check": check})
