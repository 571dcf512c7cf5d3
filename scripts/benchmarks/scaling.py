"""A grid of trainings, widths × rates × seeds, by `scaling.transfer`, and by what one would write without it.

A perceptron of three layers trained by Muon on fresh batches. The sides are:

* one call of `scaling.transfer`, with one program for each width, all rates and as many seeds at a time as fit;
* a loop that builds and compiles each setting: a jitted step for every width and rate, called step by step for every seed;
* a jitted loop over the grid: a jitted training for every width, called for every rate and seed.

After `--agreeing` steps the losses of two seeds at two widths and three rates agree to rounding, which is asserted before anything is
timed: later steps of a training make more of rounding. Each side is timed once, from empty caches, compilation included, as who trains a
grid waits for it.

    python scripts/benchmarks/scaling.py [--smoke]
"""

import argparse
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from timing import machine, seconds, table

from specjax import optim, scaling, sweep
from specjax.sizes import stream

INPUTS, SAMPLES = 8, 64
KEY = jax.random.key(0)
CALL, STEPWISE, JITTED = "one call of scaling.transfer", "loop that compiles each setting", "jitted loop over the grid"
ROUNDING = 1e-3

Params = dict[str, Array]
Batch = tuple[Array, Array]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument("--widths", type=int, nargs="*", default=(32, 64, 128, 256), help="hidden units of both layers")
    parser.add_argument("--rates", type=int, default=9, help="rates, each twice the one before")
    parser.add_argument("--seeds", type=int, default=8, help="trainings of every width and rate")
    parser.add_argument("--steps", type=int, default=200, help="steps of each training")
    parser.add_argument("--agreeing", type=int, default=3, help="steps after which losses are compared")
    options = parser.parse_args()
    if options.smoke:
        options.widths, options.rates, options.seeds, options.steps = (4, 8), 3, 2, 5
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
    return optim.muon(rate, scale="sqrt_out_over_in", dimension_numbers=optim.OUT_IN)


def step(params: Params, state: optax.OptState, batch: Batch, rate: float | Array) -> tuple[Params, optax.OptState]:
    updates, state = muon(rate).update(jax.grad(loss)(params, batch), state, params)
    return optax.apply_updates(params, updates), state


def by_transfer(options: argparse.Namespace, steps: int) -> np.ndarray:
    with warnings.catch_warnings():
        # Of the verdict nothing is wanted here.
        warnings.simplefilter("ignore", sweep.RoughFitWarning)
        found = scaling.transfer(
            build,
            loss,
            muon,
            widths=options.widths,
            rates=options.grid,
            batch=draw,
            steps=steps,
            seeds=options.seeds,
            key=KEY,
            widen=0,
            progress=False,
        )
    return found.data["loss"].transpose("width", "rate", "seed").values


def over_grid(options: argparse.Namespace, one: Callable[[int, float], Callable[[Array], Array]]) -> np.ndarray:
    """The losses of a training that is made for a width and a rate and called with the key of a seed."""
    keys = [jax.random.fold_in(KEY, seed) for seed in range(options.seeds)]
    found = []
    for width in options.widths:
        for rate in options.grid:
            train = one(width, rate)
            found += [float(train(key)) for key in keys]
    return np.reshape(found, (len(options.widths), len(options.grid), options.seeds))


def by_setting(options: argparse.Namespace, steps: int) -> np.ndarray:
    def one(width: int, rate: float) -> Callable[[Array], Array]:
        advance = jax.jit(lambda params, state, batch: step(params, state, batch, rate))
        batch, final = jax.jit(lambda key, i: draw(jax.random.fold_in(key, i))), jax.jit(loss)

        def train(key: Array) -> Array:
            params = build(stream(key, "weights"), width)
            state, batches = muon(rate).init(params), stream(key, "batches")
            for i in range(steps):
                params, state = advance(params, state, batch(batches, i))
            return final(params, draw(stream(key, "held out")))

        return train

    return over_grid(options, one)


def by_jitted_training(options: argparse.Namespace, steps: int) -> np.ndarray:
    def training(width: int) -> Callable[[Array, Array], Array]:
        def train(key: Array, rate: Array) -> Array:
            params, batches = build(stream(key, "weights"), width), stream(key, "batches")

            def advance(carry: tuple[Params, optax.OptState], i: Array) -> tuple[tuple[Params, optax.OptState], None]:
                return step(*carry, draw(jax.random.fold_in(batches, i)), rate), None

            (params, _), _ = jax.lax.scan(advance, (params, muon(rate).init(params)), jnp.arange(steps))
            return loss(params, draw(stream(key, "held out")))

        return jax.jit(train)

    trainings = {width: training(width) for width in options.widths}
    return over_grid(options, lambda width, rate: lambda key: trainings[width](key, jnp.asarray(rate)))


SIDES = {CALL: by_transfer, JITTED: by_jitted_training, STEPWISE: by_setting}


def main() -> None:
    options = arguments()
    count = f"{len(options.widths)} widths × {options.rates} rates × {options.seeds} seeds × {options.steps} steps"
    print(machine("specjax", "jax", "optax"))
    print(f"widths {', '.join(map(str, options.widths))}: {count}, float32\n\nagreement before timing")
    few = argparse.Namespace(widths=options.widths[:2], grid=options.grid[:3], seeds=2)
    with jax.default_matmul_precision("highest"):
        expected = by_transfer(few, options.agreeing)
        for name in (STEPWISE, JITTED):
            off = float(np.max(np.abs(SIDES[name](few, options.agreeing) / expected - 1)))
            assert off < ROUNDING, f"{name}: losses differ by {off:.1e} of themselves."
            print(f"  {name}: largest difference {off:.1e} of the loss after {options.agreeing} steps", flush=True)
        taken = {}
        for name, side in SIDES.items():
            jax.clear_caches()
            taken[name] = seconds(lambda side=side: side(options, options.steps))
            print(f"  {name}: {taken[name]:.1f} s", flush=True)
    rows = [(name, f"{time:.1f}", f"{time / taken[CALL]:.2f}") for name, time in taken.items()]
    print("\n" + table((("", "s with compiling", " ratio"), *rows)))


if __name__ == "__main__":
    main()
