"""The axes of a sweep: widths, which change shapes, and values, which do not."""

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real

import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped


@dataclass(frozen=True)
class Widths:
    """An axis of sizes, made by :func:`widths`; `measure` receives a point as a Python int or a :class:`specjax.sizes.Size`."""

    points: tuple[int, ...]
    unit: str


@dataclass(frozen=True)
class Values:
    """An axis of numbers, made by :func:`values`; `measure` receives a point as a scalar array."""

    points: tuple[int, ...] | tuple[float, ...]
    unit: str


Axis = Widths | Values
Over = Mapping[str, Axis]


def widths(*ns: int | np.integer, unit: str = "") -> Widths:
    """An axis of widths, in the order given, which is also their order in the dataset.

    Args:
        *ns: Positive ints, all different, one argument each.
        unit: The unit of the coordinate, e.g. "neurons"; empty for none.

    Raises:
        ValueError: no width, a sequence in place of the widths, a width that is not a positive int, or a width given twice.
    """
    _check_points("widths", ns, "16, 32")
    for n in ns:
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
            raise ValueError(f"widths takes positive ints, got {n!r}; write e.g. widths(16, 32).")
    return Widths(tuple(int(n) for n in ns), unit)


def values(*xs: int | float | np.number, unit: str = "") -> Values:
    """An axis of numbers, in the order given, which is also their order in the dataset.

    Args:
        *xs: Finite numbers, all different, one argument each. They reach `measure` as ints when all are ints, else as floats.
        unit: The unit of the coordinate; empty for none.

    Raises:
        ValueError: no value, a sequence in place of the values, a value that is not a finite number, or a value given twice.
    """
    _check_points("values", xs, "0.1, 0.2")
    for x in xs:
        if not isinstance(x, Real) or isinstance(x, bool) or not np.isfinite(x):
            raise ValueError(f"values takes finite numbers, got {x!r}; write e.g. values(0.1, 0.2).")
    if all(isinstance(x, Integral) for x in xs):
        return Values(tuple(int(x) for x in xs), unit)
    return Values(tuple(float(x) for x in xs), unit)


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
        held = bool(in_range.all()) and len(np.unique(exact.astype(dtype))) == len(exact)
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
    repeated = sorted({str(point) for i, point in enumerate(points) if point in points[:i]})
    if repeated:
        raise ValueError(
            f"{maker} takes each point once, got {', '.join(repeated)} more than once; remove the repeats."
        )
