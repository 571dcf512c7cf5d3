"""The journal of a store: one line of JSON for every block that is finished, appended after its data are on the disk.

Lines are only ever added. The place of a bucket has a line of its own, before its first block; a block that turned out to be
damaged is forgotten by a line that says so. Every line carries a checksum of itself: one that does not match is passed over, and
what it told is computed again.
"""

import json
import math
import os
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specjax.sweep.store.files import StoreError, lock
from specjax.sweep.store.layout import Block

NAME = "blocks.jsonl"
Place = tuple[NDArray[np.intp], ...]


@dataclass(frozen=True)
class Entry:
    """What is known of a finished block: the seconds it took and the sha256 of every variable."""

    seconds: float
    sha256: dict[str, str]


class Journal:
    """The finished blocks of a store, as its journal tells them.

    Attributes:
        places: The indices along each axis of every bucket with finished blocks.
        entries: The finished blocks.
        unreadable: How many whole lines could not be read.
        length: Bytes up to the end of the last whole line.
    """

    def __init__(self, content: bytes) -> None:
        self.places: dict[int, Place] = {}
        self.entries: dict[Block, Entry] = {}
        self.unreadable = 0
        *lines, torn = content.split(b"\n")
        self.length = len(content) - len(torn)
        for line in lines:
            record = _decode(line)
            if record is None:
                self.unreadable += 1
            else:
                self._apply(record)

    @property
    def measured(self) -> int:
        """How many samples the finished blocks hold, over all points."""
        return sum(
            math.prod(map(len, self.places[block.bucket])) * (block.stop - block.start) for block in self.entries
        )

    def _apply(self, record: dict[str, Any]) -> None:
        if "place" in record:
            self.places[record["bucket"]] = tuple(np.array(indices, np.intp) for indices in record["place"])
            return
        block = Block(record["bucket"], record["start"], record["stop"])
        if record.get("forgotten"):
            self.entries.pop(block, None)
        elif block.bucket in self.places:
            self.entries[block] = Entry(record["seconds"], record["sha256"])
        else:
            self.unreadable += 1


class OpenJournal(Journal):
    """A journal opened for writing, and locked, until it is closed."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        self._descriptor = os.open(path, flags, 0o666)
        try:
            lock(self._descriptor, path.parent)
            super().__init__(path.read_bytes())
        except BaseException:
            os.close(self._descriptor)
            raise

    def close(self) -> None:
        """Release the lock; to be called once."""
        os.close(self._descriptor)

    def finish(self, block: Block, place: Place, entry: Entry) -> None:
        """Note that a block is finished."""
        if block.bucket not in self.places:
            self._append({"bucket": block.bucket, "place": [indices.tolist() for indices in place]})
        self._append({**block._asdict(), "seconds": entry.seconds, "sha256": entry.sha256})

    def forget(self, block: Block) -> None:
        """Note that a block has to be computed again."""
        self._append({**block._asdict(), "forgotten": True})

    def _append(self, record: dict[str, Any]) -> None:
        line = _encode(record)
        try:
            # Behind the last whole line there may be the beginning of one whose writer was killed.
            os.ftruncate(self._descriptor, self.length)
            if os.write(self._descriptor, line) < len(line):
                raise StoreError("the disk is full")
            os.fsync(self._descriptor)
        except BaseException:
            # Nor may a line stay that is cut off by a full disk, or whose data the caller takes for lost.
            os.ftruncate(self._descriptor, self.length)
            raise
        self.length += len(line)
        self._apply(record)


def _encode(record: dict[str, Any]) -> bytes:
    return json.dumps({**record, "crc32": _crc32(record)}).encode() + b"\n"


def _decode(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
        found = record.pop("crc32")
    except (ValueError, TypeError, AttributeError, KeyError):
        return None
    return record if found == _crc32(record) else None


def _crc32(record: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(record, sort_keys=True).encode())
