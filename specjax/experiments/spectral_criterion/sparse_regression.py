"""Figures 1, 4 and 18: networks that learn x_1 x_2 x_3 by GD and SpecGD, at several lengths.

Medians over seeds are judged, and a diverged run counts as worst. With the figures' step sizes many
runs diverge, so the curves have smaller ones in the same proportion; the larger batch of SwiGLU
networks has its figure's own. Everything was chosen on other seeds. Statements that quick runs
leave undecided are open: leads and ranks vary widely at small sizes.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import lab
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion.sparse_training import (
    CURVES,
    FIGURES,
    INTERNAL,
    LARGE,
    OPTIMIZERS,
    WORST,
    Config,
    Data,
    change,
    lead,
    rule,
    run,
    select_point,
)
from specjax.lab.drawing import COLORS

AHEAD = np.log10(1.2)
"""Curves within this factor count as equal."""


def replace_points(name: str, dim: str, *places: int) -> Callable[[Config, Data], Data]:
    """A control with other points of a dimension; runs keep their step sizes."""

    def changed(config: Config, data: Data) -> Data:
        found = data[name].isel({dim: list(places)})
        return {
            **data,
            name: found if dim == "run" else found.assign_coords({dim: data[name][dim]}),
        }

    return changed


def gated_for_relu(_: Config, data: Data) -> Data:
    gated = data["gated"].isel(run=[LARGE])
    return {**data, "relu": gated.reindex(length=data["relu"]["length"], method="nearest")}


def last_block(of: str) -> dict[str, Callable[[Config, Data], Data]]:
    return {"nr(G) = 1, as on the last block": lab.controls.replacing("nuclear_rank", 1.0, of=of)}


states = lab.Statements()
along = partial(states, along="length")
held_open = partial(along, holds=None)
CHANGED = (
    "Samples and lengths were changed after runs that left it open at some length; judged on fresh"
    " seeds."
)
OUTER = {
    "internal and outer blocks exchanged": replace_points("relu", "block", 1, 0, 3, 2),
    "outer blocks everywhere": replace_points("relu", "block", 0, 0, 3, 3),
}
OTHERS = {
    "the inputs": replace_points("relu", "block", 0, 0, 0, 0),
    "SwiGLU, larger batch": gated_for_relu,
}


@along("figure-1", controls=OTHERS)
def stable_ranks_stay_low(config: Config, data: Data) -> lab.Relation:
    """Under both methods, at every length, the activations of each hidden layer have a smaller
    stable rank than the inputs.
    """
    found = select_point(data, "relu", CURVES, config.lengths)
    ratio = found["stable_rank"].sel(block=[2, 3, 4]) / found["stable_rank"].sel(block=1, drop=True)
    return lab.below(
        ratio.where(found["lasts"], WORST).rename("st(A)/st(X)"),
        1.0,
        "that of the inputs",
        by="median",
    )


states(
    ("figure-1", "section-1-2-dimension"),
    "At initialization the largest stable rank of the hidden layers does not grow with the network,"
    " n = h = 4d.",
    name="stable-ranks-settle",
    controls={"the inputs": replace_points("starts", "block", 0, 0, 0, 0)},
)(
    lambda config, data: lab.settles(
        data["starts"]["stable_rank"].sel(block=[2, 3, 4]).max("block"), "d"
    )
)
states(
    "section-1-2-dimension",
    "At initialization the smaller nr(G_ℓ)/st(A_(ℓ-1)) of the internal blocks, the promised lead of"
    " a spectral step, grows without end.",
    name="rule-grows-with-size",
    controls=last_block("starts"),
)(
    lambda config, data: lab.grows(
        (2 ** rule(data["starts"], INTERNAL)).min("block").rename("nr(G)/st(A)"), "d"
    )
)
states(
    ("figure-4", "eq-1-5"),
    "At initialization of the largest network nr(G_ℓ) is above st(A_(ℓ-1)) on both internal"
    " blocks.",
    name="rule-at-start",
    controls=last_block("starts"),
)(
    lambda config, data: lab.above(
        rule(data["starts"], INTERNAL).isel(d=-1), 0.0, "nr = st", by="median"
    )
)


@held_open("section-1-2-1-internal", controls=OUTER)
def internal_blocks_qualify(config: Config, data: Data) -> lab.Relation:
    """Under both methods nr(G_ℓ)/st(A_(ℓ-1)) is larger on the internal blocks, in the geometric
    mean, than on the first and on the last.
    """
    found = select_point(data, "relu", CURVES, (0, *config.lengths))
    inner, outer = rule(found, INTERNAL).mean("block"), rule(found, [1, 4]).max("block")
    return lab.ahead(inner.rename("internal"), outer.rename("outer"), least=0, by="median")


def _state_network(network: str, prefix: str, rows: tuple[str, ...]) -> None:
    smaller = {"the smaller step size": replace_points(network, "run", CURVES, CURVES)}

    @states(rows, name=f"{prefix}large-step-diverges", corrected=True, controls=smaller)
    def fragile(config: Config, data: Data) -> lab.Relation:
        """With the step size of the figure SpecGD diverges in more than one sample in twenty."""
        # A figure of one seed then shows one outcome of several.
        found = select_point(data, network, FIGURES).sel(optimizer="spectral").isel(length=-1)
        return lab.fraction(~found["lasts"].rename("diverged"), more_than=0.05)

    options = {
        "controls": {"the methods exchanged": replace_points(network, "optimizer", 1, 0)}
        | lab.controls.without_lead("optimizer", "spectral", "gd", of=network),
        "post_hoc": CHANGED,
    }

    @along(rows[-1], name=f"{prefix}spectral-ahead", holds=True if prefix else None, **options)
    def ahead(config: Config, data: Data) -> lab.Relation:
        """SpecGD comes to a lower loss than GD, by more than a factor of 1.2, at every length."""
        lengths = config.lengths if network == "relu" else config.gated_lengths
        return lab.above(
            lead(select_point(data, network, CURVES, lengths)),
            AHEAD,
            "a factor of 1.2",
            by="median",
        )


def _along(optimizer: str, label: str, third_falls: bool | None) -> None:
    """The rule along a training of squared ReLU networks, and st(A_3) of SwiGLU networks."""
    says = (
        f"Under {label} nr(G_ℓ) is above st(A_(ℓ-1)) on both internal blocks all along the"
        " training."
    )

    @held_open(
        "section-1-2-1-internal", says, name=f"rule-along-{optimizer}", controls=last_block("relu")
    )
    def rule_along(config: Config, data: Data) -> lab.Relation:
        found = select_point(data, "relu", CURVES, (0, *config.lengths)).sel(optimizer=optimizer)
        return lab.above(rule(found, INTERNAL), 0.0, "nr = st", by="median")

    says = f"Under {label} st(A_3) is below its initial value at every length, at both batch sizes."
    name = f"gated-third-layer-falls-under-{optimizer}"
    inverse = {
        "1/st": lab.controls.replacing(
            "stable_rank", lambda found: 1 / found["stable_rank"], of="gated"
        )
    }

    @along(
        "figure-18-layers", says, name=name, controls=inverse, holds=third_falls, post_hoc=CHANGED
    )
    def falls(config: Config, data: Data) -> lab.Relation:
        return lab.below(
            change(config, data, [4]).sel(optimizer=optimizer),
            0.0,
            "the initial value",
            by="median",
        )


_state_network("relu", "", ("figure-1", "figure-4"))
_state_network("gated", "gated-", ("figure-18-left",))
_along("gd", "GD", True)
_along("spectral", "SpecGD", None)


@held_open(
    "figure-18-right",
    controls={"the smaller batch": replace_points("gated", "run", CURVES, CURVES, CURVES)},
)
def gated_large_batch_coincides(config: Config, data: Data) -> lab.Relation:
    """At the larger batch, with the figure's step sizes, the losses of GD and SpecGD are within a
    factor of 1.5 at every length.
    """
    # Within this factor curves coincide on the figure's axis of several decades.
    apart = abs(lead(select_point(data, "gated", LARGE, config.gated_lengths)))
    return lab.below(apart, np.log10(1.5), "a factor of 1.5", by="median")


along(
    "figure-18-layers",
    "At both batch sizes and under both methods st(A_1) and st(A_2) stay within a factor of 1.5 of"
    " their initial values.",
    name="gated-first-layers-keep",
    controls={"st(A_3) in their place": replace_points("gated", "block", 0, 3, 3, 3)},
)(
    lambda config, data: lab.below(
        abs(change(config, data, [2, 3])), np.log2(1.5), "a factor of 1.5", by="median"
    )
)


def _with_batch(quantity: xr.DataArray) -> lab.Relation:
    small, large = (quantity.sel(block=INTERNAL).isel(n=place, drop=True) for place in (0, 1))
    return lab.ahead(large.rename("larger batch"), small.rename("smaller"), least=0, by="median")


for rank, symbol, corrected in (
    ("stable_rank", "st(A_(ℓ-1))", False),
    ("nuclear_rank", "nr(G_ℓ)", True),
):
    states(
        "appendix-a-batch",
        f"At initialization of SwiGLU networks {symbol} of both internal blocks is larger at the"
        " larger batch.",
        name=f"gated-{rank.replace('_', '-')}s-grow",
        controls={
            "the batches exchanged": replace_points("batches", "n", 1, 0),
            "the smaller batch as both": replace_points("batches", "n", 0, 0),
        },
        corrected=corrected,
    )(partial(lambda rank, config, data: _with_batch(xr.ufuncs.log2(data["batches"][rank])), rank))


def _smaller_batch(found: xr.Dataset) -> xr.DataArray:
    return found["nuclear_rank"].isel(n=0, drop=True) + 0 * found["stable_rank"]


states(
    "appendix-a-batch",
    "At initialization of SwiGLU networks nr(G_ℓ)/st(A_(ℓ-1)) falls with the batch on both internal"
    " blocks.",
    name="gated-rule-weakens",
    controls={
        "nuclear ranks of the smaller batch": lab.controls.replacing(
            "nuclear_rank", _smaller_batch, of="batches"
        )
    },
    holds=False,
)(lambda config, data: _with_batch(-rule(data["batches"], INTERNAL)))


EXCHANGED = {
    "the batches exchanged": replace_points("gated", "run", LARGE, FIGURES, CURVES),
    "the smaller batch as both": replace_points("gated", "run", CURVES, FIGURES, CURVES),
}


@along("appendix-a-batch", controls=EXCHANGED, post_hoc=CHANGED)
def gated_lead_shrinks(config: Config, data: Data) -> lab.Relation:
    """SpecGD's lead at the smaller batch is larger, by more than a factor of 1.2, than at the
    larger one with the figure's step sizes.
    """
    small, large = (
        lead(select_point(data, "gated", place, config.gated_lengths)) for place in (CURVES, LARGE)
    )
    return lab.ahead(small, large, least=AHEAD, by="median")


PANELS = (
    ("relu", CURVES, "loss", "ReLU², Figure 4"),
    ("relu", CURVES, "stable_rank", "ReLU², Figure 1"),
    ("gated", CURVES, "loss", "SwiGLU, smaller batch, Figure 18"),
    ("gated", LARGE, "loss", "SwiGLU, larger batch, Figure 18"),
)
"""Network, point of its sweep, quantity and title."""
PAPER: tuple[dict[str, dict[int, Any]], ...] = (
    {"gd": {2000: 1e-4}, "spectral": {200: 3e-6, 2000: 2e-7}},
    {"gd": {2000: (5.9, 4.15, 2.1)}, "spectral": {2000: (5.9, 3.97, 3.95)}},
    {"gd": {400: 7e-6}, "spectral": {400: 2e-16}},
    {"gd": {400: 6e-3}, "spectral": {400: 6e-3}},
)
"""The paper's values at the last iterations, for each panel."""
SHOWN = {
    "loss": {"loss": 1},
    "stable_rank": {f"st(A_{i})": i + 1 for i in (1, 2, 3)},
}


def figure(config: Config, data: Data) -> Figure:
    """Plot medians over lasting seeds, with crosses for the paper's values at equal lengths."""
    drawn = Figure(figsize=(9, 7), layout="constrained")
    panels = zip(drawn.subplots(2, 2).flat, PANELS, PAPER, strict=True)
    for axes, (network, place, quantity, title), paper in panels:
        found = select_point(data, network, place)
        middle = found[quantity].where(found["lasts"]).median("seed")
        for color, optimizer in zip(COLORS, OPTIMIZERS, strict=False):
            curves = middle.sel(optimizer=optimizer)
            for style, (label, block) in zip(
                ("-", "--", ":"), SHOWN[quantity].items(), strict=False
            ):
                curve = 10**curves if quantity == "loss" else curves.sel(block=block)
                axes.plot(found["length"], curve, style, color=color, label=f"{label}, {optimizer}")
            for iteration, printed in paper.get(optimizer, {}).items():
                if iteration <= found["length"].values[-1]:
                    axes.plot(
                        [iteration] * np.size(printed), np.atleast_1d(printed), "x", color=color
                    )
        axes.set(title=title, xlabel="iteration", ylabel=quantity.replace("_", " "))
        axes.set_yscale("log" if quantity == "loss" else "linear")
        axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    return drawn


EXPERIMENT = lab.Experiment(
    "sparse-regression",
    ledger("spectral-criterion"),
    title="Networks that learn a product of three coordinates, by GD and SpecGD",
    summary=(
        "nr(G) is above st(A) on the internal blocks at the start, the more the larger they are;"
        " one seed of a training shows little."
    ),
    config=Config,
    measure=run,
    statements=states,
    figure=figure,
    scales={
        "quick": {"lengths": (100, 150), "gated_lengths": (40, 60), "start_seeds": 32},
        "smoke": {
            "inputs": 8,
            "samples": 32,
            "width": 32,
            "lengths": (20, 40),
            "seeds": 16,
            "fragile_seeds": 16,
            "gated_samples": (32, 128),
            "gated_lengths": (10, 20),
            "gated_seeds": 16,
            "starts": (4, 6, 8, 12, 16),
            "start_inputs": 8,
            "start_samples": (32, 256),
            "start_seeds": 16,
        },
        "paper": {
            "inputs": 128,
            "samples": 512,
            "width": 512,
            "gd_rates": (0.0405, 0.081),
            "spectral_rates": (0.05, 0.1),
            "seeds": 16,
            "lengths": (100, 200, 500, 1000, 2000),
            "gated_samples": (512, 8196),
            "gated_lengths": (60, 100, 200, 400),
            "gated_seeds": 16,
            "starts": (8, 16, 32, 64, 128, 256),
            "start_inputs": 128,
            "start_samples": (512, 8192),
        },
    },
)
