"""Ma et al. 2026, arXiv 2606.21514: early and late steps of Muon in a river valley."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep

claim = lab.read_claim(__file__)
LEVELS = (0.5, 0.1, 0.01)
"""Distances from the target over the first one."""
_DESCENT = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9)
"""Fixed rates over 2 / κ. Muon's and the times of falling rates are geometric, in `run`."""


class Config(lab.Config):
    """Mixed-spiked sensing of a matrix of rank 1."""

    seed: int = lab.config.root_seed(2, help="root of all randomness; rules were set on 0 and 1")
    n: int = lab.config.integer(8, least=4, help="rows and columns of the matrix")
    spikes: tuple[float, ...] = lab.config.numbers(16.0, above=1, help="κ over the bulk's")
    steps: int = lab.config.integer(800, least=10, help="longest training")
    rates: int = lab.config.integer(20, least=4, help="rates of Muon's grid")
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
        "descent": steps(2 / spike * jnp.array(_DESCENT)[:, None] * fixed, jnp.positive),
        "muon": steps(jnp.geomspace(0.3, 0.002, config.rates)[:, None] * fixed, spectral.polar),
        "falling": steps(1.5 / times * jnp.exp(-t / times), spectral.polar),
    }


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Fewest steps over the rates, of each problem and level, in logarithms; differences."""
    over = {"spike": sweep.values(*config.spikes)}
    found = sweep.run(partial(first_steps, config), over, num_seeds=config.seeds, key=key)
    steps = {}
    for name in ("descent", "muon", "falling"):
        rates = sweep.labelled(found[[name]], "rate", "level", level=list(LEVELS))[name]
        steps[name] = rates.min("rate")
    data = xr.Dataset(steps)
    data["behind"], data["falling behind"] = (
        data[x] - data["descent"] for x in ("muon", "falling")
    )
    for name in steps:
        late, before = (data[name].sel(level=level, drop=True) for level in (0.01, 0.1))
        data[f"exponent of {name}"] = (late - before) / np.log(10)
    return data


def controls(name: str, other: str) -> dict[str, lab.Control]:
    """The two methods exchanged, and another number in its place."""
    swapped = lab.controls.replacing(name, lambda data: -data[name])
    return {"exchanged": swapped, other: lab.controls.replacing(name, other)}


@claim.judges(
    "early-faster",
    controls={
        "exchanged": lab.controls.replacing("behind", lambda data: -data["behind"]),
        "late": lab.controls.replacing(
            "behind", lambda d: d["behind"] * 0 + d["behind"].sel(level=0.01, drop=True)
        ),
    },
)
def early_faster(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the steps to half of the distance."""
    return lab.below(data["behind"].sel(level=0.5), -0.1, "a tenth fewer")


@claim.judges("late-slower", controls=controls("behind", "falling behind"))
def late_slower(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the steps to a hundredth of the distance."""
    return lab.above(data["behind"].sel(level=0.01), np.log(2), "twice as many")


@claim.judges("late-slower-falling", controls=controls("falling behind", "behind"))
def late_slower_falling(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the steps to a hundredth of the distance."""
    return lab.above(data["falling behind"].sel(level=0.01), 0.0, "as many")


@claim.judges(
    "steps-inverse",
    rivals={"ε^-1/2": 0.5, "a logarithm": float(np.log10(2))},
    controls={
        "gradient descent": lab.controls.replacing("exponent of muon", "exponent of descent")
    },
)
def steps_inverse(_: Config, data: xr.Dataset) -> lab.Relation:
    """The exponent of 1/ε from a tenth to a hundredth of the distance."""
    return lab.near(data["exponent of muon"], 1.0, 0.2, "0.2")


EXPERIMENT = claim.experiment(Config, run)
