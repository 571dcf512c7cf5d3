"""A grid of trainings, widths × rates × seeds, by `scaling.transfer`, and by what one would write
without it.

A perceptron of three layers trained by Muon on fresh batches. The sides are:

* one call of `scaling.transfer`, with one program for each width, all rates and as many seeds at a
  time as fit;
* a jitted loop over the grid: a jitted training for every width, called for every rate and seed;
* a loop that compiles each width and rate: a jitted step for every width and rate, called step by
  step for every seed;
* a job for each point: as that loop, but every seed builds and compiles anew, from empty caches, as
  jobs of a cluster do. To start Python and to import is not counted. Of this side `--job-seeds` of
  the seeds are trained at every width and rate, and the time is scaled up.

After `--agreeing` steps the losses of two seeds, of jobs one, at two widths and three rates agree
to rounding, which is asserted before anything is timed: later steps of a training make more of
rounding. Each side is timed once, from empty caches, compilation included, as who trains a grid
waits for it.

    python scripts/benchmarks/scaling.py [--smoke]
"""

import argparse
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from timing import machine, minima, seconds, table

from specjax import fits, optim, scaling
from specjax.sizes import stream

INPUTS, SAMPLES = 8, 64
KEY = jax.random.key(0)
CALL, JITTED = "one call of scaling.transfer", "jitted loop over the grid"
STEPWISE, JOBS = "loop that compiles each width and rate", "a job for each point"
ROUNDING = 1e-3
PRODUCTS, ROUNDS = 15, 3
"""Products of a square matrix in the five steps of Newton–Schulz; rounds in which their rate is
measured.
"""

Params = dict[str, Array]
Batch = tuple[Array, Array]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument(
        "--widths",
        type=int,
        nargs="*",
        default=(32, 64, 128, 256),
        help="hidden units of both layers",
    )
    parser.add_argument("--rates", type=int, default=9, help="rates, each twice the one before")
    parser.add_argument("--seeds", type=int, default=8, help="trainings of every width and rate")
    parser.add_argument("--steps", type=int, default=200, help="steps of each training")
    parser.add_argument(
        "--job-seeds", type=int, default=1, help="seeds that are trained by a job for each point"
    )
    parser.add_argument(
        "--agreeing", type=int, default=3, help="steps after which losses are compared"
    )
    options = parser.parse_args()
    if options.smoke:
        options.widths, options.rates, options.seeds, options.steps = (4, 8), 3, 2, 5
    if options.job_seeds > options.seeds:
        parser.error(f"--job-seeds must be at most --seeds={options.seeds}")
    options.grid = [1e-3 * 2.0**k for k in range(options.rates)]
    return options


def build(key: Array, width: int) -> Params:
    shapes = {"first": (width, INPUTS), "hidden": (width, width), "last": (1, width)}
    return {
        name: jax.random.normal(jax.random.fold_in(key, place), shape) / np.sqrt(shape[1])
        for place, (name, shape) in enumerate(shapes.items())
    }


def loss(params: Params, batch: Batch) -> Array:
    x, y = batch
    h = jax.nn.relu(jax.nn.relu(x @ params["first"].T) @ params["hidden"].T)
    return jnp.mean((h @ params["last"].T - y) ** 2)


def draw(key: Array) -> Batch:
    x = jax.random.normal(key, (SAMPLES, INPUTS))
    return x, jnp.sin(x[:, :1] + x[:, 1:2] * x[:, 2:3])


def muon(rate: float | Array) -> optax.GradientTransformation:
    return optim.jordan_muon(
        rate, scale="sqrt_out_over_in", muon_weight_dimension_numbers=optim.OUT_IN
    )


def step(
    params: Params, state: optax.OptState, batch: Batch, rate: float | Array
) -> tuple[Params, optax.OptState]:
    updates, state = muon(rate).update(jax.grad(loss)(params, batch), state, params)
    return optax.apply_updates(params, updates), state


def by_transfer(options: argparse.Namespace, steps: int) -> np.ndarray:
    with warnings.catch_warnings():
        # Of the verdict nothing is wanted here.
        warnings.simplefilter("ignore", fits.RoughFitWarning)
        found = scaling.transfer(
            build,
            loss,
            muon,
            widths=options.widths,
            rates=options.grid,
            batch=draw,
            steps=steps,
            num_seeds=options.seeds,
            key=KEY,
            widen=0,
            progress=False,
        )
    return found.data["loss"].transpose("width", "rate", "seed").values


def over_grid(
    options: argparse.Namespace, one: Callable[[int, float], Callable[[Array], Array]]
) -> np.ndarray:
    """The losses of a training that is made for a width and a rate and called with the key of a
    seed.
    """
    keys = [jax.random.fold_in(KEY, seed) for seed in range(options.seeds)]
    found = []
    for width in options.widths:
        for rate in options.grid:
            train = one(width, rate)
            found += [float(train(key)) for key in keys]
    return np.reshape(found, (len(options.widths), len(options.grid), options.seeds))


def step_by_step(width: int, rate: float, steps: int) -> Callable[[Array], Array]:
    """A training in newly jitted steps."""
    advance = jax.jit(lambda params, state, batch: step(params, state, batch, rate))
    batch, final = jax.jit(lambda key, i: draw(jax.random.fold_in(key, i))), jax.jit(loss)

    def train(key: Array) -> Array:
        params = build(stream(key, "weights"), width)
        state, batches = muon(rate).init(params), stream(key, "batches")
        for i in range(steps):
            params, state = advance(params, state, batch(batches, i))
        return final(params, draw(stream(key, "held out")))

    return train


def by_setting(options: argparse.Namespace, steps: int) -> np.ndarray:
    return over_grid(options, lambda width, rate: step_by_step(width, rate, steps))


def by_jobs(options: argparse.Namespace, steps: int) -> np.ndarray:
    def job(width: int, rate: float, key: Array) -> Array:
        jax.clear_caches()
        return step_by_step(width, rate, steps)(key)

    return over_grid(options, lambda width, rate: lambda key: job(width, rate, key))


def by_jitted_training(options: argparse.Namespace, steps: int) -> np.ndarray:
    def training(width: int) -> Callable[[Array, Array], Array]:
        def train(key: Array, rate: Array) -> Array:
            params, batches = build(stream(key, "weights"), width), stream(key, "batches")

            def advance(
                carry: tuple[Params, optax.OptState], i: Array
            ) -> tuple[tuple[Params, optax.OptState], None]:
                return step(*carry, draw(jax.random.fold_in(batches, i)), rate), None

            (params, _), _ = jax.lax.scan(
                advance, (params, muon(rate).init(params)), jnp.arange(steps)
            )
            return loss(params, draw(stream(key, "held out")))

        return jax.jit(train)

    trainings = {width: training(width) for width in options.widths}
    return over_grid(
        options, lambda width, rate: lambda key: trainings[width](key, jnp.asarray(rate))
    )


SIDES = {CALL: by_transfer, JITTED: by_jitted_training, STEPWISE: by_setting, JOBS: by_jobs}


def timed(options: argparse.Namespace) -> dict[str, float]:
    """The seconds of all sides, each from empty caches, for all seeds."""
    taken = {}
    for name, side in SIDES.items():
        run = argparse.Namespace(
            **vars(options) | {"seeds": options.job_seeds if name == JOBS else options.seeds}
        )
        jax.clear_caches()
        with jax.default_matmul_precision("highest"):
            took = seconds(lambda run=run, side=side: side(run, options.steps))
        print(f"  {name}: {took:.1f} s for {run.seeds} seeds", flush=True)
        taken[name] = took * options.seeds / run.seeds
    return taken


def products_alone(options: argparse.Namespace) -> float:
    """The seconds that the products of Newton–Schulz take in all hidden layers of the grid, by the
    rate of products of this machine.

    That is the rate of a chain of products of matrices side by side, as many as there are rates, in
    two programs at a time.
    """
    trainings, whole = options.rates * options.seeds, 0.0
    for width in options.widths:
        stack = jax.random.normal(KEY, (options.rates, width, width)) / np.sqrt(width)
        turns = max(int(4e9 / (2 * width**3 * options.rates)), 1)

        def chain(start: Array, stack: Array = stack, turns: int = turns) -> Array:
            return jax.lax.fori_loop(0, turns, lambda _, x: x @ stack, start)

        program = jax.jit(chain).lower(stack).compile()
        with ThreadPoolExecutor(2) as threads:

            def side_by_side(program: Any = program, stack: Array = stack) -> list[Array]:
                return list(threads.map(lambda _: jax.block_until_ready(program(stack)), range(2)))

            took = minima({"": side_by_side}, ROUNDS)[""]
        whole += took / (2 * turns * options.rates) * PRODUCTS * options.steps * trainings
    return whole


def main() -> None:
    options = arguments()
    count = (
        f"{len(options.widths)} widths × {options.rates} rates × {options.seeds} seeds ×"
        f" {options.steps} steps"
    )
    print(machine("specjax", "jax", "optax"))
    print(
        f"widths {', '.join(map(str, options.widths))}: {count}, float32\n\nagreement before timing"
    )
    few = argparse.Namespace(widths=options.widths[:2], grid=options.grid[:3], seeds=2)
    with jax.default_matmul_precision("highest"):
        expected = by_transfer(few, options.agreeing)
        for name in (JITTED, STEPWISE, JOBS):
            few.seeds = 1 if name == JOBS else 2
            off = float(
                np.max(np.abs(SIDES[name](few, options.agreeing) / expected[..., : few.seeds] - 1))
            )
            assert off < ROUNDING, f"{name}: losses differ by {off:.1e} of themselves."
            print(
                f"  {name}: largest difference {off:.1e} of the loss after {options.agreeing}"
                " steps",
                flush=True,
            )
    taken = timed(options)
    told = {JOBS: f"{options.job_seeds} (scaled)"} if options.job_seeds < options.seeds else {}
    rows = [
        (name, told.get(name, f"{options.seeds}"), f"{time:.1f}", f"{time / taken[CALL]:.2f}")
        for name, time in taken.items()
    ]
    print("\n" + table((("", "seeds run", "s with compiling", " ratio"), *rows)))
    print("scaled: the seconds are those of the seeds run, times all seeds over these.")
    print(
        "Newton–Schulz's products of the hidden layers alone, at this machine's rate of products:"
        f" {products_alone(options):.1f} s."
    )


if __name__ == "__main__":
    main()
