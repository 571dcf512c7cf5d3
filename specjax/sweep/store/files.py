"""The files of a store: written as a whole or not at all; a block's is an uncompressed zip of arrays, which `numpy.load` opens."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

PARTIAL = ".partial"


class StoreError(OSError):
    """A store that cannot be written or read, or is being written by another process; what is intact is kept."""


class DamagedBlocksWarning(UserWarning):
    """Files of a store are not what was written; their blocks are computed again."""


class Block(NamedTuple):
    """The samples `start` to `stop - 1` at all points of a bucket."""

    bucket: int
    start: int
    stop: int


def find_blocks(folder: Path) -> dict[Path, Block]:
    """The blocks in a store, by their files, whose names are bucketBUCKET-START-STOP-CHECKSUM.npz."""
    return {file: Block(*map(int, file.name[6:].split("-")[:3])) for file in sorted(folder.glob("bucket*-*-*-*.npz"))}


def save_block(folder: Path, block: Block, arrays: Mapping[str, NDArray[Any]], note: Mapping[str, Any]) -> Path:
    """Writes the arrays of a block, with a note in JSON as the comment of the zip, to a file, which it returns."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = json.dumps(note).encode()
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    name = f"bucket{block.bucket}-{block.start:06}-{block.stop:06}-{checksum(buffer.getvalue())}.npz"
    put(folder / name, buffer.getvalue())
    return folder / name


def load_block(file: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays in a file, and the note; raises StoreError if it is not what was written."""
    content = file.read_bytes()
    if not file.stem.endswith(checksum(content)):
        raise StoreError(f"{file} is damaged; the call of run that wrote it computes it again.")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name.removesuffix(".npy"): io.BytesIO(archive.read(name)) for name in archive.namelist()}
    return {name: np.lib.format.read_array(member) for name, member in members.items()}, json.loads(archive.comment)


def checksum(content: bytes) -> str:
    """The beginning of the sha256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:16]


def put(file: Path, content: bytes) -> None:
    """Writes a file as a whole, flushed to the disk with its names, or leaves what was there and raises OSError."""
    draft = file.with_name(PARTIAL)
    try:
        with draft.open("wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    for folder in file.parents[:2]:
        with suppress(PermissionError):  # to read it; on Windows no folder can be opened
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
