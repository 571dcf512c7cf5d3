"""The default figure of an experiment: a panel for each statement with a curve, and lines for the
others.
"""

import re
import textwrap
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from specjax.lab.drawing import words
from specjax.lab.estimates import Number
from specjax.lab.relations import Relation
from specjax.lab.relations.line import Line, draw_lines

_ACROSS, _LINES = 3, 9
"""Panels side by side, and lines in one panel."""
_WIDTH, _HEIGHT, _LEAST = 4.2, 3.4, 5.4
"""Inches of a panel, and the least width of a figure, for the longest label of an axis beside the
names of lines.
"""
_ENTRIES, _ENTRY = 12, 0.13
"""Most entries of a legend, and the height of one in inches."""
_LETTERS, _LETTERS_BELOW = 32, 64
"""Most letters in a line of an axis label, which is as long as a panel is high, and of a legend,
whose letters are smaller.
"""

Drawn = tuple[Relation, Mapping[str, Number]]


def default_figure(statements: Mapping[str, Drawn]) -> Figure:
    """A panel for each statement with a curve or rivals, drawn by its relation, and panels of lines
    for the others, by axis.
    """
    curves, axis_lines = {}, dict[str, list[tuple[str, Line]]]()
    for name, drawn in statements.items():
        title, line = _title(name), drawn[0].line()
        if line is None:
            curves[title] = drawn
        else:
            axis_lines.setdefault(line.axis, []).append((title, line))
    strips = [
        lines[k : k + _LINES] for lines in axis_lines.values() for k in range(0, len(lines), _LINES)
    ]
    count = len(curves) + len(strips)
    down, across = -(-count // _ACROSS), min(count, _ACROSS)
    figure = Figure(figsize=(max(_WIDTH * across, _LEAST), _HEIGHT * down), layout="constrained")
    panels = np.ravel(figure.subplots(down, across, squeeze=False))
    heights = np.zeros(panels.size)
    for place, (title, (relation, rivals)) in enumerate(curves.items()):
        axes = panels[place]
        relation.draw(axes, rivals)
        axes.set_title(title, fontsize="medium")
        axes.set_ylabel(textwrap.fill(words(axes.get_ylabel()), _LETTERS))
        heights[place] = _legend_below(axes)
    for axes, strip in zip(panels[len(curves) :], strips, strict=False):
        draw_lines(axes, dict(strip))
    for axes in panels[count:]:
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


def _legend_below(axes: Axes) -> float:
    """Put the legend below all labels, and return its height in inches."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return 0.0
    more = len(handles) - _ENTRIES
    shown = [textwrap.fill(label, _LETTERS_BELOW) for label in labels[:_ENTRIES]]
    of_labels = axes.xaxis.get_tightbbox()
    assert of_labels is not None
    depth = (axes.bbox.y0 - of_labels.y0) / axes.figure.dpi
    axes.legend(
        handles[:_ENTRIES],
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
