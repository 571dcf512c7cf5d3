"""Islamov et al. 2026, arXiv 2603.05002: fixed steps along polar factors at the same edge."""

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.field import steepest
from specjax.experiments.field.controls import repeat_place
from specjax.experiments.field.sharpness_ratio import NEAR, draw_ratios, quarters
from specjax.experiments.field.steepest import RECORDS
from specjax.experiments.ledgers import ledger

MODELS = ["network", "linear model"]
LINEAR_MODELS = 8
"""Linear models averaged per seed, since they are cheap and vary more."""


class Config(lab.Config):
    """Step sizes, step counts and seeds."""

    seed: int = lab.config.root_seed(
        1, help="root of all randomness; step sizes were chosen on other draws"
    )
    rates: tuple[float, ...] = lab.config.ascending(
        0.012, 0.024, 0.048, least=0.001, points=3, help="lengths of steps"
    )
    every: int = lab.config.integer(
        60, least=2, most=lab.config.MOST_COUNT, help="steps between two of the 12 records"
    )
    seeds: int = lab.config.seeds(12, help="draws of data and weights")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """η S/2, with and without ‖∇L‖_*, along the training of a network and of a linear model."""

    def ratios(key: Key[Array, ""], dims: tuple[int, ...], rate: Array) -> dict[str, Array]:
        found = steepest.train(
            key, dims, steepest.spectral_norm, rate, fixed=True, every=config.every
        )
        plain = rate * found.sharpness / 2
        return {"plain": plain, "ratio": plain / found.dual}

    def measure(key: Key[Array, ""], rate: Array) -> dict[str, Array]:
        keys = jax.random.split(sizes.stream(key, "linear models"), LINEAR_MODELS)
        linear = jax.vmap(lambda key: ratios(key, steepest.LINEAR, rate))(keys)
        return jax.tree.map(
            lambda one, several: jnp.stack([one, jnp.mean(several, axis=0)]),
            ratios(key, steepest.NETWORK, rate),
            linear,
        )

    over = {"rate": sweep.values(*config.rates)}
    data = lab.seeded_sweep(key, "trainings", measure, config.seeds, **over)
    steps = [config.every * place for place in range(RECORDS)]
    return sweep.labelled(data, "model", "step", model=MODELS, step=steps)


states = lab.Statements()
RIVALS = {"1/η": 0.5, "4/η": 2.0}


def select_quarters(data: xr.Dataset, model: str, quantity: str) -> xr.DataArray:
    """The mean of a quantity over each quarter of a training but the first."""
    return quarters(data[quantity].sel(model=model, drop=True)).rename(f"{quantity}, {model}")


PLAIN = {"not over the gradient's norm": lab.controls.replacing("ratio", "plain")}
OVER = {"over the gradient's norm": lab.controls.replacing("plain", "ratio")}
START = {"the start": repeat_place("step", 0)}


@states(
    "edge-fixed",
    "With fixed steps the sharpness over the nuclear norm of the gradient is 2/η to a fifth, in"
    " every quarter but the first.",
    rivals=RIVALS,
    controls=PLAIN | START,
    along="step",
)
def over_the_gradient(config: Config, data: xr.Dataset) -> lab.Relation:
    return lab.near(select_quarters(data, "network", "ratio"), 1.0, NEAR, "a fifth")


@states("edge-fixed-plain", holds=False, controls=OVER)
def sharpness_itself(config: Config, data: xr.Dataset) -> lab.Relation:
    """With fixed steps the sharpness itself is 2/η to a fifth, in the last quarter of the
    training.
    """
    return lab.near(
        select_quarters(data, "network", "plain").isel(step=-1, drop=True), 1.0, NEAR, "a fifth"
    )


@states(
    "edge-fixed-quadratic",
    "In a linear model, whose sharpness cannot change, it is so over the norm of the gradient as"
    " well.",
    rivals=RIVALS,
    controls=PLAIN | START,
    along="step",
    post_hoc=(
        "On draws of seed 0 one linear model a draw left it undecided; judged by eight a draw, of a"
        " fresh seed."
    ),
)
def of_a_constant_hessian(config: Config, data: xr.Dataset) -> lab.Relation:
    """A step that turns the gradient round changes it by η H d, and so ‖∇L‖_* = ⟨d, ∇L⟩ is η ⟨d, H
    d⟩/2 there.
    """
    return lab.near(select_quarters(data, "linear model", "ratio"), 1.0, NEAR, "a fifth")


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot η S/2, with and without ‖∇L‖_*, along the training of both models."""
    drawn = Figure(figsize=(9, 4.5), layout="constrained")
    panels = drawn.subplots(1, 2, sharey=True)
    for axes, model in zip(panels, MODELS, strict=True):
        draw_ratios(axes, data.sel(model=model), "plain", {rate: rate for rate in config.rates})
        axes.set_title(model)
    panels[0].set_ylabel("S/‖∇L‖ (full), S itself (dotted), over 2/η")
    drawn.suptitle("Fixed steps: it is the gradient that comes to the edge, not the sharpness")
    return drawn


EXPERIMENT = lab.Experiment(
    "field-edge-fixed",
    ledger("field"),
    title="With fixed steps it is the gradient that comes to the edge, not the sharpness",
    summary=(
        "Fixed steps along polar factors. The sharpness in the spectral norm over the nuclear norm"
        " of the gradient settles at 2/η, in a network and in a linear model of constant Hessian"
        " alike; the sharpness itself does not."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={"smoke": {"seeds": 3}, "paper": {"every": 240, "seeds": 400}},
    figure=figure,
)
