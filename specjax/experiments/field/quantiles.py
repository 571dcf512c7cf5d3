"""Magakyan et al. 2026, arXiv 2606.04058: singular values of Muon's momentum as models grow.

The paper divides the momentum by its Frobenius norm and follows quantiles, the median among them,
in six kinds of matrices at four depths of GPTs from 77M to 2.8B weights. Here a text is learned by
four blocks, whose width alone grows: their weights are M = 48 d².
"""

import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sweep
from specjax.experiments.field import momentum_drawing, momentum_spectra
from specjax.experiments.field.controls import exchange
from specjax.experiments.field.language import BLOCKS, KINDS
from specjax.experiments.field.momentum_spectra import exponent, last, logs, lost, others
from specjax.experiments.ledgers import ledger
from specjax.training import text

NATS, LEAST = 0.05, 0.02
"""Losses closer than the first are alike; a difference above the second is a loss."""


class Config(lab.Config):
    """Sizes, lengths and seeds."""

    seed: int = lab.config.root_seed(
        1, help="root of all randomness; the rate and bounds were set on other samples"
    )
    text: str = lab.config.text("", help="a text file; Python's own help if empty")
    widths: tuple[int, ...] = lab.config.sizes(
        8, 16, 32, least=4, points=2, help="d, the residual stream"
    )
    lengths: tuple[int, ...] = lab.config.sizes(
        50, 100, points=2, most=lab.config.MOST_COUNT, help="steps after which to look"
    )
    rate: float = lab.config.number(0.02, above=0, help="Muon's constant learning rate")
    seeds: int = lab.config.seeds(16, help="samples of weights and batches")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Run `momentum_spectra.measured` at every width."""
    contents = text.load(config.text or None)

    def measure(key: Key[Array, ""], width: int) -> dict[str, Array]:
        return momentum_spectra.measured(key, width, contents, config.rate, config.lengths)

    over = {"width": sweep.widths(*config.widths)}
    found = lab.seeded_sweep(key, "trainings", measure, config.seeds, **over)
    at = {"kind": list(KINDS), "block": range(1, BLOCKS + 1)}
    of_momenta, of_methods = ("quantile", "noise"), ("error", "reached")
    found = sweep.labelled(
        found,
        "step",
        "kind",
        "block",
        "q",
        outputs=of_momenta,
        **at,
        q=list(momentum_spectra.QUANTILES),
    )
    found = sweep.labelled(
        found,
        "step",
        "polar",
        "kind",
        "block",
        outputs=of_methods,
        polar=list(momentum_spectra.METHODS),
    )
    return sweep.labelled(
        found,
        "step",
        "trained",
        outputs=["loss"],
        trained=list(momentum_spectra.TRAINED),
        step=list(config.lengths),
    )


states = lab.Statements()
PILOT = (
    "What it compares was chosen after runs of the seed 0, which decided nothing else; judged on"
    " fresh samples."
)
TURNS = (
    PILOT
    + " Held open since a longer training turned it round: true after 100 steps, false after 1600."
)

HELD_OPEN = "Held open since a longer training turned its rivals round; judged on fresh samples."
NOISE = {"noise in its place": lab.controls.replacing("quantile", "noise")}
FIRST, ONE_STEP = exchange("block", 1, BLOCKS), exchange("trained", "5 steps", "1 step")


def as_others(data: xr.Dataset) -> xr.DataArray:
    """Quantiles whose last block is the mean of the others, in logarithms and of other samples."""
    quantile = data["quantile"]
    mean = xr.ufuncs.exp(others(xr.ufuncs.log(quantile))).roll(seed=data.sizes["seed"] // 2)
    return quantile.where(quantile["block"] != BLOCKS, mean)


def as_noise(data: xr.Dataset) -> xr.DataArray:
    """The noise of other samples."""
    return data["noise"].roll(seed=data.sizes["seed"] // 2)


LIKE_OTHERS = {"other samples of the others": lab.controls.replacing("quantile", as_others)}
WORSE = {
    f"{2 * NATS:g} nats more": lab.controls.replacing(
        "loss", lambda data: data["loss"] + 2 * NATS * (data["trained"] == "5 steps")
    )
}


def shifted(power: float) -> lab.Control:
    """A control with this more in the exponent of the quantile."""
    return lab.controls.replacing(
        "quantile", lambda data: data["quantile"] * (48.0 * data["width"] ** 2) ** power
    )


# Noise falls as M^-1/4 itself, so with it in the place of momenta the statement would hold.
SHIFTED = {f"M^({by:+g}) times it": shifted(by) for by in (-0.15, 0.15)}
HALF_REACHED = {
    "half of what they reach": lab.controls.replacing("reached", lambda data: data["reached"] / 2)
}


@states(
    "quantiles-normalization",
    rivals={"M^-1/2": -0.5, "M^0": 0.0},
    controls={"momenta in its place": lab.controls.replacing("noise", "quantile")},
    along="step",
)
def noise(config: Config, data: xr.Dataset) -> lab.Relation:
    """The median of Gaussian noise of the same shapes over its Frobenius norm falls as M^-1/4, to
    0.05 in the exponent.
    """
    return lab.near(exponent(logs(data, "noise")), -0.25, 0.05, "0.05")


@states(
    "quantiles-normalization",
    controls=NOISE | {"noise of other samples": lab.controls.replacing("quantile", as_noise)},
    along="step",
    post_hoc=PILOT,
)
def faster_than_noise(config: Config, data: xr.Dataset) -> lab.Relation:
    """On average over kinds, blocks and quantiles singular values of the momentum fall with a
    larger power of M than those of noise.
    """
    found, of_noise = (
        exponent(xr.ufuncs.log(data[name]).mean(["kind", "block", "q"])).rename(name)
        for name in ("quantile", "noise")
    )
    return lab.ahead(of_noise, found, least=0)


@states("quantiles-mild-here", holds=None, rivals={"M^-1/2": -0.5}, controls=SHIFTED, along="step")
def mild(config: Config, data: xr.Dataset) -> lab.Relation:
    """The median of the momentum falls as M^-1/4 in the blocks before the last, to 0.075 in the
    exponent.
    """
    return lab.near(others(exponent(logs(data))), -0.25, 0.075, "0.075")


@states("quantiles-late", holds=None, controls=FIRST | LIKE_OTHERS, along="step")
def last_is_steeper(config: Config, data: xr.Dataset) -> lab.Relation:
    """It falls with a larger power of M in the last block than in the others on average."""
    found = exponent(logs(data))
    return lab.ahead(others(found), last(found), least=0)


@states("quantiles-depth", holds=None, controls=FIRST | LIKE_OTHERS, along="step", post_hoc=PILOT)
def last_is_lower(config: Config, data: xr.Dataset) -> lab.Relation:
    """The median is lower in the last block than in the others on average, at every width."""
    return lab.ahead(others(logs(data)), last(logs(data)), least=0)


@states(
    "five-steps",
    controls=exchange("polar", "Muon, 5 steps", "1 step") | HALF_REACHED,
    along="step",
)
def reaches_the_median(config: Config, data: xr.Dataset) -> lab.Relation:
    """Muon's five steps take the median of every kind in every block to more than a half, at every
    width.
    """
    return lab.above(data["reached"].sel(polar="Muon, 5 steps", drop=True), 0.5, "a half")


@states(
    "coefficients",
    holds=None,
    controls=FIRST
    | exchange("polar", *list(momentum_spectra.METHODS)[:2])
    | lab.controls.without_lead("block", BLOCKS, 1),
    along="step",
    post_hoc=TURNS,
)
def others_miss_late_blocks(config: Config, data: xr.Dataset) -> lab.Relation:
    """Five steps of 2, -3/2, 1/2 take the median less far in the last block than in the first by a
    tenth or more, at the largest width.
    """
    reached = (
        data["reached"]
        .sel(polar="textbook, 5 steps", drop=True)
        .isel(width=-1, drop=True)
        .mean("kind")
    )
    first = reached.sel(block=1, drop=True).rename("first block")
    return lab.ahead(first, last(reached), least=0.1)


@states("five-steps-loss", holds=None, controls=ONE_STEP | WORSE, along="step", post_hoc=HELD_OPEN)
def five_lose_nothing(config: Config, data: xr.Dataset) -> lab.Relation:
    """With Muon's five steps the validation loss is within 0.05 nats of that with exact polar
    factors, at every width.
    """
    return lab.near(lost(data, "5 steps"), 0.0, NATS, "0.05 nats")


@states(
    "five-steps-loss",
    holds=None,
    controls=ONE_STEP | lab.controls.without_lead("trained", "1 step", "exact"),
    along="step",
    post_hoc=TURNS,
)
def one_step_loses(config: Config, data: xr.Dataset) -> lab.Relation:
    """With one step, which only doubles the median, it is more than 0.02 nats above, at the largest
    width.
    """
    return lab.above(lost(data, "1 step").isel(width=-1, drop=True), LEAST, "0.02 nats")


EXPERIMENT = lab.Experiment(
    "field-quantiles",
    ledger("field"),
    title=(
        "Momenta of wider transformers lie lower, more than noise does, and five steps of Muon"
        " still reach their median"
    ),
    summary=(
        "Over the Frobenius norm the singular values of noise fall as M^-0.27, and those of momenta"
        " in transformers of 3 to 197 thousand weights as M^-0.41 to M^-0.47. Which matrices lie"
        " lowest changes with the training: the last block after 100 steps, queries and keys of the"
        " first after 1600, where they fall as M^-0.95 and M^-0.89. Muon's five steps reach the"
        " median everywhere."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"widths": (8, 32)},
        "smoke": {"widths": (4, 8), "lengths": (2, 4), "seeds": 3},
        # Four times the steps and more seeds than a first run, which left four statements
        # undecided.
        "paper": {"seed": 2, "widths": (8, 16, 32, 64), "lengths": (100, 400, 1600), "seeds": 24},
    },
    figure=lambda config, data: momentum_drawing.figure(config.widths, data),
    tables=lambda _, data: momentum_drawing.tables(data),
)
