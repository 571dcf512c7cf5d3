"""Table 2 in a small GPT, gated and non-gated perceptrons, and whether following nr(G) ≥ st(A) pays; `gpt_ablation_runs` has the runs.

Table 2 quotes a 160M-parameter model: of what Muon on all matrices gains over Adam, Muon on W_out alone recovers 62% with a non-gated
perceptron and 27% with a gated one. The paper's explanation is that gated features have a larger stable rank, so that the spectral step has
less to gain there. The intervals are four standard errors over seeds, paired: all arms of a seed have the same weights at the start
and the same batches, and both kinds of perceptrons the same batches.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import STANDARD_ERRORS, mean_of
from specjax.experiments.spectral_criterion.gpt_ablation_runs import ARMS, FIXED, Config, run
from specjax.experiments.verdicts import bound_check, lead_check
from specjax.lab.drawing import COLORS, MARKERS, draw_mean

PAPER = "spectral-criterion"
KINDS = {"plain": "non-gated", "gated": "gated"}
PERCEPTRONS = {"plain": "non-gated, ReLU²", "gated": "gated, SwiGLU"}
TABLE_2 = {"plain": (3.9242, 3.7023, 3.5654), "gated": (3.8837, 3.7843, 3.5125)}
"""Validation losses of Adam, Muon on W_out and Muon on all, as quoted in the paper."""
LEAST_LEAD = 0.02
"""The smallest difference of losses that counts, in nats per byte."""
STYLES = dict(zip(ARMS, ("-", "--", "-", "-.", ":"), strict=True))


class Estimate(NamedTuple):
    """A mean over seeds and what each seed adds to its error: standard errors of differences follow from those of the same seeds."""

    value: float
    residuals: Float[np.ndarray, " seeds"]

    @property
    def stderr(self) -> float:
        """The standard error."""
        return float(mean_of(self.residuals).stderr)

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {STANDARD_ERRORS * self.stderr:.3f}"


def estimate_of(values: Float[np.ndarray, " seeds"]) -> Estimate:
    """The mean over seeds."""
    return Estimate(float(values.mean()), values - values.mean())


def ratio_of(part: Float[np.ndarray, " seeds"], whole: Float[np.ndarray, " seeds"]) -> Estimate:
    """The ratio of two means, with residuals to first order: those of part - ratio · whole, over the mean of the whole."""
    ratio = part.mean() / whole.mean()
    return Estimate(float(ratio), (part - ratio * whole) / whole.mean())


def final_losses(report: xr.Dataset) -> dict[str, Float[np.ndarray, " seeds"]]:
    """The validation loss after the last step, by arm."""
    last = report["loss"].isel(step=-1)
    return {arm: last.sel(arm=arm).values.astype(float) for arm in ARMS}


def fraction(report: xr.Dataset) -> Estimate:
    """What Muon on W_out recovers of the gain of Muon on all over AdamW."""
    loss = final_losses(report)
    return ratio_of(loss["adamw"] - loss["out"], loss["adamw"] - loss["muon"])


def lead_of(report: xr.Dataset, arm: str, other: str) -> Estimate:
    """How much lower an arm's last loss is than another's."""
    loss = final_losses(report)
    return estimate_of(loss[other] - loss[arm])


def checks(config: Config, data: Data) -> list[Check]:
    """Learning, the gains of Table 2, its explanation, and the switch."""
    reports = {kind: data[f"{kind}_report"] for kind in KINDS}
    found = []
    for kind, label in KINDS.items():
        report = reports[kind]
        worst = max(float(loss.max()) for loss in final_losses(report).values())
        found.append(
            bound_check(
                f"{kind}-learns",
                f"{PAPER}, Section 1.2.2, Table 2 [ours]",
                "Every arm comes below the unigram entropy, the best that a model without context can do, in every seed "
                f"({label}).",
                smallest_margin=float(report["entropy"]) - worst,
            )
        )
    found.append(
        _lead_check(
            "gated-muon-gains",
            f"{PAPER}, Section 1.2.2, Table 2",
            "Muon on all matrices comes to a lower validation loss than AdamW (gated; the other is in the table).",
            lead_of(reports["gated"], "muon", "adamw"),
        )
    )
    for kind, label in KINDS.items():
        for other, name, words in (("muon", "spectral", "always spectral"), ("sgd", "euclidean", "always Euclidean")):
            found.append(
                _lead_check(
                    f"{kind}-switch-beats-{name}",
                    f"{PAPER}, (1.5) as advice [ours]",
                    f"Following nr(G) ≥ st(A) comes to a lower validation loss than {words}, each at its best rate ({label}).",
                    lead_of(reports[kind], "switch", other),
                )
            )
    return found


def _lead_check(name: str, source: str, statement: str, lead: Estimate) -> Check:
    return lead_check(name, source, statement, lead=lead.value, stderr=lead.stderr, least=LEAST_LEAD)


def tables(config: Config, data: Data) -> list[Table]:
    """Losses, fractions, rates, stable ranks and choices of the switch."""
    reports = {kind: data[f"{kind}_report"] for kind in KINDS}
    losses = [
        (label, *(str(estimate_of(final_losses(reports[kind])[arm])) for kind in KINDS)) for arm, label in ARMS.items()
    ]
    losses.append(("unigram entropy", *(f"{float(reports[kind]['entropy']):.3f}" for kind in KINDS)))
    fractions = [
        (
            PERCEPTRONS[kind],
            str(lead_of(report, "muon", "adamw")),
            str(lead_of(report, "out", "adamw")),
            str(fraction(report)),
            f"{(TABLE_2[kind][0] - TABLE_2[kind][1]) / (TABLE_2[kind][0] - TABLE_2[kind][2]):.3f}",
            str(lead_of(report, "switch", "muon")),
            str(lead_of(report, "switch", "sgd")),
        )
        for kind, report in reports.items()
    ]
    selection = [
        (f"{PERCEPTRONS[kind]}, {ARMS[arm]}", *_marked(data[f"{kind}_selection"], reports[kind], arm))
        for kind in KINDS
        for arm in FIXED
    ]
    return [
        Table(
            f"Validation loss after {config.steps} steps, nats per byte, {config.seeds} seeds, ± 4 standard errors",
            ("", *PERCEPTRONS.values()),
            tuple(losses),
        ),
        Table(
            "Table 2 and the switch: gains in nats per byte, ± 4 standard errors of paired seeds",
            ("", "Muon on all", "Muon on W_out", "fraction", "paper", "switch over Muon", "switch over SGD"),
            tuple(fractions),
        ),
        Table(
            f"Selection: mean loss of {config.selection_seeds} other seeds by factor on the base rate; [the chosen one]",
            ("", *(f"{factor:g}" for factor in config.factors)),
            tuple(selection),
        ),
        Table(
            "Stable ranks of the inputs, first → last record, and the share of spectral choices, first and last tenth of the steps",
            ("", *(f"{label} {what}" for label in KINDS.values() for what in ("st, AdamW", "st, Muon", "share"))),
            tuple(
                (name, *(cell for report in reports.values() for cell in _of_matrix(report, name)))
                for name in reports["gated"]["matrix"].values.tolist()
            ),
        ),
    ]


def _marked(selection: xr.Dataset, report: xr.Dataset, arm: str) -> list[str]:
    mean = selection["loss"].sel(arm=arm).mean("seed")
    cells = {factor: f"{float(mean.sel(factor=factor)):.3f}" for factor in mean["factor"].values.tolist()}
    chosen = float(report[arm])
    return [f"[{cell}]" if factor == chosen else cell for factor, cell in cells.items()]


def _of_matrix(report: xr.Dataset, name: str) -> tuple[str, str, str]:
    if name not in report["matrix"].values:
        return ("-",) * 3
    ranks = report["stable_rank"].sel(matrix=name).mean(dim=("seed", "block"))
    first, last = (ranks.isel(step=i) for i in (0, -1))
    moves = [f"{float(first.sel(arm=arm)):.1f} → {float(last.sel(arm=arm)):.1f}" for arm in ("adamw", "muon")]
    share = report["spectral"].sel(matrix=name).mean("seed").values
    tenth = max(len(share) // 10, 1)
    return moves[0], moves[1], f"{share[:tenth].mean():.2f}, {share[-tenth:].mean():.2f}"


def plot(config: Config, data: Data) -> Figure:
    """Top: losses of both kinds; the fractions of Table 2. Bottom: shares of spectral choices; stable ranks of the inputs of W_out."""
    figure = Figure(figsize=(14, 8), layout="constrained")
    axes = figure.subplots(2, 3)
    for place, kind in enumerate(KINDS):
        _draw_losses(axes[0, place], data[f"{kind}_report"], PERCEPTRONS[kind])
        _draw_shares(axes[1, place], data[f"{kind}_report"], config, PERCEPTRONS[kind])
    _draw_fractions(axes[0, 2], [fraction(data[f"{kind}_report"]) for kind in KINDS])
    _draw_ranks(axes[1, 2], data)
    return figure


def _draw_losses(axes: Axes, report: xr.Dataset, title: str) -> None:
    for color, (arm, label) in zip(COLORS, ARMS.items(), strict=False):
        values = report["loss"].sel(arm=arm).transpose("seed", "step").values
        final = f"{label}, {values[:, -1].mean():.3f}"
        mean = mean_of(values, axis=0)
        draw_mean(axes, report["step"].values, mean, STYLES[arm], color=color, linewidth=1.5, label=final)
    axes.axhline(float(report["entropy"]), color="gray", linewidth=1, label="unigram entropy")
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.set_ylabel("validation loss (nats per byte)")
    axes.set_ylim(top=axes.get_ylim()[1] + 0.6)  # for the legend
    axes.legend(fontsize="small", ncol=2)


def _draw_fractions(axes: Axes, fractions: Sequence[Estimate]) -> None:
    quoted = [(adam - out) / (adam - muon) for adam, out, muon in TABLE_2.values()]
    places = np.arange(len(KINDS))
    axes.errorbar(
        places - 0.1,
        [one.value for one in fractions],
        yerr=[STANDARD_ERRORS * one.stderr for one in fractions],
        fmt=MARKERS[0],
        capsize=4,
        color=COLORS[0],
        label="here, ± 4 standard errors",
    )
    axes.plot(
        places + 0.1, quoted, MARKERS[1], color=COLORS[1], mfc="white", label="quoted in Table 2, 160M parameters"
    )
    axes.axhline(0, color="gray", linewidth=0.5)
    axes.set_xlim(-0.5, len(KINDS) - 0.5)
    axes.set_xticks(places, list(KINDS.values()))
    axes.set_ylabel("gain of Muon on W_out / on all")
    axes.legend(fontsize="small")


def _draw_shares(axes: Axes, report: xr.Dataset, config: Config, title: str) -> None:
    every = config.steps // config.records
    for i, name in enumerate(report["matrix"].values.tolist()):
        share = report["spectral"].sel(matrix=name).transpose("seed", "update").values
        parts = share.reshape(len(share), -1, every).mean(axis=-1)
        color, style = COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)] + ("-" if i < len(COLORS) else "--")
        draw_mean(axes, report["step"].values, mean_of(parts, axis=0), style, color=color, linewidth=1.5, label=name)
    axes.set_ylim(-0.05, 1.05)
    axes.set_title(title)
    axes.set_xlabel("step")
    axes.set_ylabel("share of spectral steps by the switch")
    axes.legend(fontsize="small", ncol=2)


def _draw_ranks(axes: Axes, data: Data) -> None:
    for color, (kind, label) in zip(COLORS, KINDS.items(), strict=False):
        report = data[f"{kind}_report"]
        for arm, style in (("adamw", "-"), ("muon", "--")):
            ranks = report["stable_rank"].sel(arm=arm, matrix="down").mean("block").transpose("seed", "step").values
            mean, name = mean_of(ranks, axis=0), f"{label}, {ARMS[arm]}"
            draw_mean(axes, report["step"].values, mean, style, color=color, linewidth=1.5, label=name)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("step")
    axes.set_ylabel("stable rank of the inputs of W_out")
    axes.legend(fontsize="small")


EXPERIMENT = Experiment(
    name="gpt-ablation",
    paper=PAPER,
    source="spectral-criterion, Section 1.2.2, Table 2",
    title="Gated and non-gated perceptrons, and the switch, in a GPT",
    summary=(
        "A byte-level GPT with ReLU² and with SwiGLU perceptrons of as many weights, its hidden matrices moved by AdamW, by Muon on W_out "
        "alone, by Muon on all, by SGD, and by a switch between Muon's and SGD's steps at nr(G) ≥ st(A). Each arm has its own learning "
        "rate, chosen on other seeds. At this size the fraction of Muon's gain that W_out recovers, and the stable rank of its inputs, "
        "do not differ between the kinds by more than the seeds do. The switch nearly always takes the spectral step, is level with "
        "Muon and ahead of SGD."
    ),
    scales={
        "smoke": Config(
            width=16,
            blocks=1,
            heads=1,
            context=16,
            batch=4,
            steps=120,
            records=3,
            stretches=16,
            factors=(1.0,),
            selection_seeds=1,
            seeds=2,
        ),
        "quick": Config(),
        "paper": Config(
            width=256,
            blocks=4,
            heads=4,
            expansion=2,
            context=256,
            batch=32,
            steps=2000,
            records=20,
            stretches=128,
            selection_seeds=3,
            seeds=8,
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"plain-switch-beats-spectral", "gated-switch-beats-spectral"}),
)
