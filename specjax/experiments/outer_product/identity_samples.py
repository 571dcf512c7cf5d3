"""Samples for the textbook identities of the outer-product paper."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.outer_product.lemma_samples import (
    ASYMMETRIC,
    D_IN,
    D_OUT,
    ENTRIES,
    SYMMETRIC,
    TARGET,
    corner,
    factors,
)
from specjax.experiments.outer_product.statistics import gram
from specjax.models import deep_linear, relu_network

PRODUCTS = ((0, 1, 2), (0, 1, 2, 3), (0, 0, 1, 2), (0, 0, 1, 2, 3), (0, 1, 2, 3, 4, 5))
"""The entries of a correlated vector that are multiplied in Lemma 3; two products are odd."""
POWERS = (2, 3, 4)
"""Powers of the Wishart matrix in Lemma 2."""
FUNCTIONS = ("σ(wᵀx)", "|wᵀx|", "sin(wᵀx)")
"""Lipschitz functions f of Lemma 17."""
U, V = np.array([1.0, 0.5, -0.5]), np.array([0.5, -1.0, 1.0])
"""Vectors of Lemmas 17 to 23, at an angle of 125 degrees; both are scaled by a length."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes, lengths and numbers of samples."""

    seed: int = lab.config.root_seed(7, help="root of all randomness")
    sizes: tuple[int, ...] = lab.config.sizes(
        2, 3, 5, least=2, help="rows, columns and hidden units of the sampled matrices"
    )
    correlations: tuple[float, ...] = lab.config.numbers(
        -0.5, 0.5, help="correlations of neighbours in Lemma 3, between -1 and 1"
    )
    lengths: tuple[float, ...] = lab.config.numbers(
        0.5, 1.0, 2.0, above=0, help="lengths of u, and s in Lemma 18"
    )
    d0s: tuple[int, ...] = lab.config.sizes(
        4, 8, 16, 32, 64, least=2, points=5, help="input dimensions of eq. 52"
    )
    seeds: int = lab.config.seeds(300_000, least=64, help="samples at each point")
    drawn: int = lab.config.seeds(50, help="samples of the identities that hold in each")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(-1 < rho < 1 for rho in self.correlations):
            raise ValueError(f"correlations lie between -1 and 1, got {self.correlations}.")


def covariance(rho: Any) -> Any:
    """ρ^|i-j| for six entries."""
    apart = np.arange(6)
    return rho ** np.abs(apart[:, None] - apart)


def pair_places(indices: tuple[int, ...]) -> Iterator[list[tuple[int, int]]]:
    """All ways to pair the places of a product; none if their number is odd."""
    if not indices:
        yield []
        return
    first, *rest = indices
    for place, second in enumerate(rest):
        for others in pair_places((*rest[:place], *rest[place + 1 :])):
            yield [(first, second), *others]


def sample_products(key: Key[Array, ""], rho: Array) -> dict[str, Array]:
    # As an autoregression, whose covariance is ρ^|i-j|.
    noise = jax.random.normal(key, (6,))
    z = [noise[0]]
    for i in range(1, 6):
        z.append(rho * z[-1] + jnp.sqrt(1 - rho**2) * noise[i])
    vector = jnp.stack(z)
    return {"products": jnp.stack([jnp.prod(vector[jnp.array(of)]) for of in PRODUCTS])}


def sample_forms(key: Key[Array, ""], m: sizes.AnySize) -> dict[str, Array]:
    """X M Xᵀ and Yᵀ M Y, with X and Yᵀ of m × 3 entries."""
    x, y = sizes.normal(key, (m, 3)), sizes.normal(sizes.stream(key, "Y"), (3, m))
    matrix = jnp.asarray(ASYMMETRIC, float)
    return {"forms": jnp.stack([corner(x @ matrix @ x.T), corner(y.T @ matrix @ y)])}


def sample_powers(key: Key[Array, ""], d: sizes.AnySize, k: sizes.AnySize) -> dict[str, Array]:
    w = gram(sizes.normal(key, (d, k)))
    square = w @ w
    return {"powers": jnp.stack([corner(square), corner(square @ w), corner(square @ square)])}


def sample_vectors(key: Key[Array, ""], length: Array) -> dict[str, Array]:
    """What Lemmas 17 to 19, 21 and 23 and Remark 2 average, at u and v of a length."""
    x = jax.random.normal(key, (D_IN,))
    u, v = length * jnp.asarray(U), length * jnp.asarray(V)
    at_u, at_v, step = u @ x, v @ x, (u @ x > 0).astype(x.dtype)
    z, jump = length * x[0], 1 + x[0] ** 2
    values = jnp.stack([jax.nn.relu(at_u), jnp.abs(at_u), jnp.sin(at_u)])
    slopes = jnp.stack([step, jnp.sign(at_u), jnp.cos(at_u)])
    of_jump = step * jnp.array([2 * x[0], 0.0])
    return {
        "stein": jnp.stack([jnp.outer(values, x[:2]), jnp.outer(slopes, u[:2])]),
        "jump": step * jump * x[:2] - of_jump,
        "half_normal": jnp.stack([jax.nn.relu(z), jax.nn.relu(z) ** 2, (z > 0).astype(z.dtype)]),
        "kernels": jnp.stack(
            [jax.nn.relu(at_u) * jax.nn.relu(at_v), step * (at_v > 0).astype(x.dtype)]
        ),
        "half_space": step * jnp.outer(x, x)[:2, :2],
        "moved": step * (jnp.outer(x, x) + x[None, :])[:2, :2],
        "hidden": jax.nn.relu(at_u) * x[:2],
    }


def sample_layers(key: Key[Array, ""], d1: sizes.AnySize, config: Config) -> dict[str, Array]:
    """Outer products of the parts of G₁ that are even and odd in W₂, given W₁."""
    given = sizes.stream(jax.random.key(config.seed), "given W₁")
    w1, w2 = sizes.normal(given, (d1, D_IN)), sizes.normal(key, (D_OUT, d1))
    target = jnp.asarray(TARGET, float)

    def parts(w2: Array) -> tuple[Array, Array]:
        plus, minus = (
            relu_network.gradient(relu_network.Params(w1, w2), sign * target).w1 for sign in (1, -1)
        )
        return (plus + minus) / 2, (minus - plus) / 2

    def cross(w2: Array) -> Array:
        even, odd = parts(w2)
        return corner(even @ odd.T + odd @ even.T)

    # The mean 1 has the extent of W₂, so that padded units stay zero.
    shifted = w2 + (w2 != 0).astype(w2.dtype)
    return {"linear": corner(gram(parts(w2)[1])), "cross": cross(w2), "shifted": cross(shifted)}


def sample_angles(key: Key[Array, ""], d0: sizes.AnySize) -> dict[str, Array]:
    """The two parts of F(a, c)ᵀ F(c, a) by eq. 49: that with cos θ, and the other."""
    a, c = sizes.normal(key, (2, d0))
    norms = jnp.linalg.norm(a) * jnp.linalg.norm(c)
    cosine = jnp.sum(a * c) / norms
    # Averaged over the sign of c, which maps θ to π - θ.
    both = jnp.stack([cosine, -cosine])
    angle, sine = jnp.pi - jnp.arccos(both), jnp.sqrt(1 - cosine**2)
    of_cosine = jnp.mean(both * (sine**2 + angle**2))
    return {
        "of_cosine": norms * of_cosine / (4 * jnp.pi**2),
        "other": norms * jnp.mean(sine * angle) / (2 * jnp.pi**2),
    }


def distance(found: Array, expected: Array) -> Array:
    return jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected)


def sample_factorization(key: Key[Array, ""], k: int) -> dict[str, Array]:
    """Errors of eq. 6 and Lemma 4 against derivatives of the loss, with right and wrong sides."""
    u = jax.random.normal(key, (3, k))
    w = u @ u.T

    def errors(m: Array) -> tuple[Array, Array, Array]:
        g = jax.grad(lambda u: jnp.sum((u @ u.T - m) ** 2) / 4)(u)
        expansion = w @ w @ w - w @ w @ m - m @ w @ w
        return (
            distance(g, (w - m) @ u),
            distance(g @ g.T, expansion + m @ w @ m),
            distance(g @ g.T, expansion),
        )

    right, lemma, without = errors(jnp.asarray(SYMMETRIC, float))
    asymmetric = errors(jnp.asarray(ASYMMETRIC, float))
    return {
        "eq-6": right,
        "eq-6 asymmetric": asymmetric[0],
        "lemma-4": lemma,
        "lemma-4 asymmetric": asymmetric[1],
        "lemma-4 without": without,
    }


def sample_gradients(key: Key[Array, ""], k: int) -> dict[str, Array]:
    """Errors of eq. 20 and Lemma 22 against derivatives of the loss, with right and wrong sides."""
    target, dims = jnp.asarray(TARGET, float), (D_IN, 2 * k, k, D_OUT)
    weights = deep_linear.init(sizes.stream(key, "linear"), dims)
    product = factors(weights, jnp.eye(D_IN), jnp.eye(D_OUT))

    def half_square(weights: deep_linear.Params) -> Array:
        w1, w2, w3 = weights
        return jnp.sum((w3 @ w2 @ w1 - target) ** 2) / 2

    def linear(target: Array) -> Array:
        residual = product["A_0"].T - target
        found = jax.grad(half_square)(weights)
        each = [
            distance(found[i - 1], product[f"A_{i}"] @ residual @ product[f"B_{i}"].T)
            for i in (1, 2, 3)
        ]
        return jnp.max(jnp.stack(each))

    w1, w2 = relu_network.init(sizes.stream(key, "network"), D_IN, k, D_OUT)
    x = jax.random.normal(sizes.stream(key, "inputs"), (7, D_IN))
    h, before = jax.nn.relu(x @ w1.T), x @ w1.T
    by_loss = jax.grad(lambda w2: jnp.sum((h @ w2.T - x @ target.T) ** 2) / (2 * len(x)))(w2)

    def hidden(of: Array) -> Array:
        return distance(by_loss, (w2 @ h.T @ h - target @ x.T @ of) / len(x))

    return {
        "eq-20": linear(target),
        "eq-20 twice": linear(2 * target),
        "lemma-22": hidden(h),
        "lemma-22 before": hidden(before),
    }


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Means of batches, and the errors of identities in float64."""

    def average(name: str, measure: Callable[..., Any], **over: Any) -> xr.Dataset:
        return sweep.run(
            measure,
            over,
            num_seeds=config.seeds,
            key=sizes.stream(key, name),
            reduce="moments",
        )

    of_sizes, lengths = sweep.widths(*config.sizes), sweep.values(*config.lengths)
    products = average("products", sample_products, rho=sweep.values(*config.correlations))
    forms = average("forms", sample_forms, m=of_sizes)
    powers = average("powers", sample_powers, d=of_sizes, k=of_sizes)
    vectors = average("vectors", sample_vectors, length=lengths)
    layers = average("layers", partial(sample_layers, config=config), d1=of_sizes)
    with jax.enable_x64(True):
        exact = {
            name: lab.seeded_sweep(key, name, measure, config.drawn, k=sweep.choices(*config.sizes))
            for name, measure in {
                "factorization": sample_factorization,
                "gradients": sample_gradients,
            }.items()
        }
    return {
        "products": sweep.labelled(products, "entries", entries=[str(of) for of in PRODUCTS]),
        "forms": sweep.labelled(forms, "side", *ENTRIES, side=["left", "right"]),
        "powers": sweep.labelled(powers, "power", *ENTRIES, power=list(POWERS)),
        "vectors": vectors,
        "layers": sweep.labelled(layers, *ENTRIES),
        "angles": lab.seeded_sweep(
            key, "angles", sample_angles, config.seeds // 10, d0=sweep.widths(*config.d0s)
        ),
        **exact,
    }
