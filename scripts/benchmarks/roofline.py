"""What one seed of the sweep of `sweep.py` consists of, on one core or on an accelerator.

The parts are the samples of the weights, the products of the gradient and of its statistics, one
pass of each function of all pairs of hidden units, and one pass of c = a + s b over as many
entries. Each runs alone, many times in a loop, on one thread; processor time of the process is what
is taken, the least of `--repeats`. On an accelerator it is elapsed time, since the processor only
waits there.

    python scripts/benchmarks/roofline.py [--smoke]
"""

import argparse
import os

os.environ["PJRT_NPROC"] = (
    "1"  # one thread of XLA; the sweep is measured by sweep.py in a process of its own
)

from collections.abc import Callable
from time import perf_counter, process_time

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from timing import machine, table

from specjax.experiments.outer_product.statistics import relu_statistics
from specjax.models import relu_network
from specjax.sweep.xla_options import xla_options
from specjax.theory.angles import arccos

D0, D2 = 25, 12
Part = Callable[[Array], object]


def parts(d1: int) -> dict[str, tuple[Part, float]]:
    """What is run for a seed, and its operations: floating-point ones of products, entries of the
    rest.
    """
    key, phi = jax.random.key(0), np.array(jax.random.normal(jax.random.key(1), (D2, D0)))
    w1, w2 = jax.random.normal(key, (d1, D0)), jax.random.normal(key, (D2, d1))
    pairs = jax.random.uniform(key, (d1, d1), minval=-1.0)

    def statistics(seed: Array) -> object:
        params = relu_network.init(jax.random.fold_in(key, seed), D0, d1, D2)
        return relu_statistics(relu_network.gradient(params, phi), phi, d1, D2)

    def entry(function: Callable[[Array], Array]) -> Part:
        return lambda seed: function(pairs * (1 / (1 + seed.astype(jnp.float32))))

    product, entries = 2.0 * d1 * d1, float(d1 * d1)
    return {
        "one seed, alone on one thread": (statistics, 0.0),
        "samples of W₁ and W₂": (
            lambda seed: relu_network.init(jax.random.fold_in(key, seed), D0, d1, D2),
            float(d1 * (D0 + D2)),
        ),
        "W₁ W₁ᵀ, inner extent 25": (lambda seed: (w1 + seed) @ w1.T, product * D0),
        "G₁ G₁ᵀ, inner extent 25": (lambda seed: (w1 - seed) @ w1.T, product * D0),
        "W₂ᵀ W₂, inner extent 12": (lambda seed: (w2 + seed).T @ w2, product * D2),
        "pairs times W₁": (lambda seed: pairs @ (w1 + seed), product * D0),
        "W₂ times pairs": (lambda seed: (w2 + seed) @ pairs, product * D2),
        "arccos of all pairs": (entry(arccos), entries),
        "√(1 - x²) of all pairs": (entry(lambda x: jnp.sqrt((1 - x) * (1 + x))), entries),
        "a + s b of all pairs": (lambda seed: pairs + seed.astype(jnp.float32) * pairs.T, entries),
    }


def milliseconds(part: Part, seeds: int, repeats: int) -> float:
    """For each seed, in a loop that keeps the last result alone: of processor time, or elapsed on
    an accelerator.
    """
    now = process_time if jax.default_backend() == "cpu" else perf_counter

    def program(ids: Array) -> object:
        start = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(part, ids[0]))
        return jax.lax.scan(lambda _, seed: (part(seed), None), start, ids)[0]

    ids = jnp.arange(seeds, dtype=jnp.uint32)
    with jax.default_matmul_precision("highest"):
        compiled = jax.jit(program).lower(ids).compile(xla_options(is_kept=True))
    jax.block_until_ready(compiled(ids))
    taken = []
    for _ in range(repeats):
        start = now()
        jax.block_until_ready(compiled(ids))
        taken.append(now() - start)
    return 1e3 * min(taken) / seeds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument(
        "--widths", type=int, nargs="+", default=(512, 256, 64), help="hidden units d1"
    )
    parser.add_argument("--repeats", type=int, default=5, help="of which the least counts")
    options = parser.parse_args()
    if options.smoke:
        options.widths, options.repeats = (4,), 1
    print(machine("specjax", "jax"))
    for d1 in options.widths:
        rows = [(f"d1 = {d1}", "ms", "G/s")]
        for name, (part, operations) in parts(d1).items():
            taken = milliseconds(
                part, max(2**23 // d1**2, 4) if not options.smoke else 2, options.repeats
            )
            rows.append(
                (name, f"{taken:.4f}", f"{1e-6 * operations / taken:.1f}" if operations else "")
            )
        print("\n" + table(rows))
    unit = "of one core" if jax.default_backend() == "cpu" else "elapsed,"
    print(f"ms: {unit} for a seed; G/s: 10⁹ operations of a product, or entries, in a second.")


if __name__ == "__main__":
    main()
