"""Figures 3 and 11: GD against SpecGD on random-feature regression with ReLU and with SwiGLU features, and st(A) in the width."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax import sizes, spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import mean_of
from specjax.experiments.plots import draw_sweep, slope_label
from specjax.experiments.validation import check_root_seed, check_seeds, check_sizes
from specjax.experiments.verdicts import bound_check, exponent_check
from specjax.models import random_features as model

FEATURES = ("relu", "swiglu")
RESTARTS = 9
"""Points of gradient descent, evenly spaced, from which SpecGD is started anew; the peak of GD's rank is one more."""
RANK_POINTS = 40


@dataclass(frozen=True)
class Config:
    """Sizes of the paper: W is k×k, inputs d = k/2, samples n = 4k."""

    k: int = field(default=100, metadata={"help": "features and outputs"})
    relu_steps: int = field(default=1000, metadata={"help": "iterations with ReLU features (Figure 3)"})
    swiglu_steps: int = field(default=400, metadata={"help": "iterations with SwiGLU features (Figure 11)"})
    restart_steps: int = field(default=20, metadata={"help": "iterations of SpecGD after each restart"})
    seeds: int = field(default=2, metadata={"help": "draws of the problem"})
    widths: tuple[int, ...] = field(default=(25, 50, 100, 200, 400), metadata={"help": "features for st(A)"})
    width_seeds: int = field(default=12, metadata={"help": "draws at each width"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_sizes("widths", self.widths, least=4, points=5)
        check_seeds("seeds", self.seeds)
        if self.k < 4 or min(self.relu_steps, self.swiglu_steps) < 10 or self.restart_steps < 1:
            raise ValueError(
                "The trajectories need k >= 4, relu_steps and swiglu_steps >= 10 and restart_steps >= 1, got "
                f"{self.k}, {self.relu_steps}, {self.swiglu_steps} and {self.restart_steps}."
            )
        if self.width_seeds < 10:
            raise ValueError(
                f"width_seeds must be at least 10, for an exponent with an interval, got {self.width_seeds}."
            )
        check_root_seed(self.seed)


def steps_of(config: Config, features: str) -> int:
    """The iterations of one figure."""
    return {"relu": config.relu_steps, "swiglu": config.swiglu_steps}[features]


def rank_times(steps: int) -> np.ndarray:
    """Iterations at which the rank along gradient descent is computed: dense at first, where it peaks."""
    return np.unique(np.round(np.append(0, np.geomspace(1, steps, RANK_POINTS))).astype(int))


def restart_times(steps: int) -> np.ndarray:
    """Iterations of gradient descent at which SpecGD is started anew."""
    return np.arange(1, RESTARTS + 1) * steps // (RESTARTS + 1)


def draw(key: Array, features: str, k: int, d: int, n: int) -> tuple[Float[Array, "k n"], Float[Array, "k k"]]:
    """Features A of standard normal inputs, with weights N(0, 1/d), and a teacher with entries N(0, 1/k)."""
    key_rows, key_teacher = jax.random.split(key)
    # Weights and samples in one draw: a generator takes long to compile.
    v, gate, x = jnp.split(model.weights(key_rows, 2 * k + n, d), [k, 2 * k])
    x = jnp.sqrt(float(d)) * x.T
    a = model.relu_features(v, x) if features == "relu" else model.swiglu_features(gate, v, x)
    return a, model.weights(key_teacher, k, k)


def run(config: Config) -> Data:
    """Trajectories for both kinds of features, and their stable rank at every width."""

    def stable_ranks(key: Array, k: int, d: int, n: int) -> dict[str, Array]:
        return {name: _stable_rank(draw(key, name, k, d, n)[0]) for name in FEATURES}

    key, data = jax.random.key(config.seed), {}
    with jax.enable_x64(True):
        for name in FEATURES:
            data[name] = sweep.run(
                lambda key, k, name=name: trajectories(key, name, k, config),
                {"k": sweep.widths(config.k)},
                seeds=config.seeds,
                key=sizes.stream(key, name),
                plan="exact",
            )
        axes = {"k": config.widths, "d": [k // 2 for k in config.widths], "n": [4 * k for k in config.widths]}
        over = {"k": sweep.zipped(**{axis: sweep.widths(*extents) for axis, extents in axes.items()})}
        data["widths"] = sweep.run(
            stable_ranks, over, seeds=config.width_seeds, key=sizes.stream(key, "widths"), plan="exact"
        )
    return data


def _stable_rank(a: Array) -> Array:
    b = model.second_moment(a, a)
    return jnp.trace(b) / jnp.linalg.eigvalsh(b)[-1]


def trajectories(key: Array, features: str, k: int, config: Config) -> dict[str, Array]:
    """Gaps and ranks along GD, by its closed form, and along SpecGD from 0 and from points of GD."""
    a, teacher = draw(key, features, k, k // 2, 4 * k)
    b = model.second_moment(a, a)
    path, steps = model.trajectory(b, b, teacher), steps_of(config, features)
    times = jnp.asarray(rank_times(steps))
    gd_rank = jax.lax.map(lambda t: spectral.nuclear_rank(model.rotated_gradient_at(path, t)), times)
    gd_gap = jax.vmap(lambda t: model.gap_at(path, t))(jnp.arange(steps + 1))
    peak = times[jnp.argmax(gd_rank)]
    starts = jnp.append(jnp.asarray(restart_times(steps)), peak)
    descent = model.spectral_descent(path, model.rotated_error_at(path, 0), steps)
    restarted = jax.vmap(
        lambda t: model.spectral_descent(path, model.rotated_error_at(path, t), config.restart_steps).gap
    )(starts)
    return {
        "stable_rank": jnp.trace(b) / path.eigenvalues[-1],
        "gd_gap": gd_gap,
        "gd_rank": gd_rank,
        "spectral_gap": descent.gap,
        "spectral_rank": descent.nuclear_rank,
        "starts": starts,
        "restarted_gap": restarted,
    }


def checks(config: Config, data: Data) -> list[Check]:
    """Who ends lower, whether (1.5) holds along the trajectories, and the powers of st(A) in the width."""
    relu, swiglu = data["relu"], data["swiglu"]
    lead = {
        name: np.log10((data[name]["gd_gap"][..., -1] / data[name]["spectral_gap"][..., -1]).values)
        for name in FEATURES
    }
    return [
        bound_check(
            "relu-spectral-ahead",
            "spectral-criterion, Figure 3",
            f"With ReLU features SpecGD ends lower than GD after {config.relu_steps} iterations, by powers of ten of the gap.",
            smallest_margin=float(lead["relu"].min()),
        ),
        bound_check(
            "relu-rule-along-gd",
            "spectral-criterion, Figure 3 (i)",
            "nr(∇L) >= st(A) along gradient descent, at every iteration that was looked at.",
            smallest_margin=float((relu["gd_rank"] - relu["stable_rank"]).min()),
        ),
        bound_check(
            "relu-rule-along-spectral",
            "spectral-criterion, Figure 3 (i)",
            "nr(∇L) >= st(A) along SpecGD, at every iteration.",
            smallest_margin=float((relu["spectral_rank"] - relu["stable_rank"]).min()),
        ),
        bound_check(
            "relu-restarts",
            "spectral-criterion, Figure 3 (dashed curves)",
            f"From every point of GD, {config.restart_steps} iterations of SpecGD gain more than as many of GD, in powers of ten.",
            smallest_margin=float(_restart_lead(config, data, "relu").min()),
        ),
        bound_check(
            "swiglu-gd-ahead",
            "spectral-criterion, Figure 11",
            f"With SwiGLU features GD ends lower than SpecGD after {config.swiglu_steps} iterations, by powers of ten of the gap.",
            smallest_margin=float(-lead["swiglu"].max()),
        ),
        bound_check(
            "swiglu-rule-violated",
            "spectral-criterion, Figure 11",
            "nr(∇L) falls below st(A) along gradient descent in every draw: st(A) less the smallest nr.",
            smallest_margin=float((swiglu["stable_rank"] - swiglu["gd_rank"].min("gd_rank_dim_0")).min()),
        ),
        *(
            exponent_check(
                f"{name}-stable-rank",
                f"spectral-criterion, {source}",
                f"st(A) of {label} features grows as k^{power}.",
                predicted=power,
                fit=sweep.asymptotic_exponent(data["widths"][name], "k"),
                resolution=0.5,
            )
            for name, label, power, source in (
                ("relu", "ReLU", 0, "Theorem 2.6"),
                ("swiglu", "SwiGLU", 1, "Section 1.2.2"),
            )
        ),
    ]


def _restart_lead(config: Config, data: Data, features: str) -> np.ndarray:
    """log10 of GD's gap over SpecGD's, both started at the same points of GD, shape (1, seeds, starts).

    Starts within `restart_steps` of the end are compared at the end of the run.
    """
    starts = data[features]["starts"].values
    ends = np.minimum(starts + config.restart_steps, steps_of(config, features))
    gd = np.take_along_axis(data[features]["gd_gap"].values, ends, axis=-1)
    restarted = data[features]["restarted_gap"].values
    spectral_end = np.take_along_axis(restarted, (ends - starts)[..., None], axis=-1)[..., 0]
    return np.asarray(np.log10(gd / spectral_end))


def tables(config: Config, data: Data) -> list[Table]:
    """The numbers that one reads off both figures, and st(A) at every width."""
    rows = []
    for name in FEATURES:
        values = {
            key: data[name][key].values[0]
            for key in ("stable_rank", "gd_gap", "spectral_gap", "gd_rank", "spectral_rank")
        }
        times = rank_times(steps_of(config, name))
        peak = values["gd_rank"].max(axis=-1)
        rows.append(
            (
                name,
                str(mean_of(values["stable_rank"])),
                str(mean_of(values["gd_gap"][:, -1])),
                str(mean_of(values["spectral_gap"][:, -1])),
                f"{mean_of(peak)} at t = {times[values['gd_rank'].argmax(axis=-1)[0]]}",
                str(mean_of(values["gd_rank"][:, -1])),
                str(mean_of(values["spectral_rank"].min(axis=-1))),
            )
        )
    header = ("features", "st(A)", "gap of GD", "gap of SpecGD", "largest nr, GD", "last nr, GD", "smallest nr, SpecGD")
    widths = [
        (str(k), *(str(mean_of(data["widths"][name].sel(k=k).values)) for name in FEATURES)) for k in config.widths
    ]
    return [
        Table("Figures 3 and 11: mean over draws, ± standard error", header, tuple(rows)),
        Table("st(A), d = k/2, n = 4k", ("k", *FEATURES), tuple(widths)),
    ]


def plot(config: Config, data: Data) -> Figure:
    """Rows: ReLU (Figure 3), SwiGLU (Figure 11). Columns: gap, nuclear rank; right: st(A) against the width."""
    figure = Figure(figsize=(13, 7), layout="constrained")
    axes = figure.subplot_mosaic([["relu gap", "relu rank", "st"], ["swiglu gap", "swiglu rank", "st"]])
    for name, label in zip(FEATURES, ("ReLU", "SwiGLU"), strict=True):
        _draw_gaps(axes[f"{name} gap"], config, data, name)
        _draw_ranks(axes[f"{name} rank"], config, data, name)
        axes[f"{name} gap"].set_title(label)
        axes[f"{name} rank"].set_title(label)
    for index, name in enumerate(FEATURES):
        fit = sweep.asymptotic_exponent(data["widths"][name], "k")
        label = slope_label(name, fit.exponent, fit.interval[1] - fit.exponent)
        draw_sweep(axes["st"], data["widths"][name], "k", label=label, color=f"C{index}", marker="os"[index], line=True)
    axes["st"].set_xlabel("features k")
    axes["st"].set_ylabel("st(A)")
    axes["st"].legend()
    return figure


def _draw_gaps(axes: Axes, config: Config, data: Data, name: str) -> None:
    """The first draw, as in the paper."""
    first = data[name].isel(k=0, seed=0)
    axes.plot(first["gd_gap"], color="C0", label="GD")
    axes.plot(first["spectral_gap"], color="C1", label="SpecGD")
    for index, start in enumerate(first["starts"].values):
        peak = index == len(first["starts"]) - 1
        x = np.arange(start, start + config.restart_steps + 1)
        axes.plot(
            x,
            first["restarted_gap"][index],
            color="C2" if peak else "gray",
            linestyle="-" if peak else "--",
            linewidth=1,
            label="SpecGD from GD's peak" if peak else "SpecGD from GD" if index == 0 else None,
        )
    axes.set_yscale("log")
    axes.set_xlabel("iteration")
    axes.set_ylabel("gap")
    axes.legend(fontsize="small")


def _draw_ranks(axes: Axes, config: Config, data: Data, name: str) -> None:
    first = data[name].isel(k=0, seed=0)
    axes.plot(rank_times(steps_of(config, name)), first["gd_rank"], color="C0", label="GD")
    axes.plot(first["spectral_rank"], color="C1", linewidth=0.5, label="SpecGD")
    axes.axhline(float(first["stable_rank"]), color="black", linestyle="--", linewidth=1, label="st(A)")
    axes.set_xlabel("iteration")
    axes.set_ylabel("nr(∇L)")
    axes.legend(fontsize="small")


EXPERIMENT = Experiment(
    name="figures-3-and-11",
    paper="spectral-criterion",
    source="spectral-criterion, Sections 1.2 and 1.2.2, Figures 3 and 11",
    title="GD against SpecGD on ReLU and on SwiGLU features",
    summary=(
        "With ReLU features, whose stable rank does not grow with the width, SpecGD ends lower; with SwiGLU features, whose stable rank "
        "grows in proportion to the width, GD does. nr(∇L) >= st(A) does not hold all along SpecGD's own path."
    ),
    scales={
        "smoke": Config(k=48, relu_steps=600, restart_steps=10, widths=(8, 12, 16, 24, 32), width_seeds=10),
        "quick": Config(),
        "paper": Config(restart_steps=400, seeds=5, widths=(50, 100, 200, 400, 800), width_seeds=20),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"relu-rule-along-spectral"}),
)
