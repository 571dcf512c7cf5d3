"""The headlines of experiments, as a table that reads like an abstract: paper by paper the
statement, its verdict, the deciding number and the nearest rival.
"""

from collections.abc import Sequence
from itertools import groupby, zip_longest
from textwrap import wrap

from specjax import experiments
from specjax.lab.check import Check
from specjax.report import formatting
from specjax.report._record import Result

WIDTHS = (80, 120)
"""The least and the largest width of the table, in characters."""
_VERDICT, _GAP, _INDENT = 12, 2, 2
_HEADER = ("statement", "verdict", "deciding number, nearest rival")


def headlines(result: Result) -> list[Check]:
    """The checks of a result that are headlines of its experiment, in the experiment's order; none
    of an experiment, or of a statement, that this version lacks.
    """
    if result.record.name not in experiments.names():
        return []
    by_name = {check.name: check for check in result.checks}
    found = experiments.load(result.record.name).headlines
    return [by_name[name] for name in found if name in by_name]


def render(results: Sequence[Result], width: int) -> str:
    """The headlines of results as text of at most `width` columns, between `WIDTHS`; empty if there
    are none.
    """
    room = min(max(width, WIDTHS[0]), WIDTHS[1]) - _INDENT - _VERDICT - 2 * _GAP
    columns = (room - room * 2 // 5, _VERDICT, room * 2 // 5)
    found = [(result.record.paper, check) for result in results for check in headlines(result)]
    lines = _row(_wrapped([(cell,) for cell in _HEADER], columns), columns) if found else []
    for paper, of_paper in groupby(found, key=lambda pair: pair[0]):
        lines += ["", paper]
        for _, check in of_paper:
            numbers = (formatting.measured(check), formatting.power(check))
            cells = [(check.says,), (formatting.verdict(check),), numbers]
            lines += _row(_wrapped(cells, columns), columns)
    return "\n".join(lines)


def not_judged(results: Sequence[Result]) -> str:
    """One sentence that counts the statements that runs of headlines leave out; empty for none."""
    known = experiments.names()
    alone = [
        result
        for result in results
        if result.record.headlines_alone and result.record.name in known
    ]
    left = sum(
        len(experiments.load(result.record.name).statements) - len(result.checks)
        for result in alone
    )
    if not left:
        return ""
    return (
        f"Statements beside the headlines: {left}, not judged; `specjax reproduce --all` judges"
        " all, `specjax run NAME` those of one experiment."
    )


def _wrapped(cells: Sequence[Sequence[str]], columns: Sequence[int]) -> list[list[str]]:
    """The lines of each cell, which has one text or several below each other."""
    return [
        [line for text in cell for line in wrap(text, width)]
        for cell, width in zip(cells, columns, strict=True)
    ]


def _row(cells: Sequence[Sequence[str]], columns: Sequence[int]) -> list[str]:
    return [
        (
            " " * _INDENT
            + (" " * _GAP).join(
                part.ljust(width) for part, width in zip(line, columns, strict=True)
            )
        ).rstrip()
        for line in zip_longest(*cells, fillvalue="")
    ]
