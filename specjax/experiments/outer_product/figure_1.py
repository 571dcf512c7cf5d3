"""Figure 1: row blocks of a layer's Hessian beside Muon's metric H_Muon = (G Gᵀ)^{1/2} ⊗ I.

The paper draws both alike. They are computed at Gaussian initialization for the five weight
matrices of the paper's summary. Measured is the *share outside*, the part of ‖H‖_F² outside of the
diagonal row blocks; for a Hessian, in the blocks of the weight's first rows, which are like all
others.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.layers import LAYERS, mask, problem
from specjax.experiments.outer_product.statistics import neighbours
from specjax.lab.drawing import COLORS, draw_sweep
from specjax.sizes import AnySize

HIDDEN, OUTPUT = ["linear_hidden", "relu_hidden"], ["linear_output", "relu_output"]
ROWS = 4
"""Differentiated rows of blocks of a Hessian, since all would cost the width times as much."""
BOTH_LAYERS = (
    "One statement gave 1/width to both hidden layers; in ReLU networks the curvature of a unit's"
    " own gate grows with the width."
)

Data = dict[str, xr.Dataset]
Blocks = Callable[[Key[Array, ""], AnySize], dict[str, Array]]
states = lab.Statements()


class Config(lab.Config):
    """Widths, seeds, and the width of the plotted blocks."""

    widths: tuple[int, ...] = lab.config.sizes(
        8, 16, 32, 64, 128, least=ROWS, points=5, help="k, or hidden units d_1"
    )
    seeds: int = lab.config.seeds(200, help="initializations at every width, for the Hessian")
    metric_seeds: int = lab.config.seeds(1000, help="initializations at every width, for H_Muon")
    drawn_width: int = lab.config.integer(16, least=2, help="width of the drawn blocks")


def run(config: Config, key: Key[Array, ""]) -> Data:
    """The share outside by layer, width and seed, of Hessian and H_Muon, and block norms."""
    target_key = sizes.stream(key, "target")

    def hessian(key: Key[Array, ""], width: AnySize, rows: int | None = ROWS) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)

        def norms(layer: str) -> Array:
            # The loss also curves along padded columns, which are not parameters of a model of this
            # width.
            active = mask(layer, width)

            def along(first: Array) -> Array:
                w = params[layer].at[:rows].set(first)
                return gradient({**params, layer: jnp.where(active, w, 0)})[layer]

            return jnp.linalg.norm(jax.jacfwd(along)(params[layer][:rows]), axis=(1, 3))

        return {layer: norms(layer) for layer in params}

    def metric(key: Key[Array, ""], width: AnySize) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)
        # H_Muon has the blocks (P^{1/2})_ab I_n, whose norms are |(P^{1/2})_ab| up to one factor.
        return jax.tree.map(lambda g: jnp.abs(spectral.row_metric(g)), gradient(params))

    def share(blocks: Blocks) -> Blocks:
        return lambda key, width: jax.tree.map(_share_outside, blocks(key, width))

    swept, drawn = (
        {"width": sweep.widths(*widths)} for widths in (config.widths, (config.drawn_width,))
    )
    weights = sizes.stream(key, "weights")
    return {
        "hessian": sweep.run(share(hessian), swept, num_seeds=config.seeds, key=weights),
        "metric": sweep.run(share(metric), swept, num_seeds=config.metric_seeds, key=weights),
        "hessian-blocks": sweep.run(partial(hessian, rows=None), drawn, num_seeds=1, key=weights),
        "metric-blocks": sweep.run(metric, drawn, num_seeds=1, key=weights),
    }


def _share_outside(norms: Float[Array, "m rows"]) -> Float[Array, ""]:
    return 1 - jnp.sum(jnp.diagonal(norms) ** 2) / jnp.sum(norms**2)


def select_layers(data: Data, layers: list[str]) -> xr.DataArray:
    """The share outside of the Hessian, with the layers as a dimension."""
    return (
        data["hessian"][layers]
        .to_dataarray("layer", "share outside")
        .transpose("layer", "width", "seed")
    )


def exchange_hessians(config: Config, data: Data) -> Data:
    """Exchange the Hessians of hidden and of output layers."""
    hessian, pairs = data["hessian"], zip(HIDDEN + OUTPUT, OUTPUT + HIDDEN, strict=True)
    return {**data, "hessian": hessian.assign({to: hessian[of] for to, of in pairs})}


@states(("figure-1", "section-1-hessian"), controls={"hidden layers": exchange_hessians})
def hessian_output(config: Config, data: Data) -> lab.Relation:
    """In output layers, where the loss is quadratic, the Hessian has nothing outside of its
    diagonal row blocks.
    """
    # Second derivatives in float32 that are zero come out as such, or at the square of its
    # precision.
    return lab.zero_error(select_layers(data, OUTPUT), tolerance=1e-6)


@states(
    ("figure-1", "section-1-hessian"),
    controls={
        "the linear network's W₁": lab.controls.replacing(
            "factorization", "linear_hidden", of="hessian"
        )
    },
)
def hessian_factorization(config: Config, data: Data) -> lab.Relation:
    """Matrix factorization: the Hessian becomes block-diagonal in the rows as the width grows."""
    return lab.vanishes(data["hessian"]["factorization"], "width")


def hessian_hidden(layer: str) -> None:
    # At a fixed number of outputs; the works that the paper cites let it grow.
    states(
        "section-1-hessian",
        f"{LAYERS[layer]}: the diagonal row blocks dominate the Hessian: they hold more than half"
        " of ‖H‖_F² at every width.",
        name=f"hessian-{layer.replace('_', '-')}",
        holds=False,
        controls={"output layers": exchange_hessians},
    )(lambda config, data: lab.below(data["hessian"][layer], 0.5, "one half"))


for hidden in HIDDEN:
    hessian_hidden(hidden)


@states(
    "figure-1",
    elsewhere=True,
    controls={"output layers": exchange_hessians},
)
def hessian_hidden_at_few_outputs(config: Config, data: Data) -> lab.Relation:
    """In hidden layers, at a fixed number of outputs, more than half of ‖H‖_F² lies outside of the
    diagonal row blocks at the largest width.
    """
    return lab.above(select_layers(data, HIDDEN).isel(width=-1), 0.5, "one half")


@states(
    "section-1-hessian",
    corrected=True,
    controls={"output layers": exchange_hessians},
    post_hoc=BOTH_LAYERS,
)
def hessian_hidden_grows(config: Config, data: Data) -> lab.Relation:
    """In hidden layers the share of the Hessian outside of the diagonal row blocks is larger at
    each width than at the one before.
    """
    before, after = neighbours(select_layers(data, HIDDEN), "width")
    return lab.ahead(after, before, least=0)


@states(
    "section-1-hessian",
    corrected=True,
    rivals={"1/√width": -0.5, "no fall": 0.0, "1/width²": -2.0},
    post_hoc=BOTH_LAYERS,
)
def hessian_linear_hidden_rate(config: Config, data: Data) -> lab.Relation:
    """In the linear network's hidden layer the share of the Hessian in the diagonal row blocks
    falls as 1/width.
    """
    # That Hessian is W₂ᵀ W₂ ⊗ I: in expectation the squares of its diagonal blocks are (d₂ + 2)/(d₁
    # + d₂ + 1) of all.
    return lab.scales_as((1 - data["hessian"]["linear_hidden"]).rename("share inside"), "width", -1)


def metric(layer: str) -> None:
    """State that H_Muon becomes block-diagonal, or where it does not, that the rest stays."""
    other = "linear_hidden" if layer == "factorization" else "factorization"
    controls = {LAYERS[other]: lab.controls.replacing(layer, other, of="metric")}
    name, holds = f"metric-{layer.replace('_', '-')}", layer == "factorization"
    states(
        # The figure's caption is conditional: where P is close to diagonal.
        ("figure-1", "section-1-metric") if holds else "section-1-metric",
        f"{LAYERS[layer]}: H_Muon of one sample becomes block-diagonal in the rows as the width"
        " grows.",
        name=name,
        holds=holds,
        controls=controls,
    )(lambda config, data: lab.vanishes(data["metric"][layer], "width"))
    if not holds:
        states(
            "section-1-metric",
            f"{LAYERS[layer]}: the share of H_Muon of one sample outside of the row blocks stays as"
            " the width grows.",
            name=f"{name}-stays",
            corrected=True,
            controls=controls,
        )(lambda config, data: lab.settles(data["metric"][layer], "width"))


for each in LAYERS:
    metric(each)


SHOWN = "relu_hidden"


def figure(config: Config, data: Data) -> Figure:
    """Plot block norms of one hidden layer, and the share outside the diagonal by width."""
    drawn = Figure(figsize=(10, 6), layout="constrained")
    panels = drawn.subplots(2, 2, width_ratios=(1, 2))
    kinds = {"hessian": "Hessian", "metric": "H_Muon of one sample"}
    for (picture, panel), (kind, text) in zip(panels, kinds.items(), strict=True):
        norms = data[f"{kind}-blocks"][SHOWN].isel(width=0, seed=0).values
        image = picture.imshow(norms / norms.max(), cmap="viridis", vmin=0, vmax=1)
        picture.set(xticks=[], yticks=[], title=text, ylabel=f"rows of the {LAYERS[SHOWN]}")
        for (layer, label), color in zip(LAYERS.items(), COLORS, strict=False):
            draw_sweep(panel, data[kind][layer], "width", label=label, color=color, line=True)
        panel.set(yscale="linear", ylim=(-0.03, 1), title=text, xlabel="width")
        panel.set_ylabel("share outside the blocks")
    drawn.colorbar(image, ax=panels[:, 0], label="norm of a row block / largest", shrink=0.8)
    panels[0, 1].legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    return drawn


EXPERIMENT = lab.Experiment(
    "figure-1",
    ledger("outer-product"),
    title="Row blocks of the Hessian and of Muon's metric",
    summary=(
        "A Hessian that is quadratic in an output layer is block-diagonal in its rows, and that of"
        " matrix factorization becomes so with the width; in hidden layers the share outside grows"
        " beyond one half, and Muon's metric follows its own P."
    ),
    config=Config,
    measure=run,
    paired="the Hessian and H_Muon are those of the same networks, of which one is drawn",
    statements=states,
    scales={
        # A root seed other than that whose data changed a rule.
        "quick": {"seed": 1},
        "smoke": {"widths": (4, 8, 16, 32, 64), "seeds": 40, "metric_seeds": 100, "drawn_width": 8},
        "paper": {"widths": (8, 16, 32, 64, 128, 256), "seeds": 200, "metric_seeds": 4000},
    },
    figure=figure,
)
