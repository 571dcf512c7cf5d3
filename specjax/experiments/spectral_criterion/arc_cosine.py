"""Section 3.1.1 and Theorem 3.7: mean and covariance of ReLU features, spike and bulk."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion.quantities import Quantities, bounded, power
from specjax.lab.controls import Source
from specjax.models import random_features as model
from specjax.theory import feature_bulk
from specjax.theory import random_features as theory
from specjax.theory.angles import angle_mean

GAMMA, SAMPLES = 2, 8
"""Features and samples over the dimension: k = 2d, as in Corollary 3.8 and figures, and n = 8d."""
ACTIVATIONS = {
    "absolute": jnp.abs,
    "squared_relu": lambda z: jax.nn.relu(z) ** 2,
    "gelu": jax.nn.gelu,
    "tanh": jnp.tanh,
}
"""Activations; the last one is odd, with mean zero."""
PAIRS, ROW_COUNT, RARE = 10_000, 100, 4 / 100
"""Sampled pairs of features, rows, and the share that may be incoherent: 4 over their number."""
Data = Mapping[str, xr.Dataset]


class Config(lab.Config):
    """Dimensions and seeds."""

    ds: tuple[int, ...] = lab.config.sizes(
        16, 24, 40, 72, 128, least=8, points=5, help="input dimensions"
    )
    seeds: int = lab.config.seeds(72, help="samples of weights and inputs at each of ds")
    edge_ds: tuple[int, ...] = lab.config.sizes(
        100, 200, least=100, help="input dimensions of the edges of the bulk"
    )
    edge_seeds: int = lab.config.seeds(100, help="samples of weights at each of edge_ds")
    row_seeds: int = lab.config.seeds(300, least=260, help="samples of incoherent rows")
    pairs: int = lab.config.seeds(100, help="batches of pairs of features at each cosine")
    seed: int = lab.config.root_seed(
        4, help="root of all randomness; Theorem 3.7's constant was found on other samples"
    )


def run(config: Config, key: Key[Array, ""]) -> Data:
    def run_sweep(
        measure: Callable[..., Any], ds: tuple[int, ...], seeds: int, **sides: int
    ) -> xr.Dataset:
        axes = {
            name: sweep.widths(*(times * d for d in ds))
            for name, times in {"d": 1, **sides}.items()
        }
        over = {"d": sweep.zipped(**axes)}
        return lab.seeded_sweep(key, measure.__name__, measure, seeds, **over)

    cosines = {"cosine": sweep.values(-0.9, -0.5, 0.0, 0.5, 0.9, 1.0)}
    with jax.enable_x64(True):
        return {
            "features": run_sweep(features, config.ds, config.seeds, k=GAMMA, n=SAMPLES),
            "edges": run_sweep(edges, config.edge_ds, config.edge_seeds, k=GAMMA),
            # As few as Lemma 3.3 requires, and enough rows to bring the bounds of Theorem 3.2 near.
            "rows": run_sweep(rows, (20,), config.row_seeds, k=ROW_COUNT // 20),
            "pairs": lab.seeded_sweep(key, "pairs", pairs, config.pairs, **cosines),
        }


def features(key: Key[Array, ""], d: int, k: int, n: int) -> dict[str, Array]:
    # Weights and samples are one sample, since a generator compiles slowly.
    v, v_bar, x = jnp.split(model.weights(key, 2 * k + n, d), [k, 2 * k])
    a, a_bar = (model.relu_features(w, jnp.sqrt(float(d)) * x.T) for w in (v, v_bar))
    # The halves are independent, so their product contains no covariance.
    halves = [jnp.mean(half, axis=1) for half in jnp.split(a, 2, axis=1)]
    centred, centred_bar = (one - jnp.mean(one, axis=1, keepdims=True) for one in (a, a_bar))
    sigma, cross, bulk = (
        theory.feature_covariance(v, v),
        theory.feature_covariance(v_bar, v),
        v_bar @ v.T / 4,
    )
    nu, mu = map(theory.feature_mean, (v_bar, v))
    # Equal shapes share a program, since decompositions compile slowly.
    others = {
        name: function(jnp.sqrt(float(d)) * (v @ x.T)) for name, function in ACTIVATIONS.items()
    }
    moments = {"covariance": centred, "second_moment": a, **others}
    spectra = jnp.linalg.eigvalsh(
        jnp.stack([model.second_moment(one, one) for one in moments.values()])
    )
    values = dict(zip(moments, spectra, strict=True))
    distances = {
        "expansion": sigma - theory.covariance_expansion(v),
        "without_squares": (
            sigma - v @ v.T / 4 - jnp.diag(theory.MEAN_WEIGHT * jnp.sum(v**2, axis=1))
        ),
        "cross_corrected": cross - theory.cross_covariance_expansion(v_bar, v),
        "cross_printed": cross - theory.cross_covariance_expansion_as_printed(v_bar, v),
        "cross_bulk_alone": cross - bulk,
    }
    matrices = [
        *distances.values(),
        model.second_moment(centred_bar, centred),
        theory.cross_bulk(v_bar, v),
    ]
    *norms, kept, cut = jnp.linalg.svd(jnp.stack(matrices), compute_uv=False)
    return {
        "student": jnp.mean((halves[0] + halves[1]) / 2 / jnp.linalg.norm(v, axis=1)),
        "teacher": jnp.mean(jnp.mean(a_bar, axis=1) / jnp.linalg.norm(v_bar, axis=1)),
        "spike": jnp.sum(halves[0] * halves[1]) / jnp.sum(v**2),
        **{name: found[0] for name, found in zip(distances, norms, strict=True)},
        "cross_spike": (
            d * (nu @ distances["cross_bulk_alone"] @ mu) / (jnp.sum(nu**2) * jnp.sum(mu**2))
        ),
        "cross_kept": kept[0] / kept[d - 1],
        "cross_cut": cut[0] / cut[d],
        **{name: values[name][-1] / values[name][0] for name in ("covariance", "second_moment")},
        **{name: values[name][-1] / values[name][-2] for name in others},
    }


def edges(key: Key[Array, ""], d: int, k: int) -> dict[str, Array]:
    """Edges of the spectrum of Σ over the bulk's at finite d, and the lower over its limit."""
    v = model.weights(key, k, d)
    found, (low, high) = (
        jnp.linalg.eigvalsh(theory.feature_covariance(v, v)),
        feature_bulk.bulk_edges(k, d),
    )
    return {
        "lower": found[0] / low,
        "upper": found[-1] / high,
        "limit": found[0] / feature_bulk.limiting_bulk_edges(k / d)[0],
    }


def rows(key: Key[Array, ""], d: int, k: int) -> dict[str, Array]:
    """Ratios of both sides of Lemma 3.3 for Gaussian rows, and of Theorem 3.2 for unit rows."""
    v = model.weights(key, k, d)
    lengths = jnp.linalg.norm(v, axis=1, keepdims=True)
    u = v / lengths
    sigma, gram = theory.feature_covariance(u, u), u @ u.T
    bound = (1 + 1 / np.pi) / 4 * jnp.linalg.eigvalsh(u.T @ u)[-1] + theory.MEAN_WEIGHT
    norm = jnp.sqrt(jnp.linalg.eigvalsh(v.T @ v)[-1])
    # With the constant 4 of (3.7) and δ = 1/2 of (3.8).
    cosine, length = (
        jnp.max(jnp.abs(x)) / (4 * np.sqrt(np.log(k) / d))
        for x in (gram - jnp.eye(k), lengths**2 - 1)
    )
    parts = [cosine, length, 2 * (norm - np.sqrt(k / d) - 1), 2 * jnp.abs(jnp.sum(v**2) / k - 1)]
    return {
        "incoherence": jnp.max(jnp.stack(parts)),
        "lower": jnp.linalg.eigvalsh(sigma - gram / 4)[0] / theory.MEAN_WEIGHT,
        "upper": bound / jnp.linalg.eigvalsh(sigma)[-1],
    }


def pairs(key: Key[Array, ""], cosine: Array) -> dict[str, Array]:
    x, y = jax.random.normal(key, (2, PAIRS))
    a, b = jax.nn.relu(x), jax.nn.relu(cosine * x + jnp.sqrt(1 - cosine**2) * y)
    return {"covariance": jnp.sum((a - jnp.mean(a)) * b) / (PAIRS - 1)}


states = lab.Statements()
FEATURES, EDGES, ROWS = (Quantities(states, of, "d") for of in ("features", "edges", "rows"))
MOMENTS = ("student", "teacher", "spike")


def _moments(mean: float) -> xr.DataArray:
    """A mean over ‖v_i‖, the same, and its square."""
    return xr.DataArray(mean ** np.array([1, 1, 2]), {"of": list(MOMENTS)}, "of")


FEATURES(
    lambda found, _: lab.equals(found, _moments(1 / np.sqrt(2 * np.pi))),
    "moments",
    ("section-3-1-1-mean", "section-3-1-1-spike", "section-3-2-1-mean"),
    MOMENTS,
    rivals={"‖v_i‖/2π, as printed": _moments(1 / (2 * np.pi)), "‖v_i‖/2": _moments(0.5)},
    corrected=True,
)(
    "The mean of a ReLU feature is ‖v_i‖/√(2π), of the student's and of the teacher's, and the"
    " spike of E[A Aᵀ/n] is ‖V‖_F²/2π."
)


def phi(form: Callable[[Array], Array] = theory.phi) -> Callable[[Config, Data], xr.DataArray]:
    return lambda config, data: (
        lab.closed_form(lambda t: form(jnp.asarray(t)), data["pairs"].cosine) / (2 * np.pi)
    )


@states(
    "section-3-1-1-covariance",
    rivals={
        "without the -1, the second moment": phi(lambda t: theory.phi(t) + 1),
        "πt/2 + t²/2, its first two terms": phi(lambda t: np.pi / 2 * t + t**2 / 2),
        "t arccos t for (π - arccos t) t": phi(
            lambda t: jnp.sqrt(1 - t**2) + t * jnp.arccos(t) - 1
        ),
    },
)
def covariance(config: Config, data: Data) -> lab.Relation:
    """The covariance of two ReLU features is ‖v_i‖ ‖v_j‖ φ(t)/2π at every cosine t of their
    rows.
    """
    return lab.equals(data["pairs"]["covariance"], phi()(config, data))


def _twice_as_tight(found: xr.DataArray, _: str) -> lab.Relation:
    return lab.inequality(xr.ones_like(found), found, slack=0.5)


def _limit(found: xr.DataArray, _: str) -> lab.Relation:
    limit = lab.closed_form(
        lambda d: theory.cross_covariance_error(GAMMA * d, GAMMA * d, d), found.d
    )
    return lab.near(((found / limit - 1) * np.sqrt(found.d)).rename("δ √d"), 0.0, 1.0, "1")


def _scaled_rate(factor: float, rate: float) -> Source:
    return lambda data: factor * data["cross_corrected"] * (data.d / data.d[0]) ** rate


EQUAL, ENDS, LIMIT = (
    "rows that are all equal",
    ("lower", "upper"),
    {"the edge of the limit": "limit"},
)
ROWS(_twice_as_tight, "lower-bound", "theorem-3-2", "lower", {EQUAL: 0.0})(
    "The covariance of the features of incoherent unit rows is at least V Vᵀ/4 + (π - 3)/4π in"
    " every sample, without the remainder."
)
ROWS(
    _twice_as_tight, "upper-bound", "theorem-3-2", "upper", {EQUAL: (np.pi + 1) / (2 * (np.pi - 1))}
)("It is at most (1 + 1/π)/4 ‖V‖² + (π - 3)/4π in every sample, without the remainder.")
HALF: dict[str, Source] = {"2 for 4, and half of δ": lambda data: 2 * data["incoherence"]}
ROWS(
    lambda found, _: lab.fraction(found > 1, less_than=RARE),
    "incoherent-rows",
    "lemma-3-3",
    "incoherence",
    HALF,
)(
    "All |cosines| of Gaussian rows and all |‖v_i‖² - 1| are at most 4 √(log k/d), and (3.8) holds"
    " with δ = 1/2, in all but a share of 4/k of the samples."
)
OPEN = (
    "It was confirmed until corrections could have a second term and a logarithm any unit: the data"
    " of 72 samples allow a fall that ends at a limit, and 1/√d at 2 standard errors."
)
FALLS = {"1/√d": -0.5, "d^(-3/2)": -1.5, "no fall": 0.0}
FEATURES(
    power(-1),
    "remainder",
    "eq-3-6",
    "expansion",
    {"without the squares": "without_squares"},
    rivals=FALLS,
    holds=None,
    post_hoc=OPEN,
)("The remainder of the expansion of Σ falls as 1/d for k = 2d, which is k/d².")
CONSTANT = (
    "It was that a fitted exponent is -1/2, which d = 50 to 800 left open; the constant and 1/√d"
    " were found at these sizes."
)
RATES = {
    "d^(-1/4)": (1.0, 0.25),
    "1/d": (1.0, -0.5),
    "a fifth more": (1.2, 0.0),
    "half of it": (0.5, 0.0),
}
WRONG = {name: _scaled_rate(*each) for name, each in RATES.items()}
WRONG |= {"the printed coefficients": "cross_printed", "without 1 1ᵀ": "cross_bulk_alone"}
FEATURES(
    _limit,
    "cross-expansion",
    "theorem-3-7",
    "cross_corrected",
    WRONG,
    corrected=True,
    post_hoc=CONSTANT,
)(
    "The distance of the cross covariance to V̄Vᵀ/4 + 1 1ᵀ/4πd is (1 + δ) √(k/2)/πd with |δ| <"
    " 1/√d, at k = 2d."
)
FEATURES(
    lab.vanishes,
    "cross-expansion-printed",
    "theorem-3-7",
    "cross_printed",
    {"ours": "cross_corrected"},
    holds=False,
)("The distance of the cross covariance to V̄Vᵀ/2π + 1 1ᵀ/d vanishes as d grows.")
FEATURES(
    bounded, "conditioned", "theorem-3-4", "covariance", {"A Aᵀ/n with its spike": "second_moment"}
)(
    "The covariance of the samples has a condition number that stays bounded as d grows, at k = 2d"
    " and n = 8d."
)
EDGES(
    lambda found, _: lab.near(found, 1, 0.05, "0.05"),
    "edges",
    "theorem-3-4",
    ENDS,
    LIMIT,
    corrected=True,
)(
    "At finite d the bulk of Σ ends within a twentieth of where two Wishart matrices, of V Vᵀ and"
    " of its squares, put its edges."
)


def _settles_over_d(found: xr.DataArray, dim: str) -> lab.Relation:
    return lab.settles((found / found[dim]).rename("λ₁/dλ₂"), dim)


ORDER = "It was an exponent of one, which |t| left open at d = 16 to 128; now of another seed."
for name, symbol in {"absolute": "|t|", "squared_relu": "squared ReLU", "gelu": "GELU"}.items():
    OTHERS: dict[str, Source] = {
        "tanh, which is odd": "tanh",
        "√d": partial(lambda of, data: data[of] / np.sqrt(data.d), name),
    }
    label = f"activations-{name.replace('_', '-')}"
    FEATURES(_settles_over_d, label, "section-3-1-activations", name, OTHERS, post_hoc=ORDER)(
        f"With {symbol}, too, the largest eigenvalue of A Aᵀ/n is of order d times the second one."
    )
FEATURES(
    bounded,
    "cross-bulk",
    "corollary-3-8",
    "cross_kept",
    {"the first over the next one, of E B̄": "cross_cut"},
)(
    "Beside its spike B̄ has d singular values of one order: the first over the d-th stays bounded"
    " as d grows."
)


@states(
    "corollary-3-8",
    corrected=True,
    rivals={"1 + 1/d, as printed": 1.0, "ν μᵀ alone": 0.0, "1 + 1/4d": 0.25},
)
def cross_spike(config: Config, data: Data) -> lab.Relation:
    """The spike of E B̄ is (1 + E φ) ν μᵀ, with the mean of φ over random rows, which is 1/2d up to
    O(1/d²).
    """
    d = data["features"].d
    beyond = lab.closed_form(lambda d: angle_mean(lambda angle: theory.phi(jnp.cos(angle)), d), d)
    return lab.equals(data["features"]["cross_spike"], d * beyond)


EXPERIMENT = lab.Experiment(
    "relu-features",
    ledger("spectral-criterion"),
    title="One spike and a bulk: moments of ReLU features",
    summary=(
        "Means are ‖v_i‖/√(2π), the cross covariance tends to ¼V̄Vᵀ + (1/4πd)11ᵀ, and the spectrum"
        " is one spike above a bulk."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"ds": (8, 12, 16, 24, 32), "edge_ds": (100,), "seeds": 100},
        "paper": {"ds": (50, 100, 200, 400, 800), "edge_ds": (100, 200, 400)},
    },
)
