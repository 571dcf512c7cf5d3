"""Figures 1b and 3: items recovered by a step on a minibatch, and the critical batch size.

At the critical batch size half of the population's items are recovered. Its slope in d is judged
beside that of the batch in which half of these items occur, which has the same finite-d bend as the
capacity.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import fits, lab, sizes
from specjax.experiments.associative_memory import item_counts, sampled_items
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active
from specjax.theory import capacity
from specjax.theory.finite_capacity import distinct_items, half_seen_batch

OPTIMIZERS = (
    "gd",
    "muon",
    "resolved",
)  # The last is Muon with λ = max(d^-α, 1/B), the theorem's up to logarithms.
FEW = 64  # The largest batch of gradient descent, whose critical batches are a few samples.
# Half of 1/2: the exponents of the paper, 1/2 and α + 1/2, and those of the capacities are at least
# 1/2 apart.
MARGIN = 0.25


class Config(sampled_items.Config):
    """Items, dimensions, α and batch sizes; small batches have fewer than d/4 distinct items."""

    n: int = lab.config.integer(5000, least=2, help="items N")
    dims: tuple[int, ...] = lab.config.sizes(32, 64, 128, least=4, points=2, help="dimensions d")
    alpha: float = lab.config.number(1.5, above=1, help="exponent of the frequencies")
    batches: tuple[int, ...] = lab.config.sizes(
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
        256,
        512,
        2048,
        points=4,
        most=lab.config.MOST_COUNT,
        help="batch sizes",
    )
    seeds: int = lab.config.seeds(
        50, least=10, help="samples of embeddings and batches at the largest d"
    )
    descent_n: int = lab.config.integer(
        500, least=2, help="items N of the many samples of gradient descent"
    )
    repeats: int = lab.config.integer(
        100, most=lab.config.MOST_COUNT, help="of these, at every d, to one of the others"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not small_batches(self):
            few = f"fewer than d/4 = {self.dims[-1] / 4:g} distinct items"
            raise ValueError(f"batches needs one of {few}, got {self.batches}.")


def small_batches(config: Config) -> list[float]:
    """Batches of fewer than d/4 distinct items, which the largest d stores well."""
    return [
        float(b)
        for b in config.batches
        if distinct_items(config.n, config.alpha, b) < config.dims[-1] / 4
    ]


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Mean counts by batch size and for the population; smaller batches begin larger ones."""
    batches, few = [*map(float, config.batches), np.inf], [b for b in config.batches if b <= FEW]

    def counts(key: Array, d: AnySize) -> dict[str, Array]:
        of_items, of_batch = jax.random.split(key)
        u, v, p = sampled_items.sample(of_items, config.n, d, config.alpha)

        def step_on(inputs: tuple[Array, Array]) -> dict[str, Array]:
            q, batch = inputs
            lam = jnp.maximum(jnp.asarray(active(d), u.dtype) ** -config.alpha, 1 / batch)
            ws = memory.stabilized_steps(u, v, q, jnp.stack([0 * lam, lam]))
            return {
                "count": sampled_items.capacities(u, v, ws)["count"],
                "distinct": jnp.sum(q > 0),
            }

        qs = jnp.concatenate([memory.minibatches(of_batch, p, config.batches), p[None]])
        return jax.lax.map(step_on, (qs, jnp.asarray(batches)))

    def descent(key: Array, d: AnySize) -> dict[str, Array]:
        of_items, of_batch = jax.random.split(key)
        u, v, p = sampled_items.sample(of_items, config.descent_n, d, config.alpha)
        qs = memory.minibatches(of_batch, p, few)
        found = [memory.count_of_descent(u, v, q, batch) for q, batch in zip(qs, few, strict=True)]
        population = memory.count_of_few(u, v, -memory.gradient_at_zero(u, v, p))
        return {"count": jnp.stack([*found, population])}

    def mean(of_draw: Callable[..., Any], number: int) -> Callable[..., Any]:
        def measure(key: Array, d: AnySize) -> dict[str, Array]:
            found = jax.lax.map(lambda key: of_draw(key, d), jax.random.split(key, number))
            return jax.tree.map(lambda values: jnp.mean(values, axis=0, dtype=jnp.float32), found)

        return measure

    of_counts, of_descent = (
        sizes.stream(key, f"items and batches of {name}") for name in ("figure 3", "descent")
    )
    axes = {"batch": batches, "optimizer": OPTIMIZERS[1:]}
    # Counts grow with d^(3/2), so this number of samples equalizes the noise of log counts over d.
    repeats = {d: int((config.dims[-1] / d) ** 1.5) for d in config.dims}
    at = [
        sampled_items.run(mean(counts, repeats[d]), (d,), config.seeds, of_counts, **axes)
        for d in config.dims
    ]
    found, to = xr.concat(at, "d"), [*map(float, few), np.inf]
    many = sampled_items.run(
        mean(descent, config.repeats), config.dims, config.seeds, of_descent, batch=to
    )
    both = xr.concat(
        [many["count"].expand_dims(optimizer=["gd"]), found["count"]], "optimizer", join="outer"
    )
    return found.drop_dims("optimizer").assign(count=both)


def critical(data: xr.Dataset, optimizer: str) -> xr.DataArray:
    """Log batch sizes at which the count is half of the population's, by the jackknife."""

    def half(count: xr.DataArray) -> xr.DataArray:
        values, logs = count.transpose(..., "batch").values, np.log(count.batch.values[:-1])
        shares = np.maximum.accumulate(values[..., :-1] / values[..., -1:], axis=-1)
        reached = np.apply_along_axis(lambda share: np.interp(0.5, share, logs), -1, shares)
        return count.isel(batch=0, drop=True).copy(data=reached)

    count = data["count"].sel(optimizer=optimizer, drop=True).dropna("batch", how="all")
    return fits.jackknife(count, half).rename("log of the critical batch")


def items(config: Config, optimizer: str) -> int:
    return config.descent_n if optimizer == "gd" else config.n


def half_seen(config: Config, optimizer: str) -> xr.DataArray:
    """Log of the batch in which half of the formula's population count is seen, by d."""
    n = items(config, optimizer)
    kept = [item_counts.expected(optimizer, d, n, config.alpha) for d in config.dims]
    batches = [half_seen_batch(n, config.alpha, k) for k in kept]
    return xr.DataArray(np.log(batches), dims="d", coords={"d": list(config.dims)})


def power(config: Config, data: xr.Dataset) -> xr.Dataset:
    """Counts whose critical batch is 32 (d/d₀)^(α+1/2) exactly."""
    share = data.batch / (data.batch + 32 * (data.d / data.d[0]) ** (config.alpha + 0.5))
    return data.assign(count=100 * share.where(np.isfinite(data.batch), 1.0) + 0.0 * data["count"])


states = lab.Statements()
DESCENT = {"gradient descent": item_counts.replace_optimizers({"muon": "gd", "resolved": "gd"})}
RESOLVED = "With λ = max(d^-α, 1/B), the theorem's but for logarithms,"
OF_MUON, OF_SGD = "section-3-critical-muon", "section-3-critical-sgd"
CONTROLS = DESCENT | item_counts.reverse_sizes()
DESCENT_CONTROLS = {
    "Muon": item_counts.replace_optimizers({"gd": "muon"})
} | item_counts.reverse_sizes()
ALLOTTED = (
    "Samples at each d are as many as the noise of earlier ones asks for; judged on a fresh seed."
)
MORE = f"The formula's capacity was mended, after which 90 samples did not decide. {ALLOTTED}"
KNOWN = f"Added when its slope in few samples was known. {ALLOTTED}"
SMALLEST = {"the largest batch is a small one": lambda config, data: data.isel(batch=[0, -1])}
AT_INTERSECTIONS = {"counts of this critical batch": power} | item_counts.reverse_sizes()
STEEPER = (
    "Asked first if it is within 1/4 of it, which samples of another seed refuted narrowly; judged"
    " on fresh samples."
)
TOGETHER = (
    "It was asked of every batch, where noise in the few items of the smallest decides; judged on"
    " fresh samples."
)
AT_EVERY_D = (
    "It was asked at every d, where noise in the few items at the smallest decides; judged on fresh"
    " samples."
)
ON_FEW = {
    "gradient descent": lambda config, data: DESCENT["gradient descent"](
        config, data.dropna("batch", subset=["count"])
    )
}
of_resolved = partial(item_counts.replace_at, "optimizer", "resolved")
# Gradient descent was run only on the smaller batches and the population.
RUN_AS_DESCENT = of_resolved(lambda count: count.sel(optimizer="gd", drop=True).fillna(count))
RESOLVED_CONTROLS = {"gradient descent": RUN_AS_DESCENT, "W = 0": of_resolved(lambda _: 0)}
IN_PLACE = {"gradient descent in Muon's place": item_counts.replace_optimizers({"muon": "gd"})}


@states(
    ("figure-3", "theorem-3-1"), controls=item_counts.store_nothing() | ON_FEW, post_hoc=TOGETHER
)
def small_batches_are_stored(config: Config, data: xr.Dataset) -> lab.Relation:
    """Of the items of batches with fewer than d/4 distinct ones, together, Muon recovers more than
    nine tenths, at the largest d.
    """
    # The information-theoretic rate: B samples hold of the order of B^(1/α) distinct items.
    batches = [b for b in small_batches(config) if b in data.batch]
    small = data.sel(optimizer="muon", batch=batches, drop=True).isel(d=-1, drop=True).sum("batch")
    return lab.above(
        (small["count"] / small["distinct"]).rename("stored / seen"), 0.9, "0.9 of the items seen"
    )


def grows_as_capacity(
    optimizer: str,
    cites: str | tuple[str, ...],
    whose: str,
    controls: dict[str, item_counts.Control],
    post_hoc: str,
) -> None:
    """The critical batch by the finite-d capacity; that this is the theorems' far out is judged in
    memory-one-step.
    """
    says = (
        f"{whose} grows with d as the batch that shows half of the items of its population's"
        " capacity does, to 1/4."
    )
    of_capacity = "gd" if optimizer == "gd" else "muon"

    def of_seen(config: Config, data: xr.Dataset, more: float = 0.0) -> float:
        return float(fits.log_slopes(half_seen(config, of_capacity), "d")) + more

    @states(
        cites,
        says,
        name=f"critical-batch-of-{optimizer}",
        controls=controls,
        rivals={
            "√d times that": partial(of_seen, more=0.5),
            "that over √d": partial(of_seen, more=-0.5),
        },
        post_hoc=post_hoc,
    )
    def grows(config: Config, data: xr.Dataset) -> lab.Relation:
        exponent = fits.log_slopes(critical(data, optimizer), "d")
        return lab.near(exponent, of_seen(config, data), MARGIN, "1/4")


grows_as_capacity("muon", OF_MUON, "Muon's critical batch", CONTROLS, MORE)
grows_as_capacity(
    "resolved", (OF_MUON, "theorem-3-1"), f"{RESOLVED} Muon's critical batch", CONTROLS, ALLOTTED
)
grows_as_capacity("gd", OF_SGD, "The critical batch of gradient descent", DESCENT_CONTROLS, KNOWN)


@states("theorem-3-1", controls=RESOLVED_CONTROLS)
def resolution_of_the_batch(config: Config, data: xr.Dataset) -> lab.Relation:
    """With λ = max(d^-α, 1/B), the theorem's but for logarithms, a step recovers over half as many
    items as without, at every B and d.
    """
    logs = fits.jackknife(data["count"], item_counts.log)
    resolved, polar = (logs.sel(optimizer=name, drop=True) for name in ("resolved", "muon"))
    return lab.above((resolved - polar).rename("log of the ratio"), float(np.log(0.5)), "half")


@states("figure-3b", corrected=True, controls=AT_INTERSECTIONS, post_hoc=STEEPER)
def critical_batch_is_steeper(config: Config, data: xr.Dataset) -> lab.Relation:
    """At these sizes the slope of Muon's critical batch is above that of the figure's
    intersections, α + 1/2, by more than 1/8.
    """
    predicted = capacity.critical_batch_exponent("muon", config.alpha)  # without finite-d terms
    return lab.above(
        fits.log_slopes(critical(data, "muon"), "d"), predicted + MARGIN / 2, "α + 5/8"
    )


@states("section-3-critical-muon", controls=SMALLEST, post_hoc=AT_EVERY_D)
def no_gain_beyond(config: Config, data: xr.Dataset) -> lab.Relation:
    """Beyond the critical batch more gains nothing: at the largest d the population recovers no
    more than the largest batch, to 5 %.
    """
    count = data["count"].sel(optimizer="muon", drop=True).isel(d=-1, drop=True).astype(float)
    ratio = count.isel(batch=-1, drop=True) / count.isel(batch=-2, drop=True)
    return lab.below(ratio.rename("population / largest batch"), 1.05, "5 % more")


@states(("section-3-critical-sgd", "figure-3"), controls=IN_PLACE)
def muon_has_the_larger_batch(config: Config, data: xr.Dataset) -> lab.Relation:
    """At the largest d Muon's critical batch is more than four times as large as that of gradient
    descent.
    """
    gap = (critical(data, "muon") - critical(data, "gd")).isel(d=-1, drop=True)
    return lab.above(gap.rename("log of the ratio"), float(np.log(4)), "a factor of 4")


def tables(config: Config, data: xr.Dataset) -> list[lab.Table]:
    logs = {
        f"{item_counts.NAMES[name]}, half of the count": critical(data, name) for name in OPTIMIZERS
    }
    logs |= {
        f"{item_counts.NAMES[name]}, half seen": half_seen(config, name) for name in ("gd", "muon")
    }
    counts = {
        item_counts.NAMES[name]: data["count"].sel(optimizer=name).dropna("batch")
        for name in OPTIMIZERS
    }
    return [
        lab.table.table_by_size(f"Items recovered, α = {config.alpha:g}", counts, "d"),
        lab.table.table_by_size(
            "Logarithms of the batch of half the population's count", logs, "d", of_logs=True
        ),
    ]


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Plot Figure 3: counts by batch size, the population's, and the number of distinct items."""
    counts = data["count"].isel(batch=slice(None, -1))
    drawn, panels = item_counts.panels(
        counts, "batch", "d", "d = {}".format, item_counts.NAMES, ticks=False
    )
    for optimizer, axes in panels.items():
        seen = [distinct_items(items(config, optimizer), config.alpha, b) for b in config.batches]
        axes.plot(config.batches, seen, "k--", linewidth=1)
        population = data["count"].sel(optimizer=optimizer).isel(batch=-1).mean("seed").values
        for line, height in zip(axes.containers, population, strict=True):
            axes.axhline(height, color=line[0].get_color(), linewidth=0.7, linestyle=":")
    of_descent = f"{config.descent_n} for gradient descent"
    drawn.suptitle(
        f"N = {config.n}, {of_descent}; dotted: population; dashed: distinct items in a batch"
    )
    return drawn


EXPERIMENT = lab.Experiment(
    "memory-minibatch",
    item_counts.LEDGER,
    title="Critical batch sizes of one step",
    summary=(
        "Muon stores every item of a small batch; its critical batch grows with d faster than"
        " d^(α+1/2), as the capacity does."
    ),
    config=Config,
    measure=run,
    paired="the sweeps of each d, of different numbers of seeds, share seeds as one sweep would",
    statements=states,
    scales={
        "quick": {
            "seed": 7,
            "seeds": 38,
            "dims": (32, 64, 128),
            "batches": (1, 4, 16, 64, 256, 2048),
        },
        "smoke": {
            "n": 500,
            "dims": (24, 48),
            "batches": (2, 8, 64, 1024),
            "seeds": 10,
            "repeats": 20,
        },
        "paper": (
            {"seed": 1, "n": 100_000, "dims": (32, 64, 128, 256), "seeds": 16}
            | {"batches": tuple(4**k for k in range(10))}
        ),
    },
    figure=figure,
    tables=tables,
)
