"""Axes of a sweep as text: `d=16:512`, `rate=0.01,0.1`, `activation=relu,tanh`."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from specjax.cli._errors import UserError, value_errors_in_one_sentence

if TYPE_CHECKING:
    from specjax.sweep.axes import Single

HELP = """axes, as many as wanted after one --over:
  d=16:512          sizes that double from 16 to 512
  d=16:512:6        6 sizes from 16 to 512 with equal ratios
  d=16,24,40        these sizes
  rate=0.001:1:7    7 values with equal ratios; a decimal point or an exponent makes values
  rate=0.01,0.1     these values
  activation=relu,tanh   choices: the function gets the text"""


def parse_axes(
    over: Sequence[str], values: Sequence[str], choices: Sequence[str]
) -> "dict[str, Single]":
    """The axes of --over, --values and --choices by name."""
    from specjax import sweep

    kinds: dict[str, Callable[..., Single]] = {
        "--values": sweep.values,
        "--choices": sweep.choices,
    }
    axes: dict[str, Single] = {}
    for flag, texts in (("--over", over), ("--values", values), ("--choices", choices)):
        for text in texts:
            name, equals, listed = text.partition("=")
            if not (equals and listed and name.isidentifier()):
                raise UserError(
                    f"{flag} needs NAME=POINTS, as in `{flag} d=16:512`, got {text!r}; the function"
                    " comes before it."
                )
            if name in axes:
                raise UserError(f"The axis {name!r} is given twice; write its points in one list.")
            points = _parse_points(flag, text, listed)
            with value_errors_in_one_sentence():
                axes[name] = kinds.get(flag, _inferred(points))(*points)
    return axes


def _inferred(points: "Sequence[int | float | str]") -> "Callable[..., Single]":
    """Sizes for whole numbers, values for other numbers, choices for words."""
    from specjax import sweep

    if any(isinstance(point, str) for point in points):
        return sweep.choices
    return sweep.widths if all(isinstance(point, int) for point in points) else sweep.values


def _parse_points(flag: str, text: str, listed: str) -> list[int | float | str]:
    if ":" not in listed:
        points = [_parse_number(word) for word in listed.split(",")]
        # One kind for all: 0.1,1 are values, and relu,2 are words.
        if any(isinstance(point, str) for point in points):
            return list(listed.split(","))
        whole = all(isinstance(point, int) for point in points)
        return points if whole else [float(point) for point in points]
    ends = [_parse_number(word) for word in listed.split(":")]
    if len(ends) not in (2, 3) or not all(isinstance(e, int | float) and e > 0 for e in ends):
        raise UserError(
            f"{flag} {text}: a range is FROM:TO, which doubles, or FROM:TO:COUNT, of positive"
            " numbers, as in 16:512 or 0.001:1:7."
        )
    return _range(flag, text, [end for end in ends if not isinstance(end, str)])


def _range(flag: str, text: str, ends: list[int | float]) -> list[int | float | str]:
    low, high, *counts = ends
    if not low < high:
        raise UserError(f"{flag} {text}: the range needs to begin below its end.")
    if not counts:
        doublings = int(np.log2(high / low) + 1e-9)
        return [low * 2**k for k in range(doublings + 1)]
    (count,) = counts
    if not isinstance(count, int) or count < 2:
        raise UserError(
            f"{flag} {text}: the number of points needs to be whole and at least 2, got {count}."
        )
    spaced = np.geomspace(low, high, count).tolist()
    if isinstance(low, int) and isinstance(high, int):
        return list(dict.fromkeys(round(point) for point in spaced))
    return [float(f"{point:.6g}") for point in spaced]


def _parse_number(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        return number if np.isfinite(number) else word
    return word
