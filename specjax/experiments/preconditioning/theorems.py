"""Theorems 1 and 3: iterations without a condition number, how small a start they need, and Lemmas 4 to 7, which carry the proof."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.preconditioning import many_digits, runs
from specjax.experiments.preconditioning.validation import check_accuracy, check_kappas
from specjax.lab.relations.ends import DECAY
from specjax.models import factorization_spectra
from specjax.spectral.one_by_one import singular_values
from specjax.theory.preconditioning import alignment, iterations, perturbation, scalar
from specjax.theory.preconditioning.conditions import check_ranks

FAST, SLOW = 0.7, 0.9
"""Decays: with one prefactor rounding takes over from 0.8 on, see `decoupling`."""
START = 0.5
"""Scale of the start of Theorem 1(a), any up to √λ_1."""
SCALES = (1e-12, 1e-11, 1e-3, 1e-1)
"""Scales of the start of Theorem 1(b)."""
TOO_SMALL = 1 / 64
"""A prefactor with which the steps do not reach the root."""
LENGTHS = (4, 8, 16, 32, 48)
"""Steps over which magnifications are multiplied; float64 has 16 digits, and 0.7^48 = 4e-8 for the smallest iterates."""
DELTAS = (1e-4, 3e-4)
"""Values of g of which Lemma 6 bounds the probability, with a bound below 1."""
PAST = 9
"""The step of which it does."""
NULL = 3
"""Columns beyond the rank in Lemma 7 (ii)."""
DIGITS = 100
"""Far more than the runs lose."""
ALMOST, NINE_IN_TEN, MOST = 0.99, 0.9, 0.5


class Config(lab.Config):
    """Sizes, condition numbers, and draws."""

    d: int = lab.integer(8, least=3, help="rows of the factor, dimension of S")
    r: int = lab.integer(3, least=2, help="rank of M where it is below d")
    ks: tuple[int, ...] = lab.sizes(3, 5, help="columns for Theorem 1(b), from r to below d")
    wide: int = lab.integer(10, least=3, help="columns for Theorem 1(a), at least d")
    kappas: tuple[float, ...] = lab.numbers(1.0, 1e3, above=0, help="condition numbers, ascending from 1 up")
    accuracy: float = lab.number(1e-8, above=0, help="relative error in the operator norm")
    seeds: int = lab.seeds(2000, least=24, help="runs of Theorem 1(b), of the scalar sequences and of Theorem 1(a)")
    map_seeds: int = lab.seeds(120, least=24, help="runs at each scale of the start")
    exact_d: int = lab.integer(4, least=3, help="dimension of the runs with many digits, at least 3")
    exact_seeds: int = lab.seeds(24, least=3, help="those runs")

    def __post_init__(self) -> None:
        super().__post_init__()
        for k in self.ks:
            check_ranks(self.d, k, self.r)
            if k >= self.d:
                raise ValueError(
                    f"ks must be below d={self.d}, where Theorem 1(b) is for, got {k}; wide is for the others."
                )
        if self.wide < self.d:
            raise ValueError(f"wide must be at least d={self.d}, for Theorem 1(a), got {self.wide}.")
        check_kappas("kappas", self.kappas, points=1)
        check_accuracy(self.accuracy)


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """The scalar sequences; matrix runs at the steps of the theorems; the auxiliary trajectory; and runs with many digits."""
    over = {"kappa": sweep.values(*config.kappas)}
    with jax.enable_x64(True):
        return {
            "scalars": sweep.run(
                lambda key, kappa: _scalars(config, key, kappa),
                over,
                seeds=config.seeds,
                key=sizes.stream(key, "scalars"),
            )
            .rename({f"{name}_dim_0": "delta" for name in ("below", "below_aimed", "lemma_6")})
            .rename({f"product_{name}_dim_0": "T" for name in ("exact", "over")})
            .assign_coords(delta=list(DELTAS), T=list(LENGTHS)),
            "wide": sweep.run(
                lambda key, kappa: _wide(config, key, kappa),
                over,
                seeds=config.map_seeds,
                key=sizes.stream(key, "wide starts"),
                chunk=config.map_seeds,
            ),
            "small": sweep.run(
                lambda key, kappa: _small(config, key, kappa),
                over,
                seeds=config.seeds,
                key=sizes.stream(key, "small"),
                chunk=config.seeds,
            ),
            "starts": sweep.run(
                lambda key, kappa, scale: _starts(config, key, kappa, scale),
                {**over, "scale": sweep.values(*SCALES)},
                seeds=config.map_seeds,
                key=sizes.stream(key, "starts"),
                chunk=config.map_seeds,
            ),
            "digits": _digits(config, sizes.stream(key, "digits")),
        }


def steps(config: Config, theorem: str) -> int:
    """The iterations by which a theorem promises arrival, the same at every κ, of targets of norm 1."""
    # Also while a measurement is traced.
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        bound = {
            "1a": lambda: iterations.theorem_1a(1.0, config.accuracy, FAST),
            "1a-slow": lambda: iterations.theorem_1a(1.0, config.accuracy, SLOW),
            "1b": lambda: iterations.theorem_1b(1.0, config.accuracy, FAST),
            # Relative to ‖S⁻¹‖ the largest prefactor is 1.
            "3": lambda: iterations.theorem_3(1.0, config.accuracy, SLOW),
            # New prefactors in [1/2, 1] need Lemma 11 in place of Lemma 9, 1/(1 - ρ) in place of 2.
            "3-new": lambda: np.log(1 / ((1 - SLOW) * config.accuracy)) / np.log(1 / SLOW),
        }[theorem]()
        return int(np.ceil(float(bound)))


def _rates(key: Array, rho: float, length: int, *, each_step: bool) -> Array:
    """Prefactors from [1/2, 1], one or a new one in each step, times ρ^t."""
    u = jax.random.uniform(key, (length,))
    return (1 + (u if each_step else u[0])) / 2 * rho ** jnp.arange(length).astype(u.dtype)


def _spectrum(size: int, rank: int, kappa: Array) -> Array:
    return jnp.concatenate([factorization_spectra.logarithmic_spectrum(rank, kappa), jnp.zeros(size - rank)])


def _scalars(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    keys = {name: sizes.stream(key, name) for name in ("rates", "past", "products")}
    spectrum = _spectrum(config.d, config.r, kappa)
    found = {}
    for name, theorem, largest in (("one", "1a-slow", 1.0), ("one_small", "1a-slow", TOO_SMALL)):
        rates = largest * _rates(keys["rates"], SLOW, 2 * steps(config, theorem), each_step=False)
        full, null = (factorization_spectra.logarithmic_spectrum(config.d, kappa), spectrum)
        for rank, lam in (("full", full), ("null", null)):
            x = scalar.factorization_path(jnp.full_like(lam, START), lam, rates)
            late = jnp.max(jnp.abs(x**2 - lam[None]), 1) > config.accuracy
            found[f"{name}_{rank}"] = jnp.sum(late).astype(float)
        rates = largest * _rates(keys["rates"], SLOW, 2 * steps(config, "3"), each_step=False)
        q = scalar.regression_path(jnp.zeros_like(full), 1 / full, kappa * rates)
        found[f"{name}_context"] = jnp.sum(jnp.max(jnp.abs(q - 1 / full[None]), 1) / kappa > config.accuracy).astype(
            float
        )

    def smallest(x: Array, lam: Array) -> Array:
        return jnp.min(jnp.abs((x**2 - lam) * x), axis=-1)

    # Lemmas 6 and 7 are about the scalar sequences from an aligned start.
    lam, over = (
        _spectrum(config.r, config.r, jnp.asarray(10.0)),
        _spectrum(config.r + NULL, config.r, jnp.asarray(10.0)),
    )
    before = scalar.factorization_path(
        jnp.full_like(lam, START), lam, _rates(keys["past"], FAST, PAST, each_step=True)
    )[-2]
    length = FAST ** (PAST - 1) / 2
    drawn = length * (1 + jax.random.uniform(sizes.stream(keys["past"], "last")))
    aimed = jnp.abs(before[0] - jnp.sqrt(lam[0]))
    g, aimed_g = (smallest(scalar.factorization_step(before, lam, rate), lam) for rate in (drawn, aimed))
    products = {}
    for name, eigenvalues in (("exact", lam), ("over", over)):
        rates = _rates(keys["products"], FAST, max(LENGTHS), each_step=True)
        x = scalar.factorization_path(jnp.full_like(eigenvalues, START), eigenvalues, rates)[1:-1]
        growth = alignment.growth_bound(rates[1:], smallest(x, eigenvalues[None]), jnp.ones_like(rates[1:]), 1.0)
        logarithms = jnp.cumsum(jnp.log(growth))
        products[f"product_{name}"] = logarithms[jnp.asarray(LENGTHS) - 2]
    deltas = jnp.asarray(DELTAS)
    return (
        found
        | products
        | {
            "below": (g <= deltas).astype(float),
            "below_aimed": (aimed_g <= deltas).astype(float),
            "lemma_6": alignment.small_gradient_bound(lam, deltas, jnp.full_like(deltas, length)),
        }
    )


def _muon(posed: runs.Problem, rates: Array, start: Array | None = None) -> Array:
    """The iterates x_1, x_2, ..."""

    def advance(x: Array, rate: Array) -> tuple[Array, Array]:
        x = posed.project(x - rate * posed.length * spectral.polar(posed.gradient(x)))
        return x, x

    return jax.lax.scan(advance, posed.start if start is None else start, rates)[1]


def _arrives(config: Config, posed: runs.Problem, rates: Array) -> Array:
    return jnp.linalg.norm(posed.residual(_muon(posed, rates)[-1]), 2) <= config.accuracy


def _wide(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    """Theorem 1(a) in float64 with r = d and r < d, and Theorem 3 with new prefactors and with one."""
    problem, rates = sizes.stream(key, "problem"), sizes.stream(key, "rates")
    context = runs.in_context(problem, kappa, config.d)
    found = {
        f"rank_{name}": _arrives(
            config,
            runs.factorization(problem, kappa, config.d, rank, config.wide, START),
            _rates(rates, rho, steps(config, theorem), each_step=False),
        )
        for name, rank, rho, theorem in (
            ("d", config.d, FAST, "1a"),
            ("r", config.r, FAST, "1a"),
            ("d_slow", config.d, SLOW, "1a-slow"),
            ("r_slow", config.r, SLOW, "1a-slow"),
        )
    }
    return found | {
        name: _arrives(config, context, _rates(rates, SLOW, steps(config, "3-new"), each_step=each_step))
        for name, each_step in (("context_new", True), ("context_one", False))
    }


def _small(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    """Theorem 1(b) from the smallest start."""
    rates = _rates(sizes.stream(key, "rates"), FAST, steps(config, "1b"), each_step=True)
    problem = sizes.stream(key, "problem")
    return {
        f"k{k}": _arrives(config, runs.factorization(problem, kappa, config.d, config.r, k, SCALES[0]), rates)
        for k in config.ks
    }


def _starts(config: Config, key: Array, kappa: Array, scale: Array) -> dict[str, Array]:
    """Theorem 1(b) from starts of a scale: who arrives, and with k = r how near the run is to the auxiliary trajectory."""
    rates = _rates(sizes.stream(key, "rates"), FAST, steps(config, "1b"), each_step=True)
    problem, found = sizes.stream(key, "problem"), {}
    for k in config.ks:
        posed = runs.factorization(problem, kappa, config.d, config.r, k, scale)
        found[f"k{k}"] = _arrives(config, posed, rates)
    posed = runs.factorization(problem, kappa, config.d, config.r, config.r, scale)
    m, v = -posed.residual(jnp.zeros_like(posed.start)), posed.start / scale
    first = rates[0] * alignment.auxiliary_start(m, v, config.r)
    path = _muon(posed, rates)
    auxiliary = jnp.concatenate([first[None], _muon(posed, rates[1:], first)])
    apart = _norms(path - auxiliary)
    gradients = jax.vmap(posed.gradient)(auxiliary)
    values = singular_values(gradients)
    size = jnp.maximum(_norms(path), _norms(auxiliary))[:-1]
    # Above the rounding of float64 alone.
    seen = apart[:-1] > 1e-13
    grown = apart[1:] / jnp.maximum(apart[:-1], 1e-13)

    def against(g: Array) -> Array:
        bound = alignment.growth_bound(rates[1:], g, size, jnp.ones_like(size))
        return jnp.max(jnp.where(seen, grown / bound, 0))

    sigma = singular_values(m @ v)[config.r - 1]
    moved = jnp.linalg.norm(
        spectral.polar(perturbation.best_approximation(posed.gradient(posed.start), config.r)) + spectral.polar(m @ v)
    )
    return found | {
        "apart": jnp.max(apart),
        "early": apart[config.r],
        "growth": against(values[:-1, -1]),
        "growth_largest": against(values[:-1, 0]),
        "first": moved / alignment.first_step_bound(sigma, scale, config.r, config.r),
        "first_half": moved / alignment.first_step_bound(sigma, scale / 2, config.r, config.r),
    }


def _norms(x: Array) -> Array:
    return singular_values(x)[..., 0]


def _digits(config: Config, key: Array) -> xr.Dataset:
    """Theorem 1(a) with a slow decay and one prefactor: the error at its number of steps and at half of it, by rank."""
    keys = jax.random.split(key, config.exact_seeds)
    d, kappa = config.exact_d, config.kappas[-1]
    bases = np.asarray(jax.vmap(lambda key: factorization_spectra.orthonormal(key, d, d))(keys))
    rates = np.asarray(
        jax.vmap(lambda key: _rates(sizes.stream(key, "rates"), SLOW, steps(config, "1a-slow"), each_step=False))(keys)
    )
    ranks, found = {"d": d, "below d": d - 2}, np.empty((2, 2, config.exact_seeds))
    for place, rank in enumerate(ranks.values()):
        spectrum = np.asarray(_spectrum(d, rank, jnp.asarray(kappa)))
        _, errors = many_digits.from_scalars(many_digits.factorization, bases, spectrum, START, rates, DIGITS)
        found[place] = errors[:, -1], errors[:, errors.shape[1] // 2]
    coordinates = {"rank": list(ranks), "seed": range(config.exact_seeds)}
    dims = ("rank", "seed")
    return xr.Dataset({"error": (dims, found[:, 0]), "halfway": (dims, found[:, 1])}, coordinates)


def large_start(config: Config, data: Any) -> Any:
    """A control: the runs from the largest start in the place of those from the smallest, and the other way round."""
    starts = data["starts"].assign_coords(scale=list(reversed(SCALES)))
    return {**data, "starts": starts, "small": starts.sel(scale=SCALES[0])}


def _in_time(name: str, cites: str, says: str, quantity: str, theorem: str) -> lab.Statement:
    @lab.statement(
        cites,
        says,
        name=name,
        controls={
            "prefactors that do not reach the root": lab.replacing(
                f"one_{quantity}", f"one_small_{quantity}", of="scalars"
            )
        },
    )
    def in_time(config: Config, data: Any) -> lab.Relation:
        return lab.always(
            data["scalars"][f"one_{quantity}"], xr.DataArray(float(steps(config, theorem))), slack=0.15, rounding=1e-9
        )

    return in_time


@lab.statement(
    "theorem-1a",
    f"So are the matrix runs with many digits, at ρ = {SLOW}, with r = d and with r < d.",
    controls={"half of the steps": lab.replacing("error", "halfway", of="digits")},
)
def many(config: Config, data: Any) -> lab.Relation:
    """By the Frobenius norm, an upper bound."""
    return lab.identity(data["digits"]["error"], tolerance=config.accuracy)


@lab.statement(
    "theorem-1a",
    f"In float64 more than nine runs in ten arrive in time with r = d, at ρ = {FAST} and {SLOW}, and with r < d at ρ = {FAST}.",
    corrected=True,
    controls={f"r < d at ρ = {SLOW}": lab.replacing("rank_d_slow", "rank_r_slow", of="wide")},
)
def float64(config: Config, data: Any) -> lab.Relation:
    """What rounding leaves of the theorem."""
    cases = ("rank_d", "rank_d_slow", "rank_r")
    found = xr.concat([data["wide"][case] for case in cases], xr.Variable("case", list(cases)))
    return lab.happens(found.rename("arrives in time"), more_than=NINE_IN_TEN)


@lab.statement(
    "theorem-1a",
    f"In float64 fewer than nine runs in ten arrive in time with r < d at ρ = {SLOW}: rounding enters where the eigenvalues are 0.",
    corrected=True,
    controls={
        f"ρ = {FAST}": lab.replacing("rank_r_slow", "rank_r", of="wide"),
        "r = d": lab.replacing("rank_r_slow", "rank_d_slow", of="wide"),
    },
    post_hoc=f"Judged first at ρ = {FAST}, where all arrive; now on other seeds.",
)
def null_space(config: Config, data: Any) -> lab.Relation:
    """With the same number of columns."""
    return lab.happens(data["wide"]["rank_r_slow"], less_than=NINE_IN_TEN)


@lab.statement(
    "theorem-3",
    f"In float64 too, symmetrized and with new prefactors, at ρ = {SLOW}, more than nine runs in ten arrive by log(C/((1-ρ) ε))/log(1/ρ).",
    corrected=True,
    controls={"one prefactor": lab.replacing("context_new", "context_one", of="wide")},
)
def context(config: Config, data: Any) -> lab.Relation:
    """With one prefactor rounding takes over."""
    return lab.happens(data["wide"]["context_new"], more_than=NINE_IN_TEN)


@lab.statement(
    "theorem-1b",
    f"With r ≤ k < d, new prefactors and a start of scale {SCALES[0]:g} more than 99 runs in a hundred arrive in time at every κ and k.",
    controls={f"a start of scale {SCALES[-1]:g}": large_start},
)
def almost_surely(config: Config, data: Any) -> lab.Relation:
    """At ρ = 0.7."""
    return lab.happens(_over_k(config, data["small"]), more_than=ALMOST)


@lab.statement(
    "remark-1",
    f"So do nine in ten from a start of scale {SCALES[-1]:g}, with the same schedule: a small start is not fundamental.",
    controls={f"a start of scale {SCALES[0]:g}": large_start},
    holds=False,
)
def moderate_start(config: Config, data: Any) -> lab.Relation:
    """At every κ and k."""
    return lab.happens(_over_k(config, data["starts"].sel(scale=SCALES[-1])), more_than=NINE_IN_TEN)


def _over_k(config: Config, found: xr.Dataset) -> xr.DataArray:
    return xr.concat([found[f"k{k}"] for k in config.ks], xr.Variable("k", list(config.ks))).rename("arrives in time")


@lab.statement(
    "lemma-4",
    "With our constant: in every draw ‖msgn G_r + msgn M V‖_F ≤ 2 √r α²/(2σ - α²) at k = r.",
    controls={"half of α in the bound": lab.replacing("first", "first_half", of="starts")},
)
def first_step(config: Config, data: Any) -> lab.Relation:
    """At scales at which the difference is above rounding."""
    return lab.always(data["starts"]["first"].sel(scale=list(SCALES[2:])), xr.DataArray(1.0), slack=0.5, rounding=1e-6)


@lab.statement(
    "lemma-5",
    "With our constant: one step magnifies the distance to the auxiliary trajectory by at most 1 + 3 η (3 B² + ‖M‖)/g.",
    controls={"the largest singular value for g": lab.replacing("growth", "growth_largest", of="starts")},
)
def growth(config: Config, data: Any) -> lab.Relation:
    """Where the distance is above rounding; on these paths the bound is loose by more than ten."""
    found = data["starts"]["growth"].sel(scale=list(SCALES[2:]))
    return lab.always(found, xr.DataArray(1.0), slack=0.95, rounding=1e-6)


@lab.statement(
    "lemma-6",
    "With our constant: P(g_t ≤ δ) is at most Σ 6 δ/λ_i over the length of the interval of steps, for k = r.",
    controls={"the last prefactor aimed at a root": lab.replacing("below", "below_aimed", of="scalars")},
)
def small_gradients(config: Config, data: Any) -> lab.Relation:
    """On the scalar sequences."""
    found = data["scalars"].isel(kappa=0)
    bound = found["lemma_6"].isel(seed=0, drop=True)
    return lab.below(found["below"], bound, "Σ 6 δ/λ_i over the length")


@lab.statement(
    "lemma-7",
    "With k = r the logarithm of the product of the magnifications up to T grows as T.",
    controls={"k > r": lab.replacing("product_exact", "product_over", of="scalars")},
)
def product(config: Config, data: Any) -> lab.Relation:
    """Over T it settles."""
    found = data["scalars"]["product_exact"].isel(kappa=0)
    return lab.settles((found / found["T"]).rename("log product / T"), "T")


@lab.statement(
    "lemma-7-over",
    "With k > r it grows faster than T: each step has a factor of the type ρ^(-2t) more.",
    controls={"k = r": lab.replacing("product_over", "product_exact", of="scalars")},
    post_hoc="It was judged by curves of growth, which it has none of; judged on another seed.",
)
def product_over(config: Config, data: Any) -> lab.Relation:
    """By more than T^(1/4), the slowest growth that counts: as T² it would be by T."""
    found = data["scalars"]["product_over"].isel(kappa=0)
    first, last = (found.isel(T=place) / found["T"][place] for place in (0, -1))
    factor = float(last["T"] / first["T"]) ** -DECAY
    return lab.ahead(last.drop_vars("T"), (factor * first).drop_vars("T"), least=0)


@lab.statement(
    "eq-67",
    f"From a start of scale {SCALES[0]:g} with k = r most runs stay within 1e-3 of the auxiliary trajectory, at every κ.",
    controls={f"a start of scale {SCALES[-1]:g}": large_start},
)
def stays_close(config: Config, data: Any) -> lab.Relation:
    """By the operator norm, at every step."""
    return lab.happens(data["starts"]["apart"].sel(scale=SCALES[0]) < 1e-3, more_than=MOST)


@lab.statement(
    "eq-68",
    "What a run is away from the auxiliary trajectory is proportional to α, to a factor of two, after r steps, in most runs.",
    controls={
        "starts a thousand times as large": lambda config, data: {
            **data,
            "starts": data["starts"].assign_coords(scale=[SCALES[0], *SCALES[2:], SCALES[1]]),
        }
    },
)
def proportional(config: Config, data: Any) -> lab.Relation:
    """Hence α must be below the accuracy over the product of the magnifications."""
    small, large = (data["starts"]["early"].sel(scale=scale, drop=True) / scale for scale in SCALES[:2])
    return lab.happens((abs(np.log2(large / small)) < 1).rename("proportional to α"), more_than=MOST)


EXPERIMENT = lab.Experiment(
    "muon-convergence",
    ledger("preconditioning"),
    title="Muon's iteration bounds without a condition number, and how small a start they need",
    summary="The scalar sequences arrive within the bounds of Theorems 1 and 3, whose only argument is the accuracy, and so do matrix runs "
    "with a hundred digits. In float64 those of Theorem 1(a) do with r = d; with r < d and a slow decay rounding keeps many from it. "
    "Theorem 1(b) holds from a small start, and needs it: fewer runs arrive as the start grows.",
    config=Config,
    measure=run,
    statements=(
        _in_time(
            "one-prefactor", "theorem-1a", "Scalar sequences arrive by log(8 λ_1/ε)/log(1/ρ), r = d.", "full", "1a-slow"
        ),
        _in_time("one-prefactor-null", "theorem-1a", "They do with r < d, too.", "null", "1a-slow"),
        many,
        float64,
        null_space,
        _in_time(
            "one-prefactor-context",
            "theorem-3",
            "In context they arrive by log(2C/ε)/log(1/ρ), relative to ‖S⁻¹‖.",
            "context",
            "3",
        ),
        context,
        almost_surely,
        moderate_start,
        first_step,
        growth,
        small_gradients,
        product,
        product_over,
        stays_close,
        proportional,
    ),
    scales={
        "quick": {"seed": 1},
        "smoke": {
            "d": 5,
            "r": 2,
            "ks": (2,),
            "wide": 6,
            "kappas": (1e3,),
            "seeds": 60,
            "map_seeds": 40,
            "exact_d": 3,
            "exact_seeds": 3,
        },
        "paper": {
            "d": 20,
            "ks": (3, 5, 10),
            "wide": 24,
            "kappas": (1.0, 10.0, 1e3, 1e4),
            "seeds": 10_000,
            "map_seeds": 1000,
            "exact_seeds": 48,
        },
    },
)
