"""Figure 1: the row-block structure of a layer's Hessian beside that of Muon's metric H_Muon = (G Gᵀ)^{1/2} ⊗ I.

The paper draws both as block-diagonal. Here they are computed, at Gaussian initialization: the share of ‖H‖_F² in the diagonal blocks,
against the width, for the five weight matrices of the paper's summary.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.outer_product.layers import LAYERS, mask, problem
from specjax.experiments.plots import draw_sweep
from specjax.experiments.validation import check_root_seed, check_seeds, check_sizes
from specjax.experiments.verdicts import bound_check, vanishing_check
from specjax.sizes import AnySize

Blocks = Callable[[Array, AnySize], dict[str, Array]]
OUTPUT_LAYERS = ("linear_output", "relu_output")


@dataclass(frozen=True)
class Config:
    """Widths, seeds, and the width of the drawn blocks."""

    widths: tuple[int, ...] = field(default=(4, 8, 16, 32, 64), metadata={"help": "k, or d_1, for the Hessian"})
    metric_widths: tuple[int, ...] = field(default=(16, 32, 64, 128, 256), metadata={"help": "k, or d_1, for H_Muon"})
    seeds: int = field(default=30, metadata={"help": "initializations at every width, for the Hessian"})
    metric_seeds: int = field(default=500, metadata={"help": "initializations at every width, for H_Muon"})
    drawn_width: int = field(default=16, metadata={"help": "width of the drawn Hessians"})
    seed: int = field(default=0, metadata={"help": "seed of the weights and targets"})

    def __post_init__(self) -> None:
        # A layer with a single row has nothing outside its diagonal block.
        check_sizes("widths", self.widths, least=2, points=2)
        check_sizes("metric_widths", self.metric_widths, least=2, points=2)
        check_seeds("seeds", self.seeds)
        check_seeds("metric_seeds", self.metric_seeds)
        check_root_seed(self.seed)
        if self.drawn_width < 1:
            raise ValueError(f"drawn_width must be at least 1, got {self.drawn_width}.")


def run(config: Config) -> Data:
    """‖H_ab‖_F outside the diagonal blocks, per layer, width and seed, for the Hessian and for H_Muon; and the blocks of one draw."""
    target_key = jax.random.key(config.seed + 1)

    def hessian(key: Array, width: AnySize) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)

        def energy(layer: str) -> Array:
            # The loss also curves along padded columns, which are no directions of a model of this width.
            active = mask(layer, width)
            matrix = jax.jacfwd(lambda w: gradient({**params, layer: jnp.where(active, w, 0)})[layer])(params[layer])
            return spectral.block_energy(matrix.reshape(params[layer].size, -1), params[layer].shape[0])

        return {layer: energy(layer) for layer in params}

    def metric(key: Array, width: AnySize) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)
        # H_Muon has the blocks (P^{1/2})_ab I_n: its block energies are |(P^{1/2})_ab| up to one factor.
        return jax.tree.map(lambda g: jnp.abs(spectral.row_metric(g)), gradient(params))

    def share(blocks: Blocks) -> Blocks:
        return lambda key, width: jax.tree.map(spectral.off_diagonal_energy, blocks(key, width))

    key = jax.random.key(config.seed)
    wide, drawn = ({"width": sweep.widths(*ws)} for ws in (config.metric_widths, (config.drawn_width,)))
    return {
        "hessian": sweep.run(
            share(hessian), {"width": sweep.widths(*config.widths)}, seeds=config.seeds, key=key, chunk=10
        ),
        "metric": sweep.run(share(metric), wide, seeds=config.metric_seeds, key=key, chunk=100),
        "hessian-blocks": sweep.run(hessian, drawn, seeds=1, key=key),
        "metric-blocks": sweep.run(metric, drawn, seeds=1, key=key),
    }


def checks(config: Config, data: Data) -> list[Check]:
    """Per layer, whether the share outside the diagonal blocks vanishes with the width, for the Hessian and for H_Muon."""
    hessian, metric = data["hessian"], data["metric"]
    results = []
    for layer, label in LAYERS.items():
        name = layer.replace("_", "-")
        if layer in OUTPUT_LAYERS:
            results.append(
                bound_check(
                    f"{name}-hessian",
                    "outer-product, Section 1 (row-block dominance)",
                    f"{label}: the Hessian is block-diagonal in the rows (exactly, the loss is quadratic in this layer).",
                    smallest_margin=1e-6 - float(hessian[layer].max()),
                )
            )
        else:
            results.append(
                vanishing_check(
                    f"{name}-hessian",
                    "outer-product, Section 1 (row-block dominance)",
                    f"{label}: the Hessian becomes block-diagonal in the rows as the width grows.",
                    fit=sweep.fit_power_law(hessian[layer], "width"),
                )
            )
        results.append(
            vanishing_check(
                f"{name}-metric",
                "outer-product, Section 1 and Figure 1",
                f"{label}: H_Muon of one draw becomes block-diagonal in the rows as the width grows.",
                fit=sweep.fit_power_law(metric[layer], "width"),
            )
        )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """The share of ‖H‖_F² outside the diagonal blocks at each width."""
    results = []
    for kind, text, widths in (("hessian", "the Hessian", config.widths), ("metric", "H_Muon", config.metric_widths)):
        body = []
        for layer, label in LAYERS.items():
            mean, stderr = sweep.mean_and_stderr(data[kind][layer])
            body.append((label, *(f"{m:.3f} ± {e:.3f}" for m, e in zip(mean.values, stderr.values, strict=True))))
        title = f"Share of ‖H‖_F² outside the diagonal row blocks of {text} at width …"
        results.append(Table(title, ("layer", *map(str, widths)), tuple(body)))
    return results


def plot(config: Config, data: Data) -> Figure:
    """Block energies of one draw, Hessian above H_Muon, and the share outside the diagonal blocks against the width below."""
    figure = Figure(figsize=(13, 8.5), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(2, 1.1))
    above, below = parts
    pictures = above.subplots(2, len(LAYERS))
    for column, (layer, label) in enumerate(LAYERS.items()):
        for axes, (kind, text) in zip(pictures[:, column], (("hessian", "Hessian"), ("metric", "H_Muon")), strict=True):
            energy = data[f"{kind}-blocks"][layer].isel(width=0, seed=0).values
            axes.imshow(energy / energy.max(), cmap="viridis", vmin=0, vmax=1)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_title(f"{label}\n{text}" if kind == "hessian" else text, fontsize="medium")
    for axes, (kind, text) in zip(
        below.subplots(1, 2), (("hessian", "Hessian"), ("metric", "H_Muon of one draw")), strict=True
    ):
        for index, (layer, label) in enumerate(LAYERS.items()):
            if kind == "hessian" and layer in OUTPUT_LAYERS:
                axes.plot([], [], color=f"C{index}", label=f"{label}: zero")
            else:
                draw_sweep(axes, data[kind][layer], "width", label=label, color=f"C{index}", line=True)
        axes.set_yscale("linear")
        axes.set_ylim(0, 1)
        axes.set_title(text)
        axes.set_xlabel("width")
        axes.set_ylabel("share outside the diagonal blocks")
        axes.legend(fontsize="x-small")
    return figure


EXPERIMENT = Experiment(
    name="figure-1",
    paper="outer-product",
    source="outer-product, Figure 1 and Section 1",
    title="Row blocks of the Hessian and of Muon's metric",
    summary=(
        "A Hessian that is quadratic in an output layer is block-diagonal in its rows, exactly, and that of matrix factorization "
        "becomes so with the width. In hidden layers, at a fixed number of outputs, it becomes less so (the results the paper cites "
        "let the number of outputs grow). Muon's metric of one draw follows its own P: outside matrix factorization it does not "
        "approach the block-diagonal form of the paper's picture."
    ),
    scales={
        "smoke": Config(widths=(4, 8, 16, 32), metric_widths=(16, 32, 64, 128), seeds=20, metric_seeds=100),
        "quick": Config(),
        "paper": Config(
            widths=(4, 8, 16, 32, 64, 128), metric_widths=(16, 64, 256, 1024), seeds=400, metric_seeds=2000
        ),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset(
        {"linear-hidden-hessian", "relu-hidden-hessian"}
        | {f"{layer}-metric" for layer in ("linear-hidden", "linear-output", "relu-hidden", "relu-output")}
    ),
)
