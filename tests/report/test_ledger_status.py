"""Where the rows of a ledger stand, by what a folder of results holds."""

import pytest

from specjax.report import formatting, ledger_status, result_store

EXPERIMENTS = ("relu-off-diagonal", "table-c7", "figure-2")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("scale", "expected"), [("smoke", "not run"), ("quick", "holds"), ("paper", "holds")]
)
def test_a_smoke_run_decides_no_row(monkeypatch, tmp_path, judged, scale, expected):
    monkeypatch.setattr(
        result_store, "load_all", lambda _: [judged(name, scale=scale) for name in EXPERIMENTS]
    )
    (row,) = [
        row
        for row in ledger_status.rows("outer-product", ledger_status.deciding(tmp_path))
        if row.row.id == "eq-40"
    ]
    assert row.status == expected
    decided = "remainder: 9 SE from the printed term" if expected == "holds" else ""
    assert ledger_status.cells(row)[2:4] == (expected, decided)


@pytest.mark.parametrize(
    ("id", "label"),
    [
        ("theorem-3", "Theorem 3"),
        ("theorem-b-1", "Theorem B.1"),
        ("eq-c-1", "Eq. C.1"),
        ("section-1-2-1-embedding-muon", "Section 1.2.1, embedding muon"),
        ("table-c7-g1-diagonal", "Table C7, g1 diagonal"),
        ("assumption-b", "Assumption B"),
        ("appendix-a-batch", "Appendix A, batch"),
        ("figure-4a-4b", "Figure 4a, 4b"),
        ("preamble-forms", "Preamble, forms"),
        ("growth", "Growth"),
        ("3d", "3d"),
    ],
)
def test_an_id_is_written_as_papers_write_it(id, label):
    assert formatting.label(id) == label


def test_a_row_that_no_statement_cites_is_not_judged(tmp_path):
    rows = {
        row.row.id: row
        for row in ledger_status.rows("preconditioning", ledger_status.deciding(tmp_path))
    }
    assert {row.status for row in rows.values()} <= {"not judged", "not run"}
    assert "not judged" in ledger_status.counts(list(rows.values()))


def test_sentences_of_ours_are_counted_apart(tmp_path):
    rows = ledger_status.rows("field", ledger_status.deciding(tmp_path))
    ours = [row for row in rows if row.row.where.startswith("ours")]
    assert ours
    assert len(ours) < len(rows)
    papers, _, own = ledger_status.counts(rows).partition("; of our own sentences ")
    for text, count in ((papers, len(rows) - len(ours)), (own, len(ours))):
        assert sum(int(part.split()[0]) for part in text.split(", ")) == count
