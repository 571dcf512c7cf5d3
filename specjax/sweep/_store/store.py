"""A store of a sweep: written block by block, continued, and read one block at a time."""

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from specjax import resume
from specjax.resume import StoreError, write_atomically
from specjax.sweep._store.description import (
    LOCK,
    NAME,
    Description,
    in_one_sentence,
    read_description,
)
from specjax.sweep._store.files import (
    PARTIAL,
    Block,
    DamagedBlocksWarning,
    find_blocks,
    load_block,
    save_block,
)


@dataclass
class Store:
    """A store; `opened` opens it for writing.

    Attributes:
        path: Its folder.
        described: The requested sweep; the store may have more samples.
        blocks: The finished blocks, by file.
        seconds: The time they took together.
    """

    path: Path
    described: Description
    blocks: dict[Path, Block] = field(default_factory=dict)
    seconds: float = 0.0

    @classmethod
    @contextmanager
    def opened(cls, path: Path, described: Description) -> Iterator["Store"]:
        """Within the block, a store at `path` for one writer, made if absent.

        Damaged blocks are deleted, with a warning. A store that has all requested samples may be on
        a read-only disk.

        Raises:
            ValueError: `path` holds something else, or another configuration (the differing fields
                are named).
            StoreError: it cannot be written, or another process writes to it.
        """
        with ExitStack() as held:
            with in_one_sentence(path):
                store, refused = cls(path, described), None
                # Refuse before writing into a folder that is not a store, or another's.
                store._stored()
                path.mkdir(parents=True, exist_ok=True)
                try:
                    held.enter_context(resume.locked(path / LOCK))
                except BlockingIOError:
                    raise
                except OSError as error:
                    # A read-only disk: a store that has all requested samples needs no lock.
                    refused = error
                store._begin(refused)
            yield store

    def missing(self, bucket: int) -> list[tuple[int, int]]:
        """The ranges (start, stop) of requested samples that no finished block holds, in order."""
        edges, reached, samples = [], 0, self.described.samples
        for _, start, stop in sorted(
            block for block in self.blocks.values() if block.bucket == bucket
        ):
            edges.append((reached, min(start, samples)))
            reached = max(reached, stop)
        return [(start, stop) for start, stop in [*edges, (reached, samples)] if start < stop]

    def write(self, block: Block, arrays: Mapping[str, NDArray[Any]], seconds: float) -> None:
        """Add every variable of a block, of shape (*points of each axis, samples, *trailing).

        Raises:
            StoreError: the disk is full.
        """
        with in_one_sentence(self.path):
            file = save_block(
                self.path, block, arrays, {"sweep": self.described.identity, "seconds": seconds}
            )
        self.blocks[file] = block
        self.seconds += seconds

    def read(self) -> dict[str, NDArray[Any]]:
        """Every variable at the requested samples; NaN, or zero for integers, where unfinished."""
        outputs = {
            name: _nans(v["shape"], v["dtype"])
            for name, v in self.described.form["data_vars"].items()
        }
        along = next(iter(outputs.values())).shape[: len(self.described.places[0]) + 1]
        self.fill(outputs, [*map(np.arange, along)])
        return outputs

    def fill(
        self, outputs: Mapping[str, Any], along: Sequence[Any], behind: Sequence[Any] = ()
    ) -> None:
        """Copy variables at sorted indices `along` axes and samples, and `behind` these."""
        *axes, samples = along
        for file, (bucket, start, stop) in self.blocks.items():
            pairs = zip(axes, self.described.places[bucket], strict=True)
            common = [np.intersect1d(*pair, return_indices=True)[1:] for pair in pairs]
            low, high = np.searchsorted(samples, (start, stop))
            there, here = zip(
                *common, (np.arange(low, high), samples[low:high] - start), strict=True
            )
            arrays = self._arrays(file) if all(map(len, there)) else {}
            for name, output in outputs.items() if arrays else ():
                part = arrays[name].view(self.described.form["data_vars"][name]["dtype"])[
                    np.ix_(*here)
                ]
                for axis, keys in enumerate(behind, len(along)):
                    part = part.take(keys, axis)
                output[np.ix_(*there)] = part

    def _arrays(self, file: Path) -> dict[str, NDArray[Any]]:
        with in_one_sentence(self.path):
            found = load_block(file, self.described.identity)
        if found.name != file.name:
            raise StoreError(f"{file} was renamed from {found.name}; give it that name again.")
        return found.arrays

    def _stored(self) -> Description | None:
        stored = read_description(self.path)
        if stored is not None:
            stored.require(self.described, self.path)
        return stored

    def _begin(self, refused: OSError | None) -> None:
        """Find the finished blocks, mend damaged and renamed ones, and write the description.

        `refused` is why nothing can be written, or None.
        """
        # Again: another process may have written it before the lock was ours.
        stored = self._stored()
        if stored is not None and stored.plan != self.described.plan:
            raise OSError("another process has just made it, with another plan")
        damaged, renamed = self._read_blocks()
        if refused is not None:
            if damaged or renamed or any(map(self.missing, range(len(self.described.places)))):
                raise refused
            return
        for file in damaged:
            file.unlink()
        for file, name in renamed.items():
            file.replace(self.path / name)
        if damaged:
            names = ", ".join(file.name for file in damaged)
            warnings.warn(
                f"{len(damaged)} of the blocks in {self.path} are damaged and computed again:"
                f" {names}.",
                DamagedBlocksWarning,
                stacklevel=8,
            )
        if stored is None or (
            stored != self.described and stored.samples <= self.described.samples
        ):
            write_atomically(self.path / NAME, self.described.to_json(), PARTIAL)

    def _read_blocks(self) -> tuple[list[Path], dict[Path, str]]:
        """The damaged files, and the renamed ones with their original names."""
        damaged, renamed = [], {}
        for file in find_blocks(self.path):
            try:
                found = load_block(file, self.described.identity)
            except StoreError:
                damaged.append(file)
                continue
            if found.name != file.name:
                renamed[file] = found.name
            if self.path / found.name not in self.blocks:
                self.blocks[self.path / found.name] = found.block
                self.seconds += found.seconds
        return damaged, renamed


def open_store(path: str | Path) -> xr.Dataset:
    """The results in a store of `specjax.sweep.run`, read lazily.

    A store may be larger than memory: select before you compute. It may be opened while the sweep
    runs: unfinished entries are NaN, for which integers and booleans become float64. The attributes
    are the configuration that decided the numbers.

    Raises:
        ValueError: there is no store with a finished block at `path`; or a selected entry is in a
            block of another sweep, or of an earlier version.
        StoreError: a selected entry is in a block that is damaged or was renamed.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from specjax import sweep
        >>> noise = lambda key, scale: {"y": scale * jax.random.normal(key)}
        >>> over, key = {"scale": sweep.values(1.0, 2.0)}, jax.random.key(0)
        >>> with TemporaryDirectory() as folder:
        ...     _ = sweep.run(noise, over, num_seeds=3, key=key, store=folder)
        ...     dict(sweep.open_store(folder)["y"].sizes)
        {'scale': 2, 'seed': 3}
    """
    described = read_description(Path(path))
    if described is None:
        raise ValueError(
            f"{path} holds no finished block of a sweep; give the folder of run(..., store=FOLDER)."
        )
    with in_one_sentence(Path(path)):
        blocks = find_blocks(Path(path))
    for file, block in blocks.items():
        if block.bucket >= len(described.places):
            raise ValueError(f"{file} is a block of another sweep; take it out of the store.")
    store, form = Store(Path(path), described, blocks), described.form
    whole = not any(map(store.missing, range(len(described.places))))
    for name, variable in form["data_vars"].items():
        variable["data"] = indexing.LazilyIndexedArray(_Lazy(store, name, whole))
    form["coords"][described.sample] = {
        "dims": described.sample,
        "data": np.arange(described.samples),
    }
    form["attrs"] = {
        name: v if isinstance(v, str) else json.dumps(v) for name, v in described.config.items()
    }
    return xr.Dataset.from_dict(form)


def _nans(shape: Sequence[int], dtype: str | np.dtype[Any]) -> NDArray[Any]:
    return np.full(shape, 0 if np.dtype(dtype).kind in "biu" else np.nan, dtype)


class _Lazy(BackendArray):
    def __init__(self, store: Store, name: str, whole: bool) -> None:
        form = store.described.form["data_vars"][name]
        stored = np.dtype(form["dtype"])
        self.shape = tuple(form["shape"])
        self.dtype = np.dtype(float) if stored.kind in "biu" and not whole else stored
        self._store, self._name = store, name

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        asked = [np.arange(n)[k] for n, k in zip(self.shape, key, strict=True)]
        keys, back = zip(
            *(np.unique(indices, return_inverse=True) for indices in asked), strict=True
        )
        output = _nans([*map(len, keys)], self.dtype)
        leading = len(self._store.described.places[0]) + 1
        self._store.fill({self._name: output}, keys[:leading], keys[leading:])
        return output[np.ix_(*map(np.ravel, back))].reshape(
            [n for indices in asked for n in indices.shape]
        )
