"""What an experiment has computed while it runs: `DIR/.unfinished/NAME-HASH`, a folder for each
configuration, until its result is stored.

A run that is interrupted, in whatever way, leaves its folder there, and the same command goes on
from it. It is beside the results and not in `DIR/NAME`, because that folder is replaced as a whole
and holds the older result until then.
"""

import dataclasses
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from specjax import resume
from specjax.sweep import StoreError

FOLDER = ".unfinished"
_LOCK = "lock"
_LETTERS = 8


def unfinished_in(out: Path, name: str, config: Any) -> Path:
    """The folder of an experiment at a configuration, which need not exist."""
    digest = hashlib.sha256(
        json.dumps(dataclasses.asdict(config), sort_keys=True).encode()
    ).hexdigest()
    return out / FOLDER / f"{name}-{digest[:_LETTERS]}"


def begin(name: str, config: Any, out: Path) -> Path:
    """`unfinished_in`; says on standard error if an interrupted run has left something there."""
    folder = unfinished_in(out, name, config)
    if folder.is_dir() and any(path.is_dir() for path in folder.iterdir()):
        print(f"specjax: {name} goes on from what is kept in {folder}", file=sys.stderr)
    return folder


@contextmanager
def kept(folder: Path) -> Iterator[None]:
    """Within the block, sweeps and trainings keep what they compute in `folder`, locked; where they
    keep nothing, none is left.

    Raises:
        ValueError: the folder cannot be made.
        StoreError: another process computes the same there.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be made ({error.strerror or error}); choose another --out."
        ) from error
    with _locked(folder):
        try:
            with resume.enabled(folder):
                yield
        finally:
            if os.listdir(folder) == [_LOCK]:
                _delete(folder)
                for path in made:
                    _remove_if_empty(path)


def discard(folder: Path) -> None:
    """Delete what is kept in `folder`, unless another process has begun to use it."""
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
