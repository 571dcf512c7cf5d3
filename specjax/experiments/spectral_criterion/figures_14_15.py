"""Figures 14 and 15, (3.20): gradient rank of ReLU random-feature regression by GD, both models."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Key
from matplotlib.figure import Figure

from specjax import lab, sizes, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion.quantities import Quantities, power
from specjax.lab.drawing import COLORS
from specjax.models import random_features as model

MODELS = {"realizable": "model I", "teacher_student": "model II"}
PEAKS = dict(
    zip(
        MODELS,
        ({64: 36, 128: 74, 256: 151, 512: 304}, {64: 27, 128: 56, 256: 113, 512: 227}),
        strict=True,
    )
)
"""Values of the paper's curves by k, read off Figure 14 (±10 %)."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes of the paper's kind: k features of k/2 inputs, 2k samples, k outputs."""

    ks: tuple[int, ...] = lab.config.sizes(16, 32, 64, 128, 256, least=8, points=5, help="features")
    seeds: int = lab.config.seeds(40, help="samples of weights, inputs and teachers")
    steps: int = lab.config.integer(
        1024, least=2, most=lab.config.MOST_COUNT, help="steps of gradient descent that are drawn"
    )
    points: int = lab.config.integer(
        6, least=2, help="steps from the first on at which the rank is computed for the curves"
    )


def recorded_steps(config: Config) -> list[int]:
    return [
        0,
        *np.unique(np.round(np.geomspace(1, config.steps, config.points)).astype(int)).tolist(),
    ]


def run(config: Config, key: Key[Array, ""]) -> Data:
    def measure(key: Key[Array, ""], k: int, d: int) -> dict[str, dict[str, Array]]:
        # Step and c of η = 1/(c + ‖B‖_op), which is 1 in Theorem 3.9 and 0 in the figures.
        judged = {"offset": (1, 1.0), "window": (k // 2, 0.0)}
        found = ranks(key, k, d, (*judged.values(), *((t, 0.0) for t in recorded_steps(config))))
        return {
            name: dict(zip((*judged, "before", "after"), own[:4], strict=True)) | {"curve": own[2:]}
            for name, own in zip(MODELS, found, strict=True)
        }

    over = {
        "k": sweep.zipped(k=sweep.widths(*config.ks), d=sweep.widths(*(k // 2 for k in config.ks)))
    }
    with jax.enable_x64(True):
        return {"ranks": lab.seeded_sweep(key, "ranks", measure, config.seeds, **over)}


def ranks(key: Key[Array, ""], k: int, d: int, points: tuple[tuple[int, float], ...]) -> Array:
    """nr(∇L(W_t)) of both models, (2, points), with step 1/(c + λ_1(B)), for points (t, c)."""
    # Weights and samples are one sample, since a generator compiles slowly.
    v, v_bar, x = jnp.split(model.weights(sizes.stream(key, "rows"), 4 * k, d), [k, 2 * k])
    a, a_bar = (model.relu_features(w, jnp.sqrt(float(d)) * x.T) for w in (v, v_bar))
    teacher, b = model.weights(sizes.stream(key, "teacher"), k, k), model.second_moment(a, a)
    path = model.trajectory(b, b, teacher)
    starts = (path.initial, -(teacher @ model.second_moment(a_bar, a)) @ path.vectors)
    descents = [
        (path._replace(initial=start, rate=1 / (c + path.eigenvalues[-1])), t)
        for start in starts
        for t, c in points
    ]
    gradients = jnp.stack([model.rotated_gradient_at(*descent) for descent in descents])
    # A sum of singular values does not need float64, which takes twice the time.
    scaled = gradients / jnp.max(jnp.abs(gradients), axis=(-2, -1), keepdims=True)
    return jnp.reshape(spectral.nuclear_rank(scaled.astype(jnp.float32)), (2, len(points)))


states = lab.Statements()
GROWTH = Quantities(states, "ranks", "k")
for kind, label in MODELS.items():
    name, later = f"before-{label.lower().replace(' ', '-')}", {"one step later": f"{kind}.after"}
    GROWTH(lab.settles, name, "figure-15", f"{kind}.before", later)(
        f"In {label} with ReLU features nr(∇L(W_0)) is essentially independent of k."
    )
for stage, row, says in (
    ("after", "figure-15", "nr(∇L(W_1)) grows"),
    ("window", "figure-14", "nr(∇L(W_t)) at t = k/2, after the first steps, has grown"),
    ("offset", "eq-3-20", "nr(∇L(W_1)) with η = 1/(1 + ‖B‖) grows"),
):
    of_both, start = (tuple(f"{kind}.{at}" for kind in MODELS) for at in (stage, "before"))
    slower = {"as k^(3/4)": 0.75, "as √k": 0.5, "not at all": 0.0}
    GROWTH(power(1), stage, row, of_both, {"at W_0": start}, rivals=slower)(
        f"In both models with ReLU features {says} in proportion to k."
    )


def figure(config: Config, data: Data) -> Figure:
    """Plot nr by step (Figure 14), and at W_0 and W_1 by k (Figure 15); paper's values dashed."""
    drawn = Figure(figsize=(13, 4), layout="constrained")
    axes = drawn.subplots(1, 3)
    for place, (name, label) in enumerate(MODELS.items()):
        for index, k in enumerate(config.ks):
            color = COLORS[index % len(COLORS)]
            mean = data["ranks"][f"{name}.curve"].sel(k=k).mean("seed")
            axes[place].plot(
                recorded_steps(config), mean, color=color, marker=".", linewidth=1, label=f"k = {k}"
            )
            if k in PEAKS[name]:
                axes[place].axhline(PEAKS[name][k], color=color, linestyle="--", linewidth=1)
        axes[place].set(
            xlabel="step; dashed: peaks of Figure 14",
            ylabel=f"nr(∇L), {label}",
            xlim=(0, config.steps),
        )
        axes[place].set_xscale("symlog", linthresh=1)
        for stage, marker in (("before", "o"), ("after", "s")):
            mean = data["ranks"][f"{name}.{stage}"].mean("seed")
            axes[2].plot(
                config.ks,
                mean,
                color=COLORS[place],
                marker=marker,
                label=f"{label}, {stage} the first step",
            )
    axes[2].plot(
        config.ks, 0.33 * np.array(config.ks), "k--", linewidth=1, label="0.33 k, W_1 in Figure 15"
    )
    axes[2].set_xscale("log", base=2)
    axes[2].set(xlabel="features k", ylabel="nr(∇L)")
    for panel in axes:
        panel.set_yscale("log", base=2)
        panel.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "figures-14-and-15",
    ledger("spectral-criterion"),
    title="Nuclear rank of the gradient along gradient descent with ReLU features",
    summary=(
        "nr(∇L) does not grow with the number of features before the first step, and in proportion"
        " after it, in both models."
    ),
    config=Config,
    measure=run,
    statements=states,
    figure=figure,
    scales={
        "quick": {"seeds": 30},
        "smoke": {"ks": (8, 16, 24, 32, 48), "seeds": 40, "steps": 64, "points": 3},
        "paper": {"ks": (32, 64, 128, 256, 512), "seeds": 100, "points": 60},
    },
)
