"""What a measurement is estimated to cost before it is lowered: seconds, memory, and the length of its program.

The seconds weigh compiling against padding, and one bucket against another, in the same way in every process and every time; how long
a call takes is measured (`specjax.sweep.calls`). They are counted in the trace as XLA counts in a program, which takes far longer to
make: what operations read and write, and the products of matrix products. How long a `while_loop` is, is not known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import log, prod
from typing import NamedTuple

import jax
import numpy as np
from jax.extend import core

from specjax.spectral.one_by_one import DECOMPOSITIONS, decomposes
from specjax.sweep.grid import Grid
from specjax.sweep.jaxprs import INLINED

# FLOPs and bytes in a second, and the seconds that each operation of a program takes to compile: of two CPU cores, and of an accelerator.
# What operations read and write, each by itself, is mostly fused, and hence so fast.
_RATES = {"cpu": (1.5e11, 6e11, 1.5e-3)}
_ACCELERATOR = (2e13, 1.5e13, 7e-3)
# So many operations on each entry are what XLA makes of these; of most others it makes one.
_STEPS = {"random_bits": 50, "random_fold_in": 50, "erf_inv": 50}
# A decomposition of an m x n matrix, n <= m, takes about as long as so many times m n² FLOPs of what XLA does itself.
_DECOMPOSITION = 20
# Loops, by the parameters that hold their body and how many of its arguments stay the same.
_LOOPS = {"scan": ("jaxpr", "num_consts"), "while": ("body_jaxpr", "body_nconsts")}
_TURNS = 100  # of a loop whose length is not known: a short training, a few roots found


@dataclass(frozen=True)
class Cost:
    """The cost of one measurement at one point.

    Attributes:
        seconds: To run it.
        peak_bytes: What is alive at a time in the order of the program.
        working_bytes: What is gone over again and again: what is alive in the body of a loop where loops take more than half of the
            time, else `peak_bytes`.
        operations: Of its program, in which each call of a function counts: what compiling takes time for.
        lasts: Whether it may last, beside drawing its matrices: loops take more than half of the time, LAPACK decomposes, or the host
            is called back.
        decomposes: Whether LAPACK decomposes matrices in it.
    """

    seconds: float
    peak_bytes: float
    working_bytes: float
    operations: int
    lasts: bool
    decomposes: bool


@dataclass(frozen=True)
class Scaling:
    """A cost as a power law of the volume of dimensions: its value where all are largest, and for each dimension its largest volume and
    the exponent.
    """

    at_largest: float
    laws: Mapping[str, tuple[int, float]]

    def of(self, grid: Grid) -> float:
        """The cost of one seed at one point in the program of `grid`, whose points are padded to its largest widths."""
        shares = ((grid.dims[dim].volume / largest) ** exponent for dim, (largest, exponent) in self.laws.items())
        return self.at_largest * prod(shares)


@dataclass(frozen=True)
class CostModel:
    """The costs of one measurement in `seconds`, and `peak` and `working` bytes, the seconds to compile one bucket, and what `Cost` says
    of its largest program.
    """

    seconds: Scaling
    peak: Scaling
    working: Scaling
    compile_seconds: float
    lasts: bool
    decomposes: bool


def cost_model(
    grid: Grid, largest: jax.stages.Traced, narrow: Mapping[str, jax.stages.Traced], platform: str
) -> CostModel:
    """The costs at all points of a grid, from the measurement traced at its corners (`Grid.corners`), for e.g. the platform "cpu"."""
    top, low = cost(largest, platform), {dim: cost(traced, platform) for dim, traced in narrow.items()}

    def scaling(of: Callable[[Cost], float]) -> Scaling:
        laws = {}
        for dim, small in low.items():
            least, most = min(grid.dims[dim].volumes), max(grid.dims[dim].volumes)
            known = of(top) > 0 < of(small)
            laws[dim] = most, max(log(of(top) / of(small)) / log(most / least), 0.0) if known else 0.0
        return Scaling(float(of(top)), laws)

    return CostModel(
        seconds=scaling(lambda c: c.seconds),
        peak=scaling(lambda c: c.peak_bytes),
        working=scaling(lambda c: c.working_bytes),
        compile_seconds=top.operations * _RATES.get(platform, _ACCELERATOR)[2],
        lasts=top.lasts,
        decomposes=top.decomposes,
    )


def cost(traced: jax.stages.Traced, platform: str) -> Cost:
    """The cost of a traced function, from its trace alone: nothing is lowered, compiled or run."""
    jaxpr = traced.jaxpr.jaxpr
    work, peak = _work(jaxpr, _RATES.get(platform, _ACCELERATOR), {}), float(peak_bytes(jaxpr))
    loops = work.seconds > 2 * work.once
    found = [(eqn.params, *_LOOPS[eqn.primitive.name]) for eqn in _equations(jaxpr) if eqn.primitive.name in _LOOPS]
    steps = ((params[body].jaxpr, params[constant]) for params, body, constant in found)
    # In a step its own arrays are alive, and the carry and inputs, which are there before.
    alive = (peak_bytes(step) + sum(size(v.aval) for v in step.invars[constant:]) for step, constant in steps)
    calls_back, decomposed = any("callback" in eqn.primitive.name for eqn in _equations(jaxpr)), decomposes(jaxpr)
    return Cost(
        work.seconds,
        peak,
        working_bytes=float(max(alive)) if loops else peak,
        operations=work.operations,
        lasts=loops or calls_back or decomposed,
        decomposes=decomposed,
    )


class _Work(NamedTuple):
    """Seconds, those with the body of every loop only once, and operations."""

    seconds: float
    once: float
    operations: int


def _sum(works: Iterable[_Work]) -> _Work:
    return _Work(*map(sum, zip((0.0, 0.0, 0), *works, strict=True)))


def _work(jaxpr: core.Jaxpr, rates: tuple[float, float, float], known: dict[core.Jaxpr, _Work]) -> _Work:
    """The work of a program; `known` is that of what is called in it."""
    if jaxpr not in known:
        known[jaxpr] = _sum(_of_equation(eqn, rates, known) for eqn in jaxpr.eqns)
    return known[jaxpr]


def _of_equation(eqn: core.JaxprEqn, rates: tuple[float, float, float], known: dict[core.Jaxpr, _Work]) -> _Work:
    name, (flops, moved, _) = eqn.primitive.name, rates
    inner = [_work(each, rates, known) for each in core.jaxprs_in_params(eqn.params)]
    if name in _LOOPS:
        body = _sum(inner)
        return body._replace(seconds=eqn.params.get("length", _TURNS) * body.seconds)
    if name == "cond":
        return _Work(*map(max, zip(*inner, strict=True)))
    if name in INLINED:
        return _sum(inner)
    # What else has programs in it calls them, or takes them for its entries, and then they are small.
    steps, read_and_written = _STEPS.get(name, 1), sum(size(v.aval) for v in (*eqn.invars, *eqn.outvars))
    seconds = steps * (_flops(eqn) / flops + read_and_written / moved)
    return _sum([*inner, _Work(seconds, seconds, steps)])


def _flops(eqn: core.JaxprEqn) -> float:
    """Of an operation, one for each entry of its results where it is neither a matrix product nor a decomposition."""
    shape = getattr(eqn.invars[0].aval, "shape", ()) if eqn.invars else ()
    entries = float(sum(prod(getattr(v.aval, "shape", ())) for v in eqn.outvars))
    if eqn.primitive.name == "dot_general":
        return 2 * entries * prod(shape[axis] for axis in eqn.params["dimension_numbers"][0][0])
    if eqn.primitive.name in DECOMPOSITIONS and len(shape) > 1:
        return float(_DECOMPOSITION * prod(shape) * min(shape[-2:]))
    return entries


def peak_bytes(jaxpr: core.Jaxpr) -> int:
    """The most bytes alive at once if every operation writes its result and results are freed after their last use.

    Fusion lowers it and parallel execution raises it: a guess at the right size of a chunk, which XLA's memory analysis then checks.
    """
    return _peak(jaxpr, {})


def _peak(jaxpr: core.Jaxpr, known: dict[core.Jaxpr, int]) -> int:
    if jaxpr in known:
        return known[jaxpr]
    last_use = {v: i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if isinstance(v, core.Var)}
    last_use |= {v: len(jaxpr.eqns) for v in jaxpr.outvars if isinstance(v, core.Var)}
    alive = peak = 0
    freed_at: dict[int, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        inside = max((_peak(inner, known) for inner in core.jaxprs_in_params(eqn.params)), default=0)
        written = sum(size(v.aval) for v in eqn.outvars)
        for v in eqn.outvars:
            freed_at[last_use.get(v, i)] = freed_at.get(last_use.get(v, i), 0) + size(v.aval)
        alive += written
        peak = max(peak, alive + max(0, inside - written))
        alive -= freed_at.pop(i, 0)
    known[jaxpr] = peak
    return peak


def _equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """The equations of `jaxpr` and of what is called in it, without those in loops."""
    for eqn in jaxpr.eqns:
        yield eqn
        if eqn.primitive.name not in _LOOPS:
            for inner in core.jaxprs_in_params(eqn.params):
                yield from _equations(inner)


def size(aval: object) -> int:
    """Bytes of an array; a key counts as the two words of its data; tokens and the like have no shape."""
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return int(np.prod(shape)) * getattr(dtype, "itemsize", 0)
