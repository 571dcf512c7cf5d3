"""Theorem 1 and Corollary 1: E[G Gᵀ] of symmetric factorization is α₃ I - 2 α₂ M + k M².

Its order is k³ on the diagonal and k² off it. Entries are judged at small widths and a large
target, where every term exceeds the noise, and orders at large widths. Corollary 1 has k (M_ij)²,
the square of an entry, in the last term; it is k (M²)_ij, the entry of the square.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, moments, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.outer_product.statistics import extrapolate, gram
from specjax.experiments.target_files import load_target
from specjax.models import matrix_factorization
from specjax.models.targets import check_off_diagonal, check_symmetric, low_rank_target
from specjax.theory import matrix_factorization as theory

PARTS = ["diagonal", "off_diagonal"]
Data = dict[str, xr.Dataset]
states = lab.Statements()


class Config(lab.Config):
    """Target and widths; at `small_ks` the target is `target_factor` times larger."""

    d: int = lab.config.integer(6, least=2, help="rows of U")
    rank: int = lab.config.integer(3, least=1, help="rank of the drawn target")
    ks: tuple[int, ...] = lab.config.sizes(
        32, 64, 128, 256, 512, 1024, points=5, help="widths of the orders"
    )
    small_ks: tuple[int, ...] = lab.config.sizes(
        3, 6, 12, help="widths at which every entry is judged"
    )
    seeds: int = lab.config.seeds(4000, help="initializations at each of ks")
    small_seeds: int = lab.config.seeds(100_000, help="initializations at each of small_ks")
    target_factor: float = lab.config.number(10.0, above=0, help="factor on the target at small_ks")
    target: str = lab.config.text(
        "", help="a .npy file with M of shape (d, d), symmetric, instead of a drawn one"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank > self.d:
            raise ValueError(f"rank must be from 1 to d={self.d}, got {self.rank}.")


def target(config: Config, key: Key[Array, ""]) -> Float[Array, "d d"]:
    """M from the configured file, or a random positive semidefinite one of the configured rank."""
    if not config.target:
        return low_rank_target(key, config.d, config.rank)
    m = load_target(config.target, (config.d, config.d))
    check_symmetric(m, f"The target in {config.target!r}")
    check_off_diagonal(m, f"The target in {config.target!r}", "turn it by a rotation")
    return m


def run(config: Config, key: Key[Array, ""]) -> Data:
    """G Gᵀ by width and seed: two averages at large widths, and every entry at small ones."""
    m = target(config, sizes.stream(key, "target"))

    def orders(key: Key[Array, ""], k: sizes.AnySize) -> dict[str, Array]:
        u = matrix_factorization.init(key, config.d, k)
        p = gram(matrix_factorization.gradient(u, m))
        # E[W³] is a multiple of I (Lemma 2), so the off-diagonal of W³ = (W U)(W U)ᵀ is a control
        # variate of mean zero.
        control = gram(gram(u) @ u)
        return {
            "diagonal": spectral.dominance.diagonal_mean(p),
            "off_diagonal": -spectral.dominance.off_diagonal_coefficient(p - control, m),
            "ratio": spectral.dominance_ratio(p),
        }

    def entries(key: Key[Array, ""], k: sizes.AnySize) -> dict[str, Array]:
        u = matrix_factorization.init(key, config.d, k)
        return {"outer_product": gram(matrix_factorization.gradient(u, config.target_factor * m))}

    wide, small = ({"k": sweep.widths(*ks)} for ks in (config.ks, config.small_ks))
    weights = [sizes.stream(key, f"weights of the {name}") for name in ("orders", "entries")]
    found = {
        "orders": sweep.run(orders, wide, num_seeds=config.seeds, key=weights[0]),
        "entries": sweep.labelled(
            sweep.run(entries, small, num_seeds=config.small_seeds, key=weights[1]), "row", "column"
        ),
    }
    targets = {
        "orders": np.asarray(m, float),
        "entries": config.target_factor * np.asarray(m, float),
    }
    return {
        name: data.assign(target=(("row", "column"), targets[name])) for name, data in found.items()
    }


def _entries(formula: Callable[..., Array], data: xr.Dataset) -> xr.DataArray:
    with jax.enable_x64(True):
        values = np.asarray(formula(jnp.asarray(data.target.values), data.k.values.astype(float)))
    return xr.DataArray(values, dims=("k", "row", "column"), coords={"k": data.k})


def expectation() -> moments.Expression:
    """E[G Gᵀ] by `moments` with d, k and M: Theorem 1."""
    u, m = moments.gaussian("U", "d", "k"), moments.constant("M", "d", "d", symmetric=True)
    gradient = (u @ u.T - m) @ u
    return moments.expectation(gradient @ gradient.T)


THEOREM = expectation()


def exact(data: xr.Dataset, form: moments.Expression = THEOREM) -> xr.DataArray:
    """E[G Gᵀ] by Theorem 1, or another formula in d, k and M, at every width."""
    return _entries(lambda m, k: form(d=len(m), k=k, M=m), data)


def printed(data: xr.Dataset) -> xr.DataArray:
    """E[G Gᵀ] as Corollary 1 prints it, with k (M_ij)² for k (M²)_ij."""
    return _entries(theory.corollary_1_as_printed, data)


@states(
    "theorem-1",
    rivals={
        f"it {name}": lambda config, data, wrong=wrong: exact(data["entries"], wrong)
        for name, wrong in THEOREM.dropped(along="k").items()
    },
)
def theorem_1(config: Config, data: Data) -> lab.Relation:
    """Every entry of E[GGᵀ] is that of α₃ I - 2 α₂ M + k M²."""
    return lab.equals(data["entries"]["outer_product"], exact(data["entries"]))


@states(
    "corollary-1",
    corrected=True,
    rivals={"k (M_ij)² for k (M²)_ij": lambda config, data: printed(data["entries"])},
)
def corollary_1(config: Config, data: Data) -> lab.Relation:
    """The entries of E[GGᵀ] are α₃ δ_ij - 2 α₂ M_ij + k (M²)_ij."""
    return lab.equals(data["entries"]["outer_product"], exact(data["entries"]))


@states(
    "corollary-1",
    holds=False,
    rivals={"k (M²)_ij for k (M_ij)²": lambda config, data: exact(data["entries"])},
)
def corollary_1_printed(config: Config, data: Data) -> lab.Relation:
    """The entries of E[GGᵀ] are α₃ δ_ij - 2 α₂ M_ij + k (M_ij)²."""
    return lab.equals(data["entries"]["outer_product"], printed(data["entries"]))


def averages(orders: xr.Dataset, entries: xr.DataArray) -> xr.DataArray:
    """The quantities measured at large widths from matrices: the mean diagonal, and minus ĉ."""
    with jax.enable_x64(True):
        p = jnp.asarray(entries.transpose("k", "row", "column").values)
        reference = jnp.broadcast_to(jnp.asarray(orders.target.values), p.shape)
        values = [
            spectral.dominance.diagonal_mean(p),
            -spectral.dominance.off_diagonal_coefficient(p, reference),
        ]
    return xr.DataArray(np.stack(values), dims=("part", "k"), coords={"part": PARTS, "k": orders.k})


ON_IDENTITY, ON_TARGET, _ = THEOREM.parts(along=())
DROPPED = {
    "α₃ I": ON_IDENTITY,
    "-2 α₂ M": ON_TARGET,
    "the orders of α₃ below k³": ON_IDENTITY - moments.symbol("k") ** 3 * moments.identity("d"),
}
"""Terms that exceed the noise at large widths, unlike k M²."""


@states(
    "theorem-1",
    rivals={
        f"it without {name}": lambda config, data, part=part: averages(
            data["orders"], exact(data["orders"], THEOREM - part)
        )
        for name, part in DROPPED.items()
    },
)
def large_widths(config: Config, data: Data) -> lab.Relation:
    """The mean diagonal of E[GGᵀ], and the coefficient on M of what is off it, have their closed
    forms at large widths too.
    """
    orders = data["orders"]
    measured = orders[PARTS].to_dataarray("part", "average of GGᵀ").transpose("k", ...)
    return lab.equals(measured, averages(orders, exact(orders)))


@states(
    ("corollary-1-orders", "section-4-table-factorization", "section-4-expectation"),
    rivals={"k²": 2, "k⁴": 4},
)
def diagonal_order(config: Config, data: Data) -> lab.Relation:
    """The diagonal of E[GGᵀ] grows as k³ at a fixed target."""
    return lab.scales_as(data["orders"]["diagonal"], "k", 3)


@states(
    ("corollary-1-orders", "section-4-table-factorization", "section-4-expectation"),
    rivals={"k": 1, "k³": 3},
)
def off_diagonal_order(config: Config, data: Data) -> lab.Relation:
    """The off-diagonal of E[GGᵀ] grows as k² at a fixed target."""
    return lab.scales_as(data["orders"]["off_diagonal"], "k", 2)


@states(
    "section-4-draw",
    rivals={
        "2 √(2/π)/√k, that of (UUᵀ)²": 2 * np.sqrt(2 / np.pi),
        "√(2/π)/√k, that of UUᵀ": np.sqrt(2 / np.pi),
        "3/√k, a root mean square": 3.0,
    },
)
def one_draw(config: Config, data: Data) -> lab.Relation:
    """In one sample the ratio of mean |off-diagonal| to mean diagonal of GGᵀ is 3 √(2/π)/√k as the
    width grows.
    """
    scaled = data["orders"]["ratio"] * np.sqrt(data["orders"].k)
    return lab.equals(
        extrapolate(scaled, "k").rename("√k × ratio"), float(theory.one_draw_ratio(1.0))
    )


EXPERIMENT = lab.Experiment(
    "matrix-factorization",
    ledger("outer-product"),
    title="E[G Gᵀ] of symmetric matrix factorization",
    summary=(
        "Theorem 1 holds entry by entry; Corollary 1 takes the square of an entry of M for the"
        " entry of its square, a difference of lower order in k, so that the orders k³ and k²"
        " stand."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"seeds": 1400, "small_seeds": 35_000},
        "smoke": {
            "ks": (32, 64, 128, 256, 512),
            "seeds": 500,
            "small_ks": (3, 6),
            "small_seeds": 10_000,
        },
        "paper": {
            "ks": (32, 64, 128, 256, 512, 1024, 2048, 4096),
            "seeds": 20_000,
            "small_seeds": 1_000_000,
        },
    },
)
