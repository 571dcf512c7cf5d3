"""Figures 1 and 2: error curves of Muon, gradient descent and SignGD over condition numbers and numbers of columns."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.preconditioning import runs
from specjax.experiments.preconditioning.validation import check_kappas
from specjax.sizes import AnySize
from specjax.theory.preconditioning.conditions import check_ranks

RATES = {"muon-plateau": 0.23, "gradient-descent": 1.0, "sign": 0.23, "muon": 0.5, "muon-momentum": 0.23}
"""Step sizes in the units of `runs`: of the distance to cover, or of the inverse curvature. No fraction of the distance like 1/4, with
which a sequence would land on its root, and the direction of a gradient of rounding is none."""
ARRIVED, FAR = 1e-8, 1e-5
"""Errors below the first are arrival, above the second what slow means here."""
SLOWER = 1.0
"""Powers of ten by which errors grow where an optimizer slows down significantly."""
RHO = 0.9
PLATEAU = (0.5, 10)
"""Factor and patience of the plateau schedule in all curves."""
FACTORS, PATIENCES = (0.5, 0.8, 0.9), (1, 2, 5, 10)
"""The settings of the map: the paper's are unknown."""
OPEN = 0.8
"""The factor at which what the patience does is judged: in runs of other draws arrival came and went with it."""
STRANDED = (0.5, 1)
MOST = 0.5
FACTORIZATION = ("muon-plateau", "gradient-descent", "sign")
CONTEXT = {
    "muon": ("muon", True),
    "muon-plateau": ("muon-plateau", True),
    "muon-plateau-diagonal": ("muon-plateau", False),
    "muon-momentum": ("muon-momentum", True),
    "gradient-descent": ("gradient-descent", True),
    "sign": ("sign", True),
}
"""Curves of Figure 2: the optimizer, and whether S is rotated or diagonal."""


class Config(lab.Config):
    """Sizes of the panels; the paper's own are lost."""

    d: int = lab.integer(8, least=2, help="rows of the factor")
    r: int = lab.integer(2, least=1, help="rank of the target")
    ks: tuple[int, ...] = lab.sizes(2, 4, 12, points=2, help="columns of the factor, from r to beyond d")
    kappas: tuple[float, ...] = lab.numbers(1.0, 10.0, 1e3, above=0, help="condition numbers, ascending from 1 up")
    fixed_kappa: float = lab.number(10.0, above=0, help="condition number of the panels over k")
    context_d: int = lab.integer(6, least=2, help="dimension of in-context regression")
    start_scale: float = lab.number(0.1, above=0, help="scale of the start, moderate")
    steps: int = lab.integer(1500, least=100, help="steps of each run")
    seeds: int = lab.seeds(30, least=24, help="targets and starts")

    def __post_init__(self) -> None:
        super().__post_init__()
        for k in self.ks:
            check_ranks(self.d, k, self.r)
        check_kappas("kappas", self.kappas, points=2)
        check_kappas("fixed_kappa", (self.fixed_kappa,), points=1)


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """log10 of the relative error after every step, over κ, over k and in context; and the smallest over settings of the plateau."""

    def factorization(key: Array, kappa: Array, k: AnySize) -> dict[str, Array]:
        posed = runs.wide_factorization(key, kappa, config.d, config.r, k, config.start_scale)
        return {name: _curve(config, name, key, posed, kappa) for name in FACTORIZATION}

    def context(key: Array, kappa: Array) -> dict[str, Array]:
        posed = {rotated: runs.in_context(key, kappa, config.context_d, rotated=rotated) for rotated in (True, False)}
        return {label: _curve(config, name, key, posed[rotated], kappa) for label, (name, rotated) in CONTEXT.items()}

    def settings(key: Array, kappa: Array) -> dict[str, Array]:
        posed = runs.in_context(key, kappa, config.context_d)
        pairs = [(f, p) for f in FACTORS for p in PATIENCES]
        factors, patiences = (jnp.asarray(part) for part in zip(*pairs, strict=True))
        smallest = jax.vmap(lambda f, p: _smallest_with(config, posed, f, p))(factors, patiences)
        return {"smallest": smallest.reshape(len(FACTORS), len(PATIENCES))}

    def sweeping(measure: Any, over: Any, name: str) -> xr.Dataset:
        found = sweep.run(
            measure, over, seeds=config.seeds, key=sizes.stream(key, name), chunk=config.seeds, plan="padded"
        )
        return found.rename({dim: "step" for dim in map(str, found.dims) if dim.endswith("_dim_0") and name != "map"})

    kappas, k = {"kappa": sweep.values(*config.kappas)}, config.ks[0]
    columns = {"k": sweep.widths(*config.ks)}
    fixed = config.fixed_kappa
    with jax.enable_x64(True):
        found = sweeping(settings, {"kappa": sweep.values(*config.kappas[1:])}, "map")
        return {
            "kappas": sweeping(lambda key, kappa: factorization(key, kappa, k), kappas, "kappas"),
            "columns": sweeping(lambda key, k: factorization(key, jnp.asarray(fixed), k), columns, "columns"),
            "context": sweeping(context, kappas, "context"),
            "map": found.rename(smallest_dim_0="factor", smallest_dim_1="patience").assign_coords(
                factor=list(FACTORS), patience=list(PATIENCES)
            ),
        }


def _curve(config: Config, name: str, key: Array, posed: runs.Problem, kappa: Array) -> Array:
    rate = jnp.full_like(kappa, RATES[name])
    transform = runs.transformation(name, sizes.stream(key, "schedule"), rate, posed, RHO, config.steps, PLATEAU)
    # An error of exactly 0 is drawn, and averaged, as the rounding of float64.
    return jnp.log10(jnp.maximum(runs.errors_along(posed, transform, config.steps), 1e-17))


def _smallest_with(config: Config, posed: runs.Problem, factor: Array, patience: Array) -> Array:
    """log10 of the smallest error of Muon under `optim.decay_on_plateau`, whose settings are arrays here."""

    def advance(state: Any, _: None) -> tuple[Any, Array]:
        x, rate, best, bad = state
        value = posed.loss(x)
        bad = jnp.where(value < best, 0, bad + 1)
        rate = jnp.where(bad >= patience, rate * factor, rate)
        x = posed.project(x - rate * spectral.polar(posed.gradient(x)))
        return (x, rate, jnp.minimum(best, value), jnp.where(bad >= patience, 0, bad)), posed.error(x)

    start = posed.start, RATES["muon-plateau"] * posed.length, jnp.full_like(posed.length, jnp.inf), jnp.zeros((), int)
    _, errors = jax.lax.scan(advance, start, length=config.steps)
    return jnp.log10(jnp.maximum(jnp.min(errors), 1e-17))


def _smallest(data: Any, group: str, name: str) -> xr.DataArray:
    """log10 of the smallest error on the way: the floor, whatever oscillates above it."""
    return data[group][name].min("step")


def _arrives(
    statement: str, cites: str | tuple[str, ...], says: str, group: str, name: str, *, corrected: bool = False
) -> lab.Statement:
    @lab.statement(
        cites, says, name=statement, controls={"SignGD": lab.replacing(name, "sign", of=group)}, corrected=corrected
    )
    def arrives(config: Config, data: Any) -> lab.Relation:
        return lab.happens((_smallest(data, group, name) < np.log10(ARRIVED)).rename("arrives"), more_than=MOST)

    return arrives


def _slow(statement: str, cites: str, says: str, group: str, name: str, *, holds: bool = True) -> lab.Statement:
    dim = "k" if group == "columns" else "kappa"
    muon = "muon" if group == "context" else "muon-plateau"

    @lab.statement(cites, says, name=statement, controls={"Muon": lab.replacing(name, muon, of=group)}, holds=holds)
    def slow(config: Config, data: Any) -> lab.Relation:
        found = _smallest(data, group, name)
        return lab.ahead(found.isel({dim: -1}, drop=True), found.isel({dim: 0}, drop=True), least=SLOWER, by="median")

    return slow


def _map(data: Any) -> xr.DataArray:
    return (data["map"]["smallest"] < np.log10(ARRIVED)).rename("arrives")


@lab.statement(
    "figure-2-muon",
    f"In context Muon with the plateau schedule arrives in most runs at every κ, whatever the patience (factor {OPEN}).",
    along="patience",
    controls={"gradient descent at the largest κ": lambda config, data: _stand_in(data, "gradient-descent")},
    holds=None,
)
def plateau(config: Config, data: Any) -> lab.Relation:
    """The paper's settings are lost: whether it does is the map, and no verdict of ours."""
    return lab.happens(_map(data).sel(factor=OPEN), more_than=MOST)


@lab.statement(
    "figure-2-muon",
    f"There are settings with which it does, {OPEN:g} and {PATIENCES[0]:d}.",
    corrected=True,
    controls={"the setting {:g} and {:d}".format(*STRANDED): lambda config, data: _other_setting(data)},
)
def arriving(config: Config, data: Any) -> lab.Relation:
    """At every κ."""
    return lab.happens(_map(data).sel(factor=OPEN, patience=PATIENCES[0]), more_than=MOST)


@lab.statement(
    "figure-2-muon",
    "There are settings with which its steps shrink too soon, {:g} and {:d}: most runs stay above 1e-5 at the largest κ.".format(
        *STRANDED
    ),
    corrected=True,
    controls={f"the setting {OPEN:g} and {PATIENCES[0]:d}": lambda config, data: _other_setting(data)},
)
def stranded(config: Config, data: Any) -> lab.Relation:
    """At the smallest factor and patience."""
    found = data["map"]["smallest"].sel(factor=STRANDED[0], patience=STRANDED[1]).isel(kappa=-1)
    return lab.happens((found > np.log10(FAR)).rename("stays away"), more_than=MOST)


def _other_setting(data: Any) -> Any:
    """A control: the map with the two settings that are judged exchanged."""
    found = data["map"]["smallest"].copy(deep=True)
    first, second = ({"factor": f, "patience": p} for f, p in ((OPEN, PATIENCES[0]), STRANDED))
    found.loc[first], found.loc[second] = found.sel(second).copy().values, found.sel(first).copy().values
    return {**data, "map": data["map"].assign(smallest=found)}


def _stand_in(data: Any, name: str) -> Any:
    """A control: another optimizer in the place of Muon, at every setting."""
    smallest = data["map"]["smallest"]
    other = _smallest(data, "context", name).sel(kappa=smallest.kappa)
    return {**data, "map": data["map"].assign(smallest=other.broadcast_like(smallest).transpose(*smallest.dims))}


def figure(config: Config, data: Any) -> Figure:
    """Rows: Figure 1 over κ, over k, Figure 2 in two rows, with medians and ranges of the seeds, and the map of plateau settings."""
    drawn = Figure(figsize=(11.5, 14), layout="constrained")
    above, below = drawn.subfigures(2, 1, squeeze=False, height_ratios=(6, 1)).ravel()
    panels = above.subplots(4, 3, sharey=True)
    rows = [("kappas", name) for name in FACTORIZATION] + [("columns", name) for name in FACTORIZATION]
    for axes, (group, name) in zip(panels.ravel(), [*rows, *(("context", name) for name in CONTEXT)], strict=True):
        found = data[group][name]
        dim = "k" if group == "columns" else "kappa"
        for place, point in enumerate(found[dim].values):
            values = 10 ** found.isel({dim: place}).transpose("seed", "step").values
            style = ("-", "--", "-.", ":")[place % 4]
            label = f"{'k' if dim == 'k' else 'κ'} = {point:g}"
            axes.plot(np.median(values, 0), style, color=f"C{place}", label=label, linewidth=1.2)
            steps = np.arange(values.shape[1])
            axes.fill_between(steps, values.min(0), values.max(0), color=f"C{place}", alpha=0.12, linewidth=0)
        held = {"kappas": f"k = {config.ks[0]}", "columns": f"κ = {config.fixed_kappa:g}", "context": "in context"}
        axes.set_title(f"{name}, {held[group]}", fontsize="medium")
        axes.set(yscale="log", xlabel="step")
        axes.legend(fontsize="x-small")
    for row in panels:
        row[0].set_ylabel("relative error")
    _draw_map(below.subplots(), _map(data))
    return drawn


def _draw_map(axes: Axes, arrived: xr.DataArray) -> None:
    shares = arrived.mean("seed").transpose("factor", "kappa", "patience")
    columns = [(kappa, patience) for kappa in shares["kappa"].values for patience in PATIENCES]
    values = shares.values.reshape(len(FACTORS), len(columns))
    axes.imshow(values, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (row, column), share in np.ndenumerate(values):
        color = "white" if share > 0.6 else "black"
        axes.text(column, row, f"{share:.2g}", ha="center", va="center", fontsize="x-small", color=color)
    labels = [
        f"{patience}\nκ = {kappa:g}" if patience == PATIENCES[0] else f"{patience}" for kappa, patience in columns
    ]
    axes.set_xticks(range(len(columns)), labels)
    axes.set_yticks(range(len(values)), [f"{factor:g}" for factor in FACTORS])
    axes.set(xlabel="patience, for each κ", ylabel="factor")
    axes.set_title(
        "in context: share of runs of Muon that arrive, by settings of the plateau schedule", fontsize="medium"
    )


def tables(config: Config, data: Any) -> list[lab.Table]:
    """The map."""
    count = _map(data).sum("seed")
    rows = tuple(
        (f"{f:g}", str(p), *(str(int(count.sel(factor=f, patience=p, kappa=kappa))) for kappa in count.kappa.values))
        for f in FACTORS
        for p in PATIENCES
    )
    title = f"Runs of simplified Muon in context, of {config.seeds}, that reach {ARRIVED:g} within {config.steps} steps"
    return [lab.Table(title, ("factor", "patience", *(f"κ = {kappa:g}" for kappa in count.kappa.values)), rows)]


IN_MOST = f"reaches {ARRIVED:g} in most runs"
SLOWS_DOWN = "the smallest error is more than ten times larger at the largest {} than at the smallest, in the median"

EXPERIMENT = lab.Experiment(
    "convergence-curves",
    ledger("preconditioning"),
    title="Error curves of Muon, gradient descent and SignGD over κ and k",
    summary="Figure 1 comes out as in the paper: Muon with the plateau schedule reaches rounding at every κ and k, the others slow down. "
    "Figure 2 depends on factor and patience of that schedule, which are unknown: simplified Muon arrives, or runs out of steps, or takes "
    "so many of equal length that rounding grows, mixes the eigenvectors and decides. There momentum, new prefactors in each step, or a "
    "diagonal S help.",
    config=Config,
    measure=run,
    statements=(
        _arrives(
            "muon-over-kappa",
            ("figure-1-kappa-muon", "section-2-moderate-start"),
            f"With k = r Muon with the plateau schedule {IN_MOST} at every κ.",
            "kappas",
            "muon-plateau",
        ),
        _arrives(
            "muon-over-columns",
            ("figure-1-columns-muon", "section-2-moderate-start"),
            f"Muon with the plateau schedule {IN_MOST} with every number of columns.",
            "columns",
            "muon-plateau",
        ),
        _slow(
            "gradient-descent-over-kappa",
            "figure-1-kappa-rivals",
            f"Of gradient descent {SLOWS_DOWN.format('κ')}.",
            "kappas",
            "gradient-descent",
        ),
        _slow("sign-over-kappa", "figure-1-kappa-rivals", f"Of SignGD {SLOWS_DOWN.format('κ')}.", "kappas", "sign"),
        _slow(
            "gradient-descent-over-columns",
            "figure-1-columns-rivals",
            f"Of gradient descent {SLOWS_DOWN.format('k')}.",
            "columns",
            "gradient-descent",
        ),
        _slow(
            "sign-over-columns", "figure-1-columns-rivals", f"Of SignGD {SLOWS_DOWN.format('k')}.", "columns", "sign"
        ),
        plateau,
        arriving,
        stranded,
        _arrives(
            "diagonal",
            "figure-2-muon",
            f"Where S is diagonal, and rounding cannot mix its eigenvectors, Muon with the plateau schedule {IN_MOST} at every κ.",
            "context",
            "muon-plateau-diagonal",
            corrected=True,
        ),
        _arrives(
            "momentum",
            "figure-2-muon",
            f"With momentum 0.9 and the plateau schedule Muon {IN_MOST} in context, at every κ.",
            "context",
            "muon-momentum",
            corrected=True,
        ),
        _arrives(
            "new-prefactors",
            "figure-2-muon",
            f"With new prefactors in each step Muon {IN_MOST} in context, at every κ.",
            "context",
            "muon",
            corrected=True,
        ),
        _slow(
            "gradient-descent-in-context",
            "figure-2-rivals",
            f"Of gradient descent in context {SLOWS_DOWN.format('κ')}.",
            "context",
            "gradient-descent",
        ),
        _slow(
            "sign-in-context", "figure-2-rivals", f"Of SignGD in context {SLOWS_DOWN.format('κ')}.", "context", "sign"
        ),
    ),
    scales={
        "smoke": {"d": 4, "ks": (2, 6), "kappas": (1.0, 1e3), "context_d": 4, "steps": 1000, "seeds": 24},
        "paper": {
            "d": 20,
            "r": 5,
            "ks": (5, 10, 20, 30),
            "kappas": (1.0, 10.0, 100.0, 1e3, 1e4),
            "context_d": 20,
            "steps": 10_000,
        },
    },
    figure=figure,
    tables=tables,
)
