"""Is G Gᵀ diagonal at large width? In expectation and in one draw, for the five weight matrices of the paper's summary.

The paper shows that off the diagonal E[G Gᵀ] is small against the diagonal, and concludes that P = G Gᵀ "becomes diagonal". The
preconditioner of a step is made of one draw, though, and there the off-diagonal entries need not be small: their signs average out.
"""

from collections.abc import Callable

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.layers import D_IN, D_OUT, GROWING_ROWS, LAYERS, problem, rank, rows
from specjax.experiments.outer_product.statistics import gram
from specjax.experiments.plots import draw_closed_form, draw_sweep
from specjax.models.targets import low_rank_target, sign_target
from specjax.sizes import AnySize
from specjax.theory import deep_linear as linear_theory
from specjax.theory import dominance as dominance_theory
from specjax.theory import matrix_factorization as factorization_theory
from specjax.theory import relu_network as relu_theory


class Config(lab.Config):
    """Widths and seeds."""

    widths: tuple[int, ...] = lab.sizes(16, 32, 64, 128, 256, least=2, points=5, help="k, or hidden units d_1")
    seeds: int = lab.seeds(1000, help="initializations at every width")


def run(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Dominance of one draw's P = G Gᵀ, per layer, width and seed, with the bound that the rank sets."""
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

    over = {"width": sweep.widths(*config.widths)}
    return sweep.run(measure, over, seeds=config.seeds, key=sizes.stream(key, "weights"))


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


def _with(layer: str, quantity: str, other: str) -> Callable[[Config, xr.Dataset], xr.Dataset]:
    """Another layer's numbers in the place of a layer's."""
    return lambda config, data: data.assign({f"{layer}.{quantity}": data[f"{other}.{quantity}"]})


def _vanishes(layer: str) -> lab.Statement:
    other = "relu_hidden" if layer == "factorization" else "factorization"

    @lab.statement(
        "section-4-draw",
        f"{LAYERS[layer]}: P = GGᵀ of one draw becomes diagonal as the width grows.",
        name=f"{layer.replace('_', '-')}-draw-vanishes",
        controls={f"{LAYERS[other]}, in its place": _with(layer, "ratio", other)},
        holds=layer == "factorization",
    )
    def draw_vanishes(config: Config, data: xr.Dataset) -> lab.Relation:
        return lab.vanishes(data[f"{layer}.ratio"], "width")

    return draw_vanishes


@lab.statement(
    "section-4-draw",
    "Matrix factorization: the ratio of one draw falls as k^(-1/2), the fluctuation of a Wishart matrix, not as the expectation's 1/k.",
    rivals={"1/k, as in expectation": -1.0, "no fall": 0.0},
)
def factorization_draw_rate(config: Config, data: xr.Dataset) -> lab.Relation:
    """At large k, G Gᵀ is k³ (I + 3 X/√k) with X the fluctuation of U Uᵀ."""
    return lab.scales_as(data["factorization.ratio"], "width", -0.5)


def _rank_bound(layer: str) -> lab.Statement:
    @lab.statement(
        "section-4-draw",
        f"{LAYERS[layer]}: in every draw off-diagonal entries hold at least 1 - rank Σ P_aa²/(tr P)² of ‖P‖_F².",
        name=f"{layer.replace('_', '-')}-rank-bound",
        controls={"the factorization, which becomes diagonal": _with(layer, "energy", "factorization")},
    )
    def bound(config: Config, data: xr.Dataset) -> lab.Relation:
        # At the larger widths the bound is close to 1, which no share can pass; rounding is that of float32 numbers of order 1.
        return lab.always(data[f"{layer}.bound"], data[f"{layer}.energy"], slack=0.1, rounding=1e-5)

    return bound


def tables(config: Config, data: xr.Dataset) -> list[lab.Table]:
    """The ratio of the expectation and of one draw at each width."""
    expected = expected_ratios(config, config.widths)
    rows_ = []
    for layer, label in LAYERS.items():
        mean, _ = sweep.mean_and_stderr(data[f"{layer}.ratio"])
        energy, _ = sweep.mean_and_stderr(data[f"{layer}.energy"])
        fit = sweep.fit_power_law(data[f"{layer}.ratio"], "width")
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


def figure(config: Config, data: xr.Dataset) -> Figure:
    """Left: the expectation, by closed form. Right: one draw."""
    drawn = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = drawn.subplots(1, 2, sharey=True)
    expected = expected_ratios(config, config.widths)
    for index, (layer, label) in enumerate(LAYERS.items()):
        if np.all(expected[layer] > 0):
            draw_closed_form(left, config.widths, expected[layer], color=f"C{index}", label=label, style="o-")
        else:
            left.plot([], [], color=f"C{index}", label=f"{label}: zero")
        draw_sweep(right, data[f"{layer}.ratio"], "width", label=label, color=f"C{index}", line=True)
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
    "bounded rank, so most of ‖GGᵀ‖_F² must sit off the diagonal, and an output layer's is dominated by few directions. What "
    "vanishes in the expectation are signs, not sizes.",
    config=Config,
    measure=run,
    statements=(*map(_vanishes, LAYERS), factorization_draw_rate, *map(_rank_bound, GROWING_ROWS)),
    scales={
        "smoke": {"seeds": 100},
        "paper": {"widths": (16, 32, 64, 128, 256, 512, 1024), "seeds": 4000},
    },
    figure=figure,
    tables=tables,
)
