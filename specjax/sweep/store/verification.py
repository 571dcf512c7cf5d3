"""Whether a store is what was written to it, and the way back if it is not."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from specjax.sweep.store import chunks, journal
from specjax.sweep.store.files import StoreError
from specjax.sweep.store.journal import Journal, OpenJournal
from specjax.sweep.store.layout import Block
from specjax.sweep.store.manifest import DATA, Record, read_record


@dataclass(frozen=True)
class Report:
    """The state of a store.

    Attributes:
        finished: Whether the store holds a whole dataset, damaged or not.
        blocks: How many blocks are finished.
        measured: How many samples these hold over all points, of `room`; points may have fewer samples than there is room for.
        damaged: The finished blocks that are not what was written, with the names of their damaged variables.
        files: The damaged files in data.zarr that hold something else, such as coordinates and attributes.
        unreadable: How many lines of the journal are unreadable. Their blocks count as not computed.
    """

    finished: bool
    blocks: int
    measured: int
    room: int
    damaged: Mapping[Block, tuple[str, ...]]
    files: tuple[str, ...]
    unreadable: int

    @property
    def whole(self) -> bool:
        """Whether nothing is damaged, so that the dataset can be read or the sweep continued."""
        return not self.damaged and not self.files

    def __str__(self) -> str:
        blocks = f"{self.blocks} block{'' if self.blocks == 1 else 's'}"
        if self.finished:
            lines = [f"finished: {blocks} with {self.measured} samples over all points"]
        else:
            lines = [f"not finished: {blocks} with {self.measured} of at most {self.room} samples over all points"]
        lines += [f"damaged: {block} ({', '.join(names)})" for block, names in self.damaged.items()]
        lines += [f"damaged: {DATA}/{name}" for name in self.files]
        if self.unreadable:
            lines.append(f"{self.unreadable} lines of {journal.NAME} are unreadable; what they told is computed again")
        return "\n".join(lines)


def verify(path: Path, *, drop: bool = False) -> Report:
    """Compare everything in the store at `path` with the checksums made when it was written.

    Args:
        path: The folder of the store.
        drop: Forget what is damaged, so that the call that made the store computes it again. The report is of the state before.

    Raises:
        ValueError: there is no store at `path`, or it cannot be read or, to drop something, written.
        StoreError: something is to be dropped while another process writes, or the disk fails.
    """
    record = read_record(path)
    if record is None:
        raise ValueError(f"There is no store at {path}; give the folder that `run(..., store=PATH)` wrote to.")
    try:
        if not drop:
            return _compare(path, record, Journal((path / journal.NAME).read_bytes()))
        opened = OpenJournal(path / journal.NAME)
        try:
            report = _compare(path, record, opened)
            for block in report.damaged:
                opened.forget(block)
            if not report.whole:
                replace(record, finished=None).save(path)
            return report
        finally:
            opened.close()
    except FileNotFoundError as error:
        raise ValueError(f"{path} has no {journal.NAME}, so it is no whole store; put it back.") from error
    except PermissionError as error:
        raise ValueError(f"{error.filename} cannot be opened ({error.strerror}); ask its owner for access.") from error
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            f"{path} cannot be checked or changed ({error.strerror or error}); what it holds is kept."
        ) from error


def _compare(path: Path, record: Record, noted: Journal) -> Report:
    damaged: dict[Block, tuple[str, ...]] = {}
    for block, entry in sorted(noted.entries.items()):
        place = noted.places[block.bucket]
        try:
            arrays = chunks.unpack(path / DATA, record.layout, place, block.start, block.stop)
            names = tuple(chunks.damaged(arrays, entry.sha256))
        except PermissionError:
            raise
        except OSError:
            # The disk cannot give back some part of it.
            names = tuple(record.layout.variables)
        if names:
            damaged[block] = names
    files = {} if record.finished is None else record.finished.files
    return Report(
        # A line of the journal that has become unreadable since is a block less.
        finished=record.finished is not None and record.finished.measured == noted.measured,
        blocks=len(noted.entries),
        measured=noted.measured,
        room=math.prod(record.layout.extents) * record.layout.samples,
        damaged=damaged,
        files=tuple(name for name, sha256 in files.items() if _sha256(path / DATA / name) != sha256),
        unreadable=noted.unreadable,
    )


def _sha256(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except PermissionError:
        raise
    except OSError:
        return None
