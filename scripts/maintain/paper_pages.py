"""The tables of docs/papers, from the ledgers and the records: where every statement stands, the
verdicts of the findings at the top of a page, and what else a page shows of a record.

python scripts/maintain/paper_pages.py
"""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from specjax.experiments.ledgers import PAPERS, ledger
from specjax.report import Result, ledger_status, records

FOLDER = Path(__file__).parents[2] / "docs" / "papers"
TABLES = {
    "claims": {"directions": ("claims-limits", "Claim 8"), "averages": ("claims-bias", "Claim 9")},
    "scaling": {
        "updates": ("update-exponents", "Exponents of ΔW x"),
        "rates": ("rate-transfer", "Best rates"),
        "drift": ("rate-drift", "Exponents in the width"),
    },
}
"""Other places of the pages: the experiment whose record has the table, and how the title of that
begins.
"""
FIELD = {
    "grid": "grid",
    "momentum-order": "order",
    "margin": "margin",
    "factorization": "conserved",
    "simplicity-bias": "gradient-descent-bias",
    "batch-size": "square-root",
    "momentum-quantiles": "quantiles-settle",
    "random-spectra": "random-spectra",
    "loss-exponents": "exponent-steeper",
    "edge-of-stability": "edge",
}
"""The pages of the ledger `field`, each with the first row of its paper; the rows of a paper follow
one another.
"""
MOST_REASONS = 10
"""Rows that are not judged and stand on the page with their reasons."""
HEADER = ("row", "what it says", "status", "what is true", "decided by")
NUMBERS = ("statement", "estimate", "interval", "compared with", "samples", "scale")
SECTION = """
## Every statement

<!-- standing -->
<!-- end of standing -->
"""
VERDICT = re.compile(r"\*\*[a-z ]+\*\* \(`([a-z0-9-]+)`\)")
"""A cell of the findings: the status of a row, and the row."""


def pages() -> dict[Path, tuple[str, list[str]]]:
    """Every page with a table of statements: its ledger, and the rows of it that the page has."""
    found = {
        FOLDER / f"{paper}.md": (paper, list(ledger(paper).rows))
        for paper in PAPERS
        if paper != "field"
    }
    rows = list(ledger("field").rows)
    starts = [*(rows.index(first) for first in FIELD.values()), len(rows)]
    return found | {
        FOLDER / "field" / f"{name}.md": ("field", rows[start:end])
        for name, start, end in zip(FIELD, starts, starts[1:], strict=False)
    }


def with_tables(page: str, paper: str, ids: Sequence[str] | None = None) -> str:
    """The text of a page on the rows `ids` of a ledger, or on all of them, with its tables as
    ledger and records have them; one without the table of statements gets it at its end.

    A page that has the place `findings` gets the status of each row that is named there.

    Raises ValueError if the page has a place twice or not closed, the findings name a row that the
    ledger lacks, or a record lacks its table.
    """
    recorded = records.load_all()
    if "<!-- standing -->" not in page:
        page = page.rstrip("\n") + "\n" + SECTION
    every = ledger_status.rows(paper, list(recorded.values()))
    found = [s for s in every if ids is None or s.row.id in ids]
    # On a phone docs/assets/specjax.css shows each row as a list.
    ran_on = _ran_on([result for result in recorded.values() if result.record.paper == paper])
    listed = _linked(paper, found) if ids is None or paper != "field" else _folded(found)
    page = _placed(page, "standing", f"{listed}{ran_on}\n")
    page = with_findings(page, {s.row.id: s.status for s in every})
    for place, (name, beginning) in TABLES.get(paper, {}).items():
        # What has no record yet stays as it was written.
        if name in recorded:
            tables = [table for table in recorded[name].tables if table.title.startswith(beginning)]
            if len(tables) != 1:
                raise ValueError(
                    f"The record of {name} needs one table {beginning!r}, got {len(tables)}; make"
                    " it again."
                )
            page = _placed(page, place, _table(tables[0].header, tables[0].rows))
    return page


def with_findings(page: str, statuses: Mapping[str, str]) -> str:
    """The text of a page whose findings have these statuses of rows.

    Raises ValueError if the findings name another row.
    """
    if "<!-- findings -->\n" not in page:
        return page
    table = page.partition("<!-- findings -->\n")[2].partition("<!-- end of findings -->")[0]
    if unknown := set(VERDICT.findall(table)) - set(statuses):
        raise ValueError(f"The findings name rows that the ledger lacks: {', '.join(unknown)}.")
    return _placed(
        page, "findings", VERDICT.sub(lambda m: f"**{statuses[m[1]]}** (`{m[1]}`)", table)
    )


def numbers(paper: str) -> str:
    """The estimates of all statements on a paper, as the text of a file."""
    recorded = [r for r in records.load_all().values() if r.record.paper == paper]
    return "".join("\t".join(row) + "\n" for row in (NUMBERS, *_numbers(recorded)))


def _linked(paper: str, found: Sequence[ledger_status.Standing]) -> str:
    """How many rows have each status, and where all are. The site unfolds the ledger's file in the
    place of the comment (scripts/maintain/site_hooks.py).
    """
    return (
        f"{ledger_status.counts(found)}. [The ledger's file](ledgers/{paper}.tsv) has every row:"
        " what it says, what is true, and the number that decides, or why it is not judged.\n\n"
        f"<!-- rows of {paper} -->\n\n"
    )


def _folded(found: Sequence[ledger_status.Standing]) -> str:
    """The judged rows as a table, and the others as a list of reasons, each to be unfolded.

    A list that nobody would read to its end stays in the ledger's file.
    """
    judged = [s for s in found if s.status != "not judged"]
    rows = [(s.row.id, s.row.says, s.status, s.row.finding, _decided(s)) for s in judged]
    reasons = [(s.row.id, s.row.because) for s in found if s.status == "not judged"]
    text = (
        f'<details class="standing" markdown>\n<summary>{ledger_status.counts(judged)}</summary>'
        f"\n\n{_table(HEADER, rows)}\n</details>\n\n"
    )
    if len(reasons) > MOST_REASONS:
        text += f"{len(reasons)} rows are not judged; the ledger's file has the reason of each.\n\n"
    elif reasons:
        lines = "".join(f"- `{id}`: {_escaped(reason)}\n" for id, reason in reasons)
        text += (
            f"<details markdown>\n<summary>{len(reasons)} not judged, and why</summary>\n\n"
            f"{lines}\n</details>\n\n"
        )
    return text


def full_ledger(paper: str) -> str:
    """Every row of a ledger in full, as the text of a file."""
    rows = [
        (s.row.id, s.row.where, s.row.says, s.status, s.row.finding or s.row.because, _decided(s))
        for s in ledger_status.rows(paper, list(records.load_all().values()))
    ]
    header = ("row", "where", *HEADER[1:])
    return "".join("\t".join(row) + "\n" for row in (header, *rows))


def _decided(standing: ledger_status.Standing) -> str:
    """The deciding statement; the scale of its record only where that is not `paper`."""
    decided = "; ".join(standing.decided[:1])
    return decided.replace(" (record of scale paper)", "").replace("(record of scale ", "(")


def _ran_on(results: Sequence[Result]) -> str:
    """Which versions of JAX and Python the records of a paper were made on."""
    versions = sorted({(r.record.versions["jax"], r.record.versions["python"]) for r in results})
    return (
        "Records were made on"
        f" {', '.join(f'jax {jax} (Python {python})' for jax, python in versions)}."
    )


def _numbers(results: Sequence[Result]) -> list[tuple[str, ...]]:
    """What each statement of some results measured at the point that decides, in the order of their
    names.
    """
    rows = []
    for result in sorted(results, key=lambda result: result.record.name):
        for check in result.checks:
            numbers = (
                _short(check.estimate),
                " to ".join(map(_short, check.interval)),
                _short(check.compared),
            )
            rows.append(
                (
                    f"{result.record.name}: {check.name}",
                    *numbers,
                    str(check.samples),
                    result.record.scale,
                )
            )
    return rows


def _short(number: float | None) -> str:
    return "–" if number is None else f"{number:.3g}"


def _placed(page: str, place: str, text: str) -> str:
    begin, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"The place {place!r} needs to be once in a page.")
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join("|" + "|".join(map(_escaped, line)) + "|\n" for line in lines)


def _escaped(cell: str) -> str:
    return re.sub(r"([*_|])", r"\\\1", cell)


if __name__ == "__main__":
    argparse.ArgumentParser(
        description="Write the tables of docs/papers from ledgers and records."
    ).parse_args()
    for path, (paper, ids) in pages().items():
        path.write_text(with_tables(path.read_text(encoding="utf-8"), paper, ids), encoding="utf-8")
    overview = FOLDER / "field.md"
    field = ledger_status.rows("field", list(records.load_all().values()))
    statuses = {row.row.id: row.status for row in field}
    overview.write_text(
        with_findings(overview.read_text(encoding="utf-8"), statuses), encoding="utf-8"
    )
    for paper in PAPERS:
        (FOLDER / "ledgers" / f"{paper}.tsv").write_text(full_ledger(paper), encoding="utf-8")
    (FOLDER / "preconditioning-numbers.tsv").write_text(
        numbers("preconditioning"), encoding="utf-8"
    )
