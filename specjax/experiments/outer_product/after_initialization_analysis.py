"""What runs after initialization say: the step size of each optimizer, and its momentum at that step size, judged in other draws."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from specjax import sweep
from specjax.experiments.contract import Check, Table
from specjax.experiments.means import STANDARD_ERRORS, mean_of
from specjax.experiments.outer_product.after_initialization_training import NOISE, OPTIMIZERS
from specjax.experiments.plots import COLORS, MARKERS, draw_mean, label_short_range
from specjax.experiments.validation import check_sizes
from specjax.experiments.verdicts import bound_check, mean_check, vanishing_check

SOURCE = "outer-product, Appendix D (after initialization, left open)"
MEASURED = (*OPTIMIZERS, NOISE)
LABELS = {**OPTIMIZERS, NOISE: "Gaussian noise"}
AXES = {"ratio": "mean |off-diagonal| / mean diagonal", "error": "distance, √(1 - cos²)"}
REFUTED = frozenset(
    {f"{quantity}-{when}" for quantity in ("ratio", "distance") for when in ("initial", *OPTIMIZERS)}
    | {"distance-noise"}
)
"""The checks, without their prefix, of the conjectures that training leaves false."""
INDEPENDENT = -0.5
"""The exponent of the ratio in the number of columns for independent isotropic rows, |cos| of two of which is of the order 1/√n."""
LEAST_JUDGES = 10
"""Draws from which intervals are not rough."""


def labelled(data: xr.Dataset, records: Sequence[int], matrices: Sequence[str]) -> xr.Dataset:
    """The dataset of a sweep over `Run`s with names for the dimensions of its outputs."""
    names = {"loss_dim_0": "record", "ratio_dim_0": "record", "error_dim_0": "record", "loss_dim_1": "optimizer"}
    for quantity in ("ratio", "error"):
        names |= {f"{quantity}_dim_1": "momentum", f"{quantity}_dim_2": "matrix"}
    coordinates = {
        "record": list(records),
        "optimizer": list(OPTIMIZERS),
        "momentum": list(MEASURED),
        "matrix": list(matrices),
    }
    return data.rename(names).assign_coords(coordinates)


class Judged(NamedTuple):
    """Runs at the chosen step sizes, in the draws that did not choose them; arrays in the order of the widths."""

    widths: np.ndarray
    records: np.ndarray
    kinds: tuple[str, ...]
    factors: np.ndarray
    """The chosen factors of the step sizes, (width, 4)."""
    at_edge: np.ndarray
    """Whether that is the smallest or the largest of the grid, (width, 4)."""
    loss: np.ndarray
    """Log 10 of the held-out loss, (width, 4, draw, record)."""
    ratio: np.ndarray
    """Log 2 of the dominance ratio, (width, 5, draw, record, kind)."""
    error: np.ndarray
    """Log 2 of the distance of row normalization from the polar factor, as `ratio`."""


def judged(data: xr.Dataset, choosing: int) -> Judged:
    """Step sizes by the mean log loss of the first `choosing` draws at the end; matrices of one kind ("up 1", "up 2") are averaged."""
    losses = np.log10(data["loss"].transpose("width", "optimizer", "factor", "seed", "record").values)
    best = np.argmin(losses[:, :, :, :choosing, -1].mean(-1), axis=2)
    kinds = tuple(dict.fromkeys(_kind(name) for name in data["matrix"].values.tolist()))
    member = np.array([[_kind(name) == kind for name in data["matrix"].values.tolist()] for kind in kinds], float)
    logs = []
    for quantity in ("ratio", "error"):
        values = data[quantity].transpose("width", "momentum", "factor", "seed", "record", "matrix").values
        # The noise is the same at every step size.
        at = np.concatenate([best, np.zeros_like(best[:, :1])], axis=1)[:, :, None, None, None, None]
        chosen = np.take_along_axis(values, at, axis=2)[:, :, 0, choosing:]
        logs.append(np.log2(chosen @ (member / member.sum(1, keepdims=True)).T))
    loss = np.take_along_axis(losses, best[:, :, None, None, None], axis=2)[:, :, 0, choosing:]
    return Judged(
        np.asarray(data["width"].values, float),
        data["record"].values,
        kinds,
        data["factor"].values[best],
        (best == 0) | (best == data.sizes["factor"] - 1),
        loss,
        *logs,
    )


def _kind(name: str) -> str:
    return name.split(" block ")[0]


def power_law(runs: Judged, quantity: str, who: str, record: int, kind: str) -> sweep.PowerLawFit:
    """A quantity of one momentum at one record in one kind of matrix, as a power of the width."""
    logs = getattr(runs, quantity)[:, MEASURED.index(who), :, record, runs.kinds.index(kind)]
    coordinates = {"width": runs.widths}
    return sweep.fit_power_law(
        xr.DataArray(2**logs, coordinates, ("width", "seed"), name=f"{quantity} of {kind}"), "width"
    )


def exponents(runs: Judged, quantity: str, who: str, record: int) -> np.ndarray:
    """Of each draw, by least squares on logarithms at all widths: (draw, kind)."""
    logs = getattr(runs, quantity)[:, MEASURED.index(who), :, record]
    x = np.log2(runs.widths) - np.log2(runs.widths).mean()
    return np.asarray(np.tensordot(x, logs, axes=1) / np.sum(x**2))


def momentum_checks(prefix: str, where: str, runs: Judged, hidden: Sequence[str]) -> list[Check]:
    """The rate of the ratio, and whether the distance vanishes, at the first step and the last of each optimizer; then of noise.

    Statements about every kind of matrix are judged by the kind that speaks most against them.
    """
    last = runs.records[-1]
    moments = [("initial", "muon", 0, "at the first step")]
    moments += [(who, who, -1, f"after {last} steps of {label}") for who, label in OPTIMIZERS.items()]
    results = []
    for name, who, record, when in moments:
        found = mean_of(exponents(runs, "ratio", who, record), axis=0)
        worst = int(np.argmax(found.low))
        results.append(
            mean_check(
                f"{prefix}-ratio-{name}",
                SOURCE,
                f"{where}: {when} the off-diagonal of V Vᵀ falls against its diagonal as that of independent rows, as 1/√width, in every "
                f"matrix; the worst is “{runs.kinds[worst]}”.",
                predicted=INDEPENDENT,
                mean=found.mean[worst],
                stderr=found.stderr[worst],
                resolution=-INDEPENDENT / 2,
            )
        )
    for name, who, record, when in moments:
        statement = (
            f"{where}: {when} the polar factor of V becomes V with normalized rows in every matrix as the width grows"
        )
        results.append(vanishing(f"{prefix}-distance-{name}", statement, runs, "error", who, record, runs.kinds))
    noise = f"{where}, {', '.join(hidden)}: of Gaussian noise the"
    for quantity, name, words in (("ratio", "ratio", "off-diagonal vanishes"), ("error", "distance", "distance does")):
        statement = f"{noise} {words} as the width grows"
        results.append(vanishing(f"{prefix}-{name}-noise", statement, runs, quantity, NOISE, 0, hidden))
    return results


def vanishing(
    name: str, statement: str, runs: Judged, quantity: str, who: str, record: int, kinds: Sequence[str]
) -> Check:
    """Whether a quantity vanishes with the width in every kind of matrix, judged by the kind where it falls least."""
    means = exponents(runs, quantity, who, record).mean(axis=0)
    kind = max(kinds, key=lambda one: means[runs.kinds.index(one)])
    fit = power_law(runs, quantity, who, record, kind)
    return vanishing_check(name, SOURCE, f"{statement}; it falls least in “{kind}”.", fit=fit)


def distance_checks(prefix: str, where: str, runs: Judged, hidden: Sequence[str]) -> list[Check]:
    """What holds in place of a vanishing distance, in the `hidden` kinds of matrices, after the last step."""
    index, count = [runs.kinds.index(kind) for kind in hidden], len(OPTIMIZERS)
    beyond = runs.error[-1, :count, :, -1] - runs.error[-1, count, :, -1]
    slopes = np.stack([exponents(runs, "error", who, -1) for who in OPTIMIZERS])[..., index]
    where = f"{where}, {', '.join(hidden)}, after {runs.records[-1]} steps"
    return [
        _all_positive(
            f"{prefix}-farther-than-noise",
            f"{where} of any optimizer: the distance is larger than that of Gaussian noise",
            beyond[..., index],
        ),
        _all_positive(
            f"{prefix}-distance-grows",
            f"{where}: the exponent of the distance in the width, averaged over optimizers and matrices, is positive",
            slopes.mean(axis=(0, 2))[None, :, None],
        ),
    ]


def nearer_check(prefix: str, where: str, runs: Judged, hidden: Sequence[str]) -> Check:
    """Whether training brings the `hidden` kinds of matrices nearer to row normalization, at the largest width."""
    index = [runs.kinds.index(kind) for kind in hidden]
    falls = runs.error[-1, : len(OPTIMIZERS), :, 0] - runs.error[-1, : len(OPTIMIZERS), :, -1]
    statement = (
        f"{where}, {', '.join(hidden)}: averaged over optimizers and matrices, the distance is smaller after {runs.records[-1]} steps "
        "than at the first"
    )
    pooled = falls[..., index].mean(axis=(0, 2))
    return _all_positive(f"{prefix}-training-brings-nearer", statement, pooled[None, :, None])


def _all_positive(name: str, statement: str, values: np.ndarray) -> Check:
    """Whether `values` (optimizer, draw, kind) have positive means, all of them."""
    return bound_check(
        name,
        f"{SOURCE} [ours]",
        f"{statement} (mean less 4 standard errors, the smallest of all compared; differences are of log 2).",
        smallest_margin=float(mean_of(values, axis=1).low.min()),
    )


def loss_check(prefix: str, where: str, runs: Judged, *, same: float) -> Check:
    """Whether normalized rows train as well as Muon; losses up to a factor `same` apart count as the same."""
    rows, muon = (runs.loss[-1, list(OPTIMIZERS).index(who), :, -1] for who in ("rows", "muon"))
    mean, stderr = mean_of(rows - muon)
    return mean_check(
        f"{prefix}-rows-train-like-muon",
        SOURCE,
        f"{where}, width {runs.widths[-1]:g}: momentum with normalized rows ends with Muon's loss, each at its best step size (log 10 of "
        "the quotient).",
        predicted=0,
        mean=mean,
        stderr=stderr,
        resolution=float(np.log10(same)),
    )


def check_training(config: Any) -> None:
    """Raises ValueError unless the fields of a training configuration (seeds, records, rates, …) can be run and judged."""
    if not 1 <= config.choosing <= config.seeds - LEAST_JUDGES:
        raise ValueError(
            f"choosing must be at least 1 and leave {LEAST_JUDGES} of the seeds to judge, got {config.choosing} of {config.seeds}."
        )
    check_sizes("records", config.records, least=1, points=2)
    if config.records[0] != 1:
        raise ValueError(f"records must start at 1, where V is the first gradient, got {config.records}.")
    if config.batch < 1:
        raise ValueError(f"batch must be at least 1, got {config.batch}.")
    if not 0 <= config.momentum < 1:
        raise ValueError(f"momentum must be in [0, 1), got {config.momentum}.")
    if len(config.rates) != len(OPTIMIZERS) or not all(0 < rate < np.inf for rate in config.rates):
        raise ValueError(
            f"rates needs {len(OPTIMIZERS)} positive step sizes, of {', '.join(OPTIMIZERS)}, got {config.rates}."
        )
    if not all(0 < low < high < np.inf for low, high in pairwise((*config.factors, np.nextafter(np.inf, 0)))):
        raise ValueError(f"factors must be positive and ascending, got {config.factors}.")


def momentum_table(title: str, runs: Judged) -> Table:
    """Ratio and distance of every kind at the largest width, with their exponents in the width: first step, last step, noise."""
    body = []
    moments = [("step 1", "muon", 0), *((f"step {runs.records[-1]}, {LABELS[who]}", who, -1) for who in OPTIMIZERS)]
    for when, who, record in (*moments, (LABELS[NOISE], NOISE, 0)):
        for kind in runs.kinds:
            fits = (power_law(runs, quantity, who, record, kind) for quantity in ("ratio", "error"))
            body.append((kind, when, *(cell for fit in fits for cell in _with_exponent(fit))))
    body.sort(key=lambda row: runs.kinds.index(row[0]))
    header = ("matrix", "V", "ratio", "its exponent", "distance", "its exponent")
    return Table(f"{title}, width {runs.widths[-1]:g}", header, tuple(body))


def _with_exponent(fit: sweep.PowerLawFit) -> tuple[str, str]:
    value = f"{fit.means[-1]:.3f} ± {fit.stderrs[-1]:.3f}"
    return value, f"{fit.exponent:.2f} ± {STANDARD_ERRORS * fit.stderr:.2f}"


def loss_table(title: str, runs: Judged) -> Table:
    """Geometric means of the loss at the end, with the chosen factors of the step sizes, by width and optimizer."""
    body = []
    for i, width in enumerate(runs.widths):
        cells = []
        for o in range(len(OPTIMIZERS)):
            mean, stderr = mean_of(runs.loss[i, o, :, -1])
            edge = ", the end of the grid" if runs.at_edge[i, o] else ""
            cells.append(f"{10**mean:.3g} ± {10**mean * np.log(10) * stderr:.2g} (×{runs.factors[i, o]:g}{edge})")
        body.append((f"{width:g}", *cells))
    return Table(title, ("width", *OPTIMIZERS.values()), tuple(body))


def draw_against_width(axes: Axes, runs: Judged, quantity: str, kind: str) -> None:
    """The geometric mean of a quantity of one kind of matrix: at the first step, at the last of each optimizer, and of noise."""
    index, logs = runs.kinds.index(kind), getattr(runs, quantity)
    curves = [
        ("first step", 0, 0, "black", "x--"),
        *(
            (f"{LABELS[o]}, step {runs.records[-1]}", i, -1, COLORS[i], f"{MARKERS[i]}-")
            for i, o in enumerate(OPTIMIZERS)
        ),
        (LABELS[NOISE], len(OPTIMIZERS), 0, "gray", ":"),
    ]
    for label, who, record, color, style in curves:
        mean = mean_of(logs[:, who, :, record, index], axis=1)
        draw_mean(axes, runs.widths, mean, style, color=color, base=2, markersize=5, linewidth=1.2, label=label)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(runs.widths, [f"{width:g}" for width in runs.widths])
    axes.minorticks_off()
    label_short_range(axes)
    axes.set_xlabel("width")
    axes.set_ylabel(AXES[quantity])


def draw_kinds(axes: Axes, runs: Judged, quantity: str, who: str) -> None:
    """A quantity of every kind of matrix at the largest width against the step, under one optimizer."""
    logs = getattr(runs, quantity)[-1]
    for index, kind in enumerate(runs.kinds):
        color, style = COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)]
        mean = mean_of(logs[MEASURED.index(who), :, :, index], axis=0)
        style += "-" if index < len(COLORS) else "--"
        draw_mean(axes, runs.records, mean, style, color=color, base=2, markersize=5, label=kind)
    axes.set_xscale("log")
    axes.set_xticks(runs.records, [str(record) for record in runs.records])
    axes.minorticks_off()
    axes.set_xlabel("step")
    axes.set_ylabel(AXES[quantity])
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.3 * (high - low))  # room for the legend
    axes.legend(fontsize="x-small", ncols=4, loc="upper center")


def draw_loss(axes: Axes, runs: Judged) -> None:
    """The held-out loss at the largest width against the step, at the chosen step sizes."""
    for i, label in enumerate(OPTIMIZERS.values()):
        mean = mean_of(runs.loss[-1, i], axis=0)
        draw_mean(axes, runs.records, mean, f"{MARKERS[i]}-", color=COLORS[i], base=10, markersize=5, label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(runs.records, [str(record) for record in runs.records])
    axes.minorticks_off()
    label_short_range(axes)
    axes.set_xlabel("step")
    axes.set_ylabel(f"held-out loss, width {runs.widths[-1]:g}")
