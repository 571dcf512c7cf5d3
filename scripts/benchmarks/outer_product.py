"""E[G Gᵀ] of the two-layer ReLU network: estimators that are exact in the inputs x, and in W_2,
against gradients of a sampled loss.

All sides get the same weights (as arrays, so drawing them is counted for none) and return of every
initialization, in float32, P_i = G_i G_iᵀ or a mean of it. Sampled sides draw their own inputs
inside the timed region, with their own library's generator, and return the product of the gradients
of two half batches: that of one whole batch is biased by the batch's noise. The sides are

* specjax, exact in x and W₂: `specjax.models.relu_network.expected_outer_products`, the reference
  of every ratio;
* specjax, exact in x, signs: `symmetrized_outer_products`, the mean over all signs of the weights;
* specjax, exact in x: `gradient`; these three under `jit` in groups of `--group` initializations;
* specjax, sampled: `jax.grad(specjax.models.relu_network.sampled_loss)`, vmapped over chunks;
* NumPy, sampled, loop: a Python loop over initializations, backpropagation by hand;
* NumPy, exact, loop and NumPy, exact, batched: the closed form of the gradient, one at a time and
  all at once;
* torch, sampled: `torch.func.vmap(torch.func.grad(loss))` over chunks, if torch is installed.

Before timing: of the first `--check` initializations NumPy's exact sides agree with specjax's to
rounding (`--rtol` of the root mean square), and the mean of each of the four quantities of Table
C.7 by a sampled side is within 5 standard errors of the exact one, on the same weights; so are
those of the two means, of all `--inits`. (The tests have them to rounding, against all signs and
Gauss–Hermite nodes of the weights.) Times are medians over `--repeats` rounds of all sides, of the
first call of a newly built side, which compiles, and of the second. The time to a given standard
error of a mean over initializations is the variance of the quantity between them times the seconds
for each, and its ratio to the reference's is printed for each of the four.

    python scripts/benchmarks/outer_product.py [--smoke]
"""

import argparse
import importlib.util
from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time

import jax
import numpy as np
import relu_numpy
from timing import Timing, machine, measure, table

from specjax.models import relu_network

Products = tuple[np.ndarray, np.ndarray]
Side = Callable[[relu_network.Params], Products]
"""From weights with a leading axis of initializations to P_1 and P_2 with the same axis."""

EXPECTED, SIGNS, EXACT = (
    "specjax, exact in x and W₂",
    "specjax, exact in x, signs",
    "specjax, exact in x",
)
QUANTITIES = {
    "g2_diagonal": "G₂ diagonal",
    "g2_coefficient": "G₂ off",
    "g1_diagonal": "G₁ diagonal",
    "g1_off_diagonal": "G₁ off",
}
CLOCKS = {"elapsed": perf_counter, "processor": process_time}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, seconds in all")
    parser.add_argument(
        "--sizes", type=int, nargs=3, default=(25, 20, 12), metavar=("D0", "D1", "D2"), help="sizes"
    )
    parser.add_argument(
        "--samples",
        type=int,
        default=8000,
        help="inputs per initialization of the sampled sides, even",
    )
    parser.add_argument(
        "--inits",
        type=int,
        default=10_000,
        help="initializations per call of the batched exact sides",
    )
    parser.add_argument(
        "--slow-inits", type=int, default=500, help="initializations per call of the other sides"
    )
    parser.add_argument(
        "--check", type=int, default=2000, help="initializations of the slow sides before timing"
    )
    parser.add_argument(
        "--chunk", type=int, default=16, help="initializations in memory at a time, sampled sides"
    )
    parser.add_argument(
        "--group", type=int, default=512, help="initializations in memory at a time, specjax, exact"
    )
    parser.add_argument("--clock", choices=CLOCKS, default="elapsed", help="what is timed")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls after the first")
    parser.add_argument(
        "--rtol", type=float, default=1e-4, help="of the root mean square, between exact sides"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, target and inputs")
    options = parser.parse_args()
    if options.smoke:
        options.samples, options.inits, options.slow_inits, options.check, options.repeats = (
            64,
            64,
            32,
            64,
            1,
        )
    return options


def specjax_exact(one: Callable[[relu_network.Params], tuple[jax.Array, ...]], group: int) -> Side:
    return jax.jit(lambda params: jax.lax.map(one, params, batch_size=group))


def specjax_sampled(phi: np.ndarray, samples: int, chunk: int, seed: int) -> Side:
    def products(given: tuple[jax.Array, relu_network.Params]) -> tuple[jax.Array, ...]:
        key, params = given
        x = jax.random.normal(key, (2, samples // 2, phi.shape[1]))
        halves = jax.vmap(lambda batch: jax.grad(relu_network.sampled_loss)(params, phi, batch))(x)
        return tuple(g[0] @ g[1].T for g in halves)

    def every(params: relu_network.Params) -> tuple[jax.Array, ...]:
        keys = jax.random.split(jax.random.key(seed + 2), len(params.w1))
        return jax.lax.map(products, (keys, params), batch_size=chunk)

    return jax.jit(every)


def numpy_exact(phi: np.ndarray) -> Side:
    def products(params: relu_network.Params) -> Products:
        g1, g2 = relu_numpy.gradient(*params, phi)
        return g1 @ g1.mT, g2 @ g2.mT

    return products


def numpy_loop(one: Side) -> Side:
    def every(params: relu_network.Params) -> Products:
        p1, p2 = zip(
            *(one(relu_network.Params(w1, w2)) for w1, w2 in zip(*params, strict=True)), strict=True
        )
        return np.stack(p1), np.stack(p2)

    return every


def numpy_sampled(phi: np.ndarray, samples: int, seed: int) -> Side:
    rng = np.random.default_rng(seed + 3)

    def products(params: relu_network.Params) -> Products:
        x = rng.standard_normal((2, samples // 2, phi.shape[1]), dtype=np.float32)
        first, second = (relu_numpy.sampled_gradient(*params, phi, half) for half in x)
        return first[0] @ second[0].T, first[1] @ second[1].T

    return numpy_loop(products)


def torch_sampled(phi: np.ndarray, samples: int, chunk: int, seed: int) -> Side:
    import torch

    target, generator = torch.from_numpy(phi), torch.Generator().manual_seed(seed + 4)

    def loss(w1: torch.Tensor, w2: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return ((torch.relu(x @ w1.T) @ w2.T - x @ target.T) ** 2).sum() / (2 * x.shape[0])

    halves = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0))
    gradients = torch.func.vmap(halves)

    def every(params: relu_network.Params) -> Products:
        p1, p2 = [], []
        for w1, w2 in zip(*(torch.from_numpy(w).split(chunk) for w in params), strict=True):
            x = torch.randn((len(w1), 2, samples // 2, phi.shape[1]), generator=generator)
            g1, g2 = gradients(w1, w2, x)
            p1.append(g1[:, 0] @ g1[:, 1].mT)
            p2.append(g2[:, 0] @ g2[:, 1].mT)
        return torch.cat(p1).numpy(), torch.cat(p2).numpy()

    return every


def check_exact(name: str, products: Products, reference: Products, rtol: float) -> str:
    """Raises AssertionError unless every entry agrees to `rtol` of the root mean square of its
    matrix.
    """
    errors = [
        np.max(np.abs(p - r)) / np.sqrt(np.mean(r**2))
        for p, r in zip(products, reference, strict=True)
    ]
    assert max(errors) <= rtol, (
        f"{name} differs from {EXACT} by {max(errors):.1e} of the root mean square."
    )
    return f"{name}: largest difference {max(errors):.1e} of the root mean square"


def check_means(name: str, products: Products, reference: Products, phi: np.ndarray) -> str:
    """Raises AssertionError unless the mean of each row of Table C.7 is within 5 standard errors of
    the exact one.
    """
    exact = relu_numpy.statistics(*reference, phi)
    deviations = {}
    for quantity, values in relu_numpy.statistics(*products, phi).items():
        paired = values - exact[quantity]
        deviations[quantity] = abs(paired.mean()) / (paired.std(ddof=1) / np.sqrt(len(paired)))
    worst = max(deviations, key=deviations.__getitem__)
    assert deviations[worst] <= 5, (
        f"{name}: {worst} is {deviations[worst]:.1f} standard errors from {EXACT}."
    )
    return f"{name}: the four means are within {deviations[worst]:.1f} standard errors"


def main() -> None:
    options = arguments()
    d0, d1, d2 = options.sizes
    with_torch = importlib.util.find_spec("torch") is not None
    print(machine("specjax", "jax", "numpy", *["torch"] * with_torch))
    if not with_torch:
        print(
            "torch is not installed, so its row is left out; get it with: pip install"
            " 'specjax[bench]'"
        )
    print(f"d0={d0}, d1={d1}, d2={d2}, {options.samples} inputs per initialization, float32")

    phi = np.array(jax.random.normal(jax.random.key(options.seed + 1), (d2, d0)))
    keys = jax.random.split(
        jax.random.key(options.seed), max(options.inits, options.slow_inits, options.check)
    )
    weights = jax.jit(jax.vmap(lambda key: relu_network.init(key, d0, d1, d2)))(keys)
    host_weights = jax.tree.map(np.array, weights)
    sampling = (options.samples, options.chunk, options.seed)
    many, few = options.inits, options.slow_inits
    exactly: dict[str, Callable[[relu_network.Params], tuple[jax.Array, ...]]] = {
        EXPECTED: lambda params: relu_network.expected_outer_products(params.w1, phi, d2),
        SIGNS: lambda params: relu_network.symmetrized_outer_products(params, phi),
        EXACT: lambda params: tuple(g @ g.T for g in relu_network.gradient(params, phi)),
    }
    sides: dict[str, tuple[Callable[[], Side], relu_network.Params, int]] = {
        **{
            name: (partial(specjax_exact, one, options.group), weights, many)
            for name, one in exactly.items()
        },
        "NumPy, exact, batched": (lambda: numpy_exact(phi), host_weights, many),
        "NumPy, exact, loop": (lambda: numpy_loop(numpy_exact(phi)), host_weights, few),
        "specjax, sampled": (lambda: specjax_sampled(phi, *sampling), weights, few),
        "NumPy, sampled, loop": (
            lambda: numpy_sampled(phi, options.samples, options.seed),
            host_weights,
            few,
        ),
    }
    if with_torch:
        sides["torch, sampled"] = (lambda: torch_sampled(phi, *sampling), host_weights, few)

    def calling(name: str, count: int) -> Callable[[], Products]:
        make, params, _ = sides[name]
        return partial(make(), jax.tree.map(lambda w: w[:count], params))

    print("\nagreement before timing")
    products = {
        name: tuple(map(np.asarray, calling(name, many if count == many else options.check)()))
        for name, (_, _, count) in sides.items()
    }
    for name in sides:
        reference = tuple(p[: len(products[name][0])] for p in products[EXACT])
        if name.startswith("NumPy, exact"):
            print(" ", check_exact(name, products[name], reference, options.rtol))
        elif name != EXACT:
            print(" ", check_means(name, products[name], reference, phi))

    makers = {name: partial(calling, name, count) for name, (_, _, count) in sides.items()}
    timings = measure(makers, options.repeats, CLOCKS[options.clock])
    print()
    print(
        table(rows(timings, {name: count for name, (_, _, count) in sides.items()}, products, phi))
    )
    print(
        f"inits: initializations per timed call; s/1000: median seconds ({options.clock}) per 1000"
        " of them, compiled before; with\ncompiling: what the first call took longer, added;"
        f" ratio: to {EXPECTED}; the last five: ratios of the times to\nequal standard errors of"
        " the four quantities, and the least of them."
    )


def rows(
    timings: dict[str, Timing],
    inits: dict[str, int],
    products: dict[str, Products],
    phi: np.ndarray,
) -> list[tuple[str, ...]]:
    """Header and one row of the printed table per side."""
    per_init = {name: timing.again / inits[name] for name, timing in timings.items()}
    with_compiling = {
        name: 1000 * per_init[name] + timing.compiling for name, timing in timings.items()
    }
    # Seconds to a standard error of one, for each quantity.
    to_one = {
        name: np.array([np.var(values[q], ddof=1) for q in QUANTITIES]) * per_init[name]
        for name, values in ((name, relu_numpy.statistics(*p, phi)) for name, p in products.items())
    }
    equal = {name: times / to_one[EXPECTED] for name, times in to_one.items()}
    header = (
        "",
        "inits",
        "s/1000",
        "range",
        "ratio",
        "with compiling",
        "ratio",
        *QUANTITIES.values(),
        "least",
    )
    return [
        header,
        *(
            (
                name,
                f"{inits[name]}",
                f"{1000 * per_init[name]:.4f}",
                f"{1000 * timing.low / inits[name]:.4f}-{1000 * timing.high / inits[name]:.4f}",
                f"{per_init[name] / per_init[EXPECTED]:.2f}",
                f"{with_compiling[name]:.3f}",
                f"{with_compiling[name] / with_compiling[EXPECTED]:.2f}",
                *(
                    f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"
                    for ratio in (*equal[name], min(equal[name]))
                ),
            )
            for name, timing in timings.items()
        ),
    ]


if __name__ == "__main__":
    main()
