"""Theorems 1(a), 1(b) and 3 as bounds on the iterations, and how small the start of Theorem 1(b) must be."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sizes, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.preconditioning import runs
from specjax.experiments.preconditioning.validation import check_accuracy, check_count, check_kappas
from specjax.experiments.validation import check_root_seed
from specjax.experiments.verdicts import bound_check, difference_check
from specjax.models import factorization_spectra
from specjax.theory.preconditioning import iterations, scalar
from specjax.theory.preconditioning.conditions import check_ranks

RHO_FAST = 0.7
"""Decay in the matrix runs of Theorem 1: with one prefactor rounding takes over from 0.8 on, see `decoupling`, and the fewer the steps
the more it matters where Theorem 1(b) starts."""

RHO = 0.9
"""Decay where prefactors are new in each step, and in the spectral domain."""

START = 0.5
"""Scale of the start of Theorem 1(a), any up to √λ_1."""


@dataclass(frozen=True)
class Config:
    """Sizes, condition numbers, and scales of the start."""

    d: int = field(default=8, metadata={"help": "rows of the factor, dimension of S"})
    r: int = field(default=3, metadata={"help": "rank of M for Theorem 1(b)"})
    ks: tuple[int, ...] = field(default=(3, 5), metadata={"help": "columns for Theorem 1(b), from r to below d"})
    wide: int = field(default=10, metadata={"help": "columns for Theorem 1(a), at least d"})
    kappas: tuple[float, ...] = field(default=(1.0, 10.0, 1e3), metadata={"help": "condition numbers"})
    scales: tuple[float, ...] = field(
        default=(1e-12, 1e-6, 1e-3, 1e-1), metadata={"help": "scales α of the start of Theorem 1(b)"}
    )
    accuracy: float = field(default=1e-8, metadata={"help": "relative error in the operator norm"})
    seeds: int = field(default=120, metadata={"help": "targets, starts and schedules at each point"})
    scalar_seeds: int = field(default=1000, metadata={"help": "the same in the spectral domain"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        for k in self.ks:
            check_ranks(self.d, k, self.r)
            if k >= self.d:
                raise ValueError(
                    f"ks must be below d={self.d}, where Theorem 1(b) is for, got {k}; wide is for the others."
                )
        if not self.ks:
            raise ValueError("ks needs at least one number of columns, got none.")
        if self.wide < self.d:
            raise ValueError(f"wide must be at least d={self.d}, for Theorem 1(a), got {self.wide}.")
        check_kappas("kappas", self.kappas, points=1)
        if len(self.scales) < 2 or min(self.scales) <= 0:
            raise ValueError(f"scales needs two or more positive numbers, got {self.scales}.")
        check_accuracy(self.accuracy)
        check_count("seeds", self.seeds, 8)
        check_count("scalar_seeds", self.scalar_seeds, 100)
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """First iterations at the accuracy: with one prefactor, with new ones over scales of the start, in context, in the spectral domain."""
    over_kappa = {"kappa": sweep.values(*config.kappas)}

    def theorems_1a_and_3(key: Array, kappa: Array) -> dict[str, dict[str, Array]]:
        problem_key, key = jax.random.split(key)
        wide = _in_operator_norm(runs.factorization(problem_key, kappa, config.d, config.d, config.wide, START))
        context = runs.in_context(problem_key, kappa, config.d)
        return {
            "theorem-1a": _found(config, wide, "muon-constant", key, kappa, RHO_FAST),
            "theorem-3": _found(config, context, "muon", key, kappa, RHO),
        }

    def theorem_1b(key: Array, kappa: Array, scale: Array) -> dict[str, dict[str, Array]]:
        problem_key, key = jax.random.split(key)
        found = {}
        for k in config.ks:
            posed = _in_operator_norm(runs.factorization(problem_key, kappa, config.d, config.r, k, scale))
            found[f"k{k}"] = _found(config, posed, "muon", key, kappa, RHO_FAST)
        return found

    def spectral_domain(key: Array, kappa: Array) -> dict[str, Array]:
        """One prefactor at ρ = 0.9, where only the scalar sequences can be followed: both problems."""
        times = jnp.arange(_limit(config, RHO)).astype(kappa.dtype)
        c = (1 + jax.random.uniform(key)) / 2
        spectrum = factorization_spectra.logarithmic_spectrum(config.d, kappa)
        x = scalar.factorization_path(jnp.full_like(spectrum, START), spectrum, c * RHO**times)
        q = scalar.regression_path(jnp.zeros_like(spectrum), 1 / spectrum, kappa * c * RHO**times)
        errors = {
            "factorization": jnp.max(jnp.abs(x**2 - spectrum[None]), 1),
            "context": jnp.max(jnp.abs(q - 1 / spectrum[None]), 1) / kappa,
        }
        return {name: jnp.sum(error > config.accuracy).astype(float) for name, error in errors.items()}

    with jax.enable_x64(True):
        key = jax.random.key(config.seed)
        grid = {**over_kappa, "scale": sweep.values(*config.scales)}
        return {
            "theorem-1b": sweep.run(
                theorem_1b, grid, seeds=config.seeds, key=sizes.stream(key, "theorem-1b"), chunk=config.seeds
            ),
            "theorems-1a-and-3": sweep.run(
                theorems_1a_and_3,
                over_kappa,
                seeds=config.seeds,
                key=sizes.stream(key, "theorems-1a-and-3"),
                chunk=config.seeds,
            ),
            "spectral-domain": sweep.run(
                spectral_domain, over_kappa, seeds=config.scalar_seeds, key=sizes.stream(key, "spectral-domain")
            ),
        }


def _in_operator_norm(posed: runs.Problem) -> runs.Problem:
    return posed._replace(error=lambda x: jnp.linalg.norm(posed.residual(x), 2))


def _found(config: Config, posed: runs.Problem, name: str, key: Array, kappa: Array, rho: float) -> dict[str, Array]:
    limit = _limit(config, rho)
    transform = runs.transformation(name, key, jnp.full_like(kappa, 0.5), posed, rho, limit)
    found = runs.steps_to(posed, transform, config.accuracy, limit)
    return {"steps": found.steps.astype(float), "reached": (found.error <= config.accuracy).astype(float)}


def _limit(config: Config, rho: float) -> int:
    """Until steps are a thousandth of the accuracy: whoever has not arrived by then never will."""
    return int(np.log(config.accuracy / 1e3) / np.log(rho))


def bounds(config: Config) -> dict[str, float]:
    """The iterations by which the theorems promise arrival."""
    with jax.enable_x64(True):
        return {
            "theorem-1a": float(iterations.theorem_1a(1.0, config.accuracy, RHO_FAST)),
            "theorem-1a-scalar": float(iterations.theorem_1a(1.0, config.accuracy, RHO)),
            "theorem-1b": float(iterations.theorem_1b(1.0, config.accuracy, RHO_FAST)),
            # Relative to ‖S⁻¹‖ the largest prefactor is 1; and a constant one, as the theorem has it.
            "theorem-3-scalar": float(iterations.theorem_3(1.0, config.accuracy, RHO)),
            # New prefactors in [1/2, 1] need Lemma 11 in place of Lemma 9, 1 / (1 - ρ) in place of 2.
            "theorem-3": float(np.log(1 / ((1 - RHO) * config.accuracy)) / np.log(1 / RHO)),
        }


def checks(config: Config, data: Data) -> list[Check]:
    """Each theorem by the slowest run, its bound being the same for every κ; and the need for a small start."""
    bound, scalar_steps = bounds(config), data["spectral-domain"]
    top = f"{config.kappas[-1]:g}"
    results = [
        _margin(
            "theorem-1a",
            "Theorem 1(a)",
            bound["theorem-1a"],
            data["theorems-1a-and-3"]["theorem-1a.steps"],
            f"k >= d, one prefactor, ρ = {RHO_FAST}",
            top,
        ),
        _margin(
            "theorem-1a-scalar",
            "Theorem 1(a)",
            bound["theorem-1a-scalar"],
            scalar_steps["factorization"],
            f"k >= d, one prefactor, ρ = {RHO}, in the spectral domain",
            top,
        ),
        _margin(
            "theorem-3",
            "Theorem 3 [prefactors of Lemma 11]",
            bound["theorem-3"],
            data["theorems-1a-and-3"]["theorem-3.steps"],
            f"in context, new prefactors, ρ = {RHO}",
            top,
        ),
        _margin(
            "theorem-3-scalar",
            "Theorem 3",
            bound["theorem-3-scalar"],
            scalar_steps["context"],
            f"in context, one prefactor, ρ = {RHO}, in the spectral domain",
            top,
        ),
    ]
    for k in config.ks:
        steps, reached = (data["theorem-1b"][f"k{k}.{what}"] for what in ("steps", "reached"))
        success = (reached * (steps <= bound["theorem-1b"])).sel(scale=min(config.scales))
        results.append(
            bound_check(
                f"theorem-1b-k{k}",
                "preconditioning, Theorem 1(b)",
                f"With k = {k} columns and a start of scale {min(config.scales):g} Muon arrives by T = {bound['theorem-1b']:.0f} with "
                f"probability 0.99 or more at every κ up to {top}.",
                smallest_margin=float(success.mean("seed").min()) - 0.99,
            )
        )
        ends = reached.sel(kappa=config.kappas[-1])
        (few, few_error), (many, many_error) = (
            (float(a) for a in sweep.mean_and_stderr(ends.sel(scale=end(config.scales)))) for end in (max, min)
        )
        results.append(
            difference_check(
                f"theorem-1b-k{k}-small-start",
                "preconditioning, Theorem 1(b) and Remark 1",
                f"The start must be small: with k = {k} and κ = {top} fewer runs arrive from a scale of {max(config.scales):g} than from "
                f"{min(config.scales):g}.",
                # Fewer from the small start would be no evidence for the statement.
                difference=max(many - few, 0.0),
                stderr=float(np.hypot(few_error, many_error)),
                resolution=0.02,
            )
        )
    return results


def _margin(name: str, source: str, bound: float, steps, what: str, top: str) -> Check:  # type: ignore[no-untyped-def]
    return bound_check(
        name,
        f"preconditioning, {source}",
        f"Muon arrives within {bound:.1f} iterations, the same for every κ up to {top}: {what}.",
        smallest_margin=float(np.ceil(bound) - steps.max()),
    )


def tables(config: Config, data: Data) -> list[Table]:
    """The slowest runs beside the bounds, and the share of runs that arrive by scale of the start."""
    bound = bounds(config)
    columns = {
        "theorem-1a": data["theorems-1a-and-3"]["theorem-1a.steps"],
        "theorem-1a-scalar": data["spectral-domain"]["factorization"],
        "theorem-3": data["theorems-1a-and-3"]["theorem-3.steps"],
        "theorem-3-scalar": data["spectral-domain"]["context"],
    }
    rows = tuple(
        (name, *(f"{int(steps.sel(kappa=kappa).max())}" for kappa in config.kappas), f"{bound[name]:.1f}")
        for name, steps in columns.items()
    )
    results = [
        Table("Iterations of the slowest run", ("", *(f"κ = {kappa:g}" for kappa in config.kappas), "bound"), rows)
    ]
    for k in config.ks:
        reached = data["theorem-1b"][f"k{k}.reached"].mean("seed")
        shares = tuple(
            (f"{scale:g}", *(f"{float(reached.sel(scale=scale, kappa=kappa)):.3f}" for kappa in config.kappas))
            for scale in config.scales
        )
        header = ("scale α", *(f"κ = {kappa:g}" for kappa in config.kappas))
        results.append(
            Table(f"Share of {config.seeds} runs that arrive, k = {k}, r = {config.r}, d = {config.d}", header, shares)
        )
    return results


def plot(config: Config, data: Data) -> Figure:
    """Shares that arrive against the scale of the start, one panel for each number of columns; bars of two standard errors."""
    figure = Figure(figsize=(4.6 * len(config.ks), 3.8), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(config.ks), sharey=True))
    for axes, k in zip(panels, config.ks, strict=True):
        for index, kappa in enumerate(config.kappas):
            reached = data["theorem-1b"][f"k{k}.reached"].sel(kappa=kappa)
            mean, stderr = sweep.mean_and_stderr(reached)
            axes.errorbar(
                config.scales,
                mean,
                yerr=2 * stderr,
                fmt="os^vDP"[index % 6] + "-",
                color=f"C{index}",
                capsize=2,
                label=f"κ = {kappa:g}",
            )
        axes.set(
            xscale="log",
            xlabel="scale α of the start",
            title=f"k = {k}, r = {config.r}, d = {config.d}",
            ylim=(-0.05, 1.1),
        )
        axes.legend(fontsize="small")
    panels[0].set_ylabel("share of runs that arrive")
    return figure


EXPERIMENT = Experiment(
    name="muon-convergence",
    paper="preconditioning",
    source="preconditioning, Theorems 1 and 3",
    title="Muon's iteration bounds without a condition number, and how small a start they need",
    summary=(
        "The slowest of all runs stays within the bounds, whose only argument is the accuracy. Theorem 1(b) asks for a start that is "
        "small enough: the share of runs that arrive falls as the start grows, most where k > r or κ is large."
    ),
    scales={
        "smoke": Config(d=5, r=2, ks=(2,), wide=6, kappas=(1.0, 1e3), scales=(1e-12, 1e-1), seeds=16, scalar_seeds=100),
        "quick": Config(),
        "paper": Config(
            d=20,
            ks=(3, 5, 10),
            wide=24,
            kappas=(1.0, 10.0, 1e3, 1e4),
            scales=(1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1e-1),
            seeds=400,
            scalar_seeds=10_000,
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
