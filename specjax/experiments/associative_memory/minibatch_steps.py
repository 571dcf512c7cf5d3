"""Figure 5b: several steps of Muon on fresh minibatches, against the number of items that the samples hold."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import PAPER
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import Mean
from specjax.experiments.plots import COLORS, MARKERS, draw_mean
from specjax.experiments.verdicts import bound_check, exponent_check
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active
from specjax.theory.finite_capacity import distinct_items


@dataclass(frozen=True)
class Config:
    """Items, one dimension d, α, batch sizes and steps; what the smallest batches hold fits without interference."""

    n: int = field(default=4000, metadata={"help": "items N"})
    d: int = field(default=64, metadata={"help": "dimension d"})
    alpha: float = field(default=1.5, metadata={"help": "exponent of the frequencies"})
    batches: tuple[int, ...] = field(default=(4, 64, 1024, 4096), metadata={"help": "batch sizes, ascending"})
    steps: int = field(default=16, metadata={"help": "steps T"})
    rate: float = field(default=1.0, metadata={"help": "learning rate over √d"})
    seeds: int = field(default=10, metadata={"help": "draws of embeddings and batches"})
    seed: int = field(default=0, metadata={"help": "root seed"})

    def __post_init__(self) -> None:
        if self.d < 4:
            raise ValueError(f"d must be at least 4, got {self.d}.")
        sweeps.check_common(self.n, (self.d,), self.seeds, self.seed, points=1)
        sweeps.check_alphas((self.alpha,))
        if len(self.batches) < 2 or list(self.batches) != sorted(set(self.batches)) or self.batches[0] < 1:
            raise ValueError(f"batches needs 2 or more different sizes from 1 up, ascending, got {self.batches}.")
        if self.steps < 4:
            raise ValueError(f"steps must be at least 4, for a fit over steps, got {self.steps}.")
        large, small = self.batches[-1], self.batches[-2]
        if large % small or large // small > self.steps:
            raise ValueError(
                f"The largest of batches={self.batches} must be the one before it times a whole number of at most steps={self.steps}, "
                "so that both see equally many samples."
            )
        if distinct_items(self.n, self.alpha, self.batches[0] * self.steps) > self.d / 2:
            raise ValueError(
                f"The smallest of batches={self.batches} needs to hold fewer than d/2 = {self.d / 2:g} items in steps={self.steps} steps; "
                "take a smaller one, or fewer steps."
            )
        if not (np.isfinite(self.rate) and self.rate > 0):
            raise ValueError(f"rate must be positive and finite, got {self.rate}.")


def run(config: Config) -> Data:
    """Counts and items seen after each step, for every batch size; smaller batches are the start of larger ones."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        of_items, of_batches = jax.random.split(key)
        u, v = sweeps.draw(of_items, config.n, d)
        p = memory.power_law(config.n, config.alpha)
        rate = config.rate * jnp.sqrt(jnp.asarray(active(d), u.dtype))

        def of_batch(inputs: tuple[Array, Array, Array]) -> tuple[tuple[Array, Array], dict[str, Array]]:
            w, seen, q = inputs
            w = w - rate * spectral.polar(memory.loss_and_gradient(w, u, v, q).gradient)
            seen = seen | (q > 0)
            return (w, seen), {**sweeps.capacities(u, v, w), "seen": jnp.sum(seen)}

        def step(state: tuple[Array, Array], t: Array) -> tuple[tuple[Array, Array], dict[str, Array]]:
            qs = memory.minibatches(jax.random.fold_in(of_batches, t), p, config.batches)
            return jax.lax.map(of_batch, (*state, qs))

        many = len(config.batches)
        start = jnp.zeros((many, u.shape[1], u.shape[1]), u.dtype), jnp.zeros((many, config.n), bool)
        return jax.lax.scan(step, start, jnp.arange(config.steps))[1]

    axes = {"t": range(1, config.steps + 1), "batch": config.batches}
    labels = dict.fromkeys(("count", "prefix", "seen"), axes)
    return {"capacity": sweeps.run(of_seed, (config.d,), config.seeds, jax.random.key(config.seed), labels).isel(d=0)}


def _freed_fit(config: Config, data: Data) -> sweep.PowerLawFit:
    """Counts of the smallest batch against the number of samples, over what small samples make of the number of distinct items."""
    batch = config.batches[0]
    counts: xr.DataArray = data["capacity"]["count"].sel(batch=batch, drop=True).astype(float)
    samples = batch * counts["t"].values
    factor = [distinct_items(config.n, config.alpha, float(m)) / m ** (1 / config.alpha) for m in samples]
    freed = counts / xr.DataArray(np.asarray(factor), dims=["t"], coords={"t": counts["t"].values})
    return sweep.fit_power_law(freed.assign_coords(t=samples.astype(float)), "t")


def checks(config: Config, data: Data) -> list[Check]:
    """Small batches store what they see; large ones saturate, and store less of equally many samples."""
    count, seen = (data["capacity"][name].astype(float) for name in ("count", "seen"))
    small, before, large = config.batches[0], config.batches[-2], config.batches[-1]
    source = f"{PAPER}, Figure 5b"
    share = count.sel(batch=small).mean("seed") / seen.sel(batch=small).mean("seed")
    factor = large // before
    efficiency = sweeps.log(count.sel(batch=before, t=factor, drop=True) / count.sel(batch=large, t=1, drop=True))
    final = count.isel(t=-1).mean("seed") / seen.isel(t=-1).mean("seed")
    return [
        bound_check(
            "small-batches-store-what-they-see",
            source,
            f"In batches of {small} Muon stores more than 80 % of the items seen so far, after each of {config.steps} steps.",
            smallest_margin=float(share.min() - 0.8),
        ),
        exponent_check(
            "small-batches-exponent",
            source,
            f"In batches of {small} the capacity grows as the power 1/α of the samples B t, up to what few samples make of the number of "
            "distinct items.",
            predicted=1 / config.alpha,
            fit=_freed_fit(config, data),
            resolution=(1 - 1 / config.alpha) / 2,
        ),
        bound_check(
            "never-more-than-seen",
            source,
            "Muon stores no more items than it has seen, beyond two that it guesses, in the mean over draws, after every step.",
            smallest_margin=float((seen + 2 - count).mean("seed").min()),
        ),
        bound_check(
            "large-batches-saturate",
            source,
            f"The share of the items seen that is stored after {config.steps} steps falls with the batch size, from the smallest to the "
            "largest by more than half.",
            smallest_margin=float(0.5 - final.sel(batch=large) / final.sel(batch=small)),
        ),
        bound_check(
            "sample-efficiency-worsens",
            source,
            f"Of {large} samples, {factor} steps with batches of {before} store more than one step with all: mean logarithm of the "
            "factor less 4 standard errors.",
            smallest_margin=float(Mean(*sweep.mean_and_stderr(efficiency)).low),
        ),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Items stored and items seen after some of the steps."""
    shown = [t for t in (1, 2, 4, 8, 16, 32) if t <= config.steps]
    rows = []
    for batch in config.batches:
        for name, kind in (("count", "stored"), ("seen", "seen")):
            mean, stderr = sweep.mean_and_stderr(data["capacity"][name].sel(batch=batch, t=shown).astype(float))
            cells = zip(mean.values, stderr.values, strict=True)
            rows.append((f"B = {batch}", kind, *(f"{m:.1f} ± {e:.1f}" for m, e in cells)))
    fit = _freed_fit(config, data)
    return [
        Table(
            f"Items after t steps, N = {config.n}, d = {config.d}, α = {config.alpha:g}",
            ("", "items", *(f"t = {t}" for t in shown)),
            tuple(rows),
        ),
        Table(
            f"Exponent of the capacity in B t at B = {config.batches[0]}, freed of the number of distinct items",
            ("theory", "fit", "95 % interval"),
            ((f"{1 / config.alpha:.3f}", f"{fit.exponent:.3f}", f"({fit.interval[0]:.3f}, {fit.interval[1]:.3f})"),),
        ),
    ]


def plot(config: Config, data: Data) -> Figure:
    """Items stored against samples seen, one curve per batch size, with the number of distinct items."""
    figure = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = figure.subplots()
    mean, stderr = sweep.mean_and_stderr(data["capacity"]["count"].astype(float))
    for batch, color, marker in zip(config.batches, COLORS * 2, MARKERS * 2, strict=False):
        samples = batch * mean["t"].values
        one = Mean(mean.sel(batch=batch), stderr.sel(batch=batch))
        draw_mean(axes, samples, one, f"{marker}-", color=color, markersize=4, label=f"B = {batch}")
    samples = np.geomspace(config.batches[0], config.batches[-1] * config.steps, 60)
    axes.plot(
        samples,
        [distinct_items(config.n, config.alpha, m) for m in samples],
        "k--",
        linewidth=1,
        label="distinct items",
    )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("samples B t")
    axes.set_ylabel(f"items stored of {config.n} (± 2 standard errors)")
    axes.set_title(f"Muon on fresh minibatches, d = {config.d}", fontsize="medium")
    axes.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="memory-minibatch-steps",
    paper=PAPER,
    source="associative-memory, Figure 5b",
    title="Capacity after several steps of Muon on fresh minibatches",
    summary=(
        "As long as the items seen are few for the dimension, Muon stores nearly all of them, (B t)^(1/α) after t batches of B. Batches "
        "that show it more than it can store in one step are wasted in part: smaller ones store more of equally many samples."
    ),
    scales={
        "smoke": Config(n=1000, d=32, batches=(4, 256, 1024), steps=4),
        "quick": Config(),
        "paper": Config(n=100_000, d=256, batches=(8, 128, 2048, 8192, 32_768), steps=20),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
"""Figure 5b with its verdicts."""
