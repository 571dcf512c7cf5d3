"""Kills the writer of a store before every change it makes to its folder, and continues; run as
`python killed_writer.py FOLDER STRIDE`.

The parent forks a child for every run, so that the imports are paid once; it itself never touches a
store. A child that is to be killed counts the changes it is about to make (Python's audit events)
and sends itself SIGKILL before the one whose turn it is.
"""

import itertools
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import xarray as xr
from stores import assert_read, compute, described, truth

from specjax.sweep._store import Store, StoreError, files, open_store

CHANGES = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}


def call(path, samples, *, damaged=False):
    """What `run` does: begin or continue, compute what is missing. Returns how many samples it
    computed in both buckets.
    """
    # A kill leaves no damaged block.
    with (
        warnings.catch_warnings(action="ignore" if damaged else "error"),
        Store.opened(path, described(samples)) as store,
    ):
        written = compute(store)
        assert_read(store)
    return sum(block.stop - block.start for block in written)


def damage(path):
    call(path, 4)
    file = next(path.glob("bucket1-000000*"))
    os.truncate(file, file.stat().st_size // 2)


class Scenario(NamedTuple):
    """A call that is killed: what was before it, and what it asks for."""

    prepare: Callable[[Path], object]
    samples: int
    damaged: bool = False

    def act(self, path):
        return call(path, self.samples, damaged=self.damaged)


SCENARIOS = {
    "new": Scenario(lambda _: None, 4),
    "grown": Scenario(lambda path: call(path, 4), 8),
    "again": Scenario(lambda path: call(path, 4), 4),
    "damaged": Scenario(damage, 4, damaged=True),
}


def intact(path):
    """How many samples the blocks in a folder hold that are what was written."""
    found = 0
    for file, block in files.find_blocks(path).items() if path.exists() else ():
        try:
            files.load_block(file, described().identity)
            found += block.stop - block.start
        except StoreError:
            pass
    return found


def continued(path, scenario):
    """The same call on what a killed one left behind computes what is missing, no more, and ends in
    the same dataset.
    """
    kept = intact(path)
    assert scenario.act(path) == 2 * scenario.samples - kept
    assert intact(path) == 2 * scenario.samples
    assert not [
        name for name in os.listdir(path) if not name.startswith(("bucket", "lock", "sweep.json"))
    ]
    xr.testing.assert_equal(open_store(path).load(), truth(scenario.samples))


def killed_before(number, folder, scenario):
    """The call on a folder, which dies before the change of that number."""
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
    scenario.act(folder)


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
            code = in_child(killed_before, number, path, scenario)
            if code == 0:
                print(name, kills)
                break
            assert code == -signal.SIGKILL, f"{name} failed before change {number}"
            assert in_child(continued, path, scenario) == 0, (
                f"{name} was lost by a kill before change {number}"
            )


if __name__ == "__main__":
    main()
