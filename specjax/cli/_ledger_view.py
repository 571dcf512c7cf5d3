"""`specjax ledger`: the papers, the rows of one, and a row with its evidence."""

import json
import shutil
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from specjax.cli._errors import UserError, unknown, value_errors_in_one_sentence
from specjax.cli._parser import add_out, make_parser, parse_out

if TYPE_CHECKING:
    from specjax.report.ledger_status import Cited, Standing

_DESCRIPTION = """\
Every numbered statement, figure and table of the papers, and what became of it.

specjax ledger                        the papers, with the number of rows of each status
specjax ledger PAPER                  the rows of one, a line each
specjax ledger PAPER ROW ...          rows with their statements, numbers, rivals and figures

ROW is an id or what the paper prints, as theorem-3 or "Theorem 3"; other words are looked for in
the rows."""
_LABEL = 12
_GAP = "  "


def show_ledger(arguments: list[str]) -> int:
    """Print the papers, the rows of one, or rows with their evidence."""
    parser = make_parser("specjax ledger", _DESCRIPTION)
    parser.add_argument("paper", metavar="PAPER", nargs="?", help="one of the papers")
    parser.add_argument(
        "rows", metavar="ROW", nargs="*", help="rows of the paper, or words in them"
    )
    parser.add_argument("--status", metavar="STATUS", help="only rows of this status, as false")
    parser.add_argument("--json", action="store_true", help="print as JSON")
    add_out(parser, "results that decide, before the records of runs made earlier")
    given = parser.parse(arguments)
    from specjax.lab.ledger import Status
    from specjax.report import ledger_status

    papers, statuses = list(ledger_status.known()), list(get_args(Status))
    if given.paper is not None and given.paper not in papers:
        raise UserError(unknown("paper", given.paper, papers, "specjax ledger"))
    if given.status is not None and given.status not in statuses:
        raise UserError(unknown("status", given.status, statuses))
    out = parse_out(given.out)
    with value_errors_in_one_sentence():
        results = ledger_status.deciding(out)
        found = {
            paper: [
                row
                for row in ledger_status.rows(paper, results)
                if given.status in (None, row.status)
            ]
            for paper in ([given.paper] if given.paper else papers)
        }
    if given.rows:
        chosen = [row for word in given.rows for row in _rows_of(given.paper, found, word)]
        found = {given.paper: list({row.row.id: row for row in chosen}.values())}
    if given.json:
        print(
            json.dumps({p: [_row_dict(row) for row in rows] for p, rows in found.items()}, indent=1)
        )
    elif given.rows:
        print("\n\n".join(_evidence(given.paper, row, out) for row in found[given.paper]))
    elif given.paper or given.status:
        print("\n\n".join(_table(paper, rows) for paper, rows in found.items() if rows))
    else:
        print(_overview(found, statuses))
    return 0


def _rows_of(paper: str, found: "dict[str, list[Standing]]", word: str) -> "list[Standing]":
    """The row of this id or label, else all rows that have the word."""
    from specjax.report import formatting

    rows = found[paper]
    lower = word.lower()
    exact = [row for row in rows if lower in (row.row.id, formatting.label(row.row.id).lower())]
    if exact:
        return exact
    having = [row for row in rows if lower in _text(row).lower()]
    if not having:
        ids = [row.row.id for row in rows]
        what = f"row of {paper} called"
        raise UserError(unknown(what, word, ids, f"specjax ledger {paper}"))
    return having


def _text(standing: "Standing") -> str:
    row = standing.row
    return f"{row.id} {row.where} {row.says} {row.finding}"


def _overview(found: "dict[str, list[Standing]]", statuses: Sequence[str]) -> str:
    from specjax.report import formatting

    lines = [("paper", *statuses)]
    for paper, rows in found.items():
        for name, own in ((paper, False), (f"{paper}, ours", True)):
            counts = Counter[str](row.status for row in rows if row.row.ours is own)
            if counts:
                lines.append((name, *(str(counts[status] or "") for status in statuses)))
    return (
        f"{formatting.align(lines)}\n\n`specjax ledger PAPER` prints the rows of one, and"
        " `specjax ledger PAPER ROW` a row with its evidence."
    )


def _table(paper: str, rows: "Sequence[Standing]") -> str:
    """A line for each row, no wider than the terminal."""
    from specjax.report import ledger_status

    ids = max(len(row.row.id) for row in rows)
    statuses = max(len(row.status) for row in rows)
    room = max(_width() - ids - statuses - 2 * len(_GAP), 20)
    lines = [f"{paper}: {ledger_status.counts(rows)}"]
    for row in rows:
        text = row.row.because if row.status == "not judged" else row.sentence
        if (by := row.deciding) is not None and by.check is not None:
            text = f"{by.check.name}, {by.check.power or by.check.verdict}: {text}"
        short = text if len(text) <= room else f"{text[: room - 1]}…"
        cells = (row.row.id.ljust(ids), row.status.ljust(statuses), short)
        lines.append(_GAP.join(cells).rstrip())
    return "\n".join(lines)


def _evidence(paper: str, standing: "Standing", out: Path) -> str:
    from specjax.report import formatting

    row = standing.row
    lines = [f"{paper}, {formatting.label(row.id)} ({row.id}): {standing.status}"]
    lines += [_line("where", row.where), _line("ours" if row.ours else "the paper", row.says)]
    if row.finding:
        lines.append(_line("found", row.finding))
    if standing.status == "not judged":
        lines.append(_line("because", row.because))
    for cited in standing.cited:
        lines += ["", *_statement(cited, out)]
    return "\n".join(lines)


def _statement(cited: "Cited", out: Path) -> list[str]:
    from specjax.report import formatting, result_store

    check, name = cited.check, cited.statement.name
    if check is None:
        command = f"`specjax run {cited.experiment}` judges it"
        return [f"{_GAP}{name}: not run", _line("says", cited.statement.says), _line("", command)]
    corrected = ", corrected by us" if check.corrected else ""
    lines = [f"{_GAP}{name}: {formatting.verdict(check)}{corrected}{cited.where}"]
    interval = "" if None in check.interval else f", interval {formatting.interval(check.interval)}"
    found = f"{formatting.measured(check)}{interval}, {check.samples} samples"
    lines += [_line("says", check.says), _line("measured", found.removeprefix(", "))]
    if formatting.power(check):
        lines.append(_line("nearest", formatting.power(check)))
    rivals = [f"{r['name']}: {formatting.number(r['standard_errors'])} SE" for r in check.rivals]
    if rivals:
        lines.append(_line("rivals", "; ".join(rivals)))
    if check.reason:
        lines.append(_line("remark", check.reason))
    figure = out / cited.experiment / result_store.FIGURE
    drawn = f"`specjax run {cited.experiment}` draws it"
    return [*lines, _line("figure", str(figure) if figure.is_file() else drawn)]


def _line(label: str, text: str) -> str:
    return textwrap.fill(
        text,
        max(_width(), 60),
        initial_indent=f"{_GAP}{label:<{_LABEL - len(_GAP)}}",
        subsequent_indent=" " * _LABEL,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _width() -> int:
    """The columns of the terminal; 100 where there is none."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120)


def _row_dict(standing: "Standing") -> dict[str, Any]:
    row = standing.row
    return {
        "id": row.id,
        "kind": row.kind,
        "where": row.where,
        "ours": row.ours,
        "says": row.says,
        "status": standing.status,
        "finding": row.finding,
        "because": row.because,
        "statements": [
            {
                "name": cited.statement.name,
                "experiment": cited.experiment,
                "says": cited.statement.says,
                "corrected": cited.statement.corrected,
                "verdict": None if cited.check is None else cited.check.verdict,
                "estimate": None if cited.check is None else cited.check.estimate,
                "interval": None if cited.check is None else cited.check.interval,
                "compared": None if cited.check is None else cited.check.compared,
                "nearest": None if cited.check is None else cited.check.power,
                "recorded": cited.result is not None and cited.result.recorded,
            }
            for cited in standing.cited
        ],
    }
