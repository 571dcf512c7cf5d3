"""Section 3.1.1 and Theorem 3.7: mean and covariance of ReLU features, their expansions in the dimension, spike and bulk."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specjax import spectral, sweep
from specjax.experiments.contract import Check, Data, Experiment, Table
from specjax.experiments.means import Mean, mean_of
from specjax.experiments.plots import draw_sweep, slope_label
from specjax.experiments.validation import check_root_seed, check_sizes
from specjax.experiments.verdicts import bound_check, exponent_check, mean_check, vanishing_check
from specjax.models import random_features as model
from specjax.theory import random_features as theory

GAMMA = 2
"""Features per dimension, k = 2d, as in Corollary 3.8 and in the figures."""
SAMPLES = 8
"""Samples per dimension, n = 8d."""
MEAN, MEAN_PRINTED = 1 / np.sqrt(2 * np.pi), 1 / (2 * np.pi)
DISTANCES = ("remainder", "cross_corrected", "cross_printed")
EIGENVALUES = {"largest": 1, "second": 0, "smallest": 0}
"""The ends of the spectrum of A Aᵀ/n and their powers of d by Theorem 3.4."""
TRACE = 0.5 - 1 / (2 * np.pi)
# The largest entry is a Gumbel variable about √2 of the unit; 4 is the paper's constant.
INCOHERENCE = 4.0


@dataclass(frozen=True)
class Config:
    """Dimensions d; there are 2d features and 8d samples."""

    ds: tuple[int, ...] = field(default=(16, 24, 48, 96, 192), metadata={"help": "input dimensions"})
    seeds: int = field(default=12, metadata={"help": "draws of the weights and the samples at each dimension"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        check_sizes("ds", self.ds, least=8, points=5)
        if self.seeds < 10:
            raise ValueError(f"seeds must be at least 10, for an exponent with an interval, got {self.seeds}.")
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """Moments of one draw of V and V̄, exact and by samples, at every dimension."""

    def measure(key: Array, d: int, k: int, n: int) -> dict[str, Array]:
        # Weights and samples in one draw: a generator takes long to compile.
        v, v_bar, x = jnp.split(model.weights(key, 2 * k + n, d), [k, 2 * k])
        a, a_bar = (model.relu_features(w, jnp.sqrt(float(d)) * x.T) for w in (v, v_bar))
        return {
            **exact_moments(v),
            **cross_moments(v_bar, v),
            **sampled_moments(v, a),
            **cross_bulks(v_bar, v, a_bar, a),
        }

    over = {
        "d": sweep.zipped(
            d=sweep.widths(*config.ds),
            k=sweep.widths(*(GAMMA * d for d in config.ds)),
            n=sweep.widths(*(SAMPLES * d for d in config.ds)),
        )
    }
    with jax.enable_x64(True):
        # Padding would put zeros among the smallest eigenvalues.
        return {"features": sweep.run(measure, over, seeds=config.seeds, key=jax.random.key(config.seed), plan="exact")}


def exact_moments(v: Array) -> dict[str, Array]:
    """Σ of V against Theorem 3.2, its expansion (3.6) and the bulk's edges; rows of V against Lemma 3.3."""
    k, d = v.shape
    sigma, gram = theory.feature_covariance(v, v), v @ v.T
    eigenvalues = jnp.linalg.eigvalsh(sigma)
    squares = jnp.diagonal(gram)
    spread = jnp.max(jnp.abs(squares - 1))
    cosines = gram / jnp.sqrt(squares[:, None] * squares[None, :]) - jnp.eye(k)
    upper = (1 + 1 / (np.pi * (1 - spread))) / 4 * jnp.linalg.eigvalsh(gram)[-1] + theory.MEAN_WEIGHT * (1 + spread)
    return {
        "remainder": _symmetric_norm(sigma - theory.covariance_expansion(v)),
        "lower_margin": jnp.linalg.eigvalsh(sigma - gram / 4)[0] - theory.MEAN_WEIGHT * (1 - spread),
        # From ε = 1 on the bound says nothing.
        "upper_margin": jnp.where(spread < 1, 1 - eigenvalues[-1] / upper, 1),
        "incoherence": jnp.maximum(jnp.max(jnp.abs(cosines)), spread) / np.sqrt(np.log(k) / d),
        "trace": jnp.trace(sigma) / k,
    }


def cross_moments(v_bar: Array, v: Array) -> dict[str, Array]:
    """Distances of the cross covariance to its three expansions."""
    cross = theory.feature_covariance(v_bar, v)
    return {
        name: spectral.spectral_norm(cross - expansion(v_bar, v))
        for name, expansion in (
            ("cross_corrected", theory.cross_covariance_expansion),
            ("cross_printed", theory.cross_covariance_expansion_as_printed),
        )
    }


def sampled_moments(v: Array, a: Array) -> dict[str, Array]:
    """Mean of the features over row norms, the spike without bias, and the ends of the spectrum of A Aᵀ/n (Theorem 3.4)."""
    halves = jnp.split(a, 2, axis=1)
    first, second = (jnp.mean(half, axis=1) for half in halves)
    eigenvalues = jnp.linalg.eigvalsh(model.second_moment(a, a))
    return {
        "mean": jnp.mean((first + second) / 2 / jnp.linalg.norm(v, axis=1)),
        # The halves are independent, so their product has no share of the covariance.
        "spike": jnp.sum(first * second) / a.shape[0],
        "largest": eigenvalues[-1],
        "second": eigenvalues[-2],
        "smallest": eigenvalues[0],
    }


def cross_bulks(v_bar: Array, v: Array, a_bar: Array, a: Array) -> dict[str, Array]:
    """Singular values d and d + 1 of the bulk of B̄: of the population, and of the samples (Corollary 3.8)."""
    d = v.shape[1]
    sampled = model.second_moment(*(one - jnp.mean(one, axis=1, keepdims=True) for one in (a_bar, a)))
    values = jnp.linalg.svd(jnp.stack([theory.cross_bulk(v_bar, v), sampled]), compute_uv=False)
    names = (("population_kept", "population_cut"), ("sampled_kept", "sampled_cut"))
    return {name: values[i, d - 1 + j] for i, pair in enumerate(names) for j, name in enumerate(pair)}


def _symmetric_norm(x: Array) -> Array:
    eigenvalues = jnp.linalg.eigvalsh(x)
    return jnp.maximum(eigenvalues[-1], -eigenvalues[0])


def fits(features: xr.Dataset) -> dict[str, sweep.PowerLawFit]:
    """Power laws in d of the distances."""
    return {name: sweep.fit_power_law(features[name], "d") for name in DISTANCES}


def growth(features: xr.Dataset) -> dict[str, sweep.AsymptoticExponent]:
    """Exponents at large d of the ends of the spectrum, whose edges are approached slowly."""
    return {name: sweep.asymptotic_exponent(features[name], "d") for name in EIGENVALUES}


def checks(config: Config, data: Data) -> list[Check]:
    """Mean and spike (erratum 1), Theorem 3.2 to 3.4, and Theorem 3.7 with both sets of coefficients (erratum 2)."""
    features = data["features"]
    power, spectrum = fits(features), growth(features)
    # Means over the dimensions of one seed; the dimensions share rows, the seeds nothing.
    mean, spike, trace = (mean_of(features[n].mean("d").values) for n in ("mean", "spike", "trace"))
    section = "spectral-criterion, Section 3.1.1"
    return [
        _number(
            "mean-printed", section, "The features have mean ‖v_i‖/2π.", MEAN_PRINTED, mean, (MEAN - MEAN_PRINTED) / 2
        ),
        _number("mean-corrected", f"{section}, corrected", "The features have mean ‖v_i‖/√(2π).", MEAN, mean, 0.01),
        _number("spike-printed", section, "The spike is ‖V‖_F²/4π².", MEAN_PRINTED**2, spike, 0.06),
        _number("spike-corrected", f"{section}, corrected", "The spike is ‖V‖_F²/2π.", MEAN**2, spike, 0.01),
        _number("trace", f"{section} [ours]", "The covariance has trace (1/2 - 1/2π) k.", TRACE, trace, 0.02),
        bound_check(
            "covariance-lower-bound",
            "spectral-criterion, Theorem 3.2",
            "Σ - ¼VVᵀ is at least (π - 3)(1 - ε)/4π, in every draw and without the remainder that the theorem allows.",
            smallest_margin=float(features["lower_margin"].min()),
        ),
        bound_check(
            "covariance-upper-bound",
            "spectral-criterion, Theorem 3.2",
            "Σ is at most (1 + 1/(π(1 - ε)))/4 ‖V‖_op² + (π - 3)(1 + ε)/4π, in every draw and without the remainder.",
            smallest_margin=float(features["upper_margin"].min()),
        ),
        bound_check(
            "incoherence",
            "spectral-criterion, Lemma 3.3",
            "Cosines between rows of V, and ‖v_i‖² - 1, are at most 4 √(log k/d), in every draw.",
            smallest_margin=INCOHERENCE - float(features["incoherence"].max()),
        ),
        exponent_check(
            "expansion-remainder",
            "spectral-criterion, (3.6)",
            "The remainder of the expansion of Σ falls as 1/d at k = 2d.",
            predicted=-1,
            fit=sweep.asymptotic_exponent(features["remainder"], "d"),
            resolution=0.5,
        ),
        vanishing_check(
            "cross-covariance-printed",
            "spectral-criterion, Theorem 3.7",
            "The cross covariance approaches (1/2π)V̄Vᵀ + (1/d)11ᵀ.",
            fit=power["cross_printed"],
        ),
        vanishing_check(
            "cross-covariance-corrected",
            "spectral-criterion, Theorem 3.7, corrected",
            "The cross covariance approaches ¼V̄Vᵀ + (1/4πd)11ᵀ.",
            fit=power["cross_corrected"],
        ),
        exponent_check(
            "cross-covariance-rate",
            "spectral-criterion, Theorem 3.7, corrected",
            "At the rate √k/d: as d^(-1/2) at k = 2d.",
            predicted=-0.5,
            fit=sweep.asymptotic_exponent(features["cross_corrected"], "d"),
            resolution=0.5,
        ),
        *_cross_bulk_checks(features),
        *(
            exponent_check(
                f"spectrum-{name}",
                "spectral-criterion, Theorem 3.4",
                f"The {name} eigenvalue of A Aᵀ/n grows as d^{exponent} at k = 2d, n = 8d.",
                predicted=exponent,
                fit=spectrum[name],
                resolution=0.5,
            )
            for name, exponent in EIGENVALUES.items()
        ),
    ]


def _cross_bulk_checks(features: xr.Dataset) -> list[Check]:
    """Corollary 3.8 at the largest d: the bulk of B̄ has d singular values of order one and a gap that samples close."""
    largest, source = features.isel(d=-1), "spectral-criterion, Corollary 3.8"
    kept = largest["population_kept"].values
    gaps = [
        np.log2(largest[f"{name}_cut"].values / largest[f"{name}_kept"].values) for name in ("sampled", "population")
    ]
    return [
        bound_check(
            "cross-bulk-rank",
            source,
            "Singular value d of the bulk of B̄, all samples, is at least ¼(√γ - 1)², the bound for ¼V̄Vᵀ: mean less 4 standard errors at "
            "the largest d.",
            smallest_margin=mean_of(kept).low - theory.cross_bulk_edges(float(GAMMA))[0],
        ),
        vanishing_check(
            "cross-bulk-remainder",
            source,
            "Its singular value d + 1 vanishes as d grows.",
            fit=sweep.fit_power_law(features["population_cut"], "d"),
        ),
        bound_check(
            "cross-bulk-samples",
            source,
            f"The gap behind index d closes with few samples: log2 of the ratio of value d + 1 to d is higher at n = {SAMPLES}d than in "
            "the population, mean less 4 standard errors.",
            smallest_margin=mean_of(gaps[0] - gaps[1]).low,
        ),
    ]


def _number(name: str, source: str, statement: str, predicted: float, measured: Mean, resolution: float) -> Check:
    return mean_check(
        name,
        source,
        statement,
        predicted=float(predicted),
        mean=measured.mean,
        stderr=measured.stderr,
        resolution=float(resolution),
    )


def tables(config: Config, data: Data) -> list[Table]:
    """Per dimension: the errors of the expansions and the ends of the spectrum."""
    features = data["features"]
    columns = {
        "remainder of (3.6)": "remainder",
        "Theorem 3.7, printed": "cross_printed",
        "corrected": "cross_corrected",
        "λ_1(AAᵀ/n)": "largest",
        "λ_2": "second",
        "λ_k": "smallest",
    }
    rows = [(str(d), *(str(mean_of(features[name].sel(d=d).values)) for name in columns.values())) for d in config.ds]
    return [Table("Moments of ReLU features at k = 2d, n = 8d", ("d", *columns), tuple(rows))]


def plot(config: Config, data: Data) -> Figure:
    """Left: φ (Figure 16). Middle: errors of the expansions in d. Right: one spike and a bulk."""
    figure = Figure(figsize=(13, 4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    t = np.linspace(-1, 1, 201)
    with jax.enable_x64(True):
        left.plot(t, np.asarray(theory.phi(jnp.asarray(t))), color="C0", label="φ")
    left.plot(t, np.pi / 2 * t + t**2 / 2, "--", color="C1", linewidth=1, label="πt/2 + t²/2")
    left.set_xlabel("t, cosine between two rows")
    left.set_ylabel("φ(t)")
    left.legend(fontsize="small")
    features = data["features"]
    panels: list[tuple[Axes, Mapping[str, sweep.PowerLawFit | sweep.AsymptoticExponent]]] = [
        (middle, fits(features)),
        (right, growth(features)),
    ]
    for axes, exponents in panels:
        for index, ((name, fit), marker) in enumerate(zip(exponents.items(), "os^", strict=True)):
            label = slope_label(LABELS[name], fit.exponent, (fit.interval[1] - fit.interval[0]) / 2)
            draw_sweep(axes, features[name], "d", label=label, color=f"C{index}", marker=marker, line=True)
        axes.set_xlabel("dimension d")
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15))
    middle.set_ylabel("distance in the spectral norm")
    right.set_ylabel("eigenvalues of A Aᵀ/n")
    return figure


LABELS = {
    "remainder": "Σ, (3.6)",
    "cross_corrected": "Theorem 3.7, corrected",
    "cross_printed": "Theorem 3.7, printed",
    "largest": "largest",
    "second": "second",
    "smallest": "smallest",
}


EXPERIMENT = Experiment(
    name="relu-features",
    paper="spectral-criterion",
    source="spectral-criterion, Section 3.1.1, Theorems 3.2, 3.4 and 3.7, Corollary 3.8, Figure 16",
    title="One spike and a bulk: moments of ReLU features",
    summary=(
        "The mean of a feature is ‖v_i‖/√(2π) and not ‖v_i‖/2π. The cross covariance of two independent networks approaches "
        "¼V̄Vᵀ + (1/4πd)11ᵀ; with the printed coefficients the error does not vanish. The spectrum is one spike of order d above a bulk "
        "of order one, as stated."
    ),
    scales={
        "smoke": Config(ds=(8, 12, 16, 24, 32), seeds=20),
        "quick": Config(),
        "paper": Config(ds=(50, 100, 200, 400, 800), seeds=20),
    },
    run=run,
    checks=checks,
    plot=plot,
    tables=tables,
    refuted=frozenset({"mean-printed", "spike-printed", "cross-covariance-printed"}),
)
