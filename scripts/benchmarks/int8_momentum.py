"""The momentum of Muon in eight bits: its error, that of the polar factor, its bytes and what the
rounding does.

The gradients are those of `small_network.py` along a training with Muon in float32. Every
accumulator gets the same ones: int8 in blocks of 256 rounded at random (`momentum(mu_dtype="int8",
key=...)`) or to the nearest (no key), and bfloat16 rounded at random. The first table has means
over all matrices and over every tenth step after a tenth of them:

* momentum: ‖m - exact‖_F / ‖exact‖_F;
* polar and Newton–Schulz: the angle in degrees between the exact factors of m and of the exact
  momentum, and between those of five steps;
* bytes for each number of the momentum, scales included.

The second table is a gradient of 1 in the first entry of a block, in the others first 0 and then x:
the share of x that the average of these has after all steps of each.

    python scripts/benchmarks/int8_momentum.py [--smoke]
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from small_network import inputs, loss, network, network_parser
from timing import machine, table

from specjax import optim
from specjax.blas import one_blas_thread
from specjax.optim._block_int8 import Int8Blocks, decoded
from specjax.spectral import SVD, NewtonSchulz, polar

OPTIONS: dict[str, dict[str, Any]] = {
    "int8": {"mu_dtype": "int8", "key": jax.random.key(1)},
    "int8, nearest": {"mu_dtype": "int8"},
    "bfloat16": {"mu_dtype": jnp.bfloat16, "key": jax.random.key(1)},
}
ENTRIES = (0.5, 0.1, 0.05, 0.01, 0.001)


def arguments() -> argparse.Namespace:
    parser = network_parser(__doc__.splitlines()[0], 1000)
    parser.add_argument("--betas", type=float, nargs="*", default=(0.95, 0.99))
    options = parser.parse_args()
    if options.smoke:
        options.width, options.batch, options.steps, options.betas = 8, 16, 20, (0.9,)
    return options


def gradients(width: int, batch: int, steps: int) -> dict[str, Array]:
    """The gradients of all steps of one training, (steps, in, out) for each matrix."""
    start, teacher_key, data = jax.random.split(jax.random.key(0), 3)
    teacher = jax.tree.map(lambda x: 2 * x, network(teacher_key, width))
    weights, transform = network(start, width), optim.muon(optax.linear_schedule(0.05, 0.0, steps))

    def step(carry: tuple, i: Array) -> tuple[tuple, dict[str, Array]]:
        weights, state = carry
        x = inputs(jax.random.fold_in(data, i), batch, width)
        gradient = jax.grad(loss)(weights, teacher, x)
        updates, state = transform.update(gradient, state, weights)
        return (optax.apply_updates(weights, updates), state), gradient

    carry = weights, transform.init(weights)
    return jax.jit(lambda: jax.lax.scan(step, carry, jnp.arange(steps))[1])()


def kept(beta: float, stream: Array, **options: Any) -> Array:
    """The accumulators after every step, as the next step reads them."""
    transform = optim.momentum(beta, **options)

    def step(state: Any, gradient: Array) -> tuple[Any, Array]:
        state = transform.update(gradient, state)[1]
        mu = state.mu
        return state, (
            decoded(mu, gradient.shape) if isinstance(mu, Int8Blocks) else mu.astype(gradient.dtype)
        )

    return jax.lax.scan(step, transform.init(stream[0]), stream)[1]


def accumulators(beta: float) -> dict[str, Callable[[Array], Array]]:
    return {name: partial(kept, beta, **options) for name, options in OPTIONS.items()}


def degrees(a: Array, b: Array) -> Array:
    """The angle between two matrices each."""
    lengths = jnp.linalg.norm(a, axis=(1, 2)) * jnp.linalg.norm(b, axis=(1, 2))
    cosine = jnp.sum(a * b, axis=(1, 2)) / lengths
    return jnp.degrees(jnp.arccos(jnp.minimum(cosine, 1)))


def measured(beta: float, streams: dict[str, Array]) -> str:
    rows = []
    first = len(streams["first"]) // 10
    for name, accumulated in accumulators(beta).items():
        found = []
        for stream in streams.values():
            # every tenth step: they are alike
            m, exact = (f(stream)[first::10] for f in (accumulated, partial(kept, beta)))
            relative = jnp.linalg.norm(m - exact, axis=(1, 2)) / jnp.linalg.norm(exact, axis=(1, 2))
            angles = [degrees(polar(m, x), polar(exact, x)) for x in (SVD(), NewtonSchulz(5))]
            found.append([float(jnp.mean(x)) for x in (relative, *angles)])
        relative, *angles = np.mean(found, axis=0)
        sizes = [bytes_of(name, stream[0]) for stream in streams.values()]
        rows.append((f"β = {beta}, {name}", f"{relative:.4f}", *(f"{x:.2f}" for x in angles)))
        rows[-1] += (f"{sum(sizes) / sum(x[0].size for x in streams.values()):.2f}",)
    return table((("accumulator", "momentum", "polar", "Newton–Schulz", "bytes"), *rows))


def bytes_of(name: str, like: Array) -> int:
    state = optim.momentum(0.9, **OPTIONS[name]).init(like)
    return sum(x.nbytes for x in jax.tree.leaves(state.mu))


def slow(beta: float, steps: int) -> str:
    """Shares of a constant gradient x, means over the 255 other entries of a block."""
    late = np.pad(np.tile(np.asarray(ENTRIES)[:, None], 255), [(0, 0), (1, 0)], constant_values=1)
    stream = jnp.asarray(np.stack([late * (late == 1)] * steps + [late] * steps), jnp.float32)
    rows = []
    for name, accumulated in accumulators(beta).items():
        last = np.asarray(accumulated(stream)[-1])[:, 1:] / (1 - beta**steps)
        shares = last.mean(axis=1) / np.asarray(ENTRIES)
        rows.append((f"β = {beta}, {name}", *(f"{x:.3f}" for x in shares)))
    return table((("accumulator", *(f"x = {x}" for x in ENTRIES)), *rows))


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax"))
    streams = gradients(options.width, options.batch, options.steps)
    for beta in options.betas:
        print(f"\n{options.steps} steps of the network")
        print(measured(beta, streams))
        print(f"\na gradient that changes to x, {options.steps} steps each")
        print(slow(beta, options.steps))


if __name__ == "__main__":
    with one_blas_thread():
        main()
