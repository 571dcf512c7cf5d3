"""Several steps of Muon, gradient descent and Newton on the population loss of a memory."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.associative_memory import sampled_items
from specjax.models import associative_memory as memory
from specjax.models import descent
from specjax.sizes import AnySize, active
from specjax.theory import capacity
from specjax.theory.closed_forms import in_float64

STEPS = 4
RUNS = ("muon", "short", "gd")
"""Muon with rates 2√d (Figure 4) and √d, and gradient descent with growing rates (Figure 5a)."""
UNSTABLE_ALPHAS = (
    1.25,
    3.0,
)  # A small and a large α, since instability is expected at large α.


class Config(sampled_items.Config):
    """Items, dimensions, α and step counts of three runs: few steps, many steps, and Newton."""

    n: int = lab.config.integer(1000, least=2, help="items N")
    dims: tuple[int, ...] = lab.config.sizes(24, 64, least=4, points=2, help="dimensions d")
    alpha: float = lab.config.number(1.5, above=1, help="exponent of the frequencies")
    others: tuple[float, ...] = lab.config.numbers(
        1.25, 2.0, above=1, help="those of further runs of Muon, as in figure 4"
    )
    seeds: int = lab.config.seeds(32, least=10, help="samples of the embeddings")
    many_n: int = lab.config.integer(500, least=2, help="items N of many steps")
    many_dims: tuple[int, ...] = lab.config.sizes(
        16, 48, least=4, points=2, help="dimensions d of these"
    )
    many_steps: int = lab.config.integer(
        20, least=10, most=lab.config.MOST_COUNT, help="their number"
    )
    many_seeds: int = lab.config.seeds(
        80, least=10, help="their samples, and those of diverging runs"
    )
    newton_n: int = lab.config.integer(300, least=2, help="items N of Newton's method")
    newton_dims: tuple[int, ...] = lab.config.sizes(
        12, 24, least=4, points=2, help="dimensions d of these"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        rare_from = self.dims[-1] ** capacity.one_step_exponent("muon", self.alpha)
        if rare_from >= self.n:
            raise ValueError(f"n={self.n} must exceed {rare_from:.0f}, to have rare items.")


def further(alpha: float) -> str:
    return f"muon, α = {alpha:g}"


def growing(d: AnySize, alpha: float, steps: int) -> Array:
    """η_t ∝ d_{t+1}^α of Theorem 4.2, from 0.01 √d on, as in Figure 5a."""
    exponents = np.asarray(capacity.multi_step_exponents("gd", alpha, steps)[1:])
    size = jnp.asarray(active(d), jnp.float32)
    return (
        0.01 * jnp.sqrt(size) * size ** jnp.asarray(alpha * (exponents - exponents[0]), jnp.float32)
    )


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    def run_sweep(
        measure: Any, of: str, dims: tuple[int, ...], seeds: int, **axes: Any
    ) -> xr.Dataset:
        return sampled_items.run(
            partial(measure, config), dims, seeds, sizes.stream(key, f"items of {of}"), **axes
        )

    t, many_t = range(1, STEPS + 1), range(1, config.many_steps + 1)
    of_few = run_sweep(few, "a few steps", config.dims, config.seeds)
    of_few = sweep.labelled(of_few, "after", outputs=("error",), after=range(STEPS))
    of_many = {"t": many_t, "optimizer": ("muon", "gd")}
    of_newton = {"t": t, "optimizer": ("newton", "muon")}
    diverging = run_sweep(
        unstable,
        "runs that diverge",
        config.newton_dims[-1:],
        config.many_seeds,
        alpha=UNSTABLE_ALPHAS,
    )
    return {
        "few": sweep.labelled(of_few, "t", "run", t=t, run=[*RUNS, *map(further, config.others)]),
        "many": run_sweep(
            many, "many steps of both", config.many_dims, config.many_seeds, **of_many
        ),
        "unstable": diverging.isel(d=0, drop=True),
        "newton": run_sweep(
            newton, "Newton's method", config.newton_dims, config.seeds, **of_newton
        ),
    }


def few(config: Config, key: Array, d: AnySize) -> dict[str, Array]:
    """Counts after few steps, distances of gradients from eq. 5, and signals of rare items."""
    u, v, q = sampled_items.sample(key, config.n, d, config.alpha)
    size = jnp.asarray(active(d), u.dtype)
    root = jnp.sqrt(size)
    long, short = (jnp.full(STEPS, length * root) for length in (2, 1))
    rates = jnp.stack([long, short, growing(d, config.alpha, STEPS)] + [long] * len(config.others))
    qs = jnp.stack([q] * len(RUNS) + [memory.power_law(config.n, alpha) for alpha in config.others])

    def run_optimizer(inputs: tuple[Array, Array, Array]) -> Array:
        q, is_descent, rates = inputs

        def direction(w: Array) -> Array:
            gradient = memory.loss_and_gradient(w, u, v, q).gradient
            return jax.lax.cond(is_descent, lambda: gradient, lambda: spectral.polar(gradient))

        return descent.path(memory.init(u), rates, direction)

    def error(w: Array) -> Array:
        gradient = memory.loss_and_gradient(w, u, v, q).gradient
        thresholded = memory.deflated_gradient(u, v, jnp.where(memory.recovered(u, v, w), 0, q), 0)
        return jnp.linalg.norm(gradient - thresholded) / jnp.linalg.norm(gradient)

    ws = jax.lax.map(run_optimizer, (qs, jnp.arange(len(qs)) == RUNS.index("gd"), rates))
    item = jnp.arange(1, config.n + 1, dtype=u.dtype)
    rare = item > size ** capacity.one_step_exponent(
        "muon", config.alpha
    )  # i* without its logarithms
    signal = jnp.sum(u * (v @ ws[0, 0].T), axis=1) / rates[0, 0] * root
    found = {"rare": jnp.mean(signal, where=rare), "frequent": jnp.mean(signal, where=item <= 4)}
    found["error"] = jax.lax.map(error, jnp.concatenate([0 * ws[0, :1], ws[0, :-1]]))
    return found | {"count": sampled_items.capacities(u, v, ws)["count"].T}


def many(config: Config, key: Array, d: AnySize) -> dict[str, Array]:
    u, v, q = sampled_items.sample(key, config.many_n, d, config.alpha)

    def directions(ws: Array) -> Array:
        muon, gd = memory.loss_and_gradient(ws, u, v, q).gradient
        return jnp.stack([spectral.polar(muon), gd])

    of_gd = growing(d, config.alpha, config.many_steps)
    of_muon = jnp.full_like(of_gd, 2 * jnp.sqrt(jnp.asarray(active(d), u.dtype)))
    ws = descent.path(memory.init(u, 2), jnp.stack([of_muon, of_gd], axis=1), directions)
    return {"count": sampled_items.capacities(u, v, ws)["count"]}


def unstable(config: Config, key: Array, d: AnySize) -> dict[str, Array]:
    """Log of the last loss over the first, with growing and constant rates, at both α."""
    u, v, _ = sampled_items.sample(
        key, config.newton_n, d, config.alpha
    )  # computed once, outside the loop over α

    def last(alpha: Array, rates: Array) -> Array:
        q = memory.power_law(config.newton_n, alpha)
        w = descent.path(
            memory.init(u), rates, lambda w: memory.loss_and_gradient(w, u, v, q).gradient
        )[-1]
        return jnp.log(memory.loss(w, u, v, q) / jnp.log(config.newton_n))

    rates = jnp.stack(
        [growing(d, alpha, 12) for alpha in UNSTABLE_ALPHAS]
    )  # the last rates are near the largest
    kinds = {"growing": rates, "constant": 0 * rates + rates[:, :1]}
    return {
        kind: jax.lax.map(lambda at: last(*at), (jnp.asarray(UNSTABLE_ALPHAS), of))
        for kind, of in kinds.items()
    }


def newton(config: Config, key: Array, d: AnySize) -> dict[str, Array]:
    u, v, q = sampled_items.sample(key, config.newton_n, d, config.alpha)
    ws = newton_and_muon(u, v, q, 2.0 * jnp.asarray(active(d), u.dtype))
    return {"count": sampled_items.capacities(u, v, ws)["count"]}


@in_float64
@jax.jit
def newton_and_muon(u: Array, v: Array, q: Array, length: Array) -> Array:
    """W after each of four steps of both on the same items, (4, 2, d, d), with learning rates that
    give both first steps one length.
    """
    u, v, q, length = (x.astype(jnp.float64) for x in (u, v, q, length))

    def directions(ws: Array) -> Array:
        newton = -memory.newton_direction(ws[0], u, v, q, 1e-8)  # the ridge of Figure 6
        return jnp.stack(
            [newton, spectral.polar(memory.loss_and_gradient(ws[1], u, v, q).gradient)]
        )

    rates = length / jnp.linalg.norm(directions(memory.init(u, 2)), axis=(1, 2))
    return descent.path(memory.init(u, 2), jnp.stack([rates] * STEPS), directions).astype(
        jnp.float32
    )
