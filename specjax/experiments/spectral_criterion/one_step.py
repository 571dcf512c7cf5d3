"""Section 1.2: one spectral step against one gradient step on random problems of many shapes, and on smooth losses."""

from collections.abc import Callable
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from specjax import sizes, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import mean_of
from specjax.experiments.validation import check_root_seed
from specjax.experiments.verdicts import bound_check, difference_check, equality_check
from specjax.models import random_features
from specjax.theory import one_step as theory

SHAPES = ((1, 6, 12), (3, 8, 24), (12, 4, 20), (8, 8, 4), (8, 8, 16), (16, 12, 32))
"""(m, k, n): fewer outputs than features, more, fewer samples than features, square and wide."""
OUTPUTS, FEATURES = 5, 8
SAMPLES = (8, 128)
ROUNDING = 1e-9
"""What float64 leaves of the difference of two losses, over the guaranteed decrease of gradient descent."""


@dataclass(frozen=True)
class Config:
    """How many problems; the rule nr >= 2 st is asked of every one of them."""

    seeds: int = field(default=38_000, metadata={"help": "problems of each of the six shapes"})
    smooth_seeds: int = field(default=1000, metadata={"help": "problems of each number of samples for smooth losses"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        for name, least in (("seeds", 500), ("smooth_seeds", 20)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, for a verdict, got {getattr(self, name)}.")
        check_root_seed(self.seed)


def draw(key: Array, m: int, k: int, n: int) -> tuple[Array, Array, Array]:
    """W, A and Y of a problem, with a random mean of the features, decay of their scales, direction of the error and noise.

    The error W - W_# is normal times B^(q-1): for q near 1 the gradient is mostly along the spike of B, for q below 0 it is mostly
    along the smallest eigenvalues.
    """
    key_scales, key_normals = jax.random.split(key)
    mean, decay, q, noise = jax.random.uniform(key_scales, (4,)) * jnp.asarray([2.0, 1.5, 1.5, 0.5])
    # One call for all of them: a normal generator takes longer to compile than everything else here.
    sizes = np.asarray([k * n, m * k, m * k, m * n])
    normals = jnp.split(jax.random.normal(key_normals, (sizes.sum(),)), np.cumsum(sizes)[:-1])
    features, direction, w, errors = (
        x.reshape(s) for x, s in zip(normals, ((k, n), (m, k), (m, k), (m, n)), strict=True)
    )
    a = mean + features * (jnp.arange(1.0, k + 1) ** -decay)[:, None]
    values, vectors = jnp.linalg.eigh(random_features.second_moment(a, a))
    powers = jnp.maximum(values / values[-1], 1e-3) ** (q - 1.5)
    error = direction @ (vectors * powers[None, :]) @ vectors.T
    return w, a, (w - error) @ a + noise * errors


def softmax_loss(z: Float[Array, "m n"], y: Float[Array, "m n"]) -> Float[Array, ""]:
    """Cross-entropy of the classes argmax y, mean over samples."""
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(z.T, jnp.argmax(y, axis=0)))


def logistic_loss(z: Float[Array, "m n"], y: Float[Array, "m n"]) -> Float[Array, ""]:
    """Logistic loss of the signs of y, mean over samples."""
    return jnp.sum(jax.nn.softplus(-jnp.sign(y) * z)) / z.shape[1]


def huber_loss(z: Float[Array, "m n"], y: Float[Array, "m n"]) -> Float[Array, ""]:
    """Huber loss with threshold 1, mean over samples."""
    return jnp.sum(optax.huber_loss(z, y)) / z.shape[1]


def squared_loss(z: Float[Array, "m n"], y: Float[Array, "m n"]) -> Float[Array, ""]:
    """(1/2n)‖Z - Y‖_F²."""
    return jnp.sum((z - y) ** 2) / (2 * z.shape[1])


LOSSES: dict[str, tuple[Callable[[Array, Array], Array], float]] = {
    "softmax": (softmax_loss, 0.5),
    "logistic": (logistic_loss, 0.25),
    "huber": (huber_loss, 1.0),
    "squared": (squared_loss, 1.0),
}
"""Losses f(Z) and n times the Lipschitz constant of their gradient in the Frobenius norm."""


def measure_problem(key: Array, m: int, k: int, n: int) -> dict[str, Array]:
    """Decreases of one problem by both steps, as the losses have them, and the exact comparison."""
    w, a, y = draw(key, m, k, n)
    before, gd, spectral = (
        random_features.loss(x, a, y)
        for x in (w, random_features.gd_step(w, a, y), random_features.spectral_step(w, a, y))
    )
    found = theory.compare(random_features.gradient(w, a, y), random_features.second_moment(a, a))
    # Decreases over the decrease that gradient descent is guaranteed, a scale that no cancellation reaches.
    unit = found.guaranteed_gd
    return {
        "gd": (before - gd) / unit,
        "spectral": (before - spectral) / unit,
        "advantage": found.advantage,
        "threshold": found.threshold,
        "spectral_stretch": found.spectral_stretch,
    }


def run(config: Config) -> Data:
    """Losses after both steps, with the exact comparison; and decreases of smooth losses by corrected and printed steps."""

    def smooth(key: Array, n: int) -> dict[str, dict[str, Array]]:
        w, a, y = draw(key, OUTPUTS, FEATURES, n)
        gradients = {name: jax.value_and_grad(lambda w, f=f: f(w @ a, y))(w) for name, (f, _) in LOSSES.items()}
        # One decomposition for all losses compiles faster than one for each.
        directions = theory.spectral_direction(jnp.stack([g for _, g in gradients.values()]))
        found: dict[str, dict[str, Array]] = {}
        for (name, (before, g)), direction in zip(gradients.items(), directions, strict=True):
            f, curvature = LOSSES[name]
            found[name] = {}
            for steps, rates in (
                ("corrected", theory.smooth_rates(a, curvature / n)),
                ("printed", theory.smooth_rates_as_printed(a, curvature / n)),
            ):
                for method, rate, along in (("gd", rates.gd, g), ("spectral", rates.spectral, direction)):
                    after = f((w - rate * along) @ a, y)
                    # ⟨G, G⟩ = ‖G‖_F² and ⟨G, ‖G‖_* polar(G)⟩ = ‖G‖_*².
                    promised = rate * jnp.sum(g * along) / 2
                    found[name][f"{steps}_{method}_margin"] = (before - after - promised) / before
                    found[name][f"{steps}_{method}_factor"] = after / before
        return found

    key = jax.random.key(config.seed)
    m, k, n = (sweep.widths(*extents) for extents in zip(*SHAPES, strict=True))
    with jax.enable_x64(True):
        return {
            "problems": sweep.run(
                measure_problem,
                {"shape": sweep.zipped(m=m, k=k, n=n)},
                seeds=config.seeds,
                key=sizes.stream(key, "problems"),
                plan="exact",
            ),
            "smooth": sweep.run(
                smooth,
                {"n": sweep.widths(*SAMPLES)},
                seeds=config.smooth_seeds,
                key=sizes.stream(key, "smooth"),
                plan="exact",
            ),
        }


def between(problems: xr.Dataset) -> xr.DataArray:
    """Which problems have st(A) <= nr(G) < 2 st(A)."""
    return (problems["advantage"] >= 1) & (problems["advantage"] < 2)


def share(hits: np.ndarray) -> tuple[float, float]:
    """The share of hits among independent problems, with its standard error."""
    rate = float(np.mean(hits))
    return rate, float(np.sqrt(max(rate * (1 - rate), 1 / hits.size) / hits.size))


def _gain(problems: xr.Dataset) -> xr.DataArray:
    """L(W_GD) - L(W_SD) over the guaranteed decrease of gradient descent; 0 where rounding could decide its sign."""
    gain = problems["spectral"] - problems["gd"]
    return xr.where(np.abs(gain) <= ROUNDING, 0.0, gain)


def _margin(gain: xr.DataArray, where: xr.DataArray) -> float:
    return float(gain.where(where).min())


def checks(config: Config, data: Data) -> list[Check]:
    """The rules (1.5) and nr >= 2 st on every problem, the exact ratio, and (1.6) with both step sizes."""
    return [*problem_checks(data["problems"]), *smooth_checks(data["smooth"])]


def problem_checks(problems: xr.Dataset) -> list[Check]:
    """Guarantees, rules and the exact ratio on regression problems."""
    gain, advantage, threshold = _gain(problems), problems["advantage"], problems["threshold"]
    ratio = (problems["spectral"] / problems["gd"]).values
    doubtful = between(problems)
    worse, stderr = share((gain.values < 0)[doubtful.values])
    attained = problems["spectral_stretch"] > 1 - ROUNDING
    twice, half = advantage >= 2, advantage <= 0.5
    source = "spectral-criterion, Section 1.2"
    return [
        bound_check(
            "gd-guarantee",
            source,
            "A gradient step decreases the loss by at least ‖G‖_F²/2L_F.",
            smallest_margin=float((problems["gd"] - 1 + ROUNDING).min()),
        ),
        bound_check(
            "spectral-guarantee",
            source,
            "A spectral step decreases the loss by at least ‖G‖_*²/2L_op.",
            smallest_margin=float((problems["spectral"] - advantage + ROUNDING).min()),
        ),
        bound_check(
            "rule-two-stable-ranks",
            source,
            f"nr(G) >= 2 st(A) implies L(W_SD) <= L(W_GD), in all {int(twice.sum())} such problems of {gain.size}.",
            smallest_margin=_margin(gain, twice),
        ),
        bound_check(
            "rule-one-stable-rank",
            "spectral-criterion, (1.5)",
            f"nr(G) >= st(A) alone orders the losses: L(W_SD) <= L(W_GD) in all {int(doubtful.sum())} problems between st and 2 st.",
            smallest_margin=_margin(gain, doubtful),
        ),
        difference_check(
            "rule-one-stable-rank-violations",
            "spectral-criterion, (1.5), corrected [ours]",
            "Between st and 2 st the spectral step is the worse one in a positive share of these problems.",
            difference=worse,
            stderr=stderr,
            resolution=0.01,
        ),
        equality_check(
            "exact-ratio",
            "spectral-criterion, Section 1.2 [ours]",
            "The decreases have the ratio (nr/st)(2 - τ)/(2 - ρ), ρ and τ the stretches of the two steps.",
            error=np.abs(ratio * threshold.values / advantage.values - 1),
            control=np.median(np.abs(ratio / advantage.values - 1)),
            tolerance=1e-7,
        ),
        bound_check(
            "exact-threshold",
            "spectral-criterion, Section 1.2 [ours]",
            "The spectral step gains more if and only if nr/st > (2 - ρ)/(2 - τ).",
            smallest_margin=float((gain * np.sign(advantage - threshold)).min()),
        ),
        bound_check(
            "rule-half-stable-rank",
            "spectral-criterion, Section 1.2 [ours]",
            f"nr(G) <= st(A)/2 implies L(W_GD) <= L(W_SD), in all {int(half.sum())} such problems.",
            smallest_margin=_margin(-gain, half),
        ),
        bound_check(
            "rule-full-rank-gradient",
            "spectral-criterion, Section 1.2 [ours]",
            "Where G has the rank of A, nr(G) <= st(A) already implies L(W_GD) <= L(W_SD).",
            smallest_margin=_margin(-gain, attained & (advantage <= 1)),
        ),
    ]


def smooth_checks(smooth: xr.Dataset) -> list[Check]:
    """Equation (1.6) as printed and corrected, on smooth losses."""
    margins = {
        steps: min(
            float(smooth[f"{name}.{steps}_{method}_margin"].min()) for name in LOSSES for method in ("gd", "spectral")
        )
        for steps in ("corrected", "printed")
    }
    growth = mean_of(np.log10(smooth["squared.printed_gd_factor"].isel(n=-1).values))
    return [
        bound_check(
            "smooth-steps-printed",
            "spectral-criterion, (1.6)",
            "With steps 1/(L_F L) and ‖G‖_*/(L_op L) smooth losses decrease as guaranteed.",
            smallest_margin=margins["printed"],
        ),
        bound_check(
            "smooth-steps-corrected",
            "spectral-criterion, (1.6), corrected: 1/(L ‖A‖_op²) and ‖G‖_*/(L ‖A‖_F²)",
            "Softmax, logistic, Huber and squared losses decrease by at least ‖G‖_F²/(2L‖A‖_op²) and ‖G‖_*²/(2L‖A‖_F²).",
            smallest_margin=margins["corrected"] + ROUNDING,
        ),
        difference_check(
            "smooth-steps-printed-growth",
            "spectral-criterion, (1.6) [ours]",
            f"At n = {SAMPLES[-1]} samples a printed gradient step changes the squared loss by more than one power of ten.",
            difference=growth.mean,
            stderr=growth.stderr,
            resolution=1.0,
        ),
    ]


def tables(config: Config, data: Data) -> list[Table]:
    """Per shape: problems in each range of nr/st, and how often the spectral step is the worse one."""
    problems, gain = data["problems"], _gain(data["problems"])
    ranges = (("nr < st", 0.0, 1.0), ("st <= nr < 2 st", 1.0, 2.0), ("2 st <= nr", 2.0, np.inf))
    rows = []
    for index, shape in enumerate(SHAPES):
        advantage, worse = problems["advantage"].values[index], gain.values[index] < 0
        cells = [_share_cell(worse[(advantage >= low) & (advantage < high)]) for _, low, high in ranges]
        rows.append(("×".join(map(str, shape)), *cells))
    advantage, worse = problems["advantage"].values, gain.values < 0
    rows.append(("all", *(_share_cell(worse[(advantage >= low) & (advantage < high)]) for _, low, high in ranges)))
    header = ("m×k×n", *(f"{name}: problems, SD worse" for name, _, _ in ranges))
    return [Table("How often the spectral step decreases the loss less than the gradient step", header, tuple(rows))]


def _share_cell(worse: np.ndarray) -> str:
    if worse.size == 0:
        return "0, -"
    rate, stderr = share(worse)
    return f"{worse.size}, {100 * rate:.1f} ± {100 * stderr:.1f} %"


def plot(config: Config, data: Data) -> Figure:
    """Left: how often the spectral step wins against nr/st. Right: the true ratio of decreases against nr/st over the threshold."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    problems, gain = data["problems"], _gain(data["problems"])
    edges = np.geomspace(0.25, 8, 26)
    for index, shape in enumerate(SHAPES):
        place = np.digitize(problems["advantage"].values[index], edges)
        wins = gain.values[index] > 0
        shares = [
            (np.sqrt(edges[i - 1] * edges[i]), *share(wins[place == i]))
            for i in range(1, 26)
            if np.sum(place == i) >= 30
        ]
        if shares:
            x, rate, stderr = np.transpose(shares)
            left.errorbar(
                x, rate, yerr=2 * stderr, marker=".", linewidth=1, color=f"C{index}", label="×".join(map(str, shape))
            )
    for value, style in ((1, "--"), (2, "-")):
        left.axvline(value, color="gray", linestyle=style, linewidth=1)
    left.set_xscale("log", base=2)
    left.set_ylim(-0.05, 1.05)
    left.set_xlabel("nr(G)/st(A) (dashed: 1, solid: 2)")
    left.set_ylabel("share of problems in which SpecGD gains more")
    left.legend(fontsize="small", title="m×k×n")

    shown = slice(0, 300)
    ratio = (problems["spectral"] / problems["gd"]).values[:, shown].ravel()
    guarantees = problems["advantage"].values[:, shown].ravel()
    exact = guarantees / problems["threshold"].values[:, shown].ravel()
    right.plot(guarantees, ratio, ".", color="C1", markersize=3, label="nr/st, the guarantees (1.5)")
    right.plot(exact, ratio, ".", color="C0", markersize=3, label="(nr/st)(2 - τ)/(2 - ρ), exact")
    right.set_xscale("log", base=2)
    right.set_yscale("log", base=2)
    right.set_xlabel("predicted ratio of decreases, SpecGD over GD")
    right.set_ylabel("measured ratio")
    right.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="one-step-comparison",
    paper="spectral-criterion",
    source="spectral-criterion, Section 1.2, (1.3) to (1.6)",
    title="One spectral step against one gradient step",
    summary=(
        "nr(G) >= 2 st(A) implies that the spectral step decreases the loss more, in every problem. nr(G) >= st(A) alone compares "
        "guarantees and not losses; the losses are ordered by nr/st against (2 - ρ)/(2 - τ), exactly. The step sizes printed for smooth "
        "losses are too long by the number of samples."
    ),
    scales={
        "smoke": Config(seeds=500, smooth_seeds=50),
        "quick": Config(),
        "paper": Config(seeds=200_000, smooth_seeds=10_000),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"rule-one-stable-rank", "smooth-steps-printed"}),
)
