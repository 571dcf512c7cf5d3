"""Sections 1.2 and 4.5: one spectral against one gradient step on random problems and losses.

Decreases are measured on the losses, in units of the gradient step's guarantee, which avoids
cancellation.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.linalg import eigvalsh
from specjax.models import random_features
from specjax.theory import one_step as theory
from specjax.theory.layered import diagonal_ranks, diagonal_threshold

SHAPES, GAINS = (
    ((1, 6, 12), (3, 8, 24), (12, 4, 20), (8, 8, 4), (8, 8, 16), (16, 12, 32)),
    (
        (6, 24),
        (24, 48),
    ),
)
"""(m, k, n): fewer outputs than features, more, fewer samples, square, wide; (d, n) of gains."""
ROUNDING = 1e-9
"""Float64 error of the difference of two losses, relative to either decrease."""

Data = dict[str, xr.Dataset]
Function = Callable[..., Any]


class Config(lab.Config):
    """The number of problems, on all of which every inequality is tested."""

    seeds: int = lab.config.seeds(15_000, least=500, help="problems of each shape")
    smooth_seeds: int = lab.config.seeds(
        1000, least=20, help="problems of each number of samples for smooth losses"
    )


def draw(key: Array, m: int, k: int, n: int) -> tuple[Array, Array, Array]:
    """W, A and Y of a problem with random feature mean, scales, error direction and noise."""
    key_scales, key_normals = jax.random.split(key)
    mean, decay, q, noise = jax.random.uniform(key_scales, (4,)) * jnp.asarray([2.0, 1.5, 1.5, 0.5])
    # One call for all, since a normal generator takes longer to compile than everything else here.
    counts = np.asarray([k * n, m * k, m * k, m * n])
    normals = jnp.split(jax.random.normal(key_normals, (counts.sum(),)), np.cumsum(counts)[:-1])
    shapes = ((k, n), (m, k), (m, k), (m, n))
    features, direction, w, errors = (x.reshape(s) for x, s in zip(normals, shapes, strict=True))
    a = mean + features * (jnp.arange(1.0, k + 1) ** -decay)[:, None]
    values, vectors = jnp.linalg.eigh(random_features.second_moment(a, a))
    # For q near 1 the gradient is mostly along the spike of B, for q below 0 along the smallest
    # eigenvalues.
    powers = jnp.maximum(values / values[-1], 1e-3) ** (q - 1.5)
    error = direction @ (vectors * powers[None, :]) @ vectors.T
    return w, a, (w - error) @ a + noise * errors


def measure_problem(key: Array, m: int, k: int, n: int) -> dict[str, Array]:
    w, a, y = draw(key, m, k, n)
    moved = (w, random_features.gd_step(w, a, y), random_features.spectral_step(w, a, y))
    before, *after = (random_features.loss(x, a, y) for x in moved)
    found = theory.compare(random_features.gradient(w, a, y), random_features.second_moment(a, a))
    gradient, spectral = ((before - loss) / found.guaranteed_gd for loss in after)
    return {
        "gradient": gradient,
        "spectral": spectral,
        "advantage": found.advantage,
        "threshold": found.threshold,
    }


def measure_gain(key: Array, d: int, n: int) -> dict[str, Array]:
    """Decreases for a gain γ, L = ‖Diag(γ - γ_#) A‖_F²/2n, by sign and gradient steps."""
    _, a, _ = draw(key, 1, d, n)
    key_power, key_error = jax.random.split(sizes.stream(key, "gain"))
    b = random_features.second_moment(a, a)
    rows, largest, trace = jnp.diag(b), eigvalsh(b)[-1], jnp.trace(b)
    error = jax.random.normal(key_error, (d,)) * rows ** (jax.random.uniform(key_power) - 1)

    def loss(error: Array) -> Array:
        return jnp.sum((error[:, None] * a) ** 2) / (2 * n)

    g = jax.grad(loss)(error)
    signs = jnp.sum(jnp.abs(g)) / trace * jnp.sign(g)
    steps = {"gradient": g / largest, "spectral": signs, "exact": g / jnp.max(rows)}
    unit, rank = jnp.sum(g**2) / (2 * largest), diagonal_ranks(g).nuclear
    decreases = {name: (loss(error) - loss(error - step)) / unit for name, step in steps.items()}
    return {**decreases, "advantage": rank * largest / trace, "sharp": rank / diagonal_threshold(a)}


cross_entropy = optax.softmax_cross_entropy_with_integer_labels
LOSSES: dict[str, tuple[Callable[[Array, Array], Array], float]] = {
    "softmax": (lambda z, y: jnp.mean(cross_entropy(z.T, jnp.argmax(y, axis=0))), 0.5),
    "logistic": (lambda z, y: jnp.sum(jax.nn.softplus(-jnp.sign(y) * z)) / z.shape[1], 0.25),
    "huber": (lambda z, y: jnp.sum(optax.huber_loss(z, y)) / z.shape[1], 1.0),
    "squared": (lambda z, y: jnp.sum((z - y) ** 2) / (2 * z.shape[1]), 1.0),
}
"""Losses f(Z, Y), means over columns, and n times the Lipschitz constants of their gradients."""
STEPS = ("gradient", "spectral")
SMOOTH = ("corrected_promised", "corrected_decrease", "printed_promised", "printed_decrease")


def measure_smooth(key: Array, n: int) -> dict[str, Array]:
    """Decreases, and the promise of (1.6), over the loss before, by loss and step."""
    w, a, y = draw(key, 5, 8, n)
    losses = [jax.value_and_grad(lambda w, f=f: f(w @ a, y))(w) for f, _ in LOSSES.values()]
    before, gradients = zip(*losses, strict=True)
    # One decomposition for all losses compiles faster than one for each.
    directions = theory.spectral_direction(jnp.stack(gradients))
    found: dict[str, Array] = {}
    for name, of in (
        ("corrected", theory.smooth_rates),
        ("printed", theory.smooth_rates_as_printed),
    ):
        promised, decrease = [], []
        for (f, curvature), start, g, direction in zip(
            LOSSES.values(), before, gradients, directions, strict=True
        ):
            # ⟨G, G⟩ = ‖G‖_F² and ⟨G, ‖G‖_* polar(G)⟩ = ‖G‖_*².
            moves = [
                rate * along
                for rate, along in zip(of(a, curvature / n), (g, direction), strict=True)
            ]
            promised.append([jnp.sum(g * move) / 2 / start for move in moves])
            decrease.append([1 - f((w - move) @ a, y) / start for move in moves])
        found |= {f"{name}_promised": jnp.array(promised), f"{name}_decrease": jnp.array(decrease)}
    return found


MEASURED: dict[str, Function] = {
    "problems": measure_problem,
    "gains": measure_gain,
    "smooth": measure_smooth,
}


def run_shapes(
    config: Config, key: Key[Array, ""], name: str, axes: str, points: tuple[tuple[int, ...], ...]
) -> xr.Dataset:
    """A measurement at every shape, in float64."""
    of_axes = zip(axes, zip(*points, strict=True), strict=True)
    over = {"shape": sweep.zipped(**{axis: sweep.widths(*extents) for axis, extents in of_axes})}
    with jax.enable_x64(True):
        seeds = config.smooth_seeds if name == "smooth" else config.seeds
        found = lab.seeded_sweep(key, name, MEASURED[name], seeds, **over)
    return found.assign_coords(shape=["×".join(map(str, point)) for point in points])


def run_smooth(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    found = run_shapes(config, key, "smooth", "n", ((8,), (128,)))
    return sweep.labelled(found, "loss", "step", loss=list(LOSSES), step=list(STEPS))


states = lab.Statements()


def _always(smaller: xr.DataArray, larger: xr.DataArray) -> lab.Relation:
    """With so little slack that some problem must come within a third of equality."""
    return lab.inequality(smaller, larger, slack=0.25, rounding=ROUNDING)


def _exchanged(of: str, names: tuple[str, ...] = STEPS) -> Function:
    """A control that exchanges the decreases of two steps, or of two lengths for smooth losses."""
    half = len(names) // 2
    other = dict(zip(names, names[half:] + names[:half], strict=True))
    return lambda config, data: {**data, of: data[of].rename(other)}


def _guaranteed(of: str, name: str, row: str, says: str) -> None:
    @states(row, says, name=name, controls={"the two steps exchanged": _exchanged(of)})
    def judge(config: Config, data: Data) -> lab.Relation:
        found, step = data[of], xr.DataArray(list(STEPS), dims="step", name="step")
        promised = xr.concat([xr.ones_like(found["advantage"]), found["advantage"]], step)
        return _always(promised, xr.concat([found[name] for name in STEPS], step))


def _at_least(found: xr.Dataset, more: str, less: str, where: xr.DataArray) -> lab.Relation:
    """Judge that one step decreases the loss at least as much as another, `where` given."""
    return _always(found[less].where(where, 0.0), found[more])


def _rank_times(factor: float, of: str) -> Function:
    return lab.controls.replacing("advantage", lambda found: factor * found["advantage"], of=of)


BOTH = (
    "In every problem a gradient step decreases the loss by at least ‖G‖_F²/2L_F, and a spectral"
    " step by at least ‖G‖_*²/2L_op."
)
_guaranteed("problems", "guarantees", "section-1-2-guarantees", BOTH)


@states("eq-1-5", holds=False, controls={"from 2 st(A) on": _rank_times(0.5, "problems")})
def rule_one_stable_rank(config: Config, data: Data) -> lab.Relation:
    """Above the level st(A) SpecGD is superior to GD (caption of Figure 3): wherever nr(G) is at
    least st(A), its step decreases the loss at least as much.
    """
    return _at_least(data["problems"], "spectral", "gradient", data["problems"]["advantage"] >= 1)


@states(
    "eq-1-5",
    corrected=True,
    controls={"without the stretches": lab.controls.replacing("threshold", 1.0, of="problems")},
)
def exact_ratio(config: Config, data: Data) -> lab.Relation:
    """The decreases have the ratio (nr/st) (2 - τ)/(2 - ρ), ρ and τ the stretches of the two steps,
    so that the spectral step gains more if and only if nr(G)/st(A) is above (2 - ρ)/(2 - τ).
    """
    found = data["problems"]
    ratio = found["spectral"] / found["gradient"] * found["threshold"] / found["advantage"]
    return lab.zero_error(abs(ratio - 1).rename("relative error"), tolerance=100 * ROUNDING)


@states("section-1-2-two-sided", controls={"from st(A) on": _rank_times(2.0, "problems")})
def rule_two_stable_ranks(config: Config, data: Data) -> lab.Relation:
    """Wherever nr(G) is at least 2 st(A), L(W_SD) is at most L(W_GD)."""
    return _at_least(data["problems"], "spectral", "gradient", data["problems"]["advantage"] >= 2)


@states("eq-1-6", holds=False, controls={"the corrected steps": _exchanged("smooth", SMOOTH)})
def smooth_steps_printed(config: Config, data: Data) -> lab.Relation:
    """With the steps 1/(L_F L) and ‖∇L‖_*/(L_op L), L the Lipschitz constant of ∇f, softmax,
    logistic, Huber and squared losses decrease by at least ‖∇L‖_F²/(2 L_F L) and ‖∇L‖_*²/(2 L_op
    L).
    """
    return _always(data["smooth"]["printed_promised"], data["smooth"]["printed_decrease"])


@states("eq-1-6", corrected=True, controls={"the printed steps": _exchanged("smooth", SMOOTH)})
def smooth_steps_corrected(config: Config, data: Data) -> lab.Relation:
    """With the steps 1/(L ‖A‖_op²) and ‖∇L‖_*/(L ‖A‖_F²) they decrease by at least ‖∇L‖_F²/(2 L
    ‖A‖_op²) and ‖∇L‖_*²/(2 L ‖A‖_F²).
    """
    return _always(data["smooth"]["corrected_promised"], data["smooth"]["corrected_decrease"])


SIGNS = (
    "On a gain the step ‖g‖_1/L^op along the signs decreases a quadratic loss, for which C_op can"
    " be 0, by at least ‖g‖_1²/2L^op, and the step g/L^F by at least ‖g‖_2²/2L^F."
)
_guaranteed("gains", "sign-guarantees", "section-4-5-sign", SIGNS)


@states("section-4-5-rule", holds=False, controls={"from 2 st(A) on": _rank_times(0.5, "gains")})
def sign_rule(config: Config, data: Data) -> lab.Relation:
    """At the level of the quadratic model the sign step dominates the Euclidean one on a gain
    wherever ‖g‖_1²/‖g‖_2² is at least st(A).
    """
    return _at_least(data["gains"], "spectral", "gradient", data["gains"]["advantage"] >= 1)


LONGER = {"the length by ‖A‖_op²": lab.controls.replacing("exact", "gradient", of="gains")}


@states("section-4-5-rule", corrected=True, controls=LONGER)
def sharp_sign_rule(config: Config, data: Data) -> lab.Relation:
    """A Euclidean step of the length that the exact curvature of a gain allows, max_i ‖row_i(A)‖²,
    decreases the loss at least as much as the sign step wherever ‖g‖_1²/‖g‖_2² is at most
    ‖A‖_F²/max_i ‖row_i(A)‖², which is d for balanced rows.
    """
    return _at_least(data["gains"], "exact", "spectral", data["gains"]["sharp"] <= 1)


EXPERIMENT = lab.Experiment(
    "one-step-comparison",
    ledger("spectral-criterion"),
    title="One spectral step against one gradient step",
    summary=(
        "nr(G) ≥ 2 st(A) orders the losses, nr(G) ≥ st(A) only the guarantees; the steps printed"
        " for smooth losses are too long."
    ),
    config=Config,
    measure={
        "problems": partial(run_shapes, name="problems", axes="mkn", points=SHAPES),
        "gains": partial(run_shapes, name="gains", axes="dn", points=GAINS),
        "smooth": run_smooth,
    },
    statements=states,
    headlines=("rule-one-stable-rank", "rule-two-stable-ranks"),
    headlines_read=("problems",),
    scales={
        "quick": {"seeds": 5250, "smooth_seeds": 350},
        "smoke": {"seeds": 500, "smooth_seeds": 50},
        "paper": {"seeds": 200_000, "smooth_seeds": 10_000},
    },
)
