"""The spectral map of the gradient that stores most items in one step, and its gain over Muon's.

The associative-memory paper holds that no separable map has a better exponent than the polar factor
(Appendix C). Among maps of one exponent the best one and its gain are known
(`specjax.theory.best_filter`; docs/beyond/best-filter.md).
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral
from specjax.experiments.associative_memory import item_counts, sampled_items
from specjax.lab.drawing import COLORS, draw_curves, log_axes
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import best_filter as theory

FILTERS = ["polar", "best", "ridge", "ridge, ℓ × 4", "ridge, ℓ / 4"]
"""1; the Hilbert transform of the spectrum; s/(s² + ℓ²) with theory's ℓ for α, and with others."""
NODES = np.geomspace(1e-6, 1e6, 4000)
"""Singular values over their median at which the best filter is tabulated."""


LEDGER = lab.ledger.Ledger.from_conjectures(
    "best-filter",
    gain=(
        "The spectral map that stores most items is the Hilbert transform of the spectrum, with a"
        " tenth more than the polar factor."
    ),
    ridge="s/(s² + ℓ²), which needs no decomposition, is as good to half a per cent.",
    later_steps="What is best for one step from W = 0 is not best for several.",
    recall_training=(
        "A transformer that learns recall from skewed outputs recalls more under Muon with s/(s² +"
        " ℓ²), since that forgets the largest singular values."
    ),
    gpt_training="In a small GPT s/(s² + ℓ²) changes little.",
    gpt_gain="In a small GPT too s/(s² + ℓ²) is ahead of the polar factor, by a little.",
)

FEW_ALPHA, STEPS, BATCH, RATES = 1.5, 8, 5000, (2.0, 4.0, 8.0, 16.0, 32.0)

Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Numbers of items, dimensions, exponents and seeds."""

    seed: int = lab.config.root_seed(
        3, help="root of all randomness, a fresh one for what was changed"
    )
    n: int = lab.config.integer(5000, least=2, help="items N")
    dims: tuple[int, ...] = lab.config.sizes(128, 256, least=4, points=2, help="dimensions d")
    alphas: tuple[float, ...] = lab.config.numbers(
        1.25, 1.5, 2.0, above=1, help="exponents of the frequencies"
    )
    seeds: int = lab.config.seeds(36, help="samples of the embeddings")
    few_n: int = lab.config.integer(1000, least=2, help="items for several steps, at α = 1.5")
    few_d: int = lab.config.integer(48, least=4, help="the dimension there")
    few_seeds: int = lab.config.seeds(20, help="samples there")

    def __post_init__(self) -> None:
        super().__post_init__()
        sampled_items.check_items(self.n, self.dims)
        sampled_items.check_items(self.few_n, (self.few_d,))


def maps(
    x: Float[Array, " d"], best: Float[Array, " nodes"], share: Float[Array, ""]
) -> Float[Array, "filters d"]:
    """Map singular values over their median by all filters."""
    best, share = best.astype(x.dtype), share.astype(x.dtype)
    tabulated = jnp.interp(jnp.log(x), jnp.log(jnp.asarray(NODES, x.dtype)), best)
    return jnp.stack(
        [jnp.ones_like(x), tabulated, *(x / (x**2 + (by * share) ** 2) for by in (1.0, 4.0, 0.25))]
    )


def one_step(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Counts after one population step by every filter, with filters of the theory, in float64."""
    tables = np.stack([theory.best_filter(NODES, alpha) for alpha in config.alphas])
    shares = np.array([theory.best_share(alpha) for alpha in config.alphas])

    def count_at(
        key: Array, d: AnySize, alpha: Array, best: Array, share: Array
    ) -> dict[str, Array]:
        u, v, q = sampled_items.sample(key, config.n, d, alpha)
        steps = memory.mapped_steps(u, v, q, jnp.asarray(sizes.active(d)), maps, best, share)
        return {"count": sampled_items.capacities(u, v, steps)["count"]}

    of_seed = sampled_items.map_alphas(
        count_at, config.alphas, jnp.asarray(tables), jnp.asarray(shares)
    )
    return sampled_items.run(
        of_seed, config.dims, config.seeds, key, alpha=config.alphas, filter=FILTERS
    )


def several_steps(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Counts after each of several cross-entropy steps, on population and batches, by rate."""
    methods = {"polar": spectral.SVD(), "ridge": spectral.Tikhonov(theory.best_share(FEW_ALPHA))}

    def measure(key: Array, d: AnySize) -> dict[str, Array]:
        u, v, p = sampled_items.sample(sizes.stream(key, "items"), config.few_n, d, FEW_ALPHA)
        batches = jax.vmap(lambda key: memory.minibatch(key, p, BATCH))(
            jax.random.split(sizes.stream(key, "batches"), STEPS)
        )

        def counts(
            method: spectral.SVD | spectral.Tikhonov, rate: Array, frequencies: Array
        ) -> Array:
            def step(w: Array, q: Array) -> tuple[Array, Array]:
                down = -memory.loss_and_gradient(w, u, v, q)[1]
                w = w + rate * spectral.polar(down, method)
                return w, memory.count_of_few(u, v, w)

            return jax.lax.scan(step, memory.init(u), frequencies)[1]

        found = [
            [
                jax.lax.map(lambda rate, m=m, q=q: counts(m, rate, q), jnp.asarray(RATES))
                for q in (jnp.stack([p] * STEPS), batches)
            ]
            for m in methods.values()
        ]
        return {"count": jnp.stack([jnp.stack(of) for of in found])}

    labels = {
        "filter": list(methods),
        "batch": ["population", str(BATCH)],
        "rate": RATES,
        "step": range(1, STEPS + 1),
    }
    return sampled_items.run(measure, (config.few_d,), config.few_seeds, key, **labels).isel(d=0)


def run(config: Config, key: Key[Array, ""]) -> Data:
    """One step, over d and α; several steps at one of each."""
    return {
        "step": one_step(config, sizes.stream(key, "items")),
        "steps": several_steps(config, sizes.stream(key, "several steps")),
    }


def ratio_of_counts(data: Data, name: str, other: str = "polar") -> xr.DataArray:
    """Items of one filter over those of another after one step, by seed."""
    count = data["step"]["count"].astype(float)
    return (count.sel(filter=name, drop=True) / count.sel(filter=other, drop=True)).rename(
        f"{name} / {other}"
    )


def predicted(config: Config) -> xr.DataArray:
    """The gain of the best filter at every α."""
    return xr.DataArray(
        [theory.gain(alpha) for alpha in config.alphas], {"alpha": list(config.alphas)}, "alpha"
    )


def ridge_at(factor: float) -> Callable[[Config, Data], float]:
    """Items of s/(s² + ℓ²) over those of the best filter by the theory, ℓ this times the best one,
    in the mean over α.
    """

    def ratio(config: Config, data: Data) -> float:
        shares = {alpha: factor * theory.best_share(alpha) for alpha in config.alphas}
        gains = [
            theory.gain(alpha, partial(theory.ridge, share=share)) / theory.gain(alpha)
            for alpha, share in shares.items()
        ]
        return float(np.mean(gains))

    return ratio


def replace_filters(**other: str) -> item_counts.Control:
    """A control with the counts of filters in the place of others'."""
    return lab.controls.changing(
        lambda data: lab.controls.at_labels(data, "filter", other), of="step"
    )


states = lab.Statements()
POST_HOC = (
    "d = 64 was judged too, by 20 samples, whose noise decided nothing; judged by more samples of a"
    " fresh seed."
)
NO_GAIN = {"the polar factor in its place": replace_filters(best="polar", ridge="polar")}


@states(
    "gain",
    "In the mean over d the best filter recovers as many times more items than the polar factor as"
    " the theory has it, 1.104 to 1.107 in the limit, to 0.04 at every α.",
    rivals={"no gain": 1.0, "√d for 1/d": lambda config, data: predicted(config) ** 2},
    controls=NO_GAIN,
    post_hoc=POST_HOC,
)
def gain_as_predicted(config: Config, data: Data) -> lab.Relation:
    """Terms of order ln N/d, which are 6 to 9 % of the polar factor's count, differ between
    filters.
    """
    return lab.near(ratio_of_counts(data, "best").mean("d"), predicted(config), 0.04, "0.04")


@states(
    "gain",
    "The best filter recovers at least 4 % more items than the polar factor, at every α and d.",
    controls=NO_GAIN,
    post_hoc=POST_HOC,
)
def gain_everywhere(config: Config, data: Data) -> lab.Relation:
    return lab.above(ratio_of_counts(data, "best"), 1.04, "4 % more")


@states(
    "ridge",
    "s/(s² + ℓ²) with the ℓ that the theory has for α recovers as many items as the best filter"
    " less 0.1 %, to half of what √2 ℓ or ℓ/√2 would cost by the theory, 1 %, in the mean over α"
    " and d.",
    rivals={"√2 ℓ": ridge_at(2**0.5), "ℓ/√2": ridge_at(2**-0.5)},
    controls={"the polar factor in its place": replace_filters(ridge="polar")}
    | {
        f"{by} the best ℓ": replace_filters(ridge=name)
        for by, name in (("4 ×", FILTERS[3]), ("1/4 of", FILTERS[4]))
    },
    post_hoc=POST_HOC
    + " It asked for 2 % at every d, which √2 ℓ has too; now for half of that factor's cost, on the"
    " same samples.",
)
def ridge_is_as_good(config: Config, data: Data) -> lab.Relation:
    """The nearest ℓ that the data exclude."""
    best, near = (ridge_at(by)(config, data) for by in (1.0, 2**0.5))
    ratio = ratio_of_counts(data, "ridge", "best").mean(["alpha", "d"])
    return lab.near(ratio, best, (best - near) / 2, "half of the cost of √2 ℓ")


@states(
    "ridge",
    "With four times that ℓ, or a quarter of it, s/(s² + ℓ²) recovers fewer items, at the largest d"
    " and every α.",
    controls={
        "the other way round": replace_filters(
            **{"ridge": FILTERS[3], FILTERS[3]: "ridge", FILTERS[4]: "ridge"}
        )
    },
)
def ridge_has_a_best_share(config: Config, data: Data) -> lab.Relation:
    less = [ratio_of_counts(data, name, "ridge").isel(d=-1, drop=True) for name in FILTERS[3:]]
    both = xr.concat(
        less,
        xr.DataArray(["4 ℓ", "ℓ/4"], dims="share", name="share"),
        coords="minimal",
        compat="override",
    )
    return lab.below(both.rename("items over those of ridge"), 1.0, "no loss")


@states(
    "later-steps",
    "From the second step on the polar factor has recovered at least 5 % more items than s/(s² +"
    " ℓ²) with the ℓ of the first step, each at its best rate, on the population and on fresh"
    " batches.",
    controls={
        "the two exchanged": lab.controls.changing(
            lambda data: lab.controls.at_places(data, "filter", [1, 0]), of="steps"
        )
    }
    | lab.controls.without_lead("filter", "polar", "ridge", of="steps"),
    post_hoc=(
        "Twelve samples left one step of fourteen undecided; judged by twenty of a fresh seed."
    ),
)
def polar_is_ahead_later(config: Config, data: Data) -> lab.Relation:
    count = data["steps"]["count"].astype(float).sel(step=slice(2, None))
    # For each filter and step, the rate that is best on average over seeds.
    place = count.mean("seed").argmax("rate")
    polar, ridge = (
        count.isel(rate=place).sel(filter=name, drop=True).drop_vars("rate")
        for name in ("polar", "ridge")
    )
    lead = lab.above((polar / ridge).rename("polar / ridge"), 1.05, "5 % more")
    return lab.within_grid(lead, place, len(RATES))


def figure(config: Config, data: Data) -> Figure:
    """Plot the filters, and their gain by d, with the limit."""
    drawn = Figure(figsize=(4 * (1 + len(config.alphas)), 3.6), layout="constrained")
    shapes, *panels = drawn.subplots(1, 1 + len(config.alphas))
    x = np.geomspace(0.01, 100, 400)
    for color, alpha in zip(COLORS, config.alphas, strict=False):
        best = theory.best_filter(x, alpha)
        shapes.plot(x, best / best.max(), color=color, label=f"best, α = {alpha:g}")
        approximate = theory.ridge(x, theory.best_share(alpha))
        shapes.plot(x, approximate / approximate.max(), ":", color=color)
    shapes.set(
        xscale="log",
        xlabel="singular value / median",
        ylabel="h / largest",
        title="filters (dotted: s/(s² + ℓ²))",
    )
    shapes.legend(fontsize="small")
    for axes, alpha in zip(panels, config.alphas, strict=True):
        gains = xr.concat(
            [ratio_of_counts(data, name) for name in FILTERS[1:]],
            xr.DataArray(FILTERS[1:], dims="filter", name="filter"),
        )
        draw_curves(axes, gains.sel(alpha=alpha), "d", "filter", str)
        axes.axhline(
            theory.gain(alpha), color="black", linewidth=0.8, linestyle="--", label="best, limit"
        )
        axes.axhline(1, color="gray", linewidth=0.8)
        log_axes(axes, gains.d.values)
        axes.set(
            xlabel="d",
            ylabel="items / those of the polar factor",
            yscale="linear",
            title=f"α = {alpha:g}, N = {config.n}",
        )
    panels[-1].legend(fontsize="x-small")
    return drawn


EXPERIMENT = lab.Experiment(
    "best-filter",
    LEDGER,
    title="The polar factor is not the best filter",
    summary=(
        "Which spectral map of the gradient stores most items in one step is known: the Hilbert"
        " transform of the spectrum. It forgets the largest and the smallest singular values alike,"
        " and recovers a tenth more items than the polar factor, at every α and d. Over several"
        " steps the polar factor is ahead."
    ),
    config=Config,
    measure=run,
    statements=states,
    headlines=("gain-as-predicted", "polar-is-ahead-later"),
    # The theory was compared with five seeds under other keys, which set the thresholds.
    scales={
        "quick": {"seeds": 27, "few_seeds": 15},
        "smoke": {
            "n": 1000,
            "dims": (32, 64),
            "seeds": 6,
            "few_n": 300,
            "few_d": 16,
            "few_seeds": 4,
        },
        # Twelve seeds of the other root left three statements open.
        "paper": {"seed": 4, "n": 100_000, "dims": (128, 256, 512), "seeds": 40, "few_n": 1500},
    },
    figure=figure,
)
