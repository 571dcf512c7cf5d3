"""Claim 8: what Ortho of a sum tends to, and when M^(-1/2) μ is the same, for every noise level, shape and batch size."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.axes import Axes

from specjax import spectral, sweep
from specjax.experiments.claims.contract import Claim, Config, corrected, printed
from specjax.experiments.claims.matrices import cosine, relative, spectra
from specjax.experiments.contract import Check, Data, Table
from specjax.experiments.verdicts import (
    closed_form_check,
    difference_check,
    equality_check,
    exponent_check,
    vanishing_check,
)
from specjax.theory import second_moment

COUNTS = (16, 64, 256, 1024, 4096)
NOISE = 0.5
M, N = 4, 3

SHAPES = {"wide": (3, 8), "tall": (8, 3), "vector": (5, 1)}
NOISES = (0.1, 0.3, 1.0, 3.0)
BATCHES = (1, 16)
ROUNDING = 1e-9


def means() -> dict[str, Array]:
    """μ of full rank and of rank 1, (4, 3), the same in every draw."""
    spectrum = {"full_rank": jnp.asarray([2.0, 1.5, 1.0]), "rank_one": jnp.asarray([2.0])}
    return spectra(jax.random.key(8), dict.fromkeys(spectrum, (M, N)), spectrum)


def run_limits(config: Config) -> Data:
    """Distance of Ortho(Σ G_i) to Ortho(μ) at each number k of gradients, and M^(-1/2) μ under four kinds of noise."""
    mus = means()

    def limit(key: Array, k: Array) -> dict[str, Array]:
        # The mean of k normal gradients has the noise of one divided by √k.
        noise = NOISE * jax.random.normal(key, (M, N)) / jnp.sqrt(k)
        found = {name: jnp.linalg.norm(spectral.polar(mu + noise) - spectral.polar(mu)) for name, mu in mus.items()}
        # Both signs of the noise, so that the cross term with μ cancels.
        both = [mus["full_rank"] + sign * noise for sign in (1, -1)]
        return {**found, "outer_product": sum(g @ g.T for g in both) / 2}

    def alignment(key: Array, noise: Array, batch_size: Array) -> dict[str, dict[str, Array]]:
        values = {name: jnp.linspace(1.0, 0.25, min(shape)) for name, shape in SHAPES.items()}
        mus = spectra(key, SHAPES, values)
        results = {}
        for name, mu in mus.items():
            factor = spectral.polar(mu)
            left, right, full = second_moment.isotropic_moments(mu, noise, batch_size)
            directions = {
                "left": second_moment.left_direction(left, mu),
                "kronecker": second_moment.kronecker_direction(left, right, mu),
                "full": second_moment.full_direction(full, mu),
            }
            results[name] = {
                **{f"{kind}_misaligned": 1 - cosine(d, factor) for kind, d in directions.items()},
                "left_error": relative(directions["left"], factor),
                "left_formula": relative(
                    directions["left"], second_moment.isotropic_left_direction(mu, noise, batch_size)
                ),
                "full_formula": relative(
                    directions["full"], second_moment.isotropic_full_direction(mu, noise, batch_size)
                ),
                "residual": second_moment.condition_residual(left, mu),
                "direction_residual": second_moment.direction_residual(left, mu),
            }
        # The other matrix of the same shape serves as noise.
        results |= _special_noise(mus["tall"], mus["wide"].T, noise**2 / batch_size)
        return results

    key = jax.random.key(config.seed)
    limits = sweep.run(limit, {"k": sweep.values(*map(float, COUNTS))}, seeds=config.gradients, key=key, chunk=10_000)
    with jax.enable_x64(True):
        over = {"noise": sweep.values(*NOISES), "batch_size": sweep.values(*map(float, BATCHES))}
        return {"limits": limits, "alignment": sweep.run(alignment, over, seeds=config.matrices, key=key)}


def _special_noise(mu: Array, z: Array, tau: Array) -> dict[str, dict[str, Array]]:
    """M^(-1/2) μ for noise that leaves the columns of μ alone, and for noise along μ itself."""
    gram, factor = mu @ mu.T, spectral.polar(mu)
    beside = z - factor @ (factor.T @ z)
    moments = {"beside": gram + tau * beside @ beside.T, "along": (1 + tau) * gram}
    results = {}
    for name, moment in moments.items():
        direction = second_moment.left_direction(moment, mu)
        multiple = jnp.sum(moment * gram) / jnp.sum(gram**2) * gram
        results[name] = {
            "left_error": relative(direction, factor),
            "left_misaligned": 1 - cosine(direction, factor),
            "residual": second_moment.condition_residual(moment, mu),
            "direction_residual": second_moment.direction_residual(moment, mu),
            "not_proportional": relative(multiple, moment),
        }
    return results


def check_limits(config: Config, data: Data) -> list[Check]:
    """Claim 8."""
    limits, alignment = data["limits"], data["alignment"]
    return [*_check_limit(limits), *_check_alignment(alignment)]


def _check_limit(limits: xr.Dataset) -> list[Check]:
    mean, stderr = (a.values for a in sweep.mean_and_stderr(limits["outer_product"]))
    mu, counts = np.asarray(means()["full_rank"], float), np.asarray(COUNTS, float)[:, None, None]
    noise = N * NOISE**2 / counts * np.eye(M)
    return [
        exponent_check(
            *printed(
                8,
                "limit-full-rank",
                "Ortho(Σ G_i) tends to Ortho(μ) where μ has full rank: the distance falls as k^(-1/2).",
            ),
            predicted=-0.5,
            resolution=0.25,
            fit=sweep.asymptotic_exponent(limits["full_rank"], "k"),
        ),
        vanishing_check(
            *printed(8, "limit-every-mean", "It does for every μ, by continuity of Ortho: also where μ has rank 1."),
            fit=sweep.fit_power_law(limits["rank_one"], "k"),
        ),
        closed_form_check(
            *corrected(
                8,
                "moment",
                "With isotropic noise of variance σ² and mean gradients of b samples M = μ μᵀ + n (σ²/b) I.",
            ),
            predicted=mu @ mu.T + noise,
            mean=mean,
            stderr=stderr,
            resolution=np.max(noise, axis=(1, 2), keepdims=True),
        ),
    ]


def _check_alignment(alignment: xr.Dataset) -> list[Check]:
    noisy = alignment["tall.left_error"].values
    violating = [alignment[f"{name}.left_error"].values for name in ("wide", "tall", "vector", "along")]
    residuals = [alignment[f"{name}.residual"].values for name in ("wide", "tall", "vector", "along")]
    directed = [alignment[f"{name}.left_misaligned"].values for name in ("along", "vector")]
    return [
        equality_check(
            *printed(8, "proportional", "M^(-1/2) μ = Ortho(μ) where M ∝ μ μᵀ."),
            error=alignment["along.left_error"],
            control=noisy,
            tolerance=ROUNDING,
        ),
        difference_check(
            *printed(
                8,
                "only",
                "They differ where M is not a multiple of μ μᵀ, so also for noise that leaves the columns of μ alone.",
            ),
            difference=np.max(alignment["beside.left_error"].values),
            resolution=ROUNDING,
        ),
        equality_check(
            *corrected(
                8,
                "sufficient",
                "M^(-1/2) μ = Ortho(μ) where M U = U S² for μ = U S Vᵀ: no noise reaches the columns of μ.",
            ),
            error=np.maximum(alignment["beside.left_error"], alignment["beside.residual"]),
            control=noisy,
            tolerance=ROUNDING,
        ),
        difference_check(
            *corrected(
                8,
                "necessary",
                "Where M U differs from U S², the two differ: smallest error over all noise that violates it.",
            ),
            difference=np.min(np.where(np.stack(residuals) > ROUNDING, np.stack(violating), np.inf)),
            resolution=ROUNDING,
        ),
        equality_check(
            *corrected(
                8,
                "direction",
                "Their directions agree where M U = c U S²: noise along μ, and isotropic noise on a vector.",
            ),
            error=np.stack(directed),
            control=alignment["tall.left_misaligned"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(
                8,
                "smoothed",
                "Under isotropic noise M^(-1/2) μ is the smoothed factor U S (S² + n σ²/b)^(-1/2) Vᵀ, at every noise, shape and batch.",
            ),
            error=np.stack([alignment[f"{name}.left_formula"].values for name in SHAPES]),
            control=noisy,
            tolerance=ROUNDING,
        ),
        equality_check(
            *corrected(
                8,
                "full-matrix",
                "The full-matrix direction E[vec G vec Gᵀ]^(-1/2) vec μ is then a multiple of μ, not of Ortho(μ).",
            ),
            error=np.stack([alignment[f"{name}.full_formula"].values for name in SHAPES]),
            control=alignment["tall.full_misaligned"],
            tolerance=ROUNDING,
        ),
    ]


def alignment_table(config: Config, data: Data) -> Table:
    """Mean angles between the preconditioned directions and the polar factor."""
    alignment = data["alignment"]
    rows = []
    for name, (m, n) in SHAPES.items():
        for batch in BATCHES:
            for kind, label in (
                ("left", "M^(-1/2) μ"),
                ("kronecker", "L^(-1/4) μ R^(-1/4)"),
                ("full", "F^(-1/2) vec μ"),
            ):
                misaligned = alignment[f"{name}.{kind}_misaligned"].sel(batch_size=batch).mean("seed").values
                angles = np.degrees(np.arccos(1 - np.clip(misaligned, 0, 2)))
                rows.append((f"{m}×{n}", str(batch), label, *(f"{angle:.1f}°" for angle in angles)))
    header = ("shape", "batch b", "direction", *(f"σ = {noise:g}" for noise in NOISES))
    return Table(
        "Claim 8: angle to Ortho(μ), μ with singular values from 1 to 1/4, isotropic noise σ per entry",
        header,
        tuple(rows),
    )


def draw_limits(axes: Axes, config: Config, data: Data) -> None:
    """Angle to Ortho(μ) of the three directions against the noise, for each shape at batch 1."""
    for index, (kind, label) in enumerate(
        (("left", "M^(-1/2) μ"), ("kronecker", "Kronecker"), ("full", "full matrix"))
    ):
        for style, name in zip(("-", "--", ":"), SHAPES, strict=True):
            misaligned = data["alignment"][f"{name}.{kind}_misaligned"].sel(batch_size=1).mean("seed")
            angles = np.degrees(np.arccos(1 - np.clip(misaligned.values, 0, 2)))
            axes.plot(NOISES, angles, style, color=f"C{index}", label=label if name == "wide" else None)
    axes.set_xscale("log")
    axes.set_xlabel("noise σ (– 3×8, -- 8×3, ·· vector)")
    axes.set_ylabel("angle to Ortho(μ), degrees")
    axes.legend(fontsize="x-small")


CLAIMS = (
    Claim(
        8,
        "The limit of Ortho of a sum",
        "Ortho(Σ G_i) → Ortho(μ), which is not M^(-1/2) μ unless M ∝ μ μᵀ.",
        "The limit holds for μ of full rank. They are equal if and only if M U = U S²; M ∝ μ μᵀ is neither needed nor enough.",
        "claim-8-printed-only",
        frozenset({f"claim-8-printed-{name}" for name in ("limit-every-mean", "proportional", "only")}),
        run_limits,
        check_limits,
        draw_limits,
        tables=(alignment_table,),
    ),
)
