"""Findings of a relation: a verdict with the numbers that it follows from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from specjax.lab.estimates import Estimate, Number

Verdict = Literal["confirmed", "refuted", "inconclusive"]
NOT_SHARP = "Not sharp here"
"""Begins the last sentence of a reason where a bound holds that is tighter than the one judged."""
FACTORS = (1.1, 0.9)
"""A wrong formula is one of these times the right one: a constant too large, or too small."""
COARSE = "Not sharp to a tenth"
"""Begins the last sentence of a reason where a formula a tenth off would be confirmed as well."""
ROOM = "Holds with room to spare"
"""Begins the last sentence of a reason where half of the effect would be confirmed as well."""


@dataclass(frozen=True)
class Distance:
    """Distance of a rival: the largest number of `standard_errors` to the estimate; excluded beyond
    4.
    """

    rival: str
    standard_errors: float
    excluded: bool

    def __str__(self) -> str:
        return f"{self.standard_errors:.3g} SE from {self.rival}"


@dataclass(frozen=True)
class Point:
    """One point of the data: its coordinates, the estimate with its interval, and the number it was
    compared with.
    """

    label: str
    estimate: float
    low: float
    high: float
    compared: float


@dataclass(frozen=True)
class Finding:
    """A verdict, its rule, and its numbers at every point, the deciding one first.

    `samples` is the number of samples at the point with fewest. `reason` says why the verdict is
    inconclusive, or at which length it changes; it is empty if the numbers say all. `away` is the
    distance of the prediction from the estimate at the deciding point in standard errors, None if
    no number is predicted. `turns`: the verdict changes along the length of a training. `margin`:
    the smallest margin of a bound, as a share of it; None for other relations.
    """

    verdict: Verdict
    rule: str
    points: tuple[Point, ...]
    samples: int
    rivals: tuple[Distance, ...] = ()
    reason: str = ""
    away: float | None = None
    turns: bool = False
    margin: float | None = None

    @property
    def deciding(self) -> Point:
        """The point nearest to the other verdict."""
        return self.points[0]

    @property
    def power(self) -> str:
        """Distance of the nearest rival, or of a refuted prediction; empty if there is none."""
        if self.verdict == "refuted" and self.away is not None:
            return f"{self.away:.3g} SE from the prediction"
        return str(min(self.rivals, key=lambda rival: rival.standard_errors)) if self.rivals else ""


def points(found: Estimate, compared: Number, first: xr.DataArray) -> tuple[Point, ...]:
    """The points of an estimate, the one with the largest `first` before all others."""
    values, low, high, against, order = xr.broadcast(
        found.value, found.low, found.high, xr.DataArray(compared), first
    )
    rows = [
        Point(label, *(float(a.values[index]) for a in (values, low, high, against)))
        for index, label in labelled(values)
    ]
    if not rows:
        raise ValueError(f"{found.value.name!r} has no points to judge.")
    place = int(np.argmax(order.values))
    return (rows[place], *rows[:place], *rows[place + 1 :])


def paired(first: Finding, second: Finding) -> list[tuple[Point, Point]] | None:
    """The points of two findings by their labels, in the order of the second; None if the labels
    differ.
    """
    others = {at.label: at for at in first.points}
    if others.keys() != {at.label for at in second.points}:
        return None
    return [(others[at.label], at) for at in second.points]


def moves(first: Finding, second: Finding) -> list[tuple[float, Point]] | None:
    """How far the difference of the estimate from the compared number moves at each point of the
    second finding, with that point; None if the labels differ.
    """
    pairs = paired(first, second)
    if pairs is None:
        return None
    return [
        (abs((one.estimate - one.compared) - (other.estimate - other.compared)), other)
        for one, other in pairs
    ]


def distances(found: Estimate, rivals: Mapping[str, Number]) -> tuple[Distance, ...]:
    """The distance of each rival at the point where it is farthest; a rival outside of one interval
    is excluded.
    """
    return tuple(
        Distance(name, float(found.distance(rival).max()), bool((~found.contains(rival)).any()))
        for name, rival in rivals.items()
    )


def labelled(values: xr.DataArray) -> Iterator[tuple[tuple[int, ...], str]]:
    """Each index of an array, with the names and coordinates of its dimensions as text."""
    for index in np.ndindex(values.shape):
        where = zip(map(str, values.dims), index, strict=True)
        yield index, ", ".join(f"{dim} = {_coordinate(values, dim, i)}" for dim, i in where)


def _coordinate(values: xr.DataArray, dim: str, place: int) -> str:
    found = values[dim].values[place]
    return f"{found:g}" if np.issubdtype(type(found), np.number) else str(found)
