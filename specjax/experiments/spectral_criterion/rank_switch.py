"""The rule (1.5) followed: spectral steps of the blocks where nr(G) ≥ st(A), judged; `rank_switch_runs` has the runs."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import STANDARD_ERRORS, mean_of
from specjax.experiments.plots import COLORS, MARKERS
from specjax.experiments.spectral_criterion.rank_switch_runs import (
    LABELS,
    LARGEST_GAIN,
    NETWORKS,
    REGIMES,
    TARGETS,
    THRESHOLDS,
    WAYS,
    Config,
    Outcome,
    dataset_of,
    lead,
    methods_of,
    outcome_of,
    rates_by,
    rates_of,
    regimes_of,
    run,
    sooner,
    with_rates,
)
from specjax.experiments.verdicts import bound_check, lead_check

PAPER = "spectral-criterion"
RULE, OURS = f"{PAPER}, (1.5)", f"{PAPER}, (1.5) [ours]"
LEAST, CLEAR = 1.01, 1.2
"""Ahead is by more than the first factor of the loss, which equal runs are not, clearly ahead by more than the second."""
RARER = 0.05
"""The rule takes both steps where neither has a smaller share."""


def checks(config: Config, data: Data) -> list[Check]:
    """Whether the rule is ahead of always Euclidean and always spectral steps, with one rate and with own rates, and who keeps up."""
    found = []
    for regime in config.networks:
        for way in WAYS:
            found += [
                _ahead(data, regime, way, "rule", "spectral", CLEAR),
                _keeps_up(data, regime, way),
            ]
        found.append(_ahead(data, regime, "shared", "spectral", "euclidean"))
    for way in WAYS:
        found.append(_ahead(data, "features", way, "rule", "euclidean"))
    found += [
        _ahead(data, "features", "shared", "rule", "spectral"),
        _ahead(data, "features", "own", "rule", "spectral", CLEAR),
        _keeps_up(data, "features", "own"),
        _ahead(data, "control", "shared", "rule", "spectral"),
    ]
    return [*found, *_choice_checks(data), _control_check(data)]


def _where(regime: str, way: str) -> str:
    return f"{REGIMES[regime]}, {WAYS[way]}"


def _ahead(data: Data, regime: str, way: str, method: str, other: str, factor: float = LEAST) -> Check:
    found = lead(outcome_of(data, regime), regime, way, method, other)
    return lead_check(
        f"{regime}-{way}-{method}-ahead-of-{other}",
        RULE if method == "rule" else OURS,
        f"{_where(regime, way)}: {LABELS[method]} ends {'clearly ' if factor == CLEAR else ''}ahead of {LABELS[other]}: log10 of the "
        f"losses, each draw capped at a factor 2, against a factor {factor:g}.",
        lead=found.mean,
        stderr=found.stderr,
        least=float(np.log10(factor)),
    )


def _keeps_up(data: Data, regime: str, way: str) -> Check:
    return bound_check(
        f"{regime}-{way}-spectral-keeps-up",
        OURS,
        f"{_where(regime, way)}: {LABELS['spectral']} ends no more than 20% of the loss behind {LABELS['rule']}, by the upper end of the "
        "same mean.",
        smallest_margin=float(np.log10(CLEAR)) - lead(outcome_of(data, regime), regime, way, "rule", "spectral").high,
    )


def _choice_checks(data: Data) -> list[Check]:
    features, control = (_share(data, regime, "rule")[0] for regime in ("features", "control"))
    rarer = np.minimum(features, 1 - features)
    return [
        bound_check(
            "features-rule-takes-both",
            f"{PAPER}, Figure 11",
            "On SwiGLU features, at the shared rate, the rule takes both steps in the course of a run: share of the rarer one, mean less "
            f"4 standard errors, above {RARER:.0%}.",
            smallest_margin=mean_of(rarer).low - RARER,
        ),
        bound_check(
            "control-rule-is-euclidean",
            RULE,
            "In the control, where nr(G) is below st(A) from the start, fewer than 1% of the steps of the rule are spectral in any draw.",
            smallest_margin=0.01 - float(control.max()),
        ),
    ]


def _control_check(data: Data) -> Check:
    ahead = sooner(outcome_of(data, "control"), "control", "own", "rule", "spectral")
    return lead_check(
        "control-own-rule-sooner-than-spectral",
        RULE,
        f"{_where('control', 'own')}: {LABELS['rule']} reaches {TARGETS['control']:g} of the first loss sooner than {LABELS['spectral']}: "
        "mean log2 of the iterations.",
        lead=ahead.mean,
        stderr=ahead.stderr,
        least=float(np.log2(LEAST)),
    )


def _share(data: Data, regime: str, method: str) -> np.ndarray:
    """The share of spectral steps among those before a run stops, (rates, draws), the mean over blocks."""
    share = dataset_of(data, regime)["share"].values[:, :, methods_of(regime).index(method)]
    return np.asarray(share.mean(axis=-1))


def tables(config: Config, data: Data) -> list[Table]:
    """What every method gains in every regime, and the leads of the rule."""
    gains, leads = [], []
    for regime in regimes_of(config):
        name, outcome, rates = REGIMES[regime], outcome_of(data, regime), np.asarray(rates_of(config, regime))
        for i, method in enumerate(methods_of(regime)):
            cells = []
            for way in WAYS:
                used = rates_by(way, outcome)
                gain, reached, diverged = (with_rates(values, used)[i] for values in outcome)
                ran = ", ".join(f"{rate:g}" for rate in np.unique(rates[used[i]]))
                mean, stderr = mean_of(gain)
                cells += [
                    ran,
                    f"{mean:.2f} ± {stderr:.2f}",
                    f"{np.median(reached):.0f}",
                    f"{int(diverged.sum())}",
                ]
            gains.append((name, LABELS[method], f"{_share(data, regime, method)[0].mean():.2f}", *cells))
            if method != "rule":
                both = [lead(outcome, regime, way, "rule", method) for way in WAYS]
                leads.append(
                    (name, LABELS[method], *(f"{one.mean:+.3f} ({one.low:+.3f} to {one.high:+.3f})" for one in both))
                )
    ranks = []
    for regime in regimes_of(config):
        runs = dataset_of(data, regime).isel(rate=0)
        ratio = runs["nuclear_rank"].values[:, 0, 0] / runs["stable_rank"].values[:, 0, 0]
        ranks.append((REGIMES[regime], ", ".join(f"{block:.2f}" for block in np.median(ratio, axis=0))))
    of_way = ("rate", "log10 of L_0/L_T", "iteration of the target", "diverged")
    return [
        Table(
            f"Gains of {config.seeds} draws, mean ± standard error, at the shared rate and then at own rates; spectral: the share of such "
            "steps at the shared rate",
            ("regime", "method", "spectral", *of_way, *of_way),
            tuple(gains),
        ),
        Table(
            "Lead of the rule nr ≥ st, log10 of the losses, capped at a factor 2 in each draw: mean and 4 standard errors",
            ("regime", "over", *WAYS.values()),
            tuple(leads),
        ),
        Table("nr(G_ℓ)/st(A_(ℓ-1)) at the start, median over draws, by block", ("regime", "ratio"), tuple(ranks)),
    ]


def plot(config: Config, data: Data) -> Figure:
    """Top: median losses at the shared rate. Bottom: the lead of the rule over every other method."""
    regimes = regimes_of(config)
    figure = Figure(figsize=(1 + 3.5 * len(regimes), 7.5), layout="constrained")
    axes = figure.subplots(2, len(regimes))
    for column, regime in enumerate(regimes):
        _draw_losses(axes[0, column], data, regime)
        axes[0, column].set_title(f"{REGIMES[regime]}, rate {rates_of(config, regime)[0]:g}", fontsize="medium")
        _draw_leads(axes[1, column], outcome_of(data, regime), regime)
    axes[0, 0].set_ylabel("loss over the first one, median")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncol=len(THRESHOLDS), fontsize="small"
    )
    axes[1, 0].legend(fontsize="small", loc="upper left")
    return figure


def _draw_losses(axes: Axes, data: Data, regime: str) -> None:
    loss = dataset_of(data, regime)["loss"].values[0]
    middle = np.median(loss / loss[..., :1], axis=0)
    for method, color, marker in zip(THRESHOLDS, COLORS, MARKERS, strict=False):
        if method in methods_of(regime):
            line = np.maximum(middle[methods_of(regime).index(method)], 10**-LARGEST_GAIN)
            every = len(line) // 5
            start = list(THRESHOLDS).index(method) * every // len(THRESHOLDS)
            axes.plot(
                line,
                marker=marker,
                markevery=(start, every),
                markersize=4,
                color=color,
                linewidth=1.3,
                label=LABELS[method],
            )
    if regime not in NETWORKS:
        axes.set_yscale("log")
    axes.set_xlabel("iteration")


def _draw_leads(axes: Axes, outcome: Outcome, regime: str) -> None:
    others = [method for method in methods_of(regime) if method != "rule"]
    for (way, label), color, marker, shift in zip(WAYS.items(), COLORS, MARKERS, (0.12, -0.12), strict=False):
        leads = [lead(outcome, regime, way, "rule", other) for other in others]
        axes.errorbar(
            [one.mean for one in leads], np.arange(len(others)) + shift, xerr=[STANDARD_ERRORS * one.stderr for one in leads],
            fmt=marker, color=color, capsize=3, markersize=5, label=label,
        )  # fmt: skip
    axes.axvline(0, color="0.6", linewidth=0.8)
    axes.set_yticks(range(len(others)), [LABELS[other] for other in others], fontsize="small")
    axes.set_ylim(len(others) - 0.5, -1.3)
    axes.set_xlabel("lead of nr ≥ st in log10, ± 4 SE", fontsize="small")


EXPERIMENT = Experiment(
    name="rank-switch",
    paper=PAPER,
    source=f"{PAPER}, (1.5) and Section 1.2.1",
    title="Does it pay to take spectral steps where nr(G) ≥ st(A)?",
    summary=(
        "On a linear map the rule nr(G) ≥ st(A) does what it promises: with the step sizes of its guarantee it beats both always Euclidean "
        "and always spectral steps on SwiGLU features, where the better one changes on the way, and is the Euclidean method where that is "
        "right. With a tuned rate spectral steps alone do as well on the features. In the networks it does not pay: there spectral steps "
        "help where nr(G) is below st(A) as well, and following the rule gives that up."
    ),
    scales={
        "smoke": Config(networks=(), features=48, linear_rates=(0.5, 0.9), seeds=4),
        "quick": Config(),
        "paper": Config(
            inputs=48,
            width=192,
            samples=384,
            gated_width=96,
            gated_samples=1024,
            features=100,
            iterations=160,
            linear_iterations=100,
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset(
        {
            *(f"{regime}-{way}-rule-ahead-of-spectral" for regime in NETWORKS for way in WAYS),
            "features-own-rule-ahead-of-spectral",
        }
    ),
)
