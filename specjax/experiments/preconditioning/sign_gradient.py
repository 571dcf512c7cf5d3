"""Theorems 2 and 4: instances on which SignGD needs iterations of order κ and κ³."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.lab.drawing import COLORS
from specjax.models import in_context_regression, matrix_factorization
from specjax.theory.preconditioning import adversarial


class Bound(NamedTuple):
    """At least κ^power/constant steps beyond the barrier; schedules must be as long as 8
    κ^longest.
    """

    posed: Callable[..., Any]
    steps: str
    power: int
    constant: int
    longest: float


BOUNDS = {
    "quadratic": Bound(adversarial.quadratic, "κ/4", 1, 4, 1.0),
    # At an accuracy of its own, 1/(5κ).
    "factorization": Bound(
        lambda kappa, rates, _: adversarial.factorization(kappa, rates), "κ/12", 1, 12, 1.5
    ),
    "regression": Bound(adversarial.regression, "κ³/4", 3, 4, 3.0),
}
NEAR, ROUNDING = (
    2,
    1e-12,
)  # The multiple of its bound that a schedule needs at most, and the float64 rounding of 0.


class Config(lab.Config):
    """Condition numbers and the number of schedules."""

    kappas: tuple[float, ...] = lab.config.ascending(
        30, 100, 300, 1e3, least=1, points=4, help="κ of M, a tenth of the other"
    )
    context_kappas: tuple[float, ...] = lab.config.ascending(
        6, 9, 14, 21, least=1, points=4, help="condition numbers of S"
    )
    trials: int = lab.config.integer(
        500,
        least=10,
        most=lab.config.MOST_COUNT,
        help="points at which Lemma 14 is tried, for each seed",
    )
    seeds: int = lab.config.seeds(
        40, least=10, help="schedules, with an accuracy each, at each condition number"
    )


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Steps beyond the barrier under random schedules and one made for the bound; signs."""
    # The quadratic is cheap, and its bound shows from larger κ on.
    large = tuple(10 * kappa for kappa in config.kappas)
    kappas = {
        "quadratic": large,
        "factorization": config.kappas,
        "regression": config.context_kappas,
    }
    with jax.enable_x64(True):
        found = {
            name: lab.seeded_sweep(
                key, name, partial(_solved, name, max(at)), config.seeds, kappa=sweep.values(*at)
            )
            for name, at in kappas.items()
        }
        signs = partial(_signs, config.trials)
        return found | {
            "signs": lab.seeded_sweep(
                key, "signs", signs, config.seeds, kappa=sweep.values(*config.kappas)
            )
        }


def drawn_schedule(key: Array, length: int) -> Array:
    """A random non-increasing schedule, independent of the problem: power, plateau or staircase."""
    kind, *u = jax.random.uniform(key, (4,))
    times = jnp.arange(length).astype(kind.dtype)
    power = 0.75 + 0.75 * u[0]
    shapes = (
        (1 + times) ** -power,
        (1 + times / 10 ** (2 * u[1])) ** -power,
        2.0 ** -jnp.floor(times / 10 ** (1 + 2 * u[1])),
    )
    return (1 + u[2]) / 16 * jnp.stack(shapes)[jnp.floor(3 * kind).astype(int)]


def _solved(name: str, largest: float, key: Array, kappa: Array) -> dict[str, dict[str, Array]]:
    """Steps beyond the barrier over the bound, arrival, and the move of b within the barrier."""
    posed, _, power, constant, longest = BOUNDS[name]
    # Enough for steps η_0/(t + 1): after half of them they are below the threshold, and the rest
    # finishes the run.
    length = int(8 * largest**longest)
    rates = drawn_schedule(sizes.stream(key, "schedule"), length)
    accuracy = 10 ** (-2 + 1.5 * jax.random.uniform(sizes.stream(key, "accuracy")))
    times = jnp.arange(length).astype(kappa.dtype)
    drawn = posed(kappa, rates, accuracy)
    # The schedule made for the bound is below the threshold at once, and then falls as fast as b.
    below = jnp.minimum(0.95 * drawn.least_rate, rates[0])
    made = jnp.maximum(rates[0] * 2.0**-times, below * jnp.exp(-1.9 * times / kappa**power))
    # The first coordinate holds a start at the barrier; here it is at the root.
    start, root = drawn.start, 0.0 if name == "quadratic" else 1.0
    first = jnp.ones_like(start) / jnp.sqrt(jnp.asarray(float(start.size)))
    unaware = start - (jnp.sum(first * start) - root) * first

    def follow_start(at: Any, rates: Array, start: Array) -> dict[str, Array]:
        found = adversarial.follow(at, rates, start)
        beyond = (found.steps - at.frozen).astype(float) / (kappa**power / constant)
        return {"beyond": beyond, "arrived": found.arrived, "moved": found.moved}

    of_made = posed(kappa, made, accuracy)
    found = {
        "drawn": follow_start(drawn, rates, start),
        "unaware": follow_start(drawn, rates, unaware),
    }
    return found | {"made": follow_start(of_made, made, of_made.start)}


def _signs(trials: int, key: Array, kappa: Array) -> dict[str, Array]:
    """Lemma 14 at random points, and Lemma 16: the deviation of a step from [[p, q], [q, p]]."""
    rotation = adversarial.rotation()
    z = jax.random.normal(sizes.stream(key, "points"), (2, trials))
    z = z * jnp.stack([1 / kappa, jnp.ones_like(kappa)])[:, None]
    hessian = rotation @ jnp.diag(jnp.stack([jnp.ones_like(kappa), 1 / kappa])) @ rotation
    step = jnp.abs(rotation @ jnp.sign(hessian @ rotation @ z)) > 0.5
    p, q, r, s = jax.random.normal(sizes.stream(key, "matrices"), (4,))
    x, m = (jnp.stack([jnp.stack([a, b]), jnp.stack([b, a])]) for a, b in ((p, q), (r, s)))

    def mismatches(kappa: Array) -> Array:
        first = adversarial.first_moves(z[0], z[1], kappa)
        return jnp.sum((step[0] != first) | (step[1] == first)).astype(float)

    def off(x: Array) -> Array:
        return jnp.maximum(jnp.abs(x[0, 0] - x[1, 1]), jnp.abs(x[0, 1] - x[1, 0])) / jnp.max(
            jnp.abs(x)
        )

    return {
        "mismatches": mismatches(kappa),
        "mismatches_without": mismatches(jnp.ones_like(kappa)),
        "left": jnp.maximum(
            off(matrix_factorization.gradient(x, m)), off(in_context_regression.gradient(x, m))
        ),
        "left_generic": off(matrix_factorization.gradient(x.at[0, 0].add(1.0), m)),
    }


def unaware(config: Config, data: Any) -> Any:
    """A control with starts that do not depend on the schedule."""
    names = {f"drawn.{what}": f"unaware.{what}" for what in ("beyond", "arrived", "moved")}
    changed = {
        name: data[name].assign({drawn: data[name][other] for drawn, other in names.items()})
        for name in BOUNDS
    }
    return {**data, **changed}


states = lab.Statements()
UNAWARE = {"starts that do not know the schedule": unaware}


@states(
    "lemma-14",
    controls={"|a| > |b|": lab.controls.replacing("mismatches", "mismatches_without", of="signs")},
)
def one_coordinate(config: Config, data: Any) -> lab.Relation:
    """At every random point SignGD moves the first rotated coordinate alone where κ |a| > |b|, and
    else the second alone.
    """
    return lab.zero_error(data["signs"]["mismatches"], tolerance=0.5)  # counts: whole numbers


@states(
    "lemma-16",
    controls={"a matrix without it": lab.controls.replacing("left", "left_generic", of="signs")},
)
def invariant(config: Config, data: Any) -> lab.Relation:
    """Gradients at matrices [[p, q], [q, p]] have that form, for the factorization and in
    context.
    """
    return lab.zero_error(data["signs"]["left"], tolerance=ROUNDING)


@states("lemma-15", controls=UNAWARE)
def barrier(config: Config, data: Any) -> lab.Relation:
    """From a start built backwards the second coordinate does not move while the steps are at least
    twice the threshold.
    """
    # The instances have different condition numbers, so they are paired by their order.
    moved = [data[name]["drawn.moved"].drop_vars("kappa") for name in BOUNDS]
    return lab.zero_error(
        xr.concat(moved, xr.Variable("instance", list(BOUNDS))).rename("moved"), tolerance=ROUNDING
    )


def _bound(name: str, cites: str | tuple[str, ...], what: str) -> None:
    says = (
        f"Under no schedule drawn SignGD solves {what} earlier than {BOUNDS[name].steps} steps"
        " beyond the barrier."
    )

    @states(cites, says, name=f"{name}-bound", controls=UNAWARE)
    def bound(config: Config, data: Any) -> lab.Relation:
        found = data[name]
        # An unfinished run has not arrived early: it counts as twice the bound.
        beyond = found["drawn.beyond"].where(found["drawn.arrived"], 2.0).rename("steps / bound")
        # The constants are ours, and the bounds need only the right order, hence the slack.
        return lab.inequality(xr.ones_like(beyond), beyond, slack=0.8, rounding=1e-9)


_bound("quadratic", "lemma-12", "the quadratic")
_bound("factorization", ("theorem-2", "lemma-13"), "the 2×2 factorization")
_bound("regression", "theorem-4", "2×2 in-context regression")


def _attained(name: str, cites: str) -> None:
    needs = (
        f"needs no more than {NEAR} times {BOUNDS[name].steps} steps beyond the barrier, at every"
        " κ, in the median."
    )
    says = f"The order is right: a schedule made for it {needs}"
    drawn = {"drawn schedules": lab.controls.replacing("made.beyond", "drawn.beyond", of=name)}

    @states(cites, says, name=f"{name}-attained", corrected=True, controls=drawn)
    def attained(config: Config, data: Any) -> lab.Relation:
        beyond = data[name]["made.beyond"].rename("steps / bound")
        return lab.below(beyond, NEAR, f"{NEAR} times the bound", by="median")


_attained("quadratic", "lemma-12")
_attained("regression", "theorem-4")


def figure(config: Config, data: Any) -> Figure:
    """Plot steps beyond the barrier over the bound by κ; triangles are unfinished runs.

    A triangle may lie below the bound, if the schedule of fixed length left few steps beyond the
    barrier.
    """
    drawn = Figure(figsize=(12, 4), layout="constrained")
    named = dict[str, Artist]()
    for axes, (name, bound) in zip(drawn.subplots(1, 3), BOUNDS.items(), strict=True):
        for color, kind in zip(COLORS, ("drawn", "made"), strict=False):
            beyond, arrived = data[name][f"{kind}.beyond"], data[name][f"{kind}.arrived"]
            for mark, remark, shown in (
                ("o", "", arrived),
                ("^", ", given up there: needs more", ~arrived),
            ):
                found = beyond.where(shown).stack(run=beyond.dims).dropna("run")
                (marks,) = axes.plot(found["kappa"], found, mark, color=color, fillstyle="none")
                if found.size:
                    named.setdefault(f"schedule {kind}{remark}", marks)
        axes.axhline(1, color="black", linewidth=1)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="κ",
            ylabel="steps / bound",
            title=f"{name}: {bound.steps}",
        )
    drawn.legend(
        named.values(), named.keys(), fontsize="small", loc="outside lower center", ncols=len(named)
    )
    return drawn


EXPERIMENT = lab.Experiment(
    "sign-gradient-lower-bounds",
    ledger("preconditioning"),
    title="SignGD on instances built against its schedule: iterations of order κ and κ³",
    summary=(
        "From starts built backwards SignGD's large steps freeze a coordinate; what is left takes"
        " κ/4, κ/12 and κ³/4 steps more."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 20},
        "smoke": (
            {"kappas": (20.0, 40.0, 60.0, 80.0), "context_kappas": (4.0, 5.0, 6.0, 8.0)}
            | {"trials": 50, "seeds": 20}
        ),
        "paper": {
            "kappas": (30.0, 100.0, 300.0, 1e3, 3e3),
            "context_kappas": (6.0, 9.0, 14.0, 21.0, 32.0),
        }
        | {"seeds": 100},
    },
    figure=figure,
)
