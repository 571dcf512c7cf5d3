"""What `optim.muon(log_every=...)` costs: seconds of an update with and without a log.

The model is `--layers` blocks of the matrices of a transformer (four width x width, two width x 4
width, stacked by layer). An update is one jitted call; times are means over `--steps` updates in a
row, a multiple of the stride, and minima over `--rounds` of all sides in turn. Before timing, the
parameters after ten updates are compared bit by bit.

    python scripts/benchmarks/update_log.py [--smoke]
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from timing import machine, minima, table

from specjax import optim

WITHOUT = "without a log"
STRIDES = {WITHOUT: None, "every update": 1, "every tenth": 10}
SHAPES = {"query": (1, 1), "key": (1, 1), "value": (1, 1), "out": (1, 1), "up": (1, 4)}


def parameters(layers: int, width: int) -> dict[str, jax.Array]:
    """The matrices of all layers, of normal entries."""
    shapes = SHAPES | {"down": (4, 1)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    return {
        name: jax.random.normal(key, (layers, a * width, b * width))
        for key, (name, (a, b)) in zip(keys, shapes.items(), strict=True)
    }


def updates(
    every: int | None, params: dict[str, jax.Array], steps: int
) -> Callable[[], dict[str, jax.Array]]:
    """A function that makes this number of updates in one compiled loop."""
    optimizer = optim.muon(0.02, labels="matrix", log_every=every)

    def step(carry: Any, _: None) -> tuple[Any, None]:
        params, state = carry
        found, state = optimizer.update(jax.tree.map(jnp.sin, params), state, params)
        return (optax.apply_updates(params, found), state), None

    @jax.jit
    def run(params: dict[str, jax.Array]) -> Any:
        return jax.lax.scan(step, (params, optimizer.init(params)), length=steps)[0]

    return partial(run, params)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--smoke", action="store_true", help="small sizes, seconds in all")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20, help="updates of a call")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.smoke:
        options.layers, options.width, options.steps, options.rounds = 1, 16, 10, 1
    print(machine("specjax", "jax"))
    params = parameters(options.layers, options.width)
    print(f"\n{options.layers} layers of width {options.width}\n\nagreement before timing")
    after_ten = {name: updates(every, params, 10)()[0] for name, every in STRIDES.items()}
    for name, found in after_ten.items():
        same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), found, after_ten[WITHOUT])
        assert all(same.values()), f"{name}: the parameters differ from those without a log."
        print(f"  {name}: the same bits after ten updates")
    calls = {name: updates(every, params, options.steps) for name, every in STRIDES.items()}
    seconds = {name: value / options.steps for name, value in minima(calls, options.rounds).items()}
    rows = [
        (name, f"{1e3 * value:.2f}", f"{value / seconds[WITHOUT]:.3f}")
        for name, value in seconds.items()
    ]
    print()
    print(table((("", "ms an update", "ratio"), *rows)))


if __name__ == "__main__":
    main()
