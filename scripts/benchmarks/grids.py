"""Two sweeps as users run them, `specjax.sweep.run` against a loop over the grid of functions that
are jitted once for each width.

* training: a network of three layers, its hidden widths, Muon's learning rates and seeds; the loss
  after `--steps` steps.
* decompositions: the largest singular value and the nuclear norm of a gradient of a three-layer
  tanh network, over widths and seeds.

The loop calls its function for one seed and one rate at a time, and waits for results at its end.
Before timing, the results are compared: at each width every value is within `--rtol` of the root
mean square. Times are medians over `--repeats` rounds of both sides, with tracing and compilation
(from empty caches) and without. `sweep.run` traces, plans and compiles in every call, and runs
buckets while the programs of later ones compile: its time without is the `run_seconds` of a call
that reads its programs from a cache.

A bound is a ratio that no engine exceeds which makes and computes these programs as here: the
processor time of tracing, lowering, LLVM and the seeds, over all cores, by the best of all ways to
pad neighbouring widths to one program, each program by the one of XLA's emitters, and with points
one by one or as many at a time as there are seeds, that makes and computes it soonest. Where one
program serves all widths, its seeds wait for it, and where one is padded another checks that
padding is no part of the measurement. Planning costs nothing in it, and no core waits but for the
first program that is traced and lowered, which Python does on one core while there is nothing else
to do. It is measured in every round, with the loop of that round; the smallest and the largest are
in brackets.

`by hand` is the ratio that one program reaches which a person writes: all widths padded to the
largest, traced, lowered, compiled and called once, in the quickest of these ways, in elapsed
seconds. It has no plan, no check of padding, no store and no labels. The last columns are of
`sweep.run`: the padding of its plan, and how many cores it keeps busy, compilation included.

    python scripts/benchmarks/grids.py [--smoke]
"""

import argparse
import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array
from timing import compiled_before, machine, table

from specjax import optim, sweep
from specjax.models import mlp
from specjax.optim import Fans
from specjax.sizes import AnySize, Size
from specjax.sweep.xla_options import xla_options

INPUTS, OUTPUTS, SAMPLES = 32, 8, 64


@dataclass(frozen=True)
class Grid:
    """A measurement and its grid; without `rates` it takes none."""

    measure: Callable[..., dict[str, Array]]
    widths: Sequence[int]
    rates: Sequence[float]
    seeds: int

    @property
    def over(self) -> dict[str, sweep.axes.Axis]:
        """The swept arguments."""
        rates = {"lr": sweep.values(*self.rates)} if self.rates else {}
        return {"d": sweep.widths(*self.widths), **rates}


def batch() -> tuple[Array, Array]:
    """Inputs and targets, the same everywhere."""
    of_x, of_y = jax.random.split(jax.random.key(1))
    return jax.random.normal(of_x, (SAMPLES, INPUTS)), jax.random.normal(of_y, (SAMPLES, OUTPUTS))


def training(steps: int) -> Callable[..., dict[str, Array]]:
    """The loss of a network after so many steps of Muon."""
    data = batch()

    def measure(key: Array, d: AnySize, lr: Array) -> dict[str, Array]:
        params = mlp.init(key, (INPUTS, d, d, OUTPUTS))
        optimizer = optim.jordan_muon(lr, sizes=(Fans(INPUTS, d), Fans(d, d), Fans(d, OUTPUTS)))

        def step(
            carry: tuple[mlp.Params, optax.OptState], _: None
        ) -> tuple[tuple[mlp.Params, optax.OptState], None]:
            params, state = carry
            updates, state = optimizer.update(jax.grad(mlp.loss)(params, data), state, params)
            return (optax.apply_updates(params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=steps)
        return {"loss": mlp.loss(params, data)}

    return measure


def decompositions(key: Array, d: AnySize) -> dict[str, Array]:
    """Singular values of the gradient of the middle layer."""
    params = mlp.init(key, (INPUTS, d, d, OUTPUTS), "tanh")
    gradient = jax.grad(mlp.loss)(params, batch(), "tanh")[1]
    values = jnp.linalg.svd(gradient, compute_uv=False)
    return {"largest": values[0], "nuclear": jnp.sum(values)}


def loop(grid: Grid, key: Array) -> Callable[[], dict[str, np.ndarray]]:
    """Newly jitted functions of one seed and one rate, one for each width."""

    def at_width(d: int) -> Callable[..., dict[str, Array]]:
        return jax.jit(lambda seed, *rate: grid.measure(jax.random.fold_in(key, seed), d, *rate))

    programs = [at_width(d) for d in grid.widths]
    rates = [(np.float32(rate),) for rate in grid.rates] or [()]

    def run() -> dict[str, np.ndarray]:
        with jax.default_matmul_precision("highest"):
            results = [
                [[program(np.uint32(seed), *rate) for seed in range(grid.seeds)] for rate in rates]
                for program in programs
            ]
        shape = (len(programs), *([len(rates)] if grid.rates else []), grid.seeds)
        leaves = [one for of_width in results for of_rate in of_width for one in of_rate]
        return {name: np.array([one[name] for one in leaves]).reshape(shape) for name in leaves[0]}

    return run


@dataclass(frozen=True)
class Spent:
    """Seconds of one program: of processors for making it and for computing all its seeds; until it
    is made, until it is lowered, and until it was made and called once.
    """

    making: float
    computing: float
    made: float
    lowered: float
    called: float

    @property
    def both(self) -> float:
        """Of processors, for making and computing."""
        return self.making + self.computing


def least(grid: Grid, key: Array) -> tuple[float, float, float]:
    """Seconds that no plan goes below: of making programs and computing together, and of computing
    alone; and those by hand.
    """
    cores, widths = os.cpu_count() or 1, grid.widths
    made = [spent(grid, key, (d,), d) for d in widths]
    computing = sum(min(way.computing for way in ways) for ways in made)
    alone = [min(ways, key=lambda way: way.both) for ways in made]
    waiting = spent(grid, key, widths, widths[-1])
    # Contiguous groups, each padded to its largest width: best[j] is the least of the first j
    # widths.
    best = [0.0]
    for j in range(1, len(widths) + 1):
        found = best[j - 1] + alone[j - 1].both
        for i in range(j - 1):
            # Each narrower point takes at least as long as one of the widest, and a program for
            # several as long as that of one.
            least_possible = best[i] + min(w.making + (j - i) * w.computing for w in made[j - 1])
            if j - i < len(widths) and least_possible < found:
                group = min(spent(grid, key, widths[i:j], widths[j - 1]), key=lambda way: way.both)
                found = min(found, best[i] + group.both)
        best.append(found)
    exact = sum(each.both for each in alone)
    # With one program for all, nothing is computed before it is there.
    check, lowered = checking(grid, key)
    # Until the first program is lowered, whichever it is, one core has something to do.
    waited = (cores - 1) * min(lowered, *(way.lowered for ways in (*made, waiting) for way in ways))
    served = (
        max(way.made + way.computing / cores, (check + way.both + waited) / cores)
        for way in waiting
    )
    both = min((exact + waited) / cores, (check + best[-1] + waited) / cores, *served)
    return both, computing / cores, min(way.called for way in waiting)


def checking(grid: Grid, key: Array) -> tuple[float, float]:
    """Processor seconds of making the program without padding with which a padded one is compared,
    and seconds until it is lowered.
    """
    start, busy = perf_counter(), process_time()
    with jax.default_matmul_precision("highest"):
        lowered = jax.jit(lambda key, *rate: grid.measure(key, grid.widths[0], *rate)).lower(
            key, *grid.rates[:1]
        )
    until = perf_counter() - start
    lowered.compile(xla_options(is_kept=False))
    return process_time() - busy, until


def spent(grid: Grid, key: Array, widths: Sequence[int], padded: int) -> list[Spent]:
    """What one program takes, which has these widths padded to one, in each way: traced, lowered,
    compiled, and run for all their seeds.
    """
    seeds, rates = np.arange(grid.seeds, dtype=np.uint32), np.float32(grid.rates or (0,))
    points = [axis.ravel() for axis in np.meshgrid(seeds, rates, np.int32(widths), indexing="ij")]
    found = []
    # LAPACK takes matrices one by one anyway.
    for size in (None, grid.seeds) if grid.rates else (None,):

        def at(point: tuple[Array, Array, Array]) -> dict[str, Array]:
            seed, rate, width = point
            d = padded if len(widths) == 1 else Size(padded, width)
            return grid.measure(jax.random.fold_in(key, seed), d, *((rate,) if grid.rates else ()))

        start, busy = perf_counter(), process_time()
        with jax.default_matmul_precision("highest"):
            lowered = jax.jit(
                lambda points, at=at, size=size: jax.lax.map(at, points, batch_size=size)
            ).lower(points)
        until = perf_counter() - start
        program = lowered.compile(xla_options(is_kept=True))
        made, making, computing = perf_counter() - start, process_time() - busy, []
        jax.block_until_ready(program(points))
        called = perf_counter() - start
        # The first call pages memory in, so it is not counted here.
        for _ in range(2):
            busy = process_time()
            jax.block_until_ready(program(points))
            computing.append(process_time() - busy)
        found.append(Spent(making, min(computing), made, until, called))
    return found


def check(name: str, data: xr.Dataset, looped: dict[str, np.ndarray], rtol: float) -> str:
    """Raises AssertionError unless every value agrees to `rtol` of the root mean square at its
    width.
    """
    worst = 0.0
    for output, values in looped.items():
        for one, other in zip(values, data[output].values, strict=True):
            worst = max(worst, float(np.max(np.abs(one - other)) / np.sqrt(np.mean(one**2))))
    assert worst <= rtol, f"{name}: the loop differs by {worst:.1e} of the root mean square."
    return f"{name}: largest difference {worst:.1e} of the root mean square"


class Parts:
    """Seconds that JAX counts of what it does, since the last `clear`; compilations side by side
    each count in full.
    """

    EVENTS = ("jaxpr_trace_duration", "jaxpr_to_mlir_module_duration", "backend_compile_duration")

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(self.EVENTS, 0.0)
        jax.monitoring.register_event_duration_secs_listener(self._add)

    def _add(self, event: str, seconds: float, **_: object) -> None:
        name = event.rpartition("/")[2]
        if name in self.seconds:
            self.seconds[name] += seconds

    def clear(self) -> None:
        """Counts anew."""
        self.seconds = dict.fromkeys(self.EVENTS, 0.0)


def parts(name: str, grid: Grid, key: Array, counted: Parts) -> tuple[str, ...]:
    """What a call of `sweep.run` is made of."""
    jax.clear_caches()
    counted.clear()
    start = perf_counter()
    data = sweep.run(grid.measure, grid.over, num_seeds=grid.seeds, key=key, progress=False)
    whole = perf_counter() - start
    return (
        name,
        *(
            f"{value:.2f}"
            for value in (whole, *counted.seconds.values(), data.attrs["run_seconds"])
        ),
    )


def row(name: str, grid: Grid, key: Array, repeats: int) -> tuple[str, ...]:
    """Times one grid on both sides and by the bound, in turn."""
    rounds: list[tuple[float, ...]] = []
    for _ in range(repeats):
        jax.clear_caches()
        start, busy = perf_counter(), process_time()
        data = sweep.run(grid.measure, grid.over, num_seeds=grid.seeds, key=key, progress=False)
        one = perf_counter() - start
        cores = (process_time() - busy) / one
        with TemporaryDirectory() as cache, compiled_before(cache):
            for _ in range(2):
                data = sweep.run(
                    grid.measure, grid.over, num_seeds=grid.seeds, key=key, progress=False
                )
        without = data.attrs["run_seconds"]
        jax.clear_caches()
        run, seconds = loop(grid, key), []
        for _ in range(2):
            start = perf_counter()
            run()
            seconds.append(perf_counter() - start)
        first, again = seconds
        both, computing, hand = least(grid, key)
        with_compiling = (one, first, first / one, first / hand, first / both)
        rounds.append((*with_compiling, without, again, again / without, again / computing, cores))
    *columns, busy_cores = zip(*rounds, strict=True)
    cells = [f"{statistics.median(column):.2f}" for column in columns]
    for bound in (4, 8):
        cells[bound] += f" ({min(columns[bound]):.2f} to {max(columns[bound]):.2f})"
    return (name, *cells, f"{data.attrs['padding']:.2f}", f"{statistics.median(busy_cores):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument(
        "--rates", type=float, nargs="+", default=(0.001, 0.003, 0.01, 0.03), help="of Muon"
    )
    parser.add_argument("--steps", type=int, default=60, help="of a training")
    parser.add_argument("--seeds", type=int, default=16, help="seeds of a training")
    parser.add_argument("--svd-seeds", type=int, default=40, help="seeds of the decompositions")
    parser.add_argument(
        "--repeats", type=int, default=3, help="rounds of both sides and of the bound"
    )
    parser.add_argument("--only", default="", help="the grids whose names begin so, or all")
    parser.add_argument(
        "--rtol", type=float, default=2e-2, help="of the root mean square, between sides"
    )
    options = parser.parse_args()
    small, whole = (
        ((4, 6), (4, 6)) if options.smoke else ((16, 32, 64), (16, 32, 64, 128, 256, 512))
    )
    if options.smoke:
        options.seeds, options.svd_seeds, options.repeats, options.steps = 3, 4, 1, 3
    os.environ["SPECJAX_COMPILATION_CACHE"] = "off"
    print(machine("specjax", "jax", "numpy"))
    key = jax.random.key(0)
    trained = training(options.steps)
    grids = {
        f"training, {small[0]} to {small[-1]}": Grid(trained, small, options.rates, options.seeds),
        f"decompositions, {whole[0]} to {whole[-1]}": Grid(
            decompositions, whole, (), options.svd_seeds
        ),
    }
    if not options.smoke:
        grids[f"training, {whole[0]} to 128"] = Grid(
            trained, whole[:4], options.rates, options.seeds
        )
    chosen = {name: grid for name, grid in grids.items() if name.startswith(options.only)}
    if not chosen:
        parser.error(
            f"No grid's name begins with {options.only!r}; there are {', '.join(map(repr, grids))}."
        )
    grids = chosen
    print("\nagreement before timing")
    for name, grid in grids.items():
        data = sweep.run(grid.measure, grid.over, num_seeds=grid.seeds, key=key, progress=False)
        print(" ", check(name, data, loop(grid, key)(), options.rtol))
    with_compiling = ("run, with compiling", "loop", "ratio", "by hand", "bound")
    header = ("", *with_compiling, "run, without", "loop", "ratio", "bound", "padding", "cores")
    print()
    print(table([header, *(row(name, grid, key, options.repeats) for name, grid in grids.items())]))
    print(
        "seconds of the whole grid; ratio: of the loop to one call of sweep.run; by hand, bound:"
        " see the docstring.\n"
    )
    counted = Parts()
    header = ("another call of sweep.run", "all", "tracing", "lowering", "LLVM", "computing")
    print(table([header, *(parts(name, grid, key, counted) for name, grid in grids.items())]))
    print("seconds, by JAX's own count; LLVM: of programs side by side, each in full.")


if __name__ == "__main__":
    main()
