"""How the arrays of a sweep lie in files: the blocks they are computed in, and the chunks they are stored in.

A variable has the dimensions (*axes, sample, *trailing). A block is what is computed at once: a set of points of the grid, given
by its place (the indices along each axis), times a range of samples. A chunk is what one file holds: one index along each `split`
axis, all indices along the others, and `chunk` samples.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from specjax.sweep.moments import quantity

# The types of the zarr specification that arrays of numbers have, by numpy's names, which are the same.
_DTYPES = frozenset(
    {"bool", "complex64", "complex128", *(f"float{bits}" for bits in (16, 32, 64))}
    | {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
)


class Block(NamedTuple):
    """The samples `start` to `stop - 1` at all points of a bucket."""

    bucket: int
    start: int
    stop: int

    def __str__(self) -> str:
        return f"bucket {self.bucket}, samples {self.start} to {self.stop - 1}"


class Piece(NamedTuple):
    """What a block and a chunk have in common."""

    chunk: tuple[int, ...]  # the number of the chunk along each dimension of the array
    inside: tuple[NDArray[np.intp], ...]  # its part in the chunk: indices along every axis, then the samples
    origin: tuple[NDArray[np.intp], ...]  # the same part in the block


@dataclass(frozen=True)
class Layout:
    """The shape of a sweep on disk.

    Attributes:
        axes: The names of the swept axes, and `extents` how many points each has.
        split: The axes along which every index has chunks of its own.
        sample: The name of the sample axis, `samples` its length and `chunk` how many samples one chunk holds.
        variables: Trailing shape and dtype of every variable.

    Raises:
        ValueError: a name or a dtype that a zarr store cannot hold.
    """

    axes: tuple[str, ...]
    extents: tuple[int, ...]
    split: tuple[str, ...]
    sample: str
    samples: int
    chunk: int
    variables: Mapping[str, jax.ShapeDtypeStruct]

    def __post_init__(self) -> None:
        for name, variable in self.variables.items():
            if "/" in name or name.startswith((".", "__")) or name in ("", "zarr.json"):
                raise ValueError(
                    f"The output {name!r} cannot be stored under that name; rename it, to letters and dots."
                )
            if np.dtype(variable.dtype).name not in _DTYPES:
                raise ValueError(
                    f"The output {name!r} is of type {np.dtype(variable.dtype).name}, which a zarr store cannot hold; "
                    f"convert it to float32 in the measurement."
                )

    def dims(self, name: str) -> tuple[str, ...]:
        """The names of the dimensions of a variable."""
        trailing = self.variables[name].shape
        base = quantity(name, self.variables)
        return (*self.axes, self.sample, *(f"{base}_dim_{place}" for place in range(len(trailing))))

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a variable."""
        return (*self.extents, self.samples, *self.variables[name].shape)

    def dtype(self, name: str) -> np.dtype[Any]:
        """The dtype of a variable."""
        return np.dtype(self.variables[name].dtype)

    def chunk_shape(self, name: str) -> tuple[int, ...]:
        """The shape of every chunk of a variable; those at the end of the sample axis may be filled in part."""
        return (*self._chunk_extents(), self.chunk, *(max(1, extent) for extent in self.variables[name].shape))

    def block_shape(self, name: str, place: Sequence[NDArray[np.intp]], samples: int) -> tuple[int, ...]:
        """The shape of one block of a variable."""
        return (*map(len, place), samples, *self.variables[name].shape)

    def empty(self, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """An array of values not yet computed: NaN where the dtype has it, else zeros."""
        return np.full(shape, fill_value(self.dtype(name)), self.dtype(name))

    def pieces(self, name: str, place: Sequence[NDArray[np.intp]], start: int, stop: int) -> Iterator[Piece]:
        """Every chunk of a variable that a block touches, with their common part."""
        along = [_along_axis(indices, extent) for indices, extent in zip(place, self._chunk_extents(), strict=True)]
        zeros = (0,) * len(self.variables[name].shape)
        if 0 in self.variables[name].shape:
            return
        for parts in itertools.product(*along, _along_samples(start, stop, self.chunk)):
            numbers, inside, origin = zip(*parts, strict=True)
            yield Piece((*numbers, *zeros), inside, origin)

    def _chunk_extents(self) -> tuple[int, ...]:
        return tuple(1 if axis in self.split else n for axis, n in zip(self.axes, self.extents, strict=True))


def fill_value(dtype: np.dtype[Any]) -> Any:
    """The value that stands for one not yet computed."""
    return {"f": np.nan, "c": complex(np.nan, np.nan), "b": False}.get(dtype.kind, 0)


# One dimension of a piece: the number of the chunk, and the indices inside it and inside the block.
_Part = tuple[int, NDArray[np.intp], NDArray[np.intp]]


def _along_axis(indices: NDArray[np.intp], extent: int) -> list[_Part]:
    numbers = indices // extent
    return [
        (int(number), indices[numbers == number] - number * extent, np.flatnonzero(numbers == number))
        for number in np.unique(numbers)
    ]


def _along_samples(start: int, stop: int, chunk: int) -> list[_Part]:
    parts = []
    for number in range(start // chunk, -(-stop // chunk)):
        first, last = max(start, number * chunk), min(stop, (number + 1) * chunk)
        parts.append((number, np.arange(first, last) - number * chunk, np.arange(first, last) - start))
    return parts
