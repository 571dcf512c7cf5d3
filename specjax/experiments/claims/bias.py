"""Claim 9: the bias of Ortho of a sum, its decay and its coefficient, next to the other ways of averaging."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float
from matplotlib.axes import Axes

from specjax import spectral, sweep
from specjax.experiments.claims.contract import Claim, Config, corrected, printed
from specjax.experiments.claims.matrices import relative, spectra
from specjax.experiments.contract import Check, Data, Table
from specjax.experiments.plots import draw_sweep, slope_label
from specjax.experiments.verdicts import (
    closed_form_check,
    difference_check,
    equality_check,
    exponent_check,
    mean_check,
)
from specjax.spectral import averages

COUNTS = (4, 16, 64, 256, 1024)
M, N, D = 4, 3, 6
"""A matrix mean of shape (M, N), and a vector mean of D entries."""
VECTOR_NOISE = 0.5
MOST, FEWEST, GROUPS = 16, 4, 4
"""Gradients that the estimators average, and groups or microbatches of four."""


class Problem(NamedTuple):
    """The means, the standard deviation of each entry of the noise, and what the theory says of the bias, in float64."""

    mu: Float[np.ndarray, "m n"]
    deviations: Float[np.ndarray, "m n"]
    factor: Float[np.ndarray, "m n"]
    coefficient: Float[np.ndarray, "m n"]
    vector: Float[np.ndarray, "d 1"]
    vector_coefficient: float

    @property
    def along(self) -> Float[np.ndarray, "m n"]:
        """The direction of the bias."""
        return self.coefficient / np.linalg.norm(self.coefficient)


@functools.cache
def problem() -> Problem:
    """A mean with singular values 2, 1.5, 1 and noise that differs from entry to entry, the same in every draw."""
    deviations = np.linspace(0.2, 0.8, M * N).reshape(M, N)
    vector = 2.0 * np.eye(D, 1)

    @jax.jit
    def derived(values: Array) -> tuple[Array, Array, Array]:
        mu = spectra(jax.random.key(9), {"mu": (M, N)}, {"mu": values})["mu"]
        factor = jnp.diag(jnp.asarray(deviations).ravel()).reshape(M, N, M * N)
        return mu, spectral.polar(mu), averages.second_order_bias(mu, factor)

    with jax.enable_x64(True):
        mu, factor, coefficient = (np.asarray(x) for x in derived(jnp.asarray([2.0, 1.5, 1.0])))
    # Of a vector of d entries with independent noise, along its mean.
    vector_coefficient = -(D - 1) * VECTOR_NOISE**2 / (2 * float(np.sum(vector**2)))
    return Problem(mu, deviations, factor, coefficient, vector, vector_coefficient)


def run_bias(config: Config) -> Data:
    """Biases of Ortho of a mean of k gradients, and of five ways to average 4 or 16 gradients.

    Every draw is used with both signs of its noise: the first-order term of the expansion cancels, which no k removes from the
    variance otherwise, and the mean stays what it is.
    """
    given = problem()
    with jax.enable_x64(True):
        mu, deviations, factor, vector, along = map(
            jnp.asarray, (given.mu, given.deviations, given.factor, given.vector, given.along)
        )
        unit = vector / jnp.linalg.norm(vector)

        def decay(key: Array, k: Array) -> dict[str, Array]:
            z = jax.random.normal(key, (M * N + D,))
            noise = deviations * z[: M * N].reshape(M, N) / jnp.sqrt(k)
            slide = VECTOR_NOISE * z[M * N :].reshape(D, 1) / jnp.sqrt(k)
            means = jnp.stack([mu + noise, mu - noise])
            bias = jnp.mean(spectral.polar(means), axis=0) - factor
            normalized = [v / jnp.linalg.norm(v) for v in (vector + slide, vector - slide)]
            return {
                "bias": bias,
                "along": jnp.sum(bias * along),
                "vector": jnp.sum((sum(normalized) / 2 - unit) * unit),
                "sum": relative(spectral.polar(k * means), spectral.polar(means)),
                "sum_control": relative(k * means, means),
            }

        def averaging(key: Array, scale: Array) -> dict[str, dict[str, Array]]:
            noise = scale * deviations[None] * jax.random.normal(key, (MOST, M, N))
            both = jnp.stack([mu[None] + noise, mu[None] - noise])
            results = {}
            for name, estimator in ESTIMATORS.items():
                found = estimator.function(both[:, : estimator.gradients])
                results[name] = {"mean": jnp.mean(found, axis=0), "single": found[0]}
            return results

        key = jax.random.key(config.seed)
        counts = {"k": sweep.values(*map(float, COUNTS))}
        return {
            "decay": sweep.run(decay, counts, seeds=config.gradients, key=key, chunk=5000),
            "averaging": sweep.run(averaging, {"scale": sweep.values(1.0)}, seeds=config.gradients // 4, key=key),
        }


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


def _along(averaging: xr.Dataset, name: str) -> xr.DataArray:
    """The bias against Ortho(μ) of an estimator, on the direction of the second-order bias."""
    theory = problem()
    values = averaging[f"{name}.mean"].isel(scale=0)
    projected = np.sum((values.values - theory.factor) * theory.along, axis=(-2, -1))
    return xr.DataArray(projected, {"seed": averaging["seed"]}, "seed", name)


def check_bias(config: Config, data: Data) -> list[Check]:
    """Claim 9."""
    decay, averaging, theory = data["decay"], data["averaging"], problem()
    fit = sweep.asymptotic_exponent(decay["along"], "k")
    most = decay.isel(k=-1)
    k = float(most["k"])
    bias, bias_stderr = (k * a.values for a in sweep.mean_and_stderr(most["bias"]))
    shrinkage, shrinkage_stderr = (k * float(a) for a in sweep.mean_and_stderr(most["vector"]))
    size = float(np.linalg.norm(theory.coefficient))
    kept, kept_stderr = (float(a) for a in sweep.mean_and_stderr(_along(averaging, "mean_of_ortho")))
    removed, removed_stderr = (MOST * float(a) for a in sweep.mean_and_stderr(_along(averaging, "jackknife")))
    change = averaging["mean_of_ortho.mean"].isel(scale=0)
    fewer = averaging["mean_of_ortho_few.mean"].isel(scale=0).values
    moved, moved_stderr = (a.values for a in sweep.mean_and_stderr(change.copy(data=change.values - fewer)))
    return [
        exponent_check(
            *printed(9, "growth", "The bias of Ortho(Σ G_i) grows as k: exponent +1."),
            predicted=1,
            fit=fit,
        ),
        exponent_check(
            *corrected(9, "decay", "It falls as 1/k where μ has full rank: exponent -1."),
            predicted=-1,
            fit=fit,
        ),
        closed_form_check(
            *corrected(9, "coefficient", f"Each entry of k · bias is that of ½ D²Ortho(μ)[Σ], at k = {k:g}."),
            predicted=theory.coefficient,
            mean=bias,
            stderr=bias_stderr,
            # Without the factor ½ the largest entry would be twice as large.
            resolution=np.max(np.abs(theory.coefficient)),
        ),
        mean_check(
            *corrected(
                9, "vector", f"For a vector of d entries k · bias along μ is -(d - 1) σ² / (2 ‖μ‖²), at k = {k:g}."
            ),
            predicted=theory.vector_coefficient,
            mean=shrinkage,
            stderr=shrinkage_stderr,
            # d in place of d - 1.
            resolution=abs(theory.vector_coefficient) / (D - 1),
        ),
        equality_check(
            *corrected(
                9,
                "homogeneous",
                "Ortho of the sum is Ortho of the mean, since Ortho ignores scale; so the noise that matters shrinks.",
            ),
            error=decay["sum"],
            control=decay["sum_control"],
            tolerance=1e-10,
        ),
        difference_check(
            *corrected(
                9,
                "sum-of-ortho",
                f"What no k removes is the distance of E[Ortho(G)] to Ortho(μ), here from means of {MOST} factors.",
            ),
            difference=kept,
            stderr=kept_stderr,
            resolution=size / MOST,
        ),
        closed_form_check(
            *corrected(
                9,
                "unbiased",
                f"The mean of Ortho(G_i) has the same expectation at k = {FEWEST} and {MOST}: it is unbiased for E[Ortho(G)].",
            ),
            predicted=np.zeros_like(moved),
            mean=moved,
            stderr=moved_stderr,
            resolution=abs(kept),
        ),
        mean_check(
            *corrected(
                9,
                "jackknife",
                f"The jackknife removes the 1/k term of the bias of Ortho of the mean: k · bias is 0 at k = {MOST}, not {-size:.2f}.",
            ),
            predicted=0,
            mean=removed,
            stderr=removed_stderr,
            resolution=size / 2,
        ),
    ]


def estimator_table(config: Config, data: Data) -> Table:
    """Bias against both targets, spread and cost of the estimators."""
    averaging, factor = data["averaging"].isel(scale=0), problem().factor
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
    header = (
        "estimator",
        "gradients",
        "polar factors",
        "bias to Ortho(μ)",
        "bias to E[Ortho(G)]",
        "SE of the biases",
        "spread",
    )
    return Table("Claim 9: ways to average, Frobenius norms", header, tuple(rows))


def draw_bias(axes: Axes, config: Config, data: Data) -> None:
    """The bias against k with its second-order term, the printed growth, and what sum-of-Ortho and the jackknife leave."""
    decay, size = data["decay"], float(np.linalg.norm(problem().coefficient))
    fit = sweep.asymptotic_exponent(decay["along"], "k")
    k = np.asarray(COUNTS, float)
    label = slope_label("Ortho of sum", fit.exponent, fit.interval[1] - fit.exponent)
    draw_sweep(axes, decay["along"], "k", label=label, color="C0")
    axes.plot(k, size / k, color="C0", linewidth=1, label="½ D²Ortho(μ)[Σ] / k")
    axes.plot(k, size / k[0] * k / k[0], "--", color="gray", linewidth=1, label="printed: ∝ k")
    kept = abs(float(_along(data["averaging"], "mean_of_ortho").mean()))
    axes.axhline(kept, color="C1", linewidth=1, label="sum of Ortho")
    axes.set_ylim(size / k[-1] / 3, 10)
    axes.set_xlabel("gradients k")
    axes.set_ylabel("bias against Ortho(μ)")
    axes.legend(fontsize="x-small")


CLAIMS = (
    Claim(
        9,
        "The bias of Ortho of a sum explodes",
        "The bias of Ortho(Σ G_i) is O(k Σ).",
        "False: it is ½ D²Ortho(μ)[Σ] / k. What does not shrink is the distance of sum-of-Ortho to Ortho(μ).",
        "claim-9-printed-growth",
        frozenset({"claim-9-printed-growth"}),
        run_bias,
        check_bias,
        draw_bias,
        tables=(estimator_table,),
    ),
)
