"""Ledgers: what a row may hold, and how its status follows from verdicts."""

import pytest

from specjax import lab
from specjax.experiments import ledgers, load_all

ROW = '[theorem-3]\nkind = "theorem"\nwhere = "Section 3"\nsays = "It holds."\n'


def cited(verdict, corrected=False, depends=False, elsewhere=False):
    return lab.ledger.Citation(verdict, corrected, depends, elsewhere)


@pytest.mark.parametrize(
    ("citations", "status"),
    [
        ([], "not judged"),
        ([cited(None)], "not run"),
        ([cited("confirmed"), cited(None)], "not run"),
        ([cited("confirmed")], "holds"),
        ([cited("confirmed"), cited("confirmed", corrected=True)], "holds"),
        ([cited("refuted")], "false"),
        ([cited("refuted"), cited("confirmed", corrected=True)], "corrected"),
        ([cited("refuted"), cited("inconclusive", corrected=True)], "false"),
        ([cited("confirmed", corrected=True)], "corrected"),
        ([cited("confirmed"), cited("inconclusive")], "open"),
        ([cited("confirmed"), cited("inconclusive", depends=True)], "depends"),
        ([cited("confirmed"), cited("refuted", corrected=True)], "open"),
        ([cited("confirmed", elsewhere=True)], "depends"),
        ([cited("confirmed"), cited("confirmed", elsewhere=True)], "depends"),
        ([cited("inconclusive"), cited("confirmed", elsewhere=True)], "depends"),
        ([cited("confirmed"), cited("refuted", elsewhere=True)], "holds"),
        ([cited("confirmed"), cited("inconclusive", elsewhere=True)], "open"),
        ([cited("refuted", elsewhere=True)], "open"),
        ([cited("refuted"), cited("inconclusive", elsewhere=True)], "false"),
    ],
)
def test_a_status_follows_from_the_verdicts(citations, status):
    assert lab.ledger.status(citations) == status


def test_a_ledger_is_read_in_the_order_of_the_paper(tmp_path):
    path = tmp_path / "ledger.toml"
    path.write_text(ROW.replace("theorem-3", "lemma-9") + ROW + 'because = "Owed."\n')
    ledger = lab.ledger.read_ledger(path, "paper")
    assert list(ledger.rows) == ["lemma-9", "theorem-3"]
    assert ledger.rows["theorem-3"] == lab.ledger.Row(
        "theorem-3", "theorem", "Section 3", "It holds.", "", "Owed."
    )


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("[a\n", "is not TOML"),
        ("a = 1\n", "'a' outside of a table"),
        (ROW + 'status = "holds"\n', "unknown key 'status'"),
        ('[a]\nkind = "theorem"\nsays = "It."\n', "lacks the key 'where'"),
        (ROW.replace('"theorem"', '"axiom"'), "unknown kind 'axiom'"),
        (ROW.replace("theorem-3", "Theorem_3"), "needs an id in kebab-case"),
    ],
)
def test_what_is_no_ledger_is_refused_in_a_sentence(tmp_path, content, match):
    path = tmp_path / "ledger.toml"
    path.write_text(content)
    with pytest.raises(ValueError, match=match):
        lab.ledger.read_ledger(path, "paper")


@pytest.mark.parametrize("paper", ledgers.PAPERS)
def test_every_row_is_judged_or_says_why_not(paper):
    cited = {
        id
        for experiment in load_all().values()
        if experiment.ledger.paper == paper
        for statement in experiment.statements
        for id in statement.cites
    }
    for id, row in ledgers.ledger(paper).rows.items():
        assert (id in cited) != bool(row.because), (
            f"{id} of {paper} needs a statement that cites it or a reason, and not both"
        )
        # That nobody has come to it yet is no reason.
        assert not row.because.lower().startswith("owed"), id


def test_a_paper_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="There is no paper 'muon'; there are outer-product"):
        ledgers.ledger("muon")
