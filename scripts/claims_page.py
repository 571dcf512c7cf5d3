"""The tables of docs/papers/claims.md, from runs of the claims at their default scale and from their ledger.

specjax reproduce --only claims
python scripts/claims_page.py results
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from specjax.report import standing
from specjax.report.store import load

PAGE = Path(__file__).parents[1] / "docs" / "papers" / "claims.md"
TABLES = {"directions": ("claims-limits", "Claim 8"), "averages": ("claims-bias", "Claim 9")}
"""Places of the page: the experiment of which each shows a table, and how the title of that begins."""
HEADER = ("row", "what the document says", "status", "what is true")


def with_tables(page: str, out: Path) -> str:
    """The text of the page with the standing of every row of the ledger, and the tables of the results in `out`.

    Raises ValueError if a result lacks its table, or the page a place for it.
    """
    rows = [(s.row.id, s.row.says, s.status, s.row.finding or s.row.because) for s in standing.of("claims", out)]
    page = _placed(page, "standing", HEADER, rows)
    for place, (name, beginning) in TABLES.items():
        found = [table for table in load(out / name).tables if table.title.startswith(beginning)]
        if len(found) != 1:
            raise ValueError(f"The table {beginning!r} needs to be once in {out / name}; run {name} again.")
        page = _placed(page, place, found[0].header, found[0].rows)
    return page


def _placed(page: str, place: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    begin, end = f"<!-- {place} -->\n", f"<!-- end of {place} -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"The place {place!r} needs to be once in {PAGE}.")
    before, _, rest = page.partition(begin)
    lines = [header, ("---",) * len(header), *rows]
    table = "".join("| " + " | ".join(map(_escaped, line)) + " |\n" for line in lines)
    return before + begin + table + end + rest.partition(end)[2]


def _escaped(cell: str) -> str:
    return re.sub(r"([*_|])", r"\\\1", cell)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("Give the folder of the results, as in `python scripts/claims_page.py results`.")
    PAGE.write_text(with_tables(PAGE.read_text(), Path(sys.argv[1])))
