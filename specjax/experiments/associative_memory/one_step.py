"""Figures 1a and 2: items recovered by one population step of descent, Muon and Newton.

The theorems are powers of d as d and N tend to infinity. Nothing is divided by a power that is
under test: counts and their exponents are compared with a formula without fitted numbers
(`specjax.theory.finite_capacity`), and far out its local exponents with the theorems'.
"""

import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes
from specjax.experiments.associative_memory import item_counts, sampled_items
from specjax.lab.drawing import COLORS, draw_slopes
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import capacity, finite_capacity

OPTIMIZERS = capacity.OPTIMIZERS
SPECTRAL = ["muon", "newton"]
SLOPE = 0.05  # Largest error of an exponent; its whole interval has to lie within.
FAR = {"gd": (2.0**36, 2.0**40), "muon": (2.0**18, 2.0**20), "newton": (2.0**18, 2.0**20)}
"""Dimensions of the local exponents; errors are √(log N)/√d (descent) or logarithms."""
# Seeds of gradient descent per mean: single counts of a few items have no useful logarithm.
GROUP = 25


class Config(sampled_items.Config):
    """Items, dimensions and exponents; judged are the dimensions from `fit_from` on."""

    n: int = lab.config.integer(2500, least=2, help="items N")
    dims: tuple[int, ...] = lab.config.sizes(64, 128, 192, least=4, points=2, help="dimensions d")
    fit_from: int = lab.config.integer(64, help="smallest d that is judged")
    alphas: tuple[float, ...] = lab.config.numbers(
        1.25, 1.5, 3.0, above=1, help="exponents of the frequencies"
    )
    seeds: int = lab.config.seeds(30, least=10, help="samples of the embeddings")
    descent_n: int = lab.config.integer(
        150, least=2, help="items N of the many samples of gradient descent"
    )
    descent_dims: tuple[int, ...] = lab.config.sizes(
        48, 96, least=4, points=2, help="dimensions d of these"
    )
    descent_seeds: int = lab.config.seeds(10_000, least=2 * GROUP, help="their number")
    far_seeds: int = lab.config.seeds(
        2, help="dimensions far out at which the formula's exponent is taken"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(fitted := [d for d in self.dims if d >= self.fit_from]) < 2:
            raise ValueError(
                f"dims from fit_from={self.fit_from} on need to be 2 or more, for a slope, got"
                f" {fitted}."
            )


def run_steps(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Counts after one step of each optimizer, over d and α."""

    def steps(key: Array, d: AnySize, alpha: Array) -> dict[str, Array]:
        u, v, q = sampled_items.sample(key, config.n, d, alpha)
        return sampled_items.capacities(u, v, memory.one_step(u, v, q, OPTIMIZERS))

    of_seed, draws = sampled_items.map_alphas(steps, config.alphas), sizes.stream(key, "items")
    return sampled_items.run(
        of_seed, config.dims, config.seeds, draws, alpha=config.alphas, optimizer=OPTIMIZERS
    )


def run_descent(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """The few items of gradient descent, in many samples."""

    def descent(key: Array, d: AnySize, alpha: Array) -> dict[str, Array]:
        u, v, q = sampled_items.sample(key, config.descent_n, d, alpha)
        return {"count": memory.count_of_few(u, v, -memory.gradient_at_zero(u, v, q))}

    of_many = sampled_items.map_alphas(descent, config.alphas, anew=True)
    draws = sizes.stream(key, "items of gradient descent")
    many = sampled_items.run(
        of_many, config.descent_dims, config.descent_seeds, draws, alpha=config.alphas
    )
    return many.assign_coords(optimizer="gd")


def run_far(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """The formula's local exponents far out."""
    count, theorem = finite_capacity.expected_count, capacity.one_step_exponent
    draws = sizes.stream(key, "far")
    return item_counts.far_out(FAR, config.alphas, config.far_seeds, draws, count, theorem)


def judged(
    config: Config, data: item_counts.Data, optimizer: str | list[str] = SPECTRAL
) -> xr.DataArray:
    of_dims = data["capacity"]["count"].sel(d=slice(config.fit_from, None))
    return of_dims.sel(optimizer=optimizer, drop=True).astype(float)


def average_groups(data: item_counts.Data) -> xr.DataArray:
    means = data["descent"]["count"].astype(float).coarsen(seed=GROUP, boundary="trim").mean()
    return means.assign_coords(seed=np.arange(means.sizes["seed"]))


def exact_power(of: str) -> dict[str, item_counts.Control]:
    def power(data: xr.Dataset) -> xr.DataArray:
        gd = 1 / (2 * data.alpha)
        return 10 * data.d ** xr.where(data.optimizer == "gd", gd, 1 + gd) + 0.0 * data["count"]

    return {"counts of that exponent": lab.controls.replacing("count", power, of=of)}


states = lab.Statements()
EXCHANGED = item_counts.replace_optimizers({"muon": "gd", "newton": "gd", "gd": "muon"}, "capacity")
DESCENT_FOR_MUON = {
    "gradient descent's data in Muon's place": item_counts.replace_optimizers(
        {"muon": "gd"}, "capacity"
    )
}
NOTHING, SIZES_EXCHANGED = (
    item_counts.store_nothing("capacity"),
    item_counts.reverse_sizes("capacity"),
)
CONTROLS = (
    NOTHING | SIZES_EXCHANGED | {"gradient descent's data in Muon's and Newton's place": EXCHANGED}
)
OFF = item_counts.shift_exponents(0.05, "capacity")
HALF = item_counts.scale_counts("capacity", 0.5)
THREE_TIMES = {
    "three times gradient descent's counts": item_counts.replace_at(
        "optimizer", "muon", lambda count: 3 * count.sel(optimizer="gd", drop=True), "capacity"
    )
}
OTHER_THEOREMS = {
    "d": item_counts.change_theorem(lambda e: 1 + 0 * e),
    "d^(1/α)": item_counts.change_theorem(lambda e: 1 / e.alpha + 0 * e),
    "d^(1/(2α)) for all": item_counts.change_theorem(lambda e: 1 / (2 * e.alpha) + 0 * e),
}
NOISY = (
    "It asked for 0.025{}, more than half of which is noise in these samples; judged on a fresh"
    " seed."
)
DESCENT_CONTROLS = item_counts.store_nothing("descent") | item_counts.reverse_sizes("descent")


@states(("theorem-3-1", "theorem-b-1"), controls=CONTROLS)
def counts_by_formula(config: Config, data: item_counts.Data) -> lab.Relation:
    """The mean counts of Muon and of Newton are those of the finite-size formula, to 5 % in the
    mean over d, at every α.
    """
    count = judged(
        config, data
    )  # the formula is of leading order in 1/d: 5 % is 3/d at the smallest d judged
    return item_counts.counts_by_formula(count, item_counts.formula(count, config.n), "d", 0.05)


@states(
    ("theorem-3-1", "theorem-b-1"), controls=CONTROLS | OFF, post_hoc=NOISY.format(" at every α")
)
def exponents_by_formula(config: Config, data: item_counts.Data) -> lab.Relation:
    """The counts of Muon and of Newton grow with d by the formula's exponents, to 0.05 in the mean
    over α.
    """
    count = judged(config, data)
    return item_counts.exponents_by_formula(
        item_counts.straight(count), item_counts.formula(count, config.n), SLOPE, ["alpha"]
    )


@states(
    "theorem-3-3",
    controls=item_counts.store_nothing("descent") | item_counts.scale_counts("descent", 0.98, 1.02),
)
def descent_by_formula(config: Config, data: item_counts.Data) -> lab.Relation:
    """The mean counts of gradient descent are those of the finite-size formula, to 1 % in the mean
    over α and d.
    """
    count = data["descent"]["count"].astype(float)
    return item_counts.counts_by_formula(
        count, item_counts.formula(count, config.descent_n), ["d", "alpha"], 0.01
    )


@states(
    "theorem-3-3",
    controls=DESCENT_CONTROLS | item_counts.shift_exponents(0.05, "descent"),
    post_hoc=NOISY.format(""),
)
def descent_exponents_by_formula(config: Config, data: item_counts.Data) -> lab.Relation:
    """The counts of gradient descent grow with d by the formula's exponents, to 0.05, at every
    α.
    """
    formula = item_counts.formula(data["descent"]["count"], config.descent_n)
    return item_counts.exponents_by_formula(
        item_counts.straight(average_groups(data)), formula, SLOPE
    )


@states(
    ("theorem-3-1", "theorem-3-3", "theorem-b-1"),
    controls=item_counts.FAR_CONTROLS | OTHER_THEOREMS,
)
def exponents_far_out(config: Config, data: item_counts.Data) -> lab.Relation:
    """Far out, where N = d^(2α+2), the formula's local exponents are the theorems', for Muon and
    Newton less 1/(2α ln d).
    """
    # What log log N leaves is less than 0.005; 1/(2α ln d) is 0.013 and more.
    return item_counts.exponents_far_out(data["far"], data["far"].optimizer == "gd", 0.005)


@states(("figure-2b", "figure-2-fit"), holds=None, controls=exact_power("capacity") | CONTROLS)
def straight_lines(config: Config, data: item_counts.Data) -> lab.Relation:
    """Straight lines through the counts of Muon, d from `fit_from` on, have the exponent 1 + 1/(2α)
    to 0.05 in the mean over α.
    """
    slope = item_counts.straight(judged(config, data, "muon"))
    excess = (slope - 1 - 1 / (2 * slope.alpha)).mean("alpha").rename("slope less the theorem's")
    return lab.near(excess, 0.0, SLOPE, f"{SLOPE}, as a figure shows it")


@states(
    ("figure-2a", "figure-2-fit"), holds=False, controls=exact_power("descent") | DESCENT_CONTROLS
)
def straight_lines_of_descent(config: Config, data: item_counts.Data) -> lab.Relation:
    """Straight lines through the counts of gradient descent have the exponent 1/(2α) to 0.05, at
    every α.
    """
    slope = item_counts.straight(average_groups(data))
    return lab.near(slope, 1 / (2 * slope.alpha), SLOPE, f"{SLOPE}, as a figure shows it")


@states(("theorem-b-1", "section-3-newton"), controls=DESCENT_FOR_MUON)
def muon_matches_newton(config: Config, data: item_counts.Data) -> lab.Relation:
    """Muon recovers between half and twice as many items as Newton, at every α and d."""
    muon, newton = (
        item_counts.log(judged(config, data, name)) for name in SPECTRAL
    )  # up to logarithms: a factor of 2
    return item_counts.within_a_factor_of_2((muon - newton).rename("log of Muon / Newton"))


@states(
    "section-3-muon-above-sgd",
    controls=NOTHING | {"the two exchanged": EXCHANGED} | THREE_TIMES,
)
def muon_above_descent(config: Config, data: item_counts.Data) -> lab.Relation:
    """At the largest d one step of Muon recovers more than four times as many items as one of
    gradient descent, at every α.
    """
    muon, gd = (judged(config, data, name).isel(d=-1, drop=True) for name in ("muon", "gd"))
    return lab.ahead(muon.rename("Muon"), (4 * gd).rename("4 GD"), least=0.0)


@states("section-1-superposition", controls=NOTHING | SIZES_EXCHANGED | DESCENT_FOR_MUON | HALF)
def superposition(config: Config, data: item_counts.Data) -> lab.Relation:
    """At the largest d and the smallest α one population step of Muon stores more than d items."""
    count = (
        judged(config, data, "muon").sel(alpha=min(config.alphas), drop=True).isel(d=-1, drop=True)
    )
    return lab.above(count, float(config.dims[-1]), "d, the most that orthogonal embeddings allow")


def tables(config: Config, data: item_counts.Data) -> list[lab.Table]:
    counts, prefixes = (data["capacity"][name].mean("seed") for name in ("count", "prefix"))
    descent = data["descent"]["count"]
    shown = {"count": data["capacity"]["count"], "formula": item_counts.formula(counts, config.n)}
    of_descent = {"count": descent, "formula": item_counts.formula(descent, config.descent_n)}
    return [
        lab.table.table_by_size(
            f"Items recovered, N = {config.n}", shown | {"prefix / count": prefixes / counts}, "d"
        ),
        lab.table.table_by_size(
            f"Items that gradient descent recovers, N = {config.descent_n}", of_descent, "d"
        ),
    ]


def figure(config: Config, data: item_counts.Data) -> Figure:
    """Plot Figure 2: counts by d, with the formula as lines and the theorem's slope dashed."""
    count = data["capacity"]["count"]
    drawn, panels = item_counts.panels(
        count, "d", "alpha", "α = {:g}".format, item_counts.NAMES, fmt=""
    )
    formula = item_counts.formula(count, config.n).transpose("d", "alpha", "optimizer")
    for optimizer, axes in panels.items():
        slopes = [capacity.one_step_exponent(optimizer, alpha) for alpha in config.alphas]
        draw_slopes(axes, count.sel(optimizer=optimizer), "d", "alpha", slopes)
        for alpha, color in zip(config.alphas, COLORS * 2, strict=False):
            axes.plot(
                count.d, formula.sel(alpha=alpha, optimizer=optimizer), color=color, linewidth=1
            )
    drawn.suptitle(f"N = {config.n}; lines: formula at finite d and N; dashed: the theorem's slope")
    return drawn


EXPERIMENT = lab.Experiment(
    "memory-one-step",
    item_counts.LEDGER,
    title="Capacity after one step of gradient descent, Muon and Newton",
    summary=(
        "Counts are those of a formula without a fitted number, which has the theorems' exponents"
        " far out, as 1/(2α ln d) falls."
    ),
    config=Config,
    measure={"capacity": run_steps, "descent": run_descent, "far": run_far},
    statements=states,
    headlines=("counts-by-formula", "exponents-far-out"),
    headlines_read=("capacity", "far"),
    scales={
        "quick": {"seed": 2, "seeds": 23, "descent_seeds": 7500},
        "smoke": {
            "seed": 1,
            "n": 1000,
            "dims": (32, 64),
            "fit_from": 32,
            "alphas": (1.5, 2.0),
            "seeds": 10,
        }
        | {"descent_n": 300, "descent_dims": (16, 32), "descent_seeds": 100},
        "paper": {
            "seed": 1,
            "n": 100_000,
            "dims": (32, 64, 128, 256, 512, 1024),
            "fit_from": 128,
            "seeds": 16,
        },
    },
    figure=figure,
    tables=tables,
)
