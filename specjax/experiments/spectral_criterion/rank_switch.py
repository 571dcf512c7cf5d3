"""Rule (1.5) in every iteration: each block steps spectrally where nr(G) ≥ st(A).

Compared are Euclidean steps, spectral ones on the internal blocks and on all, and the rule. On two
linear maps with the guaranteed step size nr(G) crosses st(A) on the way, or is below from the
start. In a small SwiGLU network each kind has the best step size of a grid, chosen on separate
seeds. Everything was chosen on other seeds; a diverged run has the loss at which it was stopped.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import lab, sweep
from specjax.experiments.ledgers import ledger
from specjax.experiments.spectral_criterion.sparse_training import LIMIT, OPTIMIZERS, Problem, draw
from specjax.models import layerwise_descent, mlp
from specjax.models.layerwise_descent import CRITERION, SPECTRAL

STEPS = {"Euclidean": OPTIMIZERS["gd"], "internal": OPTIMIZERS["spectral"]}
STEPS |= {"spectral": (SPECTRAL,) * 4, "rule": (CRITERION,) * 4}
"""Thresholds of the four blocks of a network; a linear map has one block, which is not internal."""
AHEAD = np.log10(1.2)
"""Losses within this factor count as equal."""

Data = dict[str, xr.Dataset]


class Config(lab.Config):
    """Sizes, lengths, and the network's grid of step sizes in ascending order."""

    inputs: int = lab.config.integer(12, least=3, help="inputs d of the network")
    width: int = lab.config.integer(24, least=8, help="its hidden units h")
    samples: int = lab.config.integer(
        256, least=8, most=lab.config.MOST_COUNT, help="its samples n"
    )
    rates: tuple[float, ...] = lab.config.grid(0.0025, 0.005, 0.01, 0.02, help="its step sizes")
    lengths: tuple[int, ...] = lab.config.sizes(
        150, 200, points=2, most=lab.config.MOST_COUNT, help="its iterations"
    )
    features: int = lab.config.integer(
        32, least=8, help="inputs k and outputs m of the linear maps; n = 4k, d = k/2"
    )
    linear_lengths: tuple[int, ...] = lab.config.sizes(
        90, 120, points=2, most=lab.config.MOST_COUNT, help="iterations of the linear maps"
    )
    linear_seeds: int = lab.config.seeds(48, least=16, help="samples of the linear maps")
    seeds: int = lab.config.seeds(24, least=16, help="samples of the network that judge")
    choosing: int = lab.config.integer(
        8, most=lab.config.MOST_COUNT, help="further samples of it, which choose the step sizes"
    )
    seed: int = lab.config.root_seed(
        1, help="root of all randomness; others than this one's samples settled the sizes"
    )


def run(config: Config, key: Key[Array, ""]) -> Data:
    """log10 of the loss over the first one, by kind of steps and length."""

    def network(key: Array, rate: Array) -> dict[str, Array]:
        problem = draw(key, "swiglu", config.samples, config.inputs, config.width)
        return {"left": descend(problem, "swiglu", rate, config.lengths, LIMIT)}

    def linear(key: Array, problem: Array) -> dict[str, Array]:
        drawn = linear_problem(key, config.features, problem)
        # The guaranteed step size; the loss has no ½, unlike the paper's.
        return {"left": descend(drawn, "relu", jnp.asarray(0.5), config.linear_lengths, 1e9)}

    runs = lab.seeded_sweep(
        key, "network", network, config.choosing + config.seeds, rate=sweep.values(*config.rates)
    )
    # A loss that falls by thirty powers of ten is beyond float32.
    with jax.enable_x64(True):
        maps = lab.seeded_sweep(
            key, "linear", linear, config.linear_seeds, problem=sweep.values(0, 1)
        )
    kinds: dict[str, Any] = {
        "steps": [k for k in STEPS if k != "internal"],
        "length": list(config.linear_lengths),
    }
    return {
        "network": sweep.labelled(
            runs, "steps", "length", steps=list(STEPS), length=list(config.lengths)
        ),
        "linear": sweep.labelled(maps, *kinds, **kinds, problem=["features", "control"]),
    }


def descend(
    problem: Problem, activation: str, rate: Array, lengths: Sequence[int], limit: float
) -> Float[Array, "steps lengths"]:
    """log10 of the loss over the first one with every distinct kind of steps."""
    params, batch = problem

    def one(thresholds: Array) -> Array:
        found = layerwise_descent.descend(
            params,
            batch,
            activation,
            rate,
            thresholds=thresholds,
            records=1,
            every=lengths[-1] + 1,
            limit=limit,
        )
        return jnp.log10(found.loss[jnp.asarray(lengths)] / found.loss[0])

    thresholds = dict.fromkeys(levels[: len(params)] for levels in STEPS.values())
    return jax.vmap(one)(jnp.asarray(list(thresholds), rate.dtype))


def linear_problem(key: Key[Array, ""], k: int, control: Array) -> Problem:
    """W_0 = 0, inputs and targets, samples in rows; a traced number selects the problem.

    Both problems share a program. Features (0): SwiGLU of inputs in k/2 dimensions, and a Gaussian
    W_# (Figure 11). Control (1): Gaussian inputs, and a W_# whose i-th column is a Gaussian one
    over i, so that the gradient has a low nuclear rank.
    """
    n, d = 4 * k, k // 2
    shapes = ((n, d), (2 * k, d), (n, k), (k, k))
    # One sample is split: a generator for each part would compile longer than the training.
    values = jax.random.normal(key, (sum(map(prod, shapes)),))
    pieces = jnp.split(values, np.cumsum([prod(shape) for shape in shapes])[:-1])
    inputs, weights, gaussian, target = (
        p.reshape(shape) for p, shape in zip(pieces, shapes, strict=True)
    )
    features = mlp.activated(inputs @ (weights / np.sqrt(d)).T, "swiglu")
    x = jnp.where(control == 1, gaussian, features)
    scale = jnp.where(control == 1, 1 / jnp.arange(1, k + 1, dtype=x.dtype), 1 / np.sqrt(k))
    return (jnp.zeros((k, k), x.dtype),), (x, x @ (target * scale[None]).T)


def best(config: Config, data: Data) -> xr.DataArray:
    return data["network"]["left"].isel(seed=slice(config.choosing)).median("seed").argmin("rate")


def tuned(config: Config, data: Data) -> xr.DataArray:
    """The network on the judging seeds, each kind of steps with its own step size."""
    left = data["network"]["left"].isel(seed=slice(config.choosing, None))
    return left.isel(rate=best(config, data)).drop_vars("rate")


def lead(left: xr.DataArray, first: str, second: str) -> xr.DataArray:
    ahead = left.sel(steps=second, drop=True) - left.sel(steps=first, drop=True)
    return ahead.rename(f"log₁₀ loss, {second} less {first}")


def leads(data: Data, problem: str, *pairs: tuple[str, str]) -> lab.Relation:
    """Judge that in pairs of steps on a linear map the first leads by the factor that counts."""
    left = data["linear"]["left"].sel(problem=problem, drop=True)
    names = xr.DataArray(
        [f"{first} over {second}" for first, second in pairs], dims="lead", name="lead"
    )
    found = xr.concat([lead(left, *pair) for pair in pairs], names).rename("lead, log₁₀ loss")
    return lab.above(found, AHEAD, "a factor of 1.2", by="median")


def replace_steps(target: str, source: str, of: str) -> Callable[[Config, Data], Data]:
    def replaced(found: xr.Dataset) -> xr.DataArray:
        return found["left"].where(
            found["steps"] != target, found["left"].sel(steps=source, drop=True)
        )

    return lab.controls.replacing("left", replaced, of=of)


states = lab.Statements()
BY_RULE = {"spectral steps in its place": replace_steps("rule", "spectral", "linear")}


@states(("eq-1-5", "figure-11"), corrected=True, controls=BY_RULE, along="length")
def rule_ahead_on_features(config: Config, data: Data) -> lab.Relation:
    """On SwiGLU features, with the step size of the guarantees, following the rule ends ahead of
    Euclidean and of spectral steps.
    """
    return leads(data, "features", ("rule", "Euclidean"), ("rule", "spectral"))


def _features(found: xr.Dataset) -> xr.DataArray:
    return found["left"].sel(problem="features", drop=True) + 0 * found["left"]


@states(
    "eq-1-5",
    controls={
        "spectral steps in the place of Euclidean ones": replace_steps(
            "Euclidean", "spectral", "linear"
        ),
        "SwiGLU features": lab.controls.replacing("left", _features, of="linear"),
    },
    along="length",
)
def euclidean_ahead_in_control(config: Config, data: Data) -> lab.Relation:
    """On a linear map with nr(G) below st(A) from the start, Euclidean steps and the rule end ahead
    of spectral ones, with the step size of the guarantees.
    """
    return leads(data, "control", ("Euclidean", "spectral"), ("rule", "spectral"))


def _state_network(says: str, first: str, second: str, *, corrected: bool) -> None:
    says, name = (
        f"In the network, each with its own step size, {says}.",
        f"{first}-ahead-of-{second.lower()}",
    )
    controls = {f"{second} steps in their place": replace_steps(first, second, "network")}
    options = {"corrected": corrected, "along": "length", "holds": None}

    @states("section-1-2-1-internal", says, name=name, controls=controls, **options)
    def ahead(config: Config, data: Data) -> lab.Relation:
        found = lab.above(
            lead(tuned(config, data), first, second), AHEAD, "a factor of 1.2", by="median"
        )
        return lab.within_grid(
            found, best(config, data).sel(steps=[first, second]), data["network"].sizes["rate"]
        )


_state_network(
    "internal spectral steps end ahead of Euclidean ones", "internal", "Euclidean", corrected=False
)
ALL = (
    "spectral steps on all blocks end ahead of the rule, so that they help where nr(G) is below"
    " st(A) as well"
)
_state_network(ALL, "spectral", "rule", corrected=True)

EXPERIMENT = lab.Experiment(
    "rank-switch",
    ledger("spectral-criterion"),
    title="Does it pay to take spectral steps where nr(G) ≥ st(A)?",
    summary=(
        "On a linear map the rule nr(G) ≥ st(A) beats always Euclidean and always spectral steps;"
        " in a small network it is open."
    ),
    config=Config,
    measure=run,
    statements=states,
    scales={
        "quick": {"linear_seeds": 24, "seeds": 16, "rates": (0.005, 0.01, 0.02), "choosing": 4},
        "smoke": {
            "width": 8,
            "samples": 32,
            "lengths": (10, 20),
            "seeds": 16,
            "choosing": 4,
            "features": 16,
            "linear_lengths": (30, 40),
            "linear_seeds": 16,
        },
        # With 100 features Euclidean steps also lead from 40 iterations on, so the control holds
        # only before.
        "paper": {
            "seed": 4,
            "width": 48,
            "features": 100,
            "linear_lengths": (30, 35),
            "lengths": (150, 200, 400),
            "seeds": 48,
            "choosing": 16,
        },
    },
)
