"""The tables of docs/papers/claims.md, from a run of the claims at its default scale.

    specjax run claims
    python scripts/claims_page.py results/claims

Numbers below 1e-10 are written as 0, because they are rounding and differ between machines.
"""

import re
import sys
from pathlib import Path

from specjax.experiments.contract import Table
from specjax.report.store import load

PAGE = Path(__file__).parents[1] / "docs" / "papers" / "claims.md"
PLACES = {"verdicts": "Verdicts", "directions": "Claim 8", "averages": "Claim 9"}
"""The places of the page, and how the titles of their tables begin."""


def with_table(page: str, folder: Path) -> str:
    """The text of the page with the tables of the result in `folder`.

    Raises ValueError if the result lacks a table, or the page a place for it.
    """
    tables = load(folder).tables
    for place, beginning in PLACES.items():
        found = [table for table in tables if table.title.startswith(beginning)]
        begin, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->"
        if len(found) != 1 or page.count(begin) != 1 or page.count(end) != 1:
            raise ValueError(
                f"The table {beginning!r} needs to be once in {folder} and its place {place!r} once in {PAGE}."
            )
        before, _, rest = page.partition(begin)
        page = before + begin + _markdown(found[0]) + end + rest.partition(end)[2]
    return page


def _markdown(table: Table) -> str:
    lines = [table.header, ("---",) * len(table.header), *table.rows]
    return "".join("| " + " | ".join(map(_escaped, line)) + " |\n" for line in lines)


def _escaped(cell: str) -> str:
    return re.sub(r"([*_|])", r"\\\1", cell)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("Give the result folder, as in `python scripts/claims_page.py results/claims`.")
    PAGE.write_text(with_table(PAGE.read_text(), Path(sys.argv[1])))
