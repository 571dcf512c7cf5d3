"""Islamov et al. 2026, arXiv 2603.05002: the sharpness of descent in its own norm against 2/η.

Two experiments: steepest descent, whose steps are as long as the dual norm of the gradient, and
fixed steps along polar factors.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax import fits, lab, sizes, sweep
from specjax.experiments.field import steepest
from specjax.experiments.field.controls import exchange, part_way, repeat_place
from specjax.experiments.field.steepest import RECORDS
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, draw_band

QUARTERS, NEAR = 4, 0.2
"""Parts of a training over which records are averaged, and the tolerance around 1."""
METHODS = {
    "gradient descent": (steepest.euclidean, 0.2, 6),
    "spectral descent": (steepest.spectral_norm, 0.03, 6),
    "sign descent": (steepest.largest_entry, 0.0013, 24),
}
"""Norm, unit η of step sizes, and starts of the search for S; signs need more starts."""
SHORT = 0.25
"""A step size in those units with S below 2/η."""
RIVALS = {"1/η": 0.5, "4/η": 2.0}


def quarters(values: xr.DataArray) -> xr.DataArray:
    """Means over each quarter of the training except the first, at its last recorded step."""
    means = values.coarsen(step=RECORDS // QUARTERS, coord_func={"step": "max"}).mean()
    return means.isel(step=slice(1, None))


def draw_ratios(axes: Axes, values: xr.Dataset, other: str, etas: Mapping[float, float]) -> None:
    """Plot η S/2 with its range over seeds, and another median dotted; `etas` has η by rate."""
    for (rate, eta), color in zip(etas.items(), COLORS, strict=False):
        at = values.sel(rate=rate)
        draw_band(axes, at["ratio"], "step", label=f"η = {eta:.3g}", color=color)
        axes.plot(at["step"], at[other].median("seed"), ":", color=color, linewidth=1.3)
    axes.axhline(1, color="black", linewidth=1)
    axes.set(xlabel="step", yscale="log")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize="small")


def label_records(data: xr.Dataset, dim: str, labels: list[str], every: int) -> xr.Dataset:
    """Name the axes of outputs, labels and recorded steps."""
    named: dict[str, list[Any]] = {dim: labels, "step": [every * at for at in range(RECORDS)]}
    return sweep.labelled(data, *named, **named)


class Config(lab.Config):
    """Step sizes, step counts and seeds."""

    seed: int = lab.config.root_seed(
        4, help="root of all randomness, a fresh one for what was changed"
    )
    rates: tuple[float, ...] = lab.config.ascending(
        1, 1.4, 2, least=0.5, points=3, help="step sizes, in units of each method"
    )
    every: int = lab.config.integer(
        60, least=2, most=lab.config.MOST_COUNT, help="steps between two of the 12 records"
    )
    seeds: int = lab.config.seeds(24, help="samples of data and weights")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """η S/2 and η λ/2 (largest eigenvalue) along trainings, accuracy of S, loss increases."""

    def measure(key: Key[Array, ""], rate: Array) -> dict[str, Array]:
        trained = []
        for ball, unit, starts in METHODS.values():
            eta = unit * rate
            found = steepest.train(
                key, steepest.NETWORK, ball, eta, fixed=False, every=config.every, starts=starts
            )
            ratios = {"ratio": eta * found.sharpness / 2, "eigenvalue": eta * found.eigenvalue / 2}
            trained.append(ratios | {"doubt": found.doubt, "rises": found.rises})
        return {name: jnp.stack([each[name] for each in trained]) for name in trained[0]}

    over = {"rate": sweep.values(SHORT, *config.rates)}
    data = lab.seeded_sweep(key, "trainings", measure, config.seeds, **over)
    return label_records(data, "descent", list(METHODS), config.every)


states = lab.Statements()


def select_ratio(data: xr.Dataset, method: str) -> xr.DataArray:
    """η S/2 in each quarter of a training but the first, at all but the short steps."""
    values = data["ratio"].sel(descent=method, drop=True).isel(rate=slice(1, None))
    return quarters(values).rename(f"η S/2, {method}")


def repeat_short_steps(data: xr.Dataset) -> xr.DataArray:
    """η S/2 with the sharpness of the training with short steps at every step size."""
    return (
        xr.ones_like(data["ratio"])
        * data["ratio"].sel(rate=SHORT, drop=True)
        * data["rate"]
        / SHORT
    )


UNMOVED = {
    "the sharpness of the start": repeat_place("step", 0),
    "that of short steps": lab.controls.replacing("ratio", repeat_short_steps),
}
EIGENVALUE = {"the largest eigenvalue": lab.controls.replacing("ratio", "eigenvalue")}
LESS = (
    "The margin was 0.15, at which sign descent stayed open, and is half the way to the rivals;"
    " judged on fresh samples."
)


def settles(method: str, cites: str, controls: dict[str, Any]) -> None:
    """State that S of a method is near 2/η from the second quarter on, and falls as 1/η."""
    name = method.replace(" ", "-")

    def near(config: Config, data: xr.Dataset) -> lab.Relation:
        return lab.near(select_ratio(data, method), 1.0, NEAR, "a fifth")

    def slope(config: Config, data: xr.Dataset) -> lab.Relation:
        late = select_ratio(data, method).isel(step=-1, drop=True)
        slopes = fits.log_slopes(xr.ufuncs.log(late / late["rate"]), "rate")
        return lab.near(slopes.rename("exponent in η"), -1.0, 0.25, "1/4")

    says = (
        f"The sharpness of {method} in its own norm is 2/η to a fifth, in every quarter but the"
        " first."
    )
    states(cites, says, name=name, rivals=RIVALS, controls=UNMOVED | controls, along="step")(near)
    says = f"It falls as 1/η in {method}, to 1/4 in the exponent."
    states(
        cites,
        says,
        name=f"{name}-exponent",
        rivals={"η^(-1/2)": -0.5, "η^(-3/2)": -1.5},
        controls=UNMOVED,
        post_hoc=LESS,
    )(slope)


settles("gradient descent", "edge-descent", {})
settles("spectral descent", "edge", EIGENVALUE)
settles("sign descent", "edge", EIGENVALUE)


@states("edge-from-below", controls={"the last record": repeat_place("step", -1)})
def starts_below(config: Config, data: xr.Dataset) -> lab.Relation:
    """At the start the sharpness is less than four fifths of 2/η, in all three."""
    start = data["ratio"].isel(step=0, drop=True).isel(rate=slice(1, None))
    return lab.below(start, 1 - NEAR, "four fifths of 2/η")


@states("edge-from-below", along="step", controls={"long steps": repeat_place("rate", -1)})
def short_steps_stay_below(config: Config, data: xr.Dataset) -> lab.Relation:
    """With steps a quarter as long as the shortest others it stays there to the end."""
    short = data["ratio"].sel(rate=SHORT, drop=True)
    return lab.below(quarters(short), 1 - NEAR, "four fifths of 2/η")


@states(
    "edge-oscillates",
    "At the edge some steps raise the loss, in more than a quarter of the samples, in all three.",
    controls={"short steps": repeat_place("rate", 0)},
    post_hoc=(
        "First the share of such steps was to be a tenth in every quarter, then the share of"
        " samples half: both were left open; judged on fresh samples."
    ),
)
def loss_rises(config: Config, data: xr.Dataset) -> lab.Relation:
    rises = quarters(data["rises"].isel(rate=slice(1, None))).max("step")
    return lab.fraction((rises > 0).rename("the loss rises"), more_than=0.25)


@states(
    "edge-eigenvalue",
    along="step",
    controls=exchange("descent", "gradient descent", "spectral descent")
    | part_way("descent", dict.fromkeys(list(METHODS)[1:], "gradient descent")),
)
def eigenvalue_stays_below(config: Config, data: xr.Dataset) -> lab.Relation:
    """The largest eigenvalue of the Hessian stays below half of 2/η in spectral descent and sign
    descent.
    """
    both = data["eigenvalue"].isel(rate=slice(1, None), descent=slice(1, None))
    return lab.below(quarters(both), 0.5, "half of 2/η")


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot η S/2 along the training, by method, and η λ/2 with the largest eigenvalue."""
    drawn = Figure(figsize=(11, 4.5), layout="constrained")
    panels = drawn.subplots(1, len(METHODS), sharey=True)
    for axes, (method, (_, unit, _)) in zip(panels, METHODS.items(), strict=True):
        etas = {rate: unit * rate for rate in (SHORT, *config.rates)}
        draw_ratios(axes, data.sel(descent=method), "eigenvalue", etas)
        axes.set_title(method)
    panels[0].set_ylabel("sharpness (full), eigenvalue (dotted), over 2/η")
    drawn.suptitle(
        "Unless η is small, the sharpness in the norm of the steps comes to 2/η and stays"
    )
    return drawn


EXPERIMENT = lab.Experiment(
    "field-edge",
    ledger("field"),
    title=(
        "Steepest descent in the Euclidean, the spectral and the largest-entry norm ends at a"
        " sharpness of 2/η in that norm"
    ),
    summary=(
        "A network trained with full batches. The maximum of the Hessian's form over the unit ball"
        " of the norm that the steps are steepest in rises from below to 2/η, or a tenth above, and"
        " stays there, whatever η; the largest eigenvalue does so in gradient descent alone."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 18},
        "smoke": {"every": 50, "seeds": 3},
        "paper": {"rates": (1.0, 1.2, 1.4, 1.7, 2.0), "every": 240, "seeds": 200},
    },
    figure=figure,
)

MODELS = ["network", "linear model"]
LINEAR_MODELS = 8
"""Linear models averaged per seed, since they are cheap and vary more."""


class FixedConfig(lab.Config):
    """Step sizes, step counts and seeds."""

    seed: int = lab.config.root_seed(
        1, help="root of all randomness; step sizes were chosen on other samples"
    )
    rates: tuple[float, ...] = lab.config.ascending(
        0.012, 0.024, 0.048, least=0.001, points=3, help="lengths of steps"
    )
    every: int = lab.config.integer(
        60, least=2, most=lab.config.MOST_COUNT, help="steps between two of the 12 records"
    )
    seeds: int = lab.config.seeds(12, help="samples of data and weights")


def run_fixed(config: FixedConfig, key: Key[Array, ""]) -> xr.Dataset:
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
    return label_records(data, "model", MODELS, config.every)


fixed_states = lab.Statements()


def select_quarters(data: xr.Dataset, model: str, quantity: str) -> xr.DataArray:
    """The mean of a quantity over each quarter of a training but the first."""
    return quarters(data[quantity].sel(model=model, drop=True)).rename(f"{quantity}, {model}")


PLAIN = {"not over the gradient's norm": lab.controls.replacing("ratio", "plain")}
OVER = {"over the gradient's norm": lab.controls.replacing("plain", "ratio")}
START = {"the start": repeat_place("step", 0)}


@fixed_states(
    "edge-fixed",
    "With fixed steps the sharpness over the nuclear norm of the gradient is 2/η to a fifth, in"
    " every quarter but the first.",
    rivals=RIVALS,
    controls=PLAIN | START,
    along="step",
)
def over_the_gradient(config: FixedConfig, data: xr.Dataset) -> lab.Relation:
    return lab.near(select_quarters(data, "network", "ratio"), 1.0, NEAR, "a fifth")


@fixed_states("edge-fixed-plain", holds=False, controls=OVER)
def sharpness_itself(config: FixedConfig, data: xr.Dataset) -> lab.Relation:
    """With fixed steps the sharpness itself is 2/η to a fifth, in the last quarter of the
    training.
    """
    return lab.near(
        select_quarters(data, "network", "plain").isel(step=-1, drop=True), 1.0, NEAR, "a fifth"
    )


@fixed_states(
    "edge-fixed-quadratic",
    "In a linear model, whose sharpness cannot change, it is so over the norm of the gradient as"
    " well.",
    rivals=RIVALS,
    controls=PLAIN | START,
    along="step",
    post_hoc=(
        "On samples of seed 0 one linear model a sample left it undecided; judged by eight a"
        " sample, of a fresh seed."
    ),
)
def of_a_constant_hessian(config: FixedConfig, data: xr.Dataset) -> lab.Relation:
    """A step that turns the gradient round changes it by η H d, and so ‖∇L‖_* = ⟨d, ∇L⟩ is η ⟨d, H
    d⟩/2 there.
    """
    return lab.near(select_quarters(data, "linear model", "ratio"), 1.0, NEAR, "a fifth")


def draw_fixed(config: FixedConfig, data: xr.Dataset) -> Figure:
    """Plot η S/2, with and without ‖∇L‖_*, along the training of both models."""
    drawn = Figure(figsize=(9, 4.5), layout="constrained")
    panels = drawn.subplots(1, 2, sharey=True)
    for axes, model in zip(panels, MODELS, strict=True):
        draw_ratios(axes, data.sel(model=model), "plain", {rate: rate for rate in config.rates})
        axes.set_title(model)
    panels[0].set_ylabel("S/‖∇L‖ (full), S itself (dotted), over 2/η")
    drawn.suptitle("Fixed steps: it is the gradient that comes to the edge, not the sharpness")
    return drawn


FIXED = lab.Experiment(
    "field-edge-fixed",
    ledger("field"),
    title="With fixed steps it is the gradient that comes to the edge, not the sharpness",
    summary=(
        "Fixed steps along polar factors. The sharpness in the spectral norm over the nuclear norm"
        " of the gradient settles at 2/η, in a network and in a linear model of constant Hessian"
        " alike; the sharpness itself does not."
    ),
    config=FixedConfig,
    measure=run_fixed,
    statements=fixed_states,
    scales={"quick": {"seeds": 5}, "smoke": {"seeds": 3}, "paper": {"every": 240, "seeds": 400}},
    figure=draw_fixed,
)
