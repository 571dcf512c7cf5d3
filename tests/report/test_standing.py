"""Where the rows of a ledger stand, by what a folder of results holds."""

import dataclasses

import pytest

from specjax.report import records, standing, store


@pytest.fixture(autouse=True)
def _no_records(monkeypatch, tmp_path):
    monkeypatch.setattr(records, "home", lambda: tmp_path / "records")


FULL = {"power": "9 SE from d₀ d₂ κ₂", "verdict": "confirmed", "depends": False}


@pytest.fixture
def status(result, monkeypatch, tmp_path):
    """The row eq-40 where every statement on it has the same record at a scale."""

    def row(scale, record):
        checks = tuple(
            dataclasses.replace(result.checks[0], name=name, record=record) for name in ("off-diagonal", "remainder")
        )
        results = [
            dataclasses.replace(
                result, record=dataclasses.replace(result.record, name=name, scale=scale), checks=checks
            )
            for name in ("relu-off-diagonal", "table-c7", "figure-2")
        ]
        monkeypatch.setattr(store, "load_all", lambda _: results)
        (found,) = [row for row in standing.of("outer-product", tmp_path) if row.row.id == "eq-40"]
        return found

    return row


@pytest.mark.parametrize(("scale", "expected"), [("smoke", "not run"), ("quick", "holds"), ("paper", "holds")])
def test_a_smoke_run_decides_no_row(status, scale, expected):
    row = status(scale, FULL)
    assert row.status == expected
    assert bool(row.decided) == (expected == "holds")


def test_a_record_of_another_version_is_told_in_a_sentence(status):
    with pytest.raises(ValueError, match="lacks 'depends', as those of another version do; run its experiment again"):
        status("quick", {"power": "", "verdict": "confirmed"})


def test_a_row_that_no_statement_cites_is_not_judged(tmp_path):
    rows = {row.row.id: row for row in standing.of("preconditioning", tmp_path)}
    assert {row.status for row in rows.values()} <= {"not judged", "not run"}
    assert "not judged" in standing.counts(list(rows.values()))
