"""What a measurement is estimated to cost before it is compiled: seconds, memory, and the length of its program.

The seconds weigh compiling against padding, and one bucket against another, in the same way in every process and every time; how long
a call takes is measured (`specjax.sweep.calls`). XLA counts the body of a loop once. The length of a `scan` is known, so here its
body counts that many times; that of a `while_loop` is not.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import log, prod

import jax
import numpy as np
from jax.extend import core

from specjax.spectral.one_by_one import DECOMPOSITIONS, decomposes
from specjax.sweep.grid import Grid

# FLOPs and bytes in a second, and the seconds that each operation of a program takes to compile: of two CPU cores, and of an accelerator.
# What operations read and write, each by itself, is mostly fused, and hence so fast.
_RATES = {"cpu": (1.5e11, 6e11, 1e-3)}
_ACCELERATOR = (2e13, 1.5e13, 5e-3)
# A decomposition of an m x n matrix, n <= m, takes about as long as so many times m n² FLOPs of what XLA does itself.
_DECOMPOSITION = 20
_TURNS = 100  # of a loop whose length is not known: a short training, a few roots found


@dataclass(frozen=True)
class Cost:
    """The cost of one measurement at one point.

    Attributes:
        seconds: To run it.
        peak_bytes: What is alive at a time in the order of the program.
        working_bytes: What is gone over again and again: what is alive in the body of a loop where loops take more than half of the
            time, else `peak_bytes`.
        operations: The lines of its StableHLO text, which is what compiling takes time for.
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
    """The cost of a traced function, from its program alone: nothing is compiled or run."""
    jaxpr, lowered = traced.jaxpr.jaxpr, traced.lower()
    once = _seconds(lowered, platform)
    seconds, peak = _with_loops(jaxpr, once, platform), float(peak_bytes(jaxpr))
    loops = seconds > 2 * (once + _decompositions(jaxpr, platform))
    calls_back, decomposed = any("callback" in eqn.primitive.name for eqn in _equations(jaxpr)), decomposes(jaxpr)
    return Cost(
        seconds,
        peak,
        working_bytes=max(_step_bytes(body, consts) for body, consts, _ in _loops(jaxpr)) if loops else peak,
        operations=lowered.as_text().count("\n"),
        lasts=loops or calls_back or decomposed,
        decomposes=decomposed,
    )


def _seconds(lowered: jax.stages.Lowered, platform: str) -> float:
    """By XLA's count, the body of a loop once and decompositions not at all."""
    counted, (flops, moved, _) = lowered.cost_analysis() or {}, _RATES.get(platform, _ACCELERATOR)
    # XLA says -1 where it knows nothing, as of a callback.
    return float(max(counted.get("flops", 0.0), 0.0) / flops + max(counted.get("bytes accessed", 0.0), 0.0) / moved)


def _with_loops(jaxpr: core.Jaxpr, once: float, platform: str) -> float:
    """The seconds where XLA counts `once`, with the body of a loop as often as it is long, and with decompositions."""
    seconds = once + _decompositions(jaxpr, platform)
    for body, _, length in _loops(jaxpr):
        arguments = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in body.jaxpr.invars]
        # The body has its dtypes from where it was traced, which may have been a float64 scope.
        with jax.enable_x64(True):
            step = jax.jit(core.jaxpr_as_fun(body)).trace(*arguments)
            counted = _seconds(step.lower(), platform)
        seconds += length * _with_loops(step.jaxpr.jaxpr, counted, platform) - counted
    return seconds


def _decompositions(jaxpr: core.Jaxpr, platform: str) -> float:
    """The seconds of decompositions outside loops."""
    decomposed = (eqn.invars[0].aval for eqn in _equations(jaxpr) if eqn.primitive.name in DECOMPOSITIONS)
    shapes = [getattr(aval, "shape", ()) for aval in decomposed]
    flops = sum(_DECOMPOSITION * prod(shape) * min(shape[-2:]) for shape in shapes if len(shape) > 1)
    return float(flops / _RATES.get(platform, _ACCELERATOR)[0])


def _step_bytes(body: core.ClosedJaxpr, consts: int) -> float:
    """What is alive in a step of a loop: its own arrays, and the carry and inputs, which are there before."""
    return float(peak_bytes(body.jaxpr) + sum(size(v.aval) for v in body.jaxpr.invars[consts:]))


def peak_bytes(jaxpr: core.Jaxpr) -> int:
    """The most bytes alive at once if every operation writes its result and results are freed after their last use.

    Fusion lowers it and parallel execution raises it: a guess at the right size of a chunk, which XLA's memory analysis then checks.
    """
    last_use = {v: i for i, eqn in enumerate(jaxpr.eqns) for v in eqn.invars if isinstance(v, core.Var)}
    last_use |= {v: len(jaxpr.eqns) for v in jaxpr.outvars if isinstance(v, core.Var)}
    alive = peak = 0
    freed_at: dict[int, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        inside = max((peak_bytes(inner) for inner in core.jaxprs_in_params(eqn.params)), default=0)
        written = sum(size(v.aval) for v in eqn.outvars)
        for v in eqn.outvars:
            freed_at[last_use.get(v, i)] = freed_at.get(last_use.get(v, i), 0) + size(v.aval)
        alive += written
        peak = max(peak, alive + max(0, inside - written))
        alive -= freed_at.pop(i, 0)
    return peak


def _loops(jaxpr: core.Jaxpr) -> Iterator[tuple[core.ClosedJaxpr, int, int]]:
    """The body of each of the outermost loops of `jaxpr`, how many of its arguments stay the same, and how long it is."""
    for eqn in _equations(jaxpr):
        if eqn.primitive.name == "scan":
            yield eqn.params["jaxpr"], eqn.params["num_consts"], eqn.params["length"]
        elif eqn.primitive.name == "while":
            yield eqn.params["body_jaxpr"], eqn.params["body_nconsts"], _TURNS


def _equations(jaxpr: core.Jaxpr) -> Iterator[core.JaxprEqn]:
    """The equations of `jaxpr` and of what is called in it, without those in loops."""
    for eqn in jaxpr.eqns:
        yield eqn
        if eqn.primitive.name not in ("scan", "while"):
            for inner in core.jaxprs_in_params(eqn.params):
                yield from _equations(inner)


def size(aval: object) -> int:
    """Bytes of an array; a key counts as the two words of its data; tokens and the like have no shape."""
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return int(np.prod(shape)) * getattr(dtype, "itemsize", 0)
