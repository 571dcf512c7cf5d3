"""The staged count of recovered items against the dense one, and the streamed gradient against the
rate of its products.

One memory for each d of `--dims`: N items of frequency ∝ i^-1.5, one step of Muon from zero.

* dense: all N² logits in blocks of matrix products, with the largest of each row kept and nothing
  stored;
* staged: `specjax.models.associative_memory.recovered`.

The two get the same queries W v_i, and their counts must agree before anything is timed. Times are
minima over `--rounds` rounds of all sides in turn: other programs only make a run slower.

The streamed gradient is timed on the first `--rows` items of positive frequency (its time is
proportional to their number), and its rate counts the 4 M N d operations of the two products that
it cannot do without: M items, N competitors. The rate of a plain product is that of the dense
side's.

    python scripts/benchmarks/recovery.py [--smoke]
"""

import argparse
import os
import resource
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from timing import machine, minima, seconds, table

from specjax import spectral
from specjax.models import associative_memory as memory

ALPHA = 1.5
DENSE, STAGED, GRADIENT = "dense", "staged", "gradient"
HIGHEST = jax.lax.Precision.HIGHEST


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument("--n", type=int, default=100_000, help="items N")
    parser.add_argument("--dims", type=int, nargs="*", default=(64, 256), help="dimensions d")
    parser.add_argument(
        "--rows", type=int, default=8192, help="items of positive frequency of the gradient"
    )
    parser.add_argument(
        "--block", type=int, default=1024, help="items of one block of the dense count"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of all sides")
    parser.add_argument(
        "--large", type=int, default=0, help="items of one more count at d = 128, for its memory"
    )
    options = parser.parse_args()
    if options.smoke:
        options.n, options.dims, options.rows, options.block, options.rounds = (
            3000,
            (16, 32),
            512,
            256,
            2,
        )
    return options


@partial(jax.jit, static_argnums=2)
def dense(u: Array, y: Array, block: int) -> Array:
    """Whether each item is recovered, by all N² logits, in blocks of `block` items against all."""
    n = len(u)

    def step(k: Array, mask: Array) -> Array:
        start = jnp.minimum(k * block, n - block)
        rows = start + jnp.arange(block)
        logits = jnp.matmul(jax.lax.dynamic_slice_in_dim(y, start, block), u.T, precision=HIGHEST)
        own = jnp.take_along_axis(logits, rows[:, None], axis=1)[:, 0]
        others = jnp.max(
            jnp.where(rows[:, None] == jnp.arange(n)[None, :], -jnp.inf, logits), axis=1
        )
        return jax.lax.dynamic_update_slice_in_dim(mask, own > others, start, 0)

    return jax.lax.fori_loop(0, -(-n // block), step, jnp.zeros(n, bool))


staged = jax.jit(memory.recovered)
queries = jax.jit(memory.queries)
streamed = jax.jit(memory.loss_and_gradient)


@partial(jax.jit, static_argnums=(1, 2))
def problem(key: Array, n: int, d: int) -> tuple[Array, Array, Array, Array]:
    """u, v, frequencies and one step of Muon."""
    of_u, of_v = jax.random.split(key)
    u, v, q = memory.isotropic(of_u, n, d), memory.isotropic(of_v, n, d), memory.power_law(n, ALPHA)
    return u, v, q, -spectral.polar(memory.gradient_at_zero(u, v, q))


def of_dimension(n: int, d: int, rows: int, block: int, rounds: int) -> tuple[str, ...]:
    u, v, q, w = problem(jax.random.key(0), n, d)
    y = queries(v, w)
    masks = {DENSE: dense(u, y, block), STAGED: staged(u, v, w)}
    counts = {name: int(memory.count(mask)) for name, mask in masks.items()}
    assert counts[DENSE] == counts[STAGED], f"The counts differ: {counts}."
    assert bool(jnp.all(masks[DENSE] == masks[STAGED])), "The counts agree and the items do not."
    print(
        f"  N = {n}, d = {d}: identical, {counts[STAGED]} items, of which"
        f" {int(memory.prefix(masks[STAGED]))} in a row"
    )
    some = jnp.where(jnp.arange(n) < rows, q, 0)
    scaled = 2 * jnp.sqrt(jnp.asarray(d, w.dtype)) * w
    least = minima(
        {
            DENSE: lambda: dense(u, y, block),
            STAGED: lambda: staged(u, v, w),
            GRADIENT: lambda: streamed(scaled, u, v, some),
        },
        rounds,
    )
    product = 2 * n * n * d / least[DENSE] / 1e9
    rate = 4 * min(rows, n) * n * d / least[GRADIENT] / 1e9
    return (
        f"{d}",
        f"{least[DENSE]:.2f}",
        f"{least[STAGED]:.3f}",
        f"{least[DENSE] / least[STAGED]:.1f}",
        f"{product:.0f}",
        f"{rate:.0f}",
        f"{rate / product:.2f}",
    )


def of_large(n: int, d: int = 128) -> None:
    """One step and one count of so many items, and the most memory the process has held."""
    u, v, _, w = problem(jax.random.key(0), n, d)
    taken = seconds(lambda: staged(u, v, w))
    recovered = staged(u, v, w)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"\nN = {n}, d = {d}: {int(memory.count(recovered))} items, {int(memory.prefix(recovered))}"
        f" in a row, in {taken:.1f} s with compilation; most memory held by the process"
        f" {peak:.2f} GiB"
    )


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax"))
    if options.large:
        of_large(options.large)
    if not options.dims:
        return
    print("\nrecovered items, before timing")
    rows = [
        of_dimension(options.n, d, options.rows, options.block, options.rounds)
        for d in options.dims
    ]
    print(f"\nseconds of a count of N = {options.n}, ratio, and GFLOP/s")
    print(table((("d", DENSE, STAGED, "ratio", "product", "gradient", "fraction"), *rows)))
    print(f"\nload {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
