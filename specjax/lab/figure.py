"""The figure that an experiment has without drawing one: a panel for each statement."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from specjax.lab.estimates import Number
from specjax.lab.relations import Relation

_ACROSS = 3


def default_figure(statements: Mapping[str, tuple[Relation, Mapping[str, Number]]]) -> Figure:
    """A panel for each statement, drawn by its relation, with its rivals."""
    down = -(-len(statements) // _ACROSS)
    across = min(len(statements), _ACROSS)
    figure = Figure(figsize=(4.2 * across, 3.4 * down), layout="constrained")
    panels = np.ravel(figure.subplots(down, across, squeeze=False))
    for axes, (name, (relation, rivals)) in zip(panels, statements.items(), strict=False):
        relation.draw(axes, rivals)
        axes.set_title(name, fontsize="small")
        if axes.get_legend_handles_labels()[1]:
            # The best place takes seconds to find among many points, and says so.
            axes.legend(fontsize="x-small", loc="upper right")
    for axes in panels[len(statements) :]:
        axes.remove()
    return figure
