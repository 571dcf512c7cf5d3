"""Does Muon learn in-context recall where AdamW and SGD do not? Accuracy against dimension, batch and exponents (Figures 7, 8 and 9)."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.experiments.associative_memory import recall_cells as cells
from specjax.experiments.associative_memory.recall_runs import Config, run
from specjax.experiments.associative_memory.recall_training import OPTIMIZERS
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import STANDARD_ERRORS, Mean, mean_of
from specjax.experiments.plots import COLORS, MARKERS, draw_mean
from specjax.experiments.verdicts import bound_check, lead_check, mean_check

PAPER = "associative-memory"
OOD, INSIDE, RECALL = "out_of_distribution", "in_distribution", "memory_recall"
QUANTITIES = {INSIDE: "ID accuracy", OOD: "OOD accuracy", RECALL: "memory recall R(W_V)"}
CLEAR = 0.1
"""The smallest lead that counts; accuracies that differ by less are alike."""
SATURATED = 0.9
"""The accuracy from which on the task is learnt, and a batch is large enough."""
LEAST_ITERATIONS = 64
"""Nothing is learnt in fewer, and nothing judged but the task."""
WITH = {"attention": "", "perceptrons": "with-perceptrons-"}


def checks(config: Config, data: Data) -> list[Check]:
    """That the task can be solved and is learnt; who is ahead, at every dimension and as exponents grow; batches; memory."""
    results = [
        bound_check(
            "task-is-solvable",
            f"{PAPER}, Appendix D.2",
            "Copying what followed the trigger before is right in every sequence, whatever the exponents: accuracy less 1.",
            smallest_margin=float(data["task"]["oracle"].min()) - 1,
        )
    ]
    for architecture in config.architectures if config.iterations[-1] >= LEAST_ITERATIONS else ():
        results += _checks(config, data[architecture], WITH[architecture])
    return results


def _checks(config: Config, runs: xr.Dataset, prefix: str) -> list[Check]:
    last = {q: cells.reported(runs, q).isel(iteration=-1) for q in (OOD, RECALL)}
    accuracy, memory = last[OOD], last[RECALL]
    uniform, skewed = config.setting(), config.setting(output_exponent=config.output_exponents[1])
    at = f"after {config.iterations[-1]} iterations, batch {config.batches[-1]}"
    learnt = accuracy.isel(d=-1, setting=uniform).sel(optimizer="muon")
    results = [
        bound_check(
            f"{prefix}muon-learns",
            f"{PAPER}, Figure 7",
            f"Muon learns the task {at}: mean OOD accuracy less 4 standard errors and {SATURATED:g}, d = {config.dims[-1]}, "
            "uniform tokens.",
            smallest_margin=mean_of(cells.lasting(learnt)).low - SATURATED,
        )
    ]
    shown = f"{at}, α_o = {config.output_exponents[1]:g}"
    results += [
        _lead_check(
            f"{prefix}muon-above-{other}",
            "Figure 7",
            f"Muon's OOD accuracy is above {OPTIMIZERS[other]}'s at d = {config.dims[-1]}, {shown}.",
            _lead(accuracy, other).isel(setting=skewed, d=-1),
        )
        for other in ("adamw", "sgd")
    ]
    mean, stderr = mean_of(cells.lasting(_lead(accuracy, "adamw").isel(setting=uniform).mean("d", skipna=False)))
    results.append(
        mean_check(
            f"{prefix}alike-when-uniform",
            f"{PAPER}, Figure 9",
            f"With uniform tokens Muon and AdamW have the same OOD accuracy, {at}, mean over d.",
            predicted=0.0,
            mean=mean,
            stderr=stderr,
            resolution=CLEAR,
        )
    )
    largest = config.output_exponents[-1]
    most_skewed, least = accuracy.isel(setting=config.setting(output_exponent=largest), d=-1), 1 / config.items
    kept = most_skewed / accuracy.isel(setting=uniform, d=-1).clip(min=least)
    results.append(
        _lead_check(
            f"{prefix}muon-robust-outputs",
            "Figure 9a",
            f"From α_o = 0 to {largest:g} Muon keeps a larger share of its OOD accuracy than AdamW, {at}, d = {config.dims[-1]}.",
            _lead(kept, "adamw"),
        )
    )
    if len(config.batches) > 1:
        results.append(_saturation_check(config, accuracy, prefix))
    if not prefix:
        results.append(
            _lead_check(
                "muon-memory-recall",
                "Figure 8b",
                f"Muon's R(W_V) is above AdamW's, {shown}, mean over d.",
                _lead(memory, "adamw").isel(setting=skewed).mean("d", skipna=False),
            )
        )
    return results


def _saturation_check(config: Config, accuracy: xr.DataArray, prefix: str) -> Check:
    """By the smallest batch of an accuracy of `SATURATED`, twice the largest where there is none."""
    order = [config.setting(output_exponent=config.output_exponents[1], batch=batch) for batch in config.batches]
    by_batch = accuracy.isel(d=-1, setting=order)
    enough = by_batch.values >= SATURATED
    first = np.where(enough.any(0), enough.argmax(0), len(order))
    sizes = np.log2([*config.batches, 2 * config.batches[-1]])[first]
    found = xr.where(by_batch.isnull().any("setting"), np.nan, by_batch.isel(setting=0, drop=True).copy(data=sizes))
    return _lead_check(
        f"{prefix}muon-saturates-earlier",
        "Figure 8a",
        f"Muon reaches an OOD accuracy of {SATURATED:g} at smaller batches than AdamW, d = {config.dims[-1]}: log2 of the quotient.",
        found.sel(optimizer="adamw") - found.sel(optimizer="muon"),
        least=0.5,
    )


def _lead_check(name: str, figure: str, statement: str, lead: xr.DataArray, least: float = CLEAR) -> Check:
    mean, stderr = mean_of(cells.lasting(lead))
    return lead_check(name, f"{PAPER}, {figure}", statement, lead=mean, stderr=stderr, least=least)


def _lead(values: xr.DataArray, other: str) -> xr.DataArray:
    """Muon's less another's, by seed: both have the same weights at the start and the same batches."""
    return values.sel(optimizer="muon", drop=True) - values.sel(optimizer=other, drop=True)


def tables(config: Config, data: Data) -> list[Table]:
    """Accuracies of every cell, what Muon is ahead, and the rates that were chosen."""
    return [table for name in config.architectures for table in _tables(config, data[name], name)]


def _tables(config: Config, runs: xr.Dataset, architecture: str) -> list[Table]:
    accuracy, memory = cells.reported(runs, OOD), cells.reported(runs, RECALL)
    best, diverged = cells.chosen_by_all(runs), runs["diverged"].isel(iteration=-1).sum(("seed", "rate"))
    last = {"iteration": len(config.iterations) - 1}
    results, leads, rates = [], [], []
    for i, (trigger, output, batch) in enumerate(config.settings):
        where = f"{trigger:g}", f"{output:g}", str(batch)
        for j, d in enumerate(config.dims):
            at = {"setting": i, "d": j}
            cell = (*where, str(d))
            for k, iteration in enumerate(config.iterations):
                here = accuracy.isel(at | {"iteration": k})
                leads.append((*cell, str(iteration), *(_interval(_lead(here, other)) for other in ("adamw", "sgd"))))
                results.append(
                    (
                        *cell,
                        str(iteration),
                        *(_text(here.sel(optimizer=name)) for name in OPTIMIZERS),
                        *(_text(memory.isel(at | {"iteration": k}).sel(optimizer=name)) for name in OPTIMIZERS),
                    )
                )
            chosen = [int(best.isel(at | last).sel(optimizer=name)) for name in OPTIMIZERS]
            lost = [int(diverged.isel(at).sel(optimizer=name)) for name in OPTIMIZERS]
            rates.append((*cell, *(f"{of[c]:g}" for of, c in zip(config.rates, chosen, strict=True)), *map(str, lost)))
    head = ("α_t", "α_o", "batch", "d")
    names = tuple(OPTIMIZERS.values())
    return [
        Table(
            f"OOD accuracy and R(W_V), {architecture}, N = {config.items}, {config.seeds} seeds",
            (*head, "iteration", *names, *(f"R, {name}" for name in names)),
            tuple(results),
        ),
        Table(
            f"Muon's OOD accuracy less another's ± 4 standard errors, {architecture}",
            (*head, "iteration", "AdamW's", "SGD's"),
            tuple(leads),
        ),
        Table(
            f"Rates that all seeds choose, {architecture}; chosen and shown on the same seeds, accuracies would be higher by "
            f"{cells.optimism(runs):.3f} on average",
            (*head, *names, *(f"diverged, {name}" for name in names)),
            tuple(rates),
        ),
    ]


def _text(values: xr.DataArray) -> str:
    mean, stderr = mean_of(cells.lasting(values))
    return f"{mean:.2f} ± {stderr:.2f}"


def _interval(values: xr.DataArray) -> str:
    mean, stderr = mean_of(cells.lasting(values))
    return f"{mean:+.2f} ± {STANDARD_ERRORS * stderr:.2f}"


def plot(config: Config, data: Data) -> Figure:
    """A row for Figure 7 and R(W_V), one for each half of Figure 9, and one for Figure 8 where batches are swept."""
    count = 3 + (len(config.batches) > 1)
    figure = Figure(figsize=(11, 3.1 * count * len(config.architectures)), layout="constrained")
    grid = figure.subplots(count * len(config.architectures), 3, sharey=True, squeeze=False)
    for i, architecture in enumerate(config.architectures):
        rows = grid[i * count : (i + 1) * count]
        _draw(config, data[architecture], "" if architecture == "attention" else ", with perceptrons", rows)
    return figure


def _draw(config: Config, runs: xr.Dataset, suffix: str, rows: np.ndarray) -> None:
    found = {quantity: cells.reported(runs, quantity).isel(iteration=-1) for quantity in QUANTITIES}
    shown = config.output_exponents[1]
    skewed = {"setting": config.setting(output_exponent=shown)}
    for axes, (quantity, label) in zip(rows[0], QUANTITIES.items(), strict=True):
        for name, color, marker in zip(OPTIMIZERS, COLORS, MARKERS, strict=False):
            curve = found[quantity].isel(skewed).sel(optimizer=name)
            _curve(axes, config.dims, curve, "d", OPTIMIZERS[name], color, marker)
        _finish(axes, config.dims, "dimension d", f"{label}, α_o = {shown:g}{suffix}")
    exponents = {
        "α_o": {alpha: config.setting(output_exponent=alpha) for alpha in config.output_exponents},
        "α_t": {alpha: config.setting(trigger_exponent=alpha) for alpha in config.trigger_exponents},
    }
    for row, (symbol, settings) in zip(rows[1:3], exponents.items(), strict=True):
        for axes, name in zip(row, OPTIMIZERS, strict=True):
            for (exponent, setting), color, marker in zip(settings.items(), COLORS, MARKERS, strict=False):
                curve = found[OOD].isel(setting=setting).sel(optimizer=name)
                _curve(axes, config.dims, curve, "d", f"{symbol} = {exponent:g}", color, marker)
            _finish(axes, config.dims, "dimension d", f"{OPTIMIZERS[name]}: OOD accuracy by {symbol}{suffix}")
    if len(config.batches) > 1:
        order = [config.setting(output_exponent=shown, batch=batch) for batch in config.batches]
        for axes, name in zip(rows[3], OPTIMIZERS, strict=True):
            for j, (d, color, marker) in enumerate(zip(config.dims, COLORS, MARKERS, strict=False)):
                curve = found[OOD].isel(d=j, setting=order).sel(optimizer=name)
                _curve(axes, config.batches, curve, "setting", f"d = {d}", color, marker)
            _finish(axes, config.batches, "batch", f"{OPTIMIZERS[name]}: OOD accuracy, α_o = {shown:g}{suffix}")
    for row in rows:
        row[0].set_ylabel(f"after {config.iterations[-1]} iterations")


def _curve(axes: Axes, x: tuple[int, ...], values: xr.DataArray, dim: str, label: str, color: str, marker: str) -> None:
    """Means with bands of two standard errors."""
    means = Mean(*np.array([mean_of(cells.lasting(values.isel({dim: i}))) for i in range(len(x))]).T)
    draw_mean(axes, x, means, color=color, marker=marker, markersize=5, linewidth=1.2, label=label)


def _finish(axes: Axes, x: tuple[int, ...], xlabel: str, title: str) -> None:
    axes.axhline(1, color="black", linestyle=":", linewidth=1, label="oracle")
    axes.set_xscale("log", base=2)
    axes.set_xticks(x, [str(one) for one in x])
    axes.minorticks_off()
    axes.set_ylim(-0.03, 1.08)
    axes.set_xlabel(xlabel)
    axes.set_title(title, fontsize="medium")
    axes.legend(fontsize="x-small")


EXPERIMENT = Experiment(
    name="recall-transformer",
    paper=PAPER,
    source=f"{PAPER}, Appendix D.2",
    title="In-context recall: two-layer transformers trained by Muon, AdamW and SGD",
    summary=(
        "Where outputs are skewed, Muon learns to recall any pair, while AdamW and SGD are right on their training distribution more "
        "often than not and on uniform sequences hardly at all, as the paper says. With uniform tokens Muon is ahead too, at sizes and "
        "iterations far below the paper's; skewed triggers cost all three little."
    ),
    scales={
        "smoke": Config(
            items=4,
            length=10,
            dims=(4, 8),
            batches=(4, 8),
            iterations=(2, 4),
            muon_rates=(0.01, 0.03),
            adamw_rates=(0.003, 0.01),
            sgd_rates=(0.03, 0.1),
            evaluation=16,
            seeds=4,
        ),
        "quick": Config(),
        "paper": Config(
            items=64,
            length=24,
            architectures=("attention", "perceptrons"),
            dims=(16, 32, 64, 128, 256),
            output_exponents=(0.0, 1.5, 2.0),
            trigger_exponents=(0.0, 1.5, 2.0),
            batches=(16, 32, 64, 128, 256),
            iterations=(128, 512, 1024),
            muon_rates=(0.001, 0.003, 0.01, 0.03, 0.1),
            adamw_rates=(0.0003, 0.001, 0.003, 0.01, 0.03),
            sgd_rates=(0.01, 0.03, 0.1, 0.3, 1.0),
            evaluation=512,
            seeds=8,
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"alike-when-uniform"}),
)
