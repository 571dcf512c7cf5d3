"""Claims 1, 7 and 14: when a mean over samples is a derivative of the mean, and when Fisher information is a Hessian."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float
from matplotlib.axes import Axes

from specjax import sweep
from specjax.experiments.claims.contract import Claim, Config, corrected, printed
from specjax.experiments.contract import Check, Data
from specjax.experiments.verdicts import closed_form_check, difference_check, mean_check

DATA_SIZE, DIMENSION = 32, 4
BATCHES = (4, 16)
"""Sizes of a mini-batch; the statement holds at each."""


def _dataset() -> tuple[Array, Array, Array]:
    """Inputs (32, 4) and labels (32,) of a least-squares problem, and the parameters at which gradients are taken."""
    inputs, labels, theta = jax.random.split(jax.random.key(1), 3)
    return (
        jax.random.normal(inputs, (DATA_SIZE, DIMENSION)),
        jax.random.normal(labels, (DATA_SIZE,)),
        jax.random.normal(theta, (DIMENSION,)),
    )


def _loss(theta: Array, inputs: Array, labels: Array) -> Array:
    return 0.5 * jnp.mean((inputs @ theta - labels) ** 2)


def _weights() -> Float[np.ndarray, " data"]:
    """Probabilities of a sampler that favours the late samples."""
    weights = np.arange(1.0, DATA_SIZE + 1)
    return weights / weights.sum()


def run_unbiasedness(config: Config) -> Data:
    """Mini-batch gradients at each batch size, under three ways of sampling."""
    inputs, labels, theta = _dataset()
    cumulative = jnp.cumsum(jnp.asarray(_weights(), inputs.dtype))
    largest = max(BATCHES)

    def measure(key: Array, batch_size: Array) -> dict[str, Array]:
        # One draw of uniforms for all three: compiling a draw takes longer than running all of them.
        first, second, shuffled = jnp.split(jax.random.uniform(key, (2 * largest + DATA_SIZE,)), [largest, 2 * largest])
        chosen = {
            "independent": jnp.floor(first * DATA_SIZE).astype(int),
            "without_replacement": jnp.argsort(shuffled)[:largest],
            "skewed": jnp.searchsorted(cumulative[:-1], second, side="right"),
        }
        counted = jnp.arange(largest, dtype=batch_size.dtype) < batch_size

        def gradient(index: Array) -> Array:
            each = jax.vmap(jax.grad(_loss), in_axes=(None, 0, 0))(
                theta, inputs[index][:, None], labels[index][:, None]
            )
            return jnp.sum(jnp.where(counted[:, None], each, 0), axis=0) / batch_size

        return {name: gradient(index) for name, index in chosen.items()}

    over = {"batch_size": sweep.values(*map(float, BATCHES))}
    return {"gradients": sweep.run(measure, over, seeds=config.samples, key=jax.random.key(config.seed), chunk=20_000)}


def _exact_gradients() -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
    """The gradient of the mean loss, and the mean under the skewed sampler, in closed form."""
    inputs, labels, theta = (np.asarray(a, float) for a in _dataset())
    each = (inputs @ theta - labels)[:, None] * inputs
    return np.mean(each, axis=0), _weights() @ each


def check_unbiasedness(config: Config, data: Data) -> list[Check]:
    """Claim 1."""
    full, skewed = _exact_gradients()
    cases = (
        (
            "independent",
            full,
            printed(1, "independent", "The mean of a mini-batch gradient of independent samples is the gradient of L."),
        ),
        (
            "without_replacement",
            full,
            corrected(
                1, "without-replacement", "Independence is not needed: sampling without replacement is unbiased too."
            ),
        ),
        (
            "skewed",
            skewed,
            corrected(
                1,
                "marginals",
                "Equal marginals are: a sampler with probabilities p_i has the mean Σ p_i ∇l_i, another vector.",
            ),
        ),
    )
    results = []
    for name, expected, words in cases:
        mean, stderr = (a.values for a in sweep.mean_and_stderr(data["gradients"][name]))
        results.append(
            closed_form_check(
                *words,
                predicted=np.broadcast_to(expected, mean.shape),
                mean=mean,
                stderr=stderr,
                # The two candidates are told apart by the entry in which they differ most.
                resolution=np.max(np.abs(full - skewed)),
            )
        )
    return results


def draw_unbiasedness(axes: Axes, config: Config, data: Data) -> None:
    """Bias of each entry in standard errors, for the three samplers."""
    full, _ = _exact_gradients()
    for place, name in enumerate(("independent", "without_replacement", "skewed")):
        mean, stderr = (a.values for a in sweep.mean_and_stderr(data["gradients"][name]))
        bias = np.abs((mean - full) / stderr).ravel()
        axes.plot(np.full(bias.size, place), np.maximum(bias, 1e-2), "o", color=f"C{place}", fillstyle="none")
    axes.axhline(4, color="gray", linewidth=1)
    axes.set_yscale("log")
    axes.set_xticks(range(3), ["independent", "without\nreplacement", "skewed"])
    axes.set_xlim(-0.5, 2.5)
    axes.set_ylabel("|bias| / standard error")


def run_fisher(config: Config) -> Data:
    """The sum s sᵀ + ∇² log p for one sample of each of four models: a mean of zero is the statement."""

    def gaussian(theta: Array, x: Array) -> Array:
        return -0.5 * ((x - theta[0]) / theta[1]) ** 2 - jnp.log(theta[1])

    def laplace(theta: Array, x: Array) -> Array:
        return -jnp.abs(x - theta[0]) / 2 - jnp.log(4.0)

    def uniform(theta: Array, x: Array) -> Array:
        return -jnp.log(theta[0]) + 0 * x

    def measure(key: Array, location: Array) -> dict[str, dict[str, Array]]:
        # By inverse distribution functions, from one draw.
        u = jax.random.uniform(key, (4,), minval=1e-6)
        scale = jnp.ones(())
        exponential = -jnp.log1p(-2 * jnp.abs(u[1] - 0.5))
        samples = {
            "gaussian": (gaussian, jnp.stack([location, 1.7 * scale]), location + 1.7 * ndtri(u[0])),
            "laplace": (laplace, location[None], location + 2 * jnp.sign(u[1] - 0.5) * exponential),
            "uniform": (uniform, 2 * scale[None], 2 * u[2]),
            # The model says variance 1, the samples have 4.
            "misspecified": (
                lambda theta, x: gaussian(jnp.stack([theta[0], scale]), x),
                location[None],
                location + 2 * ndtri(u[3]),
            ),
        }
        results = {}
        for name, (log_density, theta, x) in samples.items():
            score, hessian = jax.grad(log_density)(theta, x), jax.hessian(log_density)(theta, x)
            results[name] = {"gap": jnp.outer(score, score) + hessian, "fisher": jnp.outer(score, score)}
        return results

    over = {"location": sweep.values(-0.5, 2.0)}
    return {"scores": sweep.run(measure, over, seeds=config.samples, key=jax.random.key(config.seed), chunk=20_000)}


GAPS = {"laplace": 0.25, "uniform": 0.5, "misspecified": 3.0}
"""E[s²] + E[(log p)''] in closed form: 1/b² + 0 at b = 2; 1/θ² + 1/θ² at θ = 2 (its Hessian is +1/θ²); σ² - 1 at variance σ² = 4."""


def check_fisher(config: Config, data: Data) -> list[Check]:
    """Claim 7."""
    gaps = {name: sweep.mean_and_stderr(data["scores"][f"{name}.gap"]) for name in ("gaussian", *GAPS)}
    fisher, _ = sweep.mean_and_stderr(data["scores"]["gaussian.fisher"])
    mean, stderr = (a.values for a in gaps["gaussian"])
    unlike = {
        name: (mean.values.ravel(), stderr.values.ravel()) for name, (mean, stderr) in gaps.items() if name in GAPS
    }
    means, stderrs = (np.concatenate([pair[i] for pair in unlike.values()]) for i in (0, 1))
    closed = np.repeat(list(GAPS.values()), 2)
    return [
        closed_form_check(
            *printed(
                7,
                "regular",
                "E[s sᵀ] + E[∇² log p] = 0 in a regular family that contains the data: normal with mean and scale.",
            ),
            predicted=np.zeros_like(mean),
            mean=mean,
            stderr=stderr,
            resolution=np.max(np.abs(fisher.values)) / 4,
        ),
        mean_check(
            *printed(
                7,
                "any-model",
                "No condition is printed: it holds in any model, so in one whose variance is not that of the data.",
            ),
            predicted=0,
            mean=means[-1],
            stderr=stderrs[-1],
            resolution=GAPS["misspecified"] / 2,
        ),
        closed_form_check(
            *corrected(
                7,
                "gaps",
                "Without a smooth density, fixed support and the right model the two differ: by 1/b² (Laplace), 2/θ² (uniform), σ² - 1 "
                "(variance σ² against the model's 1).",
            ),
            predicted=closed,
            mean=means,
            stderr=stderrs,
            resolution=closed,
        ),
    ]


def draw_fisher(axes: Axes, config: Config, data: Data) -> None:
    """The sum of the two sides for each model against its closed form."""
    for place, name in enumerate(("gaussian", *GAPS)):
        mean, stderr = sweep.mean_and_stderr(data["scores"][f"{name}.gap"])
        values = mean.values.ravel()
        axes.errorbar(
            np.full(values.size, place), values, 4 * stderr.values.ravel(), fmt="o", color=f"C{place}", capsize=2
        )
        axes.plot([place - 0.3, place + 0.3], [GAPS.get(name, 0.0)] * 2, color="gray", linewidth=1)
    axes.set_xticks(range(4), ["normal", "Laplace", "uniform", "wrong\nvariance"])
    axes.set_ylabel("E[s sᵀ] + E[∇² log p]")


def run_population_hessian(config: Config) -> Data:
    """First and second derivatives in θ of three losses at one sample."""

    def robust(theta: Array, x: Array) -> Array:
        return jnp.logaddexp(theta - x, x - theta)

    def quadratic(theta: Array, x: Array) -> Array:
        return 0.5 * (theta - x) ** 2

    def measure(key: Array, theta: Array) -> dict[str, dict[str, Array]]:
        u = jax.random.uniform(key, (3,), minval=1e-6)
        # Away from the minimizer for the robust loss; at it, θ = E[x], for the quadratic ones.
        samples = {
            "robust": (robust, theta, ndtri(u[0])),
            "exponential": (quadratic, jnp.ones(()), -jnp.log(u[1])),
            "bounded": (quadratic, jnp.zeros(()), 2 * u[2] - 1),
        }
        results = {}
        for name, (loss, at, x) in samples.items():
            slope = jax.grad(loss)(at, x)
            results[name] = {"slope": slope, "squared": slope**2, "curvature": jax.grad(jax.grad(loss))(at, x)}
        return results

    over = {"theta": sweep.values(0.3, 1.5)}
    return {"losses": sweep.run(measure, over, seeds=config.samples, key=jax.random.key(config.seed), chunk=20_000)}


def population_hessian(theta: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """d²/dθ² of E[log(2 cosh(θ - x))] for normal x, by Gauss–Hermite quadrature of the loss and central differences."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    step = 1e-3

    def population(at: np.ndarray) -> np.ndarray:
        return np.logaddexp(at[:, None] - nodes, nodes - at[:, None]) @ weights / weights.sum()

    return (population(theta + step) - 2 * population(theta) + population(theta - step)) / step**2


def check_population_hessian(config: Config, data: Data) -> list[Check]:
    """Claim 14."""
    losses = data["losses"]
    mean, stderr = sweep.mean_and_stderr(losses["robust.curvature"])
    squared, _ = sweep.mean_and_stderr(losses["robust.squared"])
    expected = population_hessian(losses["theta"].values)
    # At one sample the losses at θ = E[x] do not depend on the swept θ.
    once = losses.isel(theta=0)
    gap, gap_stderr = sweep.mean_and_stderr(once["exponential.squared"] - once["exponential.curvature"])
    slope, slope_stderr = sweep.mean_and_stderr(once["bounded.slope"])
    third, third_stderr = sweep.mean_and_stderr(once["bounded.squared"])
    return [
        closed_form_check(
            *printed(
                14,
                "population-hessian",
                "E[∇² l] is the Hessian of the population loss for a loss that is no likelihood (log cosh).",
            ),
            predicted=expected,
            mean=mean,
            stderr=stderr,
            resolution=np.abs(expected - squared.values),
        ),
        difference_check(
            *printed(
                14,
                "only-nll",
                "Only for a negative log-likelihood is E[(l')²] = E[l'']: it differs for (θ - x)²/2 of exponential x.",
            ),
            difference=gap,
            stderr=gap_stderr,
            resolution=0.5,
        ),
        difference_check(
            *printed(
                14,
                "mean-slope",
                "The identity fails for other losses because E[∇ l] = 0 fails there: (θ - x)²/2, uniform x, at θ = E[x].",
            ),
            difference=slope,
            stderr=slope_stderr,
            resolution=0.1,
        ),
        mean_check(
            *corrected(
                14,
                "variance",
                "There E[l'] is 0 and still E[(l')²] is Var x = 1/3, not E[l''] = 1: what must match is the variance.",
            ),
            predicted=1 / 3,
            mean=third,
            stderr=third_stderr,
            resolution=1 / 3,
        ),
    ]


def draw_population_hessian(axes: Axes, config: Config, data: Data) -> None:
    """E[(l')²] and E[l''] of the three losses."""
    names = ("robust", "exponential", "bounded")
    for offset, (quantity, label) in enumerate((("squared", "E[(l')²]"), ("curvature", "E[l'']"), ("slope", "E[l']"))):
        pairs = [sweep.mean_and_stderr(data["losses"][f"{name}.{quantity}"].isel(theta=0)) for name in names]
        means, stderrs = ([float(pair[i]) for pair in pairs] for i in (0, 1))
        places = np.arange(3) + 0.25 * (offset - 1)
        axes.bar(places, means, 0.22, yerr=4 * np.asarray(stderrs), color=f"C{offset}", label=label, capsize=2)
    axes.set_xticks(range(3), ["log cosh", "square,\nexponential x", "square,\nuniform x"])
    axes.legend(fontsize="x-small")


CLAIMS = (
    Claim(
        1,
        "SGD is unbiased",
        "E_B[g(θ; B)] = ∇L(θ).",
        "True, and more: equal marginals suffice. Without replacement is unbiased too, skewed sampling is not.",
        "claim-1-printed-independent",
        frozenset(),
        run_unbiasedness,
        check_unbiasedness,
        draw_unbiasedness,
        unit="standard errors from it at most",
    ),
    Claim(
        7,
        "Fisher information is minus the mean Hessian",
        "E[s sᵀ] = -E[∇² log p].",
        "True for smooth densities with a fixed support and a model that contains the data; without either, false.",
        "claim-7-printed-any-model",
        frozenset({"claim-7-printed-any-model"}),
        run_fisher,
        check_fisher,
        draw_fisher,
    ),
    Claim(
        14,
        "Fisher = Hessian only for a likelihood",
        "E[∇² l] is just the population Hessian; the identity of Claim 7 is for log-likelihoods only, by E[∇ log p] = 0.",
        "The first half is true. “Only” is false, and so is the reason: at a minimizer E[∇l] = 0 for every loss.",
        "claim-14-printed-only-nll",
        frozenset({"claim-14-printed-only-nll", "claim-14-printed-mean-slope"}),
        run_population_hessian,
        check_population_hessian,
        draw_population_hessian,
    ),
)
