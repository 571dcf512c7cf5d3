"""Iterations to an accuracy with the best of three step sizes, at each condition number."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sizes, sweep
from specjax.experiments.preconditioning import runs
from specjax.models import conditioned, in_context_regression
from specjax.theory.preconditioning import iterations, spectral_domain
from specjax.theory.preconditioning.conditions import check_decay, check_ranks

# Step sizes of every optimizer: fractions of the distance, of 1/curvature, or of 1 for ScaledGD.
RATES = (1 / 4, 1 / 2, 1.0)
# Scale of the factor's start, below √ε: with more columns than r, null directions of gradient
# descent fall as 1/√t.
START = 1e-5
MORE = 2  # Columns beyond the rank in the over-parameterized factorization.
_kappas = partial(lab.config.ascending, least=1)
GROUPS = {
    "flat": ("factorization", "kappas", ("muon", "muon-momentum", "muon-newton-schulz", "scaled")),
    "slow": ("factorization", "slow_kappas", ("muon", "gradient-descent", "gradient-descent-over")),
    "entrywise": ("factorization", "entrywise_kappas", ("muon", "sign", "adam")),
    "context": ("context", "context_kappas", ("muon", "muon-momentum", "muon-newton-schulz")),
    "context_slow": (
        "context",
        "context_slow_kappas",
        ("muon", "gradient-descent", "sign", "adam"),
    ),
    "regression": ("regression", "regression_kappas", ("muon-plateau", "gradient-descent")),
}
"""The problem, the configuration's field of condition numbers, and the optimizers."""


class Config(lab.Config):
    """Sizes and condition numbers; step sizes, accuracy and limit are the same for all."""

    d: int = lab.config.integer(8, least=2, help="rows of the factor X")
    r: int = lab.config.integer(3, least=1, help="rank of the target M and columns of X")
    context_d: int = lab.config.integer(
        6, least=2, help="columns of Q, and of W with half as many rows and one"
    )
    kappas: tuple[float, ...] = _kappas(
        10, 1e3, 1e6, points=2, help="condition numbers of Muon, variants and ScaledGD"
    )
    slow_kappas: tuple[float, ...] = _kappas(
        1, 10, 20, 40, 80, points=3, first=1, help="of gradient descent on M"
    )
    entrywise_kappas: tuple[float, ...] = _kappas(
        10, 100, 1e3, points=2, help="those of SignGD and Adam on M"
    )
    context_kappas: tuple[float, ...] = _kappas(
        10, 100, 1e4, points=2, help="those of Muon in context"
    )
    context_slow_kappas: tuple[float, ...] = _kappas(
        1, 2, 3, 6, points=3, first=1, help="of the others in context"
    )
    cubic_kappas: tuple[float, ...] = _kappas(
        2, 4, 8, 16, 32, points=5, help="those of the exponent in context"
    )
    cubic_seeds: int = lab.config.seeds(
        80, help="samples there, so many that the data allow no logarithm beside another power"
    )
    regression_kappas: tuple[float, ...] = _kappas(
        10, 30, 100, points=2, help="those of matrix regression"
    )
    aligned_kappas: tuple[float, ...] = _kappas(
        1e2, 1e4, 1e6, points=2, help="those of scalar gradient descent"
    )
    accuracy: float = lab.config.number(
        1e-8, above=1e-13, below=1, help="error relative to the target, above rounding"
    )
    rho: float = lab.config.number(
        0.9, above=0, below=1, help="decay of Muon's random geometric schedule"
    )
    limit: int = lab.config.integer(
        4000, least=1, most=lab.config.MOST_COUNT, help="steps after which a run is given up"
    )
    seeds: int = lab.config.seeds(
        40, least=20, help="problems and starts at each κ, 20 for the interval of a median"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranks(self.d, self.r + MORE, self.r)
        check_decay(self.rho, 2 / 3)


def run_group(config: Config, key: Key[Array, ""], group: str) -> xr.Dataset:
    """Steps of a group at the best step size, in float64."""
    kappas = getattr(config, GROUPS[group][1])
    over = {"kappa": sweep.values(*kappas), "rate": sweep.values(*RATES)}
    measure = partial(_steps, config, group=group)
    with jax.enable_x64(True):
        found = lab.seeded_sweep(key, f"runs of {group}", measure, config.seeds, **over)
    return found.min("rate")


def run_cubic(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Steps of gradient descent in context to the end, in float64."""
    measure, kappas = partial(_cubic, config), sweep.values(*config.cubic_kappas)
    with jax.enable_x64(True):
        return lab.seeded_sweep(key, "cubic", measure, config.cubic_seeds, kappa=kappas)


def run_aligned(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Steps of gradient descent on M from aligned starts, in float64."""
    measure, rates = partial(_aligned, config), sweep.values(0.5)
    with jax.enable_x64(True):
        found = lab.seeded_sweep(key, "aligned", measure, config.seeds, rate=rates)
    kappas = list(config.aligned_kappas)
    return sweep.labelled(found.isel(rate=0, drop=True), "kappa", kappa=kappas)


def run_risk(config: Config, key: Key[Array, ""]) -> xr.Dataset:
    """Squared error of linear attention, in float64."""
    with jax.enable_x64(True):
        return _risk(config, key)


def _posed(
    config: Config, problem: str, key: Array, kappa: Array, columns: int
) -> conditioned.Problem:
    if problem == "factorization":
        return conditioned.factorization(key, kappa, config.d, config.r, columns, START)
    if problem == "context":
        return conditioned.in_context(key, kappa, config.context_d)
    return conditioned.regression(key, kappa, config.context_d // 2 + 1, config.context_d)


def _steps(
    config: Config, key: Array, kappa: Array, rate: Array, *, group: str
) -> dict[str, Array]:
    problem, _, names = GROUPS[group]
    # This many steps of a geometric schedule end far below the accuracy; a later run never arrives.
    over, found = int(np.log(config.accuracy / 100) / np.log(config.rho)), {}
    for name in names:
        optimizer, columns = name.removesuffix("-over"), config.r + MORE * name.endswith("-over")
        posed = _posed(config, problem, sizes.stream(key, "problem"), kappa, columns)
        limit = over if runs.OPTIMIZERS[optimizer].schedule == "random" else config.limit
        transform = runs.transformation(
            optimizer, sizes.stream(key, "schedule"), rate, posed, config.rho, limit
        )
        end = conditioned.steps_to(posed, transform, config.accuracy, limit)
        found[name] = jnp.where(end.error <= config.accuracy, end.steps, config.limit).astype(float)
    return found


def _cubic(config: Config, key: Array, kappa: Array) -> dict[str, Array]:
    """Gradient descent on matrices in context to the end, with a random step size at every κ."""
    key = jax.random.fold_in(
        key, jax.lax.bitcast_convert_type(kappa.astype(jnp.float32), jnp.uint32)
    )
    rate = 2 ** (-jax.random.uniform(sizes.stream(key, "rate")) / 2)
    posed = conditioned.in_context(sizes.stream(key, "problem"), kappa, 3)
    # A million steps of small matrices to ε are half a million to √ε, with the same power of κ.
    accuracy = config.accuracy**0.5
    longest = int(2 * max(config.cubic_kappas) ** 3 * abs(np.log(accuracy / 100)))
    transform = runs.transformation("gradient-descent", key, rate, posed)
    steps = conditioned.steps_to(posed, transform, accuracy, longest).steps.astype(float)
    return {"steps": steps}


def _risk(config: Config, key: Array) -> xr.Dataset:
    """Squared error of linear attention on sampled prompts, and closed forms."""
    d, n = config.context_d, 2 * config.context_d
    inputs = jax.random.normal(sizes.stream(key, "inputs"), (d, n))
    s = in_context_regression.covariance(inputs)
    # A Q whose transpose has another risk; for a normal one they are often nearly equal.
    q = s @ s @ jax.random.normal(sizes.stream(key, "q"), (d, d))
    q = q / jnp.linalg.norm(q, 2)

    def measure(key: Array, scale: Array) -> dict[str, Array]:
        task = in_context_regression.draw_tasks(sizes.stream(key, "task"), 1, d)[0]
        query = inputs[:, jax.random.randint(sizes.stream(key, "query"), (), 0, n)]
        tokens = in_context_regression.prompt(inputs, task @ inputs, query)
        return {
            "risk": (in_context_regression.prediction(tokens, scale * q) - task @ query) ** 2,
            "exact": 2 * in_context_regression.loss(scale * q, s),
            "transposed": 2 * in_context_regression.loss(scale * q.T, s),
            "without_root": jnp.sum((s @ (scale * q) - jnp.eye(d)) ** 2),
        }

    return lab.seeded_sweep(
        key, "prompts", measure, 2000 * config.seeds, scale=sweep.values(0.0, 1.0, 3.0)
    )


def _aligned(config: Config, key: Array, rate: Array) -> dict[str, Array]:
    """Steps of gradient descent on M from aligned starts, by recursions and by the flow."""
    scale, accuracy = 10 ** (2 * jax.random.uniform(key) - 7), config.accuracy / 100
    limit = int(max(config.aligned_kappas) * abs(np.log(config.accuracy * 1e-14)) / 0.5)

    def compare_at(kappa: Array) -> dict[str, Array]:
        spectrum = jnp.stack([jnp.ones_like(kappa), 1 / kappa])
        start, lams = jnp.full_like(spectrum, scale), (1 / kappa, kappa**-0.5)
        steps = spectral_domain.gradient_descent_steps(
            start, spectrum, rate, accuracy, limit
        ).astype(float)
        flow, root = (
            iterations.gradient_flow_factorization(lam, scale, accuracy, rate) for lam in lams
        )
        return {
            "steps": steps,
            "gap": jnp.abs(steps / flow - 1),
            "root_gap": jnp.abs(steps / root - 1),
        }

    # κ by κ: in one loop all would wait for the largest, whose steps are most of the work.
    return jax.lax.map(compare_at, jnp.asarray(config.aligned_kappas, rate.dtype))


PARTS = {group: partial(run_group, group=group) for group in GROUPS} | {
    "cubic": run_cubic,
    "aligned": run_aligned,
    "risk": run_risk,
}
