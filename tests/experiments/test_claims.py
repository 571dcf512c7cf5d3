"""The fourteen claims: each is judged, and the page names what there is. Its tables are compared in tests/test_paper_pages.py."""

import re
from pathlib import Path

from specjax import experiments

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
