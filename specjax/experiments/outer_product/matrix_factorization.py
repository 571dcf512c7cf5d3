"""Theorem 1 and Corollary 1: E[G Gᵀ] of symmetric matrix factorization at every width k, and its orders k³ and k²."""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.outer_product.statistics import gram
from specjax.experiments.plots import draw_closed_form, draw_sweep, slope_label
from specjax.experiments.target_files import load_target
from specjax.experiments.validation import (
    check_factor,
    check_off_diagonal,
    check_root_seed,
    check_seeds,
    check_sizes,
)
from specjax.experiments.verdicts import closed_form_check, exponent_check
from specjax.models import matrix_factorization
from specjax.models.targets import check_symmetric, low_rank_target
from specjax.sizes import AnySize
from specjax.theory import matrix_factorization as theory


@dataclass(frozen=True)
class Config:
    """Target and widths; the corollary is decided at small widths and a large target, where M² matters."""

    d: int = field(default=6, metadata={"help": "rows of U"})
    rank: int = field(default=3, metadata={"help": "rank of the drawn target"})
    ks: tuple[int, ...] = field(default=(32, 64, 128, 256, 512, 1024), metadata={"help": "widths of the exponent fits"})
    small_ks: tuple[int, ...] = field(default=(3, 6, 12), metadata={"help": "widths at which Corollary 1 is decided"})
    seeds: int = field(default=4000, metadata={"help": "initializations at each of ks"})
    small_seeds: int = field(default=100_000, metadata={"help": "initializations at each of small_ks"})
    target_factor: float = field(default=10.0, metadata={"help": "factor on the target at small_ks"})
    target: str = field(
        default="", metadata={"help": "a .npy file with M of shape (d, d), symmetric, instead of a drawn one"}
    )
    seed: int = field(default=0, metadata={"help": "seed of U and of the target"})

    def __post_init__(self) -> None:
        if self.d < 2:
            raise ValueError(f"Off-diagonal entries need d of at least 2, got d={self.d}.")
        if not 1 <= self.rank <= self.d:
            raise ValueError(f"rank must be from 1 to d={self.d}, got {self.rank}.")
        check_sizes("ks", self.ks, least=1, points=5)
        check_sizes("small_ks", self.small_ks, least=1, points=1)
        check_seeds("seeds", self.seeds)
        check_seeds("small_seeds", self.small_seeds)
        check_root_seed(self.seed)
        check_factor("target_factor", self.target_factor)


def target(config: Config) -> Float[Array, "d d"]:
    """M from the configured file, or a drawn one, positive semidefinite of the configured rank."""
    if not config.target:
        return low_rank_target(jax.random.key(config.seed + 1), config.d, config.rank)
    m = load_target(config.target, (config.d, config.d))
    check_symmetric(m, f"The target in {config.target!r}")
    check_off_diagonal(m, f"The target in {config.target!r}", "turn it by a rotation")
    return m


def run(config: Config) -> Data:
    """G Gᵀ per width and seed: its diagonal and its coefficient on M at large widths, every entry at small ones."""
    m = target(config)

    def orders(key: Array, k: AnySize) -> dict[str, Array]:
        u = matrix_factorization.init(key, config.d, k)
        p = gram(matrix_factorization.gradient(u, m))
        # E[W³] is a multiple of I (Lemma 2), so the off-diagonal of W³ = (W U)(W U)ᵀ is a control of mean zero.
        control = gram(gram(u) @ u)
        return {
            "diagonal": spectral.diagonal_mean(p),
            "off_diagonal": -spectral.off_diagonal_coefficient(p - control, m),
        }

    def entries(key: Array, k: AnySize) -> dict[str, Array]:
        u = matrix_factorization.init(key, config.d, k)
        return {"outer_product": gram(matrix_factorization.gradient(u, config.target_factor * m))}

    key = jax.random.key(config.seed)
    return {
        "orders": sweep.run(orders, {"k": sweep.widths(*config.ks)}, seeds=config.seeds, key=key),
        "entries": sweep.run(
            entries, {"k": sweep.widths(*config.small_ks)}, seeds=config.small_seeds, key=key, chunk=10_000
        ),
    }


def predictions(config: Config, ks: tuple[int, ...]) -> dict[str, np.ndarray]:
    """The two measured orders by Theorem 1."""
    m = np.asarray(target(config), float)
    with jax.enable_x64(True):
        expected = theory.expected_outer_product(jnp.asarray(m), np.asarray(ks, float))
        reference = jnp.broadcast_to(jnp.asarray(m), expected.shape)
        return {
            "diagonal": np.asarray(spectral.diagonal_mean(expected)),
            "off_diagonal": -np.asarray(spectral.off_diagonal_coefficient(expected, reference)),
        }


def _entries(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """E[GGᵀ] at the small widths, by Theorem 1 and by Corollary 1 as printed."""
    m, ks = config.target_factor * np.asarray(target(config), float), np.asarray(config.small_ks, float)
    with jax.enable_x64(True):
        exact = theory.expected_outer_product(jnp.asarray(m), ks)
        printed = theory.corollary_1_as_printed(jnp.asarray(m), ks)
    return np.asarray(exact), np.asarray(printed)


def checks(config: Config, data: Data) -> list[Check]:
    """Every entry against Theorem 1 and against Corollary 1 as printed, then the orders."""
    mean, stderr = (a.values for a in sweep.mean_and_stderr(data["entries"]["outer_product"]))
    exact, printed = _entries(config)
    # One number per width and entry; the two formulas are told apart by the entry in which they differ most.
    numbers = {
        "mean": mean,
        "stderr": stderr,
        "resolution": np.max(np.abs(exact - printed), axis=(1, 2), keepdims=True),
    }
    results = [
        closed_form_check(
            "theorem-1-entries",
            "outer-product, Theorem 1 (and Corollary 1, corrected: (M²)_ij)",
            "Every entry of E[GGᵀ] is that of α₃ I - 2 α₂ M + k M².",
            predicted=exact,
            **numbers,
        ),
        closed_form_check(
            "corollary-1-printed",
            "outer-product, Corollary 1",
            "Every entry of E[GGᵀ] is α₃ δ_ij - 2 α₂ M_ij + k (M_ij)².",
            predicted=printed,
            **numbers,
        ),
    ]
    predicted = predictions(config, config.ks)
    for quantity, label in (
        ("diagonal", "The diagonal"),
        ("off_diagonal", "Minus the coefficient on M of the off-diagonal"),
    ):
        mean, stderr = (a.values for a in sweep.mean_and_stderr(data["orders"][quantity]))
        results.append(
            closed_form_check(
                f"{quantity.replace('_', '-')}-closed-form",
                "outer-product, Theorem 1",
                f"{label} of E[GGᵀ] follows its closed form from k = {config.ks[0]} to {config.ks[-1]}.",
                predicted=predicted[quantity],
                mean=mean,
                stderr=stderr,
                resolution=predicted[quantity] / 2,
            )
        )
    fits = {q: sweep.asymptotic_exponent(data["orders"][q], "k") for q in ("diagonal", "off_diagonal")}
    results.append(
        exponent_check(
            "diagonal-order",
            "outer-product, Corollary 1",
            "The diagonal of E[GGᵀ] grows as k³.",
            predicted=3,
            fit=fits["diagonal"],
        )
    )
    results.append(
        exponent_check(
            "off-diagonal-order",
            "outer-product, Corollary 1",
            "The off-diagonal of E[GGᵀ] grows as k².",
            predicted=2,
            fit=fits["off_diagonal"],
        )
    )
    return results


def tables(config: Config, data: Data) -> list[Table]:
    """Measured and closed-form orders with local exponents."""
    predicted = predictions(config, config.ks)
    rows = []
    for quantity in ("diagonal", "off_diagonal"):
        values: xr.DataArray = data["orders"][quantity]
        local = sweep.fit_power_law(values, "k")
        slopes = ("", *(f"{b:.3f} ± {e:.3f}" for b, e in zip(local.local_exponents, local.local_stderrs, strict=True)))
        for k, mean, stderr, closed, slope in zip(
            config.ks, local.means, local.stderrs, predicted[quantity], slopes, strict=True
        ):
            rows.append((quantity.replace("_", "-"), str(k), f"{mean:.4g} ± {stderr:.2g}", f"{closed:.4g}", slope))
    header = ("", "k", "measured", "closed form", "local exponent from the width before")
    return [Table("Orders of E[GGᵀ] in k (off-diagonal: minus the coefficient on M)", header, tuple(rows))]


def plot(config: Config, data: Data) -> Figure:
    """Left: orders in k. Right: entries of the mean against Theorem 1 and against Corollary 1 as printed."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    predicted = predictions(config, config.ks)
    for quantity, color, marker in (("diagonal", "C0", "o"), ("off_diagonal", "C1", "s")):
        fit = sweep.asymptotic_exponent(data["orders"][quantity], "k")
        label = slope_label(quantity.replace("_", "-"), fit.exponent, fit.interval[1] - fit.exponent)
        draw_sweep(left, data["orders"][quantity], "k", label=label, color=color, marker=marker)
        draw_closed_form(left, config.ks, predicted[quantity], color=color)
    left.set_xlabel("width k")
    left.set_ylabel("E[GGᵀ] (lines: Theorem 1)")
    left.legend(fontsize="small")

    mean, _ = sweep.mean_and_stderr(data["entries"]["outer_product"])
    exact, printed = _entries(config)
    upper = np.triu_indices(config.d, 1)
    for formula, color, marker, label in (
        (exact, "C0", "o", "k (M²)_ij (Theorem 1)"),
        (printed, "C1", "x", "k (M_ij)² (Corollary 1, printed)"),
    ):
        x, y = (np.asarray(a)[:, upper[0], upper[1]].ravel() for a in (formula, mean))
        right.plot(x, y, marker, color=color, markersize=5, label=label, fillstyle="none")
    right.axline((0, 0), slope=1, color="gray", linewidth=1)
    right.set_xlabel(f"predicted off-diagonal entries, k in {config.small_ks}")
    right.set_ylabel("mean over initializations")
    right.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="matrix-factorization",
    paper="outer-product",
    source="outer-product, Theorem 1 and Corollary 1",
    title="E[G Gᵀ] of symmetric matrix factorization",
    summary=(
        "Theorem 1 holds entry by entry. Corollary 1 reads its last term off as k (M_ij)², the square of an entry; it is k (M²)_ij, "
        "the entry of the square. The difference is of lower order in k, so the orders k³ and k² stand."
    ),
    scales={
        "smoke": Config(ks=(32, 64, 128, 256, 512), seeds=500, small_ks=(3, 6), small_seeds=10_000),
        "quick": Config(),
        "paper": Config(ks=(32, 64, 128, 256, 512, 1024, 2048, 4096), seeds=20_000, small_seeds=1_000_000),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"corollary-1-printed"}),
)
