"""Where computations of hours keep what they have so far, so that the same program, started again,
goes on from there.

    with keeping.under("unfinished"):
        data = sweep.run(measure, over, seeds=100_000, key=key)

In the `with` block every sweep without a `store=` and every training without `checkpoints=` of its
own keeps its blocks or checkpoints in a subfolder, named by a hash of its programs and of all that
decides its numbers. So another program, such as that of a changed line, never continues what it did
not begin, and what no program asks for any more lies there until the folder is deleted.
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

_FOLDER: ContextVar[Path | None] = ContextVar("specjax.keeping", default=None)


class StoreError(OSError):
    """A store or a folder of checkpoints that cannot be written or read, or that another process
    writes; what is intact is kept.
    """


@contextmanager
def in_one_sentence(what: str, parts: str) -> Iterator[None]:
    """Says in one sentence why `what` cannot be used, as StoreError; `parts` are the things in it
    that are finished.
    """
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        told = (
            f"its {parts} are intact, and the same call continues from them, or choose another path"
        )
        raise StoreError(f"{what} cannot be used ({error.strerror or error}); {told}.") from error


@contextmanager
def under(folder: str | PathLike[str]) -> Iterator[None]:
    """Within the block, sweeps and trainings keep what they compute in `folder`, which is made when
    the first does.
    """
    token = _FOLDER.set(Path(folder).absolute())
    try:
        yield
    finally:
        _FOLDER.reset(token)


def folder() -> Path | None:
    """The folder of the innermost `under`, or None outside of any."""
    return _FOLDER.get()


def place(*identity: str) -> Path:
    """The subfolder of what these texts identify, which need not exist; its parent does after this
    call.

    Raises:
        ValueError: outside of any `under`, or the folder cannot be made.
    """
    parent = folder()
    if parent is None:
        raise ValueError(
            "There is no folder to keep anything in; call this in `with keeping.under(FOLDER):`."
        )
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"{parent} cannot be made ({error.strerror or error}); choose another folder."
        ) from error
    return parent / hashlib.sha256("\0".join(identity).encode()).hexdigest()[:_LETTERS]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Within the block, a lock on a file, which is made where there is none; it ends with the
    process, however that ends.

    Some network file systems have no locks: what lies there is as safe as its users make it. A link
    in the place of the file is refused, since a file would be made where it points.

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


def put(file: Path, content: bytes, draft: str) -> None:
    """Writes a file as a whole, flushed to the disk with its names, or leaves what was there and
    raises OSError.

    `draft` is the name under which it is written, in the same folder. What has that name is removed
    and never written to: it may be a link to a file elsewhere.
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
    """A hash of programs with the constants in them, and of further arrays. What a callback does on
    the host is not seen.
    """
    found = hashlib.sha256()
    for program in programs:
        found.update(program.lower().as_text().encode())
        for constant in Program.of(program).constants:
            _add(found, constant)
    for array in arrays:
        _add(found, array)
    return found.hexdigest()


def _add(found: Any, array: Any) -> None:
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    plain = np.asarray(array)
    found.update(str((plain.dtype, plain.shape)).encode() + plain.tobytes())
