"""Ma et al. 2026, arXiv 2606.21514: early and late steps of Muon in a river valley."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.lab.drawing import draw_curves

claim = lab.read_claim(__file__)
LEVELS = (0.5, 0.1, 0.01)
"""Distances from the target over the first one."""


class Config(lab.Config):
    """Mixed-spiked sensing of a matrix of rank 1."""

    seed: int = lab.config.root_seed(3, help="root of all randomness; rules were set on 0 to 2")
    n: int = lab.config.integer(8, least=4, help="rows and columns of the matrix")
    spikes: tuple[float, ...] = lab.config.numbers(16.0, above=1, help="κ over the bulk's")
    steps: int = lab.config.integer(800, least=10, help="longest training")
    rates: int = lab.config.integer(20, least=4, help="rates of each grid")
    seeds: int = lab.config.seeds(24)


def first_steps(
    config: Config, key: Key[Array, ""], spike: Float[Array, ""]
) -> dict[str, Float[Array, "rate level"]]:
    """Logarithms of the steps until the distance first falls below each level."""
    n, count = config.n, 16 * config.n**2
    sides = [sizes.normal(sizes.stream(key, f"side {i}"), (n,)) for i in range(4)]
    a, b, u, v = (x / jnp.linalg.norm(x) for x in sides)
    target = jnp.outer(u, v) + jnp.outer(a, b) / spike**0.5
    probes = sizes.normal(sizes.stream(key, "bulk"), (count, n, n))
    strengths = sizes.normal(sizes.stream(key, "spike"), (count, 1, 1))
    strengths = (spike - 1) ** 0.5 * strengths / jnp.mean(strengths**2) ** 0.5
    probes = probes + strengths * jnp.outer(a, b)
    hessian = jnp.einsum("kij,klm->ijlm", probes, probes) / count

    def distances(rates: Float[Array, " step"], direction: Callable) -> Float[Array, " step"]:
        def step(w: Array, rate: Array) -> tuple[Array, Array]:
            w = w - rate * direction(jnp.einsum("ijlm,lm->ij", hessian, w - target))
            return w, jnp.linalg.norm(w - target) / jnp.linalg.norm(target)

        return jax.lax.scan(step, jnp.zeros((n, n)), rates)[1]

    def steps(rates: Float[Array, "rate step"], direction: Callable) -> Float[Array, "rate level"]:
        found = jax.vmap(lambda r: distances(r, direction))(rates)
        reached = found[:, None] <= jnp.array(LEVELS)[:, None]
        first = jnp.where(reached.any(-1), jnp.argmax(reached, -1), config.steps - 1)
        return jnp.log(first + 1.0)

    fixed, t = jnp.ones(config.steps), jnp.arange(config.steps)
    times = jnp.geomspace(4, config.steps / 4, config.rates)[:, None]
    return {
        "descent": steps(
            2 / spike * jnp.linspace(0.5, 0.9, config.rates)[:, None] * fixed, jnp.positive
        ),
        "muon": steps(jnp.geomspace(0.3, 0.002, config.rates)[:, None] * fixed, spectral.polar),
        "falling": steps(1.5 / times * jnp.exp(-t / times), spectral.polar),
    }


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Fewest steps over the rates, of each problem and level, in logarithms; differences."""
    over = {"spike": sweep.values(*config.spikes)}
    found = sweep.run(partial(first_steps, config), over, num_seeds=config.seeds, key=key)
    found = sweep.labelled(found, "rate", "level", level=list(LEVELS))
    data = found[["descent", "muon", "falling"]].min("rate")
    data["behind"], data["falling behind"] = (
        data[x] - data["descent"] for x in ("muon", "falling")
    )
    data["late"] = 0 * data["behind"] + data["behind"].sel(level=0.01, drop=True)
    last, before = (data["muon"].sel(level=level, drop=True) for level in (0.01, 0.1))
    return data.assign(exponent=(last - before) / np.log(10))


def controls(name: str, other: str) -> dict[str, lab.Control]:
    """The two methods exchanged, and another number in its place."""
    swapped = lab.controls.replacing(name, lambda data: -data[name])
    return {"exchanged": swapped, other: lab.controls.replacing(name, other)}


@claim.judges("early-faster", controls=controls("behind", "late"))
def early_faster(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the steps to half of the distance."""
    return lab.below(data["behind"].sel(level=0.5), -0.1, "a tenth fewer")


@claim.judges("late-slower", controls=controls("behind", "falling behind"))
def late_slower(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the steps to a hundredth of the distance."""
    return lab.above(data["behind"].sel(level=0.01), np.log(2), "twice as many")


@claim.judges("late-falling", controls=controls("falling behind", "behind"))
def late_falling(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the steps to a hundredth of the distance."""
    return lab.below(data["falling behind"].sel(level=0.01), -0.1, "a tenth fewer")


@claim.judges("steps-inverse", rivals={"ε^-1/2": 0.5, "a logarithm": float(np.log10(2))})
def steps_inverse(_: Config, data: xr.Dataset) -> lab.Relation:
    """The exponent of 1/ε from a tenth to a hundredth of the distance."""
    return lab.near(data["exponent"], 1.0, 0.2, "0.2")


def figure(_: Config, data: xr.Dataset) -> Figure:
    """Steps against the distance that is left."""
    names = {"descent": "gradient descent", "muon": "Muon, fixed rates", "falling": "Muon, falling"}
    steps = xr.ufuncs.exp(data[list(names)].isel(spike=0).to_dataarray("rule"))
    drawn = Figure(figsize=(6, 4), layout="constrained")
    axes = drawn.add_subplot(xscale="log", yscale="log", xlim=(0.7, 0.007))
    draw_curves(axes, steps, "level", "rule", names.__getitem__)
    axes.set(xlabel="distance left over the first one", ylabel="steps at the best rate")
    axes.legend(title=f"κ = {data.spike.values[0]:g}")
    return drawn


EXPERIMENT = claim.experiment(Config, run, figure=figure)
