"""Orthogonalized steps on one small network: methods of the polar factor, ranks of Dion and dtypes
of the momentum, at equal steps and at the best rate of each.

A student tanh network with three layers learns a teacher of the same shape from Gaussian inputs
whose variances fall as 1/k, by mini-batches; the rate falls linearly to 0. Printed is the test loss
over the variance of the targets, as mean ± standard error over `--seeds` seeds at the rate with the
best mean, and the paired difference from the first row. Seeds are shared by all rows.

    python scripts/benchmarks/small_network.py [--smoke]
"""

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from timing import machine, table

from specjax import optim
from specjax.blas import one_blas_thread
from specjax.spectral import NewtonSchulz, PolarExpress
from specjax.spectral.polynomials import CUBIC5

Rate = Callable[[Array], Array]
Optimizer = Callable[[Rate], optax.GradientTransformation]
QUINTIC = "NewtonSchulz(5)"
EXACT = PolarExpress(12, 5e-7)  # to 1e-3 up to κ = 1e6
SCALE = "sqrt_out_over_in"
METHODS = {
    QUINTIC: NewtonSchulz(5),
    "PolarExpress(5)": PolarExpress(5),
    "cubic5": NewtonSchulz(5, CUBIC5),
    "PolarExpress(12, 5e-7)": EXACT,
}


class Sizes(NamedTuple):
    """Width of the hidden layers, examples of a batch, and steps."""

    width: int
    batch: int
    steps: int


def network_parser(description: str, steps: int) -> argparse.ArgumentParser:
    """The options of every script that trains this network."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument("--width", type=int, default=64, help="inputs and hidden units")
    parser.add_argument("--batch", type=int, default=128, help="examples of a batch")
    parser.add_argument("--steps", type=int, default=steps, help="steps of a training")
    return parser


def arguments() -> argparse.Namespace:
    parser = network_parser(__doc__.splitlines()[0], 300)
    parser.add_argument("--seeds", type=int, default=16, help="trainings of each row and rate")
    parser.add_argument(
        "--rates", type=float, nargs="*", default=(0.017, 0.024, 0.034, 0.048, 0.068, 0.096)
    )
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=tuple(TABLES))
    options = parser.parse_args()
    if options.smoke:
        options.width, options.batch, options.steps, options.seeds = 8, 16, 12, 2
        options.rates = (0.02, 0.05)
    return options


def network(key: Array, width: int) -> dict[str, Array]:
    """Weights (in, out) of three layers, with eight outputs."""
    shapes = {"first": (width, width), "second": (width, width), "last": (width, 8)}
    return {
        name: jax.random.normal(jax.random.fold_in(key, i), shape) / shape[0] ** 0.5
        for i, (name, shape) in enumerate(shapes.items())
    }


def outputs(weights: Mapping[str, Array], x: Array) -> Array:
    hidden = jnp.tanh(jnp.tanh(x @ weights["first"]) @ weights["second"])
    return hidden @ weights["last"]


def loss(weights: Mapping[str, Array], teacher: Mapping[str, Array], x: Array) -> Array:
    """Mean squared error over the variance of the targets."""
    targets = outputs(teacher, x)
    return jnp.mean((outputs(weights, x) - targets) ** 2) / jnp.var(targets)


def inputs(key: Array, count: int, width: int) -> Array:
    return jax.random.normal(key, (count, width)) * jnp.arange(1, width + 1) ** -0.5 * 2


def test_loss(optimizer: Optimizer, sizes: Sizes, rate: Array, key: Array) -> Array:
    """The test loss after all steps of one training."""
    start, teacher_key, data, test = jax.random.split(key, 4)
    teacher = jax.tree.map(lambda x: 2 * x, network(teacher_key, sizes.width))
    weights = network(start, sizes.width)
    transform = optimizer(lambda count: rate * (1 - count / sizes.steps))

    def step(carry: tuple, i: Array) -> tuple[tuple, None]:
        weights, state = carry
        x = inputs(jax.random.fold_in(data, i), sizes.batch, sizes.width)
        gradient = jax.grad(loss)(weights, teacher, x)
        updates, state = transform.update(gradient, state, weights)
        return (optax.apply_updates(weights, updates), state), None

    (weights, _), _ = jax.lax.scan(
        step, (weights, transform.init(weights)), jnp.arange(sizes.steps)
    )
    return loss(weights, teacher, inputs(test, 4096, sizes.width))


def losses(optimizer: Optimizer, sizes: Sizes, rates: Array, seeds: int) -> np.ndarray:
    """Test losses (rates, seeds) of one optimizer."""
    keys = jax.random.split(jax.random.key(0), seeds)
    run = partial(test_loss, optimizer, sizes)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(run, (None, 0)), (0, None)))(rates, keys))


def rows(optimizers: Mapping[str, Optimizer], sizes: Sizes, rates: Array, seeds: int) -> str:
    """Means and differences from the first optimizer, each at its own best rate."""
    best, cells = {}, []
    for name, optimizer in optimizers.items():
        found = losses(optimizer, sizes, rates, seeds)
        at = int(np.nanargmin(found.mean(axis=1)))
        best[name] = found[at]
        difference = found[at] - best[next(iter(optimizers))]
        means = (f"{x.mean():+.5f} ± {x.std(ddof=1) / seeds**0.5:.5f}" for x in (difference,))
        own = f"{found[at].mean():.5f} ± {found[at].std(ddof=1) / seeds**0.5:.5f}"
        cells.append((name, own, *means, f"{float(rates[at]):.3f}"))
    return table((("optimizer", "test loss", "minus the first", "best rate"), *cells))


def of_methods() -> dict[str, Optimizer]:
    return {name: lambda rate, m=m: optim.muon(rate, method=m) for name, m in METHODS.items()}


def of_ranks() -> dict[str, Optimizer]:
    """Muon without Nesterov's step and with the scale of Dion, and Dion's ranks."""
    chains: dict[str, Callable[[], optax.GradientTransformation]] = {
        "Muon": lambda: optax.chain(optim.momentum(0.95), optim.orthogonalize(EXACT, SCALE))
    }
    for rank in (1.0, 0.25, 0.0625):
        chains[f"Dion, share {rank}"] = partial(optim.scale_by_dion, rank, key=jax.random.key(1))
    return {
        name: lambda rate, make=make: optax.chain(make(), optax.scale_by_learning_rate(rate))
        for name, make in chains.items()
    }


def of_dtypes() -> dict[str, Optimizer]:
    key = jax.random.key(1)
    options = {
        "float32": {},
        "bfloat16, at random": {"mu_dtype": jnp.bfloat16, "key": key},
        "int8, at random": {"mu_dtype": "int8", "key": key},
        "int8, nearest": {"mu_dtype": "int8"},
    }
    return {name: lambda rate, kw=kw: optim.muon(rate, **kw) for name, kw in options.items()}


TABLES: dict[str, Callable[[], dict[str, Optimizer]]] = {
    "methods": of_methods,
    "ranks": of_ranks,
    "dtypes": of_dtypes,
}


def memory(optimizers: Mapping[str, Optimizer], width: int) -> str:
    """The numbers in the states, over those of the weights."""
    weights = network(jax.random.key(0), width)
    count = sum(x.size for x in weights.values())
    found = []
    for name, optimizer in optimizers.items():
        state = jax.eval_shape(optimizer(lambda _: 0.1).init, weights)
        found.append((name, f"{sum(x.size for x in jax.tree.leaves(state)) / count:.2f}"))
    return table((("optimizer", "numbers of the state"), *found))


def main() -> None:
    options = arguments()
    sizes = Sizes(options.width, options.batch, options.steps)
    rates = jnp.asarray(options.rates)
    print(machine("specjax", "jax", "optax"))
    for name in options.tables:
        print(f"\n{name}: {sizes.steps} steps, {options.seeds} seeds")
        print(rows(TABLES[name](), sizes, rates, options.seeds), flush=True)
    if "ranks" in options.tables:
        print()
        print(memory(of_ranks(), options.width))


if __name__ == "__main__":
    with one_blas_thread():
        main()
