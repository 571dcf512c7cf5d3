"""Estimate the cost of a measurement before it is lowered: seconds, memory, program length.

The seconds weigh compiling against padding, and one bucket against another. They are the same in
every process and run; the length of a call is measured instead (`specjax.sweep._dispatch`). They
are counted in the trace, as XLA counts them in a lowered program, which takes far longer to make:
bytes read and written, and products of matrix products. The length of a `while_loop` is unknown.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import log, prod
from typing import Any, NamedTuple

import jax
import numpy as np

from specjax.programs import (
    DECOMPOSITIONS,
    Equation,
    Program,
    UnreadableProgramError,
    UnreadableProgramWarning,
    decomposes,
    dtype_of,
    is_variable,
    scan,
    shape_of,
    while_loop,
)
from specjax.sweep._grid import Grid

# FLOPs per second, bytes per second, and seconds to compile one operation: of two CPU cores, and of
# an accelerator. Each operation counts its own reads and writes; most are fused, hence the high
# rate.
_RATES = {"cpu": (1.5e11, 6e11, 1.5e-3)}
_ACCELERATOR = (2e13, 1.5e13, 7e-3)
# XLA expands these primitives into this many operations on each entry; most others are one.
_STEPS = {"random_bits": 50, "random_fold_in": 50, "erf_inv": 50}
# A decomposition of an m x n matrix, n <= m, takes about as long as this many times m n² FLOPs of
# XLA's own operations.
_DECOMPOSITION = 20
_TURNS = 100  # assumed for a loop of unknown length: a short training, a few roots


@dataclass(frozen=True)
class Cost:
    """The cost of one measurement at one point.

    Attributes:
        seconds: Time to run it.
        peak_bytes: Largest number of bytes alive at once, in the order of the program.
        working_bytes: Bytes alive in the body of a loop if loops take more than half of the time,
            since these are read again and again; else `peak_bytes`.
        operations: Operations of its program, counted in each call of a function, which set the
            time to compile.
        largest_product: Bytes of the largest result of a matrix product or decomposition, which no
            fusion keeps out of memory.
        lasts: Whether it may run long: loops take more than half of the time, LAPACK decomposes, or
            it calls back to the host.
        decomposes: Whether it decomposes matrices by LAPACK.
        reason: Why its trace could not be read; None if it was.
    """

    seconds: float
    peak_bytes: float
    working_bytes: float
    operations: int
    largest_product: int
    lasts: bool
    decomposes: bool
    reason: str | None = None


@dataclass(frozen=True)
class Scaling:
    """A cost as a power law in the volumes of dimensions.

    `at_largest` is its value where all volumes are largest. `laws` has the largest volume and the
    exponent of each dimension.
    """

    at_largest: float
    laws: Mapping[str, tuple[int, float]]

    def cost(self, grid: Grid) -> float:
        """The cost of one seed at one point of `grid`, padded to its largest widths."""
        shares = (
            (grid.dims[dim].volume / largest) ** exponent
            for dim, (largest, exponent) in self.laws.items()
        )
        return self.at_largest * prod(shares)


@dataclass(frozen=True)
class CostModel:
    """The cost of one measurement as a function of the grid.

    `seconds`, and `peak` and `working` bytes, scale with the volumes. `compile_seconds` is for one
    bucket. The other fields are those of `Cost` for the largest program. `is_known` is false if
    there is no estimate to compare plans by.
    """

    seconds: Scaling
    peak: Scaling
    working: Scaling
    compile_seconds: float
    lasts: bool
    decomposes: bool
    is_known: bool = True
    largest_product: int = 0


def cost_model(
    grid: Grid, largest: jax.stages.Traced, narrow: Mapping[str, jax.stages.Traced], platform: str
) -> CostModel:
    """Fit the costs at all points of a grid to those at its corners (`Grid.corners`).

    Args:
        grid: The grid.
        largest: The measurement traced at the largest corner.
        narrow: The measurement traced at the corner of each dimension.
        platform: The platform, e.g. "cpu".

    Warns:
        UnreadableProgramWarning: the trace cannot be read, so that the costs come from XLA, or are
            unknown.
    """
    top = cost(largest, platform)
    low = {dim: cost(traced, platform) for dim, traced in narrow.items()}
    if top.reason is not None:
        instead = (
            "The plan follows XLA's estimate"
            if top.seconds
            else "Each width is a program of its own"
        )
        warnings.warn(
            f"{top.reason} {instead}; results do not depend on it.",
            UnreadableProgramWarning,
            stacklevel=5,
        )

    def scaling(field: str) -> Scaling:
        laws, at_largest = {}, getattr(top, field)
        for dim, corner in low.items():
            least, most = min(grid.dims[dim].volumes), max(grid.dims[dim].volumes)
            exponent, smaller = 0.0, getattr(corner, field)
            if at_largest > 0 < smaller:
                exponent = max(log(at_largest / smaller) / log(most / least), 0.0)
            laws[dim] = most, exponent
        return Scaling(float(at_largest), laws)

    return CostModel(
        seconds=scaling("seconds"),
        peak=scaling("peak_bytes"),
        working=scaling("working_bytes"),
        compile_seconds=top.operations * _RATES.get(platform, _ACCELERATOR)[2],
        largest_product=top.largest_product,
        lasts=top.lasts,
        decomposes=top.decomposes,
        is_known=top.reason is None or top.seconds > 0,
    )


def cost(traced: jax.stages.Traced, platform: str) -> Cost:
    """The cost of a traced function, from its trace: nothing is lowered, compiled or run.

    A trace that cannot be read is lowered, and the cost comes from XLA's own analysis of that
    program. It knows less: a loop counts as one turn.
    """
    try:
        return _traced_cost(Program.of(traced), platform)
    except UnreadableProgramError as error:
        return _lowered_cost(traced.lower(), platform, str(error))


def _traced_cost(program: Program, platform: str) -> Cost:
    work, peak = _work(program, _RATES.get(platform, _ACCELERATOR), {}), float(peak_bytes(program))
    is_mostly_loops = work.seconds > 2 * work.once
    calls_back = any("callback" in equation.name for equation in _equations(program))
    decomposed = decomposes(program)
    alive = (_alive_in_step(equation) for equation in _equations(program))
    products = (
        equation
        for equation in _equations(program)
        if equation.name in ("dot_general", *DECOMPOSITIONS)
    )
    return Cost(
        work.seconds,
        peak,
        working_bytes=float(max(alive)) if is_mostly_loops else peak,
        operations=work.operations,
        largest_product=max(
            (bytes_of(v) for equation in products for v in equation.outputs), default=0
        ),
        lasts=is_mostly_loops or calls_back or decomposed,
        decomposes=decomposed,
    )


def _lowered_cost(lowered: jax.stages.Lowered, platform: str, reason: str) -> Cost:
    """The cost by XLA's analysis of a program; without seconds if XLA has no analysis."""
    found, text = lowered.cost_analysis() or {}, lowered.as_text()
    flops, moved, _ = _RATES.get(platform, _ACCELERATOR)
    is_known = {"flops", "bytes accessed"} <= set(found)
    accessed = float(found["bytes accessed"]) if is_known else 0.0
    return Cost(
        found["flops"] / flops + accessed / moved if is_known else 0.0,
        # An upper bound if nothing is read again.
        peak_bytes=accessed,
        working_bytes=accessed,
        operations=text.count(" = "),
        largest_product=0,
        lasts="stablehlo.while" in text or "callback" in text or "@lapack" in text,
        decomposes="@lapack" in text,
        reason=reason,
    )


class _Work(NamedTuple):
    """Seconds, seconds with the body of every loop counted once, and operations."""

    seconds: float
    once: float
    operations: int


def _sum(works: Iterable[_Work]) -> _Work:
    return _Work(*map(sum, zip((0.0, 0.0, 0), *works, strict=True)))


def _work(
    program: Program, rates: tuple[float, float, float], known: dict[Program, _Work]
) -> _Work:
    """The work of a program; `known` caches the work of the programs it calls."""
    if program not in known:
        known[program] = _sum(
            _equation_work(equation, rates, known) for equation in program.equations
        )
    return known[program]


def _equation_work(
    equation: Equation, rates: tuple[float, float, float], known: dict[Program, _Work]
) -> _Work:
    inner = [_work(body, rates, known) for body in equation.bodies]
    if equation.name in ("scan", "while"):
        turns = equation.parameters["length"] if equation.name == "scan" else _TURNS
        body = _sum(inner)
        return body._replace(seconds=turns * body.seconds)
    if equation.branches:
        return _Work(*map(max, zip(*inner, strict=True)))
    if equation.called:
        return _sum(inner)
    # Other primitives apply their programs to each entry, and those are small.
    atoms, steps = (*equation.inputs, *equation.outputs), _STEPS.get(equation.name, 1)
    flops, moved, _ = rates
    seconds = steps * (_flops(equation) / flops + sum(map(bytes_of, atoms)) / moved)
    return _sum([*inner, _Work(seconds, seconds, steps)])


def _flops(equation: Equation) -> float:
    """The FLOPs of an operation; one per entry of its results if it has no formula."""
    shape = shape_of(equation.inputs[0]) if equation.inputs else ()
    entries = float(sum(prod(shape_of(variable)) for variable in equation.outputs))
    if equation.name == "dot_general":
        contracted = equation.parameters["dimension_numbers"][0][0]
        return 2 * entries * prod(shape[axis] for axis in contracted)
    if equation.name in DECOMPOSITIONS and len(shape) > 1:
        return float(_DECOMPOSITION * prod(shape) * min(shape[-2:]))
    return entries


def peak_bytes(program: Program) -> int:
    """The most bytes alive at once if every operation writes its result and frees its last uses.

    Fusion lowers it and parallel execution raises it. It is a guess at the right size of a chunk,
    which XLA's memory analysis checks later.
    """
    return _peak(program, {})


def _peak(program: Program, known: dict[Program, int]) -> int:
    if program in known:
        return known[program]
    equations = program.equations
    last_use = {
        v: i for i, equation in enumerate(equations) for v in equation.inputs if is_variable(v)
    }
    last_use |= {v: len(equations) for v in program.outputs if is_variable(v)}
    alive = peak = 0
    freed_at: dict[int, int] = {}
    for i, equation in enumerate(equations):
        inside = max((_peak(body, known) for body in equation.bodies), default=0)
        written = sum(map(bytes_of, equation.outputs))
        for v in equation.outputs:
            freed_at[last_use.get(v, i)] = freed_at.get(last_use.get(v, i), 0) + bytes_of(v)
        alive += written
        peak = max(peak, alive + max(0, inside - written))
        alive -= freed_at.pop(i, 0)
    known[program] = peak
    return peak


def _alive_in_step(equation: Equation) -> int:
    """Bytes alive in a step of a loop, with its carry and entries of xs; 0 if it is not a loop."""
    loop, turns = scan(equation), while_loop(equation)
    if loop:
        body, consts = loop.body, loop.consts
    elif turns:
        body, consts = turns.body, turns.body_consts
    else:
        return 0
    return peak_bytes(body) + sum(map(bytes_of, body.inputs[consts:]))


def _equations(program: Program) -> Iterator[Equation]:
    """The equations of a program and of the programs it calls, without the bodies of loops."""
    for equation in program.equations:
        yield equation
        if equation.name not in ("scan", "while"):
            for body in equation.bodies:
                yield from _equations(body)


def bytes_of(atom: Any) -> int:
    """Bytes of an array; a key counts as the two words of its data; tokens have no shape."""
    return int(np.prod(shape_of(atom))) * getattr(dtype_of(atom), "itemsize", 0)
