"""What the configurations of these experiments must satisfy, checked before anything is compiled."""

from collections.abc import Sequence
from itertools import pairwise

from specjax.theory.preconditioning.conditions import check_condition_number


def check_kappas(name: str, kappas: Sequence[float], points: int) -> None:
    """Raises ValueError unless there are at least `points` condition numbers, ascending, from 1 up."""
    if len(kappas) < points or any(low >= high for low, high in pairwise(kappas)):
        raise ValueError(
            f"{name} needs {points} or more different condition numbers in ascending order, got {tuple(kappas)}."
        )
    check_condition_number(kappas)


def check_accuracy(accuracy: float) -> None:
    """Raises ValueError for an accuracy outside [1e-13, 1): float64 rounds the errors that are compared with it."""
    if not 1e-13 <= accuracy < 1:
        raise ValueError(f"accuracy must be from 1e-13, above the rounding of float64, to 1, got {accuracy}.")
