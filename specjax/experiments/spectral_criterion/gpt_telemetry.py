"""Figures 2 and 5 to 10 on a small GPT: the ranks of Table 1 while Muon trains it on a text.

The paper shows one run of a model with 768 features on subwords; this one has 64 features and bytes
as tokens, and cannot refute it. Where they differ, the statement is ours, about this size, and the
figure's numbers are a control.
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, training
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion import gpt_runs
from specjax.lab.drawing import COLORS
from specjax.models import transformer
from specjax.models.transformer import Sequences, Transformer
from specjax.spectral.gram_power_norm import stable_rank_above

LARGE = 2.0
"""Multiple of st(A) from which nr is large: it then orders losses, not only guarantees."""
HALF = 0.5
"""Smallest factor of a fall or difference that counts as in the figures."""
PEAK, END = 9.0, 2.2
"""Read off Figure 2: stable ranks after 100 steps, and at the end."""
BLOCK = ("query", "key", "value", "output", "up", "down")
MATRICES = (*BLOCK, "embedding", "head")


class Config(gpt_runs.Training):
    """The training of one GPT by Muon."""

    muon_rate: float = lab.config.number(
        0.01, above=0, help="learning rate of Muon on the matrices of the blocks"
    )


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Ranks of every matrix, embedding and head repeated by block, and the loss, by record."""

    def observe(model: Transformer, seen: Sequences) -> dict[str, Array]:
        ranks = training.measure_ranks(transformer.loss, model, seen)

        def table(tree: Transformer) -> Array:
            ends = [
                jnp.full(config.blocks, end)
                for end in (tree.embedding, tree.head)
                if end is not None
            ]
            return jnp.stack([*(getattr(tree.blocks, name) for name in BLOCK), *ends])

        embedded = stable_rank_above(model.embedding[seen.tokens[:, :-1].reshape(-1)])
        return {
            "stable_rank": table(ranks.stable),
            "nuclear_rank": table(ranks.nuclear),
            "embedded": embedded,
        }

    cell = gpt_runs.Cell("muon", config.muon_rate, config.muon_rate)
    stream, architecture = sizes.stream(key, "trainings"), config.architecture("relu_squared")
    found = gpt_runs.run(
        config, stream, architecture, [cell], observe, dims=("matrix", "block"), start=True
    )
    return found.isel(cell=0, drop=True).assign_coords(
        matrix=list(MATRICES), block=1 + np.arange(config.blocks)
    )


def trained(data: xr.Dataset, *matrices: str) -> xr.Dataset:
    """The records after initialization, for some of the matrices."""
    return data.isel(step=slice(1, None)).sel(matrix=list(matrices or MATRICES))


def geometric(ranks: xr.DataArray) -> xr.DataArray:
    """The geometric mean over blocks, as their typical value."""
    return xr.ufuncs.exp(xr.ufuncs.log(ranks).mean("block"))


def margin(data: xr.Dataset, *matrices: str) -> xr.DataArray:
    """nr(G)/st(A), typical of the blocks."""
    ranks = trained(data, *matrices)
    return geometric(ranks["nuclear_rank"] / ranks["stable_rank"])


def _largest(config: Config) -> xr.DataArray:
    largest = [config.width] * 5 + [4 * config.width] + [config.width] * 2
    return xr.DataArray(largest, {"matrix": list(MATRICES)}, "matrix")


def _noise(config: Config, data: xr.Dataset) -> xr.Dataset:
    """Independent Gaussian features in place of activations: n d/(√n + √d)² for n tokens."""
    tokens = config.stretches * config.context
    return data.assign(
        stable_rank=data["stable_rank"] * 0 + 1 / (_largest(config) ** -0.5 + tokens**-0.5) ** 2
    )


def _value_at_start(config: Config, data: xr.Dataset) -> xr.Dataset:
    """The ranks of W_V at initialization in the place of all others."""
    start = (
        data[["stable_rank", "nuclear_rank"]].isel(step=0, drop=True).sel(matrix="value", drop=True)
    )
    return data.assign({name: values.broadcast_like(data[name]) for name, values in start.items()})


def _figure_falls(config: Config, data: xr.Dataset) -> xr.Dataset:
    fallen = xr.where(data["step"] > data["step"][1], END / PEAK, 1.0)
    return data.assign(stable_rank=data["stable_rank"].isel(step=1, drop=True) * fallen)


def scale_ranks(
    ranks: str, factor: float, *matrices: str
) -> Callable[[Config, xr.Dataset], xr.Dataset]:
    """A control with some ranks lower by as much as in the paper's figures."""
    return lambda config, data: data.assign(
        {ranks: data[ranks] * xr.where(data["matrix"].isin(matrices), factor, 1)}
    )


states = lab.Statements()
THIRD = {"the third of Figure 9": scale_ranks("nuclear_rank", 1 / 3, "value")}
MODEST = {"the margins of the figures": scale_ranks("nuclear_rank", 14 / 110, "embedding", "head")}
SHARE = {"the share of Figure 10": scale_ranks("embedded", 10.8 / 26, *MATRICES)}
LOWER = {"a third of the nuclear ranks": scale_ranks("nuclear_rank", 1 / 3, *BLOCK)}
SPLIT = (
    "It was one statement, which a run of another seed, five times as long, left open for W_Q and"
    " W_K alone."
)
NOISE, VALUE = (
    {"Gaussian features": _noise},
    {"the gradient of W_V at initialization": _value_at_start},
)


@states(("figure-2", "section-1-3-trajectory"), along="step", controls=NOISE)
def perceptrons_far_below(config: Config, data: xr.Dataset) -> lab.Relation:
    """The activations of the perceptrons have, in every block and all along, a stable rank far
    below its largest value.
    """
    return lab.below(trained(data, "down")["stable_rank"] / _largest(config), 1 / 10, "0.1")


@states(("figure-6", "section-1-3-trajectory"), along="step", controls=NOISE)
def normalized_activations_low(config: Config, data: xr.Dataset) -> lab.Relation:
    """The three kinds of normalized activations have a low stable rank in every block throughout
    the training.
    """
    return lab.below(
        trained(data, "query", "up", "head")["stable_rank"] / _largest(config), 1 / 4, "0.25"
    )


@states(
    ("figure-2", "figure-6"),
    along="step",
    controls={"the fall of Figure 2": _figure_falls},
    elsewhere=True,
)
def no_fall(config: Config, data: xr.Dataset) -> lab.Relation:
    """At this size the stable ranks of perceptrons and of normalized activations do not fall after
    the first record as the figures' do: at every later one they are above half of what they were.
    """
    ranks = geometric(trained(data, "query", "up", "down", "head")["stable_rank"])
    return lab.above(ranks.isel(step=slice(1, None)) / ranks.isel(step=0, drop=True), HALF, "0.5")


@states("eq-1-8-in-training", along="step", controls=VALUE, holds=None)
def inequality(config: Config, data: xr.Dataset) -> lab.Relation:
    """From the first record after initialization on nr(G) is at least st(A) for every matrix of
    every block, in every sample.
    """
    found = trained(data, *BLOCK)
    # Of the weakest matrix nr is about twice st: a rule that asks for two and a half times as much
    # breaks.
    return lab.inequality(found["stable_rank"], found["nuclear_rank"], slack=0.6)


def value_for_query(config: Config, data: xr.Dataset) -> xr.Dataset:
    return data.assign_coords(matrix=["value", "key", "query", *MATRICES[3:]])


@states("eq-1-8-in-training", corrected=True, controls={"W_Q": value_for_query})
def not_from_the_start(config: Config, data: xr.Dataset) -> lab.Relation:
    """At initialization it does not hold for W_V: typically nr(G) is below st(A)."""
    start = data.isel(step=0).sel(matrix="value")
    return lab.below(
        geometric(start["nuclear_rank"] / start["stable_rank"]).rename("nr/st of W_V"), 1, "1"
    )


def _large(row: str, name: str, of: str, *matrices: str, holds: bool | None = True) -> None:
    says = f"The gradients of {of} typically have a large nuclear rank."

    @states(
        row,
        says,
        name=f"large-ranks-{name}",
        along="step",
        controls=VALUE | LOWER,
        holds=holds,
        post_hoc=SPLIT,
    )
    def large(config: Config, data: xr.Dataset) -> lab.Relation:
        return lab.above(margin(data, *matrices), LARGE, f"{LARGE:g}")


_large("figure-5", "of-perceptrons", "both matrices of the perceptrons", "up", "down")
_large("figure-8", "of-queries-and-keys", "W_Q and W_K", "query", "key", holds=None)
_large("figure-9", "of-outputs", "W_O", "output")


@states("figure-9", along="step", controls=THIRD, elsewhere=True)
def values_are_as_large(config: Config, data: xr.Dataset) -> lab.Relation:
    """At this size W_V is no more modest than W_O: the nuclear rank of its gradient is more than
    half of that of W_O's.
    """
    ranks = geometric(trained(data)["nuclear_rank"])
    return lab.above(
        ranks.sel(matrix="value", drop=True) / ranks.sel(matrix="output", drop=True), HALF, "0.5"
    )


@states(("figure-7", "section-1-2-1-embedding"), along="step", controls=MODEST, elsewhere=True)
def ends_have_margins(config: Config, data: xr.Dataset) -> lab.Relation:
    """At this size, with bytes for tokens, embedding and head have margins nr/st like the blocks':
    above half of their mean.
    """
    of_blocks = xr.ufuncs.exp(xr.ufuncs.log(margin(data, *BLOCK)).mean("matrix"))
    return lab.above(margin(data, "embedding", "head") / of_blocks, HALF, "0.5")


@states(("figure-10", "section-2-2-1-loose"), along="step", controls=SHARE, elsewhere=True)
def embedded_near_indicators(config: Config, data: xr.Dataset) -> lab.Relation:
    """At this size, with bytes for tokens, the embedded tokens have more than half of the stable
    rank 1/p_max of their indicators.
    """
    found = trained(data)
    return lab.above(
        found["embedded"] / found["stable_rank"].sel(matrix="embedding", block=1, drop=True),
        HALF,
        "0.5",
    )


SHOWN = {"value": COLORS[2], "up": COLORS[1], "embedding": COLORS[0], "head": COLORS[3]}
"""Of the matrices of a block the two with the smallest and the largest margins."""
OF_FIGURE_2 = {"peak of the paper's Figure 2": (PEAK, "--"), "its end": (END, ":")}
NUCLEAR = {"up": 220.0, "head": 20.0}  # Figures 5 and 7
MARGINS = {"up": 110.0, "head": 20.0, "embedding": 14.0}  # Figures 5, 7 and 10


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot both ranks and their ratio along the training, with the paper's values."""
    drawn = Figure(figsize=(14, 5), layout="constrained")
    stable, nuclear, ratio = drawn.subplots(1, 3)
    for axes, title, values, levels in (
        (stable, "stable rank of the activations, st(A)", data["stable_rank"], {}),
        (nuclear, "nuclear rank of the gradient, nr(G)", data["nuclear_rank"], NUCLEAR),
        (ratio, "nr(G)/st(A)", data["nuclear_rank"] / data["stable_rank"], MARGINS),
    ):
        for name, color in SHOWN.items():
            middle = geometric(values.where(values > 0).sel(matrix=name)).median("seed")
            axes.plot(middle["step"], middle, label=name, color=color, marker="o")
        for place, (name, level) in enumerate(levels.items()):
            label = "the paper's, in the color of its matrix" if place == 0 else ""
            axes.axhline(level, color=SHOWN[name], linewidth=1, linestyle="--", label=label)
        axes.set(yscale="log", xlabel="step", ylabel=title)
    for label, (level, line) in OF_FIGURE_2.items():
        stable.axhline(level, color="black", linewidth=1, linestyle=line, label=label)
    ratio.axhline(1.0, color="black", linewidth=1, linestyle=":", label="1, where (1.8) begins")
    for axes in (stable, nuclear, ratio):
        axes.set_ylim(None, 4 * axes.get_ylim()[1])
        axes.legend(fontsize="small", ncols=2, loc="upper center")
    return drawn


EXPERIMENT = lab.Experiment(
    "gpt-telemetry",
    ledger("spectral-criterion"),
    title="Ranks of activations and gradients while a small GPT learns a text",
    summary=(
        "Stable ranks of activations are low and nuclear ranks of gradients several times as large;"
        " the former do not fall here."
    ),
    config=Config,
    measure=run,
    statements=states,
    figure=figure,
    scales={
        # Sizes, rates and seeds were chosen by runs with smaller seeds.
        "quick": {"seed": 8, "steps": 300, "records": 2, "seeds": 10},
        "smoke": {
            "width": 32,
            "blocks": 1,
            "heads": 1,
            "context": 16,
            "steps": 100,
            "records": 2,
            "seeds": 4,
        },
        "paper": {
            "seed": 8,
            "width": 384,
            "blocks": 6,
            "heads": 6,
            "context": 256,
            "batch": 64,
            "steps": 5000,
            "records": 10,
            "muon_rate": 0.005,
            "table_rate": 0.003,
        },
    },
)
