"""Claim 10: dispersion of positive definite matrices about both means, and along a path."""

import jax
import jax.numpy as jnp
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sweep
from specjax.experiments.claims.matrices import Matrices, normals, symmetric_exponential
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger
from specjax.theory.geometry import affine_invariant_distance, dispersion, karcher_mean

COUNT, SIZE = 6, 3
TIGHTNESS = (1.0, 3.0, 6.0, 12.0, 24.0, 48.0)
"""The matrices are exp(A_i / tightness)."""
SHUFFLED = (0, 3, 1, 4, 2, 5)
"""An order in which no neighbours of a path stay neighbours."""
ROUNDING = 1e-8
"""Relative errors of dispersions are below 1e-11, in the tightest clouds too."""


def run(config: Matrices, key: Key[Array, ""]) -> xr.Dataset:
    """Dispersions of random exp(A_i / tightness), of their images and inverses; and steps."""

    def measure(key: Key[Array, ""], tightness: Array) -> dict[str, Array]:
        def exponentials(x: Array) -> Array:
            return jax.vmap(lambda each: symmetric_exponential(each, 1 / tightness))(x)

        *clouds, a, drift = normals(key, *[(SIZE, SIZE)] * (COUNT + 2))
        exponents = jnp.stack(clouds)
        h = exponentials(exponents)
        # Congruence with I + a/4 and inversion, in one batch of problems.
        change = jnp.eye(SIZE) + a / 4
        families = jnp.stack(
            [h, change @ h @ change.T, jnp.linalg.inv(h), jnp.broadcast_to(h[0], h.shape)]
        )
        arithmetic = jax.vmap(_about_mean)(families)
        karcher = jax.vmap(lambda x: dispersion(x, karcher_mean(x)))(families[:3])
        centre = jnp.mean(h, axis=0)
        # A drift with a little noise, and an alternation between two matrices.
        places = jnp.arange(COUNT, dtype=tightness.dtype)[:, None, None]
        path = exponentials(places * drift[None] / COUNT + exponents / 32)
        ordered = (h, path, exponentials((1 - 2 * (places % 2)) * drift[None]))
        slowness = _steps(path) / _steps(path[jnp.asarray(SHUFFLED)])
        return {
            "arithmetic": arithmetic[0],
            "karcher": karcher[0],
            "excess": arithmetic[0] / karcher[0] - 1,
            "fall": jnp.abs(_downhill(h, centre) / arithmetic[0] - 1),
            "karcher_fall": jnp.abs(_downhill(h, karcher_mean(h)) / karcher[0] - 1),
            "congruence": jnp.abs(arithmetic[1] / arithmetic[0] - 1),
            "inversion": jnp.abs(arithmetic[2] / arithmetic[0] - 1),
            "karcher_congruence": jnp.abs(karcher[1] / karcher[0] - 1),
            "karcher_inversion": jnp.abs(karcher[2] / karcher[0] - 1),
            "equal": arithmetic[3],
            # The Euclidean dispersion, which a congruence does change.
            "euclidean": jnp.abs(_euclidean(families[1]) / _euclidean(h) - 1),
            "indefinite_finite": jnp.isfinite(dispersion(one_indefinite(h), centre)).astype(float),
            "definite_finite": jnp.isfinite(arithmetic[0]).astype(float),
            "steps": jnp.stack([_steps(x) for x in ordered]),
            "dispersions": jnp.stack([_about_mean(x) for x in ordered]),
            "every_other": jnp.stack([_about_mean(x[::2]) for x in ordered]),
            "slowness": slowness,
            "no_slowness": 1 / slowness,
        }

    over = {"tightness": sweep.values(*TIGHTNESS)}
    with jax.enable_x64(True):
        found = lab.seeded_sweep(key, "matrices", measure, config.matrices, **over)
    return sweep.labelled(found, "family", family=["cloud", "drift", "to and fro"])


def one_indefinite(h: Float[Array, "k n n"]) -> Float[Array, "k n n"]:
    """The same symmetric matrices, the first shifted until one of its eigenvalues is negative."""
    least, next_one = jnp.linalg.eigvalsh(h[0])[:2]
    return h.at[0].add(-(least + next_one) / 2 * jnp.eye(h.shape[-1]))


def _downhill(h: Array, centre: Array) -> Array:
    """The dispersion about the centre after a step along the mean of log(C^(-1/2) H_i C^(-1/2))."""
    values, vectors = jnp.linalg.eigh(centre)
    root, inverse = (
        (vectors * v[None, :]) @ vectors.T for v in (jnp.sqrt(values), 1 / jnp.sqrt(values))
    )
    values, vectors = jnp.linalg.eigh(inverse @ h @ inverse)
    slope = jnp.mean(
        (vectors * jnp.log(values)[:, None, :]) @ jnp.swapaxes(vectors, -1, -2), axis=0
    )
    values, vectors = jnp.linalg.eigh(slope)
    return dispersion(h, root @ (vectors * jnp.exp(values)[None, :]) @ vectors.T @ root)


def _about_mean(h: Array) -> Array:
    return dispersion(h, jnp.mean(h, axis=0))


def _euclidean(h: Array) -> Array:
    return jnp.mean(jnp.sum((h - jnp.mean(h, axis=0, keepdims=True)) ** 2, axis=(1, 2)))


def _steps(h: Array) -> Array:
    """The mean squared distance of one matrix to the next."""
    return jnp.mean(affine_invariant_distance(h[:-1], h[1:]) ** 2)


states = lab.Statements()
ERRORS, CASES = Measured(states, rounding=ROUNDING), Measured(states, rounding=0.5)

ERRORS.agree("invariant", "claim-10", "congruence", {"the Euclidean dispersion": "euclidean"})(
    "σ_R² depends on the matrices only up to congruence."
)
ERRORS.agree("zero", "claim-10", "equal", {"matrices that are not": "arithmetic"})(
    "σ_R² is 0 where all matrices are equal."
)
ERRORS.differ("positive", "claim-10", "arithmetic", {"equal matrices": "equal"})(
    "σ_R² is positive where they are not."
)
CASES.agree(
    "definite",
    "claim-10",
    "indefinite_finite",
    {"definite ones": "definite_finite"},
    corrected=True,
)(
    "It needs positive definite matrices: with one indefinite matrix of six it is not finite, which"
    " has no real logarithm."
)
ERRORS.agree(
    "variance",
    "claim-10-variance",
    "fall",
    {"the Karcher mean as centre": "karcher_fall"},
    holds=False,
)(
    "σ_R² is the variance of the affine-invariant metric, the least mean squared distance to a"
    " centre: a step of the centre down its slope does not change it."
)

EXCHANGED = {
    "the two exchanged": lab.controls.changing(
        lambda x: x.assign(arithmetic=x.karcher, karcher=x.arithmetic)
    )
}
EVERY_OTHER = {"σ_R² of every other matrix": lab.controls.replacing("dispersions", "every_other")}


@states("claim-10-variance", corrected=True, controls=EXCHANGED)
def karcher_is_less(config: Matrices, data: xr.Dataset) -> lab.Relation:
    """The variance is the dispersion about the Karcher mean, which is never larger."""
    return lab.inequality(data["karcher"], data["arithmetic"], slack=0.01, rounding=ROUNDING)


CHANGED = {
    "σ_R² inverted": {"karcher_inversion": "inversion"},
    "the Euclidean dispersion": {"karcher_congruence": "euclidean"},
}
BOTH = ("karcher_inversion", "karcher_congruence")
ERRORS.agree("inversion", "claim-10-variance", BOTH, CHANGED, corrected=True)(
    "Unlike σ_R² it does not change when all matrices are inverted, nor by a congruence."
)

SPREADS = {"the spread itself": -1.0, "its cube": -3.0}
ERRORS.power(
    "tightness", -2, "tight", "claim-10-variance", "excess", rivals=SPREADS, corrected=True
)(
    "The relative excess of σ_R² falls with the square of the spread of log H_i, so in a tight"
    " cloud σ_R² serves as well."
)


@states("claim-10-drift", controls=EVERY_OTHER)
def small_means_slow(config: Matrices, data: xr.Dataset) -> lab.Relation:
    """Small values of σ_R² indicate slow change: the mean squared step from one of k matrices to
    the next is at most 4 k/(k - 1) σ_R².
    """
    # By the triangle inequality through the centre; with four times the squared distance where two
    # matrices alternate.
    return lab.inequality(
        data["steps"], 4 * COUNT / (COUNT - 1) * data["dispersions"], slack=0.25, rounding=ROUNDING
    )


# A large σ_R² may be a slow change that lasts; a geodesic of six has a seventh of the steps.
QUARTER = "a quarter of the steps of the same matrices in another order"
ORDERS = {"the two orders exchanged": "no_slowness"}
ERRORS.below(
    0.25, QUARTER, "slow-is-not-small", "claim-10-drift", "slowness", ORDERS, corrected=True
)(
    "The converse fails, σ_R² being blind to order: along a drift the mean squared step is less"
    " than a quarter of that of the same matrices in another order."
)


EXPERIMENT = lab.Experiment(
    "claims-curvature",
    ledger("claims"),
    title=(
        "σ_R² is a dispersion, not the variance of its metric; small values do bound the steps from"
        " one matrix to the next"
    ),
    summary=(
        "The variance of the affine-invariant metric is centred at the Karcher mean and smaller;"
        " σ_R² is blind to order."
    ),
    config=Matrices,
    measure=run,
    statements=states,
    scales={"smoke": {"matrices": 20}, "paper": {"matrices": 1000}},
)
