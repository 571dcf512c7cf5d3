"""How often a line is told of what takes long."""

import logging

from specjax.report.text_progress import PacedHandler


def test_a_line_comes_after_five_seconds_and_then_once_in_ten(monkeypatch):
    clock, handler = [0.0], PacedHandler()
    monkeypatch.setattr("specjax.report.text_progress.perf_counter", lambda: clock[0])

    def told(now, **extra):
        clock[0] = now
        return bool(handler.filter(logging.makeLogRecord({"levelno": logging.INFO, **extra})))

    # A computation that began at 3, and one that began at 40.
    times = {4: 1, 7.9: 4.9, 8: 5, 17.9: 14.9, 18: 15, 39: 36, 44: 4, 49.5: 9.5, 58: 18, 60: 20}
    assert [now for now, taken in times.items() if told(now, taken=taken)] == [8, 18, 39, 49.5, 60]
    assert not told(1000)
    assert handler.filter(logging.makeLogRecord({"levelno": logging.WARNING}))
