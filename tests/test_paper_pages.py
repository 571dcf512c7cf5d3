"""The tables of the papers' pages are those of the ledgers and the records."""

import re
from pathlib import Path

import pytest

from specjax.experiments.ledgers import PAPERS, ledger
from specjax.report import records
from tests.scripts import load_script

ROOT = Path(__file__).parents[1]


def page(paper):
    return (ROOT / "docs" / "papers" / f"{paper}.md").read_text()


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_is_in_step_with_ledger_and_records(paper):
    assert load_script("paper_pages").with_tables(page(paper), paper) == page(paper), (
        "run `python scripts/paper_pages.py`"
    )


@pytest.mark.parametrize("paper", PAPERS)
def test_a_page_has_every_row_of_its_ledger(paper):
    table = page(paper).partition("<!-- standing -->")[2].partition("<!-- end of standing -->")[0]
    assert re.findall(r"(?m)^\| ([a-z0-9-]+) \| ", table)[2:] == list(ledger(paper).rows)


def test_a_page_without_a_place_gets_one_and_keeps_its_prose(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "home", lambda: tmp_path)
    prose = "# A paper\n\nIn short.\n\n## What holds\n\nMuch.\n"
    made = load_script("paper_pages").with_tables(prose, "outer-product")
    assert made.startswith(prose + "\n## Where each statement stands\n\n")
    assert made.endswith("<!-- end of standing -->\n")
    assert "| not run |" in made
    assert load_script("paper_pages").with_tables(made, "outer-product") == made


def test_a_place_that_is_not_closed_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "home", lambda: tmp_path)
    with pytest.raises(ValueError, match="'standing' needs to be once"):
        load_script("paper_pages").with_tables("# A\n<!-- standing -->\n", "outer-product")
