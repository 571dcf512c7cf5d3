"""The tables of docs/papers/*.md, from the ledgers and the records: where every statement stands,
and what else a page shows of a record.

python scripts/paper_pages.py
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from specjax.experiments.ledgers import PAPERS
from specjax.report import ledger_status, records
from specjax.report.record import Result

FOLDER = Path(__file__).parents[1] / "docs" / "papers"
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
HEADER = ("row", "what it says", "status", "what is true", "decided by")
NUMBERS = ("statement", "estimate", "interval", "compared with", "draws", "scale")
SECTION = """
## Where each statement stands

A row *holds* where every statement in the paper's own words is confirmed, and is *false* where one
is refuted; *corrected* means that our statement in its place is confirmed. `python
scripts/paper_pages.py` writes this table from the ledger and the records of runs.

<!-- standing -->
<!-- end of standing -->
"""


def with_tables(page: str, paper: str) -> str:
    """The text of the page of a paper with its tables as ledger and records have them; one without
    the first gets it at its end.

    A page that has the place `numbers` gets the estimates of all statements there.

    Raises ValueError if the page has a place twice or not closed, or a record lacks its table.
    """
    recorded = records.load_all()
    if "<!-- standing -->" not in page:
        page = page.rstrip("\n") + "\n" + SECTION
    found = ledger_status.rows(paper, list(recorded.values()))
    rows = [
        (s.row.id, s.row.says, s.status, s.row.finding or s.row.because, "; ".join(s.decided[:1]))
        for s in found
    ]
    # On a phone docs/assets/specjax.css shows each row as a list.
    ran_on = _ran_on([result for result in recorded.values() if result.record.paper == paper])
    page = _placed(
        page,
        "standing",
        f'<div class="standing" markdown>\n\n{_table(HEADER, rows)}\n</div>\n\n{ran_on}\n',
    )
    if "<!-- numbers -->" in page:
        page = _placed(
            page,
            "numbers",
            _table(NUMBERS, _numbers([r for r in recorded.values() if r.record.paper == paper])),
        )
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


def _ran_on(results: Sequence[Result]) -> str:
    """Which versions of JAX and Python the records of a paper were made on."""
    versions = sorted({(r.record.versions["jax"], r.record.versions["python"]) for r in results})
    return (
        "The records were made on"
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
                _told(check.estimate),
                " to ".join(map(_told, check.interval)),
                _told(check.compared),
            )
            rows.append(
                (
                    f"{result.record.name}: {check.name}",
                    *numbers,
                    str(check.draws),
                    result.record.scale,
                )
            )
    return rows


def _told(number: float | None) -> str:
    return "–" if number is None else f"{number:.3g}"


def _placed(page: str, place: str, text: str) -> str:
    begin, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"The place {place!r} needs to be once in a page.")
    before, _, rest = page.partition(begin)
    return before + begin + text + end + rest.partition(end)[2]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "".join("| " + " | ".join(map(_escaped, line)) + " |\n" for line in lines)


def _escaped(cell: str) -> str:
    return re.sub(r"([*_|])", r"\\\1", cell)


if __name__ == "__main__":
    argparse.ArgumentParser(
        description="Write the tables of docs/papers from ledgers and records."
    ).parse_args()
    for paper in PAPERS:
        path = FOLDER / f"{paper}.md"
        path.write_text(with_tables(path.read_text(encoding="utf-8"), paper), encoding="utf-8")
