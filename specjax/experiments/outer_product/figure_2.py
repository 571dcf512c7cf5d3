"""Figure 2: E[G Gᵀ] of the two-layer ReLU network by each of its sizes, exactly and by autodiff.

The target has entries ±3 instead of the paper's N(0, 9): the same orders, but ‖Φ‖_F² = 9 d₀ d₂ at
every size, so that the slopes in d₀ and d₂ are not bent by the noise of one target. Fixed sizes are
the paper's; d₀ = 25 is odd, so that no two rows of Φ are orthogonal when d₂ is swept, and ĉ is
defined.
"""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import fits, lab, sizes, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product import statistics
from specjax.experiments.outer_product.statistics import PARTS, QUANTITIES, ROWS, THEOREM
from specjax.lab.drawing import COLORS, draw_sweep
from specjax.models import relu_network
from specjax.models.targets import sign_target
from specjax.sizes import AnySize
from specjax.theory import relu_network as theory

BASE = {"d0": 25, "d1": 20, "d2": 12}
NAMES = {"d0": "d₀", "d1": "d₁", "d2": "d₂"}
SCALE = 3.0

Data = dict[str, xr.Dataset]
Rival = Callable[["Config", Data], xr.DataArray]
states = lab.Statements()


class Config(statistics.InHalves):
    """Sizes of the three sweeps; a size that is not swept is the paper's."""

    d0s: tuple[int, ...] = lab.config.sizes(6, 12, 25, 50, 100, points=5, help="input dimensions")
    d1s: tuple[int, ...] = lab.config.sizes(
        10, 20, 40, 80, 160, least=2, points=5, help="hidden units"
    )
    d2s: tuple[int, ...] = lab.config.sizes(
        3, 6, 12, 24, 48, least=2, points=5, help="output dimensions"
    )
    seeds: int = lab.config.seeds(4000, help="initializations of the exact gradient at every size")
    sampled_seeds: int = lab.config.seeds(250, help="initializations of autodiff at every size")
    samples: int = lab.config.integer(
        50,
        least=2,
        most=lab.config.MOST_COUNT,
        help="inputs x per initialization of autodiff, even",
    )

    def axes(self) -> dict[str, tuple[int, ...]]:
        """The swept sizes by name."""
        return {"d0": self.d0s, "d1": self.d1s, "d2": self.d2s}

    def points(self) -> dict[str, tuple[int, int, int, float]]:
        """Every point of the three sweeps, by its label."""
        return {
            f"{NAMES[dim]} = {size}": point(dim, size)
            for dim, axis in self.axes().items()
            for size in axis
        }


def point(dim: str, size: int) -> tuple[int, int, int, float]:
    """d₀, d₁, d₂ and ‖Φ‖_F² if all sizes but one are the paper's."""
    d0, d1, d2 = (BASE | {dim: size}).values()
    return d0, d1, d2, SCALE**2 * d0 * d2


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Three exact sweeps of the four numbers and tr(H²), and three by autodiff, with nested Φ."""
    target_key = sizes.stream(key, "target")

    def exact(key: Key[Array, ""], d0: AnySize, d1: AnySize, d2: AnySize) -> dict[str, Array]:
        target = sign_target(target_key, d2, d0, SCALE)
        params = relu_network.init(key, d0, d1, d2)
        found = statistics.rows_of(
            relu_network.symmetrized_outer_products(params, target), target, d1, d2
        )
        return found | {"alpha": jnp.sum(relu_network.hidden_gram(params.w1) ** 2)}

    def sampled(key: Key[Array, ""], d0: AnySize, d1: AnySize, d2: AnySize) -> dict[str, Array]:
        target = sign_target(target_key, d2, d0, SCALE)
        return statistics.autodiff_deviations(key, target, config.samples, d0, d1, d2)["halves"]

    data = {}
    for dim, points in config.axes().items():
        fixed: dict[str, Any] = {name: size for name, size in BASE.items() if name != dim}
        for name, measure, seeds in (
            ("exact", exact, config.seeds),
            ("sampled", sampled, config.sampled_seeds),
        ):
            stream = sizes.stream(key, f"{name} over {dim}")
            over = {dim: sweep.widths(*points)}
            data[f"{name}-{dim}"] = sweep.run(
                partial(measure, **fixed), over, num_seeds=seeds, key=stream
            )
    return data


def measured(config: Config, data: Data, name: str, rows: list[str] = ROWS) -> xr.DataArray:
    """The four numbers, or others, at every point of the three sweeps, along the dimension "at"."""
    parts = [
        data[f"{name}-{dim}"][rows].rename({dim: "at"}).to_dataarray("row", name) for dim in BASE
    ]
    return xr.concat(parts, "at").assign_coords(at=list(config.points()))


def evaluate_points(config: Config, form: Callable[..., xr.DataArray | float]) -> xr.DataArray:
    """`form` at the same points."""
    points = config.points()
    return xr.concat([xr.DataArray(form(*each)) for each in points.values()], "at").assign_coords(
        at=list(points)
    )


def expected(config: Config) -> xr.DataArray:
    return evaluate_points(config, statistics.closed_forms)


def without(part: Callable[..., xr.DataArray]) -> Rival:
    return lambda config, data: (expected(config) - evaluate_points(config, part)).sel(row=THEOREM)


@states(
    ("theorem-3", "eq-39", "figure-2-left", "figure-2-right"),
    rivals={name: without(part) for name, part in PARTS.items()},
)
def closed_form(config: Config, data: Data) -> lab.Relation:
    """Over all three sizes both rows of G₂ and the diagonal of G₁ are those of Theorem 3."""
    return lab.equals(
        measured(config, data, "exact").sel(row=THEOREM), expected(config).sel(row=THEOREM)
    )


@states(
    ("eq-40", "figure-2-right"),
    corrected=True,
    rivals={
        "d₀ d₂ κ₂": lambda config, data: evaluate_points(
            config, lambda d0, d1, d2, _: float(theory.off_diagonal_1_as_printed(d0, d2))
        )
    },
)
def off_diagonal(config: Config, data: Data) -> lab.Relation:
    """Over all three sizes the off-diagonal of E[G₁G₁ᵀ] is d₀ d₂/4π."""
    both = measured(config, data, "exact"), expected(config)
    return lab.equals(*(each.sel(row="g1_off_diagonal", drop=True) for each in both))


def alpha_form(change: Callable[[int, int], float]) -> Rival:
    return lambda config, data: evaluate_points(
        config, lambda d0, d1, *_: float(theory.alpha(d0, d1)) + change(d0, d1)
    )


def pair_term(d0: int) -> float:
    """The part of α from two different units."""
    return (float(theory.alpha(d0, 2)) - d0 * (d0 + 2) / 2) / 2


@states(
    "eq-38",
    corrected=True,
    rivals={
        "without the norms of single units": alpha_form(lambda d0, d1: -d1 * d0 * (d0 + 2) / 4),
        "d₀² for d₀(d₀ + 2)": alpha_form(lambda d0, d1: -d1 * d0 / 2),
        "d₁² for d₁(d₁ - 1)": alpha_form(lambda d0, d1: d1 * pair_term(d0)),
        "without the pairs": alpha_form(lambda d0, d1: -d1 * (d1 - 1) * pair_term(d0)),
    },
)
def alpha(config: Config, data: Data) -> lab.Relation:
    """Over all three sizes α = E[tr H²] is d₁ d₀(d₀ + 2)/4 + d₁(d₁ - 1) d₀² E[g(θ)²]."""
    traces = measured(config, data, "exact", ["alpha"]).isel(row=0, drop=True)
    return lab.equals(traces.rename("tr(H²)"), alpha_form(lambda d0, d1: 0.0)(config, data))


def bias_in(row: str) -> Rival:
    def bias(config: Config, data: Data) -> xr.DataArray:
        added = evaluate_points(config, partial(statistics.batch_bias, samples=config.samples))
        return added.where(added["row"] == row, 0.0)

    return bias


@states(
    ("appendix-c7", "figure-2-left", "figure-2-right"),
    "Over all three sizes the product of the gradients of two half batches by autodiff, without"
    " kernel formulas, has the mean of the exact gradient's.",
    corrected=True,
    rivals={
        f"the bias of a batch in the {label}": bias_in(row) for row, label in QUANTITIES.items()
    },
)
def autodiff(config: Config, data: Data) -> lab.Relation:
    # On the same weights; the paper's average of batches has a bias, which `table-c7` measures.
    return lab.equals(measured(config, data, "sampled").rename("half × half less exact"), 0.0)


@states(
    "figure-2-sublinear",
    controls={
        "what is linear, d₁ times the off-diagonal": lab.controls.replacing(
            "g1_diagonal", lambda found: found["g1_off_diagonal"] * found["d1"], of="exact-d1"
        )
    },
)
def sublinear(config: Config, data: Data) -> lab.Relation:
    """The diagonal of G₁ over d₁ falls from each d₁ to the next: it grows less than linearly."""
    each = (data["exact-d1"]["g1_diagonal"] / data["exact-d1"]["d1"]).rename("diagonal / d₁")
    return lab.ahead(*statistics.neighbours(each, "d1"), least=0)


def order(
    quantity: str, label: str, dim: str, exponent: int, cites: tuple[str, ...], pure: bool = False
) -> None:
    """State an order; with `pure` the closed form is a power of the size, without further terms."""

    @states(
        cites,
        f"The {label} grows as {NAMES[dim]} to the power {exponent}.",
        name=f"{quantity.replace('_', '-')}-{dim}",
        # The least difference that another order makes.
        rivals={"half a power more": exponent + 0.5, "half a power less": exponent - 0.5},
    )
    def grows(config: Config, data: Data) -> lab.Relation:
        return lab.scales_as(
            data[f"exact-{dim}"][quantity], dim, exponent, fit="power law" if pure else "asymptotic"
        )


# Exponents in d₀, d₁ and d₂ by Theorem 3, of the coefficient ĉ = d₁/4 for the off-diagonal of G₂;
# and where the powers are pure.
for quantity, exponents, pure, cites in (
    ("g2_diagonal", (2, 2, 0), ["d2"], ("section-4-table-w2",)),
    ("g2_coefficient", (0, 1, 0), list(BASE), ("section-4-table-w2", "section-4-w2-ratio")),
    ("g1_diagonal", (1, 1, 2), [], ("section-4-table-w1", "section-4-w1-ratio")),
    (
        "g1_off_diagonal",
        (1, 0, 1),
        list(BASE),
        ("section-4-table-w1", "section-4-w1-ratio", "appendix-c8-symmetry"),
    ),
):
    for dim, exponent in zip(BASE, exponents, strict=True):
        # The paper's width is d₁.
        rows = ("figure-2-slopes", *cites, *(["section-4-expectation"] if dim == "d1" else []))
        order(quantity, QUANTITIES[quantity], dim, exponent, rows, dim in pure)
for dim in ("d0", "d1"):
    order(
        "alpha", "target-free part α of the diagonal of G₂", dim, 2, ("eq-38", "section-4-w2-ratio")
    )


def tables(config: Config, data: Data) -> list[lab.Table]:
    """Tabulate local exponents, which approach their orders, and the closed form's far out."""
    results = []
    for dim, points in config.axes().items():
        header = ("", *(f"{low}→{high}" for low, high in pairwise(points)), "closed form, 2¹²→2¹³")
        far = xr.ufuncs.log2(
            statistics.closed_forms(*point(dim, 2**13))
            / statistics.closed_forms(*point(dim, 2**12))
        )
        lines = []
        for quantity, label in QUANTITIES.items():
            local = fits.fit_power_law(data[f"exact-{dim}"][quantity], dim)
            cells = (
                f"{b:.2f} ± {e:.2f}"
                for b, e in zip(local.local_exponents, local.local_stderrs, strict=True)
            )
            lines.append((label, *cells, f"{float(far.sel(row=quantity)):.3f}"))
        results.append(
            lab.Table(
                f"Local exponents in {NAMES[dim]}, ± one standard error", header, tuple(lines)
            )
        )
    return results


def figure(config: Config, data: Data) -> Figure:
    """Plot four of the paper's panels: rows vary d₀ and d₁; left G₂, right G₁, by each method."""
    drawn = Figure(figsize=(10, 7), layout="constrained")
    panels = drawn.subplots(2, 2)
    # The two others vary d₂, on which G₂ does not depend.
    for row, (dim, points) in zip(panels, config.axes().items(), strict=False):
        forms = expected(config).sel(at=[f"{NAMES[dim]} = {size}" for size in points])
        for axes, pair in zip(row, (ROWS[:2], ROWS[2:]), strict=True):
            for quantity, color in zip(pair, COLORS, strict=False):
                exact, deviation = (
                    data[f"{name}-{dim}"][quantity] for name in ("exact", "sampled")
                )
                label, at = QUANTITIES[quantity], exact.mean("seed")
                axes.plot(points, forms.sel(row=quantity), color=color, linewidth=1)
                draw_sweep(axes, exact, dim, label=label, color=color)
                draw_sweep(
                    axes, at + deviation, dim, label=f"{label}, autodiff", color=color, marker="x"
                )
            axes.set(xlabel=NAMES[dim], ylabel="entry of E[GGᵀ], or ĉ")
    for axes, title in zip(
        panels[0], ("G₂ (lines: closed form)", "G₁ (lines: closed form)"), strict=True
    ):
        axes.set_title(title)
        # In the panels of d₀ the curves are far apart or rise: the legend stands under the titles,
        # off the data.
        axes.legend(fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.08), ncols=2)
    return drawn


EXPERIMENT = lab.Experiment(
    "figure-2",
    ledger("outer-product"),
    title="Orders of E[G Gᵀ] in a two-layer ReLU network",
    summary=(
        "All closed forms hold against each size, d₀ d₂/4π off the diagonal of G₁ among them, and"
        " the orders with them; the local exponent in d₁ of the diagonal of G₁ rises slowly to 1."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 2800, "sampled_seeds": 175},
        "smoke": {
            "d0s": (4, 6, 8, 12, 16),
            "d1s": (8, 16, 32, 64, 128),
            "d2s": (4, 6, 8, 12, 16),
            "seeds": 200,
            "sampled_seeds": 50,
            "samples": 10,
        },
        "paper": {
            "d0s": (6, 12, 25, 50, 100, 200),
            "seeds": 200_000,
            "sampled_seeds": 20_000,
            "samples": 400,
        },
    },
    figure=figure,
    tables=tables,
)
