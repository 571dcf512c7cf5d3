"""The folder from which an interrupted run resumes: `DIR/.unfinished/NAME-HASH`, one for each
experiment and configuration, until the result is stored.

It lies beside the results and not in `DIR/NAME`, because that folder holds the older result until
it is replaced as a whole.
"""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from specjax import resume
from specjax.report._record import Record, Result
from specjax.resume import StoreError

FOLDER = ".unfinished"
_LOCK = "lock"
_LETTERS = 8


def resume_dir(record: Record, out: Path) -> Path:
    """The folder of the record's experiment and configuration, which need not exist."""
    digest = hashlib.sha256(json.dumps(record.config, sort_keys=True).encode()).hexdigest()
    return out / FOLDER / f"{record.name}-{digest[:_LETTERS]}"


@contextmanager
def resumable(record: Record, out: Path) -> Iterator[None]:
    """Within the block, sweeps and trainings store what they compute in the locked resume folder,
    and go on from what an interrupted run has left there, which is announced on standard error.
    A folder in which nothing was stored is removed.

    Raises:
        ValueError: the folder cannot be made.
        StoreError: another process runs the same configuration there.
    """
    folder = resume_dir(record, out)
    if folder.is_dir() and any(path.is_dir() for path in folder.iterdir()):
        print(f"specjax: {record.name} goes on from what is kept in {folder}", file=sys.stderr)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    resume.make_folder(folder, "--out")
    with _locked(folder):
        try:
            with resume.enabled(folder):
                yield
        finally:
            if os.listdir(folder) == [_LOCK]:
                _delete(folder)
                for path in made:
                    _remove_if_empty(path)


def discard(result: Result, out: Path) -> None:
    """Delete the resume folder of a stored result, unless another process has begun to use it."""
    folder = resume_dir(result.record, out)
    if folder.exists():
        with suppress(StoreError), _locked(folder):
            _delete(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with ExitStack() as held:
        try:
            held.enter_context(resume.locked(folder / _LOCK))
        except BlockingIOError as error:
            raise StoreError(
                f"Another process computes the same, and keeps it in {folder}; wait for it to end,"
                " or choose another --out."
            ) from error
        yield


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _remove_if_empty(folder.parent)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()
