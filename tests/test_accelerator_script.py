"""`scripts/accelerator.sh` refuses what it cannot do before anything runs; that its pieces run is a
job of the workflow.
"""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "accelerator.sh"


@pytest.mark.parametrize("arguments", [["--help"], ["a", "b"], ["a file/below"], ["trial"]])
def test_it_runs_nothing_on_a_wrong_argument(arguments, tmp_path):
    (tmp_path / "a file").write_text("mine")
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "scale").write_text("smoke\n")
    # What the script would run, and where it would leave a trace.
    commands = tmp_path / "commands"
    commands.mkdir()
    for name in ("python", "specjax", "timeout"):
        (commands / name).write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\nexit 1\n")
        (commands / name).chmod(0o755)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    command = [SCRIPT, *arguments]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a file", "commands", "trial"]
