"""Figures and tables of the singular values of momenta."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from specjax import fits, lab, sweep
from specjax.experiments.field import language
from specjax.experiments.field.language import BLOCKS, KINDS
from specjax.experiments.field.momentum_spectra import MEDIAN
from specjax.lab.drawing import COLORS, MARKERS, draw_sweep

PAPER = {"query": -0.46, "key": -0.38, "value": -0.58, "output": -0.66, "up": -0.96, "down": -0.52}
"""Exponents of the last block, from published summaries of the full text."""


def figure(widths: Sequence[int], data: xr.Dataset) -> Figure:
    """Plot medians by M with claimed slopes, and exponents by kind and block."""
    drawn = Figure(figsize=(10.5, 4.2), layout="constrained")
    over, by_kind = drawn.subplots(1, 2)
    last = data.isel(step=-1)
    of_blocks = {"noise": last["noise"].sel(block=1)}
    of_blocks |= {f"momentum, block {b}": last["quantile"].sel(block=b) for b in (1, BLOCKS)}
    sizes_of = [language.weights(width) for width in widths]
    for (label, values), color, marker in zip(of_blocks.items(), COLORS, MARKERS, strict=False):
        values = (
            np.exp(xr.ufuncs.log(values.sel(q=MEDIAN)).mean("kind"))
            .rename(width="M")
            .assign_coords(M=sizes_of)
        )
        draw_sweep(over, values, "M", label=label, color=color, marker=marker, line=True)
    start = float(values.isel(M=0).mean()), sizes_of[0]
    for power, style in ((-0.25, ":"), (-0.96, "--")):
        line = start[0] * (np.asarray(sizes_of) / start[1]) ** power
        over.plot(sizes_of, line, style, color="black", linewidth=1, label=f"M^{power:g}")
    over.set(
        xlabel="M, weights of the blocks",
        ylabel="median singular value / Frobenius norm",
        title=f"momenta and noise, after {int(last['step'])} steps",
    )
    found = fits.log_slopes(xr.ufuncs.log(last["quantile"].sel(q=MEDIAN)), "width") / 2
    for b, color, marker in zip(found["block"].values, COLORS, MARKERS, strict=False):
        mean, stderr = sweep.mean_and_stderr(found.sel(block=b))
        at = np.arange(len(KINDS)) + 0.12 * (b - 2.5)
        by_kind.errorbar(
            at, mean, 2 * stderr, fmt=marker, color=color, capsize=2, label=f"block {b}"
        )
    by_kind.plot(
        np.arange(len(KINDS)) + 0.32,
        [PAPER[kind] for kind in KINDS],
        "kx",
        markersize=8,
        label="paper, last block",
    )
    by_kind.axhline(-0.25, color="black", linestyle=":", linewidth=1, label="M^-1/4")
    by_kind.set(
        xticks=range(len(KINDS)),
        xticklabels=KINDS,
        ylabel="exponent in M of the median",
        ylim=(-1.6, 0),
    )
    by_kind.set_title("by kind of matrix and block")
    over.legend(fontsize="small", loc="lower left")
    by_kind.legend(fontsize="small", loc="lower center", ncols=3)
    return drawn


def tables(data: xr.Dataset) -> list[lab.Table]:
    """Tabulate exponents of the median, and errors at the largest width, by block."""
    last = data.isel(step=-1)
    slope = fits.log_slopes(xr.ufuncs.log(last["quantile"].sel(q=MEDIAN)), "width") / 2
    error, rows = last["error"].isel(width=-1).mean("kind"), []
    for title, values, dim in (
        ("exponent in M of the median", slope, "kind"),
        ("root mean square of p(s) - 1", error, "polar"),
    ):
        for label in values[dim].values:
            mean, stderr = sweep.mean_and_stderr(values.sel({dim: label}))
            cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(mean.values, stderr.values, strict=True))
            rows.append((f"{title}, {label}", *cells))
    header = ("", *(f"block {b}" for b in range(1, BLOCKS + 1)))
    return [
        lab.Table("Exponents, and orthogonality errors at the largest width", header, tuple(rows))
    ]
