"""Where the rows of a ledger stand, by what a folder of results holds."""

from types import SimpleNamespace

import pytest

from specjax.report import standing, store

FULL = {"power": "9 SE from d₀ d₂ κ₂", "verdict": "confirmed", "depends": False}


def status(monkeypatch, tmp_path, scale, record):
    checks = [SimpleNamespace(name=name, record=record) for name in ("off-diagonal", "remainder")]
    results = [
        SimpleNamespace(record=SimpleNamespace(name=name, scale=scale), checks=checks)
        for name in ("relu-off-diagonal", "table-c7", "figure-2")
    ]
    monkeypatch.setattr(store, "load_all", lambda _: results)
    (row,) = [row for row in standing.of("outer-product", tmp_path) if row.row.id == "eq-40"]
    return row


@pytest.mark.parametrize(("scale", "expected"), [("smoke", "not run"), ("quick", "holds"), ("paper", "holds")])
def test_a_smoke_run_decides_no_row(monkeypatch, tmp_path, scale, expected):
    row = status(monkeypatch, tmp_path, scale, FULL)
    assert row.status == expected
    assert bool(row.decided) == (expected == "holds")


def test_a_record_of_another_version_is_told_in_a_sentence(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="lacks 'depends', as those of another version do; run its experiment again"):
        status(monkeypatch, tmp_path, "quick", {"power": "", "verdict": "confirmed"})


def test_a_row_that_no_statement_cites_is_not_judged(tmp_path):
    rows = {row.row.id: row for row in standing.of("preconditioning", tmp_path)}
    assert {row.status for row in rows.values()} <= {"not judged", "not run"}
    assert "not judged" in standing.counts(list(rows.values()))
