"""Is G Gᵀ diagonal at large width? In expectation and in one draw, for the five weight matrices of the paper's summary.

The paper shows that off the diagonal E[G Gᵀ] is small against the diagonal, and concludes that P = G Gᵀ "becomes diagonal". The
preconditioner of a step is made of one draw, though, and there the off-diagonal entries need not be small: their signs average out.
"""

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.layers import D_IN, D_OUT, GROWING_ROWS, LAYERS, problem, rank, rows
from specjax.experiments.outer_product.statistics import at_infinity, gram
from specjax.lab.drawing import draw_sweep
from specjax.models.targets import low_rank_target, sign_target
from specjax.sizes import AnySize
from specjax.theory import deep_linear as linear_theory
from specjax.theory import dominance as dominance_theory
from specjax.theory import matrix_factorization as factorization_theory
from specjax.theory import relu_network as relu_theory

ROOM = 0.5
"""The rank bound would be an equality for equal eigenvalues; by their spread it is loose, in linear networks (d₀ + d₂ + 1)/d₀ < 2 times."""
ROUNDING = 1e-3
"""Of shares on the diagonal down to a hundredth, each the difference from 1 of a number in float32."""


class Config(lab.Config):
    """Widths and seeds."""

    widths: tuple[int, ...] = lab.sizes(16, 32, 64, 128, 256, least=2, points=5, help="k, or hidden units d_1")
    seeds: int = lab.seeds(1000, help="initializations at every width")
    linear_widths: tuple[int, ...] = lab.sizes(256, 512, least=2, points=2, help="d_1 of the limits in linear networks")
    linear_seeds: int = lab.seeds(6000, help="initializations of linear networks at each of linear_widths")


Data = dict[str, xr.Dataset]


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Dominance of one draw's P = G Gᵀ, per layer, width and seed, with the bound that the rank sets; more draws of linear networks."""
    target_key = sizes.stream(key, "target")

    def measure(key: Key[Array, ""], width: AnySize) -> dict[str, dict[str, Array]]:
        params, gradient = problem(key, width, target_key)
        results = {}
        for layer, g in gradient(params).items():
            p = gram(g)
            results[layer] = {
                "ratio": spectral.dominance_ratio(p, rows(layer, width)),
                "energy": spectral.off_diagonal_energy(p),
                "bound": dominance_theory.off_diagonal_energy_bound(p, rank(layer)),
            }
        return results

    def linear(key: Key[Array, ""], width: AnySize) -> dict[str, Array]:
        params, gradient = problem(key, width, target_key)
        gradients = gradient(params)
        return {
            layer: spectral.dominance_ratio(gram(gradients[layer]), rows(layer, width))
            for layer in ("linear_hidden", "linear_output")
        }

    layers, wide = ({"width": sweep.widths(*widths)} for widths in (config.widths, config.linear_widths))
    return {
        "layers": sweep.run(measure, layers, seeds=config.seeds, key=sizes.stream(key, "weights")),
        "linear": sweep.run(linear, wide, seeds=config.linear_seeds, key=sizes.stream(key, "linear weights")),
    }


def expected_ratios(config: Config, widths: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Mean |off-diagonal| over mean diagonal of E[G Gᵀ], by the closed forms, per layer and width."""
    target_key = sizes.stream(jax.random.key(config.seed), "target")
    symmetric = np.asarray(low_rank_target(jax.random.fold_in(target_key, 0), D_OUT, D_OUT // 2), float)
    linear = np.asarray(sign_target(jax.random.fold_in(target_key, 1), D_OUT, D_IN), float)
    with jax.enable_x64(True):
        width = np.asarray(widths, float)
        norm_squared = np.sum(linear**2)
        output = [linear_theory.expected_outer_product((D_IN, w, D_OUT), jax.numpy.asarray(linear), 2) for w in widths]
        relu_diagonal = relu_theory.diagonal_1(D_IN, width, D_OUT, norm_squared)
        ratios = {
            "factorization": spectral.dominance_ratio(
                factorization_theory.expected_outer_product(jax.numpy.asarray(symmetric), width)
            ),
            "linear_hidden": np.zeros(len(widths)),
            "linear_output": spectral.dominance_ratio(jax.numpy.stack(output)),
            "relu_hidden": relu_theory.off_diagonal_1(D_IN, D_OUT) / relu_diagonal,
            "relu_output": spectral.dominance_ratio(
                relu_theory.expected_outer_product_2(jax.numpy.asarray(linear), width)
            ),
        }
        return {layer: np.asarray(ratio) for layer, ratio in ratios.items()}


def _vanishes(layer: str) -> lab.Statement:
    other = "relu_hidden" if layer == "factorization" else "factorization"

    @lab.statement(
        ("section-4-draw", "section-4-w1-ratio") if layer == "relu_hidden" else "section-4-draw",
        f"{LAYERS[layer]}: P = GGᵀ of one draw becomes diagonal as the width grows.",
        name=f"{layer.replace('_', '-')}-draw-vanishes",
        controls={f"{LAYERS[other]}, in its place": lab.replacing(f"{layer}.ratio", f"{other}.ratio", of="layers")},
        holds=layer == "factorization",
    )
    def draw_vanishes(config: Config, data: Data) -> lab.Relation:
        return lab.vanishes(data["layers"][f"{layer}.ratio"], "width")

    return draw_vanishes


@lab.statement(
    "section-4-draw",
    "Matrix factorization: the ratio of one draw falls as k^(-1/2), the fluctuation of a Wishart matrix, not as the expectation's 1/k.",
    corrected=True,
    rivals={"1/k, as in expectation": -1.0, "no fall": 0.0},
)
def factorization_draw_rate(config: Config, data: Data) -> lab.Relation:
    """At large k, G Gᵀ is k³ (I + 3 X/√k) with X the fluctuation of U Uᵀ."""
    return lab.scales_as(data["layers"]["factorization.ratio"], "width", -0.5)


@lab.statement(
    "section-4-draw",
    "Linear network, W₁: the mean ratio of one draw tends to (1/√π) h(d₀) h(d₂) Γ((d₀+d₂+1)/2)/Γ((d₀+d₂)/2), h(d) = Γ((d+1)/2)/Γ(d/2+1).",
    corrected=True,
    rivals={
        "a flat spectrum of Z Zᵀ": lambda config, data: float(linear_theory.one_draw_ratio_output(D_OUT)),
        "the limit of W₂": lambda config, data: float(linear_theory.one_draw_ratio_output(D_IN)),
        "a root mean square": float(np.sqrt((D_IN + D_OUT + 1) / (D_IN * D_OUT))),
        "one input more": lambda config, data: float(linear_theory.one_draw_ratio_hidden(D_IN + 1, D_OUT)),
    },
)
def linear_hidden_limit(config: Config, data: Data) -> lab.Relation:
    """In the limit of large widths, at fixed numbers of inputs and outputs."""
    return _limit(data, "linear_hidden", float(linear_theory.one_draw_ratio_hidden(D_IN, D_OUT)))


@lab.statement(
    "section-4-draw",
    "Linear network, W₂: the mean ratio of one draw tends to Γ((d₀+1)/2)/(√π Γ(d₀/2+1)), whatever the number of outputs.",
    corrected=True,
    rivals={
        "outputs in the place of inputs": lambda config, data: float(linear_theory.one_draw_ratio_output(D_OUT)),
        "√(2/(π d₀)), its leading order": float(np.sqrt(2 / (np.pi * D_IN))),
        "a root mean square, 1/√d₀": float(1 / np.sqrt(D_IN)),
        "one input more": lambda config, data: float(linear_theory.one_draw_ratio_output(D_IN + 1)),
    },
)
def linear_output_limit(config: Config, data: Data) -> lab.Relation:
    """In the limit of large widths, at a fixed number of inputs."""
    return _limit(data, "linear_output", float(linear_theory.one_draw_ratio_output(D_IN)))


def _limit(data: Data, layer: str, form: float) -> lab.Relation:
    return lab.equals(at_infinity(data["linear"][layer], "width").rename("ratio at infinite width"), form)


def _rank_bound(layer: str) -> lab.Statement:
    @lab.statement(
        ("section-4-draw", "section-4-w1-ratio") if layer == "relu_hidden" else "section-4-draw",
        f"{LAYERS[layer]}: in every draw the diagonal entries hold at most rank Σ P_aa²/(tr P)² of ‖P‖_F².",
        name=f"{layer.replace('_', '-')}-rank-bound",
        corrected=True,
        controls={
            "the factorization, which becomes diagonal": lab.replacing(
                f"{layer}.energy", "factorization.energy", of="layers"
            )
        },
    )
    def bound(config: Config, data: Data) -> lab.Relation:
        # Both sides as shares on the diagonal, which go to zero with the width: as shares off it all of them would be near 1.
        energy, least = data["layers"][f"{layer}.energy"], data["layers"][f"{layer}.bound"]
        return lab.always(1 - energy, 1 - least, slack=ROOM, rounding=ROUNDING)

    return bound


def tables(config: Config, data: Data) -> list[lab.Table]:
    """The ratio of the expectation and of one draw at each width."""
    expected = expected_ratios(config, config.widths)
    rows_ = []
    for layer, label in LAYERS.items():
        mean, _ = sweep.mean_and_stderr(data["layers"][f"{layer}.ratio"])
        energy, _ = sweep.mean_and_stderr(data["layers"][f"{layer}.energy"])
        fit = sweep.fit_power_law(data["layers"][f"{layer}.ratio"], "width")
        rows_.append((label, "expectation", *(f"{r:.3g}" for r in expected[layer]), _far_slope(config, layer)))
        rows_.append(
            (
                "",
                "one draw",
                *(f"{r:.3g}" for r in mean.values),
                f"{fit.local_exponents[-1]:.2f} ± {4 * fit.local_stderrs[-1]:.2f}",
            )
        )
        rows_.append(("", "one draw, off-diagonal share of ‖P‖_F²", *(f"{e:.3g}" for e in energy.values), ""))
    header = ("layer", "", *map(str, config.widths), "exponent at the end")
    return [lab.Table("Mean |off-diagonal| / mean diagonal of G Gᵀ at width …", header, tuple(rows_))]


def _far_slope(config: Config, layer: str) -> str:
    ratios = expected_ratios(config, (2**15, 2**16))[layer]
    return f"{np.log2(ratios[1] / ratios[0]):.2f}" if np.all(ratios > 0) else "zero"


def figure(config: Config, data: Data) -> Figure:
    """Left: the expectation, by closed form. Right: one draw."""
    drawn = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = drawn.subplots(1, 2, sharey=True)
    expected = expected_ratios(config, config.widths)
    for index, (layer, label) in enumerate(LAYERS.items()):
        if np.all(expected[layer] > 0):
            left.plot(config.widths, expected[layer], "o-", color=f"C{index}", linewidth=1.2, label=label)
        else:
            left.plot([], [], color=f"C{index}", label=f"{label}: zero")
        draw_sweep(right, data["layers"][f"{layer}.ratio"], "width", label=label, color=f"C{index}", line=True)
    left.set_xscale("log", base=2)
    left.set_xticks(config.widths, [str(w) for w in config.widths])
    left.set_yscale("log")
    left.set_title("the expectation E[GGᵀ] (closed form)")
    right.set_title("one draw of GGᵀ (mean over draws of the ratio)")
    left.set_ylabel("mean |off-diagonal| / mean diagonal")
    for axes in (left, right):
        axes.set_xlabel("width")
        axes.minorticks_off()
        axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "dominance",
    ledger("outer-product"),
    title="Diagonal dominance of G Gᵀ: in expectation, and in the draw that a step uses",
    summary="All expectations are diagonal at large width, as the paper proves. One draw is another matter. In matrix factorization it "
    "becomes diagonal too, but as k^(-1/2). In the other four layers the ratio stays where it is: a hidden layer's gradient has "
    "bounded rank, so most of ‖GGᵀ‖_F² must sit off the diagonal, and an output layer's rows combine as many directions as there are "
    "inputs. In linear networks both limits have closed forms. What vanishes in the expectation are signs, not sizes.",
    config=Config,
    measure=run,
    statements=(
        *map(_vanishes, LAYERS),
        factorization_draw_rate,
        linear_hidden_limit,
        linear_output_limit,
        *map(_rank_bound, GROWING_ROWS),
    ),
    scales={
        "smoke": {"widths": (8, 16, 32, 64, 128), "seeds": 100, "linear_widths": (32, 64), "linear_seeds": 200},
        "paper": {"widths": (16, 32, 64, 128, 256, 512, 1024), "seeds": 4000, "linear_seeds": 40_000},
    },
    figure=figure,
    tables=tables,
)
