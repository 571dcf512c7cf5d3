"""What XLA's effort costs and brings: programs as sweeps compile them on a CPU, with the default's
effort and with less.

The programs are vmapped over seeds, as `specjax.sweep.run` has them: the statistics of a ReLU
network's gradients, a training with Muon, the singular values of the gradients of a tanh network,
one step of Muon on an associative memory, and the gradient of a transformer. Before timing, what
each effort computes is compared with the default's, to `--rtol` of the largest entry. Times are
minima over `--repeats` rounds of all efforts in turn, and ratios are to the default, level 3.

    python scripts/benchmarks/compilation.py [--smoke]
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import starmap
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array
from timing import machine, seconds, table

from specjax import optim, spectral
from specjax.experiments.outer_product.statistics import relu_statistics
from specjax.jaxlib import cpu_options, is_known
from specjax.models import associative_memory as memory
from specjax.models import mlp, relu_network, transformer

LEVEL, PIECES = "xla_backend_optimization_level", "xla_cpu_parallel_codegen_split_count"
OLDER: dict[str, str | bool | int] = {"xla_cpu_use_fusion_emitters": False, PIECES: 1}
DEFAULT = "level 3"
EFFORTS: dict[str, dict[str, str | bool | int]] = {
    DEFAULT: {LEVEL: 3},
    "level 1": {LEVEL: 1},
    "level 1, in one piece": {LEVEL: 1, PIECES: 1},
    "level 1, older emitters": {LEVEL: 1, **OLDER},
    "level 0": {LEVEL: 0},
    "level 0, older emitters": {LEVEL: 0, **OLDER},
}
"""XLA's options by the name in the table; those that this jaxlib does not have are left out."""


def relu(key: Array, width: int) -> Array:
    """The four rows of Table C.7."""
    target = jnp.ones((12, 25))
    params = relu_network.init(key, 25, width, 12)
    found = relu_statistics(relu_network.gradient(params, target), target, width, 12)
    return jnp.stack([found[name] for name in sorted(found)])


def training(key: Array, width: int) -> Array:
    """The losses of 60 steps of Muon on a network of three layers."""
    draw, data = jax.random.split(key)
    x = jax.random.normal(data, (64, width))
    params = mlp.init(draw, (width, width, width, width))
    optimizer = optim.jordan_muon(0.02)

    def loss(params: Any) -> Array:
        return jnp.mean((mlp.forward(params, x) - x) ** 2)

    def step(carry: Any, _: None) -> tuple[Any, Array]:
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    return jax.lax.scan(step, (params, optimizer.init(params)), length=60)[1]


def decompositions(key: Array, width: int) -> Array:
    """Singular values of the gradients of a tanh network."""
    draw, data = jax.random.split(key)
    x = jax.random.normal(data, (32, width))
    params = mlp.init(draw, (width, width, width, width), "tanh")
    gradients = jax.grad(lambda params: jnp.mean((mlp.forward(params, x, "tanh") - x) ** 2))(params)
    return jnp.stack([jnp.linalg.svd(g, compute_uv=False) for g in gradients])


def recall(key: Array, width: int) -> Array:
    """How many of 20 d items one step of Muon recovers, as a score of each."""
    n = 20 * width
    of_u, of_v = jax.random.split(key)
    u, v = memory.isotropic(of_u, n, width), memory.isotropic(of_v, n, width)
    w = -spectral.polar(
        memory.gradient_at_zero(u, v, memory.power_law(n, 1.5)), spectral.PolarExpress()
    )
    logits = v @ w.T @ u.T
    return jnp.diagonal(logits) - jnp.max(
        jnp.where(jnp.eye(n, dtype=bool), -jnp.inf, logits), axis=1
    )


def attention(key: Array, width: int) -> Array:
    """The norms of the gradients of a transformer's loss, leaf by leaf."""
    draw, data = jax.random.split(key)
    model = transformer.init(
        draw, transformer.Architecture(vocabulary=64, width=width, context=32, heads=4)
    )
    batch = transformer.Sequences(jax.random.randint(data, (8, 33), 0, 64))
    return jnp.stack(
        [jnp.linalg.norm(g) for g in jax.tree.leaves(jax.grad(transformer.loss)(model, batch))]
    )


Program = Callable[[Array, int], Array]
PROGRAMS: dict[str, tuple[Program, int, int, int]] = {
    "ReLU statistics": (relu, 64, 1024, 4),
    "training with Muon": (training, 128, 4, 2),
    "SVD of gradients": (decompositions, 64, 16, 2),
    "recall of one step": (recall, 64, 4, 2),
    "transformer gradient": (attention, 64, 4, 2),
}
"""The program, its width, its seeds, and its seeds in a smoke run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--smoke", action="store_true", help="small sizes, seconds in all")
    parser.add_argument("--repeats", type=int, default=3, help="rounds of all efforts")
    parser.add_argument(
        "--rtol", type=float, default=1e-3, help="between efforts, of the largest entry"
    )
    options = parser.parse_args()
    efforts = {
        effort: chosen
        for effort, chosen in EFFORTS.items()
        if all(starmap(is_known, chosen.items()))
    }
    print(machine("specjax", "jax", "numpy"))
    print("\nagreement before timing")
    rows = []
    for name, (program, width, many, few) in PROGRAMS.items():
        size, count = (8, few) if options.smoke else (width, many)
        keys = jax.random.split(jax.random.key(0), count)

        def lower(
            program: Program = program, size: int = size, keys: Array = keys
        ) -> jax.stages.Lowered:
            return jax.jit(jax.vmap(partial(program, width=size))).lower(keys)

        compiling: dict[str, list[float]] = {effort: [] for effort in efforts}
        running: dict[str, list[float]] = {effort: [] for effort in efforts}
        results = {}
        for _ in range(1 if options.smoke else options.repeats):
            for effort, chosen in efforts.items():
                # Anew, since what was compiled is kept.
                jax.clear_caches()
                lowered = lower()
                start = perf_counter()
                compiled = lowered.compile({**cpu_options(), **chosen})
                compiling[effort].append(perf_counter() - start)
                results[effort] = np.asarray(compiled(keys))
                running[effort].append(seconds(partial(compiled, keys)))
        scale = np.max(np.abs(results[DEFAULT]))
        worst = max(
            float(np.max(np.abs(results[effort] - results[DEFAULT])) / scale) for effort in efforts
        )
        assert worst <= options.rtol, f"{name}: efforts differ by {worst:.1e} of the largest entry."
        print(f"  {name}: largest difference {worst:.1e} of the largest entry")
        for effort in efforts:
            compile_s, run_s = min(compiling[effort]), min(running[effort])
            rows.append(
                (
                    f"{name}, {effort}",
                    f"{compile_s:.3f}",
                    f"{compile_s / min(compiling[DEFAULT]):.2f}",
                    f"{run_s:.4f}",
                    f"{run_s / min(running[DEFAULT]):.2f}",
                )
            )
    print()
    print(table((("", "s compiling", "ratio", "s running", "ratio"), *rows)))


if __name__ == "__main__":
    main()
