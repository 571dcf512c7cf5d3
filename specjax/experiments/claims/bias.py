"""Claim 9: the bias of Ortho of a sum, its decay and coefficient, and other ways of averaging."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.claims.matrices import relative, spectra
from specjax.experiments.claims.measured_claims import Measured
from specjax.experiments.ledgers import ledger
from specjax.spectral import averaged_polar

COUNTS = (4, 16, 64, 256, 1024)
M, N, D = 4, 3, 6
"""A matrix mean of shape (M, N), and a vector mean of D entries."""
SMALLEST = (1.0, 0.1)
"""The smallest singular value of the mean; the others are 2 and 1.5."""
DEVIATIONS = np.linspace(0.2, 0.8, M * N).reshape(M, N)
"""Standard deviations of the noise, different from entry to entry."""
VECTOR_NORM, VECTOR_NOISE = 2.0, 0.5
MOST, FEWEST, GROUPS = 16, 4, 4
"""Gradients that the estimators average, in groups or microbatches of four."""


class Config(lab.Config):
    """The number of samples in a mean."""

    gradients: int = lab.config.seeds(
        10_000, least=500, help="samples of a mean of polar factors at each number k of gradients"
    )


class Problem(NamedTuple):
    """A mean, its polar factor, and the limit of k times the bias, ½ D²Ortho(μ)[Σ], in float64."""

    mu: Float[np.ndarray, "m n"]
    factor: Float[np.ndarray, "m n"]
    coefficient: Float[np.ndarray, "m n"]


@cache
def problem(seed: int, smallest: float = SMALLEST[0]) -> Problem:
    """A mean with singular values 2, 1.5 and `smallest`, the same for every seed of a run."""

    @jax.jit
    def derived(values: Array) -> tuple[Array, Array, Array]:
        mu = spectra(sizes.stream(jax.random.key(seed), "mean"), {"mu": (M, N)}, {"mu": values})[
            "mu"
        ]
        factor = jnp.diag(jnp.asarray(DEVIATIONS, float).ravel()).reshape(M, N, M * N)
        return mu, spectral.polar(mu), averaged_polar.second_order_bias(mu, factor)

    with jax.enable_x64(True):
        return Problem(*(np.asarray(x) for x in derived(jnp.asarray([2.0, 1.5, smallest]))))


class Estimator(NamedTuple):
    """A way to average `gradients` gradients: name, number of polar factors, function."""

    label: str
    gradients: int
    polar_factors: int
    function: Callable[[Array], Array]


IN_GROUPS = partial(averaged_polar.jackknifed_polar, groups=GROUPS)
MICROBATCHED = partial(averaged_polar.microbatched_polar, size=MOST // GROUPS)
ESTIMATORS = {
    "ortho_of_mean_few": Estimator("Ortho of mean", FEWEST, 1, averaged_polar.polar_of_mean),
    "ortho_of_mean": Estimator("Ortho of mean", MOST, 1, averaged_polar.polar_of_mean),
    "jackknife": Estimator(
        "Ortho of mean, jackknife", MOST, MOST + 1, averaged_polar.jackknifed_polar
    ),
    "group_jackknife": Estimator(
        f"Ortho of mean, jackknife with {GROUPS} groups", MOST, GROUPS + 1, IN_GROUPS
    ),
    "microbatched": Estimator(
        f"mean of Ortho of {GROUPS} microbatches", MOST, GROUPS, MICROBATCHED
    ),
    "mean_of_ortho": Estimator("mean of Ortho", MOST, MOST, averaged_polar.mean_of_polar),
    "mean_of_ortho_few": Estimator("mean of Ortho", FEWEST, FEWEST, averaged_polar.mean_of_polar),
}


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Biases of Ortho of a mean of k gradients at both means, and of five ways of averaging.

    Each sample is used with both signs of its noise: this cancels the first-order term of the
    expansion, which otherwise dominates the variance at every k, and leaves the mean unchanged.
    """
    given = [problem(config.seed, smallest) for smallest in SMALLEST]
    with jax.enable_x64(True):
        mus, factors, coefficients = (
            jnp.stack([jnp.asarray(p[place]) for p in given]) for place in range(3)
        )
        norms = jnp.linalg.norm(coefficients, axis=(1, 2))
        directions = coefficients / norms[:, None, None]
        deviations, vector = jnp.asarray(DEVIATIONS, float), VECTOR_NORM * jnp.eye(D, 1)
        unit = vector / VECTOR_NORM

        def decay(key: Key[Array, ""], k: Array) -> dict[str, Array]:
            z = jax.random.normal(key, (M * N + D,))
            noise = deviations * z[: M * N].reshape(M, N) / jnp.sqrt(k)
            slide = VECTOR_NOISE * z[M * N :].reshape(D, 1) / jnp.sqrt(k)
            means = jnp.stack([mus + noise[None], mus - noise[None]])
            biases = jnp.mean(spectral.polar(means), axis=0) - factors
            along = jnp.sum(biases * directions, axis=(1, 2))
            normalized = [v / jnp.linalg.norm(v) for v in (vector + slide, vector - slide)]
            return {
                "along": along[0],
                "share": along[0] * k / norms[0],
                "share_small": along[1] * k / norms[1],
                "scaled": biases[0] * k,
                "scaled_vector": jnp.sum((sum(normalized) / 2 - unit) * unit) * k,
                "sum": relative(spectral.polar(k * means), spectral.polar(means)),
                "sum_control": relative(k * means, means),
            }

        def averaging(key: Key[Array, ""], scale: Array) -> dict[str, Array | dict[str, Array]]:
            z = jax.random.normal(key, (MOST, M, N))
            noise = scale * deviations[None] * z
            both = jnp.stack([mus[:1] + noise, mus[:1] - noise])
            found = {name: e.function(both[:, : e.gradients]) for name, e in ESTIMATORS.items()}
            mean = {name: jnp.mean(x, axis=0) for name, x in found.items()}
            left, right = z[:, :, 0], z[:, 0, :]
            products = left[:, :, None] * right[:, None, :]
            factor = averaged_polar.mean_of_polar(products)
            return {
                "mean": mean,
                "single": {name: x[0] for name, x in found.items()},
                "along": {
                    name: jnp.sum((x - factors[0]) * directions[0]) for name, x in mean.items()
                },
                "change": mean["mean_of_ortho"] - mean["mean_of_ortho_few"],
                "change_control": mean["mean_of_ortho"] - mean["ortho_of_mean_few"],
                "rank_one": relative(averaged_polar.mean_of_rank_one_polar(left, right), factor),
                "rank_one_control": relative(jnp.mean(products, axis=0), factor),
            }

        counts, once = {"k": sweep.values(*map(float, COUNTS))}, {"scale": sweep.values(1.0)}
        decayed = lab.seeded_sweep(key, "decay", decay, config.gradients, **counts)
        averaged = lab.seeded_sweep(key, "averaging", averaging, config.gradients // 4, **once)
    both = {"decay": decayed, "averaging": averaged.isel(scale=0)}
    return {name: sweep.labelled(found, "row", "column") for name, found in both.items()}


def coefficient(times: float = 1.0, of: str = "coefficient") -> Callable[[Any, Any], xr.DataArray]:
    """½ D²Ortho(μ)[Σ] times a number, or along another matrix of the problem with the same norm."""

    def form(config: Config, data: Any) -> xr.DataArray:
        given = problem(config.seed)
        direction = getattr(given, of) / np.linalg.norm(getattr(given, of))
        return xr.DataArray(
            times * np.linalg.norm(given.coefficient) * direction, dims=("row", "column")
        )

    return form


def size(times: float) -> Callable[[Any, Any], float]:
    """The norm of the second-order bias at k = 1, times a number."""
    return lambda config, _: times * float(np.linalg.norm(problem(config.seed).coefficient))


def shrinkage(dimensions: int = D - 1, power: int = 2) -> float:
    """-(d - 1) σ²/(2 ‖μ‖²), or with another number or power in the place of d - 1 or 2."""
    return -dimensions * VECTOR_NOISE**power / (2 * VECTOR_NORM**power)


states = lab.Statements()
DECAY, AVERAGING = Measured(states, "decay"), Measured(states, "averaging")
BOTH = ("claim-9", "claim-9-expansion")

GROWN = {"the bias times k²": lambda decay: decay["along"] * decay.k**2.0}
DECAY.power("k", 1, "growth", BOTH, "along", GROWN, rivals={"it falls as 1/k": -1.0}, holds=False)(
    "The bias of Ortho(Σ G_i) grows as k."
)

OTHER_POWERS = {"1/√k": -0.5, "1/k²": -2.0, "k": 1.0}
DECAY.power("k", -1, "decay-of-bias", "claim-9", "along", rivals=OTHER_POWERS, corrected=True)(
    "It falls as 1/k where μ has full rank and k is large."
)

# The text expands at k μ with the derivative at μ, but D²Ortho(k μ) is k⁻² D²Ortho(μ).
OTHERS = {"D²Ortho(μ)[Σ]": coefficient(2.0), "along μ's factor": coefficient(-1.0, of="factor")}
DECAY.mean(
    coefficient(), "bias-coefficient", BOTH, "scaled", at={"k": -1}, rivals=OTHERS, corrected=True
)("Each entry of k · bias is that of ½ D²Ortho(μ)[Σ] at the largest k.")

WRONG = {
    "d for d - 1": shrinkage(D),
    "without the 2": 2 * shrinkage(),
    "σ/‖μ‖ for its square": shrinkage(power=1),
}
DECAY.mean(
    shrinkage(),
    "vector-coefficient",
    "claim-9",
    "scaled_vector",
    at={"k": -1},
    rivals=WRONG,
    corrected=True,
)("For a vector of d entries k · bias along μ is -(d - 1) σ²/(2 ‖μ‖²) at the largest k.")

# σ²/s_min² is 25 there, and 0.25 at s_min = 1: the bias is bounded by 2√n, which the second-order
# term exceeds.
HALF, WELL_CONDITIONED = "half of the second-order bias", {"s_min = 1": "share"}
DECAY.below(
    0.5, HALF, "onset", "claim-9", "share_small", WELL_CONDITIONED, at={"k": 0}, corrected=True
)(
    "The 1/k is for k far above σ²/s_min² only: with a small s_min the bias at few gradients is"
    " less than half of the second-order one."
)
DECAY.agree("homogeneous", "claim-9", "sum", {"without Ortho": "sum_control"}, corrected=True)(
    "Ortho of the sum is Ortho of the mean, since Ortho ignores scale: the noise that matters"
    " shrinks."
)

OF_MEAN = "the second-order bias of Ortho of their mean"
JACKKNIFE = {"Ortho of the mean, jackknifed": "along.jackknife"}
AVERAGING.above(
    size(1 / MOST),
    OF_MEAN,
    "sum-of-ortho",
    "claim-9",
    "along.mean_of_ortho",
    JACKKNIFE,
    corrected=True,
)("What no k removes is the distance of E[Ortho(G)] to Ortho(μ).")

AS_OF_MEAN = {"a bias in 1/k, as Ortho of the mean has": coefficient(1 / MOST - 1 / FEWEST)}
OF_FEW = {"Ortho of the mean of few": "change_control"}
AVERAGING.mean(0.0, "unbiased", "preamble-estimation", "change", OF_FEW, rivals=AS_OF_MEAN)(
    "E[Ortho(G_x)] can be estimated: the mean of Ortho(G_i) has the same expectation for few and"
    " many gradients."
)

PRODUCTS = {"products that are not normalized": "rank_one_control"}
AVERAGING.agree(
    "without-decomposition", "preamble-estimation", "rank_one", PRODUCTS, corrected=True
)(
    "Efficiently so: where a sample's gradient is a product of two vectors, the mean of normalized"
    " products is the mean of the factors."
)


def average_signs(left: xr.DataArray, *given: Any) -> lab.Relation:
    """What is left is of order 1/k²."""
    both = xr.concat([left, -left], xr.Variable("sign", [1, -1]))
    return lab.below(both, size(1 / MOST / 4)(*given), "a quarter of the second-order bias")


PLAIN = {"Ortho of the mean": "along.ortho_of_mean"}
AVERAGING.on(average_signs, "jackknife", "claim-9", "along.jackknife", PLAIN, corrected=True)(
    "The jackknife removes the 1/k term from Ortho of the mean: less than a quarter of it is left,"
    " of either sign."
)


def estimators(config: Config, data: Mapping[str, xr.Dataset]) -> list[lab.Table]:
    """Tabulate bias against both targets, spread and cost of the estimators."""
    averaging, factor = data["averaging"], problem(config.seed).factor
    target = averaging["mean.mean_of_ortho"].mean("seed").values
    rows = []
    for name, estimator in ESTIMATORS.items():
        mean, stderr = (a.values for a in sweep.mean_and_stderr(averaging[f"mean.{name}"]))
        spread = np.sqrt(np.sum(np.var(averaging[f"single.{name}"].values, axis=0, ddof=1)))
        known = (
            "0 (its mean is the target)"
            if name == "mean_of_ortho"
            else f"{np.linalg.norm(mean - target):.3f}"
        )
        numbers = (np.linalg.norm(mean - factor), known, np.linalg.norm(stderr), spread)
        cells = (number if isinstance(number, str) else f"{number:.3f}" for number in numbers)
        rows.append(
            (estimator.label, str(estimator.gradients), str(estimator.polar_factors), *cells)
        )
    header = (
        "estimator",
        "gradients",
        "polar factors",
        "bias to Ortho(μ)",
        "bias to E[Ortho(G)]",
        "SE of the biases",
    )
    return [
        lab.Table("Claim 9: ways to average, Frobenius norms", (*header, "spread"), tuple(rows))
    ]


EXPERIMENT = lab.Experiment(
    "claims-bias",
    ledger("claims"),
    title=(
        "The bias of Ortho of a sum falls as 1/k; what does not shrink is the distance of"
        " E[Ortho(G)] to Ortho(μ)"
    ),
    summary=(
        "Ortho of a sum is Ortho of a mean: its bias is ½ D²Ortho(μ)[Σ]/k once k is far above"
        " σ²/s_min², not of order k."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"gradients": 3500},
        "smoke": {"gradients": 1000},
        "paper": {"gradients": 100_000},
    },
    tables=estimators,
)
