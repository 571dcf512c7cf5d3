"""Appendix B.2: the signal of an item as its spike is added back, the interaction logits, and the loss after one step.

The paper's bounds have no constants. What they say of orders is judged: the signal of items at a fixed fraction of d, whose frequencies
are a fixed multiple of λ = d^-α, is of order 1; interactions fall as 1/√d; the loss is of the order of the mass of
the items that were not recovered, whose number is the business of `memory-one-step`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import PAPER, SETTLES
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS, MARKERS, draw_sweep
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active

RATES = 2.0 ** np.arange(-1, 4)
"""Learning rates of one step with ‖W‖_op = rate · √d, of which the best counts: the corollary's has a power of log d."""
STEP = 1e-3
"""Step of the finite differences, over λ."""
TERMS = ("antisymmetric", "symmetric", "diagonal")
"""The three sums of the slope in Appendix B.2, in their order."""
PLACES = (0.125, 0.25, 0.5)
"""Items, over d, whose frequency is above λ = d^-α."""
HEAD = 60
"""Items of the problem on which the Hessian is taken by automatic differentiation, at the smallest d."""


class Config(lab.Config):
    """Items, dimensions, α, the items whose spikes are added back, and the spikes' sizes over λ = d^-α."""

    seed: int = lab.integer(1, least=0, help="root of all randomness, a fresh one for the rules that were changed")
    n: int = lab.integer(1500, least=HEAD, help="items N")
    dims: tuple[int, ...] = lab.sizes(24, 32, 48, 64, 96, least=4, points=3, help="dimensions d")
    alpha: float = lab.number(1.5, above=1, help="exponent of the frequencies")
    items: tuple[int, ...] = lab.sizes(0, 9, 99, least=0, help="items, from 0, whose spike is added back")
    spikes: tuple[float, ...] = lab.numbers(
        0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, above=-1, help="spikes q over λ, the first one 0"
    )
    seeds: int = lab.seeds(30, least=10, help="draws of the embeddings")

    def __post_init__(self) -> None:
        super().__post_init__()
        sweeps.check_items(self.n, self.dims)
        if max(self.items) >= self.n:
            raise ValueError(f"items must be from 0 to n - 1 = {self.n - 1}, got {self.items}.")
        if len(self.spikes) < 3 or self.spikes[0] != 0 or list(self.spikes) != sorted(self.spikes):
            raise ValueError(f"spikes needs 0 and two or more larger ones in ascending order, got {self.spikes}.")


states = lab.Statements()


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """φ and its slope, logits of h_λ and of the gradient itself, losses, and the Hessian, all from one draw of items."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        u, v = sweeps.draw(key, config.n, d)
        q = memory.power_law(config.n, config.alpha)
        size = jnp.asarray(active(d), u.dtype)
        root, lam = jnp.sqrt(size), size**-config.alpha
        gradient = memory.gradient_at_zero(u, v, q)
        maps = {
            "": -spectral.stabilized_sign(gradient, lam),
            "_gd": -gradient / spectral.spectral_norm(gradient),
        }
        signals = {
            f"signal{name}": jnp.stack([_block_mean(jnp.sum((u @ w) * v, axis=1), size, c) for c in PLACES])
            for name, w in maps.items()
        }
        polar, rates = -spectral.polar(gradient), root * jnp.asarray(RATES, u.dtype)
        lost = {"muon": polar, "gd": maps["_gd"]}
        return {
            **_added_back(config, u, v, q, lam),
            **signals,
            "interaction": _largest_interaction(maps[""], u, v),
            **{f"loss_{name}": _best_loss(w, rates, u, v, q) for name, w in lost.items()},
            **{f"unrecovered_{name}": jnp.sum(jnp.where(memory.recovered(u, v, w), 0, q)) for name, w in lost.items()},
        }

    axes: dict[str, Sequence[Any]] = {"item": config.items}
    labels: dict[str, dict[str, Sequence[Any]]] = {
        **{name: {**axes, "spike": config.spikes} for name in ("phi", "phi_falling")},
        **dict.fromkeys(("difference", *TERMS), axes),
        **{name: {"place": PLACES} for name in ("signal", "signal_gd")},
    }
    data = sweeps.run(of_seed, config.dims, config.seeds, sizes.stream(key, "items"), labels)
    errors = jax.jit(jax.vmap(partial(_hessian, config)))(jax.random.split(sizes.stream(key, "Hessian"), config.seeds))
    return data.assign({name: ("seed", np.asarray(error)) for name, error in errors.items()})


def _block_mean(logits: Array, d: Array, place: float) -> Array:
    """The mean signal of the items from place · d/2 on to place · d."""
    item = jnp.arange(1, len(logits) + 1, dtype=logits.dtype)
    inside = (item > place * d / 2) & (item <= place * d)
    return jnp.sum(jnp.where(inside, logits, 0)) / jnp.maximum(jnp.sum(inside, dtype=logits.dtype), 1)


def _largest_interaction(w: Array, u: Array, v: Array) -> Array:
    """The largest |u_jᵀ W v_i| over all i ≠ j."""

    def of_item(inputs: tuple[Array, Array]) -> Array:
        i, y = inputs
        return jnp.max(jnp.where(jnp.arange(len(u)) == i, 0, jnp.abs(u @ y)))

    return jnp.max(jax.lax.map(of_item, (jnp.arange(len(u)), v @ w.T), batch_size=256))


def _added_back(config: Config, u: Array, v: Array, q: Array, lam: Array) -> dict[str, Array]:
    """In float64: φ at the spikes, also of a map that falls, φ'(0) by central differences, and the sums of its closed form."""
    with jax.enable_x64(True):
        return jax.jit(partial(_in_float64, config))(u, v, q, lam)


def _in_float64(config: Config, u: Array, v: Array, q: Array, lam: Array) -> dict[str, Array]:
    u, v, q, lam = (a.astype(jnp.float64) for a in (u, v, q, lam))
    gradient = jnp.matmul(u.T, v * q[:, None])
    # The spikes, and the points of a central difference of fourth order, so that what is left is rounding.
    spikes = jnp.asarray(config.spikes) * lam
    points = jnp.concatenate([spikes, jnp.asarray([1.0, -1.0, 2.0, -2.0]) * (STEP * lam)])

    def of_item(inputs: tuple[Array, Array, Array]) -> dict[str, Array]:
        own, query, frequency = inputs
        spike = jnp.outer(own, query)
        without = gradient - frequency * spike

        def phi(q: Array) -> Array:
            return own @ spectral.stabilized_sign(without + q * spike, lam) @ query

        def phi_falling(q: Array) -> Array:
            return own @ spectral.spectral_map(without + q * spike, lambda s: lam * s / (s**2 + lam**2)) @ query

        values = jax.lax.map(phi, points)
        one, minus_one, two, minus_two = values[len(spikes) :]
        # Slopes in units of 1/λ, which float32 holds.
        return {
            "phi": values[: len(spikes)],
            "phi_falling": jax.lax.map(phi_falling, spikes),
            "difference": (8 * (one - minus_one) - (two - minus_two)) / (12 * STEP),
            **{name: term * lam for name, term in zip(TERMS, _slope(without, own, query, lam), strict=True)},
        }

    items = np.asarray(config.items)
    outputs = jax.lax.map(of_item, (u[items], v[items], q[items]))
    return {name: values.astype(jnp.float32) for name, values in outputs.items()}


def _slope(without: Array, own: Array, query: Array, lam: Array) -> tuple[Array, Array, Array]:
    """The three sums of φ'(0) in Appendix B.2."""
    left, s, right = jnp.linalg.svd(without)
    a, b = left.T @ own, right @ query
    h, derivative = s / jnp.hypot(s, lam), lam**2 / jnp.hypot(s, lam) ** 3

    def quotient(over: Array, under: Array) -> Array:
        return jnp.where(under == 0, 0, over / jnp.where(under == 0, 1, under))

    sums = quotient(h[:, None] + h[None, :], s[:, None] + s[None, :])
    differences = quotient(h[:, None] - h[None, :], s[:, None] - s[None, :])
    cross = a[:, None] * b[None, :]
    return (
        0.25 * jnp.sum(sums * (cross - cross.T) ** 2),
        0.25 * jnp.sum(differences * (cross + cross.T) ** 2),
        jnp.sum(derivative * (a * b) ** 2),
    )


def _best_loss(direction: Array, rates: Array, u: Array, v: Array, q: Array) -> Array:
    """The least loss of one step from zero along `direction` over learning rates."""
    return jnp.min(jax.lax.map(lambda rate: memory.loss(rate * direction, u, v, q), rates))


def _hessian(config: Config, key: Array) -> dict[str, Array]:
    """Relative errors of ∇²L(0)[Δ] = Σ_u Δ M_v at Δ = ∇L(0), with Σ_u centred and not, against the derivative of the gradient."""
    u, v = sweeps.draw(key, HEAD, config.dims[0])
    q = memory.power_law(HEAD, config.alpha)

    def gradient(w: Array) -> Array:
        return (jax.nn.softmax(v @ w.T @ u.T, axis=1) @ u - u).T @ (v * q[:, None])

    zero = jnp.zeros((u.shape[1], u.shape[1]), u.dtype)
    direction = gradient(zero)
    exact = jax.jvp(gradient, (zero,), (direction,))[1]
    factors = memory.hessian_at_zero(u, v, q)
    lefts = {"hessian": factors.left, "hessian_uncentred": u.T @ u / len(u)}
    return {
        name: jnp.linalg.norm(left @ direction @ factors.right - exact) / jnp.linalg.norm(exact)
        for name, left in lefts.items()
    }


def _without(term: str) -> Any:
    """A control: the closed form of the slope without one of its sums."""
    return lab.replacing(term, 0.0)


@states(
    ("proposition-e-1", "eq-7", "lemma-e-2"),
    "φ'(0) is the sum of Appendix B.2 over pairs of singular values, and of finite differences the same, for every item.",
    controls={f"without the {term} sum": _without(term) for term in TERMS},
)
def slope(config: Config, data: xr.Dataset) -> lab.Relation:
    """In float64; what is left is the rounding of differences at 1e-3 λ and of storing in float32."""
    closed = sum(data[term] for term in TERMS)
    return lab.identity(
        (abs(closed - data["difference"]) / abs(data["difference"])).rename("relative error"), tolerance=1e-5
    )


@states(
    ("appendix-b-2-monotone", "lemma-e-2"),
    "The signal φ(q) does not decrease in q, in every draw.",
    controls={"a map that falls beyond λ": lab.replacing("phi", "phi_falling")},
)
def signal_does_not_decrease(config: Config, data: xr.Dataset) -> lab.Relation:
    """Between successive spikes: beyond 10 λ it is close to its limit, so that the bound is near."""
    phi = data["phi"].astype(float)
    lower, upper = phi.isel(spike=slice(None, -1)), phi.isel(spike=slice(1, None))
    # Differences relative to signals that may be near 0: one is added to both sides.
    return lab.always(1 + lower.assign_coords(spike=upper.spike), 1 + upper, slack=0.05, rounding=1e-6)


def _gd_signal(config: Config, data: xr.Dataset) -> xr.Dataset:
    return data.assign(signal=data["signal_gd"])


def times_power(name: str, by: float) -> Any:
    """A control: a quantity whose exponent is off."""
    return lab.replacing(name, lambda data: data[name] * data.d.astype(float) ** by)


@states(
    "appendix-b-2-signal",
    "The mean signal γ_ii under h_λ of the items at d/4 to d/2, of frequency above λ = d^-α, is d^0, to 1/4.",
    controls={"gradient descent": _gd_signal}
    | {f"d^({by:+}) times it": times_power("signal", by) for by in (0.5, -0.5)},
    post_hoc=SETTLES,
)
def signal_order(config: Config, data: xr.Dataset) -> lab.Relation:
    """Where min(q_i/λ, 1) is 1; the next candidate is 1/√d, the order of the interactions."""
    return sweeps.has_exponent(data["signal"].sel(place=PLACES[-1], drop=True), 0.0, 0.25)


@states(
    "appendix-b-2-signal",
    "The mean signal of all items of frequency above λ is at least 1/2 less √(log d/d), which is positive, at every d.",
    controls={"gradient descent": _gd_signal, "W = 0": lab.replacing("signal", 0.0)},
)
def signal_bound(config: Config, data: xr.Dataset) -> lab.Relation:
    """The bound of the paper with the constants 1/2 and 1, where it says something: min(q_i/λ, 1) = 1."""
    d = data.d.astype(float)
    bound = (0.5 - np.sqrt(np.log(d) / d)).broadcast_like(data["signal"].isel(seed=0, drop=True))
    return lab.above(data["signal"], bound, "1/2 - √(log d/d)")


@states(
    "proposition-f-1",
    "The largest |γ_ij| over all pairs of items falls as 1/√d at a given N, to 1/8.",
    controls={f"d^({by:+}) times it": times_power("interaction", by) for by in (0.25, -0.25)},
)
def interactions(config: Config, data: xr.Dataset) -> lab.Relation:
    """Of all N items, the frequent ones with one another among them; powers of log d aside, which 1/4 is more than."""
    return sweeps.has_exponent(data["interaction"], -0.5, 0.125)


def _loss_over_mass(data: xr.Dataset) -> xr.DataArray:
    ratios = [(data[f"loss_{name}"] / data[f"unrecovered_{name}"]).astype(float) for name in ("muon", "gd")]
    return xr.concat(ratios, xr.DataArray(["muon", "gd"], dims="optimizer", name="optimizer")).rename(
        "loss / mass not recovered"
    )


@states(
    ("corollary-3-2", "appendix-g-1-loss"),
    "The loss after one step of Muon, and of gradient descent, is d^0 times the mass of the items not recovered, to 1/4.",
    controls={
        "losses that stay, as that of W = 0": lambda config, data: data.assign(loss_muon=1 + 0 * data["loss_muon"]),
        "gradient descent's loss in Muon's place": lab.replacing("loss_muon", "loss_gd"),
    },
    post_hoc=SETTLES,
)
def loss_is_the_mass_left(config: Config, data: xr.Dataset) -> lab.Relation:
    """The mass of the items beyond the capacity is the bound of both; that the capacity is the theorems' is judged in memory-one-step."""
    return sweeps.has_exponent(_loss_over_mass(data), 0.0, 0.25)


@states(
    ("section-3-muon-above-sgd", "corollary-3-2"),
    "At the largest d one step of Muon has less loss than one of gradient descent, each at the best of five rates.",
    controls={
        "the two exchanged": lambda config, data: data.assign(loss_gd=data["loss_muon"], loss_muon=data["loss_gd"])
    },
)
def muon_has_less_loss(config: Config, data: xr.Dataset) -> lab.Relation:
    """Paired by draw."""
    gd, muon = (data[f"loss_{name}"].isel(d=-1, drop=True) for name in ("gd", "muon"))
    return lab.ahead(gd, muon, least=0.0)


@states(
    "lemma-g-2",
    "The Hessian of the loss at W = 0 maps Δ to Σ_u Δ M_v.",
    controls={"Σ_u not centred": lab.replacing("hessian", "hessian_uncentred")},
)
def hessian(config: Config, data: xr.Dataset) -> lab.Relation:
    """At Δ = ∇L(0), against the derivative of the gradient, in float32."""
    return lab.identity(data["hessian"], tolerance=1e-4)


def tables(config: Config, data: xr.Dataset) -> list[lab.Table]:
    """Losses, the largest interaction, signals and slopes by d."""
    rows = []
    shown = {name: data[name] for name in ("loss_muon", "loss_gd", "unrecovered_muon", "interaction")}
    shown |= {f"signal, items to {c:g} d": data["signal"].sel(place=c, drop=True) for c in PLACES}
    shown |= {f"λ φ'(0), item {item}": data["difference"].sel(item=item, drop=True) for item in config.items}
    for name, values in shown.items():
        mean, stderr = sweep.mean_and_stderr(values.astype(float))
        slopes, error = sweep.mean_and_stderr(sweeps.slopes(sweeps.log(values.astype(float))))
        cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(mean.values, stderr.values, strict=True))
        rows.append((name, *cells, f"{float(slopes):.2f} ± {float(error):.2f}"))
    title = f"N = {config.n}, α = {config.alpha:g}; the loss of W = 0 is log N = {np.log(config.n):.3f}"
    return [lab.Table(title, ("", *(f"d = {d}" for d in config.dims), "slope"), tuple(rows))]


def figure(config: Config, data: xr.Dataset) -> Figure:
    """φ against the spike at the largest d, losses, and interactions, against d."""
    drawn = Figure(figsize=(13, 4), layout="constrained")
    left, middle, right = drawn.subplots(1, 3)
    for item, color, marker in zip(config.items, COLORS * 2, MARKERS * 2, strict=False):
        mean, stderr = sweep.mean_and_stderr(data["phi"].sel(item=item, drop=True).isel(d=-1, drop=True).astype(float))
        left.errorbar(
            config.spikes, mean, yerr=2 * stderr, fmt=f"{marker}-", color=color, capsize=2, label=f"item {item + 1}"
        )
    left.set_xscale("symlog", linthresh=config.spikes[1])
    left.set_xlabel("spike q / λ")
    left.set_ylabel(f"signal φ(q), d = {config.dims[-1]}")
    for name, label, color in (("muon", "Muon", "C0"), ("gd", "GD", "C1")):
        draw_sweep(
            middle,
            data[f"loss_{name}"].astype(float),
            "d",
            label=f"{label}, best of {len(RATES)} rates",
            color=color,
            line=True,
        )
    middle.set_ylabel("loss after one step")
    draw_sweep(right, data["interaction"].astype(float), "d", label="max |γ_ij|", color="C2", line=True)
    dims = np.asarray(config.dims, float)
    right.plot(dims, np.sqrt(4 * np.log(config.n) / dims), "k:", linewidth=1, label="√(4 log N / d)")
    right.set_ylabel(f"largest interaction of N = {config.n} items")
    for axes in (left, middle, right):
        axes.legend(fontsize="small")
    for axes in (middle, right):
        axes.set_xlabel("dimension d")
    return drawn


EXPERIMENT = lab.Experiment(
    "memory-logits",
    ledger(PAPER),
    title="Signal and interaction logits, and the loss after one step",
    summary="Adding an item's spike back raises its signal monotonically, at the slope of Daleckii and Krein; the signal of items at a "
    "fixed fraction of d is of order 1, interactions are of order 1/√d; the loss is of the order of the mass of the items not recovered.",
    config=Config,
    measure=run,
    statements=states,
    # Sizes and draws were chosen by runs with smaller seeds.
    scales={
        "quick": {"seed": 2},
        "smoke": {"n": 300, "dims": (12, 16, 32), "items": (0, 20), "seeds": 10},
        "paper": {"n": 20_000, "dims": (32, 64, 96, 128, 256), "seeds": 16},
    },
    figure=figure,
    tables=tables,
)
"""Appendix B.2 and Corollary 3.2 with their verdicts."""
