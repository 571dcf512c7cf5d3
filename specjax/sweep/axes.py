"""The axes of a sweep: `widths`, which change shapes, `values`, `choices`, and several `zipped`."""

import sys
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from specjax.arguments import shown


@dataclass(frozen=True)
class Single:
    """The points of one argument of `measure`; the function of its kind says how it arrives."""

    kind: Literal["widths", "values", "choices"]
    points: tuple[Any, ...]  # ints, or floats, or text

    def members(self, name: str) -> Mapping[str, "Single"]:
        """The arguments that a dimension `name` of this axis sets, with their points."""
        return {name: self}


@dataclass(frozen=True)
class Zipped:
    """One dimension along which several axes move together; `measure` gets each by its own name."""

    axes: Mapping[str, Single]

    def members(self, name: str) -> Mapping[str, Single]:  # noqa: ARG002
        """The arguments that a dimension of this axis sets, with their points."""
        return self.axes


Axis = Single | Zipped
Over = Mapping[str, Axis]


def widths(*ns: int | np.integer) -> Single:
    """An axis of widths; the dataset keeps their order.

    `measure` receives a point as a Python int or a `specjax.sizes.Size`.

    Args:
        *ns: Positive ints, one argument each; all different, unless the axis is zipped with
            another.

    Raises:
        ValueError: no width, a sequence in place of the widths, or a width that is not a positive
            int.

    Examples:
        >>> from specjax import sizes, sweep
        >>> norm = lambda key, d: {"norm": jnp.sum(sizes.normal(key, (d,)) ** 2)}
        >>> data = sweep.run(norm, {"d": sweep.widths(4, 8)}, num_seeds=3, key=jax.random.key(0))
        >>> data["norm"].d.values.tolist()
        [4, 8]
    """
    _check_points("widths", ns, "16, 32")
    for n in ns:
        if not isinstance(n, Integral) or isinstance(n, bool) or n < 1:
            raise ValueError(
                f"widths takes positive ints, got {shown(n)}; write e.g. widths(16, 32)."
            )
    return Single("widths", tuple(int(n) for n in ns))


def values(*xs: int | float | np.number) -> Single:
    """An axis of numbers; the dataset keeps their order.

    `measure` receives a point as a scalar array.

    Args:
        *xs: Finite numbers, one argument each; all different, unless the axis is zipped with
            another. They reach `measure` as ints when all are ints, else as floats.

    Raises:
        ValueError: no value, a sequence in place of the values, or a value that is not a finite
            number.

    Examples:
        >>> from specjax import sweep
        >>> noise = lambda key, scale: {"y": scale * jax.random.rademacher(key, (), float)}
        >>> over = {"scale": sweep.values(0.5, 2.0)}
        >>> data = sweep.run(noise, over, num_seeds=8, key=jax.random.key(0))
        >>> abs(data["y"]).mean("seed").values.tolist()
        [0.5, 2.0]
    """
    _check_points("values", xs, "0.1, 0.2")
    for x in xs:
        # As a Python number: NumPy's float16 cannot be compared with the largest float.
        if (
            not isinstance(x, Real)
            or isinstance(x, bool)
            or not abs(_plain(x)) <= sys.float_info.max
        ):
            raise ValueError(
                f"values takes finite numbers, got {shown(x)}; write e.g. values(0.1, 0.2)."
            )
    number = int if all(isinstance(x, Integral) for x in xs) else float
    return Single("values", tuple(number(x) for x in xs))


def _plain(x: Real) -> int | float:
    return int(x) if isinstance(x, Integral) else float(x)


def choices(*xs: int | float | str) -> Single:
    """An axis of Python numbers or names; the dataset keeps their order.

    `measure` receives a point unchanged. Use it for an argument that decides which operations are
    traced: a depth, a number of steps, the name of an activation. Each point has a program of its
    own, and the programs are compiled side by side.

    Args:
        *xs: Ints, finite floats or strings, of one type, one argument each; all different, unless
            the axis is zipped with another.

    Raises:
        ValueError: no point, a sequence in place of the points, or points of several or other
            types.

    Examples:
        >>> from specjax import sweep
        >>> power = lambda key, depth: {"sign": jax.random.rademacher(key) ** depth}
        >>> over = {"depth": sweep.choices(1, 2)}
        >>> data = sweep.run(power, over, num_seeds=4, key=jax.random.key(0))
        >>> data["sign"].sel(depth=2).values.tolist()
        [1, 1, 1, 1]
    """
    _check_points("choices", xs, "2, 4, 8")
    plain = tuple(x.item() if isinstance(x, np.generic) else x for x in xs)
    for x in plain:
        if (
            isinstance(x, bool)
            or not isinstance(x, int | float | str)
            or (isinstance(x, float) and not np.isfinite(x))
        ):
            raise ValueError(
                f"choices takes ints, finite floats or strings, got {shown(x)}; write e.g."
                " choices(2, 4, 8)."
            )
    if len(set(map(type, plain))) > 1:
        raise ValueError(
            f"choices takes points of one type, got {list(plain)}; write e.g. choices(2, 4, 8)."
        )
    return Single("choices", plain)


def zipped(**axes: Single) -> Zipped:
    """Several axes that move together along one dimension.

    For example `over={"k": zipped(n=widths(32, 64), d=widths(8, 16))}`. The dimension is named by
    its key in `over`. If one of `axes` has that name, its points are the coordinate of the
    dimension. The other axes become coordinates along it; `data.swap_dims(k="n")` makes one of them
    the dimension.

    Raises:
        ValueError: no axis, an argument that is not an axis, axes of different lengths, or a point
            given twice.

    Examples:
        >>> from specjax import sweep
        >>> ratio = lambda key, n, d: {"y": jax.random.rademacher(key, (), float) * n / d}
        >>> pairs = sweep.zipped(n=sweep.values(2.0, 6.0), d=sweep.values(1.0, 2.0))
        >>> data = sweep.run(ratio, {"n": pairs}, num_seeds=8, key=jax.random.key(0))
        >>> abs(data["y"]).mean("seed").values.tolist()
        [2.0, 3.0]
    """
    if not axes:
        raise ValueError(
            "zipped needs at least one axis, got none; write e.g. zipped(n=widths(32, 64),"
            " d=widths(8, 16))."
        )
    for name, axis in axes.items():
        if not isinstance(axis, Single):
            raise ValueError(
                "zipped takes widths(...), values(...) and choices(...), got a"
                f" {type(axis).__name__} for {name!r}."
            )
    lengths = {name: len(axis.points) for name, axis in axes.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(
            f"zipped needs axes of one length, got {lengths}; give each the same number of points."
        )
    check_different("zipped", list(zip(*(axis.points for axis in axes.values()), strict=True)))
    return Zipped(axes)


def _check_points(maker: str, points: tuple[object, ...], example: str) -> None:
    if not points:
        raise ValueError(
            f"{maker} needs at least one point, got none; write e.g. {maker}({example})."
        )
    for point in points:
        if isinstance(point, list | tuple | range) or np.ndim(point) > 0:
            raise ValueError(
                f"{maker} takes its points one by one, got a {type(point).__name__}; unpack it,"
                f" e.g. {maker}(*[{example}])."
            )


def check_different(maker: str, points: Sequence[Hashable]) -> None:
    """Raise ValueError if `points` has a point twice."""
    repeated = sorted(str(point) for point, count in Counter(points).items() if count > 1)
    if repeated:
        raise ValueError(
            f"{maker} takes each point once, got {', '.join(repeated)} more than once; remove the"
            " repeats."
        )
