"""What is wrong with a sweep, said before anything is compiled."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.sweep.axes import Over, Values, Widths, as_array
from specjax.sweep.failures import FAILED
from specjax.sweep.plan import PLANS
from specjax.sweep.program import Measure, Shapes, flat_outputs

_OWN_NAMES = ("seed", "key", FAILED)


def check_arguments(over: object, seeds: object, key: object, plan: object, chunk: object) -> None:
    """Raises ValueError for whatever can be told from the arguments of `run` alone."""
    if not isinstance(over, Mapping) or not over:
        raise ValueError(f"over needs at least one swept name, got {over!r}; write e.g. over={{'d1': widths(16, 32)}}.")
    for name, axis in over.items():
        if not isinstance(axis, Widths | Values):
            raise ValueError(
                f"over[{name!r}] needs an axis, got a {type(axis).__name__}; write widths(16, 32) or values(0.1, 0.2)."
            )
        if name in _OWN_NAMES:
            raise ValueError(
                f"The name {name!r} belongs to the sweep and cannot be swept; give the argument another name."
            )
        if isinstance(axis, Values):
            as_array(name, axis)
    _check_positive_int("seeds", seeds)
    if chunk is not None:
        _check_positive_int("chunk", chunk)
    if plan not in PLANS:
        raise ValueError(f"plan needs to be one of {', '.join(map(repr, PLANS))}, got {plan!r}.")
    if not isinstance(key, jax.Array) or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape != ():
        raise ValueError(f"key needs one typed JAX key, got {_described(key)}; make one with jax.random.key(0).")


def check_signature(measure: Callable[..., Any], over: Over) -> None:
    """Raises ValueError unless `measure(key, **point)` is a call that its signature allows."""
    signature = inspect.signature(measure)
    try:
        signature.bind(None, **dict.fromkeys(over))
    except TypeError as error:
        wanted = ", ".join(["key", *over])
        raise ValueError(
            f"measure needs to accept the key and the swept names, measure({wanted}), "
            f"but has the signature measure{signature} ({error}); rename its arguments or the names in over."
        ) from None


def check_outputs(measure: Measure, over: Over, key: jax.Array, units: Mapping[str, str]) -> Shapes:
    """Traces `measure` at exact widths, without compiling it, and returns the shape and dtype of each output by name.

    It is traced at the largest widths, and once for each widths axis with that axis at its smallest width instead.

    Raises:
        ValueError: the result is no dict of arrays, an output has a name that is taken, its shape depends on a swept width, or
            `units` names an output that does not exist.
    """
    largest = {name: max(axis.points) for name, axis in over.items() if isinstance(axis, Widths)}
    scalars = {
        name: jax.ShapeDtypeStruct((), as_array(name, axis).dtype)
        for name, axis in over.items()
        if isinstance(axis, Values)
    }

    def shapes_at(sizes: Mapping[str, int]) -> Shapes:
        def traced(key: jax.Array, scalars: dict[str, jax.Array]) -> dict[str, jax.Array]:
            return flat_outputs(measure, key, {**sizes, **scalars})

        return jax.eval_shape(traced, key, scalars)

    shapes = shapes_at(largest)
    _check_names(shapes, over, units)
    for axis, high in largest.items():
        low = min(over[axis].points)
        if low == high:
            continue
        others = shapes_at({**largest, axis: int(low)})
        if others.keys() != shapes.keys():
            raise ValueError(
                f"measure needs to return the same names at every width, got {sorted(others)} at {axis}={low} "
                f"and {sorted(shapes)} at {axis}={high}."
            )
        for name, shape in shapes.items():
            if others[name].shape != shape.shape:
                raise ValueError(
                    f"The output {name!r} has shape {others[name].shape} at {axis}={low} and {shape.shape} at {axis}={high}: "
                    "an output cannot depend on a swept width, so reduce over the active block."
                )
    return shapes


def _check_names(shapes: Shapes, over: Over, units: Mapping[str, str]) -> None:
    trailing = {dim for name, shape in shapes.items() for dim in trailing_dims(name, len(shape.shape))}
    for name in shapes:
        if name in {*over, *_OWN_NAMES, *trailing}:
            raise ValueError(
                f"The output name {name!r} is already a dimension or variable of the dataset; rename the output."
            )
    taken = sorted(trailing & set(over))
    if taken:
        raise ValueError(f"The swept name {taken[0]!r} is the dimension of an output; rename the swept argument.")
    unknown = sorted(set(units) - set(shapes))
    if unknown:
        raise ValueError(
            f"units names {unknown[0]!r}, which measure does not return; its outputs are {sorted(shapes)}."
        )


def trailing_dims(name: str, ndim: int) -> tuple[str, ...]:
    """The names of the dimensions that the output `name` has by itself."""
    return tuple(f"{name}_dim_{i}" for i in range(ndim))


def _check_positive_int(name: str, number: object) -> None:
    if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{name} needs to be a positive int, got {number!r}.")


def _described(key: object) -> str:
    if isinstance(key, jax.Array):
        return f"an array of dtype {key.dtype} and shape {key.shape}"
    return repr(key)
