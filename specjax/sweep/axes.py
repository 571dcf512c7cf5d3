"""The axes of a sweep: widths, which change shapes, values, which do not, and several of them zipped into one dimension."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Integral, Real

import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped


@dataclass(frozen=True)
class Widths:
    """An axis of sizes, made by `widths`; `measure` receives a point as a Python int or a `specjax.sizes.Size`."""

    points: tuple[int, ...]
    unit: str


@dataclass(frozen=True)
class Values:
    """An axis of numbers, made by `values`; `measure` receives a point as a scalar array."""

    points: tuple[int, ...] | tuple[float, ...]
    unit: str


@dataclass(frozen=True)
class Zipped:
    """One dimension along which several axes move together, made by `zipped`; `measure` receives each by its own name."""

    axes: tuple[tuple[str, Widths | Values], ...]


Axis = Widths | Values | Zipped
Over = Mapping[str, Axis]


def widths(*ns: int | np.integer, unit: str = "") -> Widths:
    """An axis of widths, in the order given, which is also their order in the dataset.

    Args:
        *ns: Positive ints, one argument each; all different, unless the axis is zipped with another.
        unit: The unit of the coordinate, e.g. "neurons"; empty for none.

    Raises:
        ValueError: no width, a sequence in place of the widths, or a width that is not a positive int.
    """
    _check_points("widths", ns, "16, 32")
    for n in ns:
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
            raise ValueError(f"widths takes positive ints, got {n!r}; write e.g. widths(16, 32).")
    return Widths(tuple(int(n) for n in ns), unit)


def values(*xs: int | float | np.number, unit: str = "") -> Values:
    """An axis of numbers, in the order given, which is also their order in the dataset.

    Args:
        *xs: Finite numbers, one argument each; all different, unless the axis is zipped with another. They
            reach `measure` as ints when all are ints, else as floats.
        unit: The unit of the coordinate; empty for none.

    Raises:
        ValueError: no value, a sequence in place of the values, or a value that is not a finite number.
    """
    _check_points("values", xs, "0.1, 0.2")
    for x in xs:
        if not isinstance(x, Real) or isinstance(x, bool) or not np.isfinite(x):
            raise ValueError(f"values takes finite numbers, got {x!r}; write e.g. values(0.1, 0.2).")
    if all(isinstance(x, Integral) for x in xs):
        return Values(tuple(int(x) for x in xs), unit)
    return Values(tuple(float(x) for x in xs), unit)


def zipped(**axes: Widths | Values) -> Zipped:
    """Several axes that move together along one dimension.

    As in `over={"k": zipped(n=widths(32, 64), d=widths(8, 16))}`. The dimension has the name under which it stands in `over`. If that
    is also the name of one of `axes`, it has that axis' points as its coordinate; the other axes are coordinates along it
    (`data.swap_dims(k="n")` makes one of them the dimension).

    Raises:
        ValueError: no axis, something that is no axis, axes of different lengths, or a point given twice.
    """
    if not axes:
        raise ValueError(
            "zipped needs at least one axis, got none; write e.g. zipped(n=widths(32, 64), d=widths(8, 16))."
        )
    for name, axis in axes.items():
        if not isinstance(axis, Widths | Values):
            raise ValueError(f"zipped takes widths(...) and values(...), got a {type(axis).__name__} for {name!r}.")
    lengths = {name: len(axis.points) for name, axis in axes.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"zipped needs axes of one length, got {lengths}; give each the same number of points.")
    together = Zipped(tuple(axes.items()))
    check_different("zipped", list(zip(*(axis.points for axis in axes.values()), strict=True)))
    return together


def members(name: str, axis: Axis) -> dict[str, Widths | Values]:
    """The arguments of `measure` that the dimension `name` sets, and their axes."""
    return dict(axis.axes) if isinstance(axis, Zipped) else {name: axis}


def arguments(over: Over) -> dict[str, Widths | Values]:
    """All swept arguments of `measure` and their axes."""
    return {name: axis for dim in over for name, axis in members(dim, over[dim]).items()}


def length(axis: Axis) -> int:
    """The number of points of `axis`."""
    return len(axis.axes[0][1].points) if isinstance(axis, Zipped) else len(axis.points)


def widths_of(name: str, axis: Axis) -> dict[str, Widths]:
    """Those arguments of the dimension `name` that are widths."""
    return {member: a for member, a in members(name, axis).items() if isinstance(a, Widths)}


def volumes(name: str, axis: Axis) -> list[int]:
    """The product of the widths at each point of the dimension `name`; 1 where it has none."""
    columns = [a.points for a in widths_of(name, axis).values()]
    return [prod(column[i] for column in columns) for i in range(length(axis))]


def as_array(name: str, axis: Values) -> Shaped[np.ndarray, " points"]:
    """The points of `axis` in JAX's default int or float dtype.

    Raises:
        ValueError: the dtype cannot hold the points, or cannot tell two of them apart.
    """
    exact = np.asarray(axis.points)
    whole = all(isinstance(x, int) for x in axis.points)
    dtype = np.dtype(jnp.result_type(int if whole else float))
    if whole:
        info = np.iinfo(dtype)
        held = all(info.min <= x <= info.max for x in axis.points)
    else:
        size = np.abs(exact)
        # Below the smallest normal number XLA may flush to zero.
        in_range = (size == 0) | ((size >= np.finfo(dtype).tiny) & (size <= np.finfo(dtype).max))
        held = bool(in_range.all()) and len(np.unique(exact.astype(dtype))) == len(np.unique(exact))
    if not held:
        raise ValueError(
            f"{dtype} cannot hold the values of {name!r} apart and in range, got {list(axis.points)}; "
            "rescale them, or run inside `with jax.enable_x64(True)`."
        )
    return exact.astype(dtype)


def _check_points(maker: str, points: tuple[object, ...], example: str) -> None:
    if not points:
        raise ValueError(f"{maker} needs at least one point, got none; write e.g. {maker}({example}).")
    for point in points:
        if isinstance(point, list | tuple | range) or np.ndim(point) > 0:  # type: ignore[arg-type]
            raise ValueError(
                f"{maker} takes its points one by one, got a {type(point).__name__}; unpack it, e.g. {maker}(*[{example}])."
            )


def check_different(maker: str, points: Sequence[object]) -> None:
    """Raises ValueError if one of `points` stands there twice."""
    repeated = sorted({str(point) for i, point in enumerate(points) if point in points[:i]})
    if repeated:
        raise ValueError(
            f"{maker} takes each point once, got {', '.join(repeated)} more than once; remove the repeats."
        )
