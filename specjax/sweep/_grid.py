"""The grid of a sweep: its dimensions with their points, coordinates, extents and numbers of seeds.

A piece of a grid is a grid: a bucket of points that share one program, or the single point at which
a measurement is traced. A program of a grid with several points of a dimension takes its widths as
`Size`s, padded to the largest; with one point, as Python ints.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped

from specjax.arguments import shown
from specjax.sizes import Size
from specjax.sweep.axes import Axis, Single, check_different
from specjax.sweep.failures import FAILED
from specjax.sweep.seed_dim import BATCH, SEED, SEEDS

Coordinates = Mapping[str, Mapping[str, Shaped[Array | np.ndarray, "..."]]]
"""The active widths and values of each dimension, by argument name, as a program takes them."""

OWN_NAMES = (SEED, SEEDS, BATCH, "key", FAILED)
_SELECT_ARGUMENTS = ("method", "tolerance", "drop", "indexers", "missing_dims")
"""Arguments of xarray's `sel` and `isel`, which cannot be names of dimensions."""
_MAX_SEEDS = 2**32  # seeds are folded into keys as 32-bit words


@dataclass(frozen=True)
class Dimension:
    """A dimension of a grid, or some points of one.

    Attributes:
        name: Its name.
        members: The arguments of `measure` that move along it, and their points.
        places: The places of these points on the whole dimension.
        seeds: The number of seeds of each point; None: that of the grid.
    """

    name: str
    members: Mapping[str, Single]
    places: tuple[int, ...]
    seeds: tuple[int, ...] | None = None

    def __len__(self) -> int:
        """The number of points."""
        return len(self.places)

    @property
    def widths(self) -> dict[str, tuple[int, ...]]:
        """The points of the members that are widths."""
        return {
            name: member.points for name, member in self.members.items() if member.kind == "widths"
        }

    @property
    def is_chosen(self) -> bool:
        """Whether a member is an axis of choices, so that each point is a program of its own."""
        return any(member.kind == "choices" for member in self.members.values())

    @property
    def is_cut(self) -> bool:
        """Whether its points may be split among several programs."""
        return self.is_chosen or bool(self.widths)

    @property
    def alone(self) -> bool:
        """Whether it has one point and could be split.

        Programs then get its widths as Python ints, its choices unchanged, and no axis for it.
        """
        return len(self) == 1 and self.is_cut

    @property
    def volumes(self) -> list[int]:
        """The product of the widths at each point; 1 if there are none."""
        return [prod(at) for at in zip(*self.widths.values(), strict=True)] or [1] * len(self)

    @property
    def volume(self) -> int:
        """The product of its largest widths, to which a program pads."""
        return prod(map(max, self.widths.values()))

    @property
    def labels(self) -> list[Any]:
        """The coordinate of each point; its place if the dimension has no own coordinate."""
        own = self.members.get(self.name)
        return [*(self.places if own is None else own.points)]

    def described(self, place: int) -> str:
        """The point at a place, as in "d=16"."""
        return ", ".join(f"{name}={member.points[place]}" for name, member in self.members.items())

    def select(self, places: Sequence[int]) -> "Dimension":
        """The dimension restricted to some places of it."""
        members = {
            name: replace(member, points=_some(member.points, places))
            for name, member in self.members.items()
        }
        seeds = None if self.seeds is None else _some(self.seeds, places)
        return Dimension(self.name, members, _some(self.places, places), seeds)


def _some(points: tuple[Any, ...], places: Sequence[int]) -> tuple[Any, ...]:
    return tuple(points[i] for i in places)


@dataclass(frozen=True)
class Grid:
    """Dimensions by name, in their order, and the largest number of seeds of any point."""

    dims: Mapping[str, Dimension]
    seeds: int

    @staticmethod
    def of(over: object, num_seeds: object) -> "Grid":
        """The grid of arguments of `specjax.sweep.run`; raises ValueError if they are invalid."""
        if not isinstance(over, Mapping) or not over:
            raise ValueError(
                f"over needs at least one swept name, got {shown(over)}; write e.g. over={{'d1':"
                " widths(16, 32)}."
            )
        dims = {name: Dimension(name, *_members(name, axis)) for name, axis in over.items()}
        _check_names(dims)
        if not isinstance(num_seeds, Mapping):
            check_positive_int("num_seeds", num_seeds)
            return Grid(dims, int(num_seeds))  # type: ignore[call-overload]
        counted = _with_seeds(num_seeds, dims)
        return Grid({**dims, counted.name: counted}, max(counted.seeds or ()))

    @property
    def wide(self) -> list[Dimension]:
        """The dimensions that have widths or choices."""
        return [dim for dim in self.dims.values() if dim.is_cut]

    @property
    def members(self) -> dict[str, Single]:
        """All swept arguments of `measure`, and their points."""
        return {name: member for dim in self.dims.values() for name, member in dim.members.items()}

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of points of each dimension."""
        return tuple(map(len, self.dims.values()))

    @property
    def points(self) -> int:
        """The number of points."""
        return prod(self.shape)

    @property
    def axes(self) -> tuple[str, ...]:
        """The dimensions for which its program has an axis."""
        return tuple(name for name, dim in self.dims.items() if not dim.alone)

    @property
    def places(self) -> list[list[int]]:
        """The places of its points on each whole dimension."""
        return [[*dim.places] for dim in self.dims.values()]

    @property
    def label(self) -> str:
        """Its widths, as in "d1=16,32"."""
        return " ".join(f"{dim.name}={','.join(map(str, dim.labels))}" for dim in self.wide)

    @property
    def padding(self) -> float:
        """Volume of its program over that of the narrowest point; 1 if nothing is padded."""
        return max((dim.volume / min(dim.volumes) for dim in self.wide), default=1.0)

    @property
    def chosen(self) -> list["Grid"]:
        """The largest point at each choice of each dimension; shapes must agree at all of them."""
        return [
            self.select({**self._largest, dim.name: [i]})
            for dim in self.wide
            if dim.is_chosen
            for i in range(len(dim))
        ]

    @property
    def coordinates(self) -> Coordinates:
        """The arrays that its program takes: of one axis for each dimension with an axis, else
        scalars.

        They are arguments of the program, not constants, so that XLA does not spend compile time
        folding them.
        """
        return {
            dim.name: {
                name: as_array(name, member).reshape(() if dim.alone else -1)
                for name, member in dim.members.items()
                if member.kind == "values" or not dim.alone
            }
            for dim in self.dims.values()
        }

    @property
    def _largest(self) -> dict[str, list[int]]:
        """The place of the largest volume on each dimension that may be split."""
        return {dim.name: [int(np.argmax(dim.volumes))] for dim in self.wide}

    @property
    def corners(self) -> tuple["Grid", dict[str, "Grid"]]:
        """The point of largest volumes, and for each dimension that with its smallest volume."""
        top = self._largest
        bottom = {
            dim.name: [int(np.argmin(dim.volumes))]
            for dim in self.wide
            if len(set(dim.volumes)) > 1
        }
        return self.select(top), {
            dim: self.select({**top, dim: place}) for dim, place in bottom.items()
        }

    def select(self, places: Mapping[str, Sequence[int]]) -> "Grid":
        """The grid restricted to some places of some dimensions."""
        dims = {
            name: dim.select(places[name]) if name in places else dim
            for name, dim in self.dims.items()
        }
        counts = (max(dim.seeds) for dim in dims.values() if dim.seeds is not None)
        return Grid(dims, max(counts, default=self.seeds))

    def point(self, coordinates: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The swept arguments of `measure` at scalar `coordinates` of its program."""
        arguments: dict[str, Any] = {}
        for dim in self.dims.values():
            for name, member in dim.members.items():
                if name not in coordinates[dim.name]:
                    (arguments[name],) = member.points
                elif member.kind == "widths":
                    arguments[name] = Size(max(member.points), coordinates[dim.name][name])
                else:
                    arguments[name] = coordinates[dim.name][name]
        return arguments

    def whole(self, output: np.ndarray, leading: int = 0) -> np.ndarray:
        """An output of its program with an axis for every dimension, behind `leading` others."""
        return output.reshape(
            *output.shape[:leading], *self.shape, *output.shape[leading + len(self.axes) :]
        )

    def described(self, place: Sequence[int]) -> str:
        """The point at one place of each dimension, as in "d=16, lr=0.1"."""
        return ", ".join(dim.described(i) for i, dim in zip(place, self.dims.values(), strict=True))


def as_array(name: str, points: Single) -> Shaped[np.ndarray, " points"]:
    """The points of an argument in JAX's default int or float dtype.

    Raises:
        ValueError: the dtype cannot hold them, or cannot distinguish two of them.
    """
    exact = np.asarray(points.points)
    if exact.dtype.kind == "U":
        return exact
    whole = all(isinstance(x, int) for x in points.points)
    dtype = np.dtype(jnp.result_type(int if whole else float))
    if whole:
        info = np.iinfo(dtype)
        held = all(info.min <= x <= info.max for x in points.points)
    else:
        size = np.abs(exact)
        # XLA may flush numbers below the smallest normal one to zero.
        in_range = (size == 0) | ((size >= np.finfo(dtype).tiny) & (size <= np.finfo(dtype).max))
        held = bool(in_range.all()) and len(np.unique(exact.astype(dtype))) == len(np.unique(exact))
    if not held:
        raise ValueError(
            f"{dtype} cannot hold the {points.kind} of {name!r} apart and in range, got"
            f" {list(points.points)}; rescale them, or run inside `with jax.enable_x64(True)`."
        )
    return exact.astype(dtype)


def check_positive_int(name: str, number: object) -> None:
    """Raise ValueError unless `number` is a positive int of at most 2**32."""
    if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{name} needs to be a positive int, got {shown(number)}.")
    if number > _MAX_SEEDS:
        raise ValueError(
            f"{name} needs to be at most 2**32, got {shown(number)}; run the rest with another key."
        )


def _members(name: object, axis: object) -> tuple[Mapping[str, Single], tuple[int, ...]]:
    """The arguments that an axis sets, and the places of its points."""
    if not isinstance(name, str):
        raise ValueError(
            f"The names in over are strings, the names of arguments of measure, got {name!r};"
            " quote it."
        )
    if not isinstance(axis, Axis):
        raise ValueError(
            f"over[{name!r}] needs an axis, got a {type(axis).__name__}; write widths(16, 32),"
            " values(0.1, 0.2) or choices(2, 4)."
        )
    members = axis.members(name)
    if axis is members.get(name):
        check_different(members[name].kind, members[name].points)
    for member, points in members.items():
        as_array(member, points)
    return members, tuple(range(len(next(iter(members.values())).points)))


def check_selectable(dim: str) -> None:
    """Raise ValueError for a name that is an argument of xarray's `data.sel`."""
    if dim in _SELECT_ARGUMENTS:
        raise ValueError(
            f"Nothing could be selected along a dimension {dim!r}, since xarray's sel has an"
            " argument of that name; give it another."
        )


def _check_names(dims: Mapping[str, Dimension]) -> None:
    names = [name for dim in dims.values() for name in {dim.name: None, **dim.members}]
    for name in names:
        if name in OWN_NAMES:
            raise ValueError(
                f"The name {name!r} belongs to the sweep and cannot be swept; give the argument"
                " another name."
            )
        check_selectable(name)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"{twice[0]!r} is swept by more than one dimension; sweep each argument once."
        )


def _with_seeds(num_seeds: Mapping[Any, Any], dims: Mapping[str, Dimension]) -> Dimension:
    """The dimension whose points have their own numbers of seeds."""
    if len(num_seeds) != 1 or not set(num_seeds) <= {
        name for name, dim in dims.items() if dim.widths
    }:
        raise ValueError(
            "num_seeds by width needs one swept dimension that has widths, got"
            f" {sorted(map(str, num_seeds))}; write e.g. num_seeds={{'d1': (1000, 100)}}, a number"
            " for each point of d1."
        )
    ((dim, counts),) = num_seeds.items()
    if not isinstance(counts, tuple | list) or len(counts) != len(dims[dim]):
        raise ValueError(
            f"num_seeds[{dim!r}] needs {len(dims[dim])} numbers, one for each of its points, got"
            f" {counts!r}."
        )
    for count in counts:
        check_positive_int(f"num_seeds[{dim!r}]", count)
    return replace(dims[dim], seeds=tuple(map(int, counts)))
