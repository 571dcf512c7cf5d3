"""Figure of `spectral-race`."""

from collections.abc import Mapping

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from specjax.lab.drawing import COLORS
from specjax.theory import spectral_race


def draw(data: Mapping[str, xr.Dataset], form: xr.DataArray) -> Figure:
    """Plot K* by k with the formula, losses of one race, and where the formula stops."""
    drawn = Figure(figsize=(13, 4.2), layout="constrained")
    by_k, race, stops = drawn.subplots(1, 3)
    tall = data["tall"]
    k = np.geomspace(tall.k[0], tall.k[-1], 50)
    for a, color in zip(tall.a.values, COLORS, strict=False):
        found = tall["passing"].sel(a=a)
        bars = 4 * found.std("seed", ddof=1) / found.sizes["seed"] ** 0.5
        by_k.errorbar(tall.k, found.mean("seed"), bars, fmt="o", color=color, label=f"i^(-{a:g})")
        by_k.plot(form.k, form.sel(a=a), "-", color=color)
        by_k.plot(k, spectral_race.asymptotic_steps_to_pass(k, a), ":", color=color)
    by_k.set(title="circles: measured; lines: formula, dotted: limit", ylabel="K*")
    chosen = {"a": tall.a[-1], "k": tall.k[2]}
    for part, name, label in (
        ("tall", "gradient", "gradient"),
        ("tall", "spectral", "spectral"),
        ("five", "spectral", "five Newton–Schulz steps"),
    ):
        race.plot(tall.step, data[part][name].sel(chosen).mean("seed"), label=label)
    race.set(
        title=f"best lengths, after {float(tall.k[2]):g} steps", xlabel="steps K", yscale="log"
    )
    race.set(ylabel="loss left")
    for (part, one), color in zip(data.items(), COLORS, strict=False):
        ratio = (one["passing"] / one["formula"]).median("seed").isel(a=-1)
        stops.plot(one.k, ratio, "o-", color=color, label=part)
    stops.set(title="where the formula stops", ylabel="median of K*, measured over formula")
    for axes, ticks in ((by_k, (1, 2, 5, 10, 20)), (stops, (0.1, 0.2, 0.5, 1, 2, 5))):
        axes.set(xlabel="gradient steps before, k", xscale="log", yscale="log")
        for axis, places in ((axes.xaxis, tall.k.values), (axes.yaxis, ticks)):
            axis.set_minor_formatter(NullFormatter())
            axis.set_ticks(places, [f"{place:g}" for place in places])
    for axes in (by_k, race, stops):
        axes.legend(fontsize="small")
    return drawn
