"""Wang et al. 2026, arXiv 2606.04662: the curvature along the steps of Muon."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep

claim = lab.read_claim(__file__)
_SHARE = 0.25
"""Share of the rows with the curvature κ; the others have 1."""
_DESCENT, _MUON = jnp.array([0.6, 0.7, 0.8, 0.9, 0.95, 1.0]), jnp.geomspace(0.02, 0.3, 6)
"""Fixed rates: of gradient descent over 2 / (κ + 1), and of Muon."""


class Config(lab.Config):
    """Two groups of curvatures, lengths and seeds."""

    seed: int = lab.config.root_seed(2, help="root of all randomness; rules were set on 0 and 1")
    n: int = lab.config.integer(16, least=4, help="rows and columns of the quadratic's matrix")
    ratios: tuple[float, ...] = lab.config.numbers(8.0, 64.0, above=1, help="κ, of the curvatures")
    lengths: tuple[int, ...] = lab.config.sizes(8, 32, help="steps on the quadratic")
    seeds: int = lab.config.seeds(48)


def sharpness(loss: Callable, w: Array, step: Array) -> Float[Array, ""]:
    """⟨D, ∇²L D⟩ / ‖D‖² of a step D."""
    change = jax.jvp(jax.grad(loss), (w,), (step,))[1]
    return jnp.vdot(step, change) / jnp.vdot(step, step)


def quadratic(key: Key[Array, ""], ratio: Float[Array, ""], config: Config) -> dict[str, Array]:
    """Logarithms of losses and of mean sharpnesses (length, rate)."""
    h = jnp.where(jnp.arange(config.n) < _SHARE * config.n, ratio, 1.0)
    target = sizes.normal(key, (config.n, config.n)) / config.n**0.5
    ends = jnp.array(config.lengths)

    def loss(w: Float[Array, "n n"]) -> Float[Array, ""]:
        return jnp.sum(h[:, None] * (w - target) ** 2) / 2

    def train(rate: Float[Array, ""], direction: Callable) -> tuple[Array, Array, Array]:
        def step(w: Array, _: None) -> tuple[Array, tuple[Array, Array]]:
            update = direction(jax.grad(loss)(w))
            return w - rate * update, (loss(w - rate * update), sharpness(loss, w, update))

        losses, along = jax.lax.scan(step, 0 * target, None, length=config.lengths[-1])[1]
        return jnp.log(losses[ends - 1]), jnp.log(jnp.cumsum(along)[ends - 1] / ends), along[0]

    rules = {"descent": (lambda g: g, _DESCENT * 2 / (ratio + 1)), "muon": (spectral.polar, _MUON)}
    found, starts = {"slow.mean": train(1 / ratio, lambda g: g)[1]}, {}
    for name, (direction, rates) in rules.items():
        losses, means, first = jax.vmap(train, (0, None), (1, 1, 0))(rates, direction)
        found |= {f"{name}.loss": losses, f"{name}.mean": means}
        starts[name] = jnp.log(first[0])
    return found | {"start": starts["descent"] - starts["muon"]}


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Differences of logarithms, gradient descent less Muon."""
    found = sweep.run(
        lambda key, ratio: quadratic(key, ratio, config),
        {"ratio": sweep.values(*config.ratios)},
        num_seeds=config.seeds,
        key=key,
    )
    found = sweep.labelled(found, "length", "rate", length=list(config.lengths))
    best = {name: found[f"{name}.loss"].mean("seed").argmin("rate") for name in ("descent", "muon")}
    at_best = {
        f"{name}.{of}": found[f"{name}.{of}"].isel(rate=rate)
        for name, rate in best.items()
        for of in ("loss", "mean")
    }
    return xr.Dataset(
        {
            "start": found["start"],
            "mean": at_best["descent.mean"] - at_best["muon.mean"],
            "slow": found["slow.mean"] - at_best["muon.mean"],
            "loss": (loss := at_best["descent.loss"] - at_best["muon.loss"]),
            "smallest": 0 * loss + loss.isel(ratio=0),
        }
    )


def exchanged(name: str, other: str) -> dict[str, lab.Control]:
    """The two methods exchanged, and another rate or ratio."""
    return {
        "exchanged": lab.controls.replacing(name, lambda data: -data[name]),
        "another rate or ratio": lab.controls.replacing(name, other),
    }


def start(data: xr.Dataset, power: int) -> xr.DataArray:
    """Σ h^power / Σ h^(power - 1) over the mean of h, in logarithms."""
    high, low, top = _SHARE, 1 - _SHARE, data["ratio"]
    sharp = (high * top**power + low) / (high * top ** (power - 1) + low)
    return np.log(sharp / (high * top + low))


@claim.judges("aligned-start", rivals={"Σh²/Σh": lambda _, data: start(data, 2), "equal": 0.0})
def aligned_start(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms."""
    return lab.near(data["start"], start(data, 3), 0.02, "2 %")


@claim.judges("mean-is-smaller", controls=exchanged("mean", "slow"))
def mean_is_smaller(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms."""
    return lab.above(data["mean"], 0.1, "a tenth")


@claim.judges("mean-at-small-rates", controls=exchanged("slow", "mean"))
def mean_at_small_rates(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms."""
    return lab.below(data["slow"], -0.1, "a tenth")


@claim.judges("loss-is-lower", controls=exchanged("loss", "smallest"))
def loss_is_lower(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, at the largest ratio."""
    return lab.above(data["loss"].isel(ratio=-1), 0.1, "a tenth")


EXPERIMENT = claim.experiment(Config, run)
