"""The figure that an experiment has without drawing one: a panel for each statement with a curve, and lines for all others."""

import textwrap
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.lab.estimates import Number
from specjax.lab.relations import Relation
from specjax.lab.relations.line import Line, draw_lines

_ACROSS, _LINES = 3, 9
"""Panels side by side, and lines in one of them."""
_ENTRIES, _ENTRY = 8, 0.065
"""Entries of a legend that are shown, and the height of one as a share of a panel's."""
_LETTERS = 36
"""Of an axis label in one line: as many as a panel is high."""

Drawn = tuple[Relation, Mapping[str, Number]]


def default_figure(statements: Mapping[str, Drawn]) -> Figure:
    """A panel for each statement with a curve or rivals, drawn by its relation; the others are lines, those of one axis in one panel."""
    curves, axis_lines = {}, dict[str, list[tuple[str, Line]]]()
    for name, drawn in statements.items():
        line = drawn[0].line()
        if line is None:
            curves[name] = drawn
        else:
            axis_lines.setdefault(line.axis, []).append((name, line))
    strips = [lines[k : k + _LINES] for lines in axis_lines.values() for k in range(0, len(lines), _LINES)]
    count = len(curves) + len(strips)
    down, across = -(-count // _ACROSS), min(count, _ACROSS)
    figure = Figure(figsize=(4.2 * across, 3.4 * down), layout="constrained")
    panels = np.ravel(figure.subplots(down, across, squeeze=False))
    for axes, (name, (relation, rivals)) in zip(panels, curves.items(), strict=False):
        relation.draw(axes, rivals)
        axes.set_title(name, fontsize="medium")
        axes.set_ylabel(textwrap.fill(axes.get_ylabel(), _LETTERS))
        _legend_above(axes)
    for axes, strip in zip(panels[len(curves) :], strips, strict=False):
        draw_lines(axes, dict(strip))
    for axes in panels[count:]:
        axes.remove()
    return figure


def _legend_above(axes: Axes) -> None:
    """The legend at the top, above the data: the best place takes seconds to find among many points."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    more = len(handles) - _ENTRIES
    title = f"and {more} more" if more > 0 else None
    axes.legend(
        handles[:_ENTRIES],
        labels[:_ENTRIES],
        fontsize="x-small",
        loc="upper center",
        title=title,
        title_fontsize="x-small",
    )
    low, high = axes.get_ylim()
    room = 1 / (1 - _ENTRY * (min(len(handles), _ENTRIES) + 1))
    axes.set_ylim(low, low * (high / low) ** room if axes.get_yscale() == "log" else low + (high - low) * room)
