"""docs/papers/standing.md: one row for each claim of a recent paper, from ledgers and records.

python scripts/maintain/standing_page.py
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from specjax import experiments, lab
from specjax.lab.check import Check
from specjax.report import ledger_status, records

PAGE = Path(__file__).parents[2] / "docs" / "papers" / "standing.md"
HEADER = ("claim", "status", "deciding number", "judged at", "what would change it")
ARXIV = re.compile(r"\d{4}\.\d{5}")
TEXT = """# Standing of the field

One row for each claim of a recent paper that experiments here have judged, generated from ledgers
and records by `python scripts/maintain/standing_page.py`. Statuses are
[those of every ledger](../found.md#how-to-read-a-verdict). A number is that of the deciding
statement at its deciding point, with four standard errors to either side.

Most papers work at sizes larger than ours, so a status says what holds at the size judged.
`specjax run NAME --scale paper` runs the experiment that a row names, and
[anyone can add a row](../add-an-experiment.md#a-claim-in-two-files).

"""


def main() -> None:
    argparse.ArgumentParser(description="Write docs/papers/standing.md.").parse_args()
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The text of the page."""
    results = list(records.load_all().values())
    found = ledger_status.rows("field", results)
    for name in submitted():
        found += ledger_status.rows(name, results)
    judged = [s for s in found if s.status != "not judged"]
    papers: dict[str, list[ledger_status.Standing]] = {}
    for standing in judged:
        papers.setdefault(source(standing), []).append(standing)
    sections = (
        f"## {title}\n\n{table((HEADER, *map(cells, rows)))}" for title, rows in papers.items()
    )
    counts = f"{len(judged)} claims: {ledger_status.counts(judged)}.\n\n"
    return TEXT + counts + "\n".join(sections)


def submitted() -> list[str]:
    """The names of the submitted claims, each of which has a ledger of its own."""
    folders = sorted(file.parent.name for file in experiments.SUBMITTED.glob("*/claim.toml"))
    return [name.replace("_", "-") for name in folders]


def source(standing: ledger_status.Standing) -> str:
    """The paper of a row with its link, and our page on it."""
    assert standing.deciding is not None
    folder = experiments.SUBMITTED / standing.deciding.experiment.replace("-", "_")
    if folder.is_dir():
        paper = lab.read_claim(str(folder / "claim.py")).paper
        return f"[{paper['title']}]({paper['link']})"
    arxiv = ARXIV.search(standing.row.where)
    assert arxiv is not None, f"The row {standing.row.id} names no paper in `where`."
    about = next(
        page for page in sorted((PAGE.parent / "field").glob("*.md")) if cites(page, arxiv[0])
    )
    title = about.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}](field/{about.name}), [arXiv {arxiv[0]}](https://arxiv.org/abs/{arxiv[0]})"


def cites(page: Path, arxiv: str) -> bool:
    """Whether a page is on this paper: it opens with its link."""
    return arxiv in "".join(page.read_text(encoding="utf-8").splitlines()[:8])


def cells(standing: ledger_status.Standing) -> tuple[str, ...]:
    """The cells of a claim; those of sentences of ours say so."""
    by = standing.deciding
    assert by is not None
    assert by.check is not None
    claim = f"ours: {standing.row.says}" if standing.row.ours else standing.row.says
    return claim, f"**{standing.status}**", number(by.check), size(by), change(by.check)


def number(check: Check) -> str:
    """The estimate with its interval, and the number it is compared with."""
    compared = "" if check.compared is None else f" against {short(check.compared)}"
    low, high = map(short, check.interval)
    return f"{short(check.estimate)} ({low} to {high}){compared}"


def size(by: ledger_status.Cited) -> str:
    """The experiment, the preset of its record, and the samples of the deciding point."""
    assert by.result is not None
    assert by.check is not None
    record = by.result.record
    return f"`{record.name}`, {record.scale}, {by.check.samples} samples"


def change(check: Check) -> str:
    """What the data would have to allow for another verdict."""
    if check.verdict == "inconclusive":
        return "a narrower interval"
    if check.verdict == "refuted":
        far = "" if check.away is None else f", now {check.away:.3g} SE away"
        return f"an interval that allows the statement{far}"
    near = min(
        (rival for rival in check.rivals if rival["standard_errors"] is not None),
        key=lambda rival: rival["standard_errors"],
        default=None,
    )
    if near is not None:
        return f"an interval that allows “{near['name']}”, {near['standard_errors']:.3g} SE away"
    failed = [attack["name"] for attack in check.attacks if not attack["survived"]]
    return f"data as in the control “{failed[0]}”" if failed else "an interval across the bound"


def short(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def table(rows: Sequence[Sequence[str]]) -> str:
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "".join("|" + "|".join(map(escaped, line)) + "|\n" for line in lines)


def escaped(cell: str) -> str:
    """Stars that are not those of a bold status, underscores and bars, as Markdown's own signs."""
    if cell.startswith(("**", "`")):
        return cell
    return re.sub(r"([*_|])", r"\\\1", cell)


if __name__ == "__main__":
    main()
