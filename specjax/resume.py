"""Resume a stopped sweep or training: the same script, started again, continues on disk.

    with resume.enabled("unfinished"):
        data = sweep.run(measure, over, num_seeds=100_000, key=key)

In the `with` block a sweep without `store=` and a training without `checkpoints=` keep their blocks
or checkpoints in a subfolder. Its name is a hash of the programs and of everything that decides
their numbers, so a changed script starts a new subfolder. Old subfolders stay until the folder is
deleted.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.programs import Program

try:
    import fcntl
except ImportError:  # Windows has none, so two writers go unnoticed there
    fcntl = None  # type: ignore[assignment]

_LETTERS = 20

_FOLDER: ContextVar[Path | None] = ContextVar("specjax.resume", default=None)


class StoreError(OSError):
    """A store or a folder of checkpoints that cannot be written or read, or that another process
    writes; what is intact is kept.
    """


@contextmanager
def explained_errors(what: str, parts: str) -> Iterator[None]:
    """Turn an OSError into a StoreError of one sentence, which names `what` failed and says that
    its finished `parts` are intact.
    """
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        remedy = (
            f"its {parts} are intact, and the same call continues from them, or choose another path"
        )
        raise StoreError(f"{what} cannot be used ({error.strerror or error}); {remedy}.") from error


@contextmanager
def enabled(folder: str | PathLike[str]) -> Iterator[None]:
    """Keep the state of sweeps and trainings in `folder` within the block; the first one makes
    it.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from specjax import resume, sweep
        >>> noise = lambda key, scale: {"y": scale * jax.random.normal(key)}
        >>> over, key = {"scale": sweep.values(1.0, 2.0)}, jax.random.key(0)
        >>> with TemporaryDirectory() as folder, resume.enabled(folder):
        ...     first = sweep.run(noise, over, num_seeds=3, key=key)
        ...     again = sweep.run(noise, over, num_seeds=3, key=key)  # reads what is stored
        >>> bool((first["y"] == again["y"]).all())
        True
    """
    token = _FOLDER.set(Path(folder).absolute())
    try:
        yield
    finally:
        _FOLDER.reset(token)


def folder() -> Path | None:
    """The folder of the innermost `enabled`, or None outside of any.

    Examples:
        >>> from specjax import resume
        >>> resume.folder() is None
        True
    """
    return _FOLDER.get()


def subfolder(*identity: str) -> Path:
    """The subfolder for these identifying texts; it may not exist yet, its parent does.

    Raises:
        ValueError: outside of any `enabled`, or if the folder cannot be made.
    """
    parent = folder()
    if parent is None:
        raise ValueError(
            "No folder to resume from is set; call this within `with resume.enabled(FOLDER):`."
        )
    make_folder(parent, "folder")
    return parent / hashlib.sha256("\0".join(identity).encode()).hexdigest()[:_LETTERS]


def make_folder(path: Path, other: str) -> None:
    """Make a folder and its parents; raises ValueError, which advises to choose another `other`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{path} cannot be made ({error.strerror or error}); choose another {other}."
        ) from error


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, made if missing, within the block.

    The lock ends with the process, however the process ends. File systems without locks, such as
    some network ones, take none. A symbolic link is refused, because opening it could create a file
    at its target.

    Raises:
        BlockingIOError: another process holds the lock, or another call of this one.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BlockingIOError(
                    "another process is writing there, or an earlier call in this one"
                ) from error
            except OSError:
                pass
        yield
    finally:
        os.close(descriptor)


def write_atomically(file: Path, content: bytes, draft: str) -> None:
    """Write a file completely and flush it to the disk, or raise OSError and leave the old one.

    `draft` is the name of the temporary file in the same folder. An existing draft is deleted and
    never opened, because it may be a link to another file.
    """
    aside = file.with_name(draft)
    aside.unlink(missing_ok=True)
    try:
        with aside.open("xb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)
    for folder in file.parents[:2]:
        with suppress(PermissionError):  # to read it; on Windows no folder can be opened
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def digest(programs: Iterable[jax.stages.Traced], arrays: Iterable[Any] = ()) -> str:
    """A hash of programs, their constants, and further arrays; it does not see into callbacks."""
    found = hashlib.sha256()
    for program in programs:
        found.update(program.lower().as_text().encode())
        for constant in Program.from_traced(program).constants:
            _add(found, constant)
    for array in arrays:
        _add(found, array)
    return found.hexdigest()


def _add(found: Any, array: Any) -> None:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    plain = np.asarray(array)
    found.update(str((plain.dtype, plain.shape)).encode() + plain.tobytes())
