"""A store: the folder a sweep is written to block by block, and continued from."""

import errno
import os
import shlex
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from specjax.sweep.store import chunks, journal, metadata
from specjax.sweep.store.files import StoreError, replace_files, sync_folder
from specjax.sweep.store.journal import Entry, OpenJournal, Place
from specjax.sweep.store.layout import Block, Layout
from specjax.sweep.store.manifest import (
    ASIDE,
    DATA,
    Finished,
    Manifest,
    Record,
    read_manifest,
    read_record,
    require_same,
)


class Store:
    """A store opened for writing, and locked against other writers until it is closed or the process ends.

    Use it in a `with` statement, or call `close`: an open store refuses the next call, also one in the same process.

    Attributes:
        path: The folder.
        layout: What was asked for. The store may hold more samples.
    """

    def __init__(self, path: Path, record: Record, layout: Layout, opened: OpenJournal) -> None:
        self.path = path
        self.layout = layout
        self._record = record
        self._journal = opened
        self._close = weakref.finalize(self, opened.close)

    @classmethod
    def create(cls, path: Path, manifest: Manifest, layout: Layout) -> "Store":
        """Make a new store at `path`, which does not exist, is empty, or is a store without any block; its parent exists.

        Raises:
            ValueError: `path` cannot be written, or holds something.
            StoreError: another process writes to it, or the disk is full.
        """
        with _opening(path):
            if read_manifest(path) is not None:
                raise ValueError(f"{path} holds a store already; continue it, or choose another path.")
            path.mkdir(exist_ok=True)
            opened = OpenJournal(path / journal.NAME, create=True)
            try:
                if opened.length:
                    raise StoreError(f"Another process has just made the store {path}; the same call continues it.")
                shutil.rmtree(path / DATA, ignore_errors=True)
                record = Record(manifest, layout)
                metadata.install(path / DATA, path / ASIDE, layout)
                record.save(path)
                sync_folder(path.absolute().parent)
            except BaseException:
                opened.close()
                raise
            return cls(path, record, layout, opened)

    @classmethod
    def resume(cls, path: Path, config: Mapping[str, Any], layout: Layout) -> "Store":
        """Open the store at `path` to continue it, and give it room for more samples if `layout` has more.

        The stored chunks are kept, whatever `layout.chunk` is. Of a store with more samples only the first ones are asked for.

        Raises:
            ValueError: there is no store, it is one of another configuration (every differing field is named), or it cannot
                be written.
            StoreError: another process writes to it, or the disk is full.
        """
        with _opening(path):
            require_same(path, _existing(path), config, layout)
            if not (path / journal.NAME).exists():
                raise ValueError(f"{path} has no {journal.NAME}; put it back, or choose another path.")
            opened = OpenJournal(path / journal.NAME)
            try:
                # Read again: another process may have finished or grown it before the lock was ours.
                record = _existing(path)
                if layout.samples > record.layout.samples:
                    record = record.with_samples(layout.samples)
                    record.save(path)
                if record.finished is None:
                    metadata.install(path / DATA, path / ASIDE, record.layout)
                else:
                    # The test of whether the folder can be written, as whoever resumes means to.
                    replace_files(path / ASIDE, [])
            except BaseException:
                opened.close()
                raise
            return cls(path, record, layout, opened)

    @property
    def done(self) -> frozenset[Block]:
        """The finished blocks, also those of more samples than asked for."""
        return frozenset(self._journal.entries)

    @property
    def seconds(self) -> float:
        """The seconds that the finished blocks took, together."""
        return sum(entry.seconds for entry in self._journal.entries.values())

    def missing(self, bucket: int) -> list[tuple[int, int]]:
        """The ranges (start, stop) of samples asked for that no finished block of the bucket holds, in order."""
        return list(_gaps(self._journal.entries, bucket, self.layout.samples))

    def write(
        self, block: Block, place: Sequence[NDArray[Any]], arrays: Mapping[str, NDArray[Any]], seconds: float
    ) -> None:
        """Add a block: its data first, then its line in the journal, both flushed to the disk.

        Args:
            block: Which samples, of which bucket. No finished block may hold any of them.
            place: The indices of the bucket along every axis; the same for all its blocks.
            arrays: Every variable, of shape (*number of indices along each axis, samples of the block, *trailing).
            seconds: How long the block took to compute.

        Raises:
            StoreError: the disk is full or fails. The finished blocks are intact.
            ValueError: anything above is violated.
        """
        where = tuple(np.asarray(indices, np.intp) for indices in place)
        self._require_block(block, where, arrays)
        layout = self._record.layout
        values = {name: np.asarray(arrays[name]) for name in layout.variables}
        try:
            replace_files(
                self.path / ASIDE, chunks.pack(self.path / DATA, layout, where, block.start, block.stop, values)
            )
            self._journal.finish(block, where, Entry(seconds, chunks.digests(values)))
        except OSError as error:
            raise StoreError(
                f"The block of {block} could not be written to {self.path} ({_reason(error)}); "
                f"the finished blocks ({len(self.done)}) are intact, and the same call continues from them."
            ) from error

    def read(self) -> dict[str, NDArray[Any]]:
        """Every variable, at the samples asked for; NaN (zero where the dtype has no NaN) where no block is finished.

        Raises:
            StoreError: a block is not what was written. It is named.
        """
        layout = self.layout
        outputs = {name: layout.empty(name, layout.shape(name)) for name in layout.variables}
        for block, entry in self._journal.entries.items():
            kept = min(block.stop, layout.samples) - block.start
            if kept <= 0:
                continue
            place = self._journal.places[block.bucket]
            try:
                arrays = chunks.unpack(self.path / DATA, self._record.layout, place, block.start, block.stop)
            except OSError as error:
                raise StoreError(f"The block of {block} cannot be read from {self.path} ({_reason(error)}).") from error
            damaged = chunks.damaged(arrays, entry.sha256)
            if damaged:
                command = f"specjax verify {shlex.quote(str(self.path))} --drop"
                raise StoreError(
                    f"The block of {block} is damaged in {self.path} ({', '.join(damaged)}); "
                    f"`{command}` forgets all damaged blocks, and then the same call computes them again."
                )
            leading = (slice(None),) * len(place)
            for name, array in arrays.items():
                target = outputs[name][(*leading, slice(block.start, block.start + kept))]
                target[np.ix_(*place)] = array[(*leading, slice(0, kept))]
        return outputs

    def finish(self, dataset: xr.Dataset) -> None:
        """Add the coordinates, the attributes and the other variables of the dataset, so that `xarray.open_zarr` gives it.

        A store that has room for more samples than the dataset is left as it is.
        """
        layout = self._record.layout
        if self.layout.samples < layout.samples:
            return
        try:
            if self._record.finished is not None:
                self._record = self._record.with_samples(layout.samples)
                self._record.save(self.path)
            files = metadata.install(self.path / DATA, self.path / ASIDE, layout, dataset)
            self._record = replace(self._record, finished=Finished(self._journal.measured, files))
            self._record.save(self.path)
        except OSError as error:
            raise StoreError(
                f"The coordinates could not be written to {self.path} ({_reason(error)}); "
                f"the finished blocks ({len(self.done)}) are intact, and the same call finishes the store."
            ) from error

    def close(self) -> None:
        """Release the lock."""
        self._close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_block(self, block: Block, place: Place, arrays: Mapping[str, NDArray[Any]]) -> None:
        layout = self._record.layout
        known = self._journal.places.get(block.bucket, place)
        if len(place) != len(layout.axes) or not all(map(np.array_equal, known, place)):
            raise ValueError(
                f"The place of bucket {block.bucket} differs from that of its other blocks or from the axes."
            )
        covered = sum(
            max(0, min(stop, block.stop) - max(start, block.start))
            for start, stop in _gaps(self._journal.entries, block.bucket, layout.samples)
        )
        if not 0 < covered == block.stop - block.start:
            raise ValueError(f"The block of {block} is empty, not in the store, or in part finished already.")
        if set(arrays) != set(layout.variables):
            raise ValueError(
                f"The block of {block} has the variables {sorted(arrays)}, not {sorted(layout.variables)}."
            )
        for name, array in arrays.items():
            shape = layout.block_shape(name, place, block.stop - block.start)
            if array.shape != shape or array.dtype != layout.dtype(name):
                raise ValueError(
                    f"{name!r} of the block of {block} is {array.dtype}{array.shape}, not {layout.dtype(name)}{shape}."
                )


def _gaps(blocks: Mapping[Block, Any], bucket: int, samples: int) -> Iterator[tuple[int, int]]:
    reached = 0
    for block in sorted(block for block in blocks if block.bucket == bucket):
        if block.start > reached:
            yield reached, min(block.start, samples)
        reached = max(reached, block.stop)
        if reached >= samples:
            return
    yield reached, samples


def _existing(path: Path) -> Record:
    record = read_record(path)
    if record is None:
        raise ValueError(f"There is no store at {path} to continue; create one.")
    return record


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Tell in one sentence why a store cannot be opened."""
    try:
        yield
    except StoreError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise StoreError(
                f"The store {path} could not be opened ({_reason(error)}); make room, and call again."
            ) from error
        if not os.path.lexists(path.absolute().parent):
            raise ValueError(
                f"{path} cannot be made, because {path.absolute().parent} does not exist; make that folder first."
            ) from error
        raise ValueError(f"{path} cannot be written ({_reason(error)}); choose another path.") from error


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
