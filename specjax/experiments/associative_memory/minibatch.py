"""Figures 1b and 3: how many items one step on a minibatch recovers, and from which batch size on more gains nothing."""

from collections.abc import Sequence
from dataclasses import dataclass, field
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
from specjax.experiments.plots import COLORS, MARKERS
from specjax.experiments.verdicts import bound_check, exponent_check, mean_check
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import capacity
from specjax.theory.finite_capacity import distinct_items

OPTIMIZERS = ("gd", "muon")


@dataclass(frozen=True)
class Config:
    """Items, dimensions, α and batch sizes; small batches are those whose distinct items are fewer than d/4."""

    n: int = field(default=10_000, metadata={"help": "items N"})
    dims: tuple[int, ...] = field(default=(32, 64, 96, 128), metadata={"help": "dimensions d"})
    alpha: float = field(default=1.5, metadata={"help": "exponent of the frequencies"})
    batches: tuple[int, ...] = field(
        default=(4, 8, 16, 64, 256, 1024, 4096, 16_384, 65_536), metadata={"help": "batch sizes, ascending"}
    )
    seeds: int = field(default=10, metadata={"help": "draws of embeddings and batches"})
    seed: int = field(default=0, metadata={"help": "root seed"})

    def __post_init__(self) -> None:
        sweeps.check_common(self.n, self.dims, self.seeds, self.seed)
        sweeps.check_alphas((self.alpha,))
        if len(self.batches) < 4 or list(self.batches) != sorted(set(self.batches)) or self.batches[0] < 1:
            raise ValueError(f"batches needs 4 or more different sizes from 1 up, ascending, got {self.batches}.")
        if len(small_batches(self)) < 4:
            raise ValueError(
                f"batches needs four or more of fewer than d/4 = {self.dims[-1] / 4:g} distinct items, got {self.batches}."
            )


def small_batches(config: Config) -> list[int]:
    """Batches in which every item fits in the largest d without interference: fewer distinct items than d/4."""
    return [b for b in config.batches if distinct_items(config.n, config.alpha, b) < config.dims[-1] / 4]


def run(config: Config) -> Data:
    """Counts for every batch size and optimizer, and for the population; smaller batches are the start of larger ones."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        of_items, of_batch = jax.random.split(key)
        u, v = sweeps.draw(of_items, config.n, d)
        p = memory.power_law(config.n, config.alpha)
        qs = jnp.concatenate([memory.minibatches(of_batch, p, config.batches), p[None]])

        def of_batches(q: Array) -> dict[str, Array]:
            found = sweeps.capacities(u, v, sweeps.one_step(u, v, q, OPTIMIZERS))
            return {**found, "distinct": jnp.sum(q > 0)}

        return jax.lax.map(of_batches, qs)

    points: dict[str, Sequence[Any]] = {"batch": [float(b) for b in config.batches] + [np.inf]}
    axes: dict[str, Sequence[Any]] = {**points, "optimizer": OPTIMIZERS}
    labels: dict[str, dict[str, Sequence[Any]]] = {"count": axes, "prefix": axes, "distinct": points}
    return {"capacity": sweeps.run(of_seed, config.dims, config.seeds, jax.random.key(config.seed), labels)}


def _critical(data: Data, optimizer: str) -> xr.DataArray:
    """For each d, the batch size at which the mean count reaches half of the population's, by interpolation of logarithms.

    The seeds' axis holds the leave-one-out values, pseudo-values of the jackknife, whose mean and spread are those of the estimate.
    """
    counts = data["capacity"]["count"].sel(optimizer=optimizer, drop=True).astype(float)
    sizes = np.log(counts["batch"].values[:-1])
    seeds = counts.sizes["seed"]
    values = np.empty((counts.sizes["d"], seeds))
    for k, of_d in enumerate(counts.transpose("d", "seed", "batch").values):

        def half(means: np.ndarray) -> float:
            share = np.maximum.accumulate(means[:-1] / means[-1])
            return float(np.exp(np.interp(0.5, share, sizes)))

        whole = half(of_d.mean(axis=0))
        without = [half(np.delete(of_d, s, axis=0).mean(axis=0)) for s in range(seeds)]
        values[k] = seeds * whole - (seeds - 1) * np.asarray(without)
    return xr.DataArray(values, dims=("d", "seed"), coords={"d": counts["d"].values}, name=f"{optimizer} batch")


def checks(config: Config, data: Data) -> list[Check]:
    """The information-theoretic rate at small batches, then the critical batch sizes."""
    count = data["capacity"]["count"].astype(float).isel(d=-1)
    seen = data["capacity"]["distinct"].astype(float).isel(d=-1)
    small = [float(b) for b in small_batches(config)]
    results = []
    muon = count.sel(optimizer="muon")
    share = muon.sel(batch=small).mean("seed") / seen.sel(batch=small).mean("seed")
    results.append(
        bound_check(
            "small-batch-all-seen",
            f"{PAPER}, Theorem 3.1 and Figure 3",
            f"At d = {config.dims[-1]} and batches of fewer than d/4 distinct items, Muon recovers more than 90 % of the items seen.",
            smallest_margin=float(share.min() - 0.9),
        )
    )
    results.append(
        bound_check(
            "never-more-than-seen",
            f"{PAPER}, Theorem 3.1",
            "Muon recovers no more items than the batch holds, beyond two that it guesses, in the mean over draws.",
            smallest_margin=float((seen + 2 - muon).isel(batch=slice(0, -1)).mean("seed").min()),
        )
    )
    rate = count.sel(optimizer="muon", batch=small).drop_vars(["optimizer", "d"])
    factor = np.array([distinct_items(config.n, config.alpha, b) / b ** (1 / config.alpha) for b in small])
    results.append(
        exponent_check(
            "small-batch-exponent",
            f"{PAPER}, Theorem 3.1 and Figure 3",
            "Muon recovers B^(1/α) items at small B, up to what a small B makes of the number of distinct items.",
            predicted=1 / config.alpha,
            fit=sweep.fit_power_law(rate / xr.DataArray(factor, dims=["batch"], coords={"batch": small}), "batch"),
            resolution=(1 - 1 / config.alpha) / 2,
        )
    )
    ratio = _critical(data, "muon").isel(d=-1).mean() / _critical(data, "gd").isel(d=-1).mean()
    results.append(
        bound_check(
            "muon-critical-is-larger",
            f"{PAPER}, Section 3 and Figure 3",
            f"At d = {config.dims[-1]} Muon reaches half of its population's count at more than 4 times the batch size of SGD.",
            smallest_margin=float(ratio - 4),
        )
    )
    # B* ∝ capacity^α: the power of the theorem, free of what finite size makes of the capacity itself.
    critical = _critical(data, "muon")
    capacities = data["capacity"]["count"].sel(optimizer="muon", batch=np.inf).mean("seed").values
    against = critical.assign_coords(d=capacities)
    fit = sweep.fit_power_law(against, "d")
    results.append(
        mean_check(
            "muon-critical-exponent",
            f"{PAPER}, Theorem 3.1",
            "Muon's critical batch size is the power α of the population's capacity, so d^(α+1/2).",
            predicted=config.alpha,
            mean=fit.exponent,
            stderr=fit.stderr,
            resolution=0.5,
        )
    )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """Counts by batch size, and critical batch sizes."""
    rows = []
    for optimizer in OPTIMIZERS:
        counts = data["capacity"]["count"].sel(optimizer=optimizer).astype(float)
        mean, stderr = sweep.mean_and_stderr(counts.drop_vars("optimizer"))
        for d in config.dims:
            cells = zip(mean.sel(d=d).values, stderr.sel(d=d).values, strict=True)
            rows.append((NAMES[optimizer], str(d), *(f"{m:.1f} ± {e:.1f}" for m, e in cells)))
    seen = data["capacity"]["distinct"].mean("seed").isel(d=-1).values
    rows.append(("distinct items", "", *(f"{value:.1f}" for value in seen)))
    critical = []
    for optimizer in OPTIMIZERS:
        mean, stderr = sweep.mean_and_stderr(_critical(data, optimizer))
        power = capacity.critical_batch_exponent(optimizer, config.alpha)
        sizes = [f"{m:.3g} ± {e:.2g}" for m, e in zip(mean.values, stderr.values, strict=True)]
        critical.append((NAMES[optimizer], *sizes, f"{power:g}"))
    return [
        Table(
            f"Items recovered, N = {config.n}, α = {config.alpha:g}",
            ("", "d", *(f"B = {b}" for b in config.batches), "population"),
            tuple(rows),
        ),
        Table(
            "Batch size of half the population's count",
            ("", *(f"d = {d}" for d in config.dims), "theory's power of d"),
            tuple(critical),
        ),
    ]


def plot(config: Config, data: Data) -> Figure:
    """Counts against the batch size, one panel per optimizer, with the number of distinct items."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, optimizer in zip(figure.subplots(1, 2, sharey=True), OPTIMIZERS, strict=True):
        counts = data["capacity"]["count"].sel(optimizer=optimizer, drop=True).astype(float)
        for d, color, marker in zip(config.dims, COLORS * 2, MARKERS * 2, strict=False):
            mean, stderr = sweep.mean_and_stderr(counts.sel(d=d, drop=True))
            axes.errorbar(
                config.batches,
                mean[:-1],
                yerr=2 * stderr[:-1],
                fmt=f"{marker}-",
                color=color,
                capsize=2,
                label=f"d = {d}",
            )
            axes.axhline(float(mean[-1]), color=color, linewidth=0.7, linestyle=":")
        seen = [distinct_items(config.n, config.alpha, b) for b in config.batches]
        axes.plot(config.batches, seen, "k--", linewidth=1, label="distinct items")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_title(f"{NAMES[optimizer]} (dotted: population)", fontsize="medium")
        axes.set_xlabel("batch size B")
        axes.set_ylabel(f"items recovered of {config.n}")
        axes.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="memory-minibatch",
    paper=PAPER,
    source="associative-memory, Theorems 3.1 and 3.3, Figures 1b and 3",
    title="Critical batch sizes of one step",
    summary=(
        "At small batches Muon recovers every item it has seen, B^(1/α) of them; from the batch size on that would show it its population "
        "capacity more draws gain nothing. SGD stops gaining far earlier."
    ),
    scales={
        # Post hoc: from d = 16 on, with 10 seeds and nothing between 16 and 256, one item more or less in one draw took the logarithm of
        # the smallest critical batch. Judged on seeds of its own.
        "smoke": Config(n=1000, dims=(24, 32, 40, 48), batches=(2, 4, 8, 16, 64, 256, 1024, 4096), seeds=40, seed=1),
        "quick": Config(),
        "paper": Config(n=100_000, dims=(64, 128, 256, 512), batches=tuple(2**k for k in range(2, 22, 2)), seeds=16),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
"""Figures 1b and 3 with their verdicts."""
