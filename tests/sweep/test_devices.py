"""A sweep on eight devices, and in two processes, gives the dataset of one device: the samples bit
for bit, the values to rounding.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sharded_sweep
import xarray as xr

pytestmark = pytest.mark.integration

SCRIPT = str(Path(sharded_sweep.__file__))
SWEEPS = ("every", "padded", "moments", "svd")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The sweeps on one device."""
    folder = tmp_path_factory.mktemp("alone")
    code = (
        "import sharded_sweep; from pathlib import Path;"
        f" sharded_sweep.sweeps(Path({str(folder)!r}))"
    )
    finish(
        run(
            ["-c", code],
            {
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(SCRIPT).parent), os.environ.get("PYTHONPATH", "")]
                )
            },
        )
    )
    return folder


def load(folder, name):
    with xr.open_dataset(folder / f"{name}.nc", engine="h5netcdf") as data:
        return data.load()


def assert_same(found, expected):
    assert set(found) == set(expected)
    for name, variable in expected.data_vars.items():
        if name in ("bits", "failed", "count", "first_failed"):
            np.testing.assert_array_equal(found[name], variable)
        else:
            scale = float(np.sqrt(np.mean(np.square(variable.values, dtype=float))))
            np.testing.assert_allclose(
                found[name], variable, rtol=0, atol=2e-5 * scale, err_msg=name
            )
            assert found[name].dtype == variable.dtype


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """The sweeps of a process with eight devices."""
    return on_eight_devices(tmp_path_factory.mktemp("eight"))


@pytest.mark.slow
def test_eight_devices(alone, eight):
    for name in SWEEPS:
        found, expected = load(eight, name), load(alone, name)
        assert (found.attrs["devices"], expected.attrs["devices"]) == (8, 1)
        assert_same(found, expected)
    # Continued in a store from 13 seeds to 29.
    assert_same(load(eight, "stored"), load(alone, "padded"))


@pytest.mark.slow
def test_any_plan_chunk_budget_and_devices(alone, tmp_path):
    on_eight_devices(tmp_path, "--cuts")
    found = sorted(path.stem for path in tmp_path.iterdir())
    assert len(found) == sharded_sweep.CUTS
    for name in found:
        assert_same(load(tmp_path, name), load(alone, "padded"))


@pytest.mark.slow
def test_two_processes(alone, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [run([SCRIPT, str(tmp_path), address, "2", str(i)], {}) for i in range(2)]
    for process in processes:
        finish(process)
    for name in SWEEPS:
        for i in range(2):
            found = load(tmp_path / str(i), name)
            assert (found.attrs["devices"], found.attrs["processes"]) == (2, 2)
            assert_same(found, load(alone, name))
    for i in range(2):
        assert_same(load(tmp_path / str(i), "stored"), load(alone, "padded"))


def on_eight_devices(folder, *arguments):
    finish(
        run(
            [SCRIPT, str(folder), *arguments],
            {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        )
    )
    return folder


def run(arguments, environment):
    """A process without the flags of these tests, by which draws are not the same bit for bit in
    every program.
    """
    environment = {
        **os.environ,
        "XLA_FLAGS": "",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",
        **environment,
    }
    return subprocess.Popen(
        [sys.executable, *arguments], stderr=subprocess.PIPE, text=True, env=environment
    )


def finish(process):
    _, error = process.communicate(timeout=400)
    assert process.returncode == 0, error
