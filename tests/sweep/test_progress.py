"""The time left that a running sweep prints."""

import logging
from contextlib import closing

import pytest

from specjax.sweep._progress import Progress


@pytest.fixture
def clock(monkeypatch):
    """A list whose one entry is the time."""
    now = [0.0]
    monkeypatch.setattr("specjax.sweep._progress.perf_counter", lambda: now[0])
    return now


def test_the_time_left_follows_the_estimated_cost_of_seeds(clock, caplog):
    """A narrow bucket of 10 s and a wide one of 30 s; the first takes 20 s, twice as long as
    estimated.
    """
    caplog.set_level(logging.INFO, "specjax.sweep")
    with closing(Progress(200, 0, 40.0, 2, visible=False)) as shown:
        shown.bucket(0, "d=2")
        for now, number in (20.0, 100), (50.0, 50):
            clock[0] = now
            shown.seeds(number, 10.0 if number == 100 else 15.0)
            shown.block(0, number, 2.0)
    assert [record.message.rpartition(", ")[2] for record in caplog.records] == [
        "01:00 left",
        "00:30 left",
    ]
    assert [record.taken for record in caplog.records] == [20.0, 50.0]


def test_a_measure_without_counted_operations_has_no_time_left(clock, caplog):
    caplog.set_level(logging.INFO, "specjax.sweep")
    with closing(Progress(4, 0, 0.0, 1, visible=False)) as shown:
        shown.bucket(0, "")
        clock[0] = 9.0
        shown.seeds(4, 0.0)
        shown.block(0, 4, 2.0)
    assert caplog.records[0].message == "bucket 1/1: seeds 0 to 3 in 2.00 s, 2 seeds/s, ? left"


def test_lines_are_printed_where_no_terminal_shows_a_bar(capsys):
    for visible in (True, None, False):
        with closing(Progress(4, 0, 0.0, 1, visible=visible)) as shown:
            shown.bucket(0, "width=8")
            shown.compiled(1.5)
            shown.seeds(4, 0.0)
        printed = capsys.readouterr().err
        assert printed == "bucket 1/1 (width=8): compiled in 1.5 s\n" * (visible is True)
