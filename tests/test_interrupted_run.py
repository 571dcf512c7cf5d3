"""`specjax run` killed in the middle, and run again by the same command: the same bits, and nothing
computed twice.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).parent / "killed_run.py"
ALL = 2 * 2 * 40  # sweeps, widths and seeds
CHUNK = 4


def start(log, out):
    command = [sys.executable, str(SCRIPT), str(log), "run", "toy-blocks", "--out", str(out)]
    environment = {**os.environ, "SPECJAX_COMPILATION_CACHE": "off"}
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    _, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return error


def computed(log):
    return log.stat().st_size if log.exists() else 0


def blocks(out):
    """How many blocks the stores hold."""
    return len(list((out / ".unfinished").glob("*/*/bucket*")))


def data(out):
    with xr.open_datatree(out / "toy-blocks" / "data.nc", engine="h5netcdf") as tree:
        return {
            f"{name}/{v}": node[v].values.tobytes()
            for name, node in tree.children.items()
            for v in node.variables
        }


@pytest.mark.slow
def test_a_killed_run_continues_to_the_same_bits(tmp_path):
    whole = tmp_path / "whole"
    assert "goes on" not in finish(start(tmp_path / "all", whole))
    assert computed(tmp_path / "all") == ALL
    assert not (whole / ".unfinished").exists()

    process = start(tmp_path / "first", tmp_path / "out")
    while (
        computed(tmp_path / "first") < ALL * 0.7 and process.poll() is None
    ):  # in the second sweep
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out" / "toy-blocks").exists()
    stored = blocks(tmp_path / "out") * CHUNK
    assert ALL / 2 < stored < ALL

    assert "toy-blocks goes on from what is kept in" in finish(
        start(tmp_path / "second", tmp_path / "out")
    )
    assert computed(tmp_path / "second") == ALL - stored
    assert data(tmp_path / "out") == data(whole)
    assert not (tmp_path / "out" / ".unfinished").exists()


@pytest.mark.slow
def test_two_runs_of_the_same_do_not_share_a_folder(tmp_path):
    first = start(tmp_path / "first", tmp_path / "out")
    while not computed(tmp_path / "first") and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(
        signal.SIGSTOP
    )  # it holds its folder for as long as the other one takes to start
    second = start(tmp_path / "second", tmp_path / "out")
    _, error = second.communicate(timeout=300)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert error.splitlines()[-1].startswith(
        "specjax: Another process computes the same, and keeps it in "
    )
    finish(first)
    assert computed(tmp_path / "second") == 0
