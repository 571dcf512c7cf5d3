"""Wang et al. 2026, arXiv 2606.04662: the curvature along steps of Adam and of Muon."""

import jax
import jax.numpy as jnp
import optax
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.submitted.step_sharpness import sharpness
from specjax.lab.drawing import draw_curves

claim = lab.read_claim(__file__)
_LEVELS = (0.75, 0.5, 0.35, 0.25)
"""Shares of the first loss at which Adam and Muon are compared."""


class Config(lab.Config):
    """A memory of items with Zipf frequencies."""

    seed: int = lab.config.root_seed(4, help="root of all randomness; rules were set on 0 to 3")
    items: int = lab.config.integer(32, least=8, help="items of the memory, twice its dimension")
    exponents: tuple[float, ...] = lab.config.numbers(
        0.0, 1.5, above=-1, help="a of frequencies j^-a, from even to uneven"
    )
    steps: int = lab.config.integer(128, least=16, help="steps of a training")
    seeds: int = lab.config.seeds(64)


def memory(
    key: Key[Array, ""], a: Float[Array, ""], config: Config
) -> dict[str, Float[Array, " level"]]:
    """The logarithms of both sharpnesses where the loss first falls below a level."""
    p, d = jnp.arange(1.0, config.items + 1) ** -a, config.items // 2
    embeddings = sizes.normal(key, (config.items, d)) / d**0.5

    def loss(w: Float[Array, "k d"]) -> Float[Array, ""]:
        return -jnp.vdot(p / jnp.sum(p), jnp.diag(jax.nn.log_softmax(embeddings @ w.T, 1)))

    def train_at_levels(optimizer: optax.GradientTransformation) -> Float[Array, " level"]:
        def step(carry: tuple, _: None) -> tuple[tuple, tuple[Array, Array]]:
            w, state = carry
            update, state = optimizer.update(jax.grad(loss)(w), state)
            return (w + update, state), (loss(w), sharpness(loss, w, update))

        start = jnp.zeros_like(embeddings), optimizer.init(jnp.zeros_like(embeddings))
        losses, along = jax.lax.scan(step, start, None, length=config.steps)[1]
        reached = losses[None] < jnp.array(_LEVELS)[:, None] * losses[0]
        return jnp.where(reached.any(1), jnp.log(along[jnp.argmax(reached, 1)]), jnp.nan)

    polar = optax.stateless(lambda updates, _: spectral.polar(updates))
    muon = optax.chain(optax.trace(0.9), polar, optax.scale(-0.1))
    adam = optax.adam(0.05, 0.9, 0.95)
    return {"adam": train_at_levels(adam), "muon": train_at_levels(muon)}


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Logarithms of both sharpnesses, and how far their difference changes with the exponent."""
    found = sweep.run(
        lambda key, a: memory(key, a, config),
        {"a": sweep.values(*config.exponents)},
        num_seeds=config.seeds,
        key=key,
    )
    data = sweep.labelled(found, "level", level=list(_LEVELS))
    ratio = over_muon(data)
    data["growth"] = ratio.isel(a=-1, drop=True) - ratio.isel(a=0, drop=True)
    return data[["adam", "muon", "growth"]]


def over_muon(data: xr.Dataset) -> xr.DataArray:
    """The logarithm of Adam's sharpness over Muon's."""
    return data["adam"] - data["muon"]


def controls(share: int = 4) -> dict[str, lab.Control]:
    """Adam and Muon exchanged, and a share of the difference."""
    return {
        "exchanged": lab.controls.replacing("growth", lambda data: -data["growth"]),
        "a share": lab.controls.replacing("growth", lambda data: data["growth"] / share),
    }


@claim.judges("amplified-early", controls=controls())
def amplified_early(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, where half of the loss is left."""
    return lab.above(data["growth"].sel(level=0.5), 0.05, "5 %")


@claim.judges("reversed-later", controls=controls(share=10))
def reversed_later(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, where a quarter of the loss is left."""
    return lab.below(data["growth"].sel(level=0.25), -0.05, "5 %")


@claim.judges(
    "muon-is-larger",
    controls={
        "exchanged": lab.controls.exchanging("adam", "muon"),
        "a tenth of the difference": lab.controls.replacing(
            "adam", lambda data: data["muon"] + over_muon(data) / 10
        ),
    },
)
def muon_is_larger(_: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms, where a quarter of the loss is left."""
    adam, muon = (data[name].sel(level=0.25) for name in ("adam", "muon"))
    return lab.ahead(muon, adam, least=0.05)


def figure(_: Config, data: xr.Dataset) -> Figure:
    """Adam's sharpness over Muon's against the loss that is left."""
    drawn = Figure(figsize=(6, 4), layout="constrained")
    axes = drawn.add_subplot(xlabel="loss over the first loss", xlim=(0.8, 0.2))
    axes.set_ylabel("log of Adam's sharpness over Muon's")
    draw_curves(axes, over_muon(data), "level", "a", "frequencies j^-{:g}".format)
    axes.axhline(0, color="black", linewidth=1, label="equal")
    axes.legend()
    return drawn


EXPERIMENT = claim.experiment(Config, run, figure=figure)
