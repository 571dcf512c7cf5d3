"""Figures 1a and 2: how many items one population step of gradient descent, Muon and Newton's method recovers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sweep
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import NAMES, PAPER
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.plots import COLORS, MARKERS, draw_sweep
from specjax.experiments.validation import check_sizes
from specjax.experiments.verdicts import bound_check, exponent_check, mean_check
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import capacity

OPTIMIZERS = capacity.OPTIMIZERS
SOURCES = {"gd": "Theorem 3.3", "muon": "Theorem 3.1", "newton": "Theorem B.1"}
FORMULA_ACCURACY = {"gd": 0.25, "muon": 0.05, "newton": 0.05}
"""By how much the finite-size formula may miss a mean count; it is rough where ten items are stored."""
MORE_ITEMS = (1, 100, 10_000)
"""Multiples of N at which the table has the formula for Muon: rarer items add little to the gradient and many competitors."""
FAR = (2**20, 2**22)
"""Dimensions between which the formula's own exponent is taken, with N = d^(2α+2)."""


@dataclass(frozen=True)
class Config:
    """Items, dimensions and exponents; fits use the dimensions from `fit_from` on."""

    n: int = field(default=10_000, metadata={"help": "items N"})
    dims: tuple[int, ...] = field(default=(64, 96, 128, 192), metadata={"help": "dimensions d"})
    fit_from: int = field(default=64, metadata={"help": "smallest d that the fits use"})
    alphas: tuple[float, ...] = field(default=(1.25, 1.5, 2.0), metadata={"help": "exponents of the frequencies"})
    seeds: int = field(default=12, metadata={"help": "draws of the embeddings"})
    seed: int = field(default=0, metadata={"help": "root seed"})

    def __post_init__(self) -> None:
        sweeps.check_common(self.n, self.dims, self.seeds, self.seed)
        sweeps.check_alphas(self.alphas, points=2)
        check_sizes("dims from fit_from on", [d for d in self.dims if d >= self.fit_from], least=4, points=4)


def run(config: Config) -> Data:
    """Counts and prefixes for every α and optimizer, of the same items."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        u, v = sweeps.draw(key, config.n, d)

        def of_alpha(alpha: Array) -> dict[str, Array]:
            q = memory.power_law(config.n, alpha)
            return sweeps.capacities(u, v, sweeps.one_step(u, v, q, OPTIMIZERS))

        return jax.lax.map(of_alpha, jnp.asarray(config.alphas))

    axes: dict[str, Sequence[Any]] = {"alpha": config.alphas, "optimizer": OPTIMIZERS}
    data = sweeps.run(of_seed, config.dims, config.seeds, config.seed, {"count": axes, "prefix": axes})
    return {"capacity": data}


def _counts(config: Config, data: Data, optimizer: str, alpha: float) -> xr.DataArray:
    count = data["capacity"]["count"].sel(alpha=alpha, optimizer=optimizer, drop=True).astype(float)
    return count.sel(d=[d for d in config.dims if d >= config.fit_from])


def _freed_fit(config: Config, data: Data, optimizer: str, alpha: float) -> sweep.PowerLawFit:
    counts = sweeps.freed(_counts(config, data, optimizer, alpha), optimizer, config.n, alpha)
    return sweep.fit_power_law(counts, "d")


def _far_exponent(optimizer: str, alpha: float) -> float:
    """The formula's local exponent far out, where N is as large as Theorem 3.1 asks."""
    low, high = (sweeps.expected(optimizer, d, int(float(d) ** (2 * alpha + 2)), alpha) for d in FAR)
    return float(np.log(high / low) / np.log(FAR[1] / FAR[0]))


def checks(config: Config, data: Data) -> list[Check]:
    """Per optimizer and α the exponent, then c1 + c2/α, the formula far out, and the order of the three."""
    results = []
    for optimizer in OPTIMIZERS:
        name, source = NAMES[optimizer], f"{PAPER}, {SOURCES[optimizer]} and Figure 2"
        fits = [_freed_fit(config, data, optimizer, alpha) for alpha in config.alphas]
        for alpha, fit in zip(config.alphas, fits, strict=True):
            results.append(_exponent_check(config, optimizer, alpha, source, fit))
        if optimizer != "gd":
            # Counts of ten or twenty items do not tell c1 from c2; the table has them.
            results += _inverse_alpha_checks(optimizer, source, config, fits)
        results.append(_formula_check(config, data, optimizer))
        far = max(
            abs(_far_exponent(optimizer, alpha) - capacity.one_step_exponent(optimizer, alpha)) * 4 * alpha
            for alpha in config.alphas
        )
        results.append(
            bound_check(
                f"{optimizer}-formula-exponent",
                f"{PAPER}, {SOURCES[optimizer]}",
                f"The finite-size formula for {name} has the theorem's exponent far out: between d = 2^20 and 2^22, N = d^(2α+2), it is "
                "within 1/(4α), half the distance to the next candidate.",
                smallest_margin=1 - far,
            )
        )
    results += _order_checks(config, data)
    return results


def _exponent_check(config: Config, optimizer: str, alpha: float, source: str, fit: sweep.PowerLawFit) -> Check:
    """The exponent of one optimizer at one α; what the formula leaves out is bounded by the shift without the smallest d."""
    exponent = capacity.one_step_exponent(optimizer, alpha)
    name = f"{optimizer}-exponent-alpha-{_written(alpha)}"
    # Half the distance to the other candidate: d itself for Muon and Newton, and their own exponent for gradient descent.
    resolution = 0.5 if optimizer == "gd" else 1 / (4 * alpha)
    logs = np.log(fit.widths), np.log(fit.means)
    whole, rest = (float(np.polyfit(logs[0][k:], logs[1][k:], 1)[0]) for k in (0, 1))
    half_width = 4 * fit.stderr + abs(rest - whole)
    interval = fit.exponent - half_width, fit.exponent + half_width
    check = exponent_check(
        name,
        source,
        f"One step of {NAMES[optimizer]} at α = {alpha:g} recovers d^{exponent:.3g} items, up to what finite d and N make of it: counts "
        f"over the formula's finite-size factor, d from {config.fit_from} to {config.dims[-1]}.",
        predicted=exponent,
        fit=sweep.AsymptoticExponent(fit.exponent, fit.stderr, rest - whole, interval),
        resolution=resolution,
    )
    rule = (
        "confirmed if the interval of the fitted exponent (4 standard errors and the shift of an unweighted fit when the smallest d is "
        f"dropped) contains the prediction and its half-width is at most {resolution:.3g}, half the distance to the other candidate; "
        "refuted if it lies outside"
    )
    return replace(check, rule=rule)


def _formula_check(config: Config, data: Data, optimizer: str) -> Check:
    """What the division by the formula's finite-size factor rests on."""
    misses = []
    for alpha in config.alphas:
        mean, stderr = sweep.mean_and_stderr(_counts(config, data, optimizer, alpha))
        formula = np.array([sweeps.expected(optimizer, int(d), config.n, alpha) for d in mean["d"].values])
        misses.append(float(((abs(mean - formula) - 4 * stderr) / formula).max()))
    return bound_check(
        f"{optimizer}-formula-counts",
        f"{PAPER}, {SOURCES[optimizer]}",
        f"From d = {config.fit_from} on the finite-size formula for {NAMES[optimizer]}, which has no fitted number, is within "
        f"{FORMULA_ACCURACY[optimizer]:.0%} of the mean count, 4 standard errors aside, at every α.",
        smallest_margin=FORMULA_ACCURACY[optimizer] - max(misses),
    )


def _inverse_alpha_checks(optimizer: str, source: str, config: Config, fits: list[sweep.PowerLawFit]) -> list[Check]:
    best, (c1_stderr, c2_stderr) = _inverse_alpha(config, fits)
    return [
        mean_check(
            f"{optimizer}-{name}",
            source,
            f"The exponents of {NAMES[optimizer]} are c1 + c2/α with {name} = {value:g}.",
            predicted=value,
            mean=mean,
            stderr=stderr,
            resolution=resolution,
        )
        for name, value, mean, stderr, resolution in (
            ("c1", 1.0, best.c1, c1_stderr, 0.5),
            ("c2", 0.5, best.c2, c2_stderr, 0.5),
        )
    ]


def _inverse_alpha(
    config: Config, fits: list[sweep.PowerLawFit]
) -> tuple[capacity.InverseAlphaFit, tuple[float, float]]:
    """The fit, and standard errors from resamples of the seeds, which the exponents of all α share."""
    stderrs = [fit.stderr for fit in fits]
    best = capacity.inverse_alpha_fit(config.alphas, [fit.exponent for fit in fits], stderrs)
    resampled = np.stack([fit.replicates.exponent for fit in fits], axis=1)
    again = [capacity.inverse_alpha_fit(config.alphas, row, stderrs) for row in resampled.tolist()]
    return best, (float(np.std([f.c1 for f in again], ddof=1)), float(np.std([f.c2 for f in again], ddof=1)))


def _order_checks(config: Config, data: Data) -> list[Check]:
    largest = data["capacity"]["count"].sel(d=config.dims[-1]).mean("seed")
    ratio = largest.sel(optimizer="muon") / largest.sel(optimizer="newton")
    return [
        bound_check(
            "muon-matches-newton",
            f"{PAPER}, Theorem B.1",
            f"At d = {config.dims[-1]} Muon recovers between half and twice as many items as Newton, at every α.",
            smallest_margin=float(np.log(2) - abs(sweeps.log(ratio)).max()),
        ),
        bound_check(
            "muon-above-gd",
            f"{PAPER}, Section 3",
            f"At d = {config.dims[-1]} Muon recovers more than twice as many items as gradient descent, at every α.",
            smallest_margin=float((largest.sel(optimizer="muon") / largest.sel(optimizer="gd")).min() - 2),
        ),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Counts beside the formula, with local exponents; straight fits beside those freed of finite size; c1 and c2."""
    return [
        _counts_table(config, data),
        _exponents_table(config, data),
        _constants_table(config, data),
        _items_table(config),
    ]


def _counts_table(config: Config, data: Data) -> Table:
    rows = []
    for optimizer in OPTIMIZERS:
        for alpha in config.alphas:
            selected = data["capacity"].sel(alpha=alpha, optimizer=optimizer)
            local = sweep.fit_power_law(selected["count"].drop_vars(["alpha", "optimizer"]).astype(float), "d")
            formula = [sweeps.expected(optimizer, d, config.n, alpha) for d in config.dims]
            share = (selected["prefix"].mean("seed") / selected["count"].mean("seed")).values
            steps = np.diff(np.log(formula)) / np.diff(np.log(config.dims))
            for k, d in enumerate(config.dims):
                measured = (
                    f"{local.local_exponents[k - 1]:.2f} ± {local.local_stderrs[k - 1]:.2f}" if k else "",
                    f"{steps[k - 1]:.2f}" if k else "",
                )
                count = f"{local.means[k]:.1f} ± {local.stderrs[k]:.1f}"
                rows.append(
                    (NAMES[optimizer], f"{alpha:g}", str(d), count, f"{formula[k]:.1f}", f"{share[k]:.2f}", *measured)
                )
    header = ("", "α", "d", "count", "formula", "prefix / count", "local exponent", "formula's")
    return Table(f"Items recovered, N = {config.n}", header, tuple(rows))


def _exponents_table(config: Config, data: Data) -> Table:
    rows = []
    for optimizer in OPTIMIZERS:
        for alpha in config.alphas:
            straight = _with_interval(sweep.fit_power_law(_counts(config, data, optimizer, alpha), "d"))
            freed = _with_interval(_freed_fit(config, data, optimizer, alpha))
            exponent = capacity.one_step_exponent(optimizer, alpha)
            rows.append((NAMES[optimizer], f"{alpha:g}", f"{exponent:.3f}", straight, freed))
    return Table(
        f"Exponents, d from {config.fit_from} to {config.dims[-1]}, with 95 % intervals: of the counts, and of the counts over the "
        "finite-size factor",
        ("", "α", "theory", "straight fit", "freed of finite size"),
        tuple(rows),
    )


def _constants_table(config: Config, data: Data) -> Table:
    rows = []
    for optimizer in OPTIMIZERS:
        straight = [sweep.fit_power_law(_counts(config, data, optimizer, alpha), "d") for alpha in config.alphas]
        freed = [_freed_fit(config, data, optimizer, alpha) for alpha in config.alphas]
        for kind, fits in (("straight", straight), ("freed", freed)):
            best, (e1, e2) = _inverse_alpha(config, fits)
            rows.append((NAMES[optimizer], kind, f"{best.c1:.3f} ± {e1:.3f}", f"{best.c2:.3f} ± {e2:.3f}"))
    return Table(
        "Exponents as c1 + c2/α (theory: GD 0 + 0.5/α, Muon and Newton 1 + 0.5/α) ± standard errors",
        ("", "exponents", "c1", "c2"),
        tuple(rows),
    )


def _items_table(config: Config) -> Table:
    rows = (
        (f"{alpha:g}", str(d), *(f"{sweeps.expected('muon', d, many * config.n, alpha):.1f}" for many in MORE_ITEMS))
        for alpha in config.alphas
        for d in (config.dims[0], config.dims[-1])
    )
    return Table(
        "What finite N does: the formula's count of Muon with more items of the same power law",
        ("α", "d", *(f"N = {many * config.n:.0e}" for many in MORE_ITEMS)),
        tuple(rows),
    )


def plot(config: Config, data: Data) -> Figure:
    """Counts against d, one panel per optimizer, with the formula as lines; then the exponents against 1/α."""
    figure = Figure(figsize=(15, 4), layout="constrained")
    *panels, last = figure.subplots(1, 4)
    for axes, optimizer in zip(panels, OPTIMIZERS, strict=True):
        for alpha, color, marker in zip(config.alphas, COLORS * 2, MARKERS * 2, strict=False):
            count = data["capacity"]["count"].sel(alpha=alpha, optimizer=optimizer, drop=True).astype(float)
            draw_sweep(axes, count, "d", label=f"α = {alpha:g}", color=color, marker=marker)
            formula = [sweeps.expected(optimizer, d, config.n, alpha) for d in config.dims]
            axes.plot(config.dims, formula, color=color, linewidth=1)
        rough = ", rough for GD" if optimizer == "gd" else ""
        axes.set_title(f"{NAMES[optimizer]} (lines: finite-size formula{rough})", fontsize="medium")
        axes.set_xlabel("dimension d")
        axes.set_ylabel(f"items recovered of {config.n}")
        axes.tick_params(axis="x", rotation=45)
        axes.legend(fontsize="small")
    inverse = 1 / np.asarray(config.alphas)
    for optimizer, color, marker, shift in zip(OPTIMIZERS, COLORS, MARKERS, (0, -0.005, 0.005), strict=False):
        fits = [_freed_fit(config, data, optimizer, alpha) for alpha in config.alphas]
        last.errorbar(
            inverse + shift,
            [fit.exponent for fit in fits],
            yerr=[4 * fit.stderr for fit in fits],
            fmt=marker,
            color=color,
            capsize=2,
            label=NAMES[optimizer],
        )
        theory = [capacity.one_step_exponent(optimizer, alpha) for alpha in config.alphas]
        last.plot(inverse, theory, color=color, linewidth=1)
    last.set_title("exponents freed of finite size (lines: theory)", fontsize="medium")
    last.set_xlabel("1/α")
    last.set_ylabel("exponent ± 4 standard errors")
    last.legend(fontsize="small")
    return figure


def _with_interval(fit: sweep.PowerLawFit) -> str:
    return f"{fit.exponent:.3f} ({fit.interval[0]:.3f}, {fit.interval[1]:.3f})"


def _written(alpha: float) -> str:
    return f"{alpha:g}".replace(".", "-")


EXPERIMENT = Experiment(
    name="memory-one-step",
    paper=PAPER,
    source="associative-memory, Theorems 3.1, 3.3 and B.1, Figures 1a and 2",
    title="Capacity after one step of gradient descent, Muon and Newton",
    summary=(
        "One population step recovers d^(1/(2α)) items by gradient descent and d^(1+1/(2α)) by Muon and by Newton. At the paper's sizes a "
        "straight line through the counts is bent by logarithms and small d; a formula for the count at finite d and N, without fitted "
        "numbers, describes the counts, and what it leaves is the theorem's power."
    ),
    scales={
        "smoke": Config(n=1000, dims=(32, 48, 64, 96), fit_from=32, alphas=(1.5, 2.0)),
        "quick": Config(),
        "paper": Config(
            n=100_000, dims=(32, 64, 128, 256, 512, 1024), fit_from=128, alphas=(1.25, 1.5, 2.0, 3.0), seeds=16
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
"""Figures 1a and 2 with their verdicts."""
