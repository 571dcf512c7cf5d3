"""What is wrong with a sweep, said before anything is compiled."""

import inspect
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sizes
from specjax.arguments import shown
from specjax.programs import Program, UnreadableProgramError, reached
from specjax.sweep.bucketing import PLANS
from specjax.sweep.dataset import trailing_dims
from specjax.sweep.failures import FIRST_FAILED
from specjax.sweep.grid import OWN_NAMES, Grid, check_positive_int
from specjax.sweep.measurement import Measurement, Shapes
from specjax.sweep.memory import parse
from specjax.sweep.seed_moments import COUNT


def check_arguments(
    grid: Grid, key: object, plan: object, chunk: object, memory: object, reduce: object
) -> None:
    """Raises ValueError for whatever can be told from the arguments of `run` beside its grid."""
    if chunk is not None:
        check_positive_int("chunk", chunk)
    if memory is not None:
        parse(memory)  # type: ignore[arg-type]
    if not isinstance(plan, str) or plan not in PLANS:
        raise ValueError(
            f"plan needs to be one of {', '.join(map(repr, PLANS))}, got {shown(plan)}."
        )
    if reduce is not None and not (isinstance(reduce, str) and reduce == "moments"):
        raise ValueError(
            f"reduce needs to be None, which keeps every seed, or 'moments', got {shown(reduce)}."
        )
    if reduce is not None and any(dim.seeds for dim in grid.dims.values()):
        raise ValueError(
            "reduce='moments' takes one number of seeds for all points, got one for each; give an"
            " int."
        )
    if (
        not isinstance(key, jax.Array)
        or not jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
        or key.shape != ()
    ):
        got = (
            f"an array of dtype {key.dtype} and shape {key.shape}"
            if isinstance(key, jax.Array)
            else shown(key)
        )
        raise ValueError(
            f"key needs one typed JAX key, got {got}; make one with jax.random.key(0)."
        )
    sizes.require_threefry(key)


def check_signature(measure: object, grid: Grid) -> None:
    """Raises ValueError unless `measure(key, **point)` is a call that its signature allows."""
    if not callable(measure):
        raise ValueError(
            f"measure needs to be a function measure(key, **point), got {shown(measure)}."
        )
    try:
        signature, names = inspect.signature(measure), [*grid.members]
    except ValueError:
        raise ValueError(
            f"measure needs to be a function measure(key, **point), got {shown(measure)}."
        ) from None
    try:
        signature.bind(None, **dict.fromkeys(names))
    except TypeError as error:
        wanted = ", ".join(["key", *names])
        raise ValueError(
            f"measure needs to accept the key and the swept names, measure({wanted}), but has the"
            f" signature measure{signature} ({error}); rename its arguments or the names in over."
        ) from None


def traced(
    measurement: Measurement, grid: Grid, reduce: str | None
) -> tuple[jax.stages.Traced, dict[str, jax.stages.Traced]]:
    """The measurement traced at the corners of a grid (`Grid.corners`), without compiling it.

    Raises:
        ValueError: the result is no dict of arrays, an output has a name that is taken, its shape
            depends on a swept width, or the moments of complex numbers are asked for.

    Warns:
        EqualSeedsWarning: no output depends on the key.
    """
    top, bottom = grid.corners
    largest = measurement.traced_at_point(top)
    shapes = dict(largest.out_info)
    _check_names(shapes, grid, reduce)
    if grid.seeds > 1:
        warn_of_equal_seeds(largest, grid.seeds)
    for at_choice in grid.chosen:
        _check_same(
            shapes,
            dict(measurement.traced_at_point(at_choice).out_info),
            at_choice.label,
            top.label,
        )
    narrow = {dim: measurement.traced_at_point(corner) for dim, corner in bottom.items()}
    for dim, at_corner in narrow.items():
        low, high = (corner.dims[dim].described(0) for corner in (bottom[dim], top))
        _check_same(shapes, dict(at_corner.out_info), low, high)
    return largest, narrow


class EqualSeedsWarning(UserWarning):
    """All seeds of a sweep give the same numbers."""


def warn_of_equal_seeds(traced: jax.stages.Traced, seeds: int) -> None:
    """Warns with an EqualSeedsWarning where no output of a measurement depends on its key, which is
    its first argument.
    """
    try:
        depends = bool(reached(Program.of(traced), {0}))
    except UnreadableProgramError:
        return
    if not depends:
        warnings.warn(
            f"measure does not use the key that it gets, so that all {seeds} seeds give the same"
            " numbers; draw from that key, or take num_seeds=1.",
            EqualSeedsWarning,
            stacklevel=4,
        )


def _check_same(shapes: Shapes, others: Shapes, low: str, high: str) -> None:
    if others.keys() != shapes.keys():
        raise ValueError(
            f"measure needs to return the same names at every width, got {sorted(others)} at {low}"
            f" and {sorted(shapes)} at {high}."
        )
    for name, shape in shapes.items():
        if others[name].shape != shape.shape:
            raise ValueError(
                f"The output {name!r} has shape {others[name].shape} at {low} and {shape.shape} at"
                f" {high}: an output cannot depend on a swept width, so reduce over the active"
                " block."
            )


def _check_names(shapes: Shapes, grid: Grid, reduce: str | None) -> None:
    trailing = {
        dim for name, shape in shapes.items() for dim in trailing_dims(name, len(shape.shape))
    }
    swept = {*grid.dims, *grid.members}
    own = {*OWN_NAMES, *((COUNT, FIRST_FAILED) if reduce else ())}
    for name, shape in shapes.items():
        if name in swept | own | trailing:
            raise ValueError(
                f"The output name {name!r} is already a dimension or variable of the dataset;"
                " rename the output."
            )
        if reduce and np.issubdtype(shape.dtype, np.complexfloating):
            raise ValueError(
                f"The output {name!r} is complex and has no smallest or largest; return its real"
                " and imaginary parts, or keep every seed."
            )
        if (
            reduce
            and name.rpartition(".")[2] in ("variance", "min", "max")
            and name.rpartition(".")[0] in shapes
        ):
            raise ValueError(f"The output {name!r} has the name of a moment of another; rename it.")
    taken = sorted(trailing & swept)
    if taken:
        raise ValueError(
            f"The swept name {taken[0]!r} is the dimension of an output; rename the swept argument."
        )
