"""Kills the writer of a store before every change it makes to its folder, and continues; run as `python killed_writer.py FOLDER STRIDE`.

The parent forks a child for every run, so that the imports are paid once; it itself never touches a store. A child that is to be
killed counts the changes it is about to make (Python's audit events) and sends itself SIGKILL before the one whose turn it is.
"""

import itertools
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
import xarray as xr
import zarr

from specjax.sweep.store import Block, Layout, Manifest, Store, read_manifest, verify

MANIFEST = Manifest({"key": [0, 1]}, {"chunk": 3})
CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}
PLACES = [(np.array([0]),), (np.array([2, 1]),)]


def dataset(samples, note):
    values = np.add.outer(10 * np.arange(3), np.arange(samples)).astype(np.float32)
    return xr.Dataset({"y": (("d", "seed"), values)}, {"d": [2, 4, 8], "seed": np.arange(samples)}, {"note": note})


def call(path, samples, note=""):
    """What `run` does: create or continue, compute what is missing, finish. Returns how many samples it computed."""
    layout = Layout(("d",), (3,), ("d",), "seed", samples, 3, {"y": jax.ShapeDtypeStruct((), np.float32)})
    stored = read_manifest(path)
    computed = 0
    values = dataset(samples, note)["y"].values
    with Store.resume(path, stored.config, layout) if stored else Store.create(path, MANIFEST, layout) as store:
        for bucket, place in enumerate(PLACES):
            for begin, end in store.missing(bucket):
                for start in range(begin, end, 3):
                    stop = min(start + 3, end)
                    store.write(Block(bucket, start, stop), place, {"y": values[np.ix_(*place)][:, start:stop]}, 1.0)
                    computed += len(place[0]) * (stop - start)
        assert np.array_equal(store.read()["y"], values)
        store.finish(dataset(samples, note))
    return computed


def damage(path):
    call(path, 4)
    (path / "data.zarr" / "y" / "c.1.0").unlink()
    (path / "data.zarr" / "seed" / "zarr.json").unlink()


class Scenario(NamedTuple):
    """A call that is killed: what was before it, and what it asks for."""

    prepare: Callable[[Path], object]
    samples: int
    note: str = ""
    drop: bool = False

    def act(self, path):
        if self.drop:
            verify(path, drop=True)
        return call(path, self.samples, self.note)


SCENARIOS = {
    "new": Scenario(lambda _: None, 4),
    "grown": Scenario(lambda path: call(path, 4), 8),
    "again": Scenario(lambda path: call(path, 4), 4, note="again"),
    "dropped": Scenario(damage, 4, drop=True),
}


def continued(path, scenario):
    """The same call on what a killed one left behind computes what is missing, no more, and ends in the same dataset."""
    kept = verify(path) if read_manifest(path) else None
    intact = 0
    if kept is not None:
        assert kept.whole or scenario.drop, kept
        lost = sum(len(PLACES[block.bucket][0]) * (block.stop - block.start) for block in kept.damaged)
        intact = kept.measured - lost
    assert scenario.act(path) == 3 * scenario.samples - intact
    report = verify(path)
    assert report.finished, report
    assert report.whole, report
    assert sorted(os.listdir(path)) == ["blocks.jsonl", "data.zarr", "manifest.json"]
    with xr.open_zarr(path / "data.zarr", chunks=None) as stored:
        xr.testing.assert_identical(stored.load(), dataset(scenario.samples, scenario.note))


def killed_before(number, folder, act):
    """Act on a folder, and die before the change of that number."""
    seen = 0

    def hook(event, args):
        nonlocal seen
        if event not in CHANGES or (event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        if isinstance(args[0], int) or str(args[0]).startswith(str(folder)):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    act(folder)


def in_child(function, *arguments):
    """Run a function in a fork of this process; return its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    folder, stride = Path(sys.argv[1]), int(sys.argv[2])
    for name, scenario in SCENARIOS.items():
        prepared, path = folder / f"{name}-prepared", folder / name
        assert in_child(scenario.prepare, prepared) == 0
        for kills, number in enumerate(itertools.count(1, stride)):
            shutil.rmtree(path, ignore_errors=True)
            if prepared.exists():
                shutil.copytree(prepared, path)
            code = in_child(killed_before, number, path, scenario.act)
            if code == 0:
                print(name, kills)
                break
            assert code == -signal.SIGKILL, f"{name} failed before change {number}"
            assert in_child(continued, path, scenario) == 0, f"{name} was lost by a kill before change {number}"


if __name__ == "__main__":
    assert zarr.__version__  # imported here so that no child imports it
    main()
