"""Samples of the random matrices in the lemmas of the outer-product paper, and exact means."""

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, moments, sizes, sweep
from specjax.experiments.outer_product.statistics import gram
from specjax.models import deep_linear

D_IN, D_OUT, LARGEST = 3, 2, 40
LAYERS, DEPTH = (1, 2, 3), 4
"""The layers of the sampled networks, and the depth of those with exact scalars."""
TARGET = np.array([[2.0, 1.0, 0.0], [1.0, 1.0, -1.0]])
SYMMETRIC = np.array([[2.0, 1.0, 0.0], [1.0, -1.0, 1.0], [0.0, 1.0, 2.0]])
ASYMMETRIC = SYMMETRIC + np.array([[0.0, 1.0, -2.0], [-1.0, 0.0, 1.0], [2.0, -1.0, 0.0]])
BEFORE, AFTER = ("B_2", "B_3"), ("A_0", "A_1", "A_2")
PATTERNS = ("0000", "0011", "0101", "0110", "0001", "0102", "0123")
"""The indices a, k, c, l of Lemma 26, one set of each kind."""
PAIRS = ("u, u", "u, v", "u, w", "v, u", "u, 2u")
ENTRIES = ("row", "column")
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """The sizes at which samples are averaged, and their number."""

    sizes: tuple[int, ...] = lab.config.sizes(
        2, 3, 5, least=2, help="rows, columns and widths of the sampled matrices"
    )
    seeds: int = lab.config.seeds(300_000, least=64, help="samples at each size")
    drawn: int = lab.config.seeds(200, help="sets of sizes at which moments are exact")


def corner(p: Float[Array, "m m"]) -> Float[Array, "2 2"]:
    """Two rows and columns, so that no shape depends on a size; all others have their law."""
    return p[:2, :2]


def network_sizes(w: sizes.AnySize) -> tuple[sizes.AnySize, ...]:
    """The sizes (d_0, …, d_3) of the sampled linear networks."""
    return (D_IN, sizes.times(w, 2), w, D_OUT)


def factors(weights: Sequence[Any], first: Any, last: Any) -> dict[str, Any]:
    """B_i for i = 1, …, L and A_iᵀ for i = 0, …, L by name (eq. 19), from identities at both
    ends.
    """
    depth = len(weights)
    before = {
        f"B_{i}": reduce(lambda product, w: w @ product, weights[: i - 1], first)
        for i in range(1, depth + 1)
    }
    after = {
        f"A_{i}": reduce(lambda product, w: w.T @ product, weights[i:][::-1], last)
        for i in range(depth + 1)
    }
    return before | after


def given_weights(config: Config, w: sizes.AnySize) -> deep_linear.Params:
    """The weights on which Lemma 12 conditions."""
    key = sizes.stream(jax.random.key(config.seed), "given weights")
    return deep_linear.init(key, network_sizes(w))


def given_pairs(config: Config, d0: sizes.AnySize) -> Float[Array, "pairs 2 d0"]:
    """The pairs of vectors of Lemma 25; u is longer, since their lengths stand in a ratio."""
    key = sizes.stream(jax.random.key(config.seed), "given vectors")
    u, v, w = sizes.normal(key, (3, d0)) * jnp.array([2.0, 1.0, 1.0])[:, None]
    return jnp.stack([jnp.stack(pair) for pair in ((u, u), (u, v), (u, w), (v, u), (u, 2 * u))])


def sample_powers(key: Key[Array, ""], d: sizes.AnySize, k: sizes.AnySize) -> dict[str, Array]:
    w = gram(sizes.normal(key, (d, k)))
    return {"powers": jnp.stack([corner(w), corner(w @ w), corner(w @ w @ w)])}


def sample_forms(key: Key[Array, ""], m: sizes.AnySize) -> dict[str, Any]:
    """(X M Xᵀ)², (Yᵀ M Y)² and tr(X M Xᵀ)² with X and Yᵀ of m × 3 entries."""
    x, y = sizes.normal(key, (m, 3)), sizes.normal(sizes.stream(key, "Y"), (3, m))

    def square(matrix: Array) -> dict[str, Array]:
        left, right = x @ matrix @ x.T, y.T @ matrix @ y
        squares = jnp.stack([corner(left @ left), corner(right @ right)])
        return {"squares": squares, "trace": jnp.trace(left) ** 2}

    return {
        **square(jnp.asarray(SYMMETRIC, float)),
        "asymmetric": square(jnp.asarray(ASYMMETRIC, float)),
    }


def sample_networks(key: Key[Array, ""], w: sizes.AnySize, config: Config) -> dict[str, Array]:
    weights, given, target = (
        deep_linear.init(key, network_sizes(w)),
        given_weights(config, w),
        jnp.asarray(TARGET, float),
    )
    product = factors(weights, jnp.eye(D_IN), jnp.eye(D_OUT))
    grams = [gram(product[name]) for name in (*BEFORE, *AFTER)]
    # One layer is drawn, the others are given.
    gradients = [
        deep_linear.gradient((*given[: i - 1], weights[i - 1], *given[i:]), target)[i - 1]
        for i in LAYERS
    ]
    signals = [product[f"A_{i}"] @ target @ product[f"B_{i}"].T for i in LAYERS]
    return {
        "squares": jnp.stack([corner(p @ p) for p in grams]),
        "traces": jnp.stack([jnp.trace(p) ** 2 for p in grams]),
        "signal": jnp.stack([corner(gram(g)) for g in signals]),
        "conditional": jnp.stack([corner(gram(g)) for g in gradients]),
    }


def sample_products(key: Key[Array, ""], d2: sizes.AnySize) -> dict[str, Array]:
    p = gram(sizes.normal(key, (d2, 4)).T)
    indices = (map(int, pattern) for pattern in PATTERNS)
    return {"products": jnp.stack([p[a, k] * p[c, e] for a, k, c, e in indices])}


def sample_kinks(key: Key[Array, ""], d0: sizes.AnySize, config: Config) -> dict[str, Array]:
    x, pairs = sizes.normal(key, (d0,)), given_pairs(config, d0)
    active, hidden = pairs[:, 0] @ x > 0, jax.nn.relu(pairs[:, 1] @ x)
    return {"f": jnp.outer(jnp.where(active, hidden, 0), x[:2])}


@cache
def engine() -> tuple[list[moments.Expression], dict[str, tuple[moments.Expression, ...]]]:
    """d α_1, d α_2, d α_3 and, for every factor, the means of ‖F Fᵀ‖² and (tr F Fᵀ)²."""
    u = moments.gaussian("U", "d", "k")
    powers = [moments.trace(moments.matrix_power(u @ u.T, power)) for power in (1, 2, 3)]
    weights = [moments.gaussian(f"W{i}", f"d{i}", f"d{i - 1}") for i in range(1, DEPTH + 1)]
    ends = moments.identity("d0"), moments.identity(f"d{DEPTH}")
    grams = {name: factor @ factor.T for name, factor in factors(weights, *ends).items()}
    return [moments.expectation(power) for power in powers], {
        name: (
            moments.expectation(moments.squared_norm(p)),
            moments.expectation(moments.trace(p) ** 2),
        )
        for name, p in grams.items()
    }


def draw_sizes(key: Key[Array, ""], number: int) -> xr.Dataset:
    """Sizes from 1 to 40, and the exact means at these."""
    names = ("d", "k", *(f"d{i}" for i in range(DEPTH + 1)))
    drawn = np.asarray(jax.random.randint(key, (len(names), number), 1, LARGEST + 1), float)
    at = dict(zip(names, drawn, strict=True))
    powers, linear = engine()
    with jax.enable_x64(True):
        alphas = np.stack([np.asarray(mean(**at)) for mean in powers], -1) / at["d"][:, None]
        both = np.array([[np.asarray(mean(**at)) for mean in pair] for pair in linear.values()])
    return xr.Dataset(
        {name: ("seed", sides) for name, sides in at.items()}
        | {"alphas": (("seed", "power"), alphas)}
        | {name: (("factor", "seed"), both[:, i]) for i, name in enumerate(("norms", "traces"))},
        {"power": [1, 2, 3], "factor": list(linear)},
    )


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Means of batches for every lemma, and the exact scalars at drawn sizes."""

    def average(name: str, measure: Callable[..., Any], *over: str) -> xr.Dataset:
        return sweep.run(
            measure,
            dict.fromkeys(over, sweep.widths(*config.sizes)),
            num_seeds=config.seeds,
            key=sizes.stream(key, name),
            reduce="moments",
        )

    forms = average("forms", sample_forms, "m").assign(matrix=(("p", "q"), SYMMETRIC))
    networks = average("networks", partial(sample_networks, config=config), "w")
    for dim, outputs in {
        "factor": ["squares", "traces"],
        "layer": ["signal", "conditional"],
    }.items():
        networks = sweep.labelled(networks, dim, *ENTRIES, outputs=outputs)
    kinks = average("kinks", partial(sample_kinks, config=config), "d0")
    return {
        "wishart": sweep.labelled(
            average("powers", sample_powers, "d", "k"), "power", *ENTRIES, power=[1, 2, 3]
        ),
        "forms": sweep.labelled(
            forms,
            "side",
            *ENTRIES,
            outputs=["squares", "asymmetric.squares"],
            side=["left", "right"],
        ),
        "networks": networks.assign_coords(factor=[*BEFORE, *AFTER], layer=list(LAYERS)),
        "products": sweep.labelled(
            average("products", sample_products, "d2"), "indices", indices=list(PATTERNS)
        ),
        "kinks": sweep.labelled(kinks, "pair", "entry", pair=list(PAIRS)),
        "drawn": draw_sizes(sizes.stream(key, "sizes"), config.drawn),
    }
