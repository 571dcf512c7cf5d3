"""Theorems 2 and 4: instances on which SignGD needs iterations of order κ and κ³, whatever its non-increasing schedule."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.preconditioning.validation import check_kappas
from specjax.models import in_context_regression, matrix_factorization
from specjax.theory.preconditioning import adversarial

INSTANCES = {"quadratic": 1, "factorization": 1, "regression": 3}
"""Each with the power of κ in its bound."""
CONSTANTS = {"quadratic": 4, "factorization": 12, "regression": 4}
"""κ, or κ³, over these is the bound on the steps beyond the barrier."""
BOUNDS = {"quadratic": "κ/4", "factorization": "κ/12", "regression": "κ³/4"}
LOOSE = 0.8
"""By how much the bounds may be loose: they are meant to have the right order, with constants that we derived."""
NEAR = 2
"""The multiple of the bound that a schedule made for it should need at most."""
ROUNDING = 1e-12


class Config(lab.Config):
    """Condition numbers and the number of schedules."""

    kappas: tuple[float, ...] = lab.numbers(
        30.0, 100.0, 300.0, 1e3, above=0, help="condition numbers of M, and a tenth of the quadratic's"
    )
    context_kappas: tuple[float, ...] = lab.numbers(6.0, 9.0, 14.0, 21.0, above=0, help="condition numbers of S")
    trials: int = lab.integer(500, least=10, help="points at which Lemma 14 is tried, for each seed")
    seeds: int = lab.seeds(40, least=10, help="schedules, with an accuracy each, at each condition number")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kappas("kappas", self.kappas, points=4)
        check_kappas("context_kappas", self.context_kappas, points=4)


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Steps beyond the barrier until the instance is solved, under drawn schedules and one made for the bound; signs at random points."""
    data = {}
    with jax.enable_x64(True):
        for name, power in INSTANCES.items():
            kappas = config.context_kappas if power == 3 else config.kappas
            # The quadratic costs little, and its bound shows from larger κ on.
            kappas = tuple(10 * kappa for kappa in kappas) if name == "quadratic" else kappas
            data[name] = sweep.run(
                _measure(name, max(kappas)),
                {"kappa": sweep.values(*kappas)},
                seeds=config.seeds,
                key=sizes.stream(key, name),
                chunk=10,
            )
        data["signs"] = sweep.run(
            lambda key, kappa: _signs(key, kappa, config.trials),
            {"kappa": sweep.values(*config.kappas)},
            seeds=config.seeds,
            key=sizes.stream(key, "signs"),
        )
    return data


def drawn_schedule(key: Array, length: int) -> Array:
    """A non-increasing schedule whose kind and numbers know nothing of the problem: a power, one after a plateau, or a staircase."""
    kind, *u = jax.random.uniform(key, (4,))
    times = jnp.arange(length).astype(kind.dtype)
    power = 0.75 + 0.75 * u[0]
    shapes = (
        (1 + times) ** -power,
        (1 + times / 10 ** (2 * u[1])) ** -power,
        2.0 ** -jnp.floor(times / 10 ** (1 + 2 * u[1])),
    )
    return (1 + u[2]) / 16 * jnp.stack(shapes)[jnp.floor(3 * kind).astype(int)]


def _measure(name: str, largest: float) -> Callable[..., dict[str, Array]]:
    # η_0/(t + 1) is below the threshold after at most that many steps, and then needs as many again at most.
    length = int(8 * {"quadratic": largest, "factorization": largest**1.5, "regression": largest**3}[name])

    def measure(key: Array, kappa: Array) -> dict[str, Array]:
        rates = drawn_schedule(sizes.stream(key, "schedule"), length)
        accuracy = 10 ** (-2 + 1.5 * jax.random.uniform(sizes.stream(key, "accuracy")))
        times = jnp.arange(length).astype(kappa.dtype)
        # τ of the instance in units of η, below which the other schedule comes at once and then falls as fast as b does.
        threshold = {
            "quadratic": 2 * accuracy / kappa / jnp.sqrt(jnp.asarray(2.0)),
            "factorization": 3 * adversarial.RADIUS * kappa**-1.5 / 2,
            "regression": 2 * accuracy * kappa**-3 / 2,
        }[name]
        made = jnp.maximum(
            rates[0] * 2.0**-times,
            jnp.minimum(2 * 0.95 * threshold, rates[0]) * jnp.exp(-1.9 * times / kappa ** INSTANCES[name]),
        )
        bound = kappa ** INSTANCES[name] / CONSTANTS[name]
        found = {
            "drawn": _follow(name, kappa, rates, accuracy),
            "made": _follow(name, kappa, made, accuracy),
            "unaware": _follow(name, kappa, rates, accuracy, aware=False),
        }
        return {
            f"{quantity}_{start}": value / bound if quantity == "beyond" else value
            for start, result in found.items()
            for quantity, value in result.items()
        }

    return measure


def _follow(name: str, kappa: Array, rates: Array, accuracy: Array, *, aware: bool = True) -> dict[str, Array]:
    """SignGD until it arrives; without `aware` the start has no first coordinate, where there is nothing to be held by."""
    if name == "quadratic":
        instance = adversarial.quadratic(kappa, rates, accuracy)
    elif name == "factorization":
        instance = adversarial.factorization(kappa, rates)
    else:
        instance = adversarial.regression(kappa, rates, accuracy)
    first = jnp.asarray([[1, 1], [1, 1]]) / 2 if instance.start.ndim == 2 else jnp.ones(2) / jnp.sqrt(jnp.asarray(2.0))
    root = {"quadratic": 0.0, "factorization": 1.0, "regression": 1.0}[name]
    along = jnp.sum(first * instance.start) - root
    start = instance.start if aware else instance.start - along * first
    # Of [[1, κ⁻¹]] in the rotated basis.
    inverse = jnp.stack([jnp.stack([1 + kappa, 1 - kappa]), jnp.stack([1 - kappa, 1 + kappa])]) / 2

    def advance(x: Array, rate: Array) -> Array:
        if name == "quadratic":
            return x - rate * jnp.sign(instance.matrix @ x)
        model = matrix_factorization if name == "factorization" else in_context_regression
        return x - rate * adversarial.tied_sign(model.gradient(x, instance.matrix))

    def error(x: Array) -> Array:
        if name == "quadratic":
            return jnp.linalg.norm(x)
        return jnp.linalg.norm(x @ x.T - instance.matrix if name == "factorization" else x - inverse)

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        x, t, _ = state
        return (t < rates.shape[0]) & (error(x) > instance.accuracy)

    def turn(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, t, moved = state
        after = advance(x, rates[t])
        # The coordinate of 1/κ: it must not move while the barrier holds.
        change = jnp.abs(_second(after) - _second(x))
        return after, t + 1, jnp.where(t < instance.frozen, jnp.maximum(moved, change), moved)

    last, steps, moved = jax.lax.while_loop(unfinished, turn, (start, jnp.zeros((), int), jnp.zeros_like(kappa)))
    return {
        "beyond": (steps - instance.frozen).astype(float),
        "arrived": error(last) <= instance.accuracy,
        "moved": moved,
    }


def _second(x: Array) -> Array:
    """The coordinate along the eigenvector of 1/κ: b for a vector, p - q for [[p, q], [q, p]]."""
    return (x[0] - x[1]) / jnp.sqrt(jnp.asarray(2.0)) if x.ndim == 1 else x[0, 0] - x[0, 1]


def _signs(key: Array, kappa: Array, trials: int) -> dict[str, Array]:
    """Lemma 14 at random points, and Lemma 16: how far a step leaves the matrices [[p, q], [q, p]]."""
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

    return {
        "mismatches": mismatches(kappa),
        "mismatches_without": mismatches(jnp.ones_like(kappa)),
        "left": jnp.maximum(_off(matrix_factorization.gradient(x, m)), _off(in_context_regression.gradient(x, m))),
        "left_generic": _off(matrix_factorization.gradient(x.at[0, 0].add(1.0), m)),
    }


def _off(x: Array) -> Array:
    """How far a 2×2 matrix is from [[p, q], [q, p]], relative to its largest entry."""
    return jnp.maximum(jnp.abs(x[0, 0] - x[1, 1]), jnp.abs(x[0, 1] - x[1, 0])) / jnp.max(jnp.abs(x))


@lab.statement(
    "lemma-14",
    "At every random point SignGD moves the first rotated coordinate alone where κ |a| > |b|, and else the second alone.",
    controls={"|a| > |b|": lab.replacing("mismatches", "mismatches_without", of="signs")},
)
def one_coordinate(config: Config, data: Any) -> lab.Relation:
    """Counts, of which half is rounding."""
    return lab.identity(data["signs"]["mismatches"], tolerance=0.5)


@lab.statement(
    "lemma-16",
    "Gradients at matrices [[p, q], [q, p]] have that form, for the factorization and in context.",
    controls={"a matrix without it": lab.replacing("left", "left_generic", of="signs")},
)
def invariant(config: Config, data: Any) -> lab.Relation:
    """Relative to the largest entry."""
    return lab.identity(data["signs"]["left"], tolerance=ROUNDING)


def unaware(config: Config, data: Any) -> Any:
    """A control: starts that do not know the schedule."""
    changed = dict(data)
    for name in INSTANCES:
        found = data[name]
        changed[name] = found.assign({f"{q}_drawn": found[f"{q}_unaware"] for q in ("beyond", "arrived", "moved")})
    return changed


@lab.statement(
    "lemma-15",
    "From a start built backwards the second coordinate does not move while the steps are at least twice the threshold.",
    controls={"starts that do not know the schedule": unaware},
)
def barrier(config: Config, data: Any) -> lab.Relation:
    """On all three instances, the condition numbers being counted."""
    moved = [data[name]["moved_drawn"].drop_vars("kappa") for name in INSTANCES]
    return lab.identity(xr.concat(moved, xr.Variable("instance", list(INSTANCES))).rename("moved"), tolerance=ROUNDING)


def _bound(name: str, cites: str | tuple[str, ...], what: str) -> lab.Statement:
    @lab.statement(
        cites,
        f"Under no schedule drawn SignGD solves {what} earlier than {BOUNDS[name]} steps beyond the barrier.",
        name=f"{name}-bound",
        controls={"starts that do not know the schedule": unaware},
    )
    def bound(config: Config, data: Any) -> lab.Relation:
        beyond, arrived = data[name]["beyond_drawn"], data[name]["arrived_drawn"]
        # A run that was given up has not arrived early: it counts as twice the bound.
        return lab.always(
            xr.ones_like(beyond), beyond.where(arrived, 2.0).rename("steps / bound"), slack=LOOSE, rounding=1e-9
        )

    return bound


def _attained(name: str, cites: str) -> lab.Statement:
    @lab.statement(
        cites,
        f"The order is right: a schedule made for it needs no more than {NEAR} times {BOUNDS[name]} steps beyond the barrier, at every κ, "
        "in the median.",
        name=f"{name}-attained",
        corrected=True,
        controls={
            "drawn schedules": lambda config, data: {
                **data,
                name: data[name].assign(beyond_made=data[name]["beyond_drawn"]),
            }
        },
    )
    def attained(config: Config, data: Any) -> lab.Relation:
        return lab.below(
            data[name]["beyond_made"].rename("steps / bound"), NEAR, f"{NEAR} times the bound", by="median"
        )

    return attained


def figure(config: Config, data: Any) -> Figure:
    """Steps beyond the barrier in units of the bound against κ; runs that were given up are drawn at the top as triangles."""
    drawn = Figure(figsize=(12, 3.8), layout="constrained")
    for axes, name in zip(drawn.subplots(1, 3), INSTANCES, strict=True):
        found = data[name]
        kappas = np.broadcast_to(found["kappa"].values[:, None], found["beyond_drawn"].shape)
        for kind, color in (("drawn", "C0"), ("made", "C1")):
            beyond = found[f"beyond_{kind}"].transpose("kappa", "seed").values
            arrived = found[f"arrived_{kind}"].transpose("kappa", "seed").values
            axes.plot(kappas[arrived], beyond[arrived], "o", color=color, fillstyle="none", label=f"schedule {kind}")
            top = np.full(np.sum(~arrived), 1.5 * beyond.max())
            axes.plot(kappas[~arrived], top, "^", color=color, label=None if arrived.all() else f"{kind}: given up")
        axes.axhline(1, color="black", linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="condition number κ", title=f"{name}: {BOUNDS[name]}")
        axes.legend(fontsize="x-small")
    drawn.axes[0].set_ylabel("steps beyond the barrier / bound")
    return drawn


EXPERIMENT = lab.Experiment(
    "sign-gradient-lower-bounds",
    ledger("preconditioning"),
    title="SignGD on instances built against its schedule: iterations of order κ and κ³",
    summary="From starts built backwards from the schedule SignGD freezes the coordinate of the small eigenvalue for as long as its steps "
    "are large, and has too small steps afterwards: κ/4, κ/12 and κ³/4 steps more, at any accuracy, whatever the schedule. The starts are "
    "bad for one schedule each.",
    config=Config,
    measure=run,
    statements=(
        one_coordinate,
        invariant,
        barrier,
        _bound("quadratic", "lemma-12", "the quadratic"),
        _bound("factorization", ("theorem-2", "lemma-13"), "the 2×2 factorization"),
        _bound("regression", "theorem-4", "2×2 in-context regression"),
        _attained("quadratic", "lemma-12"),
        _attained("regression", "theorem-4"),
    ),
    scales={
        "smoke": {
            "kappas": (20.0, 40.0, 60.0, 80.0),
            "context_kappas": (4.0, 5.0, 6.0, 8.0),
            "trials": 50,
            "seeds": 20,
        },
        "paper": {
            "kappas": (30.0, 100.0, 300.0, 1e3, 3e3),
            "context_kappas": (6.0, 9.0, 14.0, 21.0, 32.0),
            "seeds": 100,
        },
    },
    figure=figure,
)
