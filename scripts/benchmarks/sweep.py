"""One call of `specjax.sweep.run` over widths and seeds, against the loops that it replaces.

What is measured, at every seed and width d1, are the four rows of the outer-product paper's Table
C.7 for the two-layer ReLU network with d0=25 and d2=12. The sides are

* one call: `sweep.run(measure, {"d1": widths(...)}, num_seeds=..., key=...)`, the reference of
  every ratio;
* loop over widths: for each width its own jitted function, vmapped over all seeds at once;
* loop over widths and seeds: for each width its own jitted function, called once for each seed;
* the same without jit: every operation of every seed and width by itself, as a first script does
  it;
* NumPy loop: for each width and seed the closed form of the gradient in NumPy. It is given the
  weights as arrays, so drawing them is not counted for it.

Before timing, the results of all sides are compared: at each width every value is within `--rtol`
of the root mean square over the seeds. Times are medians over `--repeats` rounds of all sides, with
tracing and compilation (the first call of newly built functions, without a compilation cache) and
without (the second call). `sweep.run` traces, plans and compiles in every call, and runs buckets
while the programs of later ones compile, so its time without is the `run_seconds` of calls that
read their programs from a cache. The loops over seeds run fewer seeds, and their times without
compilation are scaled up to all of them.

    python scripts/benchmarks/sweep.py [--smoke]
"""

import argparse
import os
import statistics
from collections.abc import Callable
from tempfile import TemporaryDirectory

import jax
import numpy as np
import relu_numpy
import xarray as xr
from jaxtyping import Array
from timing import compiled_before, machine, measure, table

from specjax import sweep
from specjax.experiments.outer_product.statistics import relu_statistics
from specjax.models import relu_network
from specjax.sizes import AnySize

D0, D2 = 25, 12
ONE_CALL = "one call of sweep.run"

Results = list[dict[str, np.ndarray]]
"""For each width the four quantities, each with an axis of seeds."""
Measure = Callable[[Array, AnySize], dict[str, Array]]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=(16, 32, 64, 128, 256, 512), help="hidden units d1"
    )
    parser.add_argument("--seeds", type=int, default=1024, help="seeds at every width")
    parser.add_argument(
        "--slow-seeds",
        type=int,
        default=128,
        help="seeds that the loops over seeds run, at most --seeds",
    )
    parser.add_argument(
        "--eager-seeds", type=int, default=4, help="seeds that the loop without jit runs"
    )
    parser.add_argument(
        "--plan", choices=("auto", "exact", "padded"), default="auto", help="plan of sweep.run"
    )
    parser.add_argument("--repeats", type=int, default=3, help="rounds of all sides")
    parser.add_argument(
        "--rtol", type=float, default=1e-4, help="of the root mean square over seeds, between sides"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and target")
    options = parser.parse_args()
    if options.smoke:
        options.widths, options.seeds, options.slow_seeds, options.eager_seeds, options.repeats = (
            (4, 6),
            16,
            8,
            2,
            1,
        )
    if max(options.slow_seeds, options.eager_seeds) > options.seeds:
        parser.error(f"--slow-seeds and --eager-seeds must be at most --seeds={options.seeds}")
    return options


def loop_over_widths(
    measured: Measure, key: Array, widths: list[int], seeds: int
) -> Callable[[], Results]:
    """Newly jitted functions of all seed numbers, one for each width."""

    def at_width(d1: int) -> Callable[[Array], dict[str, Array]]:
        return jax.jit(jax.vmap(lambda seed: measured(jax.random.fold_in(key, seed), d1)))

    programs = [at_width(d1) for d1 in widths]
    ids = np.arange(seeds, dtype=np.uint32)

    def run() -> Results:
        return [
            {name: np.asarray(values) for name, values in program(ids).items()}
            for program in programs
        ]

    return run


def loop_over_seeds(
    measured: Measure, key: Array, widths: list[int], seeds: int
) -> Callable[[], Results]:
    """Newly jitted functions of one seed number, one for each width."""

    def at_width(d1: int) -> Callable[[np.uint32], dict[str, Array]]:
        return jax.jit(lambda seed: measured(jax.random.fold_in(key, seed), d1))

    programs = [at_width(d1) for d1 in widths]

    def run() -> Results:
        return [
            _joined([program(np.uint32(seed)) for seed in range(seeds)], np.stack)
            for program in programs
        ]

    return run


def eager_loop(
    measured: Measure, key: Array, widths: list[int], seeds: int
) -> Callable[[], Results]:
    """No compilation of ours: JAX runs one operation after the other."""

    def run() -> Results:
        return [
            _joined([measured(jax.random.fold_in(key, s), d1) for s in range(seeds)], np.stack)
            for d1 in widths
        ]

    return run


def numpy_loop(phi: np.ndarray, weights: list[relu_network.Params]) -> Callable[[], Results]:
    """A loop over widths and seeds without JAX; `weights` has an axis of seeds at each width."""

    def one(w1: np.ndarray, w2: np.ndarray) -> dict[str, np.ndarray]:
        g1, g2 = relu_numpy.gradient(w1, w2, phi)
        return relu_numpy.statistics(g1 @ g1.T, g2 @ g2.T, phi)

    def run() -> Results:
        return [
            _joined([one(w1, w2) for w1, w2 in zip(*params, strict=True)], np.stack)
            for params in weights
        ]

    return run


def check(name: str, results: Results, reference: Results, rtol: float) -> str:
    """Raises AssertionError unless every value agrees to `rtol` of the root mean square over the
    seeds at its width.
    """
    worst = 0.0
    for at_width, expected in zip(results, reference, strict=True):
        for quantity, values in at_width.items():
            difference = np.max(np.abs(values - expected[quantity][: len(values)]))
            worst = max(worst, difference / np.sqrt(np.mean(expected[quantity] ** 2)))
    assert worst <= rtol, f"{name} differs from {ONE_CALL} by {worst:.1e} of the root mean square."
    return f"{name}: largest difference {worst:.1e} of the root mean square, {len(values)} seeds"


def main() -> None:
    options = arguments()
    widths, seeds, slow = list(options.widths), options.seeds, options.slow_seeds
    key = jax.random.key(options.seed)
    os.environ["SPECJAX_COMPILATION_CACHE"] = "off"
    print(machine("specjax", "jax", "numpy"))
    phi = np.array(jax.random.normal(jax.random.key(options.seed + 1), (D2, D0)))

    def measured(key: Array, d1: AnySize) -> dict[str, Array]:
        return relu_statistics(
            relu_network.gradient(relu_network.init(key, D0, d1, D2), phi), phi, d1, D2
        )

    def weights(d1: int) -> relu_network.Params:
        keys = jax.vmap(lambda seed: jax.random.fold_in(key, seed))(np.arange(slow))
        return jax.tree.map(
            np.array, jax.jit(jax.vmap(lambda k: relu_network.init(k, D0, d1, D2)))(keys)
        )

    run_seconds: list[float] = []

    def one_call() -> xr.Dataset:
        over = {"d1": sweep.widths(*widths)}
        return sweep.run(
            measured, over, num_seeds=seeds, key=key, plan=options.plan, progress=False
        )

    def one_call_compiled_before() -> None:
        with compiled_before(cache):
            run_seconds.append(one_call().attrs["run_seconds"])

    data, host_weights = one_call(), [weights(d1) for d1 in widths]
    sides = {
        ONE_CALL: (lambda: one_call, seeds),
        "loop over widths": (lambda: loop_over_widths(measured, key, widths, seeds), seeds),
        "loop over widths and seeds": (lambda: loop_over_seeds(measured, key, widths, slow), slow),
        "the same without jit": (
            lambda: eager_loop(measured, key, widths, options.eager_seeds),
            options.eager_seeds,
        ),
        "NumPy loop": (lambda: numpy_loop(phi, host_weights), slow),
    }
    print(f"d0={D0}, d1 in {widths}, d2={D2}, {seeds} seeds, float32")
    print(sweep.explain(data))

    print("\nagreement before timing")
    reference = [
        {q: data[q].isel(d1=i).values for q in data if q != "failed"} for i in range(len(widths))
    ]
    for name, (make, _) in sides.items():
        if name != ONE_CALL:
            print(" ", check(name, make()(), reference, options.rtol))

    # Every side in every round; the cache is full when this has run once.
    makers = {name: make for name, (make, _) in sides.items()} | {
        "compiled before": lambda: one_call_compiled_before
    }
    with TemporaryDirectory() as cache:
        one_call_compiled_before()
        run_seconds.clear()
        timings = measure(makers, options.repeats)
    timings.pop("compiled before")
    without = {name: timing.again * seeds / sides[name][1] for name, timing in timings.items()}
    included = {name: without[name] + timing.compiling for name, timing in timings.items()}
    included[ONE_CALL] = timings[ONE_CALL].first
    without[ONE_CALL] = statistics.median(run_seconds)
    header = ("", "seeds run", "s with compiling", "ratio", "s without", "ratio")
    rows = [
        (
            name,
            f"{ran}" + (" (scaled)" if ran < seeds else ""),
            f"{included[name]:.3f}",
            f"{included[name] / included[ONE_CALL]:.2f}",
            f"{without[name]:.3f}",
            f"{without[name] / without[ONE_CALL]:.2f}",
        )
        for name, (_, ran) in sides.items()
    ]
    print()
    print(table((header, *rows)))
    print(
        f"seconds for {seeds} seeds at {len(widths)} widths; ratio: to {ONE_CALL}; scaled: times"
        f" without compilation are those\nof the seeds run, times {seeds} / seeds run."
    )


def _joined(
    parts: list[dict[str, np.ndarray | Array]], join: Callable[[list[np.ndarray]], np.ndarray]
) -> dict[str, np.ndarray]:
    return {name: join([np.asarray(part[name]) for part in parts]) for name in parts[0]}


if __name__ == "__main__":
    main()
