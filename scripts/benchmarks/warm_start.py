"""Does the last polar factor help to compute the next? Products and distances along the momentum of
Muon, from a cold start and from what the last step has.

The path is that of `int8_momentum.py`: a small network trained with Muon. M is the matrix that Muon
orthogonalizes, P its exact factor, and M₀, P₀ those of the step before, in three settings: β = 0.95
with Nesterov's step, as Muon, and plain averages with β = 0.95 and 0.99. Cold are k steps of
`NewtonSchulz`, `PolarExpress` and cubic5 on M. Warm are

* P₀ itself: no product;
* Q M with Q = (M₀ M₀ᵀ)^(-1/2), the transformation that took M₀ to P₀ (as CacheMuon, arXiv
  2606.16371, reuses it by its abstract and public summaries): one product;
* the same with the Q of `NewtonSchulz(5)` on M₀, of norm 485 / ‖M₀‖_F at most;
* the first after one step Q ← Q (3 - Q M Mᵀ Q) / 2, Newton's iteration for the inverse root;
* k steps of `PolarExpress` on M P₀ᵀ, times P₀: two products more than on M. M P₀ᵀ has the singular
  values of M, so that no polynomial method gains by it; only its singular vectors are known.

Products count (m, m) times (m, n), or less, as in the standard form. The distance is ‖O - P‖_F /
√m, the mean over steps and both square matrices.

    python scripts/benchmarks/warm_start.py [--smoke]
"""

import argparse
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from int8_momentum import gradients
from jax import Array
from small_network import network_parser
from timing import machine, table

from specjax import optim
from specjax.blas import one_blas_thread
from specjax.spectral import SVD, NewtonSchulz, PolarExpress, inverse_root, polar
from specjax.spectral.polynomials import CUBIC5
from specjax.spectral.products import product

Path = tuple[Array, Array, Array, Array]
"""M, P, M₀ and P₀ of all steps."""
Way = Callable[[Path], Array]


def arguments() -> argparse.Namespace:
    parser = network_parser(__doc__.splitlines()[0], 200)
    options = parser.parse_args()
    if options.smoke:
        options.width, options.batch, options.steps = 8, 16, 20
    return options


SETTINGS = {
    "β = 0.95, Nesterov": (0.95, True),
    "β = 0.95": (0.95, False),
    "β = 0.99": (0.99, False),
}


def path(stream: Array, beta: float, nesterov: bool) -> Path:
    """Of the gradients (steps, m, n) of one matrix, after a tenth of the steps."""
    transform = optim.momentum(beta, nesterov=nesterov, bias_correction=True)

    def step(state: object, gradient: Array) -> tuple[object, Array]:
        update, state = transform.update(gradient, state)
        return state, update

    m = jax.lax.scan(step, transform.init(stream[0]), stream)[1][len(stream) // 10 :]
    m = m / jnp.linalg.norm(m, axis=(1, 2), keepdims=True)
    factors = polar(m, SVD())
    return m[1:], factors[1:], m[:-1], factors[:-1]


def newton(steps: int) -> Way:
    """Q M from the inverse root of the last step, after steps of Newton's iteration."""

    def way(path: Path) -> Array:
        m, _, before, _ = path
        q = inverse_root(product(before, before.mT), 2)
        for _ in range(steps):
            x = product(q, m)
            q = 1.5 * q - 0.5 * product(q, product(x, x.mT))
        return product(q, m)

    return way


def cached(path: Path) -> Array:
    """Q M with the Q of five steps on the matrix before."""
    m, _, before, _ = path
    u, s, _ = jnp.linalg.svd(before, full_matrices=False)
    end = s
    for p in NewtonSchulz(5).polynomials():
        end = p(end)
    return product(product(u * (end / s)[:, None, :], u.mT), m)


def rotated(steps: int) -> Way:
    def way(path: Path) -> Array:
        m, _, _, factor = path
        return product(polar(product(m, factor.mT), PolarExpress(steps)), factor)

    return way


def ways() -> Iterator[tuple[str, int, Way]]:
    """Name, products and function of each."""
    for k in (1, 2, 3, 4, 5):
        yield f"NewtonSchulz({k})", 3 * k, lambda path, k=k: polar(path[0], NewtonSchulz(k))
    for k in (1, 2, 3, 4, 5):
        yield f"PolarExpress({k})", 3 * k, lambda path, k=k: polar(path[0], PolarExpress(k))
    yield "cubic5", 10, lambda path: polar(path[0], NewtonSchulz(5, CUBIC5))
    yield "P₀", 0, lambda path: path[3]
    yield "Q M", 1, newton(0)
    yield "Q M, Q of NewtonSchulz(5)", 1, cached
    yield "Q M, one step of Newton", 4, newton(1)
    for k in (3, 5):
        yield f"PolarExpress({k}) on M P₀ᵀ", 3 * k + 2, rotated(k)


def main() -> None:
    options = arguments()
    print(machine("specjax", "jax"))
    streams = gradients(options.width, options.batch, options.steps)
    paths = {
        name: [path(streams[layer], *setting) for layer in ("first", "second")]
        for name, setting in SETTINGS.items()
    }
    rows = [
        (name, str(products), *(f"{distance(way, each):.3g}" for each in paths.values()))
        for name, products, way in ways()
    ]
    print(table((("distance", "products", *SETTINGS), *rows)))
    for name, each in paths.items():
        values = np.concatenate([np.linalg.svd(m, compute_uv=False) for m, *_ in each])
        moved = [np.linalg.norm(m - before, axis=(1, 2)) for m, _, before, _ in each]
        print(
            f"\n{name}: median of s_min / ‖M‖_F {np.median(values[:, -1]):.1e}, of"
            f" ‖M - M₀‖_F / ‖M‖_F {np.median(np.concatenate(moved)):.2f}"
        )


def distance(way: Way, paths: list[Path]) -> float:
    """The mean over steps and matrices."""
    width = paths[0][0].shape[1]
    found = [jnp.linalg.norm(way(each) - each[1], axis=(1, 2)) / width**0.5 for each in paths]
    return float(jnp.mean(jnp.concatenate(found)))


if __name__ == "__main__":
    with one_blas_thread():
        main()
