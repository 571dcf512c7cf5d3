"""Dion on a stream of gradients, a fixed signal of low rank in fresh noise: how well its steps are
aligned with the signal, by rank and noise, beside Muon's at the same steps.

The signal U Vᵀ has rank r₀ and singular values 1. Gradients are U Vᵀ + σ Z / (2 √n) with Gaussian
Z, whose largest singular value is near 1, so that a single gradient shows the signal for σ < 1.
Muon is the exact polar factor of an average with the same β, and "rank r₀ of the average" the best
that a step of that rank could do with that average: U₀ V₀ᵀ of its first singular pairs. Printed is
the cosine ⟨step, U Vᵀ⟩ / (‖step‖ ‖U Vᵀ‖), the mean over the second half of the steps and all seeds.

    python scripts/benchmarks/dion_stream.py [--smoke]
"""

import argparse
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from timing import machine, table

from specjax import optim
from specjax.blas import one_blas_thread
from specjax.linalg import svd
from specjax.spectral import SVD


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument("--size", type=int, default=64, help="n of the n×n matrices")
    parser.add_argument("--signal", type=int, default=4, help="rank r₀ of the signal")
    parser.add_argument("--steps", type=int, default=100, help="steps of each stream")
    parser.add_argument("--seeds", type=int, default=8, help="streams of each noise")
    parser.add_argument("--noise", type=float, nargs="*", default=(0.5, 2.0, 8.0), help="σ")
    parser.add_argument("--ranks", type=int, nargs="*", default=(1, 4, 8, 32, 64))
    options = parser.parse_args()
    if options.smoke:
        options.size, options.signal, options.steps, options.seeds = 8, 2, 20, 2
        options.noise, options.ranks = (1.0,), (2, 8)
    return options


def cosine(
    transform: optax.GradientTransformation, shape: tuple[int, int, int], noise: Array, key: Array
) -> Array:
    """Of one stream of `shape`, (steps, n, r₀)."""
    steps, n, rank = shape
    of_u, of_v, of_noise = jax.random.split(key, 3)
    u, v = (jnp.linalg.qr(jax.random.normal(k, (n, rank)))[0] for k in (of_u, of_v))
    signal = u @ v.T

    def step(state: object, i: Array) -> tuple[object, Array]:
        z = jax.random.normal(jax.random.fold_in(of_noise, i), (n, n))
        update, state = transform.update(signal + noise * z / (2 * n**0.5), state)
        return state, jnp.sum(update * signal) / jnp.linalg.norm(update) / rank**0.5

    return jnp.mean(jax.lax.scan(step, transform.init(signal), jnp.arange(steps))[1][steps // 2 :])


def first_pairs(rank: int) -> Callable[[Array], Array]:
    """U₀ V₀ᵀ of the first singular pairs."""

    def function(x: Array) -> Array:
        u, _, vt = svd(x)
        return u[:, :rank] @ vt[:rank]

    return function


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax"))
    shape = options.steps, options.size, options.signal
    keys = jax.random.split(jax.random.key(0), options.seeds)
    noise = jnp.asarray(options.noise)
    average = optim.momentum(0.95)
    transforms = {
        "Muon": optax.chain(average, optim.orthogonalize(SVD())),
        f"rank {options.signal} of the average": optax.chain(
            average, optim.orthogonalize(first_pairs(options.signal))
        ),
    }
    for rank in options.ranks:
        transforms[f"Dion, rank {rank}"] = optim.scale_by_dion(rank, key=jax.random.key(1))
    rows = []
    for name, transform in transforms.items():
        over_seeds = jax.vmap(partial(cosine, transform, shape), (None, 0))
        found = np.asarray(jax.jit(jax.vmap(over_seeds, (0, None)))(noise, keys))
        error = found.std(axis=1, ddof=1).max() / options.seeds**0.5
        rows.append((name, *(f"{x:.3f}" for x in found.mean(axis=1)), f"{error:.4f}"))
    header = (*(f"σ = {s}" for s in options.noise), "largest SE")
    print(table((("cosine with the signal", *header), *rows)))


if __name__ == "__main__":
    with one_blas_thread():
        main()
