"""The polar factor by five Newton–Schulz steps: specjax against optax, torch, SVDs, and this
machine's matrix products.

All sides run Muon's five steps with the same coefficients on the same matrices, compiled before the
timing:

* specjax: `polar(x, NewtonSchulz())` in float32, the reference of the ratios to optax;
* optax: `optax.contrib`'s `orthogonalize_via_newton_schulz` in float32;
* specjax, bf16: `polar(x, NewtonSchulz(operands=jnp.bfloat16))`, operands rounded to bfloat16 and
  sums in float32;
* specjax, restart=5: the same with the five steps on one Gram matrix, the fastest and the least
  accurate;
* torch, bf16: the orthogonalization of `torch.optim.Muon`, which runs in bfloat16, if torch is
  installed.

`product` is one matrix product (m, m) @ (m, n), with operands in float32 or in bfloat16. A rate
counts the operations of the standard form, 5 (4 m² n + 2 m³), whatever a side needs in fact, so the
Gram form may exceed the rate of the product.

Before timing, on Gaussian matrices and on spectra σ_k ∝ 1/k and 1/k²: both float32 sides agree with
the five steps in float64 to `--rtol` in the Frobenius norm, specjax with an error of at most ten
times that of optax, and in bfloat16 of at most twice that of torch (on 16 rows; below torch's from
256 rows on). Times are minima over `--rounds` rounds of all sides in turn: other programs only make
a run slower. The tables are

* squares and aspects, m×n;
* batches of 64 matrices;
* exact factors: `SVD()`, `QDWH()` and `PolarExpress()` of specjax, `jax.scipy.linalg.polar` and U
  Vᵀ of `jnp.linalg.svd`;
* one update of `specjax.optim.muon` and of `optax.contrib.muon` on a tree with the shapes of GPT-2
  small.

    python scripts/benchmarks/polar.py [--smoke]

`--processor-time` counts what all threads compute instead of what a call takes, for a machine that
others use as well.

An option without sizes leaves its table out: `--squares --rows --small --exact` measures the update
alone.
"""

import argparse
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter, process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
from jax import Array
from optax.contrib._muon import orthogonalize_via_newton_schulz
from timing import machine, minima, table

from specjax import optim
from specjax.spectral import QDWH, NewtonSchulz, PolarExpress, polar
from specjax.spectral.polynomials import MUON

Shape = tuple[int, ...]
Sides = Mapping[str, Callable[[], Any]]
Clock = Callable[[], float]

OURS, OURS_BF16, OURS_FAST = "specjax", "specjax, bf16", "restart=5"
OPTAX, TORCH = "optax", "torch, bf16"
PRODUCT, PRODUCT_BF16 = "product", "product, bf16"
STEPS = 5
RATE = 0.02


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument(
        "--squares", type=int, nargs="*", default=(128, 256, 512, 1024, 2048), help="sizes n of n×n"
    )
    parser.add_argument("--rows", type=int, nargs="*", default=(256, 512), help="rows m of m×n")
    parser.add_argument("--aspects", type=int, nargs="*", default=(1, 2, 4, 8, 16), help="n / m")
    parser.add_argument(
        "--small", type=int, nargs="*", default=(16, 32, 64, 128), help="sizes of the 64 matrices"
    )
    parser.add_argument(
        "--exact", type=int, nargs="*", default=(128, 512), help="sizes of the exact factors"
    )
    parser.add_argument("--layers", type=int, default=12, help="layers of the tree, 0 for none")
    parser.add_argument("--width", type=int, default=768, help="width of the tree")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of all sides")
    parser.add_argument(
        "--rtol", type=float, default=1e-4, help="of float32 sides, against float64"
    )
    parser.add_argument(
        "--processor-time", action="store_true", help="seconds of all threads, not elapsed ones"
    )
    options = parser.parse_args()
    options.clock = process_time if options.processor_time else perf_counter
    if options.smoke:
        options.squares, options.rows, options.aspects, options.small = (
            (32, 48),
            (16,),
            (2, 8),
            (8,),
        )
        options.exact, options.layers, options.width, options.rounds = (24,), 2, 16, 2
    return options


ours = jax.jit(lambda x: polar(x, NewtonSchulz(STEPS)))
ours_bf16 = jax.jit(lambda x: polar(x, NewtonSchulz(STEPS, operands=jnp.bfloat16)))
ours_fast = jax.jit(lambda x: polar(x, NewtonSchulz(STEPS, restart=STEPS, operands=jnp.bfloat16)))
theirs = jax.jit(lambda x: orthogonalize_via_newton_schulz(x, jnp.asarray(MUON), STEPS))
batched = jax.jit(jax.vmap(lambda x: orthogonalize_via_newton_schulz(x, jnp.asarray(MUON), STEPS)))
product = jax.jit(partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST))
product_bf16 = jax.jit(partial(jnp.matmul, preferred_element_type=jnp.float32))


def torch_side(x: np.ndarray) -> Callable[[], Any] | None:
    """The five steps of torch.optim.Muon, or None without torch."""
    if not importlib.util.find_spec("torch"):
        return None
    import torch
    from torch.optim import _muon

    matrix = torch.tensor(x)
    return lambda: _muon._zeropower_via_newtonschulz(matrix, tuple(MUON), STEPS, 1e-7)


def gaussian(shape: Shape, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def decaying(shape: tuple[int, int], power: int) -> np.ndarray:
    """A matrix with random singular vectors and singular values 1, 2^-power, 3^-power, ..."""
    u, _, vt = np.linalg.svd(gaussian(shape), full_matrices=False)
    return ((u / np.arange(1, min(shape) + 1) ** power) @ vt).astype(np.float32)


def five_steps(x: np.ndarray) -> np.ndarray:
    """The same five steps on the singular values, in float64."""
    u, s, vt = np.linalg.svd(x.astype(np.float64), full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(STEPS):
        s = MUON(s)
    return (u * s) @ vt


def distance(x: Any, reference: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(x, np.float64) - reference) / np.linalg.norm(reference))


def check(name: str, x: np.ndarray, rtol: float) -> str:
    """Raises AssertionError unless float32 sides are within `rtol` of float64, ours near optax,
    and bfloat16 near torch.
    """
    reference = five_steps(x)
    in_torch = torch_side(x)
    errors = {
        OURS: distance(ours(x), reference),
        OPTAX: distance(theirs(x), reference),
        OURS_BF16: distance(ours_bf16(x), reference),
        OURS_FAST: distance(ours_fast(x), reference),
    }
    if in_torch:
        errors[TORCH] = distance(in_torch().float().numpy(), reference)
    for side in (OURS, OPTAX):
        assert errors[side] <= rtol, f"{side} on {name}: error {errors[side]:.1e}."
    assert errors[OURS] <= 10 * errors[OPTAX], f"{name}: {errors[OURS]:.1e}, ten times optax's."
    assert errors[OURS_BF16] <= 2 * errors.get(TORCH, 0.15), (
        f"{OURS_BF16} on {name}: error {errors[OURS_BF16]:.1e}, torch's is less than half of it."
    )
    return f"{name}: " + ", ".join(f"{side} {error:.1e}" for side, error in errors.items())


def of_shapes(shapes: Sequence[tuple[int, int]], rounds: int, clock: Clock) -> str:
    """Milliseconds, rates and ratios for one matrix of each shape."""
    rows = []
    for m, n in shapes:
        x = gaussian((m, n))
        matrix = jnp.asarray(x)
        left = matrix[:, :m]
        halves = left.astype(jnp.bfloat16), matrix.astype(jnp.bfloat16)
        in_torch = torch_side(x)
        sides: Sides = {
            PRODUCT: lambda left=left, matrix=matrix: product(left, matrix),
            PRODUCT_BF16: lambda halves=halves: product_bf16(*halves),
            OURS: lambda matrix=matrix: ours(matrix),
            OPTAX: lambda matrix=matrix: theirs(matrix),
            OURS_BF16: lambda matrix=matrix: ours_bf16(matrix),
            OURS_FAST: lambda matrix=matrix: ours_fast(matrix),
        }
        least = minima({**sides, TORCH: in_torch} if in_torch else sides, rounds, clock)
        standard = STEPS * (4 * m * m * n + 2 * m**3) / 1e9
        rate = 2 * m * m * n / least[PRODUCT] / 1e9
        rows.append(
            (
                f"{m}×{n}",
                f"{1e3 * least[OURS]:.2f}",
                f"{standard / least[OURS]:.0f}",
                f"{rate:.0f}",
                f"{standard / least[OURS] / rate:.2f}",
                f"{1e3 * least[OPTAX]:.2f}",
                f"{least[OURS] / least[OPTAX]:.2f}",
                f"{1e3 * least[OURS_BF16]:.2f}",
                f"{1e3 * least[OURS_FAST]:.2f}",
                f"{2 * m * m * n / least[PRODUCT_BF16] / 1e9:.0f}",
                f"{1e3 * least[TORCH]:.2f}" if in_torch else "",
                *(
                    f"{least[side] / least[TORCH]:.2f}" if in_torch else ""
                    for side in (OURS_BF16, OURS_FAST, OURS)
                ),
            )
        )
    header = ("m×n", OURS, "GFLOP/s", PRODUCT, "fraction", OPTAX, "ratio")
    header += (
        OURS_BF16,
        OURS_FAST,
        PRODUCT_BF16,
        TORCH,
        "bf16 ratio",
        "restart ratio",
        "f32 ratio",
    )
    return table((header, *rows))


def of_batches(sizes: Sequence[int], rounds: int, clock: Clock) -> str:
    """64 small matrices in one call."""
    rows = []
    for m, n in [(size, aspect * size) for size in sizes for aspect in (1, 4)]:
        x = jnp.asarray(gaussian((64, m, n)))
        sides = {OURS: lambda x=x: ours(x), OPTAX: lambda x=x: batched(x)}
        least = minima(sides, rounds, clock)
        assert distance(ours(x), np.asarray(batched(x), np.float64)) < 1e-4
        times = [f"{1e3 * least[side]:.2f}" for side in (OURS, OPTAX)]
        rows.append((f"64×{m}×{n}", *times, f"{least[OURS] / least[OPTAX]:.2f}"))
    return table((("batch", OURS, OPTAX, "ratio"), *rows))


def of_exact_methods(sizes: Sequence[int], rounds: int, clock: Clock) -> str:
    """Methods that converge, with their distance to U Vᵀ in float64."""
    methods = {
        "SVD()": jax.jit(polar),
        "QDWH()": jax.jit(lambda x: polar(x, QDWH())),
        "PolarExpress()": jax.jit(lambda x: polar(x, PolarExpress())),
        "jax.scipy": jax.jit(lambda x: jax.scipy.linalg.polar(x.T)[0].T),
        "jnp.linalg.svd": jax.jit(_by_svd),
    }
    rows = []
    for shape in [(n, aspect * n) for n in sizes for aspect in (1, 4)]:
        x = gaussian(shape)
        u, _, vt = np.linalg.svd(x.astype(np.float64), full_matrices=False)
        sides = {name: partial(method, x) for name, method in methods.items()}
        least = minima(sides, rounds, clock)
        cells = [
            f"{1e3 * least[name]:.1f} ({distance(method(x), u @ vt):.0e})"
            for name, method in methods.items()
        ]
        rows.append((f"{shape[0]}×{shape[1]}", *cells))
    return table((("m×n", *methods), *rows))


def _by_svd(x: Array) -> Array:
    u, _, vt = jnp.linalg.svd(x, full_matrices=False)
    return u @ vt


def gpt2(layers: int, width: int) -> dict[str, Any]:
    """The shapes of GPT-2 small at width 768: matrices as (in, out)."""

    def layer(seed: int) -> dict[str, np.ndarray]:
        matrices = {
            "qkv": (width, 3 * width),
            "proj": (width, width),
            "up": (width, 4 * width),
            "down": (4 * width, width),
        }
        return {name: gaussian(shape, seed) for name, shape in matrices.items()} | {
            f"{name}_bias": gaussian((shape[1],), seed) for name, shape in matrices.items()
        }

    return {
        "tokens": gaussian((65 * width, width)),
        "positions": gaussian((4 * width // 3, width)),
        "layers": [layer(seed) for seed in range(layers)],
    }


def of_tree(layers: int, width: int, rounds: int, clock: Clock) -> str:
    """One update of each muon; embeddings and biases go to AdamW in both."""
    params = jax.tree.map(jnp.asarray, gpt2(layers, width))
    gradients = jax.tree.map(jnp.sin, params)
    labels = jax.tree_util.tree_map_with_path(
        lambda path, x: "matrix" if x.ndim == 2 and path[0].key == "layers" else "other", params
    )
    numbers = jax.tree.map(
        lambda label: optax.contrib.MuonDimensionNumbers() if label == "matrix" else None, labels
    )
    transforms = {
        OURS: optim.jordan_muon(
            RATE,
            bias_correction=True,
            labels=labels,
            fallback=optax.adamw(RATE, weight_decay=0, nesterov=True),
        ),
        OPTAX: optax.contrib.muon(RATE, muon_weight_dimension_numbers=numbers),
    }
    sides, updates = {}, {}
    for name, transform in transforms.items():
        state, step = jax.jit(transform.init)(params), jax.jit(transform.update)
        sides[name] = partial(step, gradients, state, params)
        updates[name] = jax.tree.leaves(sides[name]()[0])
    worst = max(
        distance(a, np.asarray(b, np.float64))
        for a, b in zip(updates[OURS], updates[OPTAX], strict=True)
    )
    assert worst < 1e-4, f"The updates differ by {worst:.1e}."
    least = minima(sides, rounds, clock)
    row = (
        f"{layers} layers",
        f"{least[OURS]:.3f}",
        f"{least[OPTAX]:.3f}",
        f"{least[OURS] / least[OPTAX]:.2f}",
    )
    return f"largest difference of a leaf: {worst:.1e}\n" + table(
        (("seconds", OURS, OPTAX, "ratio"), row)
    )


def main() -> None:
    options = arguments()
    has_torch = importlib.util.find_spec("torch") is not None
    print(machine("specjax", "jax", "optax", *(["torch"] if has_torch else [])))
    if not has_torch:
        print("torch is not installed: torch.optim.Muon is left out.")
    shapes = [(m, aspect * m) for m in options.rows for aspect in options.aspects]

    if options.rows:
        print("\nerrors against float64 before timing, relative in the Frobenius norm")
        for shape in [(m, aspect * m) for m in options.rows for aspect in (1, 2, 4)]:
            for name, x in {
                "Gaussian": gaussian(shape),
                "1/k": decaying(shape, 1),
                "1/k²": decaying(shape, 2),
            }.items():
                print(" ", check(f"{name} {shape[0]}×{shape[1]}", x, options.rtol))
        tall = decaying((options.rows[0], 4 * options.rows[0]), 1).T.copy()
        print(" ", check(f"1/k {tall.shape[0]}×{tall.shape[1]}", tall, options.rtol))

    if options.squares:
        print("\nsquares, milliseconds")
        print(of_shapes([(n, n) for n in options.squares], options.rounds, options.clock))
    if shapes:
        print("\naspects, milliseconds")
        print(of_shapes(shapes, options.rounds, options.clock))
    if options.small:
        print("\nbatches, milliseconds")
        print(of_batches(options.small, options.rounds, options.clock))
    if options.exact:
        print("\nexact factors, milliseconds (distance to U Vᵀ)")
        print(of_exact_methods(options.exact, max(1, options.rounds // 3), options.clock))
    if options.layers:
        print("\none update of a tree")
        print(of_tree(options.layers, options.width, max(1, options.rounds // 3), options.clock))
    print(f"\nload {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    with jax.numpy_dtype_promotion("standard"):
        main()
