"""Claim 8: the limit of Ortho of a sum, and M^(-1/2) μ by noise level, shape and batch size."""

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.claims.matrices import cosine, relative, spectra
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger
from specjax.theory import second_moment

COUNTS = (16, 64, 256, 1024, 4096)
NOISE = 0.5
M, N = 4, 3
SHAPES = {"wide": (3, 8), "tall": (8, 3), "vector": (5, 1)}
NOISES = (0.1, 0.3, 1.0, 3.0)
BATCHES = (1, 16)
ROUNDING = 1e-9
"""Relative errors up to this are rounding; noise that reaches μ gives errors above 1e-4."""


class Config(lab.Config):
    """Samples in a mean, and matrices on which an identity is tried."""

    gradients: int = lab.config.seeds(10_000, least=500, help="samples of a mean of k gradients")
    matrices: int = lab.config.seeds(200, least=20, help="random means μ")


def means(seed: int) -> dict[str, Float[np.ndarray, "m n"]]:
    """μ of full rank and of rank 1, (4, 3), in float64, the same for every seed."""
    with jax.enable_x64(True):
        spectrum = {"full_rank": jnp.asarray([2.0, 1.5, 1.0]), "rank_one": jnp.asarray([2.0])}
        found = spectra(
            sizes.stream(jax.random.key(seed), "means"), dict.fromkeys(spectrum, (M, N)), spectrum
        )
        return {name: np.asarray(mu) for name, mu in found.items()}


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Distances of Ortho(Σ G_i) from Ortho(μ) by k, and M^(-1/2) μ under four kinds of noise."""
    given = means(config.seed)

    def limit(key: Key[Array, ""], k: Array) -> dict[str, Array]:
        # The mean of k normal gradients has the noise of one divided by √k.
        mus = {name: jnp.asarray(mu) for name, mu in given.items()}
        noise = NOISE * jax.random.normal(key, (M, N)) / jnp.sqrt(k)
        found = {
            name: jnp.linalg.norm(spectral.polar(mu + noise) - spectral.polar(mu))
            for name, mu in mus.items()
        }
        # Both signs of the noise are used, which cancels the cross term with μ.
        both = [mus["full_rank"] + sign * noise for sign in (1, -1)]
        return {**found, "outer_product": sum(g @ g.T for g in both) / 2}

    def alignment(
        key: Key[Array, ""], noise: Array, batch_size: Array
    ) -> dict[str, dict[str, Array]]:
        values = {name: jnp.linspace(1.0, 0.25, min(shape)) for name, shape in SHAPES.items()}
        mus = spectra(key, SHAPES, values)
        results = {}
        for name, mu in mus.items():
            left, right, full = second_moment.isotropic_moments(mu, noise, batch_size)
            kronecker, whole = (
                second_moment.kronecker_direction(left, right, mu),
                second_moment.full_direction(full, mu),
            )
            smoothed = second_moment.isotropic_left_direction(mu, noise, batch_size)
            results[name] = _against(left, mu) | {
                "left_formula": relative(second_moment.left_direction(left, mu), smoothed),
                "kronecker_misaligned": jnp.abs(1 - cosine(kronecker, spectral.polar(mu))),
                "full_misaligned": jnp.abs(1 - cosine(whole, spectral.polar(mu))),
                "full_error": relative(whole, spectral.polar(mu)),
                "full_formula": relative(
                    whole, second_moment.isotropic_full_direction(mu, noise, batch_size)
                ),
            }
        # Noise orthogonal to the columns of μ, made of the other matrix of its shape, and noise
        # along μ.
        mu, z, tau = mus["tall"], mus["wide"].T, noise**2 / batch_size
        gram, factor = mu @ mu.T, spectral.polar(mu)
        beside = z - factor @ (factor.T @ z)
        for name, moment in {
            "beside": gram + tau * beside @ beside.T,
            "along": (1 + tau) * gram,
        }.items():
            multiple = jnp.sum(moment * gram) / jnp.sum(gram**2) * gram
            results[name] = _against(moment, mu) | {"not_proportional": relative(multiple, moment)}
        return results

    over = {"noise": sweep.values(*NOISES), "batch_size": sweep.values(*map(float, BATCHES))}
    counts = {"k": sweep.values(*map(float, COUNTS))}
    with jax.enable_x64(True):
        limits = lab.seeded_sweep(key, "limits", limit, config.gradients, **counts)
        aligned = lab.seeded_sweep(key, "alignment", alignment, config.matrices, **over)
    return {"limits": sweep.labelled(limits, "row", "column"), "alignment": aligned}


def _against(moment: Array, mu: Array) -> dict[str, Array]:
    """Compare M^(-1/2) μ with Ortho(μ), and M with the conditions for equality."""
    direction, factor = second_moment.left_direction(moment, mu), spectral.polar(mu)
    return {
        "left_error": relative(direction, factor),
        "left_misaligned": jnp.abs(1 - cosine(direction, factor)),
        "residual": second_moment.condition_residual(moment, mu),
        "direction_residual": second_moment.direction_residual(moment, mu),
    }


def moment(noise: float, columns: int = N) -> Callable[[Any, Any], xr.DataArray]:
    """μ μᵀ + columns · noise/k · I at each k."""

    def form(config: Config, data: Mapping[str, xr.Dataset]) -> xr.DataArray:
        mu = means(config.seed)["full_rank"]
        gram, identity = (xr.DataArray(a, dims=("row", "column")) for a in (mu @ mu.T, np.eye(M)))
        return gram + columns * noise / data["limits"].k * identity

    return form


states = lab.Statements()
LIMITS, ALIGNED = Measured(states, "limits"), Measured(states, "alignment", ROUNDING)

FALL, RANK_ONE = {"it stays": 0.0, "1/k": -1.0}, {"a mean of rank 1": "rank_one"}
LIMITS.power(
    "k", -0.5, "limit-at-full-rank", "claim-8", "full_rank", RANK_ONE, rivals=FALL, corrected=True
)("Ortho(Σ G_i) tends to Ortho(μ) where μ has full rank: the distance falls as k^(-1/2).")

FULL_RANK = {"a mean of full rank": "full_rank"}
LIMITS.on(
    lambda x, *_: lab.vanishes(x, "k"),
    "limit-at-every-mean",
    "claim-8",
    "rank_one",
    FULL_RANK,
    holds=False,
)("Ortho(Σ G_i) tends to Ortho(μ) for every μ, by continuity of Ortho: also where μ has rank 1.")

TWO = ("claim-8", "preamble-approximates")
WRONG = {"without noise": moment(0.0), "m for n": moment(NOISE**2, M), "σ for σ²": moment(NOISE)}
LIMITS.mean(
    moment(NOISE**2), "second-moment-of-a-mean", TWO, "outer_product", rivals=WRONG, corrected=True
)("With isotropic noise of variance σ² and mean gradients of b samples M = μ μᵀ + n (σ²/b) I.")

BESIDE = "noise that leaves the columns of μ alone"
ALIGNED.agree(
    "proportional",
    "claim-8-equality",
    "along.left_error",
    {BESIDE: "beside.left_error"},
    holds=False,
)("M^(-1/2) μ = Ortho(μ) where M ∝ μ μᵀ.")

ISOTROPIC, ALONG = (
    {"isotropic noise": "tall.left_error"},
    {"noise along μ": "along.not_proportional"},
)
ALIGNED.differ(
    "only-if-proportional", "claim-8-equality", "beside.left_error", ISOTROPIC, holds=False
)(
    "They differ where M is not a multiple of μ μᵀ, so also for noise that leaves the columns of μ"
    " alone."
)
ALIGNED.differ(
    "beside-is-not-proportional",
    "claim-8-equality",
    "beside.not_proportional",
    ALONG,
    corrected=True,
)("That noise does make M no multiple of μ μᵀ.")


def pair_errors(names: tuple[str, ...], errors: tuple[str, ...], by: str) -> dict[str, str]:
    """Pair the errors of each noise or shape with those of `by` that replace them."""
    return {f"{name}.{error}": f"{by}.{error}" for name in names for error in errors}


isotropic = pair_errors(("beside",), ("left_error", "residual"), "tall")
ALIGNED.agree(
    "sufficient",
    "claim-8-equality",
    tuple(isotropic),
    {"isotropic noise": isotropic},
    corrected=True,
)("M^(-1/2) μ = Ortho(μ) where M U = U S² for μ = U S Vᵀ: no noise reaches the columns of μ.")

beside = pair_errors((*SHAPES, "along"), ("left_error", "residual"), "beside")
ALIGNED.differ("necessary", "claim-8-equality", tuple(beside), {BESIDE: beside}, corrected=True)(
    "Where M U differs from U S², the two differ: isotropic noise at three shapes, and noise"
    " along μ."
)

matrix = pair_errors(("along", "vector"), ("left_misaligned", "direction_residual"), "tall")
ALIGNED.agree(
    "direction",
    "claim-8-equality",
    tuple(matrix),
    {"isotropic noise on a matrix": matrix},
    corrected=True,
)("Their directions agree where M U = c U S²: noise along μ, and isotropic noise on a vector.")

polar = {f"{name}.left_formula": f"{name}.left_error" for name in SHAPES}
ALIGNED.agree(
    "smoothed", "preamble-approximates", tuple(polar), {"Ortho(μ) itself": polar}, corrected=True
)(
    "Under isotropic noise M^(-1/2) μ is the smoothed factor U S (S² + n σ²/b)^(-1/2) Vᵀ, at every"
    " noise, shape and batch."
)

full = {f"{name}.full_formula": f"{name}.full_error" for name in SHAPES}
ALIGNED.agree(
    "full-matrix", "preamble-approximates", tuple(full), {"Ortho(μ)": full}, corrected=True
)(
    "The full-matrix direction E[vec G vec Gᵀ]^(-1/2) vec μ is then a multiple of μ, not of"
    " Ortho(μ)."
)


def directions(config: Config, data: Mapping[str, xr.Dataset]) -> list[lab.Table]:
    """Tabulate mean angles between the preconditioned directions and the polar factor."""
    rows = []
    labels = {"left": "M^(-1/2) μ", "kronecker": "L^(-1/4) μ R^(-1/4)", "full": "F^(-1/2) vec μ"}
    for (name, (m, n)), batch, (kind, label) in product(SHAPES.items(), BATCHES, labels.items()):
        misaligned = (
            data["alignment"][f"{name}.{kind}_misaligned"].sel(batch_size=batch).mean("seed").values
        )
        angles = np.degrees(np.arccos(1 - np.clip(misaligned, 0, 2)))
        rows.append((f"{m}×{n}", str(batch), label, *(f"{angle:.1f}°" for angle in angles)))
    header = ("shape", "batch b", "direction", *(f"σ = {noise:g}" for noise in NOISES))
    title = (
        "Claim 8: angle to Ortho(μ), μ with singular values from 1 to 1/4, isotropic noise σ per"
        " entry"
    )
    return [lab.Table(title, header, tuple(rows))]


EXPERIMENT = lab.Experiment(
    "claims-limits",
    ledger("claims"),
    title="M^(-1/2) μ is Ortho(μ) exactly where the noise leaves the columns of μ alone",
    summary=(
        "M^(-1/2) μ is Ortho(μ) if and only if M U = U S², not where M ∝ μ μᵀ; under isotropic"
        " noise it is a smoothed Ortho(μ)."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"gradients": 3500, "matrices": 70},
        "smoke": {"gradients": 1000, "matrices": 20},
        "paper": {"gradients": 100_000, "matrices": 1000},
    },
    tables=directions,
)
