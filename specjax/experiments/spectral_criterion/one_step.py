"""Sections 1.2 and 4.5: one spectral step against one gradient step on random problems of many shapes, on gains, and on smooth losses.

Decreases are measured on the losses, in units of what the gradient step guarantees, a scale that no cancellation reaches.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.models import random_features
from specjax.spectral.one_by_one import eigvalsh
from specjax.theory import one_step as theory
from specjax.theory.layered import diagonal_ranks, diagonal_threshold

SHAPES = ((1, 6, 12), (3, 8, 24), (12, 4, 20), (8, 8, 4), (8, 8, 16), (16, 12, 32))
"""(m, k, n): fewer outputs than features, more, fewer samples than features, square and wide."""
GAINS = ((6, 24), (24, 48))
"""(d, n) of the gains of a normalization."""
OUTPUTS, FEATURES = 5, 8
SAMPLES = ((8,), (128,))
ROUNDING = 1e-9
"""What float64 leaves of the difference of two losses, relative to either decrease."""
SLACK = 0.25
"""How loose the inequalities may be: some problem must come within a third of equality."""

Data = dict[str, xr.Dataset]
Function = Callable[..., Any]


class Config(lab.Config):
    """How many problems; every inequality is asked of each of them."""

    seeds: int = lab.seeds(15_000, least=500, help="problems of each shape")
    smooth_seeds: int = lab.seeds(1000, least=20, help="problems of each number of samples for smooth losses")


def draw(key: Array, m: int, k: int, n: int) -> tuple[Array, Array, Array]:
    """W, A and Y of a problem, with a random mean of the features, decay of their scales, direction of the error and noise.

    The error W - W_# is normal times B^(q-1): for q near 1 the gradient is mostly along the spike of B, for q below 0 it is mostly
    along the smallest eigenvalues.
    """
    key_scales, key_normals = jax.random.split(key)
    mean, decay, q, noise = jax.random.uniform(key_scales, (4,)) * jnp.asarray([2.0, 1.5, 1.5, 0.5])
    # One call for all of them: a normal generator takes longer to compile than everything else here.
    counts = np.asarray([k * n, m * k, m * k, m * n])
    normals = jnp.split(jax.random.normal(key_normals, (counts.sum(),)), np.cumsum(counts)[:-1])
    features, direction, w, errors = (
        x.reshape(s) for x, s in zip(normals, ((k, n), (m, k), (m, k), (m, n)), strict=True)
    )
    a = mean + features * (jnp.arange(1.0, k + 1) ** -decay)[:, None]
    values, vectors = jnp.linalg.eigh(random_features.second_moment(a, a))
    powers = jnp.maximum(values / values[-1], 1e-3) ** (q - 1.5)
    error = direction @ (vectors * powers[None, :]) @ vectors.T
    return w, a, (w - error) @ a + noise * errors


def measure_problem(key: Array, m: int, k: int, n: int) -> dict[str, Array]:
    """Decreases of one problem by both steps, and the exact comparison."""
    w, a, y = draw(key, m, k, n)
    before, *after = (
        random_features.loss(x, a, y)
        for x in (w, random_features.gd_step(w, a, y), random_features.spectral_step(w, a, y))
    )
    found = theory.compare(random_features.gradient(w, a, y), random_features.second_moment(a, a))
    gradient, spectral = ((before - loss) / found.guaranteed_gd for loss in after)
    return {"gradient": gradient, "spectral": spectral, "advantage": found.advantage, "threshold": found.threshold}


def measure_gain(key: Array, d: int, n: int) -> dict[str, Array]:
    """Those of a gain γ, L = ‖Diag(γ - γ_#) A‖_F²/2n: by the sign step, and by gradient steps of the paper's length and of an exact one."""
    _, a, _ = draw(key, 1, d, n)
    key_power, key_error = jax.random.split(sizes.stream(key, "gain"))
    b = random_features.second_moment(a, a)
    rows, largest, trace = jnp.diag(b), eigvalsh(b)[-1], jnp.trace(b)
    error = jax.random.normal(key_error, (d,)) * rows ** (jax.random.uniform(key_power) - 1)

    def loss(error: Array) -> Array:
        return jnp.sum((error[:, None] * a) ** 2) / (2 * n)

    g = jax.grad(loss)(error)
    steps = {
        "gradient": g / largest,
        "spectral": jnp.sum(jnp.abs(g)) / trace * jnp.sign(g),
        "exact": g / jnp.max(rows),
    }
    unit, rank = jnp.sum(g**2) / (2 * largest), diagonal_ranks(g).nuclear
    decreases = {name: (loss(error) - loss(error - step)) / unit for name, step in steps.items()}
    return {**decreases, "advantage": rank * largest / trace, "sharp": rank / diagonal_threshold(a)}


LOSSES: dict[str, tuple[Callable[[Array, Array], Array], float]] = {
    "softmax": (
        lambda z, y: jnp.mean(optax.softmax_cross_entropy_with_integer_labels(z.T, jnp.argmax(y, axis=0))),
        0.5,
    ),
    "logistic": (lambda z, y: jnp.sum(jax.nn.softplus(-jnp.sign(y) * z)) / z.shape[1], 0.25),
    "huber": (lambda z, y: jnp.sum(optax.huber_loss(z, y)) / z.shape[1], 1.0),
    "squared": (lambda z, y: jnp.sum((z - y) ** 2) / (2 * z.shape[1]), 1.0),
}
"""Losses f(Z, Y), means over samples in columns, and n times the Lipschitz constant of their gradient in the Frobenius norm.

The labels of softmax are argmax Y, those of the logistic loss the signs of Y.
"""
STEPS = ("gradient", "spectral")
SMOOTH = ("corrected_promised", "corrected_decrease", "printed_promised", "printed_decrease")


def measure_smooth(key: Array, n: int) -> dict[str, Array]:
    """Decreases, and what (1.6) promises, over the loss before: by loss and step."""
    w, a, y = draw(key, OUTPUTS, FEATURES, n)
    before, gradients = zip(
        *(jax.value_and_grad(lambda w, f=f: f(w @ a, y))(w) for f, _ in LOSSES.values()), strict=True
    )
    # One decomposition for all losses compiles faster than one for each.
    directions = theory.spectral_direction(jnp.stack(gradients))
    found: dict[str, Array] = {}
    for name, of in (("corrected", theory.smooth_rates), ("printed", theory.smooth_rates_as_printed)):
        promised, decrease = [], []
        for (f, curvature), start, g, direction in zip(LOSSES.values(), before, gradients, directions, strict=True):
            # ⟨G, G⟩ = ‖G‖_F² and ⟨G, ‖G‖_* polar(G)⟩ = ‖G‖_*².
            moves = [rate * along for rate, along in zip(of(a, curvature / n), (g, direction), strict=True)]
            promised.append([jnp.sum(g * move) / 2 / start for move in moves])
            decrease.append([1 - f((w - move) @ a, y) / start for move in moves])
        found |= {f"{name}_promised": jnp.array(promised), f"{name}_decrease": jnp.array(decrease)}
    return found


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Regression problems, gains, and smooth losses, by shape."""
    measured: dict[str, tuple[Function, str, tuple[tuple[int, ...], ...], int]] = {
        "problems": (measure_problem, "mkn", SHAPES, config.seeds),
        "gains": (measure_gain, "dn", GAINS, config.seeds),
        "smooth": (measure_smooth, "n", SAMPLES, config.smooth_seeds),
    }
    found = {}
    with jax.enable_x64(True):
        for name, (measure, axes, points, seeds) in measured.items():
            extents = {
                axis: sweep.widths(*of_axis) for axis, of_axis in zip(axes, zip(*points, strict=True), strict=True)
            }
            over = {"shape": sweep.zipped(**extents)}
            swept = sweep.run(measure, over, seeds=seeds, key=sizes.stream(key, name), plan="exact")
            found[name] = swept.assign_coords(shape=["×".join(map(str, point)) for point in points])
    labels = {f"{name}_dim_{place}": dim for name in SMOOTH for place, dim in enumerate(("loss", "step"))}
    found["smooth"] = found["smooth"].rename(labels).assign_coords(loss=list(LOSSES), step=list(STEPS))
    return found


def _always(smaller: xr.DataArray, larger: xr.DataArray) -> lab.Relation:
    return lab.always(smaller, larger, slack=SLACK, rounding=ROUNDING)


def _guaranteed(of: str) -> Function:
    """Both decreases, in units of what the gradient step guarantees, are at least what is guaranteed."""

    def judge(config: Config, data: Data) -> lab.Relation:
        found, step = data[of], xr.DataArray(list(STEPS), dims="step", name="step")
        promised = xr.concat([xr.ones_like(found["advantage"]), found["advantage"]], step)
        return _always(
            promised.rename("guaranteed"), xr.concat([found[name] for name in STEPS], step).rename("decrease")
        )

    return judge


def _at_least(of: str, more: str, less: str, where: Callable[[xr.Dataset], xr.DataArray]) -> Function:
    """One step decreases the loss at least as much as another does in all problems `where` it is said; 0 stands for the others."""
    return lambda config, data: _always(data[of][less].where(where(data[of]), 0.0), data[of][more])


def _smooth(steps: str) -> Function:
    return lambda config, data: _always(*(data["smooth"][f"{steps}_{side}"] for side in ("promised", "decrease")))


def exact_ratio(config: Config, data: Data) -> lab.Relation:
    """The ratio of the decreases, measured on the losses, is that of the guarantees over the threshold."""
    found = data["problems"]
    ratio = found["spectral"] / found["gradient"] * found["threshold"] / found["advantage"]
    return lab.identity(abs(ratio - 1).rename("relative error"), tolerance=100 * ROUNDING)


def _exchanged(of: str) -> Function:
    """A control: the decreases of the two steps exchanged, or those by the two lengths for smooth losses."""
    names = (
        dict(zip(SMOOTH, SMOOTH[2:] + SMOOTH[:2], strict=True))
        if of == "smooth"
        else dict(zip(STEPS, STEPS[::-1], strict=True))
    )
    return lambda config, data: {**data, of: data[of].rename(names)}


def _rank_times(factor: float, of: str) -> Function:
    """A control: the inequality from st(A)/factor on."""
    return lab.replacing("advantage", lambda found: factor * found["advantage"], of=of)


STATEMENTS = (
    lab.statement(
        "section-1-2-guarantees",
        "In every problem a gradient step decreases the loss by at least ‖G‖_F²/2L_F, and a spectral step by at least ‖G‖_*²/2L_op.",
        name="guarantees",
        controls={"the two steps exchanged": _exchanged("problems")},
    )(_guaranteed("problems")),
    lab.statement(
        "eq-1-5",
        "Above the level st(A) SpecGD is superior to GD (caption of Figure 3): wherever nr(G) is at least st(A), its step decreases the "
        "loss at least as much.",
        name="rule-one-stable-rank",
        holds=False,
        controls={"from 2 st(A) on": _rank_times(0.5, "problems")},
    )(_at_least("problems", "spectral", "gradient", lambda found: found["advantage"] >= 1)),
    lab.statement(
        "eq-1-5",
        "The decreases have the ratio (nr/st) (2 - τ)/(2 - ρ), ρ and τ the stretches of the two steps, so that the spectral step gains "
        "more if and only if nr(G)/st(A) is above (2 - ρ)/(2 - τ).",
        corrected=True,
        controls={"without the stretches": lab.replacing("threshold", 1.0, of="problems")},
    )(exact_ratio),
    lab.statement(
        "section-1-2-two-sided",
        "Wherever nr(G) is at least 2 st(A), L(W_SD) is at most L(W_GD).",
        name="rule-two-stable-ranks",
        controls={"from st(A) on": _rank_times(2.0, "problems")},
    )(_at_least("problems", "spectral", "gradient", lambda found: found["advantage"] >= 2)),
    lab.statement(
        "eq-1-6",
        "With the steps 1/(L_F L) and ‖∇L‖_*/(L_op L), L the Lipschitz constant of ∇f, softmax, logistic, Huber and squared losses "
        "decrease by at least ‖∇L‖_F²/(2 L_F L) and ‖∇L‖_*²/(2 L_op L).",
        name="smooth-steps-printed",
        holds=False,
        controls={"the corrected steps": _exchanged("smooth")},
    )(_smooth("printed")),
    lab.statement(
        "eq-1-6",
        "With the steps 1/(L ‖A‖_op²) and ‖∇L‖_*/(L ‖A‖_F²) they decrease by at least ‖∇L‖_F²/(2 L ‖A‖_op²) and ‖∇L‖_*²/(2 L ‖A‖_F²).",
        name="smooth-steps-corrected",
        corrected=True,
        controls={"the printed steps": _exchanged("smooth")},
    )(_smooth("corrected")),
    lab.statement(
        "section-4-5-sign",
        "On a gain the step ‖g‖_1/L^op along the signs decreases a quadratic loss, for which C_op can be 0, by at least ‖g‖_1²/2L^op, and "
        "the step g/L^F by at least ‖g‖_2²/2L^F.",
        name="sign-guarantees",
        controls={"the two steps exchanged": _exchanged("gains")},
    )(_guaranteed("gains")),
    lab.statement(
        "section-4-5-rule",
        "At the level of the quadratic model the sign step dominates the Euclidean one on a gain wherever ‖g‖_1²/‖g‖_2² is at least st(A).",
        name="sign-rule",
        holds=False,
        controls={"from 2 st(A) on": _rank_times(0.5, "gains")},
    )(_at_least("gains", "spectral", "gradient", lambda found: found["advantage"] >= 1)),
    lab.statement(
        "section-4-5-rule",
        "A Euclidean step of the length that the exact curvature of a gain allows, max_i ‖row_i(A)‖², decreases the loss at least as much "
        "as the sign step wherever ‖g‖_1²/‖g‖_2² is at most ‖A‖_F²/max_i ‖row_i(A)‖², which is d for balanced rows.",
        name="sharp-sign-rule",
        corrected=True,
        controls={"the length by ‖A‖_op²": lab.replacing("exact", "gradient", of="gains")},
    )(_at_least("gains", "exact", "spectral", lambda found: found["sharp"] <= 1)),
)

EXPERIMENT = lab.Experiment(
    "one-step-comparison",
    ledger("spectral-criterion"),
    title="One spectral step against one gradient step",
    summary="nr(G) of at least 2 st(A) implies that the spectral step decreases the loss more, in every problem. nr(G) of at least st(A) "
    "alone compares guarantees and not losses; the losses are ordered by nr/st against (2 - ρ)/(2 - τ), exactly. On a gain, a diagonal "
    "matrix, the exact curvature allows gradient steps that are ahead of the sign step nearly always. The step sizes printed for smooth "
    "losses are too long by the number of samples.",
    config=Config,
    measure=run,
    statements=STATEMENTS,
    scales={"smoke": {"seeds": 500, "smooth_seeds": 50}, "paper": {"seeds": 200_000, "smooth_seeds": 10_000}},
)
