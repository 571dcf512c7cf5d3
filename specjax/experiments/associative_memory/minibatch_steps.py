"""Figure 5b: steps of Muon on fresh minibatches; a batch of B shows B^(1/α) items."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral
from specjax.experiments.associative_memory import item_counts, sampled_items
from specjax.lab.drawing import draw_curves
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active, mask
from specjax.theory.finite_capacity import distinct_items


class Config(sampled_items.Config):
    """Items, d, α, batch sizes and steps; the smallest batches fit without interference."""

    n: int = lab.config.integer(4000, least=2, help="items N")
    d: int = lab.config.integer(64, least=4, help="dimension d")
    alpha: float = lab.config.number(1.5, above=1, help="exponent of the frequencies")
    batches: tuple[int, ...] = lab.config.sizes(
        4, 64, 1024, 4096, points=2, most=lab.config.MOST_COUNT, help="batch sizes"
    )
    steps: int = lab.config.integer(12, least=4, most=lab.config.MOST_COUNT, help="steps T")
    rate: float = lab.config.number(1.0, above=0, help="learning rate over √d")
    seeds: int = lab.config.seeds(30, least=10, help="samples of embeddings and batches")
    dims: tuple[int, ...] = lab.config.sizes(
        16, 24, 32, 48, 64, least=4, points=2, help="dimensions d of the Hessian"
    )
    hessian_seeds: int = lab.config.seeds(100, least=10, help="samples of the Hessian at each")

    def __post_init__(self) -> None:
        super().__post_init__()
        sampled_items.check_items(self.n, (self.d,))
        batches, steps, (small, large) = self.batches, self.steps, self.batches[-2:]
        if large % small or large // small > steps:
            times = f"a number up to steps={steps}"
            raise ValueError(
                f"The largest of batches={batches} must be the one before it times {times}."
            )
        if distinct_items(self.n, self.alpha, batches[0] * steps) > self.d / 2:
            room = f"d/2 = {self.d / 2:g} items in steps={steps} steps"
            raise ValueError(
                f"The smallest of batches={batches} needs to hold fewer than {room}; take a smaller"
                " one."
            )


def run(config: Config, key: Key[Array, ""]) -> item_counts.Data:
    """Counts of recovered and seen items after each step; batches are nested."""

    def measure(key: Array, d: AnySize) -> dict[str, Array]:
        of_items, of_batches = jax.random.split(key)
        u, v, p = sampled_items.sample(of_items, config.n, d, config.alpha)
        rate = config.rate * jnp.sqrt(jnp.asarray(active(d), u.dtype))

        def run_batch(inputs: tuple[Array, ...]) -> tuple[tuple[Array, Array], dict[str, Array]]:
            w, seen, q = inputs
            w = w - rate * spectral.polar(memory.loss_and_gradient(w, u, v, q).gradient)
            seen, stored = seen | (q > 0), memory.recovered(u, v, w)
            return (w, seen), {"count": jnp.sum(stored), "seen": jnp.sum(seen)}

        def step(
            state: tuple[Array, Array], t: Array
        ) -> tuple[tuple[Array, Array], dict[str, Array]]:
            qs = memory.minibatches(jax.random.fold_in(of_batches, t), p, config.batches)
            return jax.lax.map(run_batch, (*state, qs))

        batches = len(config.batches)
        start = memory.init(u, batches), jnp.zeros((batches, config.n), bool)
        return jax.lax.scan(step, start, jnp.arange(config.steps))[1]

    tried = tuple(2**k for k in range(int(max(config.dims) ** config.alpha).bit_length() + 4))

    def hessian(key: Array, d: AnySize) -> dict[str, Array]:
        of_items, of_batch = jax.random.split(key)
        v, p = memory.isotropic(of_items, config.n, d), memory.power_law(config.n, config.alpha)

        def smallest(q: Array) -> Array:
            # The eigenvalues of its other factor do not depend on the batch.
            factor = memory.hessian_at_zero(v, v, q).right
            return jnp.linalg.eigvalsh(factor + jnp.diag(jnp.where(mask(d), 0.0, 1.0)))[0]

        found = jax.lax.map(
            smallest, jnp.concatenate([memory.minibatches(of_batch, p, tried), p[None]])
        )
        return {"draws": jnp.asarray(tried, float)[jnp.argmax(4 * found[:-1] > found[-1])]}

    t = range(1, config.steps + 1)
    of_items, of_hessian = (
        sizes.stream(key, f"items and batches of {name}") for name in ("figure 5b", "the Hessian")
    )
    capacity = sampled_items.run(
        measure, (config.d,), config.seeds, of_items, t=t, batch=config.batches
    ).isel(d=0)
    return {
        "capacity": capacity,
        "hessian": sampled_items.run(hessian, config.dims, config.hessian_seeds, of_hessian),
    }


states = lab.Statements()
NOTHING = item_counts.store_nothing("capacity")
ALL_STORED = {"all that is seen is stored": lab.controls.replacing("count", "seen", of="capacity")}
EXCHANGED = lab.controls.changing(lambda data: lab.controls.reverse(data, "batch"), of="capacity")
SAMPLES = {
    "the number of samples": item_counts.change_values(
        lambda count: count.t + 0 * count, "capacity"
    ),
    "a number that does not grow": lab.controls.replacing("count", 3, of="capacity"),
}
BY_FINITE_D = (
    "It asked for 0.05, which a smoke run showed to be less than what a finite d adds; judged on a"
    " fresh seed."
)
OFF = item_counts.shift_exponents(0.5, "hessian", "draws", "the exponent {:+}")


@states("figure-5b", controls=NOTHING | {"the batches exchanged": EXCHANGED})
def small_batches_are_stored(config: Config, data: item_counts.Data) -> lab.Relation:
    """In the smallest batches Muon stores more than four fifths of the items seen so far, after
    every step.
    """
    one = data["capacity"].isel(
        batch=0, drop=True
    )  # the information-theoretic limit is what has been observed
    return lab.above(
        (one["count"] / one["seen"]).rename("stored / seen"), 0.8, "0.8 of the items seen"
    )


@states("figure-5b", controls=NOTHING | SAMPLES, post_hoc=BY_FINITE_D)
def small_batches_rate(config: Config, data: item_counts.Data) -> lab.Relation:
    """In the smallest batches the capacity grows with the number of samples as that of distinct
    items does, to half of 1 - 1/α.
    """
    # That number is (B T)^(1/α) for many samples of many more items, up to a factor; the number of
    # samples has the exponent 1.
    slope = item_counts.pseudo_slopes(data["capacity"]["count"].isel(batch=0, drop=True), "t")
    samples = [float(t * config.batches[0]) for t in data["capacity"].t.values]
    expected = np.polyfit(
        np.log(samples), np.log([distinct_items(config.n, config.alpha, m) for m in samples]), 1
    )[0]
    return lab.near(slope, float(expected), (1 - 1 / config.alpha) / 2, "half of 1 - 1/α")


@states(
    "figure-5b",
    controls=ALL_STORED | {"the smallest batches in the place of the largest": EXCHANGED},
)
def large_batches_saturate(config: Config, data: item_counts.Data) -> lab.Relation:
    """Larger batches saturate: in the end the share stored of the items seen is in the largest less
    than half of that in the smallest.
    """
    share = (data["capacity"]["count"] / data["capacity"]["seen"]).isel(t=-1, drop=True)
    small, large = (share.isel(batch=place, drop=True) for place in (0, -1))
    return lab.ahead(
        small.rename("half the share in the smallest") / 2, large.rename("largest"), least=0
    )


@states("figure-5b", controls=NOTHING | ALL_STORED)
def sample_efficiency_worsens(config: Config, data: item_counts.Data) -> lab.Relation:
    """Their sample efficiency is worse: of equally many samples one step with all stores less than
    several with the batch before.
    """
    # Paired by seed; smaller batches are the beginnings of larger ones.
    count, factor = (
        data["capacity"]["count"].astype(float),
        config.batches[-1] // config.batches[-2],
    )
    several, one = (
        count.isel(batch=-2, drop=True).sel(t=factor, drop=True),
        count.isel(batch=-1, t=0, drop=True),
    )
    return lab.ahead(several.rename("several steps"), one.rename("one step"), least=0)


@states("appendix-b-1-batch", controls=OFF | item_counts.reverse_sizes("hessian", "draws"))
def batch_of_the_hessian(config: Config, data: item_counts.Data) -> lab.Relation:
    """The batch from which on the Hessian at W = 0 has the population's smallest eigenvalue, to a
    factor of 4, grows as d^α, to 1/4.
    """
    # With fewer samples the Hessian is singular; 1/4 is half of the distance from d^α to Muon's
    # critical batch d^(α+1/2).
    return lab.near(item_counts.straight(data["hessian"]["draws"]), config.alpha, 0.25, "1/4")


def figure(config: Config, data: item_counts.Data) -> Figure:
    """Plot Figure 5b: stored items by samples, a curve per batch size, and the distinct items."""
    drawn = Figure(figsize=(6.5, 4.2), layout="constrained")
    axes = drawn.subplots()
    draw_curves(axes, data["capacity"]["count"], "t", "batch", "B = {}".format, per_curve=True)
    samples = np.geomspace(config.batches[0], config.batches[-1] * config.steps, 60)
    axes.plot(
        samples,
        [distinct_items(config.n, config.alpha, m) for m in samples],
        "k--",
        label="distinct items",
    )
    axes.set(xscale="log", yscale="log", xlabel="samples B t", ylabel=f"items stored of {config.n}")
    axes.set_title(
        f"Muon on fresh minibatches, d = {config.d} (± 2 standard errors)", fontsize="medium"
    )
    axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "memory-minibatch-steps",
    item_counts.LEDGER,
    title="Capacity after several steps of Muon on fresh minibatches",
    summary=(
        "Muon stores nearly all of few items seen; batches that show more than a step can store are"
        " wasted in part."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seed": 1},
        "smoke": {
            "n": 1000,
            "d": 32,
            "batches": (4, 256, 1024),
            "steps": 4,
            "dims": (16, 24, 32),
            "hessian_seeds": 20,
        },
        "paper": {
            "seed": 3,
            "n": 40_000,
            "d": 128,
            "batches": (8, 128, 2048, 8192, 32_768),
            "steps": 20,
            "seeds": 48,
        },
    },
    figure=figure,
)
