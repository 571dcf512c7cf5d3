"""Section 1.2.2: the mean of features as a spike of A Aᵀ that bounds st(A), and who gains.

Features in the width, d = k/2 and n = 4k: ReLU, the same less their mean, gated (SwiGLU), and the
same with ReLU's mean put in. And regression on A = I + λ 1 1ᵀ, without a mean and with a strong
one, by GD and by SpecGD.
"""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key

from specjax import lab, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion.quantities import Quantities
from specjax.models import random_features as model
from specjax.theory.random_features import feature_mean

Data = dict[str, xr.Dataset]
LEAST_K = 64
"""The smallest k at which terms of order 1/k² are below the margin of `spike_bounds`."""


class Config(lab.Config):
    """Widths of the features, and strengths of the mean."""

    ks: tuple[int, ...] = lab.config.sizes(16, 32, 64, 128, 256, least=4, points=5, help="features")
    seeds: int = lab.config.seeds(30, help="samples of features at every width")
    k: int = lab.config.integer(
        48, least=4, help="features, samples and outputs with A = I + λ 1 1ᵀ"
    )
    strength: float = lab.config.number(1, above=0, help="λ of the strong mean")
    steps: int = lab.config.integer(
        48, least=4, most=lab.config.MOST_COUNT, help="iterations of both methods"
    )
    teachers: int = lab.config.seeds(30, help="samples of the teacher at every λ")

    def __post_init__(self) -> None:
        super().__post_init__()
        if sum(k >= LEAST_K for k in self.ks) < 2:
            raise ValueError(
                f"ks needs two sizes of {LEAST_K} or more, where st(A) is its closed form, got"
                f" {self.ks}."
            )


def run(config: Config, key: Key[Array, ""]) -> Data:
    """Stable ranks of features, and SpecGD's gap less GD's at a quarter, half and the end."""

    def features(key: Key[Array, ""], k: int, d: int, n: int) -> dict[str, Array]:
        gate, value, x = jnp.split(model.weights(key, 2 * k + n, d), [k, 2 * k])
        x = jnp.sqrt(float(d)) * x.T
        relu, gated = model.relu_features(value, x), model.swiglu_features(gate, value, x)
        centred, moved = (
            relu - jnp.mean(relu, axis=1, keepdims=True),
            gated + feature_mean(value)[:, None],
        )
        found = {"ReLU": relu, "gated": gated, "centred": centred, "moved": moved}
        moments = {name: model.second_moment(one, one) for name, one in found.items()}
        return {name: jnp.trace(b) / jnp.linalg.eigvalsh(b)[-1] for name, b in moments.items()}

    def trajectories(key: Key[Array, ""], k: int, strength: Array) -> dict[str, Array]:
        a = jnp.eye(k) + strength
        b = model.second_moment(a, a)
        path = model.trajectory(b, b, model.weights(key, k, k))
        descent = model.spectral_descent(path, model.rotated_error_at(path, 0), config.steps).gap
        return {
            "lead": (
                descent[jnp.asarray(lengths)] - jnp.stack([model.gap_at(path, t) for t in lengths])
            )
        }

    lengths = [config.steps // 4, config.steps // 2, config.steps]
    half, fourfold = [k // 2 for k in config.ks], [4 * k for k in config.ks]
    wide = sweep.zipped(
        k=sweep.widths(*config.ks), d=sweep.widths(*half), n=sweep.widths(*fourfold)
    )
    strengths: sweep.axes.Over = {
        "k": sweep.widths(config.k),
        "strength": sweep.values(0.0, config.strength),
    }
    with jax.enable_x64(True):
        swept = lab.seeded_sweep(key, "features", features, config.seeds, k=wide)
        paths = lab.seeded_sweep(key, "teachers", trajectories, config.teachers, **strengths)
    return {"features": swept, "mean": sweep.labelled(paths.isel(k=0), "t", t=lengths)}


def _wide(data: Data) -> xr.DataArray:
    """st(A) of ReLU features at the sizes of the closed form."""
    st = data["features"]["ReLU"]
    return st.sel(k=st.k >= LEAST_K)


def _mean_over_k(data: xr.Dataset) -> xr.DataArray:
    return data["ReLU"].mean("k").broadcast_like(data["ReLU"])


OF_NUMBER = (
    "It asked for an exponent below 1/4, which noise has too; now for the number, which was derived"
    " when the data were known, and on them."
)
states = lab.Statements()
FEATURES = Quantities(states, "features", "k")
OTHERS: dict[str, lab.controls.Source] = {
    "features less their mean": "centred",
    "gated features": "gated",
    "its mean at every k": _mean_over_k,
}


def spiked(k: xr.DataArray) -> xr.DataArray:
    """tr(A Aᵀ) over the largest eigenvalue at d = k/2 and n = 4k, to first order in 1/k.

    The trace is k/2. The mean (‖v_i‖/√2π)_i has the eigenvalue k/2π, to which the other terms of E
    relu(v_i x) relu(v_j x) add 1/2 along it, and the noise of n samples (1/2 - 1/2π) k/n.
    """
    return np.pi * k / (k + np.pi + (np.pi - 1) / 4)


@states(
    "section-1-2-2-mean",
    controls={
        name: lab.controls.replacing("ReLU", source, of="features")
        for name, source in OTHERS.items()
    },
    rivals={
        "half of it": lambda config, data: 0.5 * spiked(_wide(data).k),
        "the largest k's at every k": lambda config, data: spiked(
            _wide(data).k.max() + 0 * _wide(data).k
        ),
    },
    post_hoc=OF_NUMBER,
)
def spike_bounds(config: Config, data: Data) -> lab.Relation:
    """The spike along the mean of ReLU features bounds st(A) by π as the width grows: from k = 64
    on it is π k/(k + π + (π - 1)/4), to 2 %.
    """
    st = _wide(data)
    form = spiked(st.k.astype(float))
    return lab.near(st, form, 0.02 * form, "2 %")


WITH = {"with ReLU's mean put in": "moved", "ReLU features": "ReLU"}
FEATURES(lab.grows, "gated-grows", "section-1-2-2-mean", "gated", WITH)(
    "Gated features have no such spike: their st(A) grows with the width."
)
EXCHANGED = {
    "the two methods exchanged": lab.controls.replacing(
        "lead", lambda data: -data["lead"], of="mean"
    )
}


@states("section-1-2-2-mean", corrected=True, controls=EXCHANGED, along="t")
def who_is_ahead(config: Config, data: Data) -> lab.Relation:
    """On A = I + λ 1 1ᵀ gradient descent is ahead without a mean and SpecGD with a strong one, in
    most samples and at every length.
    """
    lead = data["mean"]["lead"]
    as_said = [lead.isel(strength=0) > 0, lead.isel(strength=-1) < 0]
    return lab.fraction(xr.concat(as_said, "strength").rename("ahead as expected"), more_than=0.5)


EXPERIMENT = lab.Experiment(
    "mean-strength",
    ledger("spectral-criterion"),
    title="The mean of the features bounds st(A), and decides who gains",
    summary=(
        "The mean of ReLU features bounds their stable rank; without one gradient descent is ahead,"
        " with a strong one SpecGD."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "smoke": {"ks": (8, 16, 32, 64, 128), "seeds": 100, "k": 16, "steps": 20, "teachers": 20},
        "paper": {
            "ks": (32, 64, 128, 256, 512),
            "seeds": 100,
            "k": 200,
            "steps": 200,
            "teachers": 100,
        },
    },
)
