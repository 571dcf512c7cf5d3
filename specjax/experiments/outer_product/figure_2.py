"""Figure 2: E[G Gᵀ] of the two-layer ReLU network against each of its three sizes, by the exact gradient and by autodiff.

The target has entries ±3 where the paper draws N(0, 9): the same orders, but ‖Φ‖_F² = 9 d₀ d₂ at every size, so that the
slopes in d₀ and d₂ are not bent by the noise of one target. Fixed sizes are the paper's; d₀ = 25 is odd, so that no two rows of Φ are
orthogonal where d₂ is swept, and ĉ is defined.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.statistics import (
    QUANTITIES,
    ROWS,
    autodiff_deviations,
    batch_bias,
    by_row,
    closed_forms,
    controlled_relu_statistics,
)
from specjax.lab.drawing import COLORS
from specjax.models import relu_network
from specjax.models.targets import sign_target
from specjax.sizes import AnySize
from specjax.theory import relu_network as theory

BASE = {"d0": 25, "d1": 20, "d2": 12}
NAMES = {"d0": "d₀", "d1": "d₁", "d2": "d₂"}
SCALE = 3.0
# Exponents in d₀, d₁ and d₂ by Theorem 3, of the coefficient ĉ = d₁/4 for the off-diagonal of G₂.
EXPONENTS = {
    "g2_diagonal": (2, 2, 0),
    "g2_coefficient": (0, 1, 0),
    "g1_diagonal": (1, 1, 2),
    "g1_off_diagonal": (1, 0, 1),
}
LABELS = {**QUANTITIES, "alpha": "target-free part α of the diagonal of G₂"}
CITED = {
    "g2_diagonal": ("figure-2-slopes", "section-4-table-w2"),
    "g2_coefficient": ("figure-2-slopes", "section-4-table-w2", "section-4-w2-ratio"),
    "g1_diagonal": ("figure-2-slopes", "section-4-table-w1", "section-4-w1-ratio"),
    "g1_off_diagonal": ("figure-2-slopes", "section-4-table-w1", "section-4-w1-ratio", "appendix-c8-symmetry"),
    "alpha": ("eq-38", "section-4-w2-ratio"),
}
# Where the closed form is a pure power of the size, so that a subleading term would only cost precision.
PURE_POWERS = {("g2_diagonal", "d2"), *((q, dim) for q in ("g2_coefficient", "g1_off_diagonal") for dim in BASE)}
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes of the three sweeps; a size that is not swept is the paper's."""

    d0s: tuple[int, ...] = lab.sizes(6, 12, 25, 50, 100, points=5, help="input dimensions")
    d1s: tuple[int, ...] = lab.sizes(10, 20, 40, 80, 160, least=2, points=5, help="hidden units")
    d2s: tuple[int, ...] = lab.sizes(3, 6, 12, 24, 48, least=2, points=5, help="output dimensions")
    seeds: int = lab.seeds(8000, help="initializations of the exact gradient at every size")
    sampled_seeds: int = lab.seeds(500, help="initializations of autodiff at every size")
    samples: int = lab.integer(50, least=2, help="inputs x per initialization of autodiff, even")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples % 2:
            raise ValueError(f"samples must be even, for two half batches, got {self.samples}.")

    def axes(self) -> dict[str, tuple[int, ...]]:
        """The swept sizes by name."""
        return {"d0": self.d0s, "d1": self.d1s, "d2": self.d2s}


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Three sweeps of the four numbers and tr(H²), and three of autodiff; Φ at a smaller size is the leading block of that at a larger."""
    target_key = sizes.stream(key, "target")

    def exact(key: Key[Array, ""], d0: AnySize, d1: AnySize, d2: AnySize) -> dict[str, Array]:
        target = sign_target(target_key, d2, d0, SCALE)
        params = relu_network.init(key, d0, d1, d2)
        statistics = controlled_relu_statistics(params, relu_network.gradient(params, target), target, d1, d2)
        return {**statistics, "alpha": jnp.sum(relu_network.hidden_gram(params.w1) ** 2)}

    def sampled(key: Key[Array, ""], d0: AnySize, d1: AnySize, d2: AnySize) -> dict[str, Array]:
        target = sign_target(target_key, d2, d0, SCALE)
        params = relu_network.init(sizes.stream(key, "weights"), d0, d1, d2)
        x = sizes.normal(sizes.stream(key, "inputs"), (config.samples, d0))
        return autodiff_deviations(params, target, x, d1, d2)["halves"]

    data = {}
    for dim, points in config.axes().items():
        fixed: dict[str, Any] = {name: size for name, size in BASE.items() if name != dim}
        for name, measure, seeds in (("exact", exact, config.seeds), ("sampled", sampled, config.sampled_seeds)):
            data[f"{name}-{dim}"] = sweep.run(
                partial(measure, **fixed),
                {dim: sweep.widths(*points)},
                seeds=seeds,
                key=sizes.stream(key, f"{name} over {dim}"),
            )
    return data


def at_all_sizes(data: Data, name: str, rows: list[str] = ROWS) -> xr.DataArray:
    """The four numbers, or others, at every point of the three sweeps, which are the dimension "at"."""
    parts = []
    for dim in BASE:
        swept = data[f"{name}-{dim}"][rows]
        labels = [f"{NAMES[dim]} = {size}" for size in swept[dim].values]
        parts.append(swept.rename({dim: "at"}).assign_coords(at=labels).to_dataarray("row", name))
    return xr.concat(parts, "at")


def at_each_size(config: Config, form: Callable[[int, int, int], xr.DataArray]) -> xr.DataArray:
    """`form` of d₀, d₁ and d₂ at the same points."""
    parts, labels = [], []
    for dim, points in config.axes().items():
        parts += [form(*{**BASE, dim: size}.values()) for size in points]
        labels += [f"{NAMES[dim]} = {size}" for size in points]
    return xr.concat(parts, "at").assign_coords(at=labels)


def norm_squared(d0: int, d2: int) -> float:
    """‖Φ‖_F²."""
    return SCALE**2 * d0 * d2


def expected(d0: int, d1: int, d2: int) -> xr.DataArray:
    """The closed forms."""
    return closed_forms(d0, d1, d2, norm_squared(d0, d2))


def _rival(change: Callable[[int, int, int], xr.DataArray], *rows: str) -> Callable[[Config, Data], xr.DataArray]:
    def changed(d0: int, d1: int, d2: int) -> xr.DataArray:
        return (expected(d0, d1, d2) + change(d0, d1, d2)).sel(row=list(rows))

    return lambda config, data: at_each_size(config, changed)


_THEOREM = ROWS[:3]


@lab.statement(
    ("theorem-3", "eq-39", "figure-2-left", "figure-2-right"),
    "Over all three sizes both rows of G₂ and the diagonal of G₁ are those of Theorem 3.",
    rivals={
        "G₂ without Φ": _rival(lambda d0, d1, d2: by_row(-d1 / 4 * SCALE**2 * d0, 0, 0, 0), *_THEOREM),
        "G₂ without the norms of single units": _rival(
            lambda d0, d1, d2: by_row(-d1 * d0 * (d0 + 2) / 4, 0, 0, 0), *_THEOREM
        ),
        "one hidden unit less in ĉ": _rival(lambda d0, d1, d2: by_row(0, -1 / 4, 0, 0), *_THEOREM),
        "G₁ without Φ": _rival(lambda d0, d1, d2: by_row(0, 0, -norm_squared(d0, d2) / 4, 0), *_THEOREM),
        "G₁ without d₀ d₂²/4": _rival(lambda d0, d1, d2: by_row(0, 0, -d0 * d2**2 / 4, 0), *_THEOREM),
        "G₁ without d₀ d₂/2": _rival(lambda d0, d1, d2: by_row(0, 0, -d0 * d2 / 2, 0), *_THEOREM),
        "G₁ with d₁ κ₁ for (d₁ - 1) κ₁": _rival(
            lambda d0, d1, d2: by_row(0, 0, d0 * d2 * float(theory.kappa_1(d0)), 0), *_THEOREM
        ),
    },
)
def closed_form(config: Config, data: Data) -> lab.Relation:
    """By the gradient that is exact in x."""
    form = at_each_size(config, expected).sel(row=_THEOREM)
    return lab.equals(at_all_sizes(data, "exact").sel(row=_THEOREM), form)


@lab.statement(
    ("eq-40", "figure-2-right"),
    "Over all three sizes the off-diagonal of E[G₁G₁ᵀ] is d₀ d₂/4π.",
    corrected=True,
    rivals={
        "d₀ d₂ κ₂": lambda config, data: at_each_size(
            config, lambda d0, d1, d2: xr.DataArray(float(theory.off_diagonal_1_as_printed(d0, d2)))
        )
    },
)
def off_diagonal(config: Config, data: Data) -> lab.Relation:
    """The two differ most at the smallest d₀."""
    form = at_each_size(config, expected).sel(row="g1_off_diagonal", drop=True)
    return lab.equals(at_all_sizes(data, "exact").sel(row="g1_off_diagonal", drop=True), form)


def _of_alpha(change: Callable[[int, int], float]) -> Callable[[Config, Data], xr.DataArray]:
    def form(d0: int, d1: int, d2: int) -> xr.DataArray:
        return xr.DataArray(float(theory.alpha(d0, d1)) + change(d0, d1))

    return lambda config, data: at_each_size(config, form)


def _pairs(d0: int) -> float:
    """What two different units add to α."""
    return (float(theory.alpha(d0, 2)) - d0 * (d0 + 2) / 2) / 2


@lab.statement(
    "eq-38",
    "Over all three sizes α = E[tr H²] is d₁ d₀(d₀ + 2)/4 + d₁(d₁ - 1) d₀² E[g(θ)²].",
    corrected=True,
    rivals={
        "without the norms of single units": _of_alpha(lambda d0, d1: -d1 * d0 * (d0 + 2) / 4),
        "d₀² for d₀(d₀ + 2)": _of_alpha(lambda d0, d1: -d1 * d0 / 2),
        "d₁² for d₁(d₁ - 1)": _of_alpha(lambda d0, d1: d1 * _pairs(d0)),
        "without the pairs": _of_alpha(lambda d0, d1: -d1 * (d1 - 1) * _pairs(d0)),
    },
)
def alpha(config: Config, data: Data) -> lab.Relation:
    """The target-free part of the diagonal of G₂, in draws of W₁ alone."""
    draws = at_all_sizes(data, "exact", ["alpha"]).isel(row=0, drop=True)
    return lab.equals(draws.rename("tr(H²)"), _of_alpha(lambda d0, d1: 0.0)(config, data))


def _bias_in(row: str) -> Callable[[Config, Data], xr.DataArray]:
    def bias(config: Config, d0: int, d1: int, d2: int) -> xr.DataArray:
        added = batch_bias(d0, d1, d2, norm_squared(d0, d2), config.samples)
        return added.where(added["row"] == row, 0.0)

    return lambda config, data: at_each_size(config, partial(bias, config))


@lab.statement(
    ("appendix-c7", "figure-2-left", "figure-2-right"),
    "Over all three sizes the product of the gradients of two half batches by autodiff, without kernel formulas, has the mean of the exact "
    "gradient's.",
    corrected=True,
    rivals={f"the bias of a batch in the {label}": _bias_in(row) for row, label in QUANTITIES.items()},
)
def autodiff(config: Config, data: Data) -> lab.Relation:
    """On the same weights; the paper's own average of batches has a bias, which `table-c7` measures."""
    return lab.equals(at_all_sizes(data, "sampled").rename("half × half less exact"), 0.0)


@lab.statement(
    "figure-2-sublinear",
    "The diagonal of G₁ over d₁ falls from each d₁ to the next: it grows less than linearly.",
    controls={
        "what is linear, d₁ times the off-diagonal": lambda config, data: {
            **data,
            "exact-d1": data["exact-d1"].assign(
                g1_diagonal=data["exact-d1"]["g1_off_diagonal"] * data["exact-d1"]["d1"]
            ),
        }
    },
)
def sublinear(config: Config, data: Data) -> lab.Relation:
    """A local exponent below 1, without a logarithm."""
    each = data["exact-d1"]["g1_diagonal"] / data["exact-d1"]["d1"]
    steps = [f"{low} to {high}" for low, high in pairwise(config.d1s)]
    first, second = (
        each.isel(d1=part).assign_coords(d1=steps).rename(name)
        for part, name in ((slice(None, -1), "diagonal / d₁"), (slice(1, None), "that at the next d₁"))
    )
    return lab.ahead(first, second, least=0)


def _order(quantity: str, dim: str, exponent: int) -> lab.Statement:
    @lab.statement(
        # It is d₁ that the paper means by the width.
        (*CITED[quantity], "section-4-expectation") if dim == "d1" and quantity in QUANTITIES else CITED[quantity],
        f"The {LABELS[quantity]} grows as {NAMES[dim]} to the power {exponent}.",
        name=f"{quantity.replace('_', '-')}-{dim}",
        # The least that could be taken for another order.
        rivals={"half a power more": exponent + 0.5, "half a power less": exponent - 0.5},
    )
    def order(config: Config, data: Data) -> lab.Relation:
        pure = (quantity, dim) in PURE_POWERS
        return lab.scales_as(data[f"exact-{dim}"][quantity], dim, exponent, fit="power law" if pure else "asymptotic")

    return order


ORDERS = (
    *(
        _order(quantity, dim, exponent)
        for quantity, exponents in EXPONENTS.items()
        for dim, exponent in zip(BASE, exponents, strict=True)
    ),
    *(_order("alpha", dim, 2) for dim in ("d0", "d1")),
)


def tables(config: Config, data: Data) -> list[lab.Table]:
    """Local exponents: how each quantity approaches its order, and where the closed form takes it far out."""
    results = []
    for dim, points in config.axes().items():
        header = ("", *(f"{low}→{high}" for low, high in pairwise(points)), "closed form, 2¹²→2¹³")
        far = xr.ufuncs.log2(expected(**{**BASE, dim: 2**13}) / expected(**{**BASE, dim: 2**12}))
        lines = []
        for quantity, label in QUANTITIES.items():
            local = sweep.fit_power_law(data[f"exact-{dim}"][quantity], dim)
            cells = (f"{b:.2f} ± {e:.2f}" for b, e in zip(local.local_exponents, local.local_stderrs, strict=True))
            lines.append((label, *cells, f"{float(far.sel(row=quantity)):.3f}"))
        results.append(lab.Table(f"Local exponents in {NAMES[dim]}, ± one standard error", header, tuple(lines)))
    return results


def figure(config: Config, data: Data) -> Figure:
    """The paper's six panels: rows vary d₀, d₁, d₂; left G₂, right G₁; by the exact gradient, by autodiff, and the closed form."""
    drawn = Figure(figsize=(10, 11), layout="constrained")
    panels = drawn.subplots(3, 2)
    for row, (dim, points) in zip(panels, config.axes().items(), strict=True):
        forms = xr.concat([expected(**{**BASE, dim: size}) for size in points], dim)
        for axes, pair in zip(row, (ROWS[:2], ROWS[2:]), strict=True):
            for quantity, color in zip(pair, COLORS, strict=False):
                exact, deviation = (data[f"{name}-{dim}"][quantity] for name in ("exact", "sampled"))
                mean, stderr = sweep.mean_and_stderr(exact)
                more, more_stderr = sweep.mean_and_stderr(deviation)
                axes.plot(points, forms.sel(row=quantity), color=color, linewidth=1)
                label = QUANTITIES[quantity]
                axes.errorbar(points, mean, 4 * stderr, fmt="o", color=color, markersize=4, label=label)
                # Means of the exact gradient and of what autodiff differs from it by, each with its own noise.
                noise = 4 * np.hypot(stderr, more_stderr)
                axes.errorbar(points, mean + more, noise, fmt="x", color=color, capsize=3, label=f"{label}, autodiff")
            axes.set(xlabel=NAMES[dim], ylabel="entry of E[GGᵀ], or ĉ", xscale="log", yscale="log")
            axes.set_xticks(points, [str(size) for size in points])
            axes.minorticks_off()
    for axes, title in zip(panels[0], ("G₂ (lines: closed form)", "G₁ (lines: closed form)"), strict=True):
        axes.set_title(title)
        # In the panels of d₀ the curves are far apart or rise: the legend stands under the titles, off the data.
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=2)
    return drawn


EXPERIMENT = lab.Experiment(
    "figure-2",
    ledger("outer-product"),
    title="Orders of E[G Gᵀ] in a two-layer ReLU network",
    summary="Diagonal and off-diagonal of both layers against each size, by the gradient that is exact in the inputs and by autodiff of a "
    "sampled loss. All closed forms hold, d₀ d₂/4π off the diagonal of G₁ among them, and the orders with them. The diagonal of G₁ is far "
    "from its order in d₁ at these sizes: its local exponent rises slowly to 1.",
    config=Config,
    measure=run,
    statements=(closed_form, off_diagonal, alpha, autodiff, sublinear, *ORDERS),
    scales={
        "smoke": {
            "d0s": (4, 6, 8, 12, 16),
            "d1s": (8, 16, 32, 64, 128),
            "d2s": (4, 6, 8, 12, 16),
            "seeds": 200,
            "sampled_seeds": 50,
            "samples": 10,
        },
        "paper": {"d0s": (6, 12, 25, 50, 100, 200), "seeds": 200_000, "sampled_seeds": 20_000, "samples": 400},
    },
    figure=figure,
    tables=tables,
)
