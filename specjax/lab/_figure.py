"""The figures of an experiment without its own: its finding in at most four panels, and all
statements in a grid.
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from specjax.lab.drawing import words
from specjax.lab.estimates import Number
from specjax.lab.relations import Relation
from specjax.lab.relations.line import Line, draw_lines

MOST_PANELS, MOST_ENTRIES = 4, 6
"""Most panels of the figure of a finding, and entries of its legends."""
_ACROSS, _LINES = 3, 9
"""Panels side by side in the grid, and lines in one panel."""
_WIDTH, _HEIGHT, _LEAST = 4.2, 3.4, 5.4
"""Inches of a panel, and the least width of a figure, for the longest label of an axis beside the
names of lines.
"""
_ENTRIES, _ENTRY = 12, 0.13
"""Most entries of a legend of the grid, and the height of one in inches."""
_LETTERS, _LETTERS_BELOW = 32, 64
"""Most letters in a line of an axis label, which is as long as a panel is high, and of a legend,
whose letters are smaller.
"""

Drawn = tuple[Relation, Mapping[str, Number]]


@dataclass(frozen=True)
class _Panel:
    """A statement with a curve, or lines of several statements on one axis."""

    names: tuple[str, ...]
    title: str
    drawn: Drawn | None
    lines: Mapping[str, Line]


def finding_figure(statements: Mapping[str, Drawn], first: Sequence[str]) -> Figure:
    """At most four panels, those with the statements `first` before the others.

    Statements about the same data, such as a printed and a corrected formula, share a panel, in
    which the prediction of the second is one more line.
    """
    panels = _panels(_merged(statements, first))
    order = {name: place for place, name in enumerate(first)}
    # A panel of lines says less than a curve, so curves come before it.
    panels.sort(
        key=lambda panel: (
            min(order.get(name, len(order)) for name in panel.names),
            panel.drawn is None,
        )
    )
    shown = panels[:MOST_PANELS]
    # Three in one row, as a grid of two by two would have an empty place.
    return _figure(shown, 3 if len(shown) == 3 else 2, MOST_ENTRIES)


def statement_grid(statements: Mapping[str, Drawn]) -> Figure:
    """A panel for each statement with a curve or rivals, drawn by its relation, and panels of lines
    for the others, by axis.
    """
    return _figure(_panels(statements), _ACROSS, _ENTRIES)


def _merged(statements: Mapping[str, Drawn], first: Sequence[str]) -> dict[str, Drawn]:
    """The statements without those that are a further line in the panel of another one."""
    kept: dict[str, Drawn] = {}
    names = [*first, *(name for name in statements if name not in first)]
    for name in names:
        relation, rivals = statements[name]
        prediction = relation.prediction
        for other, (shown, others) in kept.items():
            if prediction is not None and _same_data(relation, shown):
                kept[other] = (shown, {_title(name): prediction, **others})
                break
        else:
            kept[name] = (relation, rivals)
    return kept


def _same_data(one: Relation, other: Relation) -> bool:
    """Whether two relations of one kind are about the same samples."""
    samples = [getattr(relation, "samples", None) for relation in (one, other)]
    if type(one) is not type(other) or samples[0] is None:
        return False
    return bool(samples[0].identical(samples[1]))


def _panels(statements: Mapping[str, Drawn]) -> list[_Panel]:
    """Curves in the order of the statements, then lines by axis."""
    curves = []
    axis_lines = dict[str, list[tuple[str, Line]]]()
    for name, drawn in statements.items():
        line = drawn[0].line()
        if line is None:
            curves.append(_Panel((name,), _title(name), drawn, {}))
        else:
            axis_lines.setdefault(line.axis, []).append((name, line))
    strips = [
        lines[k : k + _LINES] for lines in axis_lines.values() for k in range(0, len(lines), _LINES)
    ]
    return curves + [
        _Panel(
            tuple(name for name, _ in strip),
            "",
            None,
            {_title(name): line for name, line in strip},
        )
        for strip in strips
    ]


def _figure(panels: Sequence[_Panel], across: int, entries: int) -> Figure:
    count = len(panels)
    across = min(count, across)
    down = -(-count // across)
    figure = Figure(figsize=(max(_WIDTH * across, _LEAST), _HEIGHT * down), layout="constrained")
    places = np.ravel(figure.subplots(down, across, squeeze=False))
    heights = np.zeros(places.size)
    for place, (axes, panel) in enumerate(zip(places, panels, strict=False)):
        if panel.drawn is None:
            draw_lines(axes, panel.lines)
            continue
        relation, rivals = panel.drawn
        relation.draw(axes, rivals)
        axes.set_title(panel.title, fontsize="medium")
        axes.set_ylabel(textwrap.fill(words(axes.get_ylabel()), _LETTERS))
        heights[place] = _legend_below(axes, entries)
    for axes in places[count:]:
        axes.remove()
    figure.set_figheight(_HEIGHT * down + heights.reshape(down, across).max(axis=1).sum())
    return figure


def _title(name: str) -> str:
    """The name of a statement as words, with numbers as papers print them: Theorem B.2 for
    theorem-b-2.
    """
    return re.sub(
        r"\b(\d+|[a-z]) (?=\d+\b)", lambda first: f"{first[1].upper()}.", name.replace("-", " ")
    )


def _legend_below(axes: Axes, entries: int) -> float:
    """Put the legend below all labels, and return its height in inches."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return 0.0
    more = len(handles) - entries
    shown = [textwrap.fill(label, _LETTERS_BELOW) for label in labels[:entries]]
    of_labels = axes.xaxis.get_tightbbox()
    assert of_labels is not None
    depth = (axes.bbox.y0 - of_labels.y0) / axes.figure.dpi
    axes.legend(
        handles[:entries],
        shown,
        fontsize="x-small",
        frameon=False,
        loc="upper center",
        borderaxespad=0.2,
        bbox_to_anchor=(0.5, 0),
        bbox_transform=axes.transAxes + ScaledTranslation(0, -depth, axes.figure.dpi_scale_trans),
        title=f"and {more} more" if more > 0 else None,
        title_fontsize="x-small",
    )
    return _ENTRY * (sum(1 + label.count("\n") for label in shown) + (more > 0))
