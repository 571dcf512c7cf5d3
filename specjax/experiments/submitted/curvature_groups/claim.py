"""Wang et al. 2026, arXiv 2606.04662: the curvature along the steps of Muon."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.submitted.step_sharpness import sharpness
from specjax.lab.drawing import draw_panels

claim = lab.read_claim(__file__)
_SHARE = 0.25
"""Share of the rows with the curvature κ; the others have 1."""
_DESCENT, _MUON = (0.6, 0.7, 0.8, 0.9, 0.95, 1.0), (0.02, 0.034, 0.059, 0.1, 0.174, 0.3)
"""Fixed rates: of gradient descent over 2 / (κ + 1), and of Muon."""


class Config(lab.Config):
    """Two groups of curvatures, lengths and seeds."""

    seed: int = lab.config.root_seed(5, help="root of all randomness; rules were set on 0 to 4")
    n: int = lab.config.integer(16, least=4, help="rows and columns of the quadratic's matrix")
    ratios: tuple[float, ...] = lab.config.numbers(8.0, 64.0, 512.0, above=1, help="values of κ")
    lengths: tuple[int, ...] = lab.config.sizes(8, 32, help="steps on the quadratic")
    seeds: int = lab.config.seeds(128)


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

    rates = {"descent": 2 / (ratio + 1) * jnp.array(_DESCENT), "muon": jnp.array(_MUON)}
    found, starts = {"slow.mean": train(1 / ratio, lambda g: g)[1]}, {}
    for name, direction in {"descent": lambda g: g, "muon": spectral.polar}.items():
        losses, means, first = jax.vmap(train, (0, None), (1, 1, 0))(rates[name], direction)
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

    def difference(of: str) -> xr.DataArray:
        best = [found[f"{name}.loss"].mean("seed").argmin("rate") for name in ("descent", "muon")]
        return found[f"descent.{of}"].isel(rate=best[0]) - found[f"muon.{of}"].isel(rate=best[1])

    mean, loss = difference("mean"), difference("loss")
    slow = found["slow.mean"] - found["muon.mean"].isel(rate=0)
    data = {"start": found["start"], "mean": mean, "slow": slow, "loss": loss}
    return xr.Dataset(data | {"smallest": 0 * loss + loss.isel(ratio=0)})


def exchanged(name: str, other: str) -> dict[str, lab.Control]:
    """The two methods exchanged, and another rate or ratio."""
    swapped = lab.controls.replacing(name, lambda data: -data[name])
    return {"exchanged": swapped, "another": lab.controls.replacing(name, other)}


def start(data: xr.Dataset, power: int) -> xr.DataArray:
    """Σ h^power / Σ h^(power - 1) over the mean of h, in logarithms."""
    sums = [_SHARE * data["ratio"] ** p + 1 - _SHARE for p in (power, power - 1, 1)]
    return xr.ufuncs.log(sums[0] / sums[1] / sums[2])


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
    """In natural logarithms, after the most steps."""
    return lab.above(data["loss"].isel(ratio=slice(1, None), length=-1), 0.1, "a tenth")


@claim.judges("loss-after-few-steps", controls=exchanged("loss", "mean"))
def loss_after_few_steps(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, after the fewest steps."""
    return lab.below(data["loss"].isel(ratio=-1, length=0), -0.1, "a tenth")


def figure(_: Config, data: xr.Dataset) -> Figure:
    """Mean sharpnesses and losses against the ratio of curvatures."""
    of = {"mean": "sharpness, best rates", "slow": "sharpness, rate 1/κ", "loss": "loss"}
    shown = xr.ufuncs.exp(data[list(of)].to_dataarray("shown"))
    titles = {length: f"{length} steps" for length in data.length.values.tolist()}
    y = "gradient descent's over Muon's"
    return draw_panels(shown, "ratio", "shown", of.__getitem__, titles, over="length", ylabel=y)[0]


EXPERIMENT = claim.experiment(Config, run, figure=figure)
