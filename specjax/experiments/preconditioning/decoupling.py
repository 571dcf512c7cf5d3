"""Lemmas 3 and 8: the matrix iterates of Muon are scalar sequences, and rounding can undo it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.preconditioning import many_digits
from specjax.models import factorization_spectra, in_context_regression, matrix_factorization
from specjax.theory.preconditioning import scalar, spectral_domain
from specjax.theory.preconditioning.conditions import check_condition_number, check_ranks

CALM, UNSTABLE = 0.7, 0.9
"""Decays at which the aligned start stays aligned in float64, and at which it does not."""
DISPLACEMENTS = (1e-13, 1e-9)
"""Sizes of a displacement from the aligned start, far above the rounding of float64."""
SMALL, MODERATE = 1e-6, 0.5
"""Scales of generic starts."""
DIGITS = (16, 100)
"""About those of float64, and far more than the runs lose."""
EARLY = 20
"""Steps in which little is lost."""
ROUNDED, LOST = 1e-10, 1e-6
"""Distances below the first are rounding in float64, above the second they are not: ten digits are gone."""
MOST = 0.5


class Config(lab.Config):
    """Sizes of both problems, and the length of the runs."""

    d: int = lab.integer(8, least=2, help="dimension of M and S")
    k: int = lab.integer(10, least=2, help="columns of the factor, at least d for an aligned start of every kind")
    kappa: float = lab.number(100.0, help="condition number")
    steps: int = lab.integer(80, least=60, help="steps of Muon")
    seeds: int = lab.seeds(150, least=24, help="targets and starts")
    exact_d: int = lab.integer(4, least=2, help="dimension of the runs with many digits")
    exact_seeds: int = lab.seeds(8, least=3, help="those of the runs with many digits")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranks(self.d, self.k, self.d)
        check_condition_number(self.kappa)


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Distances of matrix iterates from their scalar predictions: in float64, displaced, in context, and with many digits."""

    def measure(key: Array, rho: Array) -> dict[str, dict[str, Array]]:
        parts = (_factorization, _alignment, _context, _descent)
        return {part.__name__[1:]: part(config, sizes.stream(key, part.__name__[1:]), rho) for part in parts}

    with jax.enable_x64(True):
        over = {"rho": sweep.values(CALM, UNSTABLE)}
        found = sweep.run(measure, over, seeds=config.seeds, key=sizes.stream(key, "runs"), chunk=config.seeds)
        runs = found.rename({dim: "step" for dim in found.dims if str(dim).endswith("_dim_0")})
        return {"runs": runs, "digits": _digits(config, sizes.stream(key, "digits"))}


def _muon(start: Array, rates: Array, gradient: Callable[[Array], Array], *, symmetric: bool = False) -> Array:
    """x_1, x_2, ...; with `symmetric` each iterate is replaced by its symmetric part."""

    def advance(x: Array, rate: Array) -> tuple[Array, Array]:
        x = x - rate * spectral.polar(gradient(x))
        x = (x + x.T) / 2 if symmetric else x
        return x, x

    return jax.lax.scan(advance, start, rates)[1]


def _rates(config: Config, key: Array, rho: Array) -> tuple[Array, Array]:
    """One prefactor from [1/2, 1], and a new one in each step."""
    decay = rho ** jnp.arange(config.steps).astype(rho.dtype)
    u = jax.random.uniform(key, (config.steps,))
    return (1 + u[0]) / 2 * decay, (1 + u) / 2 * decay


def _factorization(config: Config, key: Array, rho: Array) -> dict[str, Array]:
    keys = [sizes.stream(key, name) for name in ("basis", "frame", "rates", "displacement")]
    at = factorization_spectra.target(
        keys[0], config.d, factorization_spectra.logarithmic_spectrum(config.d, config.kappa)
    )
    start, values, frame = factorization_spectra.aligned_start(keys[1], at, config.k, MODERATE)
    one, new = _rates(config, keys[2], rho)
    noise = jax.random.normal(keys[3], start.shape)
    displaced = start[None] + jnp.asarray(DISPLACEMENTS)[:, None, None] * (noise / jnp.linalg.norm(noise))[None]
    # Orthonormal but for one row: it is not aligned.
    generic = matrix_factorization.orthonormal_init(keys[3], config.d, config.k, MODERATE).at[0].set(0)
    starts = jnp.concatenate([start[None], start[None], generic[None], displaced])
    schedules = jnp.stack([one, new, one, *[one] * len(DISPLACEMENTS)])
    paths = jax.vmap(lambda x, rates: _muon(x, rates, lambda x: matrix_factorization.gradient(x, at.matrix)))(
        starts, schedules
    )

    def away(path: Array, rates: Array) -> Array:
        predicted = scalar.factorization_path(values, at.spectrum, rates)[1:]
        return jnp.linalg.norm(path - factorization_spectra.composed(at.basis, predicted, frame), axis=(1, 2))

    def error_gap(path: Array, rates: Array) -> Array:
        x, last = path[-1], scalar.factorization_path(values, at.spectrum, rates)[-1]
        return jnp.abs(jnp.linalg.norm(x @ x.T - at.matrix, 2) - jnp.max(jnp.abs(last**2 - at.spectrum)))

    gaps = jnp.linalg.norm(paths[3:, :EARLY] - paths[:1, :EARLY], axis=(2, 3))
    gains = jnp.max(gaps, axis=1) / jnp.asarray(DISPLACEMENTS)
    return {
        "one": away(paths[0], one),
        "new": away(paths[1], new),
        "generic": away(paths[2], one),
        "error": error_gap(paths[0], one),
        "error_generic": error_gap(paths[2], one),
        "gain_small": gains[0],
        "gain_large": gains[1],
    }


def _alignment(config: Config, key: Array, rho: Array) -> dict[str, Array]:
    """The largest share of ‖X_t X_tᵀ‖_F off the diagonal in the basis of M, with k = r columns, from a small and a moderate start."""
    r = config.d // 2
    spectrum = factorization_spectra.logarithmic_spectrum(r, config.kappa)
    at = factorization_spectra.target(sizes.stream(key, "basis"), config.d, spectrum)
    start = matrix_factorization.orthonormal_init(sizes.stream(key, "start"), config.d, r, 1.0)
    _, new = _rates(config, sizes.stream(key, "rates"), rho)

    def largest(scale: Array) -> Array:
        path = _muon(scale * start, new, lambda x: matrix_factorization.gradient(x, at.matrix))
        product = path @ jnp.swapaxes(path, 1, 2)
        inside = at.basis.T[None] @ product @ at.basis[None]
        diagonal = jnp.sum(jnp.diagonal(inside, axis1=1, axis2=2) ** 2, -1)
        return jnp.sqrt(jnp.max(jnp.maximum(1 - diagonal / jnp.sum(product**2, (1, 2)), 0)))

    small, moderate = jax.vmap(largest)(jnp.asarray([SMALL, MODERATE]))
    return {"small": small, "moderate": moderate}


def _context(config: Config, key: Array, rho: Array) -> dict[str, Array]:
    spectrum = factorization_spectra.logarithmic_spectrum(config.d, config.kappa)
    at = factorization_spectra.target(sizes.stream(key, "basis"), config.d, spectrum)
    one, new = (config.kappa * rates for rates in _rates(config, sizes.stream(key, "rates"), rho))

    def away(rates: Array) -> Array:
        predicted = scalar.regression_path(jnp.zeros_like(spectrum), 1 / spectrum, rates)[1:]
        matrices = factorization_spectra.composed(at.basis, predicted, at.basis)
        start = in_context_regression.init(config.d)
        path = _muon(start, rates, lambda q: in_context_regression.gradient(q, at.matrix), symmetric=True)
        return jnp.linalg.norm(path - matrices, axis=(1, 2)) / config.kappa

    return {"one": away(one), "new": away(new)}


def _descent(config: Config, key: Array, rho: Array) -> dict[str, Array]:
    """Gradient descent from an aligned and from a generic start: how far it ever is from its scalar sequences."""
    del rho
    spectrum = factorization_spectra.logarithmic_spectrum(config.d, config.kappa)
    at = factorization_spectra.target(sizes.stream(key, "basis"), config.d, spectrum)
    start, values, frame = factorization_spectra.aligned_start(sizes.stream(key, "frame"), at, config.k, MODERATE)
    generic = matrix_factorization.orthonormal_init(sizes.stream(key, "generic"), config.d, config.k, MODERATE)

    def advance(state: tuple[Array, Array, Array], _: None) -> tuple[tuple[Array, Array, Array], Array]:
        x, other, scalars = state
        x, other = (x - 0.25 * matrix_factorization.gradient(x, at.matrix) for x in (x, other))
        scalars = spectral_domain.gradient_descent_step(scalars, at.spectrum, 0.25)
        predicted = factorization_spectra.composed(at.basis, scalars, frame)
        return (x, other, scalars), jnp.stack([jnp.linalg.norm(x - predicted), jnp.linalg.norm(other - predicted)])

    _, gaps = jax.lax.scan(advance, (start, generic.at[0].set(0), values), length=10 * config.steps)
    return {"gap": jnp.max(gaps[:, 0]), "gap_generic": jnp.max(gaps[:, 1])}


def _digits(config: Config, key: Array) -> xr.Dataset:
    """The largest distance from the scalar prediction with one prefactor, by problem, decay and digits."""
    keys = jax.random.split(key, config.exact_seeds)
    bases = np.asarray(
        jax.vmap(lambda key: factorization_spectra.orthonormal(key, config.exact_d, config.exact_d))(keys)
    )
    spectrum = np.asarray(factorization_spectra.logarithmic_spectrum(config.exact_d, config.kappa))
    problems = {"factorization": (many_digits.factorization, MODERATE), "context": (many_digits.in_context, 0.0)}
    found = np.empty((len(problems), 2, len(DIGITS), config.exact_seeds))
    for place, (gradient, start) in enumerate(problems.values()):
        for column, rho in enumerate((CALM, UNSTABLE)):
            rates = jax.vmap(lambda key, rho=rho: _rates(config, key, jnp.asarray(rho))[0])(keys)
            lengths = np.asarray(rates) * (1.0 if start else config.kappa)
            for last, digits in enumerate(DIGITS):
                away, _ = many_digits.from_scalars(gradient, bases, spectrum, start, lengths, digits)
                found[place, column, last] = away.max(1)
    coordinates = {"problem": list(problems), "rho": [CALM, UNSTABLE], "digits": list(DIGITS)}
    return xr.Dataset(
        {"away": (("problem", "rho", "digits", "seed"), found)}, {**coordinates, "seed": range(config.exact_seeds)}
    )


def _largest(data: Any, name: str, rho: float, steps: int | None = None) -> xr.DataArray:
    """The largest distance of a run at a decay, in its first steps or in all."""
    return data["runs"][name].sel(rho=rho).isel(step=slice(0, steps)).max("step")


def _stays(distances: xr.DataArray) -> lab.Relation:
    return lab.happens(distances < ROUNDED, more_than=MOST)


def other_decay(config: Config, data: Any) -> Any:
    """A control: the data of the two decays exchanged."""
    return {name: found.assign_coords(rho=found.rho.values[::-1]) for name, found in data.items()}


def few_digits(config: Config, data: Any) -> Any:
    """A control: the runs with 16 digits in the place of those with 100."""
    found = data["digits"]
    return {**data, "digits": found.assign_coords(digits=found.digits.values[::-1])}


def _exact(name: str, cites: tuple[str, ...], says: str, problem: str) -> lab.Statement:
    @lab.statement(cites, says, name=name, controls={f"{DIGITS[0]} digits": few_digits})
    def exact(config: Config, data: Any) -> lab.Relation:
        return lab.identity(data["digits"]["away"].sel(problem=problem, digits=DIGITS[-1]), tolerance=ROUNDED)

    return exact


@lab.statement(
    ("lemma-3", "eq-15"),
    f"In float64 too: in most runs at ρ = {CALM} the iterates are the scalar sequences over {EARLY} steps.",
    controls={"a start that is not aligned": lab.replacing("factorization.one", "factorization.generic", of="runs")},
)
def calm(config: Config, data: Any) -> lab.Relation:
    """With one prefactor."""
    return _stays(_largest(data, "factorization.one", CALM, EARLY))


@lab.statement(
    "eq-43b",
    f"‖X Xᵀ - M‖ is the largest |x_i² - λ_i| of the scalar sequences, after all steps at ρ = {CALM}, in most runs.",
    controls={
        "a start that is not aligned": lab.replacing("factorization.error", "factorization.error_generic", of="runs")
    },
)
def error(config: Config, data: Any) -> lab.Relation:
    """By the operator norm."""
    return _stays(data["runs"]["factorization.error"].sel(rho=CALM))


@lab.statement(
    "lemma-8",
    f"In float64 too: in most runs at ρ = {CALM}, symmetrized, in-context iterates are the scalar sequences.",
    controls={f"ρ = {UNSTABLE}": other_decay},
)
def context_calm(config: Config, data: Any) -> lab.Relation:
    """With one prefactor."""
    return _stays(_largest(data, "context.one", CALM))


@lab.statement(
    "lemma-3",
    "Gradient descent from an aligned start stays at its scalar sequences.",
    corrected=True,
    controls={"a start that is not aligned": lab.replacing("descent.gap", "descent.gap_generic", of="runs")},
)
def descent(config: Config, data: Any) -> lab.Relation:
    """It divides by nothing."""
    return lab.identity(data["runs"]["descent.gap"].isel(rho=0), tolerance=ROUNDED)


@lab.statement(
    "eq-12",
    f"From a start of scale {SMALL:g} with k = r the left singular space of the iterates is that of M, in most runs: at most 1 % of "
    "‖X Xᵀ‖ ever lies off the diagonal in the basis of M.",
    controls={f"a start of scale {MODERATE}": lab.replacing("alignment.small", "alignment.moderate", of="runs")},
)
def aligned(config: Config, data: Any) -> lab.Relation:
    """At both decays, with new prefactors."""
    return lab.happens(data["runs"]["alignment.small"] < 0.01, more_than=MOST)


@lab.statement(
    "eq-12",
    f"The aligned set repels: in float64 with one prefactor at ρ = {UNSTABLE} most runs are more than {LOST:g} away from the scalar "
    "sequences at some step.",
    corrected=True,
    controls={
        f"ρ = {CALM}": other_decay,
        "new prefactors": lab.replacing("factorization.one", "factorization.new", of="runs"),
    },
)
def repels(config: Config, data: Any) -> lab.Relation:
    """What many digits undo."""
    return lab.happens(_largest(data, "factorization.one", UNSTABLE) > LOST, more_than=MOST)


@lab.statement(
    "eq-12",
    f"That is amplified rounding: within {EARLY} steps at ρ = {UNSTABLE} a displacement grows more than tenfold in most runs, and by the "
    f"same factor, to a factor of ten, whether it is {DISPLACEMENTS[0]:g} or {DISPLACEMENTS[1]:g}.",
    corrected=True,
    controls={f"ρ = {CALM}": other_decay},
)
def amplified(config: Config, data: Any) -> lab.Relation:
    """The dynamics amplify, linearly, what rounding puts in."""
    small, large = (data["runs"][f"factorization.gain_{size}"].sel(rho=UNSTABLE) for size in ("small", "large"))
    same = (small > 10) & (abs(np.log10(large / small)) < 1)
    return lab.happens(same.rename("amplified alike"), more_than=MOST)


@lab.statement(
    ("lemma-3", "eq-12"),
    f"New prefactors in each step keep float64 at the scalar sequences at ρ = {UNSTABLE} too, in most runs.",
    corrected=True,
    controls={"one prefactor": lab.replacing("factorization.new", "factorization.one", of="runs")},
)
def remedy(config: Config, data: Any) -> lab.Relation:
    """They do not visit the same points again."""
    return _stays(_largest(data, "factorization.new", UNSTABLE))


@lab.statement(
    "lemma-8",
    f"In context new prefactors and symmetrization keep float64 at the scalar sequences at ρ = {UNSTABLE}, in most runs.",
    corrected=True,
    controls={"one prefactor": lab.replacing("context.new", "context.one", of="runs")},
)
def context_remedy(config: Config, data: Any) -> lab.Relation:
    """As in the factorization."""
    return _stays(_largest(data, "context.new", UNSTABLE))


EXPERIMENT = lab.Experiment(
    "decoupling",
    ledger("preconditioning"),
    title="Muon's matrix iterates as scalar sequences, and what rounding does to them",
    summary="From an aligned start the matrix iterates are the scalar sequences, as Lemmas 3 and 8 say: with a hundred digits at every "
    "decay. But the aligned set repels: where a sequence lands near its root the polar factor magnifies what is off it. With one "
    "prefactor and a slow decay float64 loses all digits; new prefactors in each step, a faster decay, and in context symmetrization "
    "limit the damage.",
    config=Config,
    measure=run,
    statements=(
        _exact("exact", ("lemma-3", "eq-15"), "From X_0 = U Σ_0 Wᵀ the iterates are U diag(x_t) Wᵀ.", "factorization"),
        _exact(
            "context-exact", ("lemma-8", "theorem-3"), "From Q_0 = 0 in-context iterates are U diag(q_t) Uᵀ.", "context"
        ),
        calm,
        error,
        context_calm,
        descent,
        aligned,
        repels,
        amplified,
        remedy,
        context_remedy,
    ),
    scales={
        # What rounding does differs from processor to processor: so many runs that most of them are most on each.
        "smoke": {"d": 5, "k": 6, "steps": 60, "seeds": 150, "exact_d": 3, "exact_seeds": 3},
        "paper": {"d": 20, "k": 20, "seeds": 100, "steps": 160, "exact_seeds": 24},
    },
)
