"""The table that every experiment has: the numbers of its statements, point by point."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from specjax.lab.finding import Finding, Point

POINTS = "What each verdict follows from"
"""The title of the table that every experiment has."""
_MOST = 12
"""Points of a statement that the table shows: those that decide come first."""


@dataclass(frozen=True)
class Table:
    """A table of a report: a title, column heads, and rows of text cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table_of_points(findings: Mapping[str, Finding]) -> Table:
    """Estimate, interval and what it was compared with, at each point of each statement by name, the deciding one first."""
    rows = [
        (name if place == 0 else "", *_cells(point), str(found.draws))
        for name, found in findings.items()
        for place, point in enumerate(found.points[:_MOST])
    ]
    header = ("statement", "at", "estimate", "interval", "compared with", "draws")
    return Table(POINTS, header, tuple(rows))


def _cells(point: Point) -> tuple[str, ...]:
    return point.label, _text(point.estimate), f"{_text(point.low)} to {_text(point.high)}", _text(point.compared)


def _text(value: float) -> str:
    return f"{value:.5g}" if math.isfinite(value) else "–" if math.isnan(value) else "∞" if value > 0 else "-∞"
