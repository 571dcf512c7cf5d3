"""What a measurement is estimated to cost before it is lowered: seconds, memory, and the length of
its program.

The seconds weigh compiling against padding, and one bucket against another, in the same way in
every process and every time; how long a call takes is measured (`specjax.sweep.dispatch`). They are
counted in the trace as XLA counts in a program, which takes far longer to make: what operations
read and write, and the products of matrix products. How long a `while_loop` is, is not known.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from specjax.sweep.grid import Grid

# FLOPs and bytes in a second, and the seconds that each operation of a program takes to compile: of
# two CPU cores, and of an accelerator. What operations read and write, each by itself, is mostly
# fused, and hence so fast.
_RATES = {"cpu": (1.5e11, 6e11, 1.5e-3)}
_ACCELERATOR = (2e13, 1.5e13, 7e-3)
# So many operations on each entry are what XLA makes of these; of most others it makes one.
_STEPS = {"random_bits": 50, "random_fold_in": 50, "erf_inv": 50}
# A decomposition of an m x n matrix, n <= m, takes about as long as so many times m n² FLOPs of
# what XLA does itself.
_DECOMPOSITION = 20
_TURNS = 100  # of a loop whose length is not known: a short training, a few roots found


@dataclass(frozen=True)
class Cost:
    """The cost of one measurement at one point.

    Attributes:
        seconds: To run it.
        peak_bytes: What is alive at a time in the order of the program.
        working_bytes: What is gone over again and again: what is alive in the body of a loop where
            loops take more than half of the time, else `peak_bytes`.
        operations: Of its program, in which each call of a function counts: what compiling takes
            time for.
        largest_product: Bytes of the largest result of a matrix product or decomposition, which no
            fusion keeps out of memory.
        lasts: Whether it may last, beside drawing its matrices: loops take more than half of the
            time, LAPACK decomposes, or the host is called back.
        decomposes: Whether LAPACK decomposes matrices in it.
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
    """A cost as a power law of the volume of dimensions: its value where all are largest, and for
    each dimension its largest volume and the exponent.
    """

    at_largest: float
    laws: Mapping[str, tuple[int, float]]

    def of(self, grid: Grid) -> float:
        """The cost of one seed at one point in the program of `grid`, whose points are padded to
        its largest widths.
        """
        shares = (
            (grid.dims[dim].volume / largest) ** exponent
            for dim, (largest, exponent) in self.laws.items()
        )
        return self.at_largest * prod(shares)


@dataclass(frozen=True)
class CostModel:
    """The costs of one measurement in `seconds`, and `peak` and `working` bytes, the seconds to
    compile one bucket, and what `Cost` says of its largest program. `is_known` is false where there
    is nothing to compare plans by.
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
    """The costs at all points of a grid, from the measurement traced at its corners
    (`Grid.corners`), for e.g. the platform "cpu".

    Warns:
        UnreadableProgramWarning: the trace cannot be read, so that the costs come from XLA, or are
            not known at all.
    """
    top, low = (
        cost(largest, platform),
        {dim: cost(traced, platform) for dim, traced in narrow.items()},
    )
    if top.reason is not None:
        instead = (
            "The plan follows XLA's estimate"
            if top.seconds
            else "Each width is a program of its own"
        )
        warnings.warn(
            f"{top.reason} {instead}; results do not depend on it.",
            UnreadableProgramWarning,
            stacklevel=3,
        )

    def scaling(of: Callable[[Cost], float]) -> Scaling:
        laws = {}
        for dim, small in low.items():
            least, most = min(grid.dims[dim].volumes), max(grid.dims[dim].volumes)
            known = of(top) > 0 < of(small)
            laws[dim] = (
                most,
                (max(log(of(top) / of(small)) / log(most / least), 0.0) if known else 0.0),
            )
        return Scaling(float(of(top)), laws)

    return CostModel(
        seconds=scaling(lambda c: c.seconds),
        peak=scaling(lambda c: c.peak_bytes),
        working=scaling(lambda c: c.working_bytes),
        compile_seconds=top.operations * _RATES.get(platform, _ACCELERATOR)[2],
        largest_product=top.largest_product,
        lasts=top.lasts,
        decomposes=top.decomposes,
        is_known=top.reason is None or top.seconds > 0,
    )


def cost(traced: jax.stages.Traced, platform: str) -> Cost:
    """The cost of a traced function: from its trace, for which nothing is lowered, compiled or run.

    A trace that cannot be read is lowered, and XLA's own analysis of that program says less: loops
    count as one turn.
    """
    try:
        return _of_trace(Program.of(traced), platform)
    except UnreadableProgramError as error:
        return _of_lowered(traced.lower(), platform, str(error))


def _of_trace(program: Program, platform: str) -> Cost:
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


def _of_lowered(lowered: jax.stages.Lowered, platform: str, reason: str) -> Cost:
    """The cost by XLA's analysis of a program, of which no more is known than `reason` says;
    without seconds where it has no analysis.
    """
    found, text = lowered.cost_analysis() or {}, lowered.as_text()
    flops, moved, _ = _RATES.get(platform, _ACCELERATOR)
    is_known = {"flops", "bytes accessed"} <= set(found)
    accessed = float(found["bytes accessed"]) if is_known else 0.0
    return Cost(
        found["flops"] / flops + accessed / moved if is_known else 0.0,
        # An upper bound where nothing is gone over again.
        peak_bytes=accessed,
        working_bytes=accessed,
        operations=text.count(" = "),
        largest_product=0,
        lasts="stablehlo.while" in text or "callback" in text or "@lapack" in text,
        decomposes="@lapack" in text,
        reason=reason,
    )


class _Work(NamedTuple):
    """Seconds, those with the body of every loop only once, and operations."""

    seconds: float
    once: float
    operations: int


def _sum(works: Iterable[_Work]) -> _Work:
    return _Work(*map(sum, zip((0.0, 0.0, 0), *works, strict=True)))


def _work(
    program: Program, rates: tuple[float, float, float], known: dict[Program, _Work]
) -> _Work:
    """The work of a program; `known` is that of what is called in it."""
    if program not in known:
        known[program] = _sum(
            _of_equation(equation, rates, known) for equation in program.equations
        )
    return known[program]


def _of_equation(
    equation: Equation, rates: tuple[float, float, float], known: dict[Program, _Work]
) -> _Work:
    inner = [_work(body, rates, known) for body in equation.bodies]
    if equation.name in ("scan", "while"):
        turns, body = (
            equation.parameters["length"] if equation.name == "scan" else _TURNS,
            _sum(inner),
        )
        return body._replace(seconds=turns * body.seconds)
    if equation.branches:
        return _Work(*map(max, zip(*inner, strict=True)))
    if equation.called:
        return _sum(inner)
    # What else has programs in it takes them for its entries, and then they are small.
    atoms, steps = (*equation.inputs, *equation.outputs), _STEPS.get(equation.name, 1)
    flops, moved, _ = rates
    seconds = steps * (_flops(equation) / flops + sum(map(bytes_of, atoms)) / moved)
    return _sum([*inner, _Work(seconds, seconds, steps)])


def _flops(equation: Equation) -> float:
    """Of an operation, one for each entry of its results where it is neither a matrix product nor a
    decomposition.
    """
    shape = shape_of(equation.inputs[0]) if equation.inputs else ()
    entries = float(sum(prod(shape_of(variable)) for variable in equation.outputs))
    if equation.name == "dot_general":
        return (
            2
            * entries
            * prod(shape[axis] for axis in equation.parameters["dimension_numbers"][0][0])
        )
    if equation.name in DECOMPOSITIONS and len(shape) > 1:
        return float(_DECOMPOSITION * prod(shape) * min(shape[-2:]))
    return entries


def peak_bytes(program: Program) -> int:
    """The most bytes alive at once if every operation writes its result and results are freed after
    their last use.

    Fusion lowers it and parallel execution raises it: a guess at the right size of a chunk, which
    XLA's memory analysis then checks.
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
    """What is alive in a step of a loop: its own arrays, and the carry and entries of xs, which are
    there before. 0 for what is no loop.
    """
    loop, turns = scan(equation), while_loop(equation)
    body, consts = (
        (loop.body, loop.consts)
        if loop
        else (turns.body, turns.body_consts)
        if turns
        else (None, 0)
    )
    return peak_bytes(body) + sum(map(bytes_of, body.inputs[consts:])) if body else 0


def _equations(program: Program) -> Iterator[Equation]:
    """The equations of a program and of what is called in it, without those in loops."""
    for equation in program.equations:
        yield equation
        if equation.name not in ("scan", "while"):
            for body in equation.bodies:
                yield from _equations(body)


def bytes_of(atom: Any) -> int:
    """Bytes of an array; a key counts as the two words of its data; tokens and the like have no
    shape.
    """
    return int(np.prod(shape_of(atom))) * getattr(dtype_of(atom), "itemsize", 0)
