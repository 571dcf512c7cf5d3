"""What is wrong with a sweep, said before anything is compiled."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax.sweep.axes import (
    Axis,
    Over,
    Values,
    Widths,
    Zipped,
    arguments,
    as_array,
    check_different,
    length,
    members,
    volumes,
    widths_of,
)
from specjax.sweep.dataset import trailing_dims
from specjax.sweep.failures import FAILED, FIRST_FAILED
from specjax.sweep.memory import parse
from specjax.sweep.moments import COUNT
from specjax.sweep.plan import PLANS
from specjax.sweep.program import Measure, Shapes, flat_outputs, is_key
from specjax.sweep.replicates import BATCH, SEED, SEEDS

REDUCTIONS = (None, "moments")
_OWN_NAMES = (SEED, SEEDS, BATCH, "key", FAILED)
_MOST_SEEDS = 2**32  # seeds are folded into keys as 32-bit words


class Probe(NamedTuple):
    """What tracing at exact widths told of a measurement, without compiling it.

    Attributes:
        shapes: The shape and dtype of each output by name.
        largest: The program where every dimension has its largest volume.
        narrow: For each dimension that has widths, the program where that dimension alone has its smallest volume, and the ratio
            of its largest volume to that.
    """

    shapes: Shapes
    largest: jax.stages.Traced
    narrow: Mapping[str, tuple[jax.stages.Traced, float]]


def check_arguments(
    over: object,
    seeds: object,
    key: object,
    plan: object,
    chunk: object,
    memory: object,
    reduce: object,
) -> None:
    """Raises ValueError for whatever can be told from the arguments of `run` alone."""
    if not isinstance(over, Mapping) or not over:
        raise ValueError(f"over needs at least one swept name, got {over!r}; write e.g. over={{'d1': widths(16, 32)}}.")
    for name, axis in over.items():
        _check_axis(name, axis)
    _check_argument_names(over)
    _check_seeds(seeds, over)
    if chunk is not None:
        _check_positive_int("chunk", chunk)
    if memory is not None:
        parse(memory)  # type: ignore[arg-type]
    if plan not in PLANS:
        raise ValueError(f"plan needs to be one of {', '.join(map(repr, PLANS))}, got {plan!r}.")
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce needs to be None, which keeps every seed, or 'moments', got {reduce!r}.")
    if reduce is not None and isinstance(seeds, Mapping):
        raise ValueError("reduce='moments' takes one number of seeds for all points, got one for each; give an int.")
    if not isinstance(key, jax.Array) or not is_key(key) or key.shape != ():
        raise ValueError(f"key needs one typed JAX key, got {_described(key)}; make one with jax.random.key(0).")


def check_signature(measure: Callable[..., Any], over: Over) -> None:
    """Raises ValueError unless `measure(key, **point)` is a call that its signature allows."""
    if not callable(measure):
        raise ValueError(f"measure needs to be a function measure(key, **point), got {measure!r}.")
    signature = inspect.signature(measure)
    names = list(arguments(over))
    try:
        signature.bind(None, **dict.fromkeys(names))
    except TypeError as error:
        wanted = ", ".join(["key", *names])
        raise ValueError(
            f"measure needs to accept the key and the swept names, measure({wanted}), "
            f"but has the signature measure{signature} ({error}); rename its arguments or the names in over."
        ) from None


def probe(measure: Measure, over: Over, key: jax.Array, units: Mapping[str, str], reduce: str | None) -> Probe:
    """Traces `measure` at the largest widths, and for each dimension that has widths where that one is narrowest instead.

    Raises:
        ValueError: the result is no dict of arrays, an output has a name that is taken, its shape depends on a swept width,
            `units` names an output that does not exist, or the moments of complex numbers are asked for.
    """
    wide = [dim for dim, axis in over.items() if widths_of(dim, axis)]
    volume = {dim: volumes(dim, over[dim]) for dim in wide}
    top = {dim: int(np.argmax(volume[dim])) for dim in wide}
    largest = _traced(measure, over, key, top)
    shapes = dict(largest.out_info)
    _check_names(shapes, over, units, reduce)
    narrow: dict[str, tuple[jax.stages.Traced, float]] = {}
    for dim in wide:
        bottom = int(np.argmin(volume[dim]))
        ratio = volume[dim][top[dim]] / volume[dim][bottom]
        narrow[dim] = (largest if ratio == 1 else _traced(measure, over, key, {**top, dim: bottom}), ratio)
        _check_same(shapes, dict(narrow[dim][0].out_info), _where(dim, over, bottom), _where(dim, over, top[dim]))
    return Probe(shapes, largest, narrow)


def _traced(measure: Measure, over: Over, key: jax.Array, places: Mapping[str, int]) -> jax.stages.Traced:
    sizes = {name: axis.points[i] for dim, i in places.items() for name, axis in widths_of(dim, over[dim]).items()}
    scalars = {
        name: jax.ShapeDtypeStruct((), as_array(name, axis).dtype)
        for name, axis in arguments(over).items()
        if isinstance(axis, Values)
    }

    def at_point(key: jax.Array, scalars: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return flat_outputs(measure, key, {**sizes, **scalars})

    with jax.default_matmul_precision("highest"):
        return jax.jit(at_point).trace(key, scalars)


def _where(dim: str, over: Over, place: int) -> str:
    return ", ".join(f"{name}={axis.points[place]}" for name, axis in widths_of(dim, over[dim]).items())


def _check_same(shapes: Shapes, others: Shapes, low: str, high: str) -> None:
    if others.keys() != shapes.keys():
        raise ValueError(
            f"measure needs to return the same names at every width, got {sorted(others)} at {low} and {sorted(shapes)} at {high}."
        )
    for name, shape in shapes.items():
        if others[name].shape != shape.shape:
            raise ValueError(
                f"The output {name!r} has shape {others[name].shape} at {low} and {shape.shape} at {high}: "
                "an output cannot depend on a swept width, so reduce over the active block."
            )


def _check_axis(name: object, axis: object) -> None:
    if not isinstance(name, str):
        raise ValueError(f"The names in over are strings, the names of arguments of measure, got {name!r}; quote it.")
    if not isinstance(axis, Axis):
        raise ValueError(
            f"over[{name!r}] needs an axis, got a {type(axis).__name__}; write widths(16, 32) or values(0.1, 0.2)."
        )
    if not isinstance(axis, Zipped):
        check_different("widths" if isinstance(axis, Widths) else "values", axis.points)
    for member, one in members(str(name), axis).items():
        if isinstance(one, Values):
            as_array(member, one)


def _check_argument_names(over: Over) -> None:
    names = [name for dim, axis in over.items() for name in {dim: None, **members(dim, axis)}]
    for name in names:
        if name in _OWN_NAMES:
            raise ValueError(
                f"The name {name!r} belongs to the sweep and cannot be swept; give the argument another name."
            )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]!r} is swept by more than one dimension; sweep each argument once.")


def _check_seeds(seeds: object, over: Over) -> None:
    if not isinstance(seeds, Mapping):
        _check_positive_int("seeds", seeds)
        _check_countable(int(seeds))  # type: ignore[call-overload]
        return
    if len(seeds) != 1 or not set(seeds) <= {dim for dim, axis in over.items() if widths_of(dim, axis)}:
        raise ValueError(
            f"seeds by width needs one swept dimension that has widths, got {sorted(map(str, seeds))}; "
            f"write e.g. seeds={{'d1': (1000, 100)}}, a number for each point of d1."
        )
    ((dim, counts),) = seeds.items()
    if not isinstance(counts, tuple | list) or len(counts) != length(over[dim]):
        raise ValueError(
            f"seeds[{dim!r}] needs {length(over[dim])} numbers, one for each of its points, got {counts!r}."
        )
    for count in counts:
        _check_positive_int(f"seeds[{dim!r}]", count)
    _check_countable(max(counts))


def _check_countable(seeds: int) -> None:
    if seeds > _MOST_SEEDS:
        raise ValueError(f"seeds needs to be at most 2**32, got {seeds}; run the rest with another key.")


def _check_names(shapes: Shapes, over: Over, units: Mapping[str, str], reduce: str | None) -> None:
    trailing = {dim for name, shape in shapes.items() for dim in trailing_dims(name, len(shape.shape))}
    swept = {*over, *arguments(over)}
    own = {*_OWN_NAMES, *((COUNT, FIRST_FAILED) if reduce else ())}
    for name, shape in shapes.items():
        if name in swept | own | trailing:
            raise ValueError(
                f"The output name {name!r} is already a dimension or variable of the dataset; rename the output."
            )
        if reduce and np.issubdtype(shape.dtype, np.complexfloating):
            raise ValueError(
                f"The output {name!r} is complex and has no smallest or largest; return its real and imaginary parts, or keep every seed."
            )
        if reduce and name.rpartition(".")[2] in ("variance", "min", "max") and name.rpartition(".")[0] in shapes:
            raise ValueError(f"The output {name!r} has the name of a moment of another; rename it.")
    taken = sorted(trailing & swept)
    if taken:
        raise ValueError(f"The swept name {taken[0]!r} is the dimension of an output; rename the swept argument.")
    unknown = sorted(set(units) - set(shapes))
    if unknown:
        raise ValueError(
            f"units names {unknown[0]!r}, which measure does not return; its outputs are {sorted(shapes)}."
        )


def _check_positive_int(name: str, number: object) -> None:
    if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
        raise ValueError(f"{name} needs to be a positive int, got {number!r}.")


def _described(key: object) -> str:
    if isinstance(key, jax.Array):
        return f"an array of dtype {key.dtype} and shape {key.shape}"
    return repr(key)
