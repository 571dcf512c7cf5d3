"""Records: what they keep of a result, what they refuse, and where they decide."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from specjax import experiments
from specjax.report import ledger_status, load, records
from specjax.report.record_diff import differing
from specjax.report.result_store import save

NAME = "table-c7"


@pytest.fixture
def run(result, judged):
    """A result of `table-c7` at a scale, with changes of its record."""
    config = json.loads(json.dumps(dataclasses.asdict(experiments.load(NAME).at("quick"))))

    def made(scale="quick", verdict="confirmed", **changed):
        checks = tuple(
            dataclasses.replace(check, verdict=verdict, power="9 SE from κ₂")
            for check in judged(NAME).checks
        )
        record = dataclasses.replace(
            result.record,
            **{"name": NAME, "paper": "outer-product", "scale": scale, "config": config} | changed,
        )
        return dataclasses.replace(result, record=record, checks=checks)

    return made


@pytest.fixture
def folder(tmp_path):
    """The place of all records, for a test."""
    return tmp_path / "records"


def test_a_record_has_the_numbers_of_a_result_and_not_its_data(run, folder):
    machine = {"platform": "cpu", "kind": "cpu", "count": 1, "host": "2-core x86-64 CPU"}
    path = records.save(run(device=machine), folder)
    text = path.read_text()
    assert len(text) < 20_000
    found = json.loads(text)
    assert found["command"] == "specjax run table-c7 --scale quick"
    assert found["machine"] == "2-core x86-64 CPU"
    assert found["checks"][0]["interval"] == [1.9, 2.1]
    assert found["checks"][0]["points"] == []
    assert found["checks"][0]["power"] == "9 SE from κ₂"
    loaded = records.load(path)
    assert loaded.recorded
    assert (loaded.record.scale, loaded.record.seconds, loaded.checks[0].estimate) == (
        "quick",
        1.25,
        1.98,
    )
    assert records.load_all() == {NAME: loaded}


def test_the_command_has_the_fields_that_differ_from_the_scale(run, folder):
    config = dict(run().record.config) | {"inits": 7, "sampled_inits": 9}
    path = records.save(
        run(config=config, device={"platform": "gpu", "kind": "A100", "count": 2}), folder
    )
    found = json.loads(path.read_text())
    assert found["command"] == "specjax run table-c7 --scale quick --inits 7 --sampled-inits 9"
    assert found["machine"] == "2 × A100 (CPU host)"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scale": "smoke"}, "is of a smoke run, which decides nothing; run it at scale quick"),
        ({"name": "toy"}, "There is no experiment 'toy' in this version"),
        (
            {"config": {"text": "/home/me/x.txt"}},
            "is of text='/home/me/x.txt', a path of one machine",
        ),
    ],
)
def test_what_is_no_record_is_refused(run, folder, changed, message):
    with pytest.raises(ValueError, match=message):
        records.save(run(**changed), folder)
    assert not folder.exists()


def test_a_smaller_scale_replaces_a_larger_one_only_if_told_to(run, folder):
    path = records.save(run("paper"), folder)
    before = path.read_text()
    with pytest.raises(
        ValueError, match=r"is of scale paper, and this result of quick; say --replace to have"
    ):
        records.save(run("quick"), folder)
    assert path.read_text() == before
    records.save(run("paper", seconds=3.0), folder)
    assert records.load(path).record.seconds == 3.0
    records.save(run("quick"), folder, replace=True)
    assert records.load(path).record.scale == "quick"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": 2}', r"is a record of format 2, and this version reads 3; make it again\.$"),
        ("[]", "is not a record that this version can read"),
        ('{"format": 3}', "is not a record that this version can read"),
        (
            '{"format": 3, "run": {}, "checks": [], "tables": []}',
            "is not a record that this version can read",
        ),
        ("{", "is not a record that this version can read"),
    ],
)
def test_a_record_of_another_version_is_refused_in_a_sentence(folder, text, message):
    folder.mkdir()
    (folder / "x.json").write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        ledger_status.rows("outer-product", ledger_status.deciding(folder / "results"))
    assert "\n" not in str(refused.value)


@pytest.fixture
def stands(tmp_path):
    """The status of a row, and what decides it, by the results in a folder and the records."""

    def stands():
        rows = {
            row.row.id: row
            for row in ledger_status.rows("outer-product", ledger_status.deciding(tmp_path / "out"))
        }
        row = rows["table-c7-g2-diagonal"]
        return row.status, row.decided[0] if row.decided else ""

    return stands


@pytest.mark.integration
def test_a_row_stands_as_recorded_until_it_is_run(run, folder, tmp_path, data, figure, stands):
    assert stands() == ("not run", "")
    records.save(run("paper"), folder)
    recorded = stands()
    assert recorded[0] == "holds"
    assert recorded[1].endswith("9 SE from κ₂ (record of scale paper)")
    save(tmp_path / "out", run("smoke", "refuted"), data, figure)
    assert stands() == recorded
    save(tmp_path / "out", run("quick"), data, figure)
    assert stands() == ("holds", recorded[1].removesuffix(" (record of scale paper)"))


OTHER = {"inits": 7}
HERE, RECORD = "κ₂", "9 SE from κ₂ (record of scale paper)"
"""The ends of the texts that decide a row: by this run, or by the record."""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("here", "there", "config", "expected"),
    [
        # What few samples leave open is decided by the record.
        ("inconclusive", "confirmed", OTHER, ("holds", RECORD)),
        ("inconclusive", "inconclusive", OTHER, ("open", HERE)),
        ("confirmed", "confirmed", OTHER, ("holds", HERE)),
        # What a larger run leaves open, or has otherwise, is not decided by the smaller one.
        ("confirmed", "inconclusive", OTHER, ("depends", "(here; inconclusive in the record)")),
        ("confirmed", "refuted", OTHER, ("depends", "(here; refuted in the record)")),
        ("refuted", "confirmed", OTHER, ("depends", "(here; confirmed in the record)")),
        # Another machine or seed is not another setting.
        ("confirmed", "refuted", {}, ("holds", HERE)),
        ("confirmed", "refuted", {"seed": 5}, ("holds", HERE)),
    ],
)
def test_a_row_depends_if_the_record_lacks_what_is_decided_here(
    run, folder, tmp_path, data, figure, stands, here, there, config, expected
):
    records.save(run("paper", there), folder)
    save(tmp_path / "out", run("quick", here, config=run().record.config | config), data, figure)
    status, decided = stands()
    assert (status, decided[-len(expected[1]) :]) == expected


@pytest.mark.integration
@pytest.mark.parametrize(
    ("scale", "changed", "expected"),
    [
        ("paper", {}, "depends"),
        # A record of fewer sizes says nothing of a larger run, and one of other words or another
        # rule nothing of this statement.
        ("quick", {}, "holds"),
        ("paper", {"rule": "inside 4 standard errors at all of 7 widths"}, "holds"),
        ("paper", {"says": "The slope is two."}, "holds"),
        # Sizes do not belong to the rule.
        ("paper", {"rule": "inside 5 standard errors"}, "depends"),
    ],
)
def test_only_a_larger_run_of_the_same_statement_is_compared(
    run, folder, tmp_path, data, figure, stands, scale, changed, expected
):
    record = run(scale, "inconclusive")
    checks = tuple(dataclasses.replace(check, **changed) for check in record.checks)
    records.save(dataclasses.replace(record, checks=checks), folder)
    save(tmp_path / "out", run("paper", config=record.record.config | OTHER), data, figure)
    assert stands()[0] == expected


def test_records_stand_beside_results_once(run, folder):
    records.save(run("paper"), folder)
    (record,) = records.load_all().values()
    assert records.beside([record]) == [record]
    assert records.beside([run("quick")]) == [run("quick"), record]


def test_verdicts_that_differ_are_told_with_both_intervals(run, result, folder):
    recorded = {NAME: records.load(records.save(run("paper"), folder))}
    assert differing([run("quick"), result], recorded) == []
    reported = differing([run("quick", "inconclusive")], recorded)
    assert len(reported) == len(experiments.load(NAME).statements)
    assert (
        reported[1]
        == "table-c7/off-diagonal is inconclusive, 1.98 [1.9, 2.1]; the record says confirmed, 1.98"
        " [1.9, 2.1] (at scale quick, recorded at paper)"
    )
    assert differing([run("paper", "refuted")], recorded)[0].endswith("(both at scale paper)")
    # Files have lists where a configuration has tuples, which is the same setting.
    listed, typed = [{**run().record.config, "widths": widths} for widths in ([8, 16], (8, 16))]
    there = {NAME: run("paper", config=listed)}
    assert differing([run("paper", "refuted", config=typed)], there)[0].endswith(
        "(both at scale paper)"
    )
    flagged = run("paper", "refuted", config=typed | {"sampled_inits": 9})
    assert differing([flagged], there)[0].endswith(
        "(both at scale paper, recorded with other --sampled-inits)"
    )
    there = recorded[NAME]
    checks = tuple(
        dataclasses.replace(check, verdict="inconclusive", depends=True) for check in there.checks
    )
    reported = differing([run("quick")], {NAME: dataclasses.replace(there, checks=checks)})
    assert (
        "the record says inconclusive, as it depends on the length, 1.98 [1.9, 2.1]" in reported[1]
    )


def test_the_stored_records_are_readable_and_as_expected():
    # The records' home is another folder in these tests.
    committed = sorted((Path(__file__).parents[2] / "records").glob("*.json"))
    assert committed
    for path in committed:
        result = records.load(path)
        assert path.stem == result.record.name in experiments.names()
        assert result.record.scale in ("quick", "paper")
        assert path.stat().st_size < 100_000
        assert not re.search(r"/(home|root|tmp|work)/", path.read_text())
        statements = experiments.load(path.stem).statements
        # Without a flag for each field that differs, as for another root seed, the command makes
        # another result.
        assert json.loads(path.read_text())["command"] == records.content(result)["command"]
        marked = {check.name for check in result.checks if check.post_hoc}
        assert marked <= {s.name for s in statements if s.post_hoc}, "A mark of post hoc is gone."
        # A statement whose expectation was turned needs a record that shows it.
        reported = {check.name: check.expected for check in result.checks}
        assert reported == {
            s.name: {True: "confirmed", False: "refuted", None: None}[s.holds] for s in statements
        }
        assert result.surprises == ()
        assert all(check.points == () for check in result.checks)


def test_a_result_is_not_a_record(tmp_path, result, data, figure):
    assert not load(save(tmp_path, result, data, figure)).recorded


def test_a_record_by_another_name_than_its_file_s_is_refused(run, folder):
    path = records.save(run(), folder)
    with pytest.raises(
        ValueError,
        match=rf"other.json is a record by the name of '{NAME}'; rename it, or delete it\.",
    ):
        records.load(path.rename(path.with_name("other.json")))
