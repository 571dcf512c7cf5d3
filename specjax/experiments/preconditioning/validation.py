"""Fields of configurations that refuse, before anything is compiled, what the theorems or float64 do not cover."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from specjax import lab
from specjax.theory.preconditioning.conditions import check_condition_number


def condition_numbers(*default: float | int, points: int, help: str) -> Any:
    """A field of at least `points` condition numbers, ascending from 1 up."""

    def check(name: str, kappas: Any) -> None:
        if len(kappas) < points or any(low >= high for low, high in pairwise(kappas)):
            needs = f"{points} or more different condition numbers in ascending order"
            raise ValueError(f"{name} needs {needs}, got {tuple(kappas)}.")
        check_condition_number(kappas)

    return _also(check, lab.numbers(*default, above=0, help=f"condition numbers {help}, ascending from 1 up"))


def condition_number(default: float, *, help: str) -> Any:
    """A field of one condition number."""
    return _also(lambda _, kappa: check_condition_number(kappa), lab.number(default, help=help))


def relative_error(default: float) -> Any:
    """A field of the relative error at which a run has arrived, from 1e-13 to 1: float64 rounds the errors that are compared with it."""

    def check(name: str, value: float) -> None:
        if not 1e-13 <= value < 1:
            raise ValueError(f"{name} must be from 1e-13, above the rounding of float64, to 1, got {value}.")

    return _also(check, lab.number(default, above=0, help="error relative to the norm of the target"))


def _also(check: Callable[[str, Any], None], field: Any) -> Any:
    def both(name: str, value: Any) -> None:
        field.metadata["check"](name, value)
        check(name, value)

    return dataclasses.field(default=field.default, metadata={**field.metadata, "check": both})
