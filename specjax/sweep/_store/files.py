"""The files of a store, each written as a whole or not at all.

A block is an uncompressed zip of arrays, which `numpy.load` opens.
"""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specjax.resume import StoreError, write_atomically

PARTIAL = ".partial"
_NAME = re.compile(r"bucket([0-9]+)-([0-9]+)-([0-9]+)-[0-9a-f]{16}\.npz")


class DamagedBlocksWarning(UserWarning):
    """Files of a store are damaged; their blocks are computed again."""


class Block(NamedTuple):
    """The samples `start` to `stop - 1` at all points of a bucket."""

    bucket: int
    start: int
    stop: int


class Stored(NamedTuple):
    """The arrays in a file, its block, the name it was written under, and the seconds it took."""

    arrays: dict[str, NDArray[Any]]
    block: Block
    name: str
    seconds: float


def find_blocks(folder: Path) -> dict[Path, Block]:
    """The blocks in a store by file; names are bucketBUCKET-START-STOP-CHECKSUM.npz."""
    named = (
        (file, _NAME.fullmatch(file.name)) for file in sorted(folder.iterdir()) if file.is_file()
    )
    return {file: Block(*map(int, found.groups())) for file, found in named if found}


def save_block(
    folder: Path, block: Block, arrays: Mapping[str, NDArray[Any]], note: Mapping[str, Any]
) -> Path:
    """Write a block to a file, with place and note as the comment of the zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = json.dumps({"block": block, **note}).encode()
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    file = folder / _name(block, checksum(buffer.getvalue()))
    write_atomically(file, buffer.getvalue(), PARTIAL)
    return file


def load_block(file: Path, sweep: str) -> Stored:
    """Read a file of the sweep of this identity.

    Raises:
        StoreError: it is damaged.
        ValueError: it is a block of another sweep, or of an earlier version, whose checksums do not
            cover the place of a block.
    """
    content = file.read_bytes()
    digest = checksum(content)
    if not file.stem.endswith(digest):
        raise StoreError(f"{file} is damaged; the call of run that wrote it computes it again.")
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
        note = json.loads(archive.comment)
    except (zipfile.BadZipFile, ValueError):
        note = {}
    if note.get("sweep") != sweep:
        raise ValueError(f"{file} is a block of another sweep; take it out of the store.")
    if "block" not in note:
        raise ValueError(
            f"{file} was written by an earlier version; continue with that, or choose another path."
        )
    members = {
        name.removesuffix(".npy"): io.BytesIO(archive.read(name)) for name in archive.namelist()
    }
    arrays = {name: np.lib.format.read_array(member) for name, member in members.items()}
    block = Block(*note["block"])
    return Stored(arrays, block, _name(block, digest), note["seconds"])


def _name(block: Block, digest: str) -> str:
    return f"bucket{block.bucket}-{block.start:06}-{block.stop:06}-{digest}.npz"


def checksum(content: bytes) -> str:
    """The first 16 digits of the sha256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:16]
