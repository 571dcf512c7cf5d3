"""Figures 1b and 3: how many items one step on a minibatch recovers, and from which batch size on more gains nothing.

The critical batch size is that at which half of the population's items are recovered. Its slope in d is judged as it is, beside that of
the batch at which half of these items have been seen at all, which has the finite-d bend of the capacity itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure
from scipy.optimize import brentq

from specjax import lab, sizes, sweep
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import NAMES, PAPER
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, MARKERS
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import capacity
from specjax.theory.finite_capacity import distinct_items

OPTIMIZERS = ("gd", "muon")
MARGIN = 0.25
"""Half of 1/2: the exponents of the paper, 1/2 and α + 1/2, and those of the capacities are at least 1/2 apart."""
STORED = 0.9
"""Least share of the items of a small batch that Muon stores."""


class Config(lab.Config):
    """Items, dimensions, α and batch sizes; small batches are those whose distinct items are fewer than d/4."""

    n: int = lab.integer(5000, least=2, help="items N")
    dims: tuple[int, ...] = lab.sizes(32, 64, 128, least=4, points=2, help="dimensions d")
    alpha: float = lab.number(1.5, above=1, help="exponent of the frequencies")
    batches: tuple[int, ...] = lab.sizes(2, 4, 8, 16, 32, 64, 128, 256, 512, 2048, points=4, help="batch sizes")
    seeds: int = lab.seeds(90, least=10, help="draws of embeddings and batches")

    def __post_init__(self) -> None:
        super().__post_init__()
        sweeps.check_items(self.n, self.dims)
        if not small_batches(self):
            raise ValueError(
                f"batches needs one of fewer than d/4 = {self.dims[-1] / 4:g} distinct items, got {self.batches}."
            )


states = lab.Statements()


def small_batches(config: Config) -> list[float]:
    """Batches in which every item fits in the largest d without interference: fewer distinct items than d/4."""
    return [float(b) for b in config.batches if distinct_items(config.n, config.alpha, b) < config.dims[-1] / 4]


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Counts for every batch size and optimizer, and for the population; smaller batches are the start of larger ones."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        of_items, of_batch = jax.random.split(key)
        u, v = sweeps.draw(of_items, config.n, d)
        p = memory.power_law(config.n, config.alpha)
        qs = jnp.concatenate([memory.minibatches(of_batch, p, config.batches), p[None]])

        def of_batches(q: Array) -> dict[str, Array]:
            count = sweeps.capacities(u, v, sweeps.one_step(u, v, q, OPTIMIZERS))["count"]
            return {"count": count, "distinct": jnp.sum(q > 0)}

        return jax.lax.map(of_batches, qs)

    points: dict[str, Sequence[Any]] = {"batch": [float(b) for b in config.batches] + [np.inf]}
    labels: dict[str, dict[str, Sequence[Any]]] = {"count": {**points, "optimizer": OPTIMIZERS}, "distinct": points}
    return sweeps.run(of_seed, config.dims, config.seeds, sizes.stream(key, "items and batches of figure 3"), labels)


def half_batches(means: np.ndarray, batches: np.ndarray) -> np.ndarray:
    """For each row, the logarithm of the batch at which the count reaches half of the last one, the population's."""
    shares = np.maximum.accumulate(means[..., :-1] / means[..., -1:], axis=-1)
    return np.array([np.interp(0.5, share, np.log(batches[:-1])) for share in shares])


def critical(data: xr.Dataset, optimizer: str) -> xr.DataArray:
    """Logarithms of critical batch sizes by d; draws are the pseudo-values of the jackknife, with the mean and spread of the estimate."""
    counts = data["count"].sel(optimizer=optimizer, drop=True).astype(float).transpose("seed", "d", "batch")
    values, seeds, batches = counts.values, counts.sizes["seed"], counts.batch.values
    whole = half_batches(values.mean(0), batches)
    without = [half_batches(np.delete(values, s, axis=0).mean(0), batches) for s in range(seeds)]
    pseudo = seeds * whole - (seeds - 1) * np.stack(without)
    return xr.DataArray(pseudo, dims=("seed", "d"), coords={"d": counts.d}, name="log of the critical batch")


def half_seen(config: Config, optimizer: str) -> xr.DataArray:
    """Logarithms of the batch of which half of the items that the formula has for the population are seen, by d."""
    p = np.arange(1.0, config.n + 1) ** -config.alpha
    p /= p.sum()

    def seen(log_batch: float, kept: float) -> float:
        shares = np.clip(kept - np.arange(config.n), 0, 1)
        return float(shares @ -np.expm1(-np.exp(log_batch) * p)) - kept / 2

    kept = [sweeps.expected(optimizer, d, config.n, config.alpha) for d in config.dims]
    logs = [brentq(seen, -10, 40, args=(k,)) for k in kept]
    return xr.DataArray(np.array(logs), dims="d", coords={"d": list(config.dims)})


def taking(optimizer: str, source: Callable[[xr.Dataset], xr.DataArray]) -> Any:
    """A control: other counts in the place of an optimizer's."""
    return lab.replacing("count", lambda data: data["count"].where(data.optimizer != optimizer, source(data)))


def of(optimizer: str) -> Callable[[xr.Dataset], xr.DataArray]:
    """The counts of an optimizer."""
    return lambda data: data["count"].sel(optimizer=optimizer, drop=True)


def reversed_sizes(config: Config, data: xr.Dataset) -> xr.Dataset:
    """The sizes exchanged."""
    return data.isel(d=slice(None, None, -1)).assign_coords(d=data.d)


def power(data: xr.Dataset, exponent: float) -> xr.Dataset:
    """Counts whose critical batch is 32 (d/d₀)^exponent exactly."""
    share = data.batch / (data.batch + 32 * (data.d / data.d[0]) ** exponent)
    return data.assign(count=100 * share.where(np.isfinite(data.batch), 1.0) + 0.0 * data["count"])


@states(
    ("figure-3", "theorem-3-1"),
    "In batches of fewer than d/4 distinct items Muon recovers more than nine tenths of the items seen, at the largest d.",
    controls={"W = 0": lab.replacing("count", 0), "gradient descent": taking("muon", of("gd"))},
)
def small_batches_are_stored(config: Config, data: xr.Dataset) -> lab.Relation:
    """The information-theoretic rate: B draws hold of the order of B^(1/α) distinct items."""
    at = {"batch": small_batches(config)}
    share = data["count"].sel(optimizer="muon", drop=True).sel(at) / data["distinct"].sel(at)
    return lab.above(share.isel(d=-1, drop=True).rename("stored / seen"), STORED, f"{STORED:g} of the items seen")


@states(
    "section-3-critical-muon",
    "Muon's critical batch grows with d as the batch that shows half of the items of its population's capacity does, to 1/4.",
    controls={"gradient descent": taking("muon", of("gd")), "the sizes exchanged": reversed_sizes},
)
def critical_batch_of_muon(config: Config, data: xr.Dataset) -> lab.Relation:
    """By its finite-d capacity; that this is d^(1+1/(2α)) far out, and the critical batch d^(α+1/2), is judged in memory-one-step."""
    slope = sweeps.slopes(critical(data, "muon"))
    return lab.below(sweeps.both_sides(slope, float(sweeps.slopes(half_seen(config, "muon")))), MARGIN, "1/4")


@states(
    "figure-3b",
    "At these sizes the critical batch of Muon grows as d^(α+1/2), to 1/4.",
    holds=None,
    controls={
        "counts of this critical batch": lambda config, data: power(data, config.alpha + 0.5),
        "the sizes exchanged": reversed_sizes,
    },
)
def critical_batch_as_printed(config: Config, data: xr.Dataset) -> lab.Relation:
    """The direct slope, without finite-d terms."""
    predicted = capacity.critical_batch_exponent("muon", config.alpha)
    return lab.below(sweeps.both_sides(sweeps.slopes(critical(data, "muon")), predicted), MARGIN, "1/4")


def _population(data: xr.Dataset) -> xr.DataArray:
    """The population's count over that of the largest batch, in every draw."""
    count = data["count"].sel(optimizer="muon", drop=True).astype(float)
    return (count.isel(batch=-1, drop=True) / count.isel(batch=-2, drop=True)).rename("population / largest batch")


@states(
    "section-3-critical-muon",
    "Beyond the critical batch more gains nothing: at the largest d the population recovers no more than the largest batch, to 5 %.",
    controls={"the largest batch is a small one": lambda config, data: data.isel(batch=[0, -1])},
    post_hoc="It was asked at every d, where noise of 5 % in the few items at the smallest decides; judged on fresh draws.",
)
def no_gain_beyond(config: Config, data: xr.Dataset) -> lab.Relation:
    """The largest batch is several times the critical one."""
    return lab.below(_population(data).isel(d=-1, drop=True), 1.05, "5 % more")


@states(
    ("section-3-critical-sgd", "figure-3"),
    "At the largest d Muon's critical batch is more than four times as large as that of gradient descent.",
    controls={"gradient descent in Muon's place": taking("muon", of("gd"))},
)
def muon_has_the_larger_batch(config: Config, data: xr.Dataset) -> lab.Relation:
    """Half of the population's count at each."""
    gap = (critical(data, "muon") - critical(data, "gd")).isel(d=-1, drop=True)
    return lab.above(gap.rename("log of the ratio"), float(np.log(4)), "a factor of 4")


def tables(config: Config, data: xr.Dataset) -> list[lab.Table]:
    """Counts by batch size, and critical batch sizes."""
    mean, stderr = sweep.mean_and_stderr(data["count"].astype(float))
    rows, batches = [], []
    for name in OPTIMIZERS:
        for d in config.dims:
            cells = zip(*(a.sel(optimizer=name, d=d).values for a in (mean, stderr)), strict=True)
            rows.append((NAMES[name], str(d), *(f"{m:.1f} ± {e:.1f}" for m, e in cells)))
        logs, errors = sweep.mean_and_stderr(critical(data, name))
        slope, error = sweep.mean_and_stderr(sweeps.slopes(critical(data, name)))
        seen = half_seen(config, name)
        law = capacity.critical_batch_exponent(name, config.alpha)
        sizes_ = (f"{np.exp(m):.3g} ± {100 * e:.0f} %" for m, e in zip(logs.values, errors.values, strict=True))
        batches.append((NAMES[name], *sizes_, f"{float(slope):.2f} ± {float(error):.2f}", f"{law:g}"))
        batches.append(
            ("half seen", *(f"{np.exp(x):.3g}" for x in seen.values), f"{float(sweeps.slopes(seen)):.2f}", "")
        )
    dims = tuple(f"d = {d}" for d in config.dims)
    header = ("", "d", *(f"B = {b}" for b in config.batches), "population")
    return [
        lab.Table(f"Items recovered, N = {config.n}, α = {config.alpha:g}", header, tuple(rows)),
        lab.Table("Batch size of half the population's count", ("", *dims, "slope", "theory"), tuple(batches)),
    ]


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Counts against the batch size, one panel per optimizer, with the number of distinct items."""
    drawn = Figure(figsize=(9, 4), layout="constrained")
    for axes, optimizer in zip(drawn.subplots(1, 2, sharey=True), OPTIMIZERS, strict=True):
        counts = data["count"].sel(optimizer=optimizer, drop=True).astype(float)
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
    return drawn


EXPERIMENT = lab.Experiment(
    "memory-minibatch",
    ledger(PAPER),
    title="Critical batch sizes of one step",
    summary="Muon stores every item of a small batch, and gains up to a batch that shows it a good part of what it can store: at finite d "
    "that batch grows faster than d^(α+1/2), as the capacity does. SGD stops gaining far earlier.",
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"n": 500, "dims": (24, 48), "batches": (2, 8, 64, 1024), "seeds": 10},
        "paper": {
            "n": 100_000,
            "dims": (64, 128, 256, 512),
            "batches": tuple(2**k for k in range(2, 22, 2)),
            "seeds": 16,
        },
    },
    figure=figure,
    tables=tables,
)
"""Figures 1b and 3 with their verdicts."""
