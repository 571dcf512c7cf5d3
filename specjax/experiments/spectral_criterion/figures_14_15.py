"""Figures 14 and 15: the nuclear rank of the gradient of ReLU random-feature regression along gradient descent, models I and II."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import mean_of
from specjax.experiments.plots import draw_sweep, slope_label
from specjax.experiments.validation import check_root_seed, check_sizes
from specjax.experiments.verdicts import exponent_check
from specjax.models import random_features as model

MODELS = {"realizable": "model I", "teacher_student": "model II"}
STAGES = {"before": 0, "after": 1, "window": -1}
"""Steps at which the rank is fitted to a power of k: W_0 and W_1 (Figure 15), and t = k/2, where it is near its peak (Figure 14)."""


@dataclass(frozen=True)
class Config:
    """Sizes of the paper: k features of k/2 inputs, 2k samples, k outputs."""

    ks: tuple[int, ...] = field(default=(32, 64, 128, 256, 512), metadata={"help": "features"})
    steps: int = field(default=1024, metadata={"help": "steps of gradient descent that are drawn"})
    points: int = field(default=5, metadata={"help": "steps at which the rank is computed for the curves"})
    seeds: int = field(default=10, metadata={"help": "draws of weights, samples and teachers"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_sizes("ks", self.ks, least=8, points=5)
        if self.steps < 2 or self.points < 2:
            raise ValueError(f"A curve needs steps >= 2 and points >= 2, got {self.steps} and {self.points}.")
        if self.seeds < 10:
            raise ValueError(f"seeds must be at least 10, for an exponent with an interval, got {self.seeds}.")
        check_root_seed(self.seed)


def times(config: Config, k: int) -> tuple[int, ...]:
    """The steps of the curve of k features: 0, 1 and others evenly spaced on a logarithmic axis, and last of all k/2."""
    grid = np.unique(np.round(np.geomspace(1, config.steps, config.points)).astype(int))
    return 0, *(int(t) for t in grid), k // 2


def run(config: Config) -> Data:
    """Ranks along both models."""
    over = {"k": sweep.zipped(k=sweep.widths(*config.ks), d=sweep.widths(*(k // 2 for k in config.ks)))}

    def measure(key: Array, k: int, d: int) -> dict[str, Array]:
        return ranks(key, k, d, times(config, k))

    with jax.enable_x64(True):
        return {"ranks": sweep.run(measure, over, seeds=config.seeds, key=jax.random.key(config.seed), plan="exact")}


def ranks(key: Array, k: int, d: int, steps: tuple[int, ...]) -> dict[str, Array]:
    """nr(∇L(W_t)) of both models at the given steps, with the step size 1/λ_1(B) (c = 1 of Theorem 3.6)."""
    key_rows, key_teacher = jax.random.split(key)
    # Weights and samples in one draw: a generator takes long to compile.
    v, v_bar, x = jnp.split(model.weights(key_rows, 4 * k, d), [k, 2 * k])
    a, a_bar = (model.relu_features(w, jnp.sqrt(float(d)) * x.T) for w in (v, v_bar))
    teacher = model.weights(key_teacher, k, k)
    b = model.second_moment(a, a)
    paths = [model.trajectory(b, cross, teacher) for cross in (b, model.second_moment(a_bar, a))]
    gradients = jnp.stack([model.rotated_gradient_at(path, t) for path in paths for t in steps])
    # A sum of singular values does not need the digits of those in float64, which take twice the time.
    scaled = gradients / jnp.max(jnp.abs(gradients), axis=(-2, -1), keepdims=True)
    found = spectral.nuclear_rank(scaled.astype(jnp.float32))
    return dict(zip(MODELS, jnp.split(found, 2), strict=True))


def rank_at(data: xr.Dataset, name: str, stage: str) -> xr.DataArray:
    """The ranks of one model at one of `STAGES`."""
    return data[name].isel({f"{name}_dim_0": STAGES[stage]}).rename(f"{name} {stage}")


def curve(config: Config, data: xr.Dataset, name: str, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps in ascending order, and the ranks there, (seeds, steps)."""
    steps, where = np.unique(times(config, k), return_index=True)
    return steps, np.asarray(data[name].sel(k=k).transpose("seed", ...).values[:, where])


def checks(config: Config, data: Data) -> list[Check]:
    """Powers of k before, after the first step and in the window."""
    statements = {
        "before": (0, "Figure 15", "nr(∇L(W_0)) does not grow with k"),
        "after": (1, "Figure 15", "nr(∇L(W_1)) grows as k"),
        "window": (1, "Figure 14", "nr(∇L(W_t)) at t = k/2 grows as k"),
    }
    return [
        exponent_check(
            f"{name.replace('_', '-')}-{stage}",
            f"spectral-criterion, {source}",
            f"In {label} with ReLU features {statement}.",
            predicted=power,
            fit=sweep.asymptotic_exponent(rank_at(data["ranks"], name, stage), "k"),
            resolution=0.5,
        )
        for name, label in MODELS.items()
        for stage, (power, source, statement) in statements.items()
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Ranks of both models at the start, after one step, at the peak and at the end."""
    rows = []
    for name, label in MODELS.items():
        for k in config.ks:
            at = [rank_at(data["ranks"], name, stage).sel(k=k) for stage in ("before", "after")]
            grid, values = curve(config, data["ranks"], name, k)
            mean = values.mean(axis=0)
            peak = int(np.argmax(mean))
            cells = [str(mean_of(v.values)) for v in at]
            last = mean[np.searchsorted(grid, config.steps)]
            rows.append((label, str(k), *cells, f"{mean[peak]:.1f} at {grid[peak]}", f"{last:.1f}"))
    header = ("", "k", "nr at W_0", "nr at W_1", "peak", f"nr at W_{config.steps}")
    return [Table("Nuclear rank of the gradient, ReLU features, d = k/2, n = 2k, m = k", header, tuple(rows))]


def plot(config: Config, data: Data) -> Figure:
    """Left and middle: nr against the step (Figure 14). Right: before and after the first step, against k (Figure 15)."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    axes = figure.subplots(1, 3)
    for panel, (name, label) in zip(axes[:2], MODELS.items(), strict=True):
        for index, k in enumerate(config.ks):
            grid, values = curve(config, data["ranks"], name, k)
            panel.plot(grid, values.mean(axis=0), color=f"C{index}", marker=".", linewidth=1, label=f"k = {k}")
            panel.fill_between(grid, values.min(axis=0), values.max(axis=0), color=f"C{index}", alpha=0.25, linewidth=0)
        panel.set_xscale("symlog", linthresh=1)
        panel.set_yscale("log", base=2)
        panel.set_xlabel("step t")
        panel.set_ylabel(f"nr(∇L(W_t)), {label}")
        panel.legend(fontsize="small")
    styles = iter(zip(("C0", "C0", "C1", "C1"), "osos", strict=True))
    for name, label in MODELS.items():
        for step, stage in enumerate(("before", "after")):
            color, marker = next(styles)
            staged = rank_at(data["ranks"], name, stage)
            fit = sweep.asymptotic_exponent(staged, "k")
            text = slope_label(f"{label}, t = {step}", fit.exponent, fit.interval[1] - fit.exponent)
            draw_sweep(axes[2], staged, "k", label=text, color=color, marker=marker, line=True)
    axes[2].set_xlabel("features k")
    axes[2].set_ylabel("nr(∇L(W_t))")
    axes[2].legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="figures-14-and-15",
    paper="spectral-criterion",
    source="spectral-criterion, Figures 14 and 15",
    title="Nuclear rank of the gradient along gradient descent with ReLU features",
    summary=(
        "Before the first step the nuclear rank of the gradient does not grow with the number of features, after it it grows in "
        "proportion, in the realizable and in the teacher-student model, and it stays high for hundreds of steps."
    ),
    scales={
        "smoke": Config(ks=(8, 16, 24, 32, 48), steps=64, points=4),
        "quick": Config(),
        "paper": Config(points=60, seeds=20),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
