"""Runs of Muon with geometric schedules of steps: scalar sequences, matrices and many digits."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.preconditioning import runs
from specjax.linalg import singular_values
from specjax.models import conditioned
from specjax.models.factorization_spectra import logarithmic_spectrum
from specjax.theory.preconditioning import alignment, iterations, many_digits, perturbation, scalar
from specjax.theory.preconditioning.conditions import check_ranks

FAST, SLOW = (
    0.7,
    0.9,
)  # Decays; with one prefactor rounding dominates from 0.8 on, see `decoupling`.
START = 0.5  # The scale of the start of Theorem 1(a), any up to √λ_1.
SCALES = (1e-12, 1e-11, 1e-3, 1e-1)  # Scales of the start of Theorem 1(b).
# Steps over which magnifications are multiplied: float64 has 16 digits, and 0.7^48 = 4e-8 is the
# smallest step.
LENGTHS = (4, 8, 16, 32, 48)
DELTAS = (1e-4, 3e-4)  # Values of g of which Lemma 6 bounds the probability, with a bound below 1.


class Config(lab.Config):
    """Sizes, condition numbers and seeds."""

    d: int = lab.config.integer(8, least=3, help="rows of the factor, dimension of S")
    r: int = lab.config.integer(3, least=2, help="rank of M where it is below d")
    ks: tuple[int, ...] = lab.config.sizes(3, 5, help="columns for Theorem 1(b), from r to below d")
    wide: int = lab.config.integer(10, least=3, help="columns for Theorem 1(a), at least d")
    kappas: tuple[float, ...] = lab.config.ascending(
        1, 1e3, least=1, help="condition numbers of M and S"
    )
    accuracy: float = lab.config.number(
        1e-8, above=1e-13, below=1, help="error relative to the target, above rounding"
    )
    seeds: int = lab.config.seeds(2000, least=24, help="runs of Theorem 1(b), and scalar sequences")
    map_seeds: int = lab.config.seeds(
        120, least=24, help="runs of Theorems 1(a) and 3, and of 1(b) at each scale"
    )
    exact_d: int = lab.config.integer(4, least=3, help="dimension of the runs with many digits")
    exact_seeds: int = lab.config.seeds(24, least=3, help="those runs")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranks(self.d, self.ks[0], self.r)
        if max(self.ks) >= self.d:
            raise ValueError(
                f"ks must be below d={self.d}, as in Theorem 1(b), got {self.ks}; wide is for the"
                " others."
            )
        if self.wide < self.d:
            raise ValueError(
                f"wide must be at least d={self.d}, for Theorem 1(a), got {self.wide}."
            )


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Scalar sequences, matrix runs, the auxiliary trajectory, and runs with many digits."""
    many, few, kappas = config.seeds, config.map_seeds, sweep.values(*config.kappas)
    with jax.enable_x64(True):
        scalars = lab.seeded_sweep(key, "scalars", partial(_scalars, config), many, kappa=kappas)
        scalars = sweep.labelled(
            scalars, "delta", outputs=("below", "aimed", "lemma_6"), delta=list(DELTAS)
        )
        small = lab.seeded_sweep(key, "small", partial(_small, config), many, kappa=kappas)
        starts = lab.seeded_sweep(
            key, "starts", partial(_starts, config), few, kappa=kappas, scale=sweep.values(*SCALES)
        )
        return {
            "scalars": sweep.labelled(scalars, "T", outputs=("exact", "over"), T=list(LENGTHS)),
            "wide": lab.seeded_sweep(key, "wide starts", partial(_wide, config), few, kappa=kappas),
            "small": sweep.labelled(small, "k", k=list(config.ks)),
            "starts": sweep.labelled(starts, "k", k=list(config.ks)),
            "digits": _digits(config, sizes.stream(key, "digits")),
        }


THEOREMS = {
    "1a": (iterations.theorem_1a, 1.0, FAST),
    "1a_slow": (iterations.theorem_1a, 1.0, SLOW),
    "1b": (iterations.theorem_1b, 1.0, FAST),
    "3": (iterations.theorem_3, 1.0, SLOW),
    # New prefactors in [1/2, 1] need Lemma 11 in place of Lemma 9, 1/(1 - ρ) in place of 2 C.
    "3_new": (iterations.theorem_3, 0.5 / (1 - SLOW), SLOW),
}
"""Iteration bound of each theorem, its λ_1 or C for targets of norm 1, and the steps' decay."""


def steps(config: Config, theorem: str) -> int:
    """The iterations after which a theorem promises arrival at every κ, also while tracing."""
    bound, largest, rho = THEOREMS[theorem]
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        return int(np.ceil(float(bound(largest, config.accuracy, rho))))


def _rates(config: Config, key: Array, theorem: str, times: int = 1) -> tuple[Array, Array]:
    """One prefactor and new ones, for a multiple of a theorem's steps."""
    return runs.prefactors(
        sizes.stream(key, "rates"), THEOREMS[theorem][2], times * steps(config, theorem)
    )


def _spectrum(size: int, rank: int, kappa: Array | float) -> Array:
    return jnp.concatenate([logarithmic_spectrum(rank, kappa), jnp.zeros(size - rank)])


def _scalars(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    """Steps at which sequences have not reached their roots: r = d, r < d, and in context."""
    full, null = logarithmic_spectrum(config.d, kappa), _spectrum(config.d, config.r, kappa)

    def late(errors: Array) -> Array:
        return jnp.sum(jnp.max(jnp.abs(errors), 1) > config.accuracy).astype(float)

    found = {}
    # A control: steps with the small prefactors are too short to reach the roots.
    for name, size in (("one", 1.0), ("one_small", 1 / 64)):
        for rank, lam in (("full", full), ("null", null)):
            rates = size * _rates(config, key, "1a_slow", times=2)[0]
            x = scalar.factorization_path(jnp.full_like(lam, START), lam, rates)
            found[f"{name}_{rank}"] = late(x**2 - lam[None])
        rates = size * kappa * _rates(config, key, "3", times=2)[0]
        q = scalar.regression_path(jnp.zeros_like(full), 1 / full, rates)
        found[f"{name}_context"] = late((q - 1 / full[None]) / kappa)
    return found | _gradients(config, key) | _products(config, key)


def _smallest(x: Array, lam: Array) -> Array:
    return jnp.min(jnp.abs((x**2 - lam) * x), axis=-1)


def _gradients(config: Config, key: Array) -> dict[str, Array]:
    """Lemma 6 at the ninth step, and with that step aimed at a root."""
    lam, past, t, delta = (
        logarithmic_spectrum(config.r, 10.0),
        sizes.stream(key, "past"),
        9,
        jnp.asarray(DELTAS),
    )
    x = scalar.factorization_path(
        jnp.full_like(lam, START), lam, runs.prefactors(past, FAST, t)[1]
    )[-2]
    length = FAST ** (t - 1) / 2
    drawn = length * (1 + jax.random.uniform(sizes.stream(past, "last")))
    rates = drawn, jnp.abs(x[0] - jnp.sqrt(lam[0]))
    g, aimed = (_smallest(scalar.factorization_step(x, lam, rate), lam) for rate in rates)
    bound = alignment.small_gradient_bound(lam, delta, jnp.full_like(delta, length))
    return {
        "below": (g <= delta).astype(float),
        "aimed": (aimed <= delta).astype(float),
        "lemma_6": bound,
    }


def _products(config: Config, key: Array) -> dict[str, Array]:
    """Lemma 7: log product of magnifications over T steps, for k = r and three null columns."""
    rates, found = runs.prefactors(sizes.stream(key, "products"), FAST, max(LENGTHS))[1], {}
    for name, columns in (("exact", config.r), ("over", config.r + 3)):
        lam = _spectrum(columns, config.r, jnp.asarray(10.0))
        x = scalar.factorization_path(jnp.full_like(lam, START), lam, rates)[1:-1]
        growth = alignment.growth_bound(
            rates[1:], _smallest(x, lam[None]), jnp.ones_like(rates[1:]), 1.0
        )
        found[name] = jnp.cumsum(jnp.log(growth))[jnp.asarray(LENGTHS) - 2]
    return found


def _muon(posed: conditioned.Problem, rates: Array, start: Array) -> Array:
    return runs.muon(start, rates * posed.length, posed.gradient, posed.project)


def _arrives(config: Config, posed: conditioned.Problem, rates: Array) -> Array:
    return (
        jnp.linalg.norm(posed.residual(_muon(posed, rates, posed.start)[-1]), 2) <= config.accuracy
    )


def _wide(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    """Theorem 1(a) in float64 with r = d and r < d; Theorem 3 with new prefactors and with one."""
    problem, found = sizes.stream(key, "problem"), {}
    for name, rank in (("d", config.d), ("r", config.r)):
        posed = conditioned.factorization(problem, kappa, config.d, rank, config.wide, START)
        found[f"rank_{name}"] = _arrives(config, posed, _rates(config, key, "1a")[0])
        found[f"rank_{name}_slow"] = _arrives(config, posed, _rates(config, key, "1a_slow")[0])
    context = conditioned.in_context(problem, kappa, config.d)
    for name, drawn in zip(("one", "new"), _rates(config, key, "3_new"), strict=True):
        found[f"context_{name}"] = _arrives(config, context, drawn)
    return found


def _small(
    config: Config, key: Array, kappa: Array, scale: Array | float = SCALES[0]
) -> dict[str, Array]:
    """Arrivals of Theorem 1(b), by default from the smallest start."""
    problem, rates = sizes.stream(key, "problem"), _rates(config, key, "1b")[1]
    posed = [
        conditioned.factorization(problem, kappa, config.d, config.r, k, scale) for k in config.ks
    ]
    return {"arrives": jnp.stack([_arrives(config, each, rates) for each in posed])}


def _starts(config: Config, key: Array, kappa: Array, scale: Array) -> dict[str, Array]:
    """Theorem 1(b) from scaled starts: arrivals, and distances to the auxiliary path."""
    rates, r = _rates(config, key, "1b")[1], config.r
    posed = conditioned.factorization(sizes.stream(key, "problem"), kappa, config.d, r, r, scale)
    m, v = -posed.residual(jnp.zeros_like(posed.start)), posed.start / scale
    first = rates[0] * alignment.auxiliary_start(m, v, r)
    path = _muon(posed, rates, posed.start)
    auxiliary = jnp.concatenate([first[None], _muon(posed, rates[1:], first)])
    apart, *norms = singular_values(jnp.stack([path - auxiliary, path, auxiliary]))[..., 0]
    size, values = jnp.maximum(*norms)[:-1], singular_values(jax.vmap(posed.gradient)(auxiliary))
    # Distances below 1e-13 are rounding, whose growth is not a magnification.
    seen, grown = apart[:-1] > 1e-13, apart[1:] / jnp.maximum(apart[:-1], 1e-13)

    def against(g: Array) -> Array:
        bound = alignment.growth_bound(rates[1:], g, size, jnp.ones_like(size))
        return jnp.max(jnp.where(seen, grown / bound, 0))

    sigma = singular_values(m @ v)[r - 1]
    truncated = perturbation.best_approximation(posed.gradient(posed.start), r)
    moved = jnp.linalg.norm(spectral.polar(truncated) + spectral.polar(m @ v))
    return _small(config, key, kappa, scale) | {
        "apart": jnp.max(apart),
        "early": apart[r],
        "growth": against(values[:-1, -1]),
        "growth_most": against(values[:-1, 0]),
        "first": moved / alignment.first_step_bound(sigma, scale, r, r),
        "first_half": moved / alignment.first_step_bound(sigma, scale / 2, r, r),
    }


def _digits(config: Config, key: Array) -> xr.Dataset:
    """Theorem 1(a) with slow decay and one prefactor: errors at all and half of its steps."""
    keys, ranks = (
        jax.random.split(key, config.exact_seeds),
        {
            "d": config.exact_d,
            "below d": config.exact_d - 2,
        },
    )

    def rates(key: Array) -> Array:
        return _rates(config, key, "1a_slow")[0]

    spectra = [
        _spectrum(config.exact_d, rank, jnp.asarray(config.kappas[-1])) for rank in ranks.values()
    ]
    errors = [
        runs.muon_of_many_digits(many_digits.factorization, keys, lam, START, rates, 100)[1]
        for lam in spectra
    ]
    found = xr.DataArray(errors, {"rank": list(ranks)}, dims=("rank", "seed", "step"))
    return xr.Dataset(
        {"error": found.isel(step=-1), "halfway": found.isel(step=found.sizes["step"] // 2)}
    )
