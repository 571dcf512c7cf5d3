"""Theorems 2 and 4: instances on which SignGD needs iterations of order κ and κ³, whatever its non-increasing schedule."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sizes, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.preconditioning.slopes import slope
from specjax.experiments.preconditioning.validation import check_count, check_kappas
from specjax.experiments.validation import check_root_seed
from specjax.experiments.verdicts import band_check, bound_check, equality_check
from specjax.models import in_context_regression, matrix_factorization
from specjax.theory.preconditioning import adversarial, iterations

ACCURACY = 0.1
"""ε of the quadratic and of the in-context instance, any; that of the factorization is 1/(5 κ)."""

SCHEDULES = {
    "inverse": "η_0/(t + 1)",
    "floor": "η_0 2^(-t), not below η exp(-t/4K)",
}
"""Both never increase. The second comes down at once to steps η just below those that hold the barrier, and stays there for about as long
as is needed, K = κ or κ³ steps."""

INSTANCES = {
    "quadratic": ("Lemma 12", "quadratic", 1),
    "factorization": ("Theorem 2", "2×2 factorization", 1),
    "regression": ("Theorem 4", "2×2 in-context regression", 3),
}


@dataclass(frozen=True)
class Config:
    """Condition numbers and the number of schedules of each kind."""

    kappas: tuple[float, ...] = field(
        default=(30.0, 100.0, 300.0, 1e3), metadata={"help": "condition numbers of M, and a tenth of the quadratic's"}
    )
    context_kappas: tuple[float, ...] = field(
        default=(6.0, 9.0, 14.0, 21.0), metadata={"help": "condition numbers of S"}
    )
    trials: int = field(default=20_000, metadata={"help": "points at which Lemma 14 is tried, over all seeds"})
    seeds: int = field(default=10, metadata={"help": "schedules, by their first step, at each condition number"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_kappas("kappas", self.kappas, points=4)
        check_kappas("context_kappas", self.context_kappas, points=4)
        check_count("seeds", self.seeds, 10)
        check_count("trials", self.trials, 100)
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """Steps until the instance is solved, the steps of the barrier, and the invariants of the construction along the way."""
    with jax.enable_x64(True):
        key = jax.random.key(config.seed)
        data = {}
        for name, (_, _, power) in INSTANCES.items():
            kappas = config.context_kappas if power == 3 else config.kappas
            # The quadratic costs little, and its bound shows from larger κ on.
            kappas = tuple(10 * kappa for kappa in kappas) if name == "quadratic" else kappas
            over = {"kappa": sweep.values(*kappas)}
            data[name] = sweep.run(
                _measure(name, max(kappas)), over, seeds=config.seeds, key=sizes.stream(key, name), chunk=config.seeds
            )
        each = max(1, config.trials // config.seeds)
        data["signs"] = sweep.run(
            lambda key, kappa: _signs(key, kappa, each),
            {"kappa": sweep.values(*config.kappas)},
            seeds=config.seeds,
            key=sizes.stream(key, "signs"),
        )
        return data


def _measure(name: str, largest: float) -> Callable[..., dict[str, Array]]:
    """SignGD on an instance under both schedules, started as the schedule deserves and at a start without the barrier."""
    # η_0/(t + 1) is below the threshold after at most that many steps, and then needs as many again at most.
    length = int(8 * {"quadratic": largest, "factorization": largest**1.5, "regression": largest**3}[name])

    def measure(key: Array, kappa: Array) -> dict[str, Array]:
        first = (1 + jax.random.uniform(key)) / 16
        times = jnp.arange(length).astype(kappa.dtype)
        # τ of the instance in units of η: by it the second schedule knows where to stop.
        threshold = {
            "quadratic": 2 * ACCURACY / kappa / jnp.sqrt(jnp.asarray(2.0)),
            "factorization": 3 * adversarial.RADIUS * kappa**-1.5 / 2,
            "regression": 2 * ACCURACY * kappa**-3 / 2,
        }[name]
        schedules = {
            "inverse": first / (times + 1),
            "floor": jnp.maximum(
                first * 2.0**-times,
                jnp.minimum(2 * 0.95 * threshold, first) * jnp.exp(-times / (4 * kappa ** INSTANCES[name][2])),
            ),
        }
        found = [_follow(name, kappa, rates) for rates in schedules.values()]
        return {
            f"{quantity}-{schedule}": result[quantity]
            for schedule, result in zip(schedules, found, strict=True)
            for quantity in result
        }

    return measure


def _follow(name: str, kappa: Array, rates: Array) -> dict[str, Array]:
    if name == "quadratic":
        instance = adversarial.quadratic(kappa, rates, ACCURACY)
    elif name == "factorization":
        instance = adversarial.factorization(kappa, rates)
    else:
        instance = adversarial.regression(kappa, rates, ACCURACY)

    def advance(x: Array, rate: Array) -> Array:
        if name == "quadratic":
            return x - rate * jnp.sign(instance.matrix @ x)
        model = matrix_factorization if name == "factorization" else in_context_regression
        return x - rate * adversarial.tied_sign(model.gradient(x, instance.matrix))

    def error(x: Array) -> Array:
        if name == "quadratic":
            return jnp.linalg.norm(x)
        if name == "factorization":
            return jnp.linalg.norm(x @ x.T - instance.matrix)
        return jnp.linalg.norm(x - jnp.linalg.inv(instance.matrix))

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        x, t, _ = state
        return (t < rates.shape[0]) & (error(x) > instance.accuracy)

    def turn(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, t, moved = state
        after = advance(x, rates[t])
        # The coordinate of 1/κ: it must not move while the barrier holds.
        change = jnp.abs(_second(after) - _second(x))
        return after, t + 1, jnp.where(t < instance.frozen, jnp.maximum(moved, change), moved)

    initial = instance.start, jnp.zeros((), int), jnp.zeros_like(kappa)
    last, steps, moved = jax.lax.while_loop(unfinished, turn, initial)
    return {
        "steps": steps.astype(float),
        "frozen": instance.frozen.astype(float),
        "moved": moved,
        "unsolved": (error(last) > instance.accuracy).astype(float),
    }


def _second(x: Array) -> Array:
    """The coordinate along the eigenvector of 1/κ: b for a vector, p - q for [[p, q], [q, p]]."""
    return (x[0] - x[1]) / jnp.sqrt(jnp.asarray(2.0)) if x.ndim == 1 else x[0, 0] - x[0, 1]


def _signs(key: Array, kappa: Array, trials: int) -> dict[str, Array]:
    """Lemma 14 at random points, and Lemma 16: how far a step leaves the matrices [[p, q], [q, p]]."""
    z_key, matrix_key = jax.random.split(key)
    rotation = adversarial.rotation()
    z = jax.random.normal(z_key, (2, trials)) * jnp.stack([1 / kappa, jnp.ones_like(kappa)])[:, None]
    hessian = rotation @ jnp.diag(jnp.stack([jnp.ones_like(kappa), 1 / kappa])) @ rotation
    step = rotation @ jnp.sign(hessian @ rotation @ z)
    moves_first = jnp.abs(step[0]) > 0.5
    p, q, r, s = jax.random.normal(matrix_key, (4,))
    x, m = (jnp.stack([jnp.stack([a, b]), jnp.stack([b, a])]) for a, b in ((p, q), (r, s)))
    gradient = matrix_factorization.gradient(x, m)
    context = in_context_regression.gradient(x, m)
    generic = matrix_factorization.gradient(x.at[0, 0].add(1.0), m)
    return {
        "mismatches": jnp.sum(moves_first != adversarial.first_moves(z[0], z[1], kappa)).astype(float),
        "share": jnp.mean(moves_first.astype(float)),
        "both": jnp.sum((jnp.abs(step[0]) > 0.5) & (jnp.abs(step[1]) > 0.5)).astype(float),
        "left": jnp.maximum(_off(gradient), _off(context)),
        "left_generic": _off(generic),
    }


def _off(x: Array) -> Array:
    """How far a 2×2 matrix is from [[p, q], [q, p]], relative to its largest entry."""
    return jnp.maximum(jnp.abs(x[0, 0] - x[1, 1]), jnp.abs(x[0, 1] - x[1, 0])) / jnp.max(jnp.abs(x))


def lower_bounds(name: str, data: xr.Dataset, schedule: str) -> xr.DataArray:
    """The bound on the steps of every run, from its κ and the steps of its barrier."""
    kappas, frozen = np.broadcast_arrays(data["kappa"].values[:, None], data[f"frozen-{schedule}"].values)
    function = {
        "quadratic": iterations.sign_gradient_quadratic,
        "factorization": iterations.sign_gradient_factorization,
        "regression": iterations.sign_gradient_regression,
    }[name]
    with jax.enable_x64(True):
        return data[f"frozen-{schedule}"].copy(data=np.asarray(function(kappas, frozen)))


def checks(config: Config, data: Data) -> list[Check]:
    """The two lemmas on signs, then for each instance the frozen coordinate, the bound, and the slope."""
    signs = data["signs"]
    results = [
        bound_check(
            "lemma-14",
            "preconditioning, Lemma 14",
            "SignGD moves the first rotated coordinate alone where κ |a| > |b|, the second alone elsewhere, at every random point.",
            smallest_margin=-float(signs["mismatches"].sum() + signs["both"].sum()),
        ),
        equality_check(
            "lemma-16",
            "preconditioning, Lemma 16",
            "Gradients at matrices [[p, q], [q, p]] have that form, for the factorization and in context.",
            error=signs["left"],
            control=signs["left_generic"].median(),
            tolerance=1e-12,
        ),
    ]
    for name, (theorem, what, power) in INSTANCES.items():
        source, found = f"preconditioning, {theorem}", data[name]
        moved = max(float(found[f"moved-{schedule}"].max()) for schedule in SCHEDULES)
        results.append(
            bound_check(
                f"{name}-barrier",
                f"{source} and Lemma 15",
                f"While the steps are large enough for the barrier the second coordinate of the {what} does not move at all.",
                smallest_margin=1e-12 - moved,
            )
        )
        for schedule, formula in SCHEDULES.items():
            steps = found[f"steps-{schedule}"]
            results.append(
                bound_check(
                    f"{name}-{schedule}-bound",
                    f"{source} [constant ours]",
                    f"With η_t = {formula} SignGD needs at least the barrier's steps and "
                    f"{'κ³/4' if power == 3 else 'κ/12' if name == 'factorization' else 'κ/4'} more on the {what}.",
                    smallest_margin=float((steps - lower_bounds(name, found, schedule)).min()),
                )
            )
        steps, frozen = found["steps-inverse"], found["frozen-inverse"]
        results.append(
            band_check(
                f"{name}-slope",
                source,
                f"With η_t = {SCHEDULES['inverse']} the steps on the {what} that follow the barrier grow "
                f"at least as κ{'³' if power == 3 else ''}: "
                f"slope at least {power}, less 0.02 for whole steps.",
                fit=slope(steps - frozen, 1),
                between=-1,
                low=power - 0.02,
            )
        )
    quickest = min(
        float((data[name]["steps-floor"] / lower_bounds(name, data[name], "floor")).min())
        for name in ("quadratic", "regression")
    )
    results.append(
        bound_check(
            "bounds-nearly-attained",
            "preconditioning, Lemma 12 and Theorem 4 [constant ours]",
            "The constants κ/4 and κ³/4 cannot be improved by more than a fifth: under the second schedule some runs need no more.",
            smallest_margin=1.2 - quickest,
        )
    )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """Steps, bound and barrier by instance, schedule and κ: medians over first steps."""
    rows = []
    for name, (_, what, _) in INSTANCES.items():
        for schedule, formula in SCHEDULES.items():
            found, bound = data[name], lower_bounds(name, data[name], schedule)
            for kappa in found["kappa"].values:
                at = found.sel(kappa=kappa)
                more = "" if not at[f"unsolved-{schedule}"].any() else " or more"
                rows.append(
                    (
                        what,
                        formula,
                        f"{kappa:g}",
                        f"{float(at[f'frozen-{schedule}'].median()):.0f}",
                        f"{float(bound.sel(kappa=kappa).median()):.0f}",
                        f"{float(at[f'steps-{schedule}'].median()):.0f}{more}",
                    )
                )
    header = ("instance", "η_t", "κ", "barrier", "bound", "steps of SignGD")
    return [Table("SignGD from starts built backward from its schedule", header, tuple(rows))]


def plot(config: Config, data: Data) -> Figure:
    """Steps of SignGD against κ with the bounds as lines, one panel for each instance."""
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    for axes, (name, (theorem, what, _)) in zip(figure.subplots(1, 3), INSTANCES.items(), strict=True):
        found = data[name]
        for (schedule, formula), color, marker in zip(SCHEDULES.items(), ("C0", "C1"), ("o", "s"), strict=True):
            steps, bound = found[f"steps-{schedule}"], lower_bounds(name, found, schedule)
            axes.plot(
                found["kappa"], steps.median("seed"), marker, color=color, label=f"η_t = {formula}", fillstyle="none"
            )
            axes.fill_between(found["kappa"], steps.min("seed"), steps.max("seed"), color=color, alpha=0.2, linewidth=0)
            axes.plot(found["kappa"], bound.median("seed"), color=color, linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="condition number κ", title=f"{what} ({theorem})")
        axes.legend(fontsize="x-small")
    figure.axes[0].set_ylabel("steps of SignGD (lines: lower bound)")
    return figure


EXPERIMENT = Experiment(
    name="sign-gradient-lower-bounds",
    paper="preconditioning",
    source="preconditioning, Theorems 2 and 4",
    title="SignGD on instances built against its schedule: iterations of order κ and κ³",
    summary=(
        "From starts built backward from the schedule SignGD freezes the coordinate of the small eigenvalue for as long as its steps are "
        "large, and has too small steps afterwards: κ/4, κ/12 and κ³/4 steps more, at any accuracy. The starts are "
        "bad for one schedule each."
    ),
    scales={
        "smoke": Config(context_kappas=(5.0, 7.0, 9.0, 12.0), kappas=(30.0, 60.0, 120.0, 240.0), trials=1000),
        "quick": Config(),
        "paper": Config(kappas=(30.0, 100.0, 300.0, 1e3, 3e3), context_kappas=(6.0, 9.0, 14.0, 21.0, 32.0), seeds=40),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
