"""The most memory that a process held: what was allocated and freed is in it, until it is
forgotten.
"""

import os

import numpy as np
import pytest

from specjax.report import _peak_memory

SIZE = 300 * 2**20


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="the system does not count the peak"
)
def test_the_peak_is_of_what_was_held_since_it_was_forgotten():
    _peak_memory.forget()
    before = _peak_memory.peak()
    np.ones(SIZE, np.uint8)
    assert before is not None
    assert before + 0.9 * SIZE < _peak_memory.peak() < before + 1.5 * SIZE
    _peak_memory.forget()
    assert _peak_memory.peak() < before + 0.5 * SIZE


def test_where_the_system_does_not_count_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(_peak_memory, "_PROCESS", tmp_path / "none")
    _peak_memory.forget()
    assert _peak_memory.peak() is None
