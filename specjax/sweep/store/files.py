"""Files that survive a kill at any moment: written aside, flushed to the disk, then renamed into place; and a lock on them."""

import itertools
import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has none, so two writers go unnoticed there
    fcntl = None  # type: ignore[assignment]

# How many files are flushed at once: a disk does several flushes in the time of one.
_AT_ONCE = 16


class StoreError(OSError):
    """A store that cannot be written, is being written by another process, or is damaged; what is intact is kept."""


def replace_files(aside: Path, contents: Iterable[tuple[Path, bytes]]) -> None:
    """Write files as a whole, or leave all as they were.

    Each is written and flushed in the folder `aside` first. A kill during the renames leaves some files new and the others old,
    none in between.
    """
    try:
        aside.mkdir(exist_ok=True)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            drafts = list(pool.map(_write, (aside / str(number) for number in itertools.count()), contents))
        for draft, target in drafts:
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.replace(target)
        for folder in {parent for _, target in drafts for parent in (target.parent, target.parent.parent)}:
            sync_folder(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, if it can be opened: on Windows none can, and elsewhere it takes the right to read."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int, path: Path) -> None:
    """Lock an open file until it is closed or the process ends, however it ends; raises StoreError if another holds the lock."""
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StoreError(
            f"Another process is writing to {path}, or an earlier run in this one still holds it; "
            f"wait for it to end, or choose another store."
        ) from error
    except OSError:
        # Some network file systems have no locks; a store there is as safe as its users make it.
        return


def _write(draft: Path, file: tuple[Path, bytes]) -> tuple[Path, Path]:
    target, content = file
    with draft.open("wb", buffering=0) as opened:
        view = memoryview(content)
        while view:
            view = view[opened.write(view) :]
        os.fsync(opened.fileno())
    return draft, target
