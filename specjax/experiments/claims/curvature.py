"""Claim 10: the dispersion of positive definite matrices about their arithmetic mean, and about their Karcher mean."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes

from specjax import sweep
from specjax.experiments.claims.contract import Claim, Config, corrected, printed
from specjax.experiments.claims.matrices import normals, symmetric_exponential
from specjax.experiments.contract import Check, Data
from specjax.experiments.plots import draw_sweep, slope_label
from specjax.experiments.verdicts import bound_check, difference_check, equality_check, exponent_check
from specjax.theory.geometry import dispersion, karcher_mean

COUNT, SIZE = 6, 3
TIGHTNESS = (1.0, 3.0, 6.0, 12.0, 24.0, 48.0)
"""The matrices are exp(A_i / tightness)."""
ROUNDING = 1e-8
"""Relative errors of dispersions are below 1e-11, in the tightest clouds too."""


def run_dispersion(config: Config) -> Data:
    """Both dispersions of random matrices exp(A_i / tightness), of their congruent images and of their inverses."""

    def measure(key: Array, tightness: Array) -> dict[str, Array]:
        *exponents, a = normals(key, *[(SIZE, SIZE)] * (COUNT + 1))
        h = jax.vmap(lambda x: symmetric_exponential(x, 1 / tightness))(jnp.stack(exponents))
        # Congruence with I + a/4, and inversion, all in one batch of problems.
        change = jnp.eye(SIZE) + a / 4
        families = jnp.stack([h, change @ h @ change.T, jnp.linalg.inv(h), jnp.broadcast_to(h[0], h.shape)])
        arithmetic = jax.vmap(lambda x: dispersion(x, jnp.mean(x, axis=0)))(families)
        karcher = jax.vmap(lambda x: dispersion(x, karcher_mean(x)))(families[:3])
        scale = arithmetic[0]
        indefinite = h - 2 * jnp.trace(h[0]) * jnp.eye(SIZE)[None]
        return {
            "arithmetic": scale,
            "karcher": karcher[0],
            "excess": scale / karcher[0] - 1,
            "congruence": jnp.abs(arithmetic[1] / scale - 1),
            "inversion": jnp.abs(arithmetic[2] / scale - 1),
            "karcher_congruence": jnp.abs(karcher[1] / karcher[0] - 1),
            "karcher_inversion": jnp.abs(karcher[2] / karcher[0] - 1),
            "equal": arithmetic[3],
            # The Euclidean dispersion, which a congruence does change.
            "euclidean": jnp.abs(_euclidean(families[1]) / _euclidean(h) - 1),
            "indefinite_finite": jnp.isfinite(dispersion(indefinite, jnp.mean(h, axis=0))).astype(float),
            "definite_finite": jnp.isfinite(scale).astype(float),
        }

    with jax.enable_x64(True):
        over = {"tightness": sweep.values(*TIGHTNESS)}
        return {"dispersion": sweep.run(measure, over, seeds=config.matrices, key=jax.random.key(config.seed))}


def _euclidean(h: Array) -> Array:
    return jnp.mean(jnp.sum((h - jnp.mean(h, axis=0, keepdims=True)) ** 2, axis=(1, 2)))


def check_dispersion(config: Config, data: Data) -> list[Check]:
    """Claim 10."""
    found = data["dispersion"]
    wide = found.sel(tightness=1.0)
    fit = sweep.asymptotic_exponent(found["excess"], "tightness")
    return [
        equality_check(
            *printed(10, "invariant", "σ_R² depends on the matrices only up to congruence (relative change)."),
            error=found["congruence"],
            control=found["euclidean"],
            tolerance=ROUNDING,
        ),
        equality_check(
            *printed(10, "zero", "It is 0 where all matrices are equal."),
            error=found["equal"],
            control=found["arithmetic"],
            tolerance=ROUNDING,
        ),
        difference_check(
            *printed(10, "positive", "It is positive where they are not (smallest value)."),
            difference=float(found["arithmetic"].min()),
            resolution=ROUNDING,
        ),
        equality_check(
            *printed(
                10,
                "variance",
                "It is the variance of the affine-invariant metric, the least mean squared distance to a centre (relative excess).",
            ),
            error=wide["excess"],
            control=wide["euclidean"],
            tolerance=ROUNDING,
        ),
        bound_check(
            *corrected(
                10, "karcher-less", "The variance is the dispersion about the Karcher mean, which is never larger."
            ),
            smallest_margin=float((found["excess"]).min()) + ROUNDING,
        ),
        equality_check(
            *corrected(
                10,
                "inversion",
                "Unlike σ_R² it does not change when all matrices are inverted (curvature against covariance).",
            ),
            error=np.maximum(found["karcher_inversion"], found["karcher_congruence"]),
            control=wide["inversion"],
            tolerance=ROUNDING,
        ),
        exponent_check(
            *corrected(
                10,
                "tight",
                "The relative excess of σ_R² falls with the square of the spread of log H_i, so in a tight cloud σ_R² serves as well.",
            ),
            predicted=-2,
            fit=fit,
        ),
        equality_check(
            *corrected(
                10,
                "definite",
                "It needs positive definite matrices: an indefinite H_i has no real logarithm (share that is finite).",
            ),
            error=found["indefinite_finite"],
            control=found["definite_finite"],
            tolerance=0,
        ),
    ]


def draw_dispersion(axes: Axes, config: Config, data: Data) -> None:
    """The relative excess against the inverse of the spread."""
    found = data["dispersion"]
    fit = sweep.asymptotic_exponent(found["excess"], "tightness")
    label = slope_label("excess", fit.exponent, fit.interval[1] - fit.exponent)
    draw_sweep(axes, found["excess"], "tightness", label=label, color="C0", line=True)
    axes.set_xlabel("1 / spread of log H_i")
    axes.set_ylabel("σ_R² / Fréchet variance - 1")
    axes.legend(fontsize="x-small")


CLAIMS = (
    Claim(
        10,
        "Riemannian variance",
        "σ_R², the mean squared affine-invariant distance to the arithmetic mean, measures the dispersion of SPD matrices.",
        "A valid dispersion, but not the variance of that metric, which is centred at the Karcher mean and smaller.",
        "claim-10-printed-variance",
        frozenset({"claim-10-printed-variance"}),
        run_dispersion,
        check_dispersion,
        draw_dispersion,
    ),
)
