"""Appendix B.2: the signal of an item as its spike is added back, the interaction logits, and the loss after one step."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import PAPER
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.plots import COLORS, MARKERS, draw_sweep
from specjax.experiments.verdicts import bound_check, equality_check
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active
from specjax.theory import capacity

RATES = 2.0 ** np.arange(-3, 4)
"""Learning rates of one step with ‖W‖_op = rate · √d, of which the best counts: the corollary's has a power of log d."""
STEP = 1e-3
"""Step of the finite differences, over λ."""


@dataclass(frozen=True)
class Config:
    """Items, dimensions, α, the items whose spikes are added back, and the spikes' sizes over λ = d^-α."""

    n: int = field(default=3000, metadata={"help": "items N"})
    dims: tuple[int, ...] = field(default=(24, 32, 48, 64), metadata={"help": "dimensions d"})
    alpha: float = field(default=1.5, metadata={"help": "exponent of the frequencies"})
    items: tuple[int, ...] = field(default=(0, 9, 99), metadata={"help": "items, from 0, whose spike is added back"})
    spikes: tuple[float, ...] = field(
        default=(0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0), metadata={"help": "spikes q over λ, the first one 0"}
    )
    largest: int = field(default=200, metadata={"help": "items among which interaction logits are looked at"})
    seeds: int = field(default=10, metadata={"help": "draws of the embeddings"})
    seed: int = field(default=0, metadata={"help": "root seed"})

    def __post_init__(self) -> None:
        sweeps.check_common(self.n, self.dims, self.seeds, self.seed)
        sweeps.check_alphas((self.alpha,))
        if not self.items or min(self.items) < 0 or max(self.items) >= self.n:
            raise ValueError(f"items must be from 0 to n - 1 = {self.n - 1}, got {self.items}.")
        if len(self.spikes) < 3 or self.spikes[0] != 0 or list(self.spikes) != sorted(set(self.spikes)):
            raise ValueError(f"spikes needs 0 and two or more larger ones in ascending order, got {self.spikes}.")
        if not 2 <= self.largest <= self.n:
            raise ValueError(f"largest must be from 2 to n={self.n}, got {self.largest}.")


def run(config: Config) -> Data:
    """φ and its slope, logits of h_λ and of the polar factor, and losses, all from one draw of items."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        u, v = sweeps.draw(key, config.n, d)
        q = memory.power_law(config.n, config.alpha)
        size = jnp.asarray(active(d), u.dtype)
        gradient = memory.gradient_at_zero(u, v, q)
        smoothed = -spectral.stabilized_sign(gradient, size**-config.alpha)
        logits = u[: config.largest] @ smoothed @ v[: config.largest].T
        same = jnp.eye(config.largest, dtype=bool)
        root = jnp.sqrt(size)
        return {
            **_added_back(config, u, v, q, size**-config.alpha),
            "interaction": jnp.max(jnp.where(same, 0, jnp.abs(logits))),
            "signal_margin": jnp.min(
                jnp.diagonal(logits) - 0.25 * jnp.minimum(q[: config.largest] / size**-config.alpha, 1) + 4 / root
            ),
            "loss_muon": _best_loss(-spectral.polar(gradient), root * jnp.asarray(RATES, u.dtype), u, v, q),
            "loss_gd": _best_loss(
                -gradient, root * jnp.asarray(RATES, u.dtype) * spectral.spectral_norm(gradient) ** -1, u, v, q
            ),
        }

    axes: dict[str, Sequence[Any]] = {"item": config.items}
    labels: dict[str, dict[str, Sequence[Any]]] = {
        "phi": {**axes, "spike": config.spikes},
        "slope": axes,
        "difference": axes,
        "one_sided_control": axes,
    }
    return {"logits": sweeps.run(of_seed, config.dims, config.seeds, jax.random.key(config.seed), labels)}


def _added_back(config: Config, u: Array, v: Array, q: Array, lam: Array) -> dict[str, Array]:
    """φ at the spikes, φ'(0) by Daleckii–Krein and by central differences, in float64; and a slope with half of its terms.

    The control leaves out the first sum of Appendix B.2, that of (a_k b_l - a_l b_k)².
    """
    with jax.enable_x64(True):
        return jax.jit(partial(_in_float64, config))(u, v, q, lam)


def _in_float64(config: Config, u: Array, v: Array, q: Array, lam: Array) -> dict[str, Array]:
    u, v, q, lam = (a.astype(jnp.float64) for a in (u, v, q, lam))
    gradient = jnp.matmul(u.T, v * q[:, None])
    # The spikes, and the points of a central difference of fourth order, so that what is left is rounding.
    spikes = jnp.asarray(config.spikes) * lam
    sizes = jnp.concatenate([spikes, jnp.asarray([1.0, -1.0, 2.0, -2.0]) * (STEP * lam)])

    def of_item(own: Array, query: Array, frequency: Array) -> tuple[Array, Array, Array, Array]:
        spike = jnp.outer(own, query)
        without = gradient - frequency * spike

        def phi(size: Array) -> Array:
            return own @ spectral.stabilized_sign(without + size * spike, lam) @ query

        values = jax.vmap(phi)(sizes)
        one, minus_one, two, minus_two = values[len(spikes) :]
        difference = (8 * (one - minus_one) - (two - minus_two)) / (12 * STEP)
        # Slopes in units of 1/λ, which float32 holds.
        slope = jax.jvp(phi, (jnp.zeros(()),), (jnp.ones(()),))[1] * lam
        return values[: len(spikes)], slope, difference, _without_first_sum(without, own, query, lam) * lam

    items = np.asarray(config.items)
    outputs = jax.vmap(of_item)(u[items], v[items], q[items])
    names = ("phi", "slope", "difference", "one_sided_control")
    return {name: values.astype(jnp.float32) for name, values in zip(names, outputs, strict=True)}


def _without_first_sum(without: Array, own: Array, query: Array, lam: Array) -> Array:
    left, s, right = jnp.linalg.svd(without)
    a, b = left.T @ own, right @ query
    h, slope = s / jnp.hypot(s, lam), lam**2 / jnp.hypot(s, lam) ** 3
    gap = s[:, None] - s[None, :]
    divided = jnp.where(gap == 0, 0, (h[:, None] - h[None, :]) / jnp.where(gap == 0, 1, gap))
    cross = a[:, None] * b[None, :]
    return 0.25 * jnp.sum(divided * (cross + cross.T) ** 2) + jnp.sum(slope * (a * b) ** 2)


def _best_loss(direction: Array, rates: Array, u: Array, v: Array, q: Array) -> Array:
    """The least loss of one step from zero along `direction` over learning rates."""
    return jnp.min(jax.lax.map(lambda rate: memory.loss(rate * direction, u, v, q), rates))


def checks(config: Config, data: Data) -> list[Check]:
    """Slopes, monotony, the two bounds on logits, and the losses."""
    logits = data["logits"]
    phi = logits["phi"].astype(float)
    slope = logits["slope"].astype(float)
    interaction = sweep.fit_power_law(logits["interaction"].astype(float), "d")
    loss = {name: logits[f"loss_{name}"].astype(float) for name in ("muon", "gd")}
    loss_fit = sweep.fit_power_law(loss["muon"], "d")
    bound = capacity.loss_exponent("muon", config.alpha)
    return [
        equality_check(
            "slope-by-daleckii-krein",
            f"{PAPER}, Proposition E.1 and eq. 7",
            "φ'(0) by the Daleckii–Krein formula is that of finite differences.",
            error=float(abs(logits["difference"] / slope - 1).max()),
            control=float(abs(logits["one_sided_control"] / slope - 1).min()),
            tolerance=1e-5,
        ),
        bound_check(
            "signal-is-nondecreasing",
            f"{PAPER}, Appendix B.2",
            "φ(q) is nondecreasing in every draw, up to 1e-6 for rounding.",
            smallest_margin=float(phi.diff("spike").min()) + 1e-6,
        ),
        bound_check(
            "signal-lower-bound",
            f"{PAPER}, Appendix B.2",
            f"γ_ii ≥ min(p_i/λ, 1)/4 - 4/√d for the first {config.largest} items, in every draw.",
            smallest_margin=float(logits["signal_margin"].min()),
        ),
        bound_check(
            "interactions-vanish",
            f"{PAPER}, Proposition F.1",
            f"√d max |γ_ij| over the first {config.largest} items grows by a power of d below 1/4, as a power of log d would: exponent of "
            "max |γ_ij| with 4 standard errors below -1/4.",
            smallest_margin=-0.25 - interaction.exponent - 4 * interaction.stderr,
        ),
        bound_check(
            "loss-falls",
            f"{PAPER}, Corollary 3.2",
            f"Muon's loss falls no slower than d^{bound / 2:.3g}, half the corollary's power, logarithms aside; 4 standard errors.",
            smallest_margin=bound / 2 - loss_fit.exponent + 4 * loss_fit.stderr,
        ),
        bound_check(
            "muon-loss-below-gd",
            f"{PAPER}, Section 3",
            "At the largest d one step of Muon has less mean loss than one of gradient descent, each at the best of seven rates.",
            smallest_margin=float((loss["gd"] - loss["muon"]).isel(d=-1).mean()),
        ),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Losses, largest interaction and slopes by d."""
    logits = data["logits"]
    rows = []
    for name in ("loss_muon", "loss_gd", "interaction"):
        mean, stderr = sweep.mean_and_stderr(logits[name].astype(float))
        fit = sweep.fit_power_law(logits[name].astype(float), "d")
        cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(mean.values, stderr.values, strict=True))
        rows.append((name, *cells, f"{fit.exponent:.2f} ({fit.interval[0]:.2f}, {fit.interval[1]:.2f})"))
    for item in config.items:
        values = logits["slope"].sel(item=item, drop=True).astype(float)
        mean, stderr = sweep.mean_and_stderr(values)
        fit = sweep.fit_power_law(values, "d")
        cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(mean.values, stderr.values, strict=True))
        rows.append(
            (f"λ φ'(0), item {item}", *cells, f"{fit.exponent:.2f} ({fit.interval[0]:.2f}, {fit.interval[1]:.2f})")
        )
    title = f"N = {config.n}, α = {config.alpha:g}; the loss of W = 0 is log N = {np.log(config.n):.3f}"
    return [Table(title, ("", *(f"d = {d}" for d in config.dims), "exponent"), tuple(rows))]


def plot(config: Config, data: Data) -> Figure:
    """φ against the spike at the largest d, and losses and interactions against d."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    logits = data["logits"]
    for item, color, marker in zip(config.items, COLORS * 2, MARKERS * 2, strict=False):
        mean, stderr = sweep.mean_and_stderr(
            logits["phi"].sel(item=item, drop=True).isel(d=-1, drop=True).astype(float)
        )
        left.errorbar(
            config.spikes, mean, yerr=2 * stderr, fmt=f"{marker}-", color=color, capsize=2, label=f"item {item + 1}"
        )
    left.set_xscale("symlog", linthresh=config.spikes[1])
    left.set_xlabel("spike q / λ")
    left.set_ylabel(f"signal φ(q), d = {config.dims[-1]}")
    left.legend(fontsize="small")
    for name, color, marker in (("loss_muon", "C0", "o"), ("loss_gd", "C1", "s")):
        label = {"loss_muon": "Muon, best of 7 rates", "loss_gd": "GD, best of 7 rates"}[name]
        draw_sweep(middle, logits[name].astype(float), "d", label=label, color=color, marker=marker, line=True)
    middle.set_xlabel("dimension d")
    middle.set_ylabel("loss after one step")
    middle.legend(fontsize="small")
    draw_sweep(right, logits["interaction"].astype(float), "d", label="max |γ_ij|", color="C2", line=True)
    dims = np.asarray(config.dims, float)
    right.plot(dims, np.sqrt(4 * np.log(config.largest) / dims), "k:", linewidth=1, label="√(4 log M / d)")
    right.set_xlabel("dimension d")
    right.set_ylabel(f"largest interaction of M = {config.largest} items")
    right.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="memory-logits",
    paper=PAPER,
    source="associative-memory, Appendix B.2, Propositions E.1 and F.1, Corollary 3.2",
    title="Signal and interaction logits, and the loss after one step",
    summary=(
        "Adding an item's spike back raises its signal monotonically, at the slope of Daleckii and Krein; interactions are of the order "
        "1/√d up to a logarithm; one step of Muon has less loss than one of gradient descent."
    ),
    scales={
        "smoke": Config(n=500, dims=(12, 16, 24, 32), items=(0, 20), largest=50),
        "quick": Config(),
        "paper": Config(n=20_000, dims=(32, 64, 128, 256), seeds=16),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
"""Appendix B.2 and Corollary 3.2 with their verdicts."""
