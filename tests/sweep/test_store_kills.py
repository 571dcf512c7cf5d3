"""A writer that is killed before any of the changes it makes loses no finished block, and the same call continues."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).with_name("killed_writer.py")


# Every 29th change in the fast suite, every one in the slow one.
@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_before_any_change_to_the_folder_loses_nothing(stride, tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(stride)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kills = {name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())}
    assert set(kills) == {"new", "grown", "again", "dropped"}
    assert min(kills.values()) * stride > 50, kills
