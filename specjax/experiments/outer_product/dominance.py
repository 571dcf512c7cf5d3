"""Diagonality of G Gᵀ at large width, in expectation and in one sample, for five matrices.

The paper shows that off the diagonal E[G Gᵀ] is small against the diagonal, and concludes that P =
G Gᵀ "becomes diagonal". But a step's preconditioner comes from one sample, whose off-diagonal
entries need not be small: only their signs average out.
"""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product import layers
from specjax.experiments.outer_product.layers import (
    D_IN,
    D_OUT,
    GROWING_ROWS,
    LAYERS,
    problem,
    rank,
    rows,
)
from specjax.experiments.outer_product.statistics import extrapolate, gram
from specjax.lab.drawing import COLORS, draw_sweep
from specjax.sizes import AnySize
from specjax.theory import deep_linear as linear_theory
from specjax.theory import dominance as dominance_theory
from specjax.theory import matrix_factorization as factorization_theory
from specjax.theory import relu_network as relu_theory

Data = dict[str, xr.Dataset]
states = lab.Statements()


class Config(lab.Config):
    """Widths and seeds."""

    widths: tuple[int, ...] = lab.config.sizes(
        16, 32, 64, 128, 256, least=2, points=5, help="k, or hidden units d_1"
    )
    seeds: int = lab.config.seeds(1000, help="initializations at every width")
    linear_widths: tuple[int, ...] = lab.config.sizes(
        256, 512, least=2, points=2, help="d_1 of the limits in linear networks"
    )
    linear_seeds: int = lab.config.seeds(
        6000, help="initializations of linear networks at each of linear_widths"
    )


def run_layers(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Dominance of one sample's P = G Gᵀ by layer, width and seed, and the bound from its rank."""
    target_key = sizes.stream(key, "target")

    def measure(key: Key[Array, ""], width: AnySize) -> dict[str, dict[str, Array]]:
        params, gradient = problem(key, width, target_key)
        results = {}
        for layer, g in gradient(params).items():
            p = gram(g)
            results[layer] = {
                "ratio": spectral.dominance_ratio(p, rows(layer, width)),
                "energy": spectral.dominance.off_diagonal_energy(p),
                "bound": dominance_theory.off_diagonal_energy_bound(p, rank(layer)),
            }
        return results

    over = {"width": sweep.widths(*config.widths)}
    return lab.seeded_sweep(key, "weights", measure, config.seeds, **over)


def run_linear(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Dominance of one sample's P in linear networks of two widths, for their limits."""
    target_key = sizes.stream(key, "target")

    def linear(key: Key[Array, ""], width: AnySize) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)
        found = gradient(params)
        names = ("linear_hidden", "linear_output")
        return {
            layer: spectral.dominance_ratio(gram(found[layer]), rows(layer, width))
            for layer in names
        }

    over = {"width": sweep.widths(*config.linear_widths)}
    return lab.seeded_sweep(key, "linear weights", linear, config.linear_seeds, **over)


def expected_ratios(config: Config) -> dict[str, Array | float]:
    """Mean |off-diagonal| over mean diagonal of E[G Gᵀ] by the closed forms, by layer and width."""
    targets = layers.targets(sizes.stream(jax.random.key(config.seed), "target"))
    symmetric, linear = (np.asarray(target, float) for target in targets)
    with jax.enable_x64(True):
        m, phi, width = (
            jnp.asarray(symmetric),
            jnp.asarray(linear),
            np.asarray(config.widths, float),
        )
        output = [
            linear_theory.expected_outer_product((D_IN, w, D_OUT), phi, 2) for w in config.widths
        ]
        relu_diagonal = relu_theory.diagonal_1(D_IN, width, D_OUT, np.sum(linear**2))
        return {
            "factorization": spectral.dominance_ratio(
                factorization_theory.expected_outer_product(m, width)
            ),
            "linear_hidden": 0.0,
            "linear_output": spectral.dominance_ratio(jnp.stack(output)),
            "relu_hidden": relu_theory.off_diagonal_1(D_IN, D_OUT) / relu_diagonal,
            "relu_output": spectral.dominance_ratio(
                relu_theory.expected_outer_product_2(phi, width)
            ),
        }


def state_layer(layer: str) -> None:
    """State that one sample becomes diagonal; for hidden layers of bounded rank, that it cannot."""
    other = "relu_hidden" if layer == "factorization" else "factorization"
    cites = ("section-4-draw", *(["section-4-w1-ratio"] if layer == "relu_hidden" else []))
    ratio, energy, bound = (f"{layer}.{quantity}" for quantity in ("ratio", "energy", "bound"))
    states(
        cites,
        f"{LAYERS[layer]}: P = GGᵀ of one sample becomes diagonal as the width grows.",
        name=f"{layer.replace('_', '-')}-draw-vanishes",
        controls={
            f"{LAYERS[other]}, in its place": lab.controls.replacing(
                ratio, f"{other}.ratio", of="layers"
            )
        },
        holds=layer == "factorization",
    )(lambda config, data: lab.vanishes(data["layers"][ratio], "width"))
    if layer not in GROWING_ROWS:
        return

    @states(
        cites,
        f"{LAYERS[layer]}: in every sample the diagonal entries hold at most rank Σ P_aa²/(tr P)²"
        " of ‖P‖_F².",
        name=f"{layer.replace('_', '-')}-rank-bound",
        corrected=True,
        controls={
            "the factorization, which becomes diagonal": lab.controls.replacing(
                energy, "factorization.energy", of="layers"
            )
        },
    )
    def rank_bound(config: Config, data: Data) -> lab.Relation:
        # Both sides as shares on the diagonal, which go to zero with the width: as shares off it
        # all of them would be near 1. For equal eigenvalues the bound would be an equality; by
        # their spread it is loose, in linear networks (d₀ + d₂ + 1)/d₀ < 2 times. Of shares down to
        # a hundredth, each the difference from 1 of a number in float32, a thousandth is rounding.
        found = data["layers"]
        return lab.inequality(1 - found[energy], 1 - found[bound], slack=0.5, rounding=1e-3)


for each in LAYERS:
    state_layer(each)


@states("section-4-draw", corrected=True, rivals={"1/k, as in expectation": -1.0, "no fall": 0.0})
def factorization_draw_rate(config: Config, data: Data) -> lab.Relation:
    """Matrix factorization: the ratio of one sample falls as k^(-1/2), the fluctuation of a Wishart
    matrix, not as the expectation's 1/k.
    """
    # At large k, G Gᵀ is k³ (I + 3 X/√k), where X is the fluctuation of U Uᵀ.
    return lab.scales_as(data["layers"]["factorization.ratio"], "width", -0.5)


@states(
    "section-4-draw",
    "Linear network, W₁: the mean ratio of one sample tends to (1/√π) h(d₀) h(d₂)"
    " Γ((d₀+d₂+1)/2)/Γ((d₀+d₂)/2), h(d) = Γ((d+1)/2)/Γ(d/2+1).",
    corrected=True,
    rivals={
        "a flat spectrum of Z Zᵀ": lambda config, data: float(
            linear_theory.one_draw_ratio_output(D_OUT)
        ),
        "the limit of W₂": lambda config, data: float(linear_theory.one_draw_ratio_output(D_IN)),
        "a root mean square": float(np.sqrt((D_IN + D_OUT + 1) / (D_IN * D_OUT))),
        "one input more": lambda config, data: float(
            linear_theory.one_draw_ratio_hidden(D_IN + 1, D_OUT)
        ),
    },
)
def linear_hidden_limit(config: Config, data: Data) -> lab.Relation:
    return _limit(data, "linear_hidden", float(linear_theory.one_draw_ratio_hidden(D_IN, D_OUT)))


@states(
    "section-4-draw",
    corrected=True,
    rivals={
        "outputs in the place of inputs": lambda config, data: float(
            linear_theory.one_draw_ratio_output(D_OUT)
        ),
        "√(2/(π d₀)), its leading order": float(np.sqrt(2 / (np.pi * D_IN))),
        "a root mean square, 1/√d₀": float(1 / np.sqrt(D_IN)),
        "one input more": lambda config, data: float(linear_theory.one_draw_ratio_output(D_IN + 1)),
    },
)
def linear_output_limit(config: Config, data: Data) -> lab.Relation:
    """Linear network, W₂: the mean ratio of one sample tends to Γ((d₀+1)/2)/(√π Γ(d₀/2+1)),
    whatever the number of outputs.
    """
    return _limit(data, "linear_output", float(linear_theory.one_draw_ratio_output(D_IN)))


def _limit(data: Data, layer: str, form: float) -> lab.Relation:
    return lab.equals(
        extrapolate(data["linear"][layer], "width").rename("ratio at infinite width"), form
    )


def figure(config: Config, data: Data) -> Figure:
    """Plot the expectation by closed form (left) and one sample (right)."""
    drawn = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = drawn.subplots(1, 2, sharey=True)
    expected = expected_ratios(config)
    for index, (layer, label) in enumerate(LAYERS.items()):
        ratios = data["layers"][f"{layer}.ratio"]
        exact = xr.zeros_like(ratios) + np.reshape(np.asarray(expected[layer], np.float32), (-1, 1))
        zero = "" if exact.all() else ": zero"
        draw_sweep(left, exact, "width", label=label + zero, color=COLORS[index], line=True)
        draw_sweep(right, ratios, "width", label=label, color=COLORS[index], line=True)
    left.set(
        title="the expectation E[GGᵀ] (closed form)", ylabel="mean |off-diagonal| / mean diagonal"
    )
    right.set_title("one sample of GGᵀ (mean over samples of the ratio)")
    for axes in (left, right):
        axes.set_xlabel("width")
        axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "dominance",
    ledger("outer-product"),
    title="Diagonal dominance of G Gᵀ: in expectation, and in the sample that a step uses",
    summary=(
        "All expectations are diagonal at large width, as the paper proves; one sample becomes so"
        " in matrix factorization alone, as k^(-1/2): what vanishes in the expectations of the"
        " other four layers are signs, not sizes."
    ),
    config=Config,
    measure={"layers": run_layers, "linear": run_linear},
    statements=states,
    headlines=("relu-output-draw-vanishes",),
    headlines_read=("layers",),
    scales={
        "quick": {"seeds": 500, "linear_seeds": 3000},
        "smoke": {
            "widths": (8, 16, 32, 64, 128),
            "seeds": 100,
            "linear_widths": (32, 64),
            "linear_seeds": 200,
        },
        "paper": {
            "widths": (16, 32, 64, 128, 256, 512, 1024),
            "seeds": 4000,
            "linear_seeds": 40_000,
        },
    },
    figure=figure,
)
