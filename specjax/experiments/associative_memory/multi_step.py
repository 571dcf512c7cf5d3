"""Figures 4 and 5a, Conjecture H.2: steps of Muon, descent and Newton on the population loss.

Theorems 4.1 and 4.2 concern the gradient of eq. 5 and are judged in memory-thresholded; this
experiment judges the distance of eq. 5 from the true gradient, and the figures, which use the true
one. Their N of 250,000 and 100,000 is far larger.
"""

from functools import partial

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import fits, lab
from specjax.experiments.associative_memory import item_counts
from specjax.experiments.associative_memory.population_steps import (
    STEPS,
    UNSTABLE_ALPHAS,
    Config,
    further,
    run,
)
from specjax.lab.drawing import COLORS, draw_curves, draw_slopes, log_axes
from specjax.theory import capacity, muon_logits


def counts(data: item_counts.Data, run: str = "muon") -> xr.DataArray:
    return data["few"]["count"].sel(run=run, drop=True).astype(float)


def select_alphas(config: Config, data: item_counts.Data) -> xr.DataArray:
    """Counts of Muon with η = 2√d at every α."""
    count = data["few"]["count"].sel(run=["muon", *map(further, config.others)]).astype(float)
    return (
        count.rename(run="alpha")
        .assign_coords(alpha=[config.alpha, *config.others])
        .sortby("alpha")
    )


def gain_of_exponent(count: xr.DataArray, gain: xr.DataArray | float) -> lab.Relation:
    """The gain in exponent from the first to the last step, in which the common bend cancels."""
    slope = item_counts.pseudo_slopes(count)
    difference = (slope.isel(t=-1, drop=True) - slope.isel(t=0, drop=True)).rename(
        "gain of the exponent"
    )
    return lab.near(difference, gain, gain / 2, "half of the gain")


def gaining(of: str) -> dict[str, item_counts.Control]:
    larger = item_counts.change_values(
        lambda count: count * (count.d / count.d[0]) ** (0.5 * (count.t > 1)), of
    )
    return {
        "one step": item_counts.change_values(at_first, of),
        "a gain that is larger by 1/2": larger,
    }


at_first = partial(lab.controls.at_places, dim="t", places=0)
states = lab.Statements()
NOTHING = item_counts.store_nothing("few")
ONE_STEP = {"one step": item_counts.change_values(at_first, "few")}
GROWING = {
    "counts that grow": item_counts.change_values(lambda count: at_first(count) * count.t, "few")
}
of_descent = partial(item_counts.replace_at, "optimizer", "gd", of="many")
AT_FIRST = {"its first step": of_descent(at_first), "W = 0 for it": of_descent(lambda _: 0)}
SHORT = {
    "gradient descent in Muon's place": item_counts.change_values(
        lambda c: lab.controls.at_labels(c, "run", {"short": "gd"}), "few"
    ),
    "W = 0": item_counts.replace_at("run", "short", lambda _: 0, "few"),
}
BEFORE = {
    "before the first step": item_counts.change_values(
        lambda error: lab.controls.at_places(error, "after", 0), "few", "error"
    )
}
SECOND_CONTROL = (
    "The control is not the first that was tried; the threshold is. Judged on a fresh seed."
)
BY_NUMBER = (
    "It asked for d²/ln N items, of which there are a few hundredths; the figure is about the"
    " order. Judged on fresh samples."
)
BY_CHANGES = (
    "It was about a change of the first step, whose growth falls where the loss diverges; on fresh"
    " samples."
)
HALF = item_counts.replace_at("optimizer", "muon", lambda count: at_first(count) / 2, "newton")
STABLE = {
    "constant rates": lab.controls.replacing("growing", "constant", of="unstable"),
    "the two α exchanged": item_counts.change_values(
        partial(lab.controls.reverse, dim="alpha"), "unstable", "growing"
    ),
}


@states("figure-4a-4b-4c", controls=NOTHING | ONE_STEP)
def steps_gain(config: Config, data: item_counts.Data) -> lab.Relation:
    """With η = 2√d the capacity of Muon after T = 2, 3 and 4 steps is larger than after one, at the
    largest d.
    """
    count = counts(data).isel(d=-1, drop=True)
    later = slice(1, None)
    return lab.ahead(
        count.isel(t=later).rename("later"),
        at_first(count).isel(t=later).rename("first step"),
        least=0,
    )


@states("figure-4a-4b-4c", holds=None, along="d", controls=NOTHING | GROWING)
def every_step_gains(config: Config, data: item_counts.Data) -> lab.Relation:
    """With η = 2√d every one of the steps 2, 3 and 4 of Muon recovers more items than the one
    before, at every d.
    """
    return lab.above(counts(data).diff("t").rename("gain of a step"), 0.0, "no gain")


@states(("figure-4e", "conjecture-h-2"), holds=None, controls=gaining("few"))
def exponents_gain(config: Config, data: item_counts.Data) -> lab.Relation:
    """At every α the exponent of straight lines gains from one step of Muon to four what Theorem
    4.1 says, to half of it.
    """
    count = select_alphas(config, data)
    theorem = (
        capacity.multi_step_exponents("muon", alpha, STEPS) for alpha in count.alpha.values.tolist()
    )
    gains = [last - first for _, first, *_, last in theorem]
    return gain_of_exponent(count, xr.DataArray(gains, {"alpha": count.alpha}, "alpha"))


@states("eq-5-at-finite-size", holds=False, controls=BEFORE, post_hoc=SECOND_CONTROL)
def gradient_is_thresholded(config: Config, data: item_counts.Data) -> lab.Relation:
    """At the largest d, after one to three steps of Muon, the gradient of items not recovered is
    within half its length of the true one.
    """
    error = data["few"]["error"].isel(
        d=-1, after=slice(1, None), drop=True
    )  # of the items themselves, not of a prefix
    return lab.below(error, 0.5, "half")


def rare_signal(config: Config, data: item_counts.Data) -> xr.DataArray:
    """Muon's mean signal beyond d^(1+1/(2α)) times √d, by the theory at finite d."""
    item = np.arange(1.0, config.n + 1)
    p = item**-config.alpha / np.sum(item**-config.alpha)

    def mean_signal(d: int) -> float:
        signal = muon_logits.signal(d, p, np.ones(config.n))
        rare = item > d ** capacity.one_step_exponent("muon", config.alpha)
        return float(np.mean(signal[rare]) * d**0.5)

    d = data["few"]["d"]
    return xr.DataArray([mean_signal(int(each)) for each in d], {"d": d}, "d")


@states(
    "section-3-tightness",
    rivals={
        "twice it": lambda config, data: 2 * rare_signal(config, data),
        "half of it": lambda config, data: rare_signal(config, data) / 2,
        "one standard deviation": 1.0,
    },
    controls={
        "the first four items": lab.controls.replacing("rare", "frequent", of="few"),
        "the mean of all d": item_counts.change_values(
            lambda rare: rare.mean("d").broadcast_like(rare), "few", "rare"
        ),
    },
    post_hoc=(
        "It asked for less than one standard deviation, which twenty times the signal is too; now"
        " for theory's number, on the same samples."
    ),
)
def rare_signals_are_as_interactions(config: Config, data: item_counts.Data) -> lab.Relation:
    """After one step of Muon the mean signal of the items beyond d^(1+1/(2α)) is theory's at
    finite d, not twice or half of it, a part of the standard deviation of their interactions.
    """
    # W/η is orthogonal, so that interactions have the standard deviation 1/√d; the largest of N is
    # √(2 ln N) times as large.
    return lab.equals(data["few"]["rare"].rename("signal times √d"), rare_signal(config, data))


@states("figure-4d", holds=None, controls=gaining("many"), post_hoc=BY_NUMBER)
def order_of_many_steps(config: Config, data: item_counts.Data) -> lab.Relation:
    """After many steps of Muon the exponent of straight lines is 1 - 1/(2α), to half of it, above
    that of one, as d² to d^(1+1/(2α)).
    """
    return gain_of_exponent(
        data["many"]["count"].sel(optimizer="muon", drop=True), 1 - 1 / (2 * config.alpha)
    )


@states("figure-5a", controls=AT_FIRST)
def descent_catches_up(config: Config, data: item_counts.Data) -> lab.Relation:
    """After many steps gradient descent with growing rates has stored more than half as many items
    as Muon, at every d.
    """
    count = data["many"]["count"].isel(t=-1, drop=True)
    muon, gd = (count.sel(optimizer=name, drop=True) for name in ("muon", "gd"))
    return lab.ahead(gd.rename("gradient descent"), (muon / 2).rename("half of Muon"), least=0)


@states(("figure-5a", "section-4-early"), controls=SHORT)
def muon_is_ahead_early(config: Config, data: item_counts.Data) -> lab.Relation:
    """At the largest d Muon with η = √d has over four times the items of gradient descent with
    growing rates, after each of three steps.
    """
    muon, gd = (counts(data, run).isel(d=-1, t=slice(0, 3), drop=True) for run in ("short", "gd"))
    return lab.ahead(muon.rename("Muon"), (4.0 * gd).rename("4 GD"), least=0)


@states("appendix-d-1-instability", controls=STABLE, post_hoc=BY_CHANGES)
def growing_rates_are_unstable(config: Config, data: item_counts.Data) -> lab.Relation:
    """With growing rates the loss after twelve steps is larger than at the start at α = 3, and
    smaller at α = 1.25.
    """
    growing = data["unstable"]["growing"]
    sign = xr.where(growing.alpha == UNSTABLE_ALPHAS[0], -1.0, 1.0)
    return lab.above((sign * growing).rename("±log of the loss over ln N"), 0.0, "no change")


@states("conjecture-h-2", holds=None, controls={"half of Muon's first step": HALF})
def muon_matches_newton(config: Config, data: item_counts.Data) -> lab.Relation:
    """After each of four steps, at every d, Muon and Newton's method recover numbers of items
    within a factor of 2 of each other.
    """
    logs = fits.jackknife(data["newton"]["count"], item_counts.log)
    muon, newton = (logs.sel(optimizer=name, drop=True) for name in ("muon", "newton"))
    return item_counts.within_a_factor_of_2((muon - newton).rename("log of Muon / Newton"))


def figure(config: Config, data: item_counts.Data) -> Figure:
    """Plot counts by d after the last T and those of many steps, exponents, and Figure 5a."""
    drawn = Figure(figsize=(9, 7), layout="constrained")
    of_steps, of_many, of_exponents, of_both = np.ravel(drawn.subplots(2, 2))
    few, many = select_alphas(config, data), data["many"]["count"].astype(float)
    theorem = [
        capacity.multi_step_exponents("muon", alpha, STEPS) for alpha in few.alpha.values.tolist()
    ]
    draw_curves(of_steps, few.sel(t=STEPS), "d", "alpha", "α = {:g}".format)
    draw_slopes(of_steps, few.sel(t=STEPS), "d", "alpha", [after[STEPS] for after in theorem])
    of_steps.set(title=f"4: Muon, η = 2√d, T = {STEPS}, N = {config.n}")
    draw_curves(of_many, many.isel(t=[0, -1]).sel(optimizer="muon"), "d", "t", "T = {}".format)
    of_many.plot(config.many_dims, np.square(config.many_dims), "k:", label="d²")
    of_many.set(title=f"4d: Muon, N = {config.many_n}")
    for axes in (of_steps, of_many):
        log_axes(axes, few.d.values if axes is not of_many else many.d.values)
        axes.set(xlabel="dimension d", ylabel="items recovered")
    draw_curves(of_exponents, item_counts.pseudo_slopes(few), "t", "alpha", "α = {:g}".format)
    for after, color in zip(theorem, COLORS, strict=False):
        of_exponents.plot(few.t, after[1:], "--", color=color)
    of_exponents.set(
        title="4e: exponents, theory dashed",
        xlabel="steps T",
        ylabel="slope in d",
        xticks=few.t.values,
    )
    draw_curves(of_both, many.isel(d=-1), "t", "optimizer", item_counts.NAMES.__getitem__)
    of_both.set(
        title=f"5a: d = {config.many_dims[-1]}",
        xlabel="steps T",
        ylabel="items recovered",
        yscale="log",
    )
    for axes in (of_steps, of_many, of_exponents, of_both):
        axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "memory-multi-step",
    item_counts.LEDGER,
    title=(
        "Capacity after several steps of Muon, gradient descent and Newton's method on the true"
        " loss"
    ),
    summary=(
        "Muon gains for a few steps and stops; gradient descent with growing rates passes it; eq. 5"
        " is far from the gradient."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seed": 1, "seeds": 24, "many_seeds": 60},
        "smoke": {
            "n": 400,
            "dims": (16, 32),
            "seeds": 10,
            "many_n": 200,
            "many_dims": (8, 16),
            "many_seeds": 10,
        }
        | {"newton_n": 100, "newton_dims": (8, 12)},
        "paper": {
            "seed": 3,
            "n": 8000,
            "dims": (12, 24, 48, 128),
            "newton_n": 600,
            "newton_dims": (12, 16, 24, 32),
        }
        | {"many_n": 2000, "many_dims": (16, 32, 64), "many_steps": 100, "many_seeds": 120},
    },
    figure=figure,
)
