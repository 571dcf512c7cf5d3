"""A = I + λ 1 1ᵀ: features whose mean grows with λ, from st(A) = k to 1, and who gains from it."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.validation import check_root_seed, check_seeds
from specjax.experiments.verdicts import bound_check, equality_check
from specjax.models import random_features as model
from specjax.theory import one_step as theory

ROUNDING = 1e-9
GONE = 1e-12
"""A relative gap below this leaves no gradient to speak of."""


@dataclass(frozen=True)
class Config:
    """Strengths λ of the mean; the first must be 0, where A is the identity."""

    k: int = field(default=48, metadata={"help": "features, samples and outputs"})
    strengths: tuple[float, ...] = field(
        default=(0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), metadata={"help": "λ, ascending from 0"}
    )
    steps: int = field(default=50, metadata={"help": "iterations of both methods"})
    seeds: int = field(default=5, metadata={"help": "draws of the teacher"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        if len(self.strengths) < 2 or self.strengths[0] != 0 or not np.all(np.diff(self.strengths) > 0):
            raise ValueError(f"strengths must ascend from 0 and be at least two, got {self.strengths}.")
        if self.k < 4 or self.steps < 1:
            raise ValueError(f"The trajectories need k >= 4 and steps >= 1, got {self.k} and {self.steps}.")
        check_seeds("seeds", self.seeds)
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """Relative gaps after `steps` iterations of GD, SpecGD and SpecGD from the peak of GD's rank; the first step of both."""

    def measure(key: Array, k: int, strength: Array) -> dict[str, Array]:
        a = jnp.eye(k) + strength
        b = model.second_moment(a, a)
        path = model.trajectory(b, b, model.weights(key, k, k))
        times = jnp.arange(config.steps + 1)
        ranks = jax.lax.map(lambda t: spectral.nuclear_rank(model.rotated_gradient_at(path, t)), times)
        start = model.gap_at(path, 0)
        # Where A is the identity GD is done after one step, and the gradients behind it are rounding.
        alive = jax.vmap(lambda t: model.gap_at(path, t))(times) > GONE * start
        peak = jnp.argmax(jnp.where(alive, ranks, 0))
        first = theory.compare(path.initial, jnp.diag(path.eigenvalues))
        spectral_gap = model.spectral_descent(path, model.rotated_error_at(path, 0), config.steps).gap
        restarted = model.spectral_descent(path, model.rotated_error_at(path, peak), config.steps).gap
        return {
            "stable_rank": spectral.stable_rank(a),
            "gd_gap": model.gap_at(path, config.steps) / start,
            "spectral_gap": spectral_gap[-1] / start,
            "restarted_gap": restarted[config.steps - peak] / start,
            "gain": (first.spectral - first.gd) / start,
            "advantage": first.advantage,
            "threshold": first.threshold,
        }

    with jax.enable_x64(True):
        return {
            "mean": sweep.run(
                measure,
                {"k": sweep.widths(config.k), "strength": sweep.values(*config.strengths)},
                seeds=config.seeds,
                key=jax.random.key(config.seed),
                plan="exact",
            )
        }


def checks(config: Config, data: Data) -> list[Check]:
    """The closed form of st(A), the exact rule at W_0, and the two ends of the sweep."""
    found = data["mean"].isel(k=0)
    strengths = np.asarray(config.strengths)[:, None]
    with jax.enable_x64(True):
        closed, other = (
            np.asarray(theory.identity_plus_rank_one_stable_rank(config.k, jnp.asarray(x)))
            for x in (strengths, strengths + 0.1 / config.k)
        )
    ahead = found["gd_gap"] - found["spectral_gap"]
    agreement = found["gain"] * np.sign(found["advantage"] - found["threshold"])
    source = "spectral-criterion, Section 1.2 [ours]"
    return [
        equality_check(
            "mean-stable-rank",
            source,
            "A = I + λ 1 1ᵀ has st(A) = (k - 1 + (1 + λk)²)/(1 + λk)².",
            error=np.abs(found["stable_rank"].values / closed - 1),
            control=np.abs(found["stable_rank"].values / other - 1).max(),
            tolerance=ROUNDING,
        ),
        bound_check(
            "mean-first-step",
            source,
            "At W_0 the spectral step gains more exactly where nr/st > (2 - ρ)/(2 - τ), at every λ.",
            smallest_margin=float(agreement.min()) + ROUNDING,
        ),
        bound_check(
            "no-mean-gd-ahead",
            source,
            f"Without a mean, λ = 0, GD has the smaller gap after {config.steps} iterations, in every draw.",
            smallest_margin=-float(ahead.isel(strength=0).max()),
        ),
        bound_check(
            "strong-mean-spectral-ahead",
            source,
            f"At λ = {config.strengths[-1]:g} SpecGD has, in every draw.",
            smallest_margin=float(ahead.isel(strength=-1).min()),
        ),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Per strength: ranks at W_0, and gaps relative to the first."""
    found = data["mean"].isel(k=0)
    names = ("stable_rank", "advantage", "threshold", "gd_gap", "spectral_gap", "restarted_gap")
    header = ("λ", "st(A)", "nr/st at W_0", "threshold", "gap, GD", "SpecGD", "SpecGD from the peak of GD's nr")
    rows = [
        (f"{strength:g}", *(f"{float(found[name].sel(strength=strength).mean()):.3g}" for name in names))
        for strength in config.strengths
    ]
    return [Table(f"A = I + λ 1 1ᵀ, k = {config.k}, {config.steps} iterations", header, tuple(rows))]


def plot(config: Config, data: Data) -> Figure:
    """Left: nr(∇L(W_0)) against st(A) as the mean grows. Right: gaps after the same number of iterations."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    found = data["mean"].isel(k=0)
    x = found["strength"].values
    nuclear = found["advantage"] * found["stable_rank"]
    for axes, curves in (
        (left, (("st(A)", found["stable_rank"]), ("nr(∇L(W_0))", nuclear))),
        (
            right,
            (
                ("GD", found["gd_gap"]),
                ("SpecGD", found["spectral_gap"]),
                ("SpecGD from the peak of GD's nr", found["restarted_gap"]),
            ),
        ),
    ):
        for index, (label, values) in enumerate(curves):
            middle = values.mean("seed").values
            axes.plot(x, middle, marker="os^"[index], color=f"C{index}", label=label)
            axes.fill_between(x, values.min("seed"), values.max("seed"), color=f"C{index}", alpha=0.25, linewidth=0)
        axes.set_xscale("symlog", linthresh=float(x[1]))
        axes.set_yscale("log")
        axes.set_xlabel("strength λ of the mean")
        axes.legend(fontsize="small")
    right.set_ylim(1e-8, 1)
    right.set_ylabel(f"gap after {config.steps} iterations, over the first")
    left.set_ylabel("rank")
    return figure


EXPERIMENT = Experiment(
    name="mean-strength",
    paper="spectral-criterion",
    source="spectral-criterion, Section 1.2",
    title="From the identity to a spike: who gains as the mean of the features grows",
    summary=(
        "As the mean of the features grows, st(A) falls from k to 1 by its closed form. Without a mean GD is ahead, with a strong one "
        "SpecGD is; the exact threshold tells the first step of both at every strength between."
    ),
    scales={
        "smoke": Config(k=16, strengths=(0.0, 0.01, 0.1, 1.0), steps=20, seeds=2),
        "quick": Config(),
        "paper": Config(k=200, steps=200),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
