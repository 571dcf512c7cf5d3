"""Outcomes of trainings on random features: losses with searched and with fixed lengths."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import lab
from specjax.experiments.field.feature_descent import SEARCH
from specjax.experiments.field.split_half_tuning import draw_at, tuned
from specjax.lab.drawing import COLORS, MARKERS

RATES = 2.0 ** np.arange(-5.0, 3.0)
"""Fixed lengths of steps, in units of the inverse mean eigenvalue of B."""


def searched(data: xr.Dataset, kind: str) -> xr.DataArray:
    """Log losses with the best length of every step."""
    return data["loss"].sel(kind=kind, rate=SEARCH, drop=True).rename(f"{kind}, line search")


def fixed(data: xr.Dataset, kind: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Log losses with the best fixed length, and its index in the grid."""
    loss, places = tuned(data["loss"].sel(kind=kind, drop=True).isel(rate=slice(1, None)))
    return loss.rename(f"{kind}, fixed"), places


def spread(data: xr.Dataset, kind: str) -> xr.DataArray:
    """The standard deviation along the training of the logarithm of the best length of a step."""
    return data["spread"].sel(kind=kind, rate=SEARCH, drop=True).rename(f"spread, {kind}")


def replace_kinds(of: str, *kinds: str) -> Any:
    """A control with the values of one kind under the names of others."""
    return lab.controls.changing(
        lambda data: lab.controls.at_labels(data, "kind", dict.fromkeys(kinds, of))
    )


def halfway(of: str, *kinds: str) -> dict[str, lab.Control]:
    """A control with the spread of some kinds half of the way to that of one, in logarithms."""
    other = dict.fromkeys(kinds, of)

    def moved(data: xr.Dataset) -> xr.DataArray:
        values = data["spread"]
        return (values * lab.controls.at_labels(values, "kind", other)) ** 0.5

    return {f"half of the way to {of}, in logarithms": lab.controls.replacing("spread", moved)}


def times_muon(quantity: str, factor: float, *kinds: str) -> dict[str, lab.Control]:
    """A control in which a quantity of some kinds is this factor times Muon's."""

    def changed(data: xr.Dataset) -> xr.DataArray:
        muon = factor * data[quantity].sel(kind="Muon", drop=True)
        return data[quantity].where(~data["kind"].isin(kinds), muon)

    called = {"loss": "fall of the log loss"}.get(quantity, quantity)
    return {f"{factor:g} times Muon's {called}": lab.controls.replacing(quantity, changed)}


def shortened(data: xr.Dataset) -> xr.DataArray:
    """Log losses in which those of fixed lengths fall a tenth as far."""
    return data["loss"].where(data["rate"] == SEARCH, data["loss"] / 10)


def figure(_: Any, data: xr.Dataset) -> Figure:
    """Plot variation of the best length and the losses, at the largest width."""
    kinds = data["kind"].values.tolist()
    drawn = Figure(figsize=(9.5, 3.8), layout="constrained")
    panels = drawn.subplots(1, 2)
    last = data.isel(width=-1, step=-1)
    ends = {
        "the best length of every step": [searched(last, kind) for kind in kinds],
        "the best fixed length": [fixed(last, kind)[0] for kind in kinds],
    }
    panels[0].bar(
        kinds, [float(spread(last, kind).mean()) for kind in kinds], color=COLORS[0], width=0.6
    )
    for (label, losses), color, marker in zip(ends.items(), COLORS, MARKERS, strict=False):
        draw_at(panels[1], kinds, losses, label=label, color=color, marker=marker)
    panels[0].set(
        ylabel="spread of the log of the best length",
        title="The best length of a step varies with random spectra",
    )
    panels[1].set(
        ylabel=f"loss after {int(last.step)} steps, over the first",
        title="A fixed length ends lower, but for the gradient",
    )
    panels[1].legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    return drawn
