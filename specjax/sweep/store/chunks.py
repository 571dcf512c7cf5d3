"""The chunks of a store: raw arrays in files of equal size, as zarr's `bytes` codec without compression has them.

They are written without zarr because a block has to be on the disk as a whole before the journal says so, and because a chunk that
holds samples of a finished block must not be lost while others are added to it; zarr flushes nothing.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specjax.sweep.store.journal import Place
from specjax.sweep.store.layout import Layout


def pack(
    data: Path, layout: Layout, place: Place, start: int, stop: int, arrays: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[Path, bytes]]:
    """The files that hold a block, with their new content; samples of other blocks in them are kept."""
    for name, array in arrays.items():
        shape = layout.chunk_shape(name)
        for piece in layout.pieces(name, place, start, stop):
            path = data / name / _key(piece.chunk)
            values = array[np.ix_(*piece.origin)]
            # What the block does not cover is kept; a file that is missing or of another length holds nothing worth keeping.
            found = None if values.shape == shape else _load(path, layout, name)
            chunk = layout.empty(name, shape) if found is None else found.copy()
            chunk[np.ix_(*piece.inside)] = values
            yield path, _bytes(chunk)


def unpack(data: Path, layout: Layout, place: Place, start: int, stop: int) -> dict[str, NDArray[Any]]:
    """The arrays of a block; what lies in a file that is missing or of another length is not computed (NaN or zero)."""
    arrays = {}
    for name in layout.variables:
        array = layout.empty(name, layout.block_shape(name, place, stop - start))
        for piece in layout.pieces(name, place, start, stop):
            chunk = _load(data / name / _key(piece.chunk), layout, name)
            if chunk is not None:
                array[np.ix_(*piece.origin)] = chunk[np.ix_(*piece.inside)]
        arrays[name] = array
    return arrays


def damaged(arrays: Mapping[str, NDArray[Any]], sha256: Mapping[str, str]) -> list[str]:
    """The names of the arrays that are not those of the digests."""
    return [name for name, found in digests(arrays).items() if found != sha256.get(name)]


def digests(arrays: Mapping[str, NDArray[Any]]) -> dict[str, str]:
    """The sha256 of the bytes of every array."""
    return {name: hashlib.sha256(_bytes(array)).hexdigest() for name, array in arrays.items()}


def _load(path: Path, layout: Layout, name: str) -> NDArray[Any] | None:
    dtype, shape = layout.dtype(name), layout.chunk_shape(name)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) != dtype.itemsize * int(np.prod(shape)):
        return None
    return np.frombuffer(content, dtype.newbyteorder("<")).reshape(shape).astype(dtype, copy=False)


def _bytes(array: NDArray[Any]) -> bytes:
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _key(chunk: tuple[int, ...]) -> str:
    return ".".join(("c", *map(str, chunk)))
