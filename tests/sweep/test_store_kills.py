"""A writer that is killed before any of the changes it makes loses no finished block, and the same
call continues.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).with_name("killed_writer.py")


# Every fifth change in the fast suite, every one in the slow one.
@pytest.mark.parametrize("stride", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_before_any_change_to_the_folder_loses_nothing(stride, tmp_path):
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), str(stride)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    kills = {
        name: int(count) for name, count in (line.split() for line in done.stdout.splitlines())
    }
    assert set(kills) == {"new", "grown", "again", "damaged"}
    # It changes the folder so often: the lock, and the draft and its new name of each file.
    assert kills["new"] * stride >= 10, kills
