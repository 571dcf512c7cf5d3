"""Appendix C: what the resolution λ does to the capacity, the spectrum that explains it, and float32 against float64."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.associative_memory import sweeps
from specjax.experiments.associative_memory.sweeps import PAPER
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.plots import COLORS, MARKERS, draw_sweep
from specjax.experiments.verdicts import bound_check, exponent_check
from specjax.models import associative_memory as memory
from specjax.sizes import AnySize, active, mask
from specjax.theory import capacity

SCALES = {"s_bulk": "bulk", "s_min": "smallest", "inverse_sum": "inverse_sum"}


@dataclass(frozen=True)
class Config:
    """Items, dimensions, α, the resolutions λ = factor · d^-α and the numbers of cubic Newton–Schulz steps."""

    n: int = field(default=10_000, metadata={"help": "items N"})
    dims: tuple[int, ...] = field(default=(32, 48, 64, 96), metadata={"help": "dimensions d"})
    alpha: float = field(default=1.5, metadata={"help": "exponent of the frequencies"})
    factors: tuple[float, ...] = field(
        default=(0.0, 0.01, 0.1, 1.0, 10.0, 100.0), metadata={"help": "λ over d^-α, the first one 0"}
    )
    cubic_steps: tuple[int, ...] = field(
        default=(8, 16, 24), metadata={"help": "steps of the cubic Newton–Schulz iteration"}
    )
    seeds: int = field(default=10, metadata={"help": "draws of the embeddings"})
    seed: int = field(default=0, metadata={"help": "root seed"})

    def __post_init__(self) -> None:
        sweeps.check_common(self.n, self.dims, self.seeds, self.seed)
        sweeps.check_alphas((self.alpha,))
        if len(self.factors) < 2 or self.factors[0] != 0 or list(self.factors) != sorted(set(self.factors)):
            raise ValueError(f"factors needs 0 and larger ones in ascending order, as in (0, 1), got {self.factors}.")
        if 1.0 not in self.factors:
            raise ValueError(f"factors needs 1, the λ of Theorem 3.1, got {self.factors}.")
        if not self.cubic_steps or min(self.cubic_steps) < 1:
            raise ValueError(f"cubic_steps needs positive numbers of steps, got {self.cubic_steps}.")


def run(config: Config) -> Data:
    """Counts for each λ and each cubic iterate, the count with a float64 gradient and factor, and the spectrum in float64."""

    def of_seed(key: Array, d: AnySize) -> dict[str, Array]:
        u, v = sweeps.draw(key, config.n, d)
        q = memory.power_law(config.n, config.alpha)
        gradient = memory.gradient_at_zero(u, v, q)
        scale = jnp.asarray(active(d), u.dtype) ** -config.alpha
        factors, steps = jnp.asarray(config.factors, u.dtype), jnp.asarray(config.cubic_steps)
        # λ = 0 is the polar factor.
        maps = jax.lax.map(lambda c: spectral.stabilized_sign(gradient, c * scale), factors)
        unit = gradient / spectral.spectral_norm(gradient)
        cubic = jax.lax.map(lambda k: spectral.spectral_map(unit, lambda s: _cubic(s, k)), steps)
        wide, s = sweeps.one_step(u, v, q, ("muon",))[0], _singular_values(u, v, q)
        ws = jnp.concatenate([-maps, -cubic, wide[None]])
        masks = jax.lax.map(lambda w: memory.recovered(u, v, w), ws)
        counts = memory.count(masks)
        return {
            "count": counts[: len(maps)],
            "cubic": counts[len(maps) : -1],
            "count_float64": counts[-1],
            "changed_float64": memory.count(masks[0] != masks[-1]),
            "s_bulk": s[active(d) // 2],
            "s_min": s[active(d) - 1],
            "inverse_sum": jnp.sum(jnp.where(mask(d), 1 / s, 0)),
        }

    labels: dict[str, dict[str, Sequence[Any]]] = {
        "count": {"factor": config.factors},
        "cubic": {"steps": config.cubic_steps},
    }
    return {"capacity": sweeps.run(of_seed, config.dims, config.seeds, jax.random.key(config.seed), labels)}


def _cubic(s: Array, steps: Array) -> Array:
    """The iterate of Lemma C.4."""
    return jax.lax.fori_loop(0, steps, lambda _, x: 1.5 * x - 0.5 * x**3, s)


def _singular_values(u: Array, v: Array, q: Array) -> Array:
    """Those of the gradient at zero, with sums and decomposition in float64."""
    with jax.enable_x64(True):
        return _in_float64(u, v, q)


@jax.jit
def _in_float64(u: Array, v: Array, q: Array) -> Array:
    gradient = memory.gradient_at_zero(*(a.astype(jnp.float64) for a in (u, v, q)))
    return jnp.linalg.svd(gradient, compute_uv=False).astype(jnp.float32)


def checks(config: Config, data: Data) -> list[Check]:
    """The λ of the theorem against the polar factor, the scales of the spectrum, and precision."""
    counts = data["capacity"]["count"].astype(float)
    polar = counts.sel(factor=0.0)
    mean = counts.mean("seed")
    ratio = abs(sweeps.log(mean.sel(factor=1.0) / mean.sel(factor=0.0)))
    cubic = data["capacity"]["cubic"].isel(steps=-1).mean("seed") / polar.mean("seed")
    wide = data["capacity"]["count_float64"].mean("seed") / polar.mean("seed")
    expected = capacity.singular_value_exponents(config.alpha)
    fits = {name: sweep.fit_power_law(data["capacity"][name].astype(float), "d") for name in SCALES}
    results = [
        bound_check(
            "resolution-as-polar",
            f"{PAPER}, Appendix C",
            "λ = d^-α and the exact polar factor recover the same number of items up to a factor of 2, at every d.",
            smallest_margin=float(np.log(2) - ratio.max()),
        ),
        bound_check(
            "coarse-resolution-loses",
            f"{PAPER}, Appendix B.2",
            f"λ = {config.factors[-1]:g} d^-α loses more than half of the items, at the largest d.",
            smallest_margin=float(0.5 - (mean.sel(factor=config.factors[-1]) / mean.sel(factor=0.0)).isel(d=-1)),
        ),
        bound_check(
            "cubic-as-polar",
            f"{PAPER}, Lemma C.4",
            f"{config.cubic_steps[-1]} cubic Newton–Schulz steps recover at least 90 % of what the polar factor does, at every d.",
            smallest_margin=float(cubic.min() - 0.9),
        ),
        bound_check(
            "float32-is-enough",
            PAPER,
            "With gradient and polar factor in float64 the mean count differs by less than 1 %, at every d.",
            smallest_margin=float(0.01 - abs(wide - 1).max()),
        ),
        exponent_check(
            "bulk-exponent",
            f"{PAPER}, Appendix B.2",
            "The bulk singular value s_{d/2} of the gradient falls as d^-α.",
            predicted=expected["bulk"],
            fit=fits["s_bulk"],
            resolution=0.25,
        ),
    ]
    for name, what, sign in (
        ("s_min", "s_d falls no faster than d^(-α-1)", 1),
        ("inverse_sum", "Σ 1/s_k grows no faster than d^(α+1)", -1),
    ):
        fit = fits[name]
        margin = sign * (fit.exponent - expected[SCALES[name]]) + 4 * fit.stderr
        results.append(
            bound_check(
                name.replace("_", "-"),
                f"{PAPER}, Lemma C.3",
                f"{what}, to 4 standard errors of the fitted exponent, logarithms aside.",
                smallest_margin=float(margin),
            )
        )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """Counts by λ and by cubic steps, in float64, and the exponents of the spectrum."""
    rows = []
    for values, axis, label in (
        (data["capacity"]["count"], "factor", "λ = {:g} d^-α"),
        (data["capacity"]["cubic"], "steps", "{:g} cubic steps"),
    ):
        rows += [(label.format(x), *_cells(values.sel({axis: x}, drop=True))) for x in values[axis].values]
    rows.append(("polar, float64", *_cells(data["capacity"]["count_float64"])))
    rows.append(("items that float64 changes", *_cells(data["capacity"]["changed_float64"])))
    expected = capacity.singular_value_exponents(config.alpha)
    scales = []
    for name, key in SCALES.items():
        fit = sweep.fit_power_law(data["capacity"][name].astype(float), "d")
        cells = (f"{mean:.3g}" for mean in fit.means)
        scales.append(
            (name, *cells, f"{fit.exponent:.2f} ({fit.interval[0]:.2f}, {fit.interval[1]:.2f})", f"{expected[key]:g}")
        )
    dims = tuple(f"d = {d}" for d in config.dims)
    return [
        Table(f"Items recovered, N = {config.n}, α = {config.alpha:g}", ("", *dims), tuple(rows)),
        Table("Singular values of the gradient at zero", ("", *dims, "fit", "theory"), tuple(scales)),
    ]


def _cells(values: xr.DataArray) -> list[str]:
    mean, stderr = sweep.mean_and_stderr(values.astype(float))
    return [f"{m:.1f} ± {e:.1f}" for m, e in zip(mean.values, stderr.values, strict=True)]


def plot(config: Config, data: Data) -> Figure:
    """Counts over those of the polar factor against λ d^α, and the scales of the spectrum against d."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    counts = data["capacity"]["count"].astype(float)
    for d, color, marker in zip(config.dims, COLORS * 2, MARKERS * 2, strict=False):
        mean, stderr = sweep.mean_and_stderr((counts / counts.sel(factor=0.0).mean("seed")).sel(d=d, drop=True))
        left.errorbar(
            config.factors[1:],
            mean[1:],
            yerr=2 * stderr[1:],
            fmt=f"{marker}-",
            color=color,
            capsize=2,
            label=f"d = {d}",
        )
    left.axhline(1, color="gray", linewidth=1)
    left.set_xscale("log")
    left.set_xlabel("λ d^α")
    left.set_ylabel("items recovered over those of the polar factor")
    left.legend(fontsize="small")
    shown = {"s_bulk": "middle one, s_{d/2}", "s_min": "smallest, s_d"}
    for (name, label), color, marker in zip(shown.items(), COLORS, MARKERS, strict=False):
        draw_sweep(right, data["capacity"][name].astype(float), "d", label=label, color=color, marker=marker, line=True)
    right.set_xlabel("dimension d")
    right.set_ylabel("singular values of the gradient")
    right.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="memory-lambda",
    paper=PAPER,
    source="associative-memory, Appendix C, Lemmas C.3 and C.4",
    title="The resolution λ and the spectrum of the gradient",
    summary=(
        "λ at the scale d^-α of the bulk singular values recovers about as many items as the exact polar factor, and so do enough cubic "
        "Newton–Schulz steps; a coarser λ loses most of them."
    ),
    scales={
        "smoke": Config(n=1000, dims=(16, 24, 32, 48), factors=(0.0, 1.0, 100.0), cubic_steps=(20,)),
        "quick": Config(),
        "paper": Config(n=100_000, dims=(64, 128, 256, 512), cubic_steps=(8, 16, 24, 32), seeds=16),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
"""Appendix C with its verdicts."""
