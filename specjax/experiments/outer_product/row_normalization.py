"""Appendix D: is orthogonalization asymptotically a row normalization? At initialization and along training under momentum.

If V Vᵀ is diagonal, the polar factor of V is V with its rows normalized. How far apart the two steps are in one draw, up to a common step
size, is measured against the width for the five weight matrices of the paper's summary, first for V = G and then along Muon's own path.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sizes, spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import Mean
from specjax.experiments.outer_product.layers import D_IN, D_OUT, LAYERS, problem
from specjax.experiments.plots import draw_mean, draw_sweep, slope_label
from specjax.experiments.validation import check_root_seed, check_seeds, check_sizes
from specjax.experiments.verdicts import exponent_check, vanishing_check
from specjax.sizes import AnySize


@dataclass(frozen=True)
class Config:
    """Widths, seeds, and the training run: V ← β V + (1 - β) G, W ← W - rate √max(m, n) polar(V)."""

    widths: tuple[int, ...] = field(default=(16, 32, 64, 128, 256), metadata={"help": "k, or hidden units d_1"})
    seeds: int = field(default=80, metadata={"help": "initializations at every width"})
    steps: int = field(default=20, metadata={"help": "steps of momentum"})
    rate: float = field(default=0.05, metadata={"help": "root mean square change of a weight in one step"})
    momentum: float = field(default=0.95, metadata={"help": "β of the moving average V"})
    seed: int = field(default=0, metadata={"help": "seed of the weights and targets"})

    def __post_init__(self) -> None:
        # A single row is a multiple of its polar factor.
        check_sizes("widths", self.widths, least=2, points=5)
        check_seeds("seeds", self.seeds)
        check_root_seed(self.seed)
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum}.")
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"rate must be positive and finite, got {self.rate}.")


def run(config: Config) -> Data:
    """The distance of the two steps, per layer, width, seed and training step."""
    target_key = jax.random.key(config.seed + 1)

    def measure(key: Array, width: AnySize) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)
        size = jnp.sqrt(jnp.maximum(sizes.active(width), max(D_IN, D_OUT)))

        def step(state: tuple, _: None) -> tuple[tuple, dict[str, Array]]:
            params, average = state
            orthogonal = jax.tree.map(spectral.polar, average)
            errors = jax.tree.map(
                lambda v, o: spectral.direction_error(spectral.normalize_rows(v), o), average, orthogonal
            )
            params = jax.tree.map(lambda w, o: w - config.rate * size * o, params, orthogonal)
            average = jax.tree.map(
                lambda v, g: config.momentum * v + (1 - config.momentum) * g, average, gradient(params)
            )
            return (params, average), errors

        # V starts at the first gradient: from zero it would be the same matrix up to a factor, which no step here sees.
        _, errors = jax.lax.scan(step, (params, gradient(params)), length=config.steps + 1)
        return errors

    over = {"width": sweep.widths(*config.widths)}
    data = sweep.run(measure, over, seeds=config.seeds, key=jax.random.key(config.seed), chunk=50)
    return {"training": data.rename({f"{layer}_dim_0": "step" for layer in LAYERS})}


def checks(config: Config, data: Data) -> list[Check]:
    """Per layer, whether the distance vanishes with the width, at initialization and at the last step."""
    errors = data["training"]
    results = []
    for when, step in (("initialization", 0), (f"step {config.steps}", config.steps)):
        for layer, label in LAYERS.items():
            results.append(
                vanishing_check(
                    f"{layer.replace('_', '-')}-{'initial' if step == 0 else 'trained'}",
                    "outer-product, Appendix D",
                    f"{label}: at {when} the polar factor of V becomes V with normalized rows as the width grows.",
                    fit=sweep.fit_power_law(errors[layer].isel(step=step), "width"),
                )
            )
    results.append(
        exponent_check(
            "factorization-initial-rate",
            "outer-product, Appendix D, corrected [ours]",
            "Matrix factorization: at initialization the distance falls as k^(-1/2).",
            predicted=-0.5,
            resolution=0.25,
            fit=sweep.asymptotic_exponent(errors["factorization"].isel(step=0), "width"),
        )
    )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """The distance at each width, first and last step."""
    body = []
    for layer, label in LAYERS.items():
        for step in (0, config.steps):
            values = data["training"][layer].isel(step=step)
            mean, stderr = sweep.mean_and_stderr(values)
            fit = sweep.asymptotic_exponent(values, "width")
            cells = (f"{m:.3f} ± {e:.3f}" for m, e in zip(mean.values, stderr.values, strict=True))
            body.append((label, str(step), *cells, f"{fit.exponent:.2f} ± {fit.interval[1] - fit.exponent:.2f}"))
    header = ("layer", "step", *map(str, config.widths), "exponent")
    return [Table("Distance of row normalization from the polar factor, √(1 - cos²), at width …", header, tuple(body))]


def plot(config: Config, data: Data) -> Figure:
    """Left: against the width at initialization. Right: along training, at the smallest and the largest width."""
    figure = Figure(figsize=(11, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    ends = (config.widths[0], config.widths[-1])
    for index, (layer, label) in enumerate(LAYERS.items()):
        errors = data["training"][layer]
        fit = sweep.asymptotic_exponent(errors.isel(step=0), "width")
        text = slope_label(label, fit.exponent, fit.interval[1] - fit.exponent)
        draw_sweep(left, errors.isel(step=0), "width", label=text, color=f"C{index}", line=True)
        for width, style in zip(ends, ("--", "-"), strict=True):
            mean = Mean(*sweep.mean_and_stderr(errors.sel(width=width)))
            draw_mean(right, errors["step"].values, mean, style, color=f"C{index}")
    left.set_yscale("linear")
    left.set_ylim(0, 0.85)
    left.set_xlabel("width")
    left.set_ylabel("distance from the polar factor, √(1 - cos²)")
    left.set_title("at initialization")
    left.legend(fontsize="small", loc="lower left")
    right.set_xlabel("step of momentum")
    right.set_xlim(0, config.steps)
    right.set_title(f"along training: width {ends[0]} (dashed) and {ends[1]} (solid)")
    return figure


EXPERIMENT = Experiment(
    name="row-normalization",
    paper="outer-product",
    source="outer-product, Appendix D (eq. 53)",
    title="Orthogonalization against row normalization",
    summary=(
        "If V Vᵀ is diagonal, orthogonalizing V normalizes its rows. In one draw it is nearly diagonal only in matrix factorization, "
        "where the two steps approach each other as k^(-1/2). In the two-layer networks, with input and output sizes fixed, they stay "
        "at a fixed distance however wide the hidden layer is, at initialization and along Muon's own path."
    ),
    scales={
        "smoke": Config(seeds=20, steps=3),
        "quick": Config(),
        "paper": Config(widths=(16, 32, 64, 128, 256, 512, 1024), seeds=400, steps=100),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset(
        f"{layer}-{when}"
        for layer in ("linear-hidden", "linear-output", "relu-hidden", "relu-output")
        for when in ("initial", "trained")
    ),
)
