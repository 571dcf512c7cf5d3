"""The report as Markdown, for a repository or a terminal: figures are links into the result folders beside it."""

import re
from collections.abc import Sequence

from specjax.report import cells
from specjax.report.record import Result
from specjax.report.store import CHECKS, CONFIG, DATA, FIGURE

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~$#])")


def render(results: Sequence[Result]) -> str:
    """The report of `results`, in their order: verdicts by paper, then each experiment."""
    parts = ["# specjax report", *_summary(results)]
    for result in results:
        parts += _section(result)
    return "\n\n".join(parts) + "\n"


def _summary(results: Sequence[Result]) -> list[str]:
    parts = []
    if surprises := cells.surprises(results):
        parts += ["**Verdicts other than expected:**", "\n".join(f"- {_text(phrase)}" for phrase in surprises)]
    parts.append(_text(cells.overview(results)))
    for paper, pairs in cells.by_paper(results).items():
        rows = [
            (
                f"**{_text(cells.verdict(result, check))}**",
                _text(check.statement),
                _text(check.source),
                f"[{_text(result.record.name)}](#{result.record.name})",
            )
            for result, check in pairs
        ]
        parts += [f"## {_text(paper)}", f"{cells.counts(check for _, check in pairs).capitalize()}."]
        if rows:
            parts.append(_table(cells.SUMMARY_HEADER, rows))
    return parts


def _section(result: Result) -> list[str]:
    record = result.record
    parts = [
        # An anchor of its own, because the generated ones depend on the program that renders the page.
        f'<a id="{record.name}"></a>',
        f"## {_text(record.title)}",
        f"{_text(record.name)} · {_text(record.source)}",
        _text(record.summary),
        f"![{_text(record.title)}]({record.name}/{FIGURE})",
    ]
    if result.checks:
        rows = [tuple(map(_text, cells.check_row(result, check))) for check in result.checks]
        parts.append(_table(cells.CHECK_HEADER, rows))
        parts.append(
            "\n".join(
                f"- **{_text(check.name)}** ({_text(check.source)}): {_text(check.statement)} *Rule:* {_text(check.rule)}"
                for check in result.checks
            )
        )
    for table in result.tables:
        parts += [f"### {_text(table.title)}", _table(table.header, [tuple(map(_text, row)) for row in table.rows])]
    parts.append("### Run")
    parts.append(_table(("setting", "value"), [(_text(name), _text(value)) for name, value in cells.settings(record)]))
    parts.append(" · ".join(f"[{file}]({record.name}/{file})" for file in (DATA, CHECKS, CONFIG)))
    return parts


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [tuple(map(_text, header)), ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))
