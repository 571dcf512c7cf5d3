"""The checked arguments of a sweep, with the shapes and costs of its traced measurement."""

import inspect
import warnings
from dataclasses import dataclass
from math import prod

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sizes
from specjax.arguments import shown
from specjax.programs import Program, UnreadableProgramError, reached
from specjax.sweep import _reduction, memory
from specjax.sweep._cost_model import CostModel, cost_model
from specjax.sweep._dataset import trailing_dims
from specjax.sweep._devices import Machine
from specjax.sweep._grid import OWN_NAMES, Grid, check_positive_int
from specjax.sweep._measurement import Measure, Measurement, Shapes
from specjax.sweep._reduction import EverySeed, Sampling
from specjax.sweep.failures import FIRST_FAILED
from specjax.sweep.seed_moments import COUNT, quantity

PLANS = ("exact", "padded", "auto")


class EqualSeedsWarning(UserWarning):
    """All seeds of a sweep give the same numbers."""


@dataclass(frozen=True)
class Spec:
    """The checked arguments of `run`, with `shapes` of outputs and a `model` of their cost."""

    measurement: Measurement
    grid: Grid
    machine: Machine
    shapes: Shapes
    model: CostModel
    plan: str
    chunk: int | None
    reduce: str | None
    check_padding: bool

    @staticmethod
    def of(
        measure: Measure,
        over: object,
        num_seeds: object,
        key: jax.Array,
        *,
        plan: str = "auto",
        chunk: int | None = None,
        memory: str | int | None = None,
        reduce: str | None = None,
        check_padding: bool = True,
    ) -> "Spec":
        """The spec of a call of `run`, which has the errors and warnings; nothing is compiled."""
        grid = Grid.of(over, num_seeds)
        _check_options(grid, plan, chunk, memory, reduce)
        _check_key(key)
        _check_signature(measure, grid)
        measurement, machine = Measurement(measure, key), Machine.here(memory)
        largest, narrow = _trace_corners(measurement, grid, reduce)
        spec = Spec(
            measurement,
            grid,
            machine,
            shapes=dict(largest.out_info),
            model=cost_model(grid, largest, narrow, machine.platform),
            plan=plan,
            chunk=None if chunk is None else int(chunk),
            reduce=reduce,
            check_padding=check_padding,
        )
        spec._check_room()
        return spec

    def seconds(self, bucket: Grid) -> float:
        """The estimated seconds to run one seed at all points of a bucket."""
        return self.model.seconds.cost(bucket) * bucket.points

    def sampling(self, batch_size: int | None = None) -> Sampling:
        """Whether every seed is kept, or moments of batches, whose size a store fixes."""
        if self.reduce == "moments":
            return _reduction.batches(self.grid.seeds, batch_size)
        return EverySeed(range(self.grid.seeds + 1))

    def _check_room(self) -> None:
        """Raise ValueError if the result, or one array of one seed, does not fit into memory."""
        host, kept = memory.host_memory(), self.sampling()
        # Each sample has a coordinate.
        entries = self.grid.points * bytes_of(kept.variables(self.shapes)) + np.dtype(int).itemsize
        if (needed := kept.samples * entries) > host:
            raise ValueError(
                f"The result takes {memory.described(needed)}, more than this host's"
                f" {memory.described(host)}; use reduce='moments', fewer seeds, or smaller outputs."
            )
        if (largest := self.model.largest_product) > (budget := max(self.machine.budget, host)):
            raise ValueError(
                f"One matrix of one seed takes {memory.described(largest)}, more than the"
                f" {memory.described(budget)} of memory; sweep smaller sizes."
            )


def bytes_of(shapes: Shapes) -> int:
    """The bytes of arrays of some shapes together."""
    return sum(prod(v.shape) * np.dtype(v.dtype).itemsize for v in shapes.values())


def _check_options(grid: Grid, plan: object, chunk: object, budget: object, reduce: object) -> None:
    """Raise ValueError for the options of `run` that are invalid."""
    if chunk is not None:
        check_positive_int("chunk", chunk)
    if budget is not None:
        memory.parse(budget)  # type: ignore[arg-type]
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


def _check_key(key: object) -> None:
    """Raise ValueError for a key that is not one typed threefry key."""
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


def _check_signature(measure: object, grid: Grid) -> None:
    """Raise ValueError if its signature does not allow the call `measure(key, **point)`."""
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


def _trace_corners(
    measurement: Measurement, grid: Grid, reduce: str | None
) -> tuple[jax.stages.Traced, dict[str, jax.stages.Traced]]:
    """Trace the measurement at the corners of a grid (`Grid.corners`), without compiling it.

    Raises:
        ValueError: the result is not a dict of arrays, an output has a name that is taken, its
            shape depends on a swept width, or complex numbers would need moments.

    Warns:
        EqualSeedsWarning: no output depends on the key.
    """
    top, bottom = grid.corners
    largest = measurement.traced_at_point(top)
    shapes = dict(largest.out_info)
    _check_names(shapes, grid, reduce)
    if grid.seeds > 1:
        _warn_of_equal_seeds(largest, grid.seeds)
    for choice in grid.chosen:
        others = dict(measurement.traced_at_point(choice).out_info)
        _check_same(shapes, others, choice.label, top.label)
    narrow = {dim: measurement.traced_at_point(corner) for dim, corner in bottom.items()}
    for dim, corner in narrow.items():
        low, high = (end.dims[dim].described(0) for end in (bottom[dim], top))
        _check_same(shapes, dict(corner.out_info), low, high)
    return largest, narrow


def _warn_of_equal_seeds(traced: jax.stages.Traced, seeds: int) -> None:
    """Warn if no output of a measurement depends on its key, which is its first argument."""
    try:
        depends = bool(reached(Program.from_traced(traced), {0}))
    except UnreadableProgramError:
        return
    if not depends:
        warnings.warn(
            f"measure does not use the key, so all {seeds} seeds give the same numbers; sample with"
            " that key, or take num_seeds=1.",
            EqualSeedsWarning,
            stacklevel=6,
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
        if reduce and quantity(name, shapes) != name:
            raise ValueError(f"The output {name!r} has the name of a moment of another; rename it.")
    taken = sorted(trailing & swept)
    if taken:
        raise ValueError(
            f"The swept name {taken[0]!r} is the dimension of an output; rename the swept argument."
        )
