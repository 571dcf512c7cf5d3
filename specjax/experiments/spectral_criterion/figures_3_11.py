"""Figures 3 and 11: GD against SpecGD on ReLU and SwiGLU features, and st(A) by width.

W is k×k, with 4k inputs in k/2 dimensions. The leader is judged at a quarter, at half and at the
end; that (1.5) holds all along can only become false, and is judged at the end.
"""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key
from matplotlib.figure import Figure

from specjax import lab, spectral, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion.quantities import Quantities, power
from specjax.lab.drawing import COLORS
from specjax.models import random_features as model

FEATURES = ("relu", "swiglu")
LENGTHS = (0.25, 0.5, 1.0)
"""Shares of a figure's iterations at which the gaps are compared."""
Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes, iterations and seeds; the paper has k = 100."""

    k: int = lab.config.integer(64, least=4, help="features and outputs")
    relu_steps: int = lab.config.integer(
        1000, least=10, most=lab.config.MOST_COUNT, help="iterations with ReLU features (Figure 3)"
    )
    swiglu_steps: int = lab.config.integer(
        400,
        least=10,
        most=lab.config.MOST_COUNT,
        help="iterations with SwiGLU features (Figure 11)",
    )
    restart_steps: int = lab.config.integer(
        20, most=lab.config.MOST_COUNT, help="iterations of SpecGD after each restart"
    )
    seeds: int = lab.config.seeds(40, help="samples of both problems")
    widths: tuple[int, ...] = lab.config.sizes(
        25, 50, 100, 200, 400, least=4, points=5, help="features for st(A)"
    )
    width_seeds: int = lab.config.seeds(24, least=10, help="samples at each width")


def rank_times(steps: int) -> np.ndarray:
    """Iterations at which ranks along GD are computed, dense at first, near their peak."""
    return np.unique(np.round(np.append(0, np.geomspace(1, steps, 40))).astype(int))


def restart_times(steps: int) -> np.ndarray:
    return np.arange(1, 10) * steps // 10


def draw(
    key: Array, features: str, k: int, d: int, n: int
) -> tuple[Float[Array, "k n"], Float[Array, "k k"]]:
    """Features A of normal inputs, weights N(0, 1/d), and a teacher with N(0, 1/k) entries."""
    key_rows, key_teacher = jax.random.split(key)
    # Weights and samples are one sample, since a generator compiles slowly.
    v, gate, x = jnp.split(model.weights(key_rows, 2 * k + n, d), [k, 2 * k])
    x = jnp.sqrt(float(d)) * x.T
    a = model.relu_features(v, x) if features == "relu" else model.swiglu_features(gate, v, x)
    return a, model.weights(key_teacher, k, k)


def trajectories(key: Array, features: str, k: int, config: Config) -> dict[str, Array]:
    """Gaps and ranks along GD in closed form, and along SpecGD from 0 and from GD's path."""
    a, teacher = draw(key, features, k, k // 2, 4 * k)
    b = model.second_moment(a, a)
    path, steps = model.trajectory(b, b, teacher), getattr(config, f"{features}_steps")
    times, starts = jnp.asarray(rank_times(steps)), restart_times(steps)
    ends = jnp.asarray([int(length * steps) for length in LENGTHS])
    gd_rank = jax.lax.map(
        lambda t: spectral.nuclear_rank(model.rotated_gradient_at(path, t)), times
    )
    gd_gap = jax.vmap(lambda t: model.gap_at(path, t))(jnp.arange(steps + config.restart_steps + 1))

    def descend(t: int | Array, steps: int) -> model.SpectralDescent:
        return model.spectral_descent(path, model.rotated_error_at(path, t), steps)

    descent = descend(0, steps)
    restarted = jax.vmap(lambda t: descend(t, config.restart_steps).gap)(jnp.asarray(starts))
    stable_rank = jnp.trace(b) / path.eigenvalues[-1]
    return {
        "stable_rank": stable_rank,
        "gd_gap": gd_gap[: steps + 1],
        "gd_rank": gd_rank,
        "spectral_gap": descent.gap,
        "spectral_rank": descent.nuclear_rank,
        "restarted_gap": restarted,
        "gd": jnp.log10(gd_gap[ends]),
        "spectral": jnp.log10(descent.gap[ends]),
        "gd_holds": jnp.all(gd_rank >= stable_rank),
        "spectral_holds": jnp.all(descent.nuclear_rank >= stable_rank),
        "continued": jnp.log10(gd_gap[jnp.asarray(starts + config.restart_steps)]),
        "restarted": jnp.log10(restarted[:, -1]),
    }


def run(config: Config, key: Key[Array, ""]) -> Data:
    def stable_ranks(key: Array, k: int, d: int, n: int) -> dict[str, Array]:
        return {name: spectral.stable_rank(draw(key, name, k, d, n)[0]) for name in FEATURES}

    data, ks = {}, config.widths
    half, fourfold = [k // 2 for k in ks], [4 * k for k in ks]
    wide = sweep.zipped(k=sweep.widths(*ks), d=sweep.widths(*half), n=sweep.widths(*fourfold))
    with jax.enable_x64(True):
        for name in FEATURES:

            def measure_features(key: Array, k: int, name: str = name) -> dict[str, Array]:
                return trajectories(key, name, k, config)

            found = lab.seeded_sweep(
                key, name, measure_features, config.seeds, k=sweep.widths(config.k)
            ).isel(k=0, drop=True)
            found = sweep.labelled(
                found, "length", outputs=("gd", "spectral"), length=list(LENGTHS)
            )
            starts = restart_times(getattr(config, f"{name}_steps"))
            data[name] = sweep.labelled(
                found, "start", outputs=("continued", "restarted"), start=starts
            )
        data["widths"] = lab.seeded_sweep(key, "widths", stable_ranks, config.width_seeds, k=wide)
    return data


def _exchanged(config: Config, data: Data) -> Data:
    return {**data, "relu": data["swiglu"], "swiglu": data["relu"]}


LEAD = 1.0
"""Powers of ten in the gap that count; a tenth would be invisible in a figure of ten powers."""
SWIGLU, RELU = {"SwiGLU features": _exchanged}, {"ReLU features": _exchanged}
GD = {"GD": lab.controls.replacing("spectral_holds", "gd_holds", of="relu")}
SPECTRAL = {"SpecGD": lab.controls.replacing("gd_holds", "spectral_holds", of="relu")}
FIRST = (
    "First judged along the run as well, in which what holds all along can only become false; now"
    " on another seed."
)
EQUAL = (
    "First judged at equal iterations, where a quarter of the run did not decide; now on another"
    " seed."
)
states = lab.Statements()


def _mostly(holds: xr.DataArray) -> lab.Relation:
    """Judge that a property, seen in the figure of one seed, holds in three seeds of four."""
    return lab.fraction(holds.astype(bool), more_than=0.75)


@states("figure-3", along="length", controls=SWIGLU)
def relu_spectral_ahead(config: Config, data: Data) -> lab.Relation:
    """With ReLU features SpecGD comes to a much smaller gap than GD, by one power of ten or
    more.
    """
    return lab.ahead(data["relu"]["gd"], data["relu"]["spectral"], least=LEAD)


@states("figure-3-restarts", controls=SWIGLU)
def relu_restarts(config: Config, data: Data) -> lab.Relation:
    """From every tenth of GD's path some iterations of SpecGD come to a smaller gap than as many of
    GD.
    """
    return lab.ahead(data["relu"]["continued"], data["relu"]["restarted"], least=0)


@states("figure-3-i", controls=SWIGLU | SPECTRAL, post_hoc=FIRST)
def relu_rule_along_gd(config: Config, data: Data) -> lab.Relation:
    """In most samples nr(∇L) ≥ st(A) holds all along the trajectory of GD."""
    return _mostly(data["relu"]["gd_holds"])


@states("figure-3-i", holds=False, controls=GD, post_hoc=FIRST)
def relu_rule_along_spectral(config: Config, data: Data) -> lab.Relation:
    """In most samples nr(∇L) ≥ st(A) holds all along the trajectory of SpecGD."""
    return _mostly(data["relu"]["spectral_holds"])


@states("figure-11", controls=RELU, post_hoc=EQUAL)
def swiglu_gd_ahead(config: Config, data: Data) -> lab.Relation:
    """With SwiGLU features GD comes to a much smaller gap in half of the iterations than SpecGD in
    all, by one power of ten or more.
    """
    found = data["swiglu"]
    return lab.ahead(
        found["spectral"].sel(length=1.0, drop=True),
        found["gd"].sel(length=0.5, drop=True),
        least=LEAD,
    )


@states("figure-11", controls=RELU, post_hoc=FIRST)
def swiglu_rule_violated(config: Config, data: Data) -> lab.Relation:
    """With SwiGLU features nr(∇L) falls below st(A) along GD in most samples."""
    return _mostly(data["swiglu"]["gd_holds"] == 0)


PAPER: dict[str, tuple[dict[int, float], dict[int, float]]] = {
    "relu gap": ({1000: 4e-3}, {1000: 4e-5}),
    "relu rank": ({0: 7, 57: 62, 1000: 25}, {}),
    "swiglu gap": ({400: 3e-15}, {400: 2e-5}),
    "swiglu rank": ({0: 52, 400: 1}, {}),
}
"""Values read off the figures for k = 100, by iteration, for GD and SpecGD."""
WIDTHS = Quantities(states, "widths", "k")
OTHER = {"√k": 0.5, "k^(3/2)": 1.5}
OPEN = (
    "It was confirmed until relations asked for a logarithm in any unit beside a multiple of 1/2:"
    " the run of the record allows √k (log 0.63 k)³ at 3.9 standard errors, where 4 are asked."
)
WIDTHS(
    power(1),
    "swiglu-stable-rank",
    "section-1-2-2-width",
    "swiglu",
    {"ReLU features": "relu"},
    rivals=OTHER,
    holds=None,
    post_hoc=OPEN,
)("st(A) of SwiGLU features grows in proportion to the width.")


def figure(config: Config, data: Data) -> Figure:
    """Plot the first seed: ReLU (Figure 3) and SwiGLU (Figure 11); gap and rank; × paper."""
    drawn = Figure(figsize=(10, 7), layout="constrained")
    for row, name in zip(drawn.subplots(2, 2), FEATURES, strict=True):
        first = data[name].isel(seed=0)
        steps = getattr(config, f"{name}_steps")
        label = "SpecGD, from GD's iterate"
        for start, restarted in zip(
            first["start"].values, first["restarted_gap"].values, strict=True
        ):
            row[0].plot(
                start + np.arange(len(restarted)),
                restarted,
                "--",
                color="gray",
                linewidth=1,
                label=label,
            )
            label = "_"
        for quantity, axes in zip(("gap", "rank"), row, strict=True):
            times = rank_times(steps) if quantity == "rank" else np.arange(steps + 1)
            axes.plot(times, first[f"gd_{quantity}"], color=COLORS[0], label="GD")
            axes.plot(first[f"spectral_{quantity}"], color=COLORS[1], linewidth=0.7, label="SpecGD")
            for color, printed in zip(COLORS, PAPER[f"{name} {quantity}"], strict=False):
                reached = [t for t in printed if t <= steps]
                axes.plot(reached, [printed[t] for t in reached], "x", color=color)
            axes.set(
                title=f"{name}: {quantity}; ×: the paper, k = 100",
                xlabel="iteration",
                ylabel=quantity,
            )
        row[0].set_yscale("log")
        row[1].axhline(
            float(first["stable_rank"]), color="black", linestyle="--", linewidth=1, label="st(A)"
        )
        for axes in row:
            axes.legend(fontsize="small")
    return drawn


EXPERIMENT = lab.Experiment(
    "figures-3-and-11",
    ledger("spectral-criterion"),
    title="GD against SpecGD on ReLU and on SwiGLU features",
    summary=(
        "With ReLU features SpecGD ends lower, with SwiGLU features GD; nr(∇L) ≥ st(A) holds along"
        " GD, rarely along SpecGD."
    ),
    config=Config,
    measure=run,
    statements=states,
    figure=figure,
    scales={
        "quick": {"seed": 2, "width_seeds": 10},
        "smoke": {
            "k": 32,
            "relu_steps": 400,
            "restart_steps": 10,
            "seeds": 12,
            "widths": (8, 12, 16, 24, 32),
            "width_seeds": 10,
        },
        "paper": {
            "seed": 2,
            "k": 100,
            "restart_steps": 400,
            "seeds": 100,
            "widths": (50, 100, 200, 400, 800),
            "width_seeds": 40,
        },
    },
)
