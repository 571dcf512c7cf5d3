"""The experiment `spectral-race`: after how many steps spectral ones pass gradient descent on a
linear map that gradient steps have worked on (docs/beyond/spectral-race.md).
`theory.spectral_race` predicts it without a fit.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import lab
from specjax.experiments.beyond.spectral_race.races import DECAYS, METHODS, NOISE, PARTS, run
from specjax.lab.drawing import draw_predicted, log_axes
from specjax.theory import spectral_race

claim = lab.read_claim(__file__)
STEEP, LARGE, FLOOR = DECAYS[-1], 400, 1e-3
"""The exponent for the limit and the least d^a/k of it; singular values that five Newton–Schulz
steps leave small.
"""
WITHIN, WITHIN_LIMIT, BEFORE, SOONER, LATER = 0.15, 0.2, 1.5, 0.5, 1.5
"""Margins of the formula and of its limit; K*/K where gradient steps lead; a lead in steps."""
LABELS = {"five": "five Newton–Schulz steps", "noise": "tall, with noise"}
"""Of parts in the figure, where the name says too little."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes and samples."""

    seed: int = lab.config.root_seed(17, help="root of all randomness")
    d: int = lab.config.integer(32, least=16, help="inputs d")
    deep: int = lab.config.integer(16, least=8, help="inputs of two blocks")
    warm: tuple[int, ...] = lab.config.sizes(
        16, 64, 256, points=3, most=lab.config.MOST_COUNT, help="gradient steps taken before, k"
    )
    steps: int = lab.config.integer(16, least=10, help="steps of each method")
    seeds: int = lab.config.seeds(10, help="random starts")

    def __post_init__(self) -> None:
        super().__post_init__()
        if LARGE * min(self.warm) > self.d**STEEP:
            raise ValueError(
                f"The limit needs d³ of at least {LARGE} times the smallest of warm; got d ="
                f" {self.d}, warm = {self.warm}."
            )


def predicted(
    config: Config, data: Data, factor: float = 1.0, floor: float = 0.0, noise: float = 0.0
) -> xr.DataArray:
    """K* of the formula times a factor, from the inputs' spectrum, k and the noise alone."""

    @jnp.vectorize
    def one(a: Array, k: Array) -> Array:
        b = jnp.arange(1.0, config.d + 1) ** -a
        x = jnp.sqrt((1 - b) ** (2 * k) + noise**2)
        steps = spectral_race.steps_to_pass(x, b, config.steps, floor)
        return jnp.minimum(steps, config.steps + 1)

    return factor * lab.closed_form(one, data["tall"].a, data["tall"].k)


def in_limit(config: Config, data: Data, exponent: float | None = None) -> xr.DataArray:
    """K* of the limit, or the same at the smallest k with another exponent of k."""
    k = data["tall"].k[data["tall"].k * LARGE <= config.d**STEEP]
    form = lab.closed_form(spectral_race.asymptotic_steps_to_pass, k, STEEP)
    return form if exponent is None else form[0] * (k / k[0]) ** exponent


def lead(data: Data, end: str = "") -> xr.DataArray:
    """How far gradient steps are behind, log of what they leave over what spectral steps do."""
    left = [data["tall"][f"{method}{end}"] for method in METHODS]
    return xr.ufuncs.log(left[0] / left[1]).rename("gradient behind spectral")


def exchange_lengths(_: Config, data: Data) -> Data:
    """A control: the best lengths and the guaranteed ones exchanged."""
    ends = {method: f"{method} at 1" for method in METHODS}
    other = ends | {end: method for method, end in ends.items()}
    return data | {"tall": data["tall"].rename(other)}


def at_other_samples(_: Config, data: Data) -> Data:
    """A control: other samples of the polar factor in the place of five Newton–Schulz steps."""
    return data | {"five": data["tall"].roll(seed=data["tall"].sizes["seed"] // 2)}


AT_ONCE: dict[str, Any] = {"at once, nr/st = 1": 1.0}
NEAREST = {
    "twice": partial(predicted, factor=2.0),
    "half": partial(predicted, factor=0.5),
    **AT_ONCE,
    "no noise in fast directions": partial(predicted, floor=FLOOR),
}
OTHER_EXPONENTS = {
    "k^(1 - 1/a)": partial(in_limit, exponent=1 - 1 / STEEP),
    "no growth": partial(in_limit, exponent=0.0),
}


@claim.judges("formula", rivals=NEAREST)
def formula(config: Config, data: Data) -> lab.Relation:
    form = predicted(config, data)
    return lab.near(data["tall"]["passing"], form, WITHIN * form, "15 % of the formula")


@claim.judges("with-noise", rivals={"no noise": predicted} | AT_ONCE)
def with_noise(config: Config, data: Data) -> lab.Relation:
    form = predicted(config, data, noise=NOISE)
    return lab.near(data["noise"]["passing"], form, WITHIN * form, "15 % of the formula")


@claim.judges("limit", rivals=OTHER_EXPONENTS)
def limit(config: Config, data: Data) -> lab.Relation:
    form = in_limit(config, data)
    found = data["tall"]["passing"].sel(a=STEEP, k=form.k)
    return lab.near(found, form, WITHIN_LIMIT * form, "20 % of the limit")


@claim.judges("criterion-misses", controls={"each at the guaranteed length": exchange_lengths})
def criterion_misses(config: Config, data: Data) -> lab.Relation:
    places = xr.ufuncs.floor(predicted(config, data) / BEFORE).clip(1)
    ahead = -lead(data).sel(step=places).where(data["tall"]["nr over st"] >= 2, -1.0)
    return lab.above(ahead.sel(k=ahead.k >= 64).rename("lead of gradient"), 0.0, "no lead")


@claim.judges("criterion-holds", controls={"each at its best length": exchange_lengths})
def criterion_holds(config: Config, data: Data) -> lab.Relation:
    return lab.above(lead(data, " at 1"), 0.0, "no lead")


@claim.judges("five-steps", controls={"other samples of the polar factor": at_other_samples})
def five_steps(config: Config, data: Data) -> lab.Relation:
    parts = (data[part]["passing"].rename(part) for part in ("tall", "five"))
    return lab.ahead(*(part.sel(k=part.k >= 64) for part in parts), least=SOONER)


@claim.judges(
    "blocks", controls={"one linear map": lambda _, data: data | {"two blocks": data["tall"]}}
)
def blocks(config: Config, data: Data) -> lab.Relation:
    found = data["two blocks"].isel(k=-1)
    return lab.above((found["passing"] / found["formula"]).rename("K over K*"), LATER, "1.5")


def figure(config: Config, data: Data) -> Figure:
    """Plot K* by k with the formula, and where the formula stops."""
    drawn = Figure(figsize=(11, 4.2), layout="constrained")
    by_k, stops = drawn.subplots(1, 2)
    found, form, limit = data["tall"]["passing"], predicted(config, data), in_limit(config, data)
    by_k.plot(limit.k, limit, "k:", label=f"limit of i^(-{STEEP:g})")
    draw_predicted(by_k, found, form, "k", "a", "i^(-{:g})".format)
    for part, one in data.items():
        ratio = (one["passing"] / one["formula"]).median("seed").isel(a=-1)
        stops.plot(one.k, ratio, "o-", label=LABELS.get(part, part))
    stops.legend(fontsize="small")
    by_k.set(title="lines through what is predicted", ylabel="K*")
    stops.set(title="where the formula stops", ylabel="median of K*, measured over formula")
    for axes in (by_k, stops):
        log_axes(axes, found.k.values)
        axes.set_xlabel("gradient steps before, k")
    return drawn


EXPERIMENT = claim.experiment(
    Config,
    {part: partial(run, part=part) for part in PARTS},
    figure=figure,
    headlines=("formula",),
    headlines_read=("tall",),
)
