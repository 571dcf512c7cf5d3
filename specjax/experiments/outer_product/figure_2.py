"""Figure 2: E[G Gᵀ] of the two-layer ReLU network against each of its three sizes, with fitted slopes.

The target has entries ±3 where the paper draws N(0, 9): the same orders, but ‖Φ‖_F² = 9 d₀ d₂ at every size, so that the
slopes in d₀ and d₂ are not bent by the noise of one target.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import jax
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.figure import Figure

from specjax import sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.outer_product.statistics import relu_output_control, relu_statistics
from specjax.experiments.plots import draw_closed_form, draw_sweep, slope_label
from specjax.experiments.validation import (
    check_factor,
    check_off_diagonal,
    check_root_seed,
    check_seeds,
    check_sizes,
)
from specjax.experiments.verdicts import closed_form_check, exponent_check
from specjax.models import relu_network
from specjax.models.targets import sign_target
from specjax.sizes import AnySize
from specjax.sweep import AsymptoticExponent, PowerLawFit
from specjax.theory import relu_network as theory

SizeT = TypeVar("SizeT")

QUANTITIES = ("g2_diagonal", "g2_coefficient", "g1_diagonal", "g1_off_diagonal")
LABELS = {
    "g2_diagonal": "G₂ diagonal",
    "g2_coefficient": "G₂ off-diagonal ĉ",
    "g1_diagonal": "G₁ diagonal",
    "g1_off_diagonal": "G₁ off-diagonal",
}
# Exponents in (d₀, d₁, d₂) by Theorem 3, of the coefficient ĉ = d₁/4 for the off-diagonal of G₂.
EXPONENTS = {
    "g2_diagonal": {"d0": 2, "d1": 2, "d2": 0},
    "g2_coefficient": {"d0": 0, "d1": 1, "d2": 0},
    "g1_diagonal": {"d0": 1, "d1": 1, "d2": 2},
    "g1_off_diagonal": {"d0": 1, "d1": 0, "d2": 1},
}
# Where the closed form is a pure power of the size, so that a subleading term would only cost precision.
PURE_POWERS = {("g2_diagonal", "d2"), *(("g2_coefficient", d) for d in ("d0", "d1", "d2"))} | {
    ("g1_off_diagonal", d) for d in ("d0", "d1", "d2")
}


@dataclass(frozen=True)
class Config:
    """Sizes of the three sweeps; a size that is not swept stays at its base."""

    d0s: tuple[int, ...] = field(default=(6, 12, 25, 50, 100, 200), metadata={"help": "input dimensions"})
    d1s: tuple[int, ...] = field(default=(10, 20, 40, 80, 160), metadata={"help": "hidden units"})
    d2s: tuple[int, ...] = field(default=(3, 6, 12, 24, 48), metadata={"help": "output dimensions"})
    base: tuple[int, ...] = field(default=(25, 20, 12), metadata={"help": "d0, d1 and d2 where they are not swept"})
    seeds: int = field(default=4000, metadata={"help": "initializations at every size"})
    target_scale: float = field(default=3.0, metadata={"help": "absolute value of the entries of Φ"})
    seed: int = field(default=0, metadata={"help": "seed of the weights and the target"})

    def __post_init__(self) -> None:
        if len(self.base) != 3 or min(self.base) < 2:
            raise ValueError(f"base needs three sizes d0, d1, d2 of at least 2, got {self.base}.")
        check_sizes("d0s", self.d0s, least=1, points=5)
        # Off-diagonal entries need two units.
        check_sizes("d1s", self.d1s, least=2, points=5)
        check_sizes("d2s", self.d2s, least=2, points=5)
        check_seeds("seeds", self.seeds)
        check_root_seed(self.seed)
        check_factor("target_scale", self.target_scale)

    def axes(self) -> dict[str, tuple[int, ...]]:
        """The swept sizes by name."""
        return {"d0": self.d0s, "d1": self.d1s, "d2": self.d2s}

    def at(self, dim: str, size: SizeT) -> dict[str, int | SizeT]:
        """All three sizes when `dim` has the given one, an int or an array."""
        return {**dict(zip(("d0", "d1", "d2"), self.base, strict=True)), dim: size}


def run(config: Config) -> Data:
    """Three sweeps of the four quantities; Φ at a smaller size is the leading block of Φ at a larger one."""
    target_key = jax.random.key(config.seed + 1)

    def measure(key: Array, d0: AnySize, d1: AnySize, d2: AnySize) -> dict[str, Array]:
        target = sign_target(target_key, d2, d0, config.target_scale)
        params = relu_network.init(key, d0, d1, d2)
        gradient = relu_network.gradient(params, target)
        statistics = relu_statistics(gradient, target, d1, d2)
        control = relu_output_control(params, gradient, target)
        return {**statistics, "g2_coefficient": statistics["g2_coefficient"] - control}

    largest = {
        name: max(*points, base) for (name, points), base in zip(config.axes().items(), config.base, strict=True)
    }
    phi = np.asarray(sign_target(target_key, largest["d2"], largest["d0"], config.target_scale))
    for dim, points in config.axes().items():
        for at in (config.at(dim, point) for point in points):
            block = phi[: at["d2"], : at["d0"]]
            what = f"ΦΦᵀ of the drawn target at {dim}={at[dim]}"
            check_off_diagonal(block @ block.T, what, "choose another seed or size")

    sweeps = {}
    for dim, points in config.axes().items():
        fixed: dict[str, Any] = {name: size for name, size in config.at(dim, 0).items() if name != dim}
        sweeps[dim] = sweep.run(
            partial(measure, **fixed), {dim: sweep.widths(*points)}, seeds=config.seeds, key=jax.random.key(config.seed)
        )
    return sweeps


def predictions(config: Config, dim: str, points: Sequence[int]) -> dict[str, np.ndarray]:
    """The closed forms along one sweep."""
    with jax.enable_x64(True):
        d0, d1, d2 = (np.asarray(size, float) for size in config.at(dim, np.asarray(points)).values())
        norm_squared = config.target_scale**2 * d0 * d2
        closed = {
            "g2_diagonal": theory.alpha(d0, d1) + d1 / 4 * norm_squared / d2,
            "g2_coefficient": d1 / 4,
            "g1_diagonal": theory.diagonal_1(d0, d1, d2, norm_squared),
            "g1_off_diagonal": theory.off_diagonal_1(d0, d2),
        }
    return {name: np.broadcast_to(np.asarray(values), len(points)) for name, values in closed.items()}


def fit(data: xr.DataArray, quantity: str, dim: str) -> PowerLawFit | AsymptoticExponent:
    """The exponent of one quantity along one sweep."""
    if (quantity, dim) in PURE_POWERS:
        return sweep.fit_power_law(data, dim)
    return sweep.asymptotic_exponent(data, dim)


def checks(config: Config, data: Data) -> list[Check]:
    """Every point against its closed form, then every exponent against the theorem."""
    results = []
    predicted = {dim: predictions(config, dim, points) for dim, points in config.axes().items()}
    for quantity in QUANTITIES:
        moments = [sweep.mean_and_stderr(data[dim][quantity]) for dim in predicted]
        closed = np.concatenate([predicted[dim][quantity] for dim in predicted])
        results.append(
            closed_form_check(
                f"{quantity.replace('_', '-')}-closed-form",
                "outer-product, Theorem 3 and Figure 2 (off-diagonal of G₁: corrected)",
                f"{LABELS[quantity]} follows its closed form in all three sweeps.",
                predicted=closed,
                mean=np.concatenate([mean for mean, _ in moments]),
                stderr=np.concatenate([stderr for _, stderr in moments]),
                # Another formula of the same order differs by a factor of 2 or 1/2, as a wrong constant would.
                resolution=closed / 2,
            )
        )
    for quantity, exponents in EXPONENTS.items():
        for dim, exponent in exponents.items():
            results.append(
                exponent_check(
                    f"{quantity.replace('_', '-')}-{dim}",
                    "outer-product, Theorem 3 and Figure 2",
                    f"{LABELS[quantity]} grows as {dim}^{exponent}.",
                    predicted=exponent,
                    fit=fit(data[dim][quantity], quantity, dim),
                )
            )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """Local exponents: how each quantity approaches its order, and where the closed form takes it far out."""
    results = []
    far_out = (2**17, 2**18)
    for dim, points in config.axes().items():
        header = ("", *(f"{low}→{high}" for low, high in pairwise(points)), "closed form, 2¹⁷→2¹⁸")
        far_values = predictions(config, dim, far_out)
        rows = []
        for quantity in QUANTITIES:
            local = sweep.fit_power_law(data[dim][quantity], dim)
            far = np.log2(far_values[quantity][1] / far_values[quantity][0])
            cells = (f"{b:.2f} ± {e:.2f}" for b, e in zip(local.local_exponents, local.local_stderrs, strict=True))
            rows.append((LABELS[quantity], *cells, f"{far:.3f}"))
        results.append(Table(f"Local exponents in {dim}", header, tuple(rows)))
    return results


def plot(config: Config, data: Data) -> Figure:
    """The paper's six panels: rows vary d₀, d₁, d₂; left G₂, right G₁."""
    figure = Figure(figsize=(10, 11), layout="constrained")
    panels = figure.subplots(3, 2)
    for row, (dim, points) in zip(panels, config.axes().items(), strict=True):
        predicted = predictions(config, dim, points)
        for axes, pair in zip(row, (QUANTITIES[:2], QUANTITIES[2:]), strict=True):
            for quantity, color, marker in zip(pair, ("C0", "C1"), "os", strict=True):
                fitted = fit(data[dim][quantity], quantity, dim)
                half = 4 * fitted.stderr if isinstance(fitted, PowerLawFit) else fitted.interval[1] - fitted.exponent
                label = slope_label(LABELS[quantity], fitted.exponent, half)
                draw_sweep(axes, data[dim][quantity], dim, label=label, color=color, marker=marker)
                draw_closed_form(axes, points, predicted[quantity], color=color)
            axes.set_xlabel(f"{dim[0]}{'₀₁₂'[int(dim[1])]}")
            axes.legend(fontsize="small")
    panels[0, 0].set_title("G₂ (lines: closed form)")
    panels[0, 1].set_title("G₁ (lines: closed form)")
    return figure


EXPERIMENT = Experiment(
    name="figure-2",
    paper="outer-product",
    source="outer-product, Theorem 3 and Figure 2",
    title="Orders of E[G Gᵀ] in a two-layer ReLU network",
    summary=(
        "Diagonal and off-diagonal of both layers against each size, with the gradient that is exact in the inputs. The slopes "
        "in the legends are asymptotic: where the closed form is a sum of powers, one subleading term is fitted with the "
        "exponent. The diagonal of G₁ is far from its order in d₁ at these sizes, as the local exponents show."
    ),
    scales={
        "smoke": Config(d0s=(4, 8, 16, 32, 64), d1s=(8, 16, 32, 64, 128), d2s=(4, 8, 16, 32, 64), seeds=1000),
        "quick": Config(),
        "paper": Config(seeds=200_000),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
)
