"""The tables of the papers' pages are those of the ledgers and the records."""

import re
from pathlib import Path

import pytest

from specjax.experiments.ledgers import PAPERS, ledger
from specjax.report import ledger_status, records
from tests.scripts import load_script

ROOT = Path(__file__).parents[1]


PAGES = load_script("paper_pages").pages()
BY_PAGE = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)


@BY_PAGE
def test_a_page_is_in_step_with_ledger_and_records(path):
    paper, rows = PAGES[path]
    page = path.read_text()
    assert load_script("paper_pages").with_tables(page, paper, rows) == page, (
        "run `python scripts/maintain/paper_pages.py`"
    )


@pytest.mark.parametrize("paper", [paper for paper in PAPERS if paper != "field"])
def test_a_page_links_every_row_of_its_ledger(paper):
    page = (ROOT / "docs" / "papers" / f"{paper}.md").read_text()
    assert page.count(f"](ledgers/{paper}.tsv)") == page.count(f"<!-- rows of {paper} -->") == 1
    counts = re.search(r"<!-- standing -->\n(.*)\. \[The ledger's file\]", page)[1]
    assert sum(map(int, re.findall(r"\d+", counts))) == len(ledger(paper).rows)


@pytest.mark.parametrize("path", [p for p in PAGES if PAGES[p][0] == "field"], ids=str)
def test_a_page_has_every_row_of_its_ledger_once(path):
    place = (
        path.read_text().partition("<!-- standing -->")[2].partition("<!-- end of standing -->")[0]
    )
    judged = re.findall(r"(?m)^\|([a-z0-9-]+)\|", place)[2:]
    others = re.findall(r"(?m)^- `([a-z0-9-]+)`: ", place)
    counted = re.search(r"(?m)^(\d+) rows are not judged; the ledger's file", place)
    paper, rows = PAGES[path]
    assert len(set(judged + others)) == len(judged + others)
    assert set(judged + others) <= set(rows)
    # A long list of reasons is in the ledger's file, which has every row.
    left = set(rows) - set(judged + others)
    assert len(left) == (int(counted[1]) if counted else 0)
    lines = (ROOT / "docs" / "papers" / "ledgers" / f"{paper}.tsv").read_text().splitlines()
    cells = [line.split("\t") for line in lines]
    not_judged = {row[0] for row in cells if row[3] == "not judged"} & set(rows)
    assert not_judged == (left or set(others))


@pytest.mark.parametrize("paper", PAPERS)
def test_the_ledger_in_full_is_that_of_the_package(paper):
    stored = ROOT / "docs" / "papers" / "ledgers" / f"{paper}.tsv"
    assert stored.read_text() == load_script("paper_pages").full_ledger(paper)


@pytest.mark.parametrize("paper", PAPERS)
def test_the_pages_have_every_row_of_a_ledger_once(paper):
    assert [row for name, rows in PAGES.values() if name == paper for row in rows] == list(
        ledger(paper).rows
    )


@BY_PAGE
def test_a_page_opens_with_its_findings(path):
    lines = path.read_text().splitlines()
    assert lines.index("<!-- findings -->") <= 10
    assert load_script("paper_pages").VERDICT.search("\n".join(lines))


def test_the_overview_of_recent_papers_matches_the_ledger():
    page = (ROOT / "docs" / "papers" / "field.md").read_text()
    rows = ledger_status.rows("field", list(records.load_all().values()))
    assert (
        load_script("paper_pages").with_findings(page, {row.row.id: row.status for row in rows})
        == page
    )


@pytest.mark.integration
def test_the_standing_of_the_field_is_that_of_the_records():
    stored = ROOT / "docs" / "papers" / "standing.md"
    assert stored.read_text() == load_script("standing_page").page(), (
        "run `python scripts/maintain/standing_page.py`"
    )


def test_a_row_says_what_would_change_it():
    change = load_script("standing_page").change
    decided = 0
    for check in (c for result in records.load_all().values() for c in result.checks):
        text = change(check)
        far = [rival["standard_errors"] for rival in check.rivals if rival["standard_errors"]]
        if check.verdict == "confirmed" and far:
            decided += 1
            assert text.endswith(f", {min(far):.3g} SE away")
        elif check.verdict != "confirmed":
            starts = {"inconclusive": "a narrower", "refuted": "an interval that allows the st"}
            assert text.startswith(starts[check.verdict])
    assert decided > 100


def test_the_numbers_are_those_of_the_records():
    stored = ROOT / "docs" / "papers" / "preconditioning-numbers.tsv"
    assert stored.read_text() == load_script("paper_pages").numbers("preconditioning")


def test_findings_have_the_status_of_their_row():
    page = "<!-- findings -->\n| a | **false** (`theorem-1`) | 1 |\n<!-- end of findings -->\n"
    made = load_script("paper_pages").with_findings(page, {"theorem-1": "not judged"})
    assert made == page.replace("false", "not judged")
    with pytest.raises(ValueError, match="theorem-1"):
        load_script("paper_pages").with_findings(page, {"theorem-2": "holds"})


def test_a_page_without_a_place_gets_one_and_keeps_its_prose(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "home", lambda: tmp_path)
    prose = "# A paper\n\nIn short.\n\n## What holds\n\nMuch.\n"
    made = load_script("paper_pages").with_tables(prose, "outer-product")
    assert made.startswith(prose + "\n## Every statement\n\n")
    assert made.endswith("<!-- end of standing -->\n")
    assert re.search(r"\n\d+ not run, \d+ not judged\. \[The ledger's file\]", made)
    assert load_script("paper_pages").with_tables(made, "outer-product") == made


def test_a_place_that_is_not_closed_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "home", lambda: tmp_path)
    with pytest.raises(ValueError, match="'standing' needs to be once"):
        load_script("paper_pages").with_tables("# A\n<!-- standing -->\n", "outer-product")
