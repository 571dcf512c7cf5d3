"""The report as one HTML file with nothing outside it but links: it can be mailed, and read on a phone."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape

from specjax.experiments.contract import Check
from specjax.report import cells
from specjax.report.record import Result
from specjax.report.store import CHECKS, CONFIG, DATA, FIGURE, TABLES

_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 60rem; padding: 1rem 1rem 4rem; background: #fff; color: #1a1a1a;
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.25; }
h2 { margin-top: 2.5rem; border-top: 1px solid #ccc; padding-top: 1rem; }
a { color: #0b4fa0; }
img { display: block; max-width: 100%; height: auto; margin: 1rem 0; }
.scroll, .stacked { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
td.short { white-space: nowrap; }
td.long { min-width: 16rem; }
td.wrapped { min-width: 8rem; }
summary { cursor: pointer; color: #0b4fa0; }
.source { color: #555; }
.verdict { font-weight: 600; }
.refuted { color: #a3120a; }
.inconclusive { color: #7a5200; }
.confirmed { color: #176a2c; }
@media (max-width: 40rem) {
  .stacked thead { display: none; }
  .stacked :is(table, tbody, tr, td) { display: block; }
  .stacked tr { padding: .5rem 0; border-bottom: 1px solid #ddd; }
  .stacked td { padding: 0; border: 0; min-width: 0; white-space: normal; }
}
.surprise { border-left: .25rem solid #a3120a; padding-left: .75rem; }
"""


def render(results: Sequence[Result], figures: Mapping[str, bytes]) -> str:
    """The report of `results`, in their order; `figures` holds the PNG of each by name."""
    sections = [_section(result, figures[result.record.name]) for result in results]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>specjax report</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<h1>specjax report</h1>",
            *_summary(results),
            *sections,
            "</body>\n</html>\n",
        ]
    )


def _summary(results: Sequence[Result]) -> list[str]:
    parts = []
    if surprises := cells.surprises(results):
        items = "".join(f"<li>{escape(phrase)}</li>" for phrase in surprises)
        parts.append(f'<div class="surprise"><strong>Verdicts other than expected</strong><ul>{items}</ul></div>')
    papers = cells.by_paper(results)
    items = "\n".join(
        f'<li><a href="#paper-{i}">{escape(paper)}</a>: {cells.counts(check for _, check in pairs)}; {_links(results, paper)}</li>'
        for i, (paper, pairs) in enumerate(papers.items(), start=1)
    )
    parts.append(f"<p>{escape(cells.overview(results))}</p>\n<ul>\n{items}\n</ul>")
    for i, (paper, pairs) in enumerate(papers.items(), start=1):
        count = cells.counts(check for _, check in pairs).capitalize()
        parts.append(f'<h2 id="paper-{i}">{escape(paper)}</h2>\n<p>{count}.</p>')
        open_, folded = cells.confirmed_last(pairs)
        if open_:
            parts.append(_verdicts(f"Verdicts on {paper}", open_))
        if folded:
            title = cells.counts(check for _, check in folded)
            table = _verdicts(f"Confirmed statements of {paper}", folded)
            parts.append(f"<details>\n<summary>{title}</summary>\n{table}\n</details>")
    return parts


def _links(results: Sequence[Result], paper: str) -> str:
    names = [escape(result.record.name) for result in results if result.record.paper == paper]
    return ", ".join(f'<a href="#{name}">{name}</a>' for name in names)


def _verdicts(label: str, pairs: Sequence[tuple[Result, Check]]) -> str:
    rows = [
        (
            _verdict(cells.verdict(result, check), check.verdict),
            f'<td class="long">{escape(check.statement)}</td>',
            f'<td class="wrapped">{escape(check.source)}</td>',
            f'<td class="short"><a href="#{escape(result.record.name)}">{escape(result.record.name)}</a></td>',
        )
        for result, check in pairs
    ]
    return _table(label, cells.SUMMARY_HEADER, rows, layout="stacked")


def _section(result: Result, figure: bytes) -> str:
    record = result.record
    parts = [
        f'<section id="{escape(record.name)}">\n<h2>{escape(record.title)}</h2>',
        f'<p class="source">{escape(record.name)} · {escape(record.source)}</p>\n<p>{escape(record.summary)}</p>',
        f'<a href="{escape(record.name)}/{FIGURE}">'
        f'<img alt="Figure: {escape(record.title)}" src="data:image/png;base64,{b64encode(figure).decode("ascii")}"></a>',
    ]
    if result.checks:
        rows = []
        for check in result.checks:
            *numbers, verdict = cells.check_row(result, check)
            rows.append((*map(_short, numbers), _verdict(verdict, check.verdict)))
        parts.append(_table(f"Checks of {record.name}", cells.CHECK_HEADER, rows))
        items = "\n".join(
            f"<li><strong>{escape(check.name)}</strong> <span class='source'>({escape(check.source)})</span>: "
            f"{escape(check.statement)} <em>Rule:</em> {escape(check.rule)}</li>"
            for check in result.checks
        )
        parts.append(f"<ul>\n{items}\n</ul>")
    for table in result.tables:
        parts.append(f"<h3>{escape(table.title)}</h3>")
        parts.append(_table(table.title, table.header, [tuple(map(_short, row)) for row in table.rows]))
    settings = [(_short(name), f'<td class="long">{escape(value)}</td>') for name, value in cells.settings(record)]
    links = " · ".join(f'<a href="{escape(record.name)}/{file}">{file}</a>' for file in (DATA, CHECKS, TABLES, CONFIG))
    run = _table(f"Run of {record.name}", ("setting", "value"), settings, layout="stacked")
    parts.append(
        f"<details>\n<summary>Run: scale {escape(record.scale)}, {record.seconds:.1f} s</summary>\n{run}\n</details>"
    )
    parts.append(f"<p>{links}</p>\n</section>")
    return "\n".join(parts)


def _table(label: str, header: Sequence[str], rows: Sequence[Sequence[str]], *, layout: str = "scroll") -> str:
    # "scroll" keeps the columns on any screen; "stacked" puts a row's cells below each other on a narrow one, for sentences.
    # tabindex and label let a keyboard scroll a table that is wider than the page, and say what it is.
    heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in header)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="{layout}" role="region" tabindex="0" aria-label="{escape(label)}">\n'
        f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _short(text: str) -> str:
    return f'<td class="short">{escape(text)}</td>'


def _verdict(text: str, kind: str) -> str:
    return f'<td class="verdict {escape(kind)}">{escape(text)}</td>'
