"""Claims 1, 7 and 14: means of derivatives, and the Fisher information as a Hessian."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.scipy.special import ndtri
from jax.scipy.stats import laplace, norm, uniform
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, sweep
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger

DATA_SIZE, DIMENSION = 32, 4
BATCHES = (4, 16)
"""Sizes of a mini-batch; the statement holds at each."""
SKEWED = np.arange(1.0, DATA_SIZE + 1) / (DATA_SIZE * (DATA_SIZE + 1) / 2)
"""Probabilities of a sampler that favours the late samples."""
SCALE, LAPLACE_SCALE, LARGEST, DATA_VARIANCE = 1.7, 2.0, 2.0, 4.0
"""Scale of the normal and Laplace models, end of the uniform one, variance of misfit data."""
THETAS = (0.0, 0.3, 1.5)
"""Points for the derivatives of Welsch's loss: the minimizer of its mean, and another."""
AT = 0.3


class Config(lab.Config):
    """The number of samples in a mean."""

    samples: int = lab.config.seeds(100_000, least=1000, help="samples of every mean")


def problem(
    seed: int,
) -> tuple[Float[np.ndarray, "data d"], Float[np.ndarray, " data"], Float[np.ndarray, " d"]]:
    """Inputs, labels and parameters of a least-squares problem, the same for every seed."""
    inputs, labels, theta = jax.random.split(sizes.stream(jax.random.key(seed), "problem"), 3)
    shapes = (inputs, (DATA_SIZE, DIMENSION)), (labels, (DATA_SIZE,)), (theta, (DIMENSION,))
    x, y, at = (np.asarray(jax.random.normal(key, shape)) for key, shape in shapes)
    return x, y, at


def mean_square(theta: Any) -> Any:
    """E[(ℓ')²] for ℓ = 1 - exp(-(θ-x)²/2) and normal x, in closed form."""
    return (1 / 3 + theta**2 / 9) * np.exp(-(theta**2) / 3) / np.sqrt(3)


def hessian(theta: Any) -> Any:
    """E[ℓ''] for the same loss: the second derivative of 1 - exp(-θ²/4)/√2."""
    return (1 / 2 - theta**2 / 4) * np.exp(-(theta**2) / 4) / np.sqrt(2)


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Measure gradients under three samplings, scores of five models, and derivatives of a loss."""
    inputs, labels, theta = map(jnp.asarray, problem(config.seed))
    cumulative = jnp.cumsum(jnp.asarray(SKEWED, inputs.dtype))
    largest = max(BATCHES)

    def gradients(key: Key[Array, ""], batch_size: Array) -> dict[str, Array]:
        # One sample of uniforms for all three, since compiling a sample takes longer than running
        # all.
        first, second, shuffled = jnp.split(
            jax.random.uniform(key, (2 * largest + DATA_SIZE,)), [largest, 2 * largest]
        )
        counted = jnp.arange(largest, dtype=batch_size.dtype) < batch_size

        def gradient(index: Array) -> Array:
            def loss(at: Array) -> Array:
                errors = inputs[index] @ at - labels[index]
                return 0.5 * jnp.sum(jnp.where(counted, errors, 0) ** 2) / batch_size

            return jax.grad(loss)(theta)

        return {
            "independent": gradient(jnp.floor(first * DATA_SIZE).astype(int)),
            "without_replacement": gradient(jnp.argsort(shuffled)[:largest]),
            "skewed": gradient(jnp.searchsorted(cumulative[:-1], second, side="right")),
        }

    def sech(x: Array, location: Array) -> Array:
        return jnp.log(2 / jnp.pi) - jnp.logaddexp(x - location, location - x)

    def gap(log_density: Callable[..., Array], x: Array, *theta: Array | float) -> Array:
        """A sample at x whose mean is E[s sᵀ] + E[∇² log p]."""

        def differentiate_at(theta: Array) -> Array:
            return log_density(x, *theta)

        score, hessian = (
            of(differentiate_at)(jnp.stack([jnp.asarray(each, x.dtype) for each in theta]))
            for of in (jax.grad, jax.hessian)
        )
        return jnp.outer(score, score) + hessian

    def scores(key: Key[Array, ""], location: Array) -> dict[str, Array]:
        # By inverse distribution functions from one sample of uniforms, all from the model except
        # the last.
        u = jax.random.uniform(key, (5,), minval=1e-6)
        signed = -LAPLACE_SCALE * jnp.sign(u[2] - 0.5) * jnp.log1p(-2 * jnp.abs(u[2] - 0.5))
        return {
            "normal": gap(norm.logpdf, location + SCALE * ndtri(u[0]), location, SCALE),
            "sech": gap(sech, location + jnp.log(jnp.tan(jnp.pi / 2 * u[1])), location)[0, 0],
            "laplace": gap(
                lambda x, at: laplace.logpdf(x, at, LAPLACE_SCALE), location + signed, location
            )[0, 0],
            "uniform": gap(lambda x, end: uniform.logpdf(x, 0.0, end), LARGEST * u[3], LARGEST)[
                0, 0
            ],
            "other_data": gap(
                norm.logpdf, location + jnp.sqrt(DATA_VARIANCE) * ndtri(u[4]), location
            )[0, 0],
        }

    def losses(key: Key[Array, ""], theta: Array) -> dict[str, Array]:
        x = ndtri(jax.random.uniform(key, minval=1e-6))

        def welsch(at: Array) -> Array:
            return 1 - jnp.exp(-((at - x) ** 2) / 2)

        slope, curvature = jax.grad(welsch)(theta), jax.grad(jax.grad(welsch))(theta)
        c = jnp.asarray(hessian(AT) / mean_square(AT), slope.dtype)
        scaled = {"scaled_squared": (c * slope) ** 2, "scaled_curvature": c * curvature}
        return {"slope": slope, "squared": slope**2, "curvature": curvature, **scaled}

    taken = lab.seeded_sweep(
        key, "batches", gradients, config.samples, batch_size=sweep.values(*map(float, BATCHES))
    )
    scored = lab.seeded_sweep(
        key, "scores", scores, config.samples, location=sweep.values(-0.5, 2.0)
    )
    return {
        "gradients": sweep.labelled(taken, "entry"),
        "scores": sweep.labelled(scored, "row", "column", row=["μ", "σ"], column=["μ", "σ"]),
        "losses": lab.seeded_sweep(
            key, "losses", losses, config.samples, theta=sweep.values(*THETAS)
        ),
    }


def gradient_under(probabilities: Any) -> Callable[[Any, Any], xr.DataArray]:
    """The mean gradient Σ p_i ∇ℓ_i of samples with these probabilities."""

    def form(config: Config, data: Any) -> xr.DataArray:
        inputs, labels, theta = (np.asarray(a, float) for a in problem(config.seed))
        return xr.DataArray(
            probabilities @ ((inputs @ theta - labels)[:, None] * inputs), dims="entry"
        )

    return form


full_gradient, skewed_gradient = (
    gradient_under(np.full(DATA_SIZE, 1 / DATA_SIZE)),
    gradient_under(SKEWED),
)


def summed_gradient(config: Config, data: Mapping[str, xr.Dataset]) -> xr.DataArray:
    """The batch summed, not averaged."""
    return full_gradient(config, data) * data["gradients"].batch_size


states = lab.Statements()
GRADIENTS, SCORES, LOSSES = (Measured(states, of) for of in ("gradients", "scores", "losses"))
WRONG = {"the skewed sampler's": skewed_gradient, "the sum over the batch": summed_gradient}
SAMPLER = {"the skewed sampler": "skewed"}

GRADIENTS.mean(full_gradient, "independent", "claim-1", "independent", SAMPLER, rivals=WRONG)(
    "The mean of a mini-batch gradient of independent samples is the gradient of L."
)

SHUFFLED = "without_replacement"
GRADIENTS.mean(
    full_gradient, "without-replacement", "claim-1", SHUFFLED, SAMPLER, rivals=WRONG, corrected=True
)(
    "Independence is not needed, equal marginals are enough: sampling without replacement is"
    " unbiased too."
)

INDEPENDENT, UNSKEWED = {"independent samples": "independent"}, {"the gradient of L": full_gradient}
GRADIENTS.mean(
    skewed_gradient, "marginals", "claim-1", "skewed", INDEPENDENT, rivals=UNSKEWED, corrected=True
)("Equal marginals are needed: a sampler with probabilities p_i has the mean Σ p_i ∇ℓ_i.")

FISHER = xr.DataArray(
    np.diag([1.0, 2.0]) / SCALE**2, {"row": ["μ", "σ"], "column": ["μ", "σ"]}, ("row", "column")
)
"""diag(1, 2)/σ²: the Fisher information of a normal variable in mean and standard deviation."""
OTHER_DATA = {"data of another variance": "other_data"}

# A family whose Hessian depends on the sample.
PARTS = {"without the Hessian": FISHER, "without the score": -FISHER}
SCORES.mean(0.0, "smooth-normal", "claim-7", "normal", OTHER_DATA, rivals=PARTS, corrected=True)(
    "Where the density is smooth, its support fixed, and the expectation the model's own, E[s sᵀ] +"
    " E[∇² log p] = 0: normal, in mean and standard deviation."
)

# E[tanh²] = E[sech²] = 1/2 under sech/π: what looks like a generic loss may have the identity.
HALVES = {"without the Hessian": 0.5, "without the score": -0.5}
SCORES.mean(
    0.0, "smooth-sech", ("claim-7", "claim-14"), "sech", OTHER_DATA, rivals=HALVES, corrected=True
)(
    "Log cosh is a negative log-likelihood, of the density sech(x - θ)/π, and under it has E[s²] +"
    " E[(log p)''] = 0."
)


def gaps(data: Mapping[str, xr.Dataset], *names: str) -> xr.DataArray:
    """E[s²] + E[(log p)''] of several models."""
    return xr.concat(
        [data["scores"][name] for name in names], xr.Variable("model", list(names))
    ).rename("gap")


def label_models(**values: float) -> xr.DataArray:
    """One number for each model."""
    return xr.DataArray(list(values.values()), {"model": list(values)}, "model")


# 1/b² + 0; 1/θ² + 1/θ², since the Hessian is +1/θ²; σ² - 1.
GAPS = label_models(
    laplace=1 / LAPLACE_SCALE**2, uniform=2 / LARGEST**2, other_data=DATA_VARIANCE - 1
)
WRONG_GAPS = label_models(laplace=1 / LAPLACE_SCALE, uniform=1 / LARGEST, other_data=DATA_VARIANCE)
SMOOTH = {
    "smooth densities": lab.controls.changing(
        lambda s: s.assign(laplace=s.sech, uniform=s.sech), of="scores"
    )
}


@states("claim-7", holds=False, rivals={"1/b² and 2/θ²": GAPS[:2]}, controls=SMOOTH)
def any_density(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """No condition is printed: E[s sᵀ] + E[∇² log p] = 0 under a model's own expectation in every
    model, Laplace's and the uniform too.
    """
    # The justification exchanges a derivative and an integral, twice.
    return lab.equals(gaps(data, "laplace", "uniform"), 0.0)


@states("claim-7", corrected=True, rivals={"0": 0.0, "1/b, 1/θ, σ²": WRONG_GAPS})
def gaps_in_closed_form(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """Without these conditions the two differ: by 1/b² (Laplace), 2/θ² (uniform on (0, θ)), σ² - 1
    (data of variance σ² in a model of 1).
    """
    # Each of the three for another reason: a kink, a moving end, and an expectation that is not the
    # model's.
    return lab.equals(gaps(data, "laplace", "uniform", "other_data"), GAPS)


def population(form: Callable[[Any], Any]) -> Callable[[Any, Any], xr.DataArray]:
    """A closed form at each θ."""
    return lambda _, data: lab.closed_form(form, data["losses"].theta)


# Bounded in x, so that exp(-ℓ) has no integral: no constant makes it a density.
SQUARE, CURVATURE = population(mean_square), population(hessian)
LOSSES.mean(CURVATURE, "expected-curvature", "claim-14", "curvature", rivals={"E[(ℓ')²]": SQUARE})(
    "For a loss that is no negative log-likelihood, 1 - exp(-(θ - x)²/2), E[∇²ℓ] is the Hessian of"
    " the population loss."
)

# Far from the minimizer E[ℓ''] is even negative.
LOSSES.mean(SQUARE, "no-identity", "claim-14", "squared", rivals={"E[ℓ'']": CURVATURE})(
    "For that loss E[(ℓ')²] is another number, at the minimizer too: no identity makes E[∇²ℓ] a"
    " Fisher matrix."
)


UNSCALED = lab.controls.changing(
    lambda x: x.assign(scaled_squared=x.squared, scaled_curvature=x.curvature), of="losses"
)


@states("claim-14-only", holds=False, controls={"c = 1": UNSCALED})
def only_likelihoods(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """The two are equal for negative log-likelihoods only: for c times that loss, c =
    E[ℓ'']/E[(ℓ')²], they differ by a tenth or more.
    """
    # Scaling a loss scales one side twice and the other once: every loss of positive E[ℓ''] has a
    # multiple with the equality at θ.
    losses = data["losses"].sel(theta=AT)
    return lab.ahead(losses["scaled_curvature"], losses["scaled_squared"], least=hessian(AT) / 10)


# The mean gradient is zero at the minimizer of any smooth mean; see `no-identity` for the identity
# there.
NINTH, ELSEWHERE = (
    "a ninth of the root mean square slope",
    {"away from the minimizer": lambda x: x["slope"].roll(theta=1)},
)
LOSSES.above(
    0.05, NINTH, "mean-slope", "claim-14-reason", "slope", ELSEWHERE, at={"theta": 0}, holds=False
)("Where the identity fails, E[∇ℓ] = 0 fails: at the minimizer of the mean of that loss too.")


EXPERIMENT = lab.Experiment(
    "claims-expectation",
    ledger("claims"),
    title=(
        "Fisher information is minus the mean Hessian under conditions that the text omits, and not"
        " for likelihoods only"
    ),
    summary=(
        "E[s sᵀ] = -E[∇² log p] fails for Laplace's and the uniform density, and every loss has a"
        " multiple with it at a given point."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"samples": 35_000},
        "smoke": {"samples": 5000},
        "paper": {"samples": 1_000_000},
    },
)
