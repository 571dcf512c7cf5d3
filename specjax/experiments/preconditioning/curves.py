"""Figures 1 and 2: error curves of Muon, gradient descent and SignGD over condition numbers and numbers of columns."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.preconditioning import runs
from specjax.experiments.preconditioning.validation import check_count, check_kappas
from specjax.experiments.validation import check_root_seed
from specjax.experiments.verdicts import bound_check
from specjax.sizes import AnySize
from specjax.sweep.axes import Over
from specjax.theory.preconditioning.conditions import check_ranks

RATES = {"muon-plateau": 0.23, "gradient-descent": 1.0, "sign": 0.23, "muon": 0.5, "muon-momentum": 0.23}
"""Step sizes in the units of `runs`: of the distance to cover, or of the inverse curvature. No fraction of the distance like 1/4, with
which a sequence would land on its root, and the direction of a gradient of rounding is none."""

ARRIVED, FAR = 1e-8, 1e-5
"""Errors below the first are arrival, above the second what slow means here."""

RHO = 0.9

FACTORIZATION = ("muon-plateau", "gradient-descent", "sign")
"""Curves of Figure 1, by optimizer."""

CONTEXT = {
    "muon": ("muon", True),
    "muon-plateau": ("muon-plateau", True),
    "muon-plateau-diagonal": ("muon-plateau", False),
    "muon-momentum": ("muon-momentum", True),
    "gradient-descent": ("gradient-descent", True),
    "sign": ("sign", True),
}
"""Curves of Figure 2: the optimizer, and whether S is rotated or diagonal."""

TITLES = {
    "muon": "Muon, geometric",
    "muon-plateau": "Muon, plateau",
    "muon-plateau-diagonal": "Muon, plateau, diagonal S",
    "muon-momentum": "Muon, momentum, plateau",
    "gradient-descent": "gradient descent",
    "sign": "SignGD, plateau",
}


@dataclass(frozen=True)
class Config:
    """Sizes of the panels; the paper's own are lost."""

    d: int = field(default=8, metadata={"help": "rows of the factor"})
    r: int = field(default=2, metadata={"help": "rank of the target"})
    ks: tuple[int, ...] = field(default=(2, 4, 8, 12), metadata={"help": "columns of the factor, from r to beyond d"})
    kappas: tuple[float, ...] = field(default=(1.0, 10.0, 100.0, 1e3), metadata={"help": "condition numbers"})
    fixed_kappa: float = field(default=10.0, metadata={"help": "condition number of the panels over k, one of kappas"})
    context_d: int = field(default=6, metadata={"help": "dimension of in-context regression"})
    start_scale: float = field(default=0.1, metadata={"help": "scale of the start, moderate"})
    steps: int = field(default=1500, metadata={"help": "steps of each run"})
    seeds: int = field(default=5, metadata={"help": "targets and starts"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        for k in self.ks:
            check_ranks(self.d, k, self.r)
        if not self.ks or any(np.diff(self.ks) <= 0):
            raise ValueError(f"ks needs different numbers of columns in ascending order, got {self.ks}.")
        check_kappas("kappas", self.kappas, points=2)
        if self.fixed_kappa not in self.kappas:
            raise ValueError(f"fixed_kappa must be one of kappas {self.kappas}, got {self.fixed_kappa}.")
        if not self.start_scale > 0:
            raise ValueError(
                f"start_scale must be positive, since X = 0 is a stationary point, got {self.start_scale}."
            )
        check_count("context_d", self.context_d, 2)
        check_count("steps", self.steps, 100)
        check_count("seeds", self.seeds, 2)
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """log10 of the relative error after every step, by optimizer: one program for the factorization and one for in-context regression."""

    def factorization(key: Array, kappa: Array, k: AnySize) -> dict[str, Array]:
        posed = runs.wide_factorization(key, kappa, config.d, config.r, k, config.start_scale)
        return {name: _curve(config, name, key, posed, kappa) for name in FACTORIZATION}

    def context(key: Array, kappa: Array) -> dict[str, Array]:
        posed = {rotated: runs.in_context(key, kappa, config.context_d, rotated=rotated) for rotated in (True, False)}
        return {label: _curve(config, name, key, posed[rotated], kappa) for label, (name, rotated) in CONTEXT.items()}

    with jax.enable_x64(True):
        key, over = jax.random.key(config.seed), {"kappa": sweep.values(*config.kappas)}
        columns: Over = {**over, "k": sweep.widths(*config.ks)}
        return {
            "factorization": sweep.run(
                factorization, columns, seeds=config.seeds, key=key, chunk=config.seeds, plan="padded"
            ),
            "context": sweep.run(context, over, seeds=config.seeds, key=key, chunk=config.seeds),
        }


def _curve(config: Config, name: str, key: Array, posed: runs.Problem, kappa: Array) -> Array:
    rate = jnp.full_like(kappa, RATES[name])
    transform = runs.transformation(name, jax.random.fold_in(key, 2), rate, posed, RHO, config.steps)
    errors = runs.errors_along(posed, transform, config.steps)
    # An error of exactly 0 is drawn, and averaged, as the rounding of float64.
    return jnp.log10(jnp.maximum(errors, 1e-17))


def _last(curves: xr.DataArray) -> xr.DataArray:
    """Medians over seeds of log10 of the smallest error on the way: the floor, whatever oscillates above it."""
    return curves.min(f"{curves.name}_dim_0").median("seed")


def checks(config: Config, data: Data) -> list[Check]:
    """Who arrives and who does not, in the median over seeds."""
    top = config.kappas[-1]
    arrives = f"reaches {ARRIVED:g} within {config.steps} steps"
    results = [
        _arrival(
            "figure-1-muon-kappa",
            "Figure 1 (a-c)",
            f"Muon with the plateau schedule {arrives} at every κ up to {top:g}, with k = r.",
            _last(data["factorization"]["muon-plateau"]).isel(k=0),
        ),
        _arrival(
            "figure-1-muon-columns",
            "Figure 1 (d-f)",
            f"It {arrives} with every number of columns from r to beyond d, at κ = {config.fixed_kappa:g}.",
            _last(data["factorization"]["muon-plateau"]).sel(kappa=config.fixed_kappa),
        ),
        *(
            _slowness(
                f"figure-1-{name}-slow",
                "Figure 1 (a-c)",
                f"{who} is above {FAR:g} after as many steps at κ = {top:g}, with k = r.",
                _last(data["factorization"][name]).isel(k=0, kappa=-1),
            )
            for name, who in (("gradient-descent", "Gradient descent"), ("sign", "SignGD"))
        ),
        _slowness(
            "figure-1-columns-slow",
            "Figure 1 (d-f)",
            f"Gradient descent is above {FAR:g} with more than r columns, at κ = {config.fixed_kappa:g}.",
            _last(data["factorization"]["gradient-descent"]).sel(kappa=config.fixed_kappa).isel(k=slice(1, None)),
        ),
    ]
    statements = {
        "muon": (
            f"Muon with new prefactors in each step {arrives} in context, at every κ up to {top:g}.",
            "Figure 2 [schedule of Theorem 1(b)]",
        ),
        "muon-plateau": (f"Muon with the plateau schedule {arrives} in context, at every κ up to {top:g}.", "Figure 2"),
        "muon-plateau-diagonal": (
            f"It {arrives} where S is diagonal, and rounding cannot mix its eigenvectors.",
            "Figure 2 [ours]",
        ),
        "muon-momentum": (f"With momentum 0.9 and the plateau schedule Muon {arrives} in context.", "Figure 2 [ours]"),
    }
    results += [
        _arrival(f"figure-2-{name}", source, statement, _last(data["context"][name]))
        for name, (statement, source) in statements.items()
    ]
    results += [
        _slowness(
            f"figure-2-{name}-slow",
            "Figure 2",
            f"{who} is above {FAR:g} after as many steps at κ = {top:g}, in context.",
            _last(data["context"][name]).isel(kappa=-1),
        )
        for name, who in (("gradient-descent", "Gradient descent"), ("sign", "SignGD"))
    ]
    return results


def _arrival(name: str, source: str, statement: str, last: xr.DataArray) -> Check:
    return bound_check(
        name, f"preconditioning, {source}", statement, smallest_margin=float(np.log10(ARRIVED) - last.max())
    )


def _slowness(name: str, source: str, statement: str, last: xr.DataArray) -> Check:
    return bound_check(name, f"preconditioning, {source}", statement, smallest_margin=float(last.min() - np.log10(FAR)))


def tables(config: Config, data: Data) -> list[Table]:
    """Smallest errors by κ and k."""
    first = []
    for name in FACTORIZATION:
        last = _last(data["factorization"][name])
        first += [
            (TITLES[name], f"k = {k}", *(f"{10 ** float(last.sel(k=k, kappa=kappa)):.1e}" for kappa in config.kappas))
            for k in config.ks
        ]
    header = ("optimizer", "columns", *(f"κ = {kappa:g}" for kappa in config.kappas))
    second = [
        (
            TITLES[name],
            *(f"{10 ** float(_last(data['context'][name]).sel(kappa=kappa)):.1e}" for kappa in config.kappas),
        )
        for name in CONTEXT
    ]
    title = f"within {config.steps} steps, median of {config.seeds} seeds"
    return [
        Table(f"Smallest relative error of a factorization {title}", header, tuple(first)),
        Table(f"Smallest relative error in context {title}", header[:1] + header[2:], tuple(second)),
    ]


def plot(config: Config, data: Data) -> Figure:
    """Rows: Figure 1 over κ, Figure 1 over k, and Figure 2 in two rows, with medians and ranges of the seeds."""
    figure = Figure(figsize=(11.5, 12), layout="constrained")
    panels = figure.subplots(4, 3, sharey=True)
    for over_kappa, over_k, name in zip(panels[0], panels[1], FACTORIZATION, strict=True):
        found = data["factorization"][name]
        _draw(over_kappa, {f"κ = {kappa:g}": found.isel(k=0).sel(kappa=kappa) for kappa in config.kappas})
        over_kappa.set_title(f"{TITLES[name]}, k = {config.ks[0]}", fontsize="medium")
        _draw(over_k, {f"k = {k}": found.sel(kappa=config.fixed_kappa, k=k) for k in config.ks})
        over_k.set_title(f"{TITLES[name]}, κ = {config.fixed_kappa:g}", fontsize="medium")
    for axes, name in zip(panels[2:].ravel(), CONTEXT, strict=True):
        found = data["context"][name]
        _draw(axes, {f"κ = {kappa:g}": found.sel(kappa=kappa) for kappa in config.kappas})
        axes.set_title(f"in context: {TITLES[name]}", fontsize="medium")
    for row in panels:
        row[0].set_ylabel("relative error")
    for axes in panels[-1]:
        axes.set_xlabel("step")
    return figure


def _draw(axes, curves: dict[str, xr.DataArray]) -> None:  # type: ignore[no-untyped-def]
    for index, (label, curve) in enumerate(curves.items()):
        values = 10 ** curve.transpose("seed", ...).values
        steps = np.arange(values.shape[1])
        axes.plot(
            steps,
            np.median(values, 0),
            ("-", "--", "-.", ":")[index % 4],
            color=f"C{index}",
            label=label,
            linewidth=1.2,
        )
        axes.fill_between(steps, values.min(0), values.max(0), color=f"C{index}", alpha=0.12, linewidth=0)
    axes.set_yscale("log")
    axes.legend(fontsize="x-small")


EXPERIMENT = Experiment(
    name="convergence-curves",
    paper="preconditioning",
    source="preconditioning, Figures 1 and 2",
    title="Error curves of Muon, gradient descent and SignGD over κ and k",
    summary=(
        "Figure 1 comes out as in the paper: Muon with the plateau schedule reaches rounding at every κ and k, the others slow down. "
        "Figure 2 does not, for simplified Muon with that schedule: steps of equal length let rounding grow until the eigenvectors mix. "
        "Momentum, new prefactors in each step, or a diagonal S mend it."
    ),
    scales={
        "smoke": Config(d=4, r=2, ks=(2, 6), kappas=(1.0, 10.0, 1e3), context_d=4, steps=700, seeds=3),
        "quick": Config(),
        "paper": Config(
            d=20, r=5, ks=(5, 10, 20, 30), kappas=(1.0, 10.0, 100.0, 1e3, 1e4), context_d=20, steps=10_000, seeds=10
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"figure-2-muon-plateau"}),
)
