"""The fourteen claims: each is judged, and the page shows what the ledger and the runs say."""

import importlib.util
import re
from pathlib import Path

import pytest

from specjax import experiments
from specjax.cli import main
from specjax.experiments.ledgers import ledger

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "papers" / "claims.md"
NAMES = [name for name in experiments.names() if name.startswith("claims-")]


def test_each_claim_is_judged_in_its_own_words():
    """A claim on which only statements of ours were made would be none of the document's."""
    printed = {
        row
        for name in NAMES
        for statement in experiments.on_the_lab()[name].statements
        if not statement.corrected
        for row in statement.cites
    }
    assert {f"claim-{n}" for n in range(1, 15)} <= printed


def test_the_page_names_experiments_and_statements_that_there_are():
    named = re.findall(r"`(claims-[a-z]+)(?:: ([a-z0-9-]+))?`", PAGE.read_text())
    assert {name for name, _ in named} == set(NAMES)
    for name, statement in named:
        assert not statement or statement in {s.name for s in experiments.on_the_lab()[name].statements}


def test_the_page_has_the_rows_of_the_ledger():
    """Statuses and tables are compared with a run in `test_the_page_is_in_step`."""
    found = re.findall(r"(?m)^\| ((?:claim|preamble)-[a-z0-9-]+) \| .* \| (?:[a-z ]+) \| .* \|$", PAGE.read_text())
    assert found == list(ledger("claims").rows)


def script():
    spec = importlib.util.spec_from_file_location("claims_page", ROOT / "scripts" / "claims_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_is_in_step(tmp_path):
    assert main(["reproduce", "--only", "claims", "--out", str(tmp_path)]) == 0
    assert script().with_tables(PAGE.read_text(), tmp_path) == PAGE.read_text()
