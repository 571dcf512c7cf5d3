"""Wu et al. 2026, arXiv 2605.17109: powers of the singular values that change in a training."""

import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab
from specjax.experiments.submitted.student_training import (
    StudentConfig,
    inside,
    log_losses_at_best_rates,
    power,
)
from specjax.lab.drawing import draw_curves

claim = lab.read_claim(__file__)
RULES = {
    "Muon": power(0.0),
    "positive": power(0.25),
    "falling": power(0.25, -0.1),
}


class Config(StudentConfig):
    """Lengths, width and seeds."""

    seed: int = lab.config.root_seed(3, help="root of all randomness; rules were set on 0 to 2")
    width: int = lab.config.integer(32, least=8, help="inputs and hidden units")
    lengths: tuple[int, ...] = lab.config.sizes(32, 128, help="steps of a training")
    seeds: int = lab.config.seeds(48)


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Logarithms of test losses over Muon's."""
    losses, place = log_losses_at_best_rates(RULES, config, key)
    behind = losses - losses.sel(rule="Muon", drop=True)
    return behind.to_dataset("rule").drop_vars("Muon").assign(place=place.rename(rule="tuned"))


def _controls(name: str, share: float) -> dict[str, lab.Control]:
    """The effect reversed, and a share of it."""
    return {
        "reversed": lab.controls.replacing(name, lambda data: -data[name]),
        "a share": lab.controls.replacing(name, lambda data: share * data[name]),
    }


@claim.judges("positive-helps-early", controls=_controls("positive", 0.25))
def helps_early(config: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the test loss, after the fewest steps."""
    return inside(
        lab.below(data["positive"].isel(length=0), -0.01, "1 % of the loss"), config.rates, data
    )


@claim.judges("positive-hurts-later", controls=_controls("positive", 0.15))
def hurts_later(config: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the test loss, after more steps."""
    return inside(
        lab.above(data["positive"].isel(length=slice(1, None)), 0.01, "1 % of the loss"),
        config.rates,
        data,
    )


@claim.judges(
    "falling-is-ahead",
    controls={
        "a tenth of the loss less": lab.controls.replacing(
            "falling", lambda data: data["falling"] - 0.1
        ),
        "a fifth of the loss less": lab.controls.replacing(
            "falling", lambda data: data["falling"] - 0.2
        ),
    },
)
def falling_is_ahead(config: Config, data: xr.Dataset) -> lab.Relation:
    """In natural logarithms of the test loss, after more steps."""
    return inside(
        lab.below(data["falling"].isel(length=slice(1, None)), -0.04, "4 % of the loss"),
        config.rates,
        data,
    )


def figure(_: Config, data: xr.Dataset) -> Figure:
    """Losses over Muon's against the length of the training."""
    drawn = Figure(figsize=(6, 4), layout="constrained")
    axes = drawn.add_subplot(xscale="log", xlabel="steps of the training")
    axes.set_xticks(data.length.values, map(str, data.length.values))
    axes.minorticks_off()
    axes.set_ylabel("logarithm of the test loss less Muon's")
    names = {"positive": "p = 1/4", "falling": "p from 1/4 to -1/10"}
    draw_curves(axes, data[list(names)].to_dataarray("rule"), "length", "rule", names.__getitem__)
    axes.axhline(0, color="black", linewidth=1, label="Muon, p = 0")
    axes.legend()
    return drawn


EXPERIMENT = claim.experiment(Config, run, figure=figure)
