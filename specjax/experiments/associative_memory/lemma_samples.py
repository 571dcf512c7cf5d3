"""Samples for the lemmas of Appendices C, E, F and H: frequencies, covariances, maxima."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, sweep
from specjax.experiments.associative_memory import sampled_items
from specjax.linalg import eigvalsh, singular_values
from specjax.models import associative_memory as memory

BATCHES = ("d^(α+1)", "d^α", "d^(α-1/2)")
"""Batches of Lemmas E.5 and E.6, with r = d: above r^α, and two at or below it."""
CASES = ("power law", "flat", "one item")
"""Frequencies of Lemmas F.3 and H.5: the second norm decides for flat ones, the largest for one."""
MAPS = ("polar", "h_λ", "cubic", "z/(z + λ)", "tanh", "linear", "square")
"""Maps h of Appendix C; h(z)/z of the last one increases, against Assumption C.2."""
LEFT_OUT, ITEMS = 9, (3.0, 2.0, 1.0)
"""The item that is left out, from 0, and the weights of the exact average in Lemma H.5."""
Data = dict[str, xr.Dataset]


class Config(sampled_items.Config):
    """Items, dimensions and α; frequencies alone have other dimensions."""

    seed: int = lab.config.root_seed(
        43, help="root of all randomness; rules were set on other samples"
    )
    n: int = lab.config.integer(2000, least=2, help="items N")
    dims: tuple[int, ...] = lab.config.sizes(32, 64, 96, least=16, points=3, help="dimensions d")
    wide_n: int = lab.config.integer(
        20_000, least=2, help="items N where only frequencies are sampled"
    )
    wide_dims: tuple[int, ...] = lab.config.sizes(
        32, 64, 128, least=16, points=3, help="dimensions d where only frequencies are sampled"
    )
    alpha: float = lab.config.number(1.5, above=1, help="exponent of the frequencies")
    seeds: int = lab.config.seeds(40, least=10, help="samples at each d")
    small: tuple[int, ...] = lab.config.sizes(
        2, 3, 5, least=2, help="dimensions of the exact average of Lemma H.5"
    )
    averaged: int = lab.config.seeds(50_000, least=64, help="samples of that average")
    drawn: int = lab.config.seeds(100, help="C and n at which the largest normal is computed")


def few(d: int) -> int:
    """r of order d/(log d)²."""
    return max(1, int(d / np.log(d) ** 2))


def stored(d: int, alpha: float) -> int:
    """d_1 = d^(1 + 1/(2α)), the items recovered by one step."""
    return round(d ** (1 + 1 / (2 * alpha)))


def norms(q: Float[Array, " n"], beyond: int = 0) -> dict[str, Array]:
    tail = q[beyond:]
    return {"largest": jnp.max(tail), "second": jnp.sqrt(jnp.sum(tail**2)), "sum": jnp.sum(tail)}


def sample_frequencies(key: Key[Array, ""], d: int, config: Config) -> dict[str, Array]:
    """Norms of the frequencies beyond d, and beyond d/(log d)², by batch."""
    p = memory.power_law(config.wide_n, config.alpha)
    batches = [round(d ** (config.alpha + more)) for more in (1, 0, -0.5)]
    found = [
        {
            f"{place}_{name}": value
            for place, r in (("d", d), ("few", few(d)))
            for name, value in norms(q, r).items()
        }
        for q in memory.minibatches(key, p, batches)
    ]
    return {name: jnp.stack([of[name] for of in found]) for name in found[0]}


def covariance(u: Float[Array, "n d"], weights: Float[Array, " n"]) -> Float[Array, "d d"]:
    return u.T @ (u * weights[:, None])


def bulk(u: Float[Array, "n d"], q: Float[Array, " n"]) -> Float[Array, ""]:
    """λ_(d/2) of Σ q_j² u_j u_jᵀ, the largest one being λ_1."""
    d = u.shape[1]
    return eigvalsh(covariance(u, q**2))[d - d // 2]


def sample_covariances(key: Key[Array, ""], d: int, config: Config) -> dict[str, Array]:
    """The bulk eigenvalue by batch (Lemma E.4), and the norm beyond d_1 (Lemma H.7)."""
    of_batch, of_items = sizes.stream(key, "batch"), sizes.stream(key, "items")
    u, _, p = sampled_items.sample(of_items, config.n, d, config.alpha)
    u, p = u.astype(jnp.float64), p.astype(jnp.float64)
    order, first = d**config.alpha, stored(d, config.alpha)
    batches = {
        "large": round(4 * order),
        "small": round(order / 12),
        "between": round(order * d**0.5 / 12),
        "enough": round(8 * first**config.alpha * np.log(d)),
    }
    drawn = dict(zip(batches, memory.minibatches(of_batch, p, [*batches.values()]), strict=True))
    beyond = jnp.arange(config.n) >= first

    def norm(q: Array) -> Array:
        return eigvalsh(covariance(u, jnp.where(beyond, q, 0) ** 2))[-1]

    return {
        **{f"bulk_{name}": bulk(u, drawn[name]) for name in ("large", "small", "between")},
        "beyond_enough": norm(drawn["enough"]),
        "beyond_population": norm(p),
    }


def weights(d: int, p: Float[Array, " n"]) -> list[Array]:
    """The frequencies of `CASES`, none of them beyond N."""
    item = jnp.arange(len(p))
    flat = jnp.where(item < round(d**1.5), 1.0, 0.0).astype(p.dtype)
    return [jnp.where(item >= few(d), p, 0), flat, jnp.where(item == 0, 1.0, 0.0).astype(p.dtype)]


def sample_norms(key: Key[Array, ""], d: int, config: Config) -> dict[str, Array]:
    """Norms over the bounds of Lemmas E.7, F.3 and H.5."""
    u, v, p = (x.astype(jnp.float64) for x in sampled_items.sample(key, config.n, d, config.alpha))
    spread = jnp.sqrt(eigvalsh(covariance(u, p**2))[::-1])
    without = jnp.where(jnp.arange(config.n) == LEFT_OUT, 0, p)
    s = singular_values(u.T @ (v * without[:, None]))
    found: dict[str, list[Array]] = {"gradient": [], "operator": [], "frobenius": []}
    for q in weights(d, p):
        of, m = norms(q), covariance(u, q)
        gradient = singular_values(u.T @ (v * q[:, None]))[0]
        found["gradient"].append(gradient / jnp.maximum(of["largest"], of["second"] / d**0.5))
        found["operator"].append(eigvalsh(m)[-1] / (of["sum"] / d + of["largest"]))
        found["frobenius"].append(jnp.linalg.norm(m) / (of["sum"] / d**0.5 + of["second"]))
    return {
        **{name: jnp.stack(values) for name, values in found.items()},
        "leave_one_out": jnp.max(s / spread),
        "of_eigenvalues": jnp.max(s / spread**2),
    }


def maps(s: Float[Array, " d"], lam: float) -> dict[str, Callable[[Array], Array]]:
    largest = jnp.max(s)

    def cubic(z: Array) -> Array:
        z = z / largest
        for _ in range(5):
            z = (3 * z - z**3) / 2
        return z

    return {
        "polar": jnp.ones_like,
        "h_λ": lambda z: z / jnp.sqrt(z**2 + lam**2),
        "cubic": cubic,
        "z/(z + λ)": lambda z: z / (z + lam),
        "tanh": lambda z: jnp.tanh(z / lam),
        "linear": lambda z: z / largest,
        "square": lambda z: (z / largest) ** 2,
    }


def mean_slope(s: Float[Array, " d"], h: Callable[[Array], Array]) -> Float[Array, ""]:
    """The mean of φ'(0) over independent u and v, by the formula of Appendix B.2 for any h."""
    d, values = len(s), h(s)
    others = 1 - jnp.eye(d)
    sums = (values[:, None] + values[None, :]) / (s[:, None] + s[None, :])
    differences = (values[:, None] - values[None, :]) / (s[:, None] - s[None, :] + jnp.eye(d))
    pairs = jnp.sum(others * (sums + differences)) / 2
    return (pairs + jnp.sum(jax.vmap(jax.grad(h))(s))) / d**2


def sample_slopes(key: Key[Array, ""], d: int, config: Config) -> dict[str, Array]:
    """By map h, φ'(0) of an item that is left out, averaged over it, and the mean of h(s)/s."""
    u, v, p = (x.astype(jnp.float64) for x in sampled_items.sample(key, config.n, d, config.alpha))
    without = jnp.where(jnp.arange(config.n) == LEFT_OUT, 0, p)
    s = singular_values(u.T @ (v * without[:, None]))
    every = maps(s, d**-config.alpha).values()
    return {
        "slope": jnp.stack([mean_slope(s, h) for h in every]),
        "mean": jnp.stack([jnp.mean(h(s) / s) for h in every]),
    }


def sample_few(key: Key[Array, ""], d: int, config: Config) -> dict[str, Array]:
    """The norm beyond d_1 in a batch of d (Lemma H.7)."""
    of_batch, of_items = sizes.stream(key, "batch"), sizes.stream(key, "items")
    u, _, p = sampled_items.sample(of_items, config.n, d, config.alpha)
    beyond = jnp.arange(config.n) >= stored(d, config.alpha)
    q = jnp.where(beyond, memory.minibatch(of_batch, p, d), 0)
    return {"beyond_few": eigvalsh(covariance(u, q**2))[-1]}


def sample_square(key: Key[Array, ""], d: int) -> dict[str, Array]:
    u = jax.random.normal(key, (len(ITEMS), d)) / d**0.5
    return {"square": jnp.sum(covariance(u, jnp.asarray(ITEMS)) ** 2)}


def draw_maxima(key: Key[Array, ""], number: int) -> xr.Dataset:
    """The exponent of log n in -log P(max Z_i ≤ a_n) ≈ n P(Z > a_n), with n from e^(10⁶) on.

    a_n = √(2 log n) - C log log n/√(log n); C and n are drawn.
    """
    uniform = np.asarray(jax.random.uniform(key, (2, number)), float)
    c, log_n = 1 + uniform[0], 10 ** (6 + 2 * uniform[1])

    def log_count(log_n: np.ndarray) -> np.ndarray:
        at = np.sqrt(2 * log_n) - c * np.log(log_n) / np.sqrt(log_n)
        return log_n + np.asarray(jax.scipy.special.log_ndtr(jnp.asarray(-at)))

    with jax.enable_x64(True):
        slope = (log_count(4 * log_n) - log_count(log_n)) / np.log(4)
    return xr.Dataset({"slope": ("seed", slope), "c": ("seed", c)})


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Samples for each lemma at each d."""

    def run_sweep(
        name: str,
        measure: Callable[..., dict[str, Array]],
        dims: tuple[int, ...] = config.dims,
        seeds: int = config.seeds,
    ) -> xr.Dataset:
        return lab.seeded_sweep(key, name, measure, seeds, d=sweep.choices(*dims))

    of_config = partial(run_sweep, dims=config.dims)
    frequencies = run_sweep(
        "frequencies",
        partial(sample_frequencies, config=config),
        config.wide_dims,
        3 * config.seeds,
    )
    with jax.enable_x64(True):
        covariances = of_config(
            "covariances", partial(sample_covariances, config=config), seeds=3 * config.seeds // 2
        )
        ratios = of_config("norms", partial(sample_norms, config=config))
        slopes = of_config("slopes", partial(sample_slopes, config=config))
    few = run_sweep("few", partial(sample_few, config=config), seeds=10 * config.seeds)
    return {
        "few": few,
        "frequencies": sweep.labelled(frequencies, "batch_size", batch_size=list(BATCHES)),
        "covariances": covariances,
        "norms": sweep.labelled(
            ratios, "case", case=list(CASES), outputs=("gradient", "operator", "frobenius")
        ),
        "slopes": sweep.labelled(slopes, "map", map=list(MAPS)),
        "squares": run_sweep("squares", sample_square, config.small, config.averaged),
        "maxima": draw_maxima(sizes.stream(key, "maxima"), config.drawn),
    }
