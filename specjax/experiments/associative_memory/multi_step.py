"""Figures 4 and 5: several steps of Muon and of gradient descent, on the true gradient and on the thresholded one of eq. 5."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from specjax import spectral, sweep
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import PAPER
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import Mean
from specjax.experiments.plots import COLORS, MARKERS, draw_sweep, label_short_range
from specjax.experiments.verdicts import bound_check
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active
from specjax.theory import capacity

NAMES = ("muon", "short", "thresholded", "gd")
"""Muon with the learning rate of Figure 4, with the shorter steps of Figure 5a, on the gradient of eq. 5, and gradient descent."""
THRESHOLDED, GD = 2, 3


@dataclass(frozen=True)
class Config:
    """Items, dimensions, α and steps; the paper has N = 250,000 and 100,000."""

    n: int = field(default=3000, metadata={"help": "items N"})
    dims: tuple[int, ...] = field(default=(24, 32, 48, 64), metadata={"help": "dimensions d"})
    alpha: float = field(default=1.5, metadata={"help": "exponent of the frequencies"})
    steps: int = field(default=3, metadata={"help": "steps T"})
    rate: float = field(default=2.0, metadata={"help": "Muon's learning rate over √d, Figure 4"})
    short_rate: float = field(default=1.0, metadata={"help": "Muon's shorter learning rate over √d, Figure 5a"})
    gd_rate: float = field(default=0.01, metadata={"help": "first learning rate of gradient descent over √d"})
    gd_steps: int = field(default=3, metadata={"help": "steps of gradient descent"})
    seeds: int = field(default=10, metadata={"help": "draws of the embeddings"})
    seed: int = field(default=0, metadata={"help": "root seed"})

    def __post_init__(self) -> None:
        sweeps.check_common(self.n, self.dims, self.seeds, self.seed)
        sweeps.check_alphas((self.alpha,))
        for name, value in (("steps", self.steps), ("gd_steps", self.gd_steps)):
            if value < 2:
                raise ValueError(f"{name} must be at least 2, for several steps, got {value}.")
        for name, rate in (("rate", self.rate), ("short_rate", self.short_rate), ("gd_rate", self.gd_rate)):
            if not (np.isfinite(rate) and rate > 0):
                raise ValueError(f"{name} must be positive and finite, got {rate}.")


def run(config: Config) -> Data:
    """Counts after each step: Muon on the true gradient with two learning rates and on the thresholded one, and gradient descent."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        u, v = sweeps.draw(key, config.n, d)
        q = memory.power_law(config.n, config.alpha)
        root = jnp.sqrt(jnp.asarray(active(d), u.dtype))

        # η_t ∝ d_{t+1}^α grows by the powers of Theorem 4.2.
        exponents = np.asarray(capacity.multi_step_exponents("gd", config.alpha, config.gd_steps)[1:])
        grown = jnp.asarray(config.alpha * (exponents - exponents[0]), u.dtype)
        long, short = (jnp.full(config.steps, rate * root) for rate in (config.rate, config.short_rate))
        rates = jnp.concatenate([long, short, long, config.gd_rate * root * jnp.asarray(active(d), u.dtype) ** grown])
        lengths = np.array([config.steps, config.steps, config.steps, config.gd_steps])
        methods = np.repeat(np.arange(len(NAMES)), lengths)
        firsts = np.diff(methods, prepend=-1) > 0

        # One scan through all four runs, so that each part is compiled once.
        def step(state: tuple[Array, Array], inputs: tuple[Array, ...]) -> tuple[tuple[Array, Array], dict[str, Array]]:
            w, stored = state
            method, first, rate = inputs
            w, stored = jnp.where(first, 0, w), jnp.where(first, 0, stored)
            gradient = jax.lax.cond(
                method == THRESHOLDED,
                lambda: memory.deflated_gradient(u, v, q, stored),
                lambda: memory.loss_and_gradient(w, u, v, q).gradient,
            )
            w = w - rate * jax.lax.cond(method == GD, lambda: gradient, lambda: spectral.polar(gradient))
            found = sweeps.capacities(u, v, w)
            return (w, found["prefix"]), found

        start = jnp.zeros((u.shape[1], u.shape[1]), u.dtype), jnp.zeros((), jnp.int32)
        _, found = jax.lax.scan(step, start, (jnp.asarray(methods), jnp.asarray(firsts), rates))
        ends = np.cumsum(lengths)
        return {
            f"{name}_{which}": values[end - length : end]
            for which, values in found.items()
            for name, end, length in zip(NAMES, ends, lengths, strict=True)
        }

    steps, gd_steps = list(range(1, config.steps + 1)), list(range(1, config.gd_steps + 1))
    labels = {
        f"{name}_{which}": {axis: points}
        for name, axis, points in zip(NAMES, ("t", "t", "t", "gd_t"), (steps, steps, steps, gd_steps), strict=True)
        for which in ("count", "prefix")
    }
    return {"capacity": sweeps.run(of_seed, config.dims, config.seeds, jax.random.key(config.seed), labels)}


def _fit(data: Data, name: str, axis: str, t: int) -> sweep.PowerLawFit:
    counts: xr.DataArray = data["capacity"][f"{name}_count"].sel({axis: t}, drop=True).astype(float)
    return sweep.fit_power_law(counts, "d")


def _logs(data: Data, name: str) -> xr.DataArray:
    """Logarithms of the counts at the largest d."""
    return sweeps.log(data["capacity"][f"{name}_count"].isel(d=-1, drop=True).astype(float))


def checks(config: Config, data: Data) -> list[Check]:
    """What two steps gain over one, that Muon is ahead of gradient descent, and the limit d²."""
    source = f"{PAPER}, Theorem 4.1 and Figure 4"
    results = []
    for name, what in (("muon", "the true gradient"), ("thresholded", "the thresholded gradient of eq. 5")):
        # Paired by seed.
        counts = _logs(data, name)
        gain = Mean(*sweep.mean_and_stderr(counts.sel(t=2, drop=True) - counts.sel(t=1, drop=True)))
        results.append(
            bound_check(
                f"{name}-second-step-gains",
                source,
                f"At d = {config.dims[-1]} the second step of Muon on {what} with η = {config.rate:g} √d recovers more: mean logarithm of "
                "the factor less 4 standard errors.",
                smallest_margin=float(gain.low),
            )
        )
    ends = _logs(data, "short")
    gain = Mean(*sweep.mean_and_stderr(ends.isel(t=-1) - ends.sel(t=1, drop=True)))
    results.append(
        bound_check(
            "short-steps-gain",
            f"{PAPER}, Figure 5a",
            f"At d = {config.dims[-1]} Muon with η = {config.short_rate:g} √d recovers more after {config.steps} steps than after one: "
            "mean logarithm of the factor less 4 standard errors.",
            smallest_margin=float(gain.low),
        )
    )
    shared = min(config.steps, config.gd_steps)
    muon, gd = (
        data["capacity"][f"{name}_count"].isel(d=-1, drop=True).mean("seed").values[:shared] for name in ("muon", "gd")
    )
    results.append(
        bound_check(
            "muon-above-gd",
            f"{PAPER}, Section 4 and Figure 5a",
            f"At d = {config.dims[-1]} Muon recovers more than gradient descent with growing steps after each of the first {shared} steps.",
            smallest_margin=float(np.min(muon - gd)),
        )
    )
    results.append(
        bound_check(
            "below-the-limit",
            f"{PAPER}, Theorem 4.1",
            "No number of steps recovers more than d² items.",
            smallest_margin=float((1 - data["capacity"]["muon_count"] / data["capacity"]["d"] ** 2).min()),
        )
    )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """Counts by step, and straight-line exponents beside the theory."""
    rows = []
    for name, axis, predicted in _curves(config):
        counts = data["capacity"][f"{name}_count"]
        for t in counts[axis].values:
            fit = _fit(data, name, axis, int(t))
            means = (f"{m:.1f} ± {e:.1f}" for m, e in zip(fit.means, fit.stderrs, strict=True))
            rows.append(
                (
                    name,
                    str(t),
                    *means,
                    f"{fit.exponent:.2f} ({fit.interval[0]:.2f}, {fit.interval[1]:.2f})",
                    f"{predicted[t]:.3f}",
                )
            )
    header = ("", "t", *(f"d = {d}" for d in config.dims), "straight fit", "theory")
    return [Table(f"Items recovered after t steps, N = {config.n}, α = {config.alpha:g}", header, tuple(rows))]


def _curves(config: Config) -> tuple[tuple[str, str, list[float]], ...]:
    muon = capacity.multi_step_exponents("muon", config.alpha, config.steps)
    gd = capacity.multi_step_exponents("gd", config.alpha, config.gd_steps)
    return ("muon", "t", muon), ("short", "t", muon), ("thresholded", "t", muon), ("gd", "gd_t", gd)


def plot(config: Config, data: Data) -> Figure:
    """Counts against d for each step of Muon, counts against the step, and exponents against theory."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for t, color, marker in zip(range(1, config.steps + 1), COLORS * 2, MARKERS * 2, strict=False):
        counts = data["capacity"]["muon_count"].sel(t=t, drop=True).astype(float)
        draw_sweep(left, counts, "d", label=f"t = {t}", color=color, marker=marker, line=True)
    left.plot(config.dims, np.square(config.dims), "k:", linewidth=1, label="d²")
    left.set_title(f"Muon, true gradient, η = {config.rate:g} √d", fontsize="medium")
    left.set_xlabel("dimension d")
    left.set_ylabel(f"items recovered of {config.n}")
    left.legend(fontsize="small")
    titles = {
        "muon": f"Muon, η = {config.rate:g} √d",
        "short": f"Muon, η = {config.short_rate:g} √d",
        "thresholded": "Muon, thresholded",
        "gd": "GD, growing steps",
    }
    for (name, axis, predicted), color, marker in zip(_curves(config), COLORS, MARKERS, strict=False):
        mean, stderr = sweep.mean_and_stderr(data["capacity"][f"{name}_count"].isel(d=-1, drop=True).astype(float))
        steps = mean[axis].values
        middle.errorbar(steps, mean, yerr=2 * stderr, fmt=f"{marker}-", color=color, capsize=2, label=titles[name])
        fits = [_fit(data, name, axis, int(t)) for t in steps]
        right.errorbar(
            steps,
            [fit.exponent for fit in fits],
            yerr=[2 * fit.stderr for fit in fits],
            fmt=marker,
            color=color,
            capsize=2,
            label=titles[name],
        )
        if name != "short":
            right.plot(steps, predicted[1:], color=color, linewidth=1)
    middle.set_yscale("log")
    label_short_range(middle)
    for axes in (middle, right):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    middle.set_title(f"d = {config.dims[-1]}", fontsize="medium")
    middle.set_xlabel("steps t")
    middle.set_ylabel("items recovered")
    middle.legend(fontsize="small")
    right.set_title("straight-line exponents (lines: theory)", fontsize="medium")
    right.set_xlabel("steps t")
    right.set_ylabel("exponent in d ± 2 standard errors")
    right.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="memory-multi-step",
    paper=PAPER,
    source="associative-memory, Theorems 4.1 and 4.2, Figures 4 and 5a",
    title="Capacity after several steps of Muon and of gradient descent",
    summary=(
        "A second step of Muon recovers more items than the first, on the true and on the thresholded gradient, and Muon is ahead of "
        "gradient descent early on. Straight-line exponents stand beside 2 - (1 - 1/(2α))^t in the table; at these sizes they are bent by "
        "logarithms and do not decide the theorem."
    ),
    scales={
        "smoke": Config(n=1000, dims=(16, 24, 32, 48), gd_steps=2),
        "quick": Config(),
        "paper": Config(n=20_000, dims=(32, 64, 96, 128, 192), steps=4, gd_steps=6),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
"""Figures 4 and 5a with their verdicts."""
