"""What a relation finds in data: a verdict with the numbers that it follows from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr

from specjax.lab.estimates import Estimate, Number

Verdict = Literal["confirmed", "refuted", "inconclusive"]


@dataclass(frozen=True)
class Distance:
    """How far one rival is: `standard_errors` between it and the estimate, where they are farthest;
    excluded beyond 4.
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
    """A verdict, the rule it follows from, and its numbers at every point, the deciding one first.

    `draws` is the number of draws at the point with fewest. `reason` says why nothing could be
    decided, or at which length a verdict turns; it is empty where the numbers say all. `away` is
    how far the prediction is from the estimate at the deciding point, in standard errors, None
    where no number is predicted. `turns` says that the verdict changes along the length of a
    training.
    """

    verdict: Verdict
    rule: str
    points: tuple[Point, ...]
    draws: int
    rivals: tuple[Distance, ...] = ()
    reason: str = ""
    away: float | None = None
    turns: bool = False

    @property
    def deciding(self) -> Point:
        """The point that decides: the one nearest to the other verdict."""
        return self.points[0]

    @property
    def power(self) -> str:
        """How well the data tell: the distance of the nearest rival, or of a refuted prediction
        itself; empty where there is none.
        """
        if self.verdict == "refuted" and self.away is not None:
            return f"{self.away:.3g} SE from the prediction"
        return str(min(self.rivals, key=lambda rival: rival.standard_errors)) if self.rivals else ""


def points(found: Estimate, compared: Number, first: xr.DataArray) -> tuple[Point, ...]:
    """The points of an estimate, that with the largest `first` before all others."""
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


def distances(found: Estimate, rivals: Mapping[str, Number]) -> tuple[Distance, ...]:
    """How far each rival is at the point where it is farthest: a rival is excluded that lies
    outside of one interval.
    """
    return tuple(
        Distance(name, float(found.distance(rival).max()), bool((~found.contains(rival)).any()))
        for name, rival in rivals.items()
    )


def labelled(values: xr.DataArray) -> Iterator[tuple[tuple[int, ...], str]]:
    """Every place in an array, with the names and coordinates of its dimensions in words."""
    for index in np.ndindex(values.shape):
        where = zip(map(str, values.dims), index, strict=True)
        yield index, ", ".join(f"{dim} = {_coordinate(values, dim, i)}" for dim, i in where)


def _coordinate(values: xr.DataArray, dim: str, place: int) -> str:
    found = values[dim].values[place]
    return f"{found:g}" if np.issubdtype(type(found), np.number) else str(found)
