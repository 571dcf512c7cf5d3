"""Claim 9: the bias of Ortho of a sum, its decay and its coefficient, next to the other ways of averaging."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.claims.errors import Errors
from specjax.experiments.claims.matrices import relative, spectra
from specjax.experiments.ledgers import ledger
from specjax.spectral import averages

COUNTS = (4, 16, 64, 256, 1024)
M, N, D = 4, 3, 6
"""A matrix mean of shape (M, N), and a vector mean of D entries."""
SMALLEST = (1.0, 0.1)
"""The smallest singular value of the mean, beside 2 and 1.5."""
DEVIATIONS = np.linspace(0.2, 0.8, M * N).reshape(M, N)
"""The standard deviation of each entry of the noise: it differs from entry to entry."""
VECTOR_NORM, VECTOR_NOISE = 2.0, 0.5
MOST, FEWEST, GROUPS = 16, 4, 4
"""Gradients that the estimators average, and groups or microbatches of four."""
ROUNDING = 1e-10


class Config(lab.Config):
    """How many draws make a mean."""

    gradients: int = lab.seeds(10_000, least=500, help="draws of a mean of polar factors at each number k of gradients")


class Problem(NamedTuple):
    """A mean, its polar factor, and what k times the bias tends to, ½ D²Ortho(μ)[Σ], in float64."""

    mu: Float[np.ndarray, "m n"]
    factor: Float[np.ndarray, "m n"]
    coefficient: Float[np.ndarray, "m n"]

    @property
    def size(self) -> float:
        """The norm of the coefficient."""
        return float(np.linalg.norm(self.coefficient))

    @property
    def along(self) -> Float[np.ndarray, "m n"]:
        """The direction of the bias."""
        return self.coefficient / self.size


@functools.cache
def problem(seed: int, smallest: float = SMALLEST[0]) -> Problem:
    """A mean with singular values 2, 1.5 and `smallest`, the same in every draw of a run."""

    @jax.jit
    def derived(values: Array) -> tuple[Array, Array, Array]:
        mu = spectra(sizes.stream(jax.random.key(seed), "mean"), {"mu": (M, N)}, {"mu": values})["mu"]
        factor = jnp.diag(jnp.asarray(DEVIATIONS).ravel()).reshape(M, N, M * N)
        return mu, spectral.polar(mu), averages.second_order_bias(mu, factor)

    with jax.enable_x64(True):
        return Problem(*(np.asarray(x) for x in derived(jnp.asarray([2.0, 1.5, smallest]))))


class Estimator(NamedTuple):
    """A way to average `gradients` gradients: its name in a table, the polar factors it takes, and the function."""

    label: str
    gradients: int
    polar_factors: int
    function: Callable[[Array], Array]


ESTIMATORS: Mapping[str, Estimator] = {
    "ortho_of_mean_few": Estimator("Ortho of mean", FEWEST, 1, averages.polar_of_mean),
    "ortho_of_mean": Estimator("Ortho of mean", MOST, 1, averages.polar_of_mean),
    "jackknife": Estimator("Ortho of mean, jackknife", MOST, MOST + 1, averages.jackknifed_polar),
    "group_jackknife": Estimator(
        f"Ortho of mean, jackknife with {GROUPS} groups",
        MOST,
        GROUPS + 1,
        lambda g: averages.jackknifed_polar(g, GROUPS),
    ),
    "microbatched": Estimator(
        f"mean of Ortho of {GROUPS} microbatches",
        MOST,
        GROUPS,
        lambda g: averages.microbatched_polar(g, MOST // GROUPS),
    ),
    "mean_of_ortho": Estimator("mean of Ortho", MOST, MOST, averages.mean_of_polar),
    "mean_of_ortho_few": Estimator("mean of Ortho", FEWEST, FEWEST, averages.mean_of_polar),
}


def run(config: Config, key: Key[Array, ""]) -> dict[str, xr.Dataset]:
    """Biases of Ortho of a mean of k gradients at both means, and of five ways to average 4 or 16 gradients.

    Every draw is used with both signs of its noise: the first-order term of the expansion cancels, which no k removes from the
    variance otherwise, and the mean stays what it is.
    """
    given = [problem(config.seed, smallest) for smallest in SMALLEST]
    with jax.enable_x64(True):
        mus, factors, directions = (
            jnp.stack([jnp.asarray(getattr(p, name)) for p in given]) for name in ("mu", "factor", "along")
        )
        deviations, vector = jnp.asarray(DEVIATIONS), VECTOR_NORM * jnp.eye(D, 1)
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
                "bias": biases[0],
                "along": along[0],
                "along_small": along[1],
                "vector": jnp.sum((sum(normalized) / 2 - unit) * unit),
                "sum": relative(spectral.polar(k * means), spectral.polar(means)),
                "sum_control": relative(k * means, means),
            }

        def averaging(key: Key[Array, ""], scale: Array) -> dict[str, Array | dict[str, Array]]:
            z = jax.random.normal(key, (MOST, M, N))
            noise = scale * deviations[None] * z
            both = jnp.stack([mus[:1] + noise, mus[:1] - noise])
            results: dict[str, Array | dict[str, Array]] = {}
            for name, estimator in ESTIMATORS.items():
                found = estimator.function(both[:, : estimator.gradients])
                results[name] = {"mean": jnp.mean(found, axis=0), "single": found[0]}
            left, right = z[:, :, 0], z[:, 0, :]
            products = left[:, :, None] * right[:, None, :]
            results["rank_one"] = relative(
                averages.mean_of_rank_one_polar(left, right), averages.mean_of_polar(products)
            )
            results["rank_one_control"] = relative(jnp.mean(products, axis=0), averages.mean_of_polar(products))
            return results

        counts = {"k": sweep.values(*map(float, COUNTS))}
        decayed = sweep.run(decay, counts, seeds=config.gradients, key=sizes.stream(key, "decay"), chunk=5000)
        averaged = sweep.run(
            averaging, {"scale": sweep.values(1.0)}, seeds=config.gradients // 4, key=sizes.stream(key, "averaging")
        ).isel(scale=0)
    entries = {
        f"{name}.{kind}_dim_{axis}": dim
        for name in ESTIMATORS
        for kind in ("mean", "single")
        for axis, dim in enumerate(("row", "column"))
    }
    return {"decay": decayed.rename(bias_dim_0="row", bias_dim_1="column"), "averaging": averaged.rename(entries)}


def along(config: Config, data: Mapping[str, xr.Dataset], name: str) -> xr.DataArray:
    """The bias against Ortho(μ) of an estimator, on the direction of the second-order bias."""
    theory, mean = problem(config.seed), data["averaging"][f"{name}.mean"]
    factor, direction = (xr.DataArray(a, dims=("row", "column")) for a in (theory.factor, theory.along))
    return ((mean - factor) * direction).sum(("row", "column")).rename(name)


def coefficient(config: Config, data: Any) -> xr.DataArray:
    """½ D²Ortho(μ)[Σ]."""
    return xr.DataArray(problem(config.seed).coefficient, dims=("row", "column"))


def shrinkage(dimensions: int = D - 1, power: int = 2) -> float:
    """-(d - 1) σ²/(2 ‖μ‖²), or with another number or power in the place of d - 1 or 2."""
    return -dimensions * VECTOR_NOISE**power / (2 * VECTOR_NORM**power)


def times_k(power: float, of: str = "along") -> Callable[[Any, Any], Any]:
    """A control: the bias times a power of k."""
    return lab.replacing(of, lambda decay: decay[of] * decay.k**power, of="decay")


@lab.statement(
    ("claim-9", "claim-9-expansion"),
    "The bias of Ortho(Σ G_i) grows as k.",
    holds=False,
    rivals={"it falls as 1/k": -1.0},
    controls={"the bias times k²": times_k(2.0)},
)
def growth(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """As printed."""
    return lab.scales_as(data["decay"]["along"], "k", 1)


@lab.statement(
    "claim-9",
    "It falls as 1/k where μ has full rank and k is large.",
    corrected=True,
    rivals={"1/√k": -0.5, "1/k²": -2.0, "k": 1.0},
)
def decay_of_bias(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """Ortho ignores scale, and the noise of a mean shrinks."""
    return lab.scales_as(data["decay"]["along"], "k", -1)


@lab.statement(
    ("claim-9", "claim-9-expansion"),
    "Each entry of k · bias is that of ½ D²Ortho(μ)[Σ] at the largest k.",
    corrected=True,
    rivals={
        "D²Ortho(μ)[Σ]": lambda config, data: 2 * coefficient(config, data),
        "along μ's factor": lambda config, data: xr.DataArray(
            -problem(config.seed).size * problem(config.seed).factor / np.sqrt(N), dims=("row", "column")
        ),
    },
)
def bias_coefficient(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """The text expands at k μ with the derivative at μ; D²Ortho(k μ) is k⁻² D²Ortho(μ)."""
    last = data["decay"].isel(k=-1)
    return lab.equals((last["bias"] * last.k).rename("k · bias"), coefficient(config, data))


@lab.statement(
    "claim-9",
    "For a vector of d entries k · bias along μ is -(d - 1) σ²/(2 ‖μ‖²) at the largest k.",
    corrected=True,
    rivals={
        "d for d - 1": shrinkage(D),
        "without the 2": 2 * shrinkage(),
        "σ/‖μ‖ for its square": shrinkage(power=1),
    },
)
def vector_coefficient(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """The one case in closed form without a derivative."""
    last = data["decay"].isel(k=-1)
    return lab.equals((last["vector"] * last.k).rename("k · bias"), shrinkage())


@lab.statement(
    "claim-9",
    "The 1/k is for k far above σ²/s_min² only: with a small s_min the bias at few gradients is less than half of the second-order one.",
    corrected=True,
    controls={"s_min = 1": lambda config, data: {**data, "decay": _well_conditioned(config, data)}},
)
def onset(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """σ²/s_min² is 25 there, and 0.25 at s_min = 1: the bias is bounded by 2√n, which the second-order term exceeds."""
    first = data["decay"].isel(k=0)
    return lab.below(
        (first["along_small"] * first.k / problem(config.seed, SMALLEST[1]).size).rename("bias / second order"),
        0.5,
        "half of the second-order bias",
    )


def _well_conditioned(config: Config, data: Mapping[str, xr.Dataset]) -> xr.Dataset:
    factor = problem(config.seed, SMALLEST[1]).size / problem(config.seed).size
    return data["decay"].assign(along_small=data["decay"]["along"] * factor)


@lab.statement(
    "claim-9",
    "What no k removes is the distance of E[Ortho(G)] to Ortho(μ).",
    corrected=True,
    controls={"Ortho of the mean, jackknifed": lab.replacing("mean_of_ortho.mean", "jackknife.mean", of="averaging")},
)
def sum_of_ortho(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """From means of as many factors."""
    size = problem(config.seed).size
    return lab.above(along(config, data, "mean_of_ortho"), size / MOST, "the second-order bias of Ortho of their mean")


@lab.statement(
    "preamble-estimation",
    "E[Ortho(G_x)] can be estimated: the mean of Ortho(G_i) has the same expectation for few and many gradients.",
    rivals={
        "a bias in 1/k, as Ortho of the mean has": lambda config, data: (
            coefficient(config, data) * (1 / MOST - 1 / FEWEST)
        )
    },
    controls={
        "Ortho of the mean of few": lab.replacing("mean_of_ortho_few.mean", "ortho_of_mean_few.mean", of="averaging")
    },
)
def unbiased(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """Unbiased for its own expectation at every k."""
    averaging = data["averaging"]
    return lab.equals((averaging["mean_of_ortho.mean"] - averaging["mean_of_ortho_few.mean"]).rename("change"), 0.0)


@lab.statement(
    "claim-9",
    "The jackknife removes the 1/k term from Ortho of the mean: less than a quarter of it is left, of either sign.",
    corrected=True,
    controls={"Ortho of the mean": lab.replacing("jackknife.mean", "ortho_of_mean.mean", of="averaging")},
)
def jackknife(config: Config, data: Mapping[str, xr.Dataset]) -> lab.Relation:
    """What is left is of order 1/k²."""
    left = along(config, data, "jackknife")
    both = xr.concat([left, -left], xr.Variable("sign", [1, -1]))
    return lab.below(both, problem(config.seed).size / MOST / 4, "a quarter of the second-order bias")


HOMOGENEOUS = Errors("decay", ROUNDING).agree(
    "homogeneous",
    "claim-9",
    "Ortho of the sum is Ortho of the mean, since Ortho ignores scale: the noise that matters shrinks.",
    "sum",
    {"without Ortho": "sum_control"},
    corrected=True,
)
WITHOUT_DECOMPOSITION = Errors("averaging", ROUNDING).agree(
    "without-decomposition",
    "preamble-estimation",
    "Efficiently so: where a sample's gradient is a product of two vectors, the mean of normalized products is the mean of the factors.",
    "rank_one",
    {"products that are not normalized": "rank_one_control"},
    corrected=True,
)


def estimators(config: Config, data: Mapping[str, xr.Dataset]) -> list[lab.Table]:
    """Bias against both targets, spread and cost of the estimators."""
    averaging, factor = data["averaging"], problem(config.seed).factor
    target = averaging["mean_of_ortho.mean"].mean("seed").values
    rows = []
    for name, estimator in ESTIMATORS.items():
        mean, stderr = (a.values for a in sweep.mean_and_stderr(averaging[f"{name}.mean"]))
        spread = np.sqrt(np.sum(np.var(averaging[f"{name}.single"].values, axis=0, ddof=1)))
        rows.append(
            (
                estimator.label,
                str(estimator.gradients),
                str(estimator.polar_factors),
                f"{np.linalg.norm(mean - factor):.3f}",
                "0 (its mean is the target)" if name == "mean_of_ortho" else f"{np.linalg.norm(mean - target):.3f}",
                f"{np.linalg.norm(stderr):.3f}",
                f"{spread:.3f}",
            )
        )
    header = ("estimator", "gradients", "polar factors", "bias to Ortho(μ)", "bias to E[Ortho(G)]", "SE of the biases")
    return [lab.Table("Claim 9: ways to average, Frobenius norms", (*header, "spread"), tuple(rows))]


EXPERIMENT = lab.Experiment(
    "claims-bias",
    ledger("claims"),
    title="The bias of Ortho of a sum falls as 1/k; what does not shrink is the distance of E[Ortho(G)] to Ortho(μ)",
    summary="Ortho ignores scale, so Ortho of a sum is Ortho of a mean: its bias is ½ D²Ortho(μ)[Σ]/k, entry by entry, once k is far above "
    "σ²/s_min². The text says that it grows as k.",
    config=Config,
    measure=run,
    statements=(
        growth,
        decay_of_bias,
        bias_coefficient,
        vector_coefficient,
        onset,
        HOMOGENEOUS,
        sum_of_ortho,
        unbiased,
        WITHOUT_DECOMPOSITION,
        jackknife,
    ),
    scales={"smoke": {"gradients": 1000}, "paper": {"gradients": 100_000}},
    tables=estimators,
)
