"""Theorems 4.1 and 4.2: several steps on the gradient of eq. 5, which the items up to d_t have left before step t + 1.

As in memory-one-step, nothing is divided by a power that is under test: counts are those of a formula at the same d, N and α without a
fitted number (`specjax.theory.thresholded_capacity`); so are their exponents; and the formula's own local exponents far out, N = d^(2α+2),
are the theorems' for each step. There the last item that is recovered is (2 log N)^(-1/(2α)) of a power of d, N being the number of
competitors, whence a local exponent that is lower by 1/(2α ln d).
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import PAPER
from specjax.experiments.ledgers import ledger
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize
from specjax.theory import capacity, thresholded_capacity

STEPS = 4
OPTIMIZERS = ("muon", "gd")
SHARES = {"muon": 1 / 8, "gd": 1.0}
"""d_t over d^(e_t). The constant of Theorem 4.1 is (log d)^-14; with an eighth about half of the items up to d_t are recovered by then."""
ACCURACY = 0.1
"""How far the formulas, which are of leading order in 1/d at every step, may be from counts."""
SLOPE = 0.1
"""How far an exponent may be off: the theorem's exponents are so far apart up to its last step."""
OTHER = 4.0
"""By what factor other learning rates are larger or smaller, at most, at each step by itself."""
MORE = 1.5
"""How much more they may recover: a constant, where a better order would be a power of d."""
FAR = {"muon": (2.0**31, 2.0**32), "gd": (2.0**34, 2.0**36)}
"""Dimensions at which the formula's local exponents are taken."""
FAR_SLOPE = 0.015
"""What logarithms leave in local exponents at these dimensions; half of 1/(2α ln d) at α = 1.25 and less."""

Data = Mapping[str, xr.Dataset]


class Config(lab.Config):
    """Items, dimensions and exponents of the frequencies."""

    n: int = lab.integer(2500, least=2, help="items N")
    dims: tuple[int, ...] = lab.sizes(96, 192, least=4, points=2, help="dimensions d")
    alphas: tuple[float, ...] = lab.numbers(1.25, 1.5, 2.0, above=1, help="exponents of the frequencies")
    seeds: int = lab.seeds(24, least=10, help="draws of the embeddings")
    descent_n: int = lab.integer(700, least=2, help="items N of the draws of gradient descent")
    descent_dims: tuple[int, ...] = lab.sizes(32, 128, least=4, points=2, help="dimensions d of these")
    descent_seeds: int = lab.seeds(80, least=10, help="their number")
    far_seeds: int = lab.seeds(2, help="dimensions far out at which the formula's exponents are taken")

    def __post_init__(self) -> None:
        super().__post_init__()
        for optimizer, n, d in (("muon", self.n, self.dims[-1]), ("gd", self.descent_n, self.descent_dims[-1])):
            last = max(
                thresholded_capacity.thresholds(optimizer, d, a, STEPS, SHARES[optimizer])[-1] for a in self.alphas
            )
            if not last + d < n:
                field = "n" if optimizer == "muon" else "descent_n"
                raise ValueError(f"{field} must exceed {last + d:.0f}, the last threshold and d = {d}, got {n}.")


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Counts after each step for every α; of gradient descent also with other learning rates; and the formula's exponents far out."""
    exponents = {
        name: jnp.asarray([capacity.multi_step_exponents(name, alpha, STEPS) for alpha in config.alphas])
        for name in OPTIMIZERS
    }
    places = jnp.arange(len(config.alphas)), jnp.asarray(config.alphas)

    def powers(d: AnySize, exponent: Array) -> Array:
        return jnp.asarray(sizes.active(d), jnp.float32) ** exponent

    def thresholds(name: str, d: AnySize, exponent: Array) -> Array:
        return (SHARES[name] * powers(d, exponent)).at[0].set(0)[:STEPS]

    def muon(key: Array, d: AnySize) -> dict[str, Array]:
        def of_alpha(inputs: tuple[Array, Array, Array]) -> Array:
            place, alpha, exponent = inputs
            u, v = sweeps.draw(jax.random.fold_in(key, place), config.n, d)
            q, item = memory.power_law(config.n, alpha), jnp.arange(1, config.n + 1, dtype=u.dtype)

            def step(w: Array, bound: Array) -> tuple[Array, Array]:
                w = w + sweeps.polar_step(u, v, jnp.where(item > bound, q, 0))
                return w, memory.count(memory.recovered(u, v, w))

            return jax.lax.scan(step, jnp.zeros((u.shape[1], u.shape[1])), thresholds("muon", d, exponent))[1]

        return {"count": jax.lax.map(of_alpha, (*places, exponents["muon"]))}

    def descent(key: Array, d: AnySize) -> dict[str, Array]:
        # Draws of their own at every d and α, so that means over them have as little noise as they can.
        of_d = jax.random.fold_in(key, sizes.active(d))

        def of_alpha(inputs: tuple[Array, Array, Array]) -> Array:
            place, alpha, exponent = inputs
            of_items, of_rates = jax.random.split(jax.random.fold_in(of_d, place))
            u, v = sweeps.draw(of_items, config.descent_n, d)
            q, item = memory.power_law(config.descent_n, alpha), jnp.arange(1, config.descent_n + 1, dtype=u.dtype)
            bounds = thresholds("gd", d, exponent)
            rates = powers(d, alpha * exponent[1:])
            factors = OTHER ** jax.random.uniform(of_rates, (STEPS,), minval=-1.0, maxval=1.0)

            def after(inputs: tuple[Array, Array]) -> Array:
                t, rates = inputs
                done = jnp.where(jnp.arange(STEPS) < t, rates, 0)
                c = q * jnp.sum(jnp.where(item[:, None] > bounds[None, :], done[None, :], 0), axis=1)
                # So few items that all logits at once are fast.
                logits = v @ ((u * c[:, None]).T @ v).T @ u.T
                others = jnp.where(jnp.eye(config.descent_n, dtype=bool), -jnp.inf, logits)
                return jnp.sum(jnp.diagonal(logits) > jnp.max(others, axis=1))

            steps = jnp.tile(jnp.arange(1, STEPS + 1), 2)
            schedules = jnp.repeat(jnp.stack([rates, rates * factors]), STEPS, axis=0)
            return jax.lax.map(after, (steps, schedules)).reshape(2, STEPS)

        both = jax.lax.map(of_alpha, (*places, exponents["gd"]))
        return {"count": both[:, 0], "other": both[:, 1]}

    labels = {"alpha": config.alphas, "t": range(1, STEPS + 1)}
    return {
        "muon": sweeps.run(muon, config.dims, config.seeds, sizes.stream(key, "thresholded Muon"), {"count": labels}),
        "gd": sweeps.run(
            descent,
            config.descent_dims,
            config.descent_seeds,
            sizes.stream(key, "thresholded descent"),
            {"count": labels, "other": labels},
        ),
        "far": _far(config, np.asarray(jax.random.uniform(sizes.stream(key, "far"), (config.far_seeds,)), float)),
    }


def _far(config: Config, places: np.ndarray) -> xr.Dataset:
    """The formulas' local exponents between d/4 and 4 d with N = d^(2α+2), at a drawn d for each seed, and the theorems' exponents."""
    shape = (len(OPTIMIZERS), len(config.alphas), len(places), STEPS)
    logs, found, theorem = (np.empty(shape) for _ in range(3))
    for i, j, k in np.ndindex(shape[:-1]):
        name, alpha = OPTIMIZERS[i], config.alphas[j]
        low, high = np.log(FAR[name])
        logs[i, j, k] = log_d = low + (high - low) * places[k]
        small, large = (_far_capacities(name, float(np.exp(log_d)) * step, alpha) for step in (0.25, 4.0))
        found[i, j, k] = np.log(large / small) / np.log(16)
        theorem[i, j, k] = capacity.multi_step_exponents(name, alpha, STEPS)[1:]
    dims = ("optimizer", "alpha", "seed", "t")
    values = {"log_d": (dims, logs), "exponent": (dims, found), "theorem": (dims, theorem)}
    coords = {"optimizer": list(OPTIMIZERS), "alpha": list(config.alphas), "t": range(1, STEPS + 1)}
    return xr.Dataset(values, coords=coords)


def _far_capacities(name: str, d: float, alpha: float) -> np.ndarray:
    """The last item that Muon recovers, whose earlier items are the smaller part by a small power of d only, or the count of descent."""
    n = d ** (2 * alpha + 2)
    after = thresholded_capacity.thresholds(name, d, alpha, STEPS, SHARES[name])
    if name == "muon":
        return np.array([thresholded_capacity.last_item(d, n, alpha, after[:t]) for t in range(1, STEPS + 1)])
    return thresholded_capacity.expected_counts(name, d, n, alpha, after, thresholded_capacity.rates(d, alpha, STEPS))


@lru_cache(maxsize=256)
def _expected(name: str, d: int, n: int, alpha: float) -> tuple[float, ...]:
    after = thresholded_capacity.thresholds(name, d, alpha, STEPS, SHARES[name])
    etas = thresholded_capacity.rates(d, alpha, STEPS) if name == "gd" else None
    return tuple(thresholded_capacity.expected_counts(name, d, n, alpha, after, etas))


def _formula(config: Config, data: Data, name: str) -> xr.DataArray:
    """The formula's counts at the points of an optimizer's."""
    count, n = data[name]["count"], config.n if name == "muon" else config.descent_n
    values = [[_expected(name, d, n, alpha) for alpha in count.alpha.values] for d in count.d.values.tolist()]
    return xr.DataArray(values, {dim: count[dim] for dim in ("d", "alpha", "t")}, ("d", "alpha", "t"), "formula")


def _counts_of(name: str) -> Any:
    """The statement about counts, of one optimizer; one step of gradient descent is judged in memory-one-step, with more draws."""

    def counts(config: Config, data: Data) -> lab.Relation:
        ratio = (data[name]["count"] / _formula(config, data, name)).rename("count / formula").mean("d")
        return lab.below(
            sweeps.both_sides(ratio.sel(t=slice(_FIRST[name], None)), 1.0), ACCURACY, f"{ACCURACY:.0%} of the formula"
        )

    return counts


def _exponents_of(name: str) -> Any:
    """The statement about exponents, of one optimizer."""

    def exponents(config: Config, data: Data) -> lab.Relation:
        slope = sweeps.pseudo_slopes(data[name]["count"].astype(float))
        formula = sweeps.slopes(sweeps.log(_formula(config, data, name)))
        excess = (slope - formula).mean("alpha").sel(t=slice(_FIRST[name], None)).rename("slope less the formula's")
        return lab.below(sweeps.both_sides(excess), SLOPE, f"{SLOPE}")

    return exponents


_FIRST = {"muon": 1, "gd": 2}
_SAYS = {"muon": "thresholded Muon", "gd": "thresholded gradient descent with growing learning rates"}
_CITES = {"muon": "theorem-4-1", "gd": "theorem-4-2"}


def _changed(name: str, change: Any) -> Any:
    """A control: other counts of an optimizer."""
    return lab.replacing("count", lambda data: change(data["count"]), of=name)


def _powers(name: str, other: str) -> Any:
    """A control: counts that grow with the exponents of the other theorem."""

    def change(count: xr.DataArray) -> xr.DataArray:
        of, mine = (
            np.array([capacity.multi_step_exponents(which, alpha, STEPS)[1:] for alpha in count.alpha.values])
            for which in (other, name)
        )
        return count * (count.d / count.d[0]) ** xr.DataArray(of - mine, dims=("alpha", "t"))

    return _changed(name, change)


def _controls(name: str, other: str) -> dict[str, Any]:
    return {
        "W = 0": _changed(name, lambda count: 0 * count),
        "one step in the place of several": _changed(name, lambda count: count.isel(t=0, drop=True) + 0 * count),
        "the sizes exchanged": _changed(
            name, lambda count: count.isel(d=slice(None, None, -1)).assign_coords(d=count.d)
        ),
        "the other theorem's exponents": _powers(name, other),
    }


STATEMENTS = [
    statement
    for name, other in (OPTIMIZERS, OPTIMIZERS[::-1])
    for statement in (
        lab.statement(
            _CITES[name],
            f"The mean counts after each step of {_SAYS[name]} are those of the finite-size formula, to 10 % in the mean over d, "
            "at every α.",
            name=f"{name}-counts-by-formula",
            controls=_controls(name, other)
            | {f"{by:g} times the counts": _changed(name, lambda count, by=by: by * count) for by in (0.8, 1.2)},
        )(_counts_of(name)),
        lab.statement(
            _CITES[name],
            f"The counts of {_SAYS[name]} grow with d by the formula's exponents at each step, to 0.1 in the mean over α.",
            name=f"{name}-exponents-by-formula",
            controls=_controls(name, other)
            | {
                f"the exponents {by:+}": _changed(name, lambda count, by=by: count * (count.d / count.d[0]) ** by)
                for by in (SLOPE, -SLOPE)
            },
        )(_exponents_of(name)),
    )
]


def _theorem(change: Any) -> Any:
    """A control: other exponents in the place of the theorems'."""
    return lab.replacing("theorem", lambda data: change(data["theorem"]), of="far")


@lab.statement(
    ("theorem-4-1", "theorem-4-2", "section-4-early"),
    "Far out, where N = d^(2α+2), the formula's local exponents after each step are the theorems', less 1/(2α ln d) but for the first step "
    "of gradient descent.",
    controls={f"the theorems' exponents {by:+}": _theorem(lambda theorem, by=by: theorem + by) for by in (0.05, -0.05)}
    | {
        "without 1/(2α ln d)": lab.replacing("log_d", np.inf, of="far"),
        "the first step's exponents": _theorem(lambda theorem: theorem.isel(t=0, drop=True) + 0 * theorem),
        "each other's exponents": _theorem(lambda t: t.isel(optimizer=[1, 0]).assign_coords(optimizer=t.optimizer)),
        "gradient descent without a second regime": _theorem(
            lambda theorem: theorem.where(theorem.optimizer != "gd", theorem.t / (2 * theorem.alpha))
        ),
    },
)
def exponents_far_out(config: Config, data: Data) -> lab.Relation:
    """Each step by itself, in both regimes of gradient descent."""
    far = data["far"]
    lost = xr.where((far.optimizer == "gd") & (far.t == 1), 0.0, 1 / (2 * far.alpha * far["log_d"]))
    return lab.identity(
        abs(far["exponent"] - (far["theorem"] - lost)).rename("error of the exponent"), tolerance=FAR_SLOPE
    )


@lab.statement(
    "theorem-4-2",
    "Learning rates that are up to 4 times larger or smaller, each by itself, recover no more than 1.5 times as many items.",
    controls={
        "items of a step more": lab.replacing(
            "other", lambda data: data["other"] * data.d ** (1 / (2 * data.alpha)), of="gd"
        )
    },
)
def no_better_rates(config: Config, data: Data) -> lab.Relation:
    """The bound holds for any learning rates; the ratio of means by the jackknife would say the same of counts this large."""
    mean = data["gd"]["count"].mean("seed")
    return lab.below(
        (data["gd"]["other"] / mean).rename("other rates / growing rates").isel(t=slice(1, None)),
        MORE,
        f"{MORE:g} times",
    )


EXPERIMENT = lab.Experiment(
    "memory-thresholded",
    ledger(PAPER),
    title="Capacity after several thresholded steps of Muon and of gradient descent",
    summary="With thresholds that are the theorems' powers of d, counts after each of four steps are those of a formula at finite d and N "
    "without a fitted number, for Muon and for gradient descent with growing rates. Far out its exponents are those of Theorems 4.1 and "
    "4.2, step by step, less 1/(2α ln d).",
    config=Config,
    measure=run,
    statements=(*STATEMENTS, exponents_far_out, no_better_rates),
    # Sizes and draws were chosen by runs with smaller seeds.
    scales={
        "quick": {"seed": 1},
        "smoke": {
            "n": 1000,
            "dims": (48, 96),
            "alphas": (1.25, 2.0),
            "seeds": 10,
            "descent_n": 400,
            "descent_dims": (16, 64),
            "descent_seeds": 20,
        },
        "paper": {
            "n": 20_000,
            "dims": (64, 96, 128, 192, 256),
            "seeds": 30,
            "descent_dims": (32, 64, 128),
            "descent_seeds": 1000,
        },
    },
)
"""Theorems 4.1 and 4.2 with their verdicts."""
