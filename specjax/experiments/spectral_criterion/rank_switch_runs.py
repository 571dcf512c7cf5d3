"""Runs of networks and linear maps by rules for the step of a block, and how far one rule is ahead of another.

Four regimes: the networks of :mod:`sparse_training <specjax.experiments.spectral_criterion.sparse_training>` with squared ReLU, whose
activations have low stable ranks, and with SwiGLU and a large batch, where these are higher; and two linear maps, one on SwiGLU
features (Figure 11), where nr(G) crosses st(A) on the way, and a control, where it is below from the start. Every draw is run by all
methods at all rates. Two questions: who is ahead with one rate for all, the factor on the step sizes of the paper, and who with a rate
of its own, chosen on half of the draws and judged on the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from specjax import sizes, sweep
from specjax.experiments.contract import Data
from specjax.experiments.means import Mean, mean_of
from specjax.experiments.spectral_criterion.sparse_training import CAP, GD, LIMIT, SPEC_GD
from specjax.experiments.validation import check_root_seed
from specjax.models import layerwise_descent, mlp
from specjax.models.layerwise_descent import CRITERION, SPECTRAL

BLOCKS = len(GD)
THRESHOLDS = {
    "euclidean": GD,
    "internal": SPEC_GD,
    "spectral": (SPECTRAL,) * BLOCKS,
    "rule": (CRITERION,) * BLOCKS,
    "double": (2 * CRITERION,) * BLOCKS,
}
LABELS = {
    "euclidean": "always Euclidean",
    "internal": "spectral on internal blocks",
    "spectral": "always spectral",
    "rule": "nr ≥ st",
    "double": "nr ≥ 2 st",
}
REGIMES = {
    "relu": "squared ReLU",
    "gated": "SwiGLU, large batch",
    "features": "linear map on SwiGLU features",
    "control": "linear map, control",
}
NETWORKS = ("relu", "gated")
"""Of one output, four blocks; the others have one block, and no internal ones."""
LARGEST_GAIN = 6.0
"""log10 of L_0/L_T above which float32 rounds."""
TARGETS = {"relu": 0.5, "gated": 0.5, "features": 1e-2, "control": 1e-2}
"""Losses over the first one whose iteration is asked for."""
WAYS = {"shared": "one rate for all", "own": "each with its own rate"}
RECORDS = 10


@dataclass(frozen=True)
class Config:
    """Sizes, rates and draws. The first rate of each regime is the one that all methods share."""

    networks: tuple[str, ...] = field(default=NETWORKS, metadata={"help": "networks to run beside the linear maps"})
    inputs: int = field(default=12, metadata={"help": "inputs d of the networks"})
    width: int = field(default=32, metadata={"help": "hidden units h of squared ReLU networks"})
    samples: int = field(default=256, metadata={"help": "their samples n"})
    gated_width: int = field(default=24, metadata={"help": "hidden units h of SwiGLU networks"})
    gated_samples: int = field(default=256, metadata={"help": "their samples n"})
    features: int = field(default=32, metadata={"help": "inputs k and outputs m of the linear maps; n = 4k, d = k/2"})
    relu_rates: tuple[float, ...] = field(default=(0.05, 0.025, 0.1), metadata={"help": "rates, squared ReLU"})
    gated_rates: tuple[float, ...] = field(default=(0.01, 0.005, 0.02), metadata={"help": "rates, SwiGLU"})
    linear_rates: tuple[float, ...] = field(default=(0.5, 0.75, 0.9), metadata={"help": "rates of the linear maps"})
    iterations: int = field(default=90, metadata={"help": "iterations of the networks"})
    linear_iterations: int = field(default=60, metadata={"help": "iterations of the linear maps"})
    seeds: int = field(default=28, metadata={"help": "draws of data and weights"})
    seed: int = field(default=0, metadata={"help": "seed of all draws"})

    def __post_init__(self) -> None:
        if len(set(self.networks)) < len(self.networks) or not set(self.networks) <= set(NETWORKS):
            raise ValueError(f"networks are different ones of {', '.join(NETWORKS)}, got {self.networks}.")
        if self.inputs < 3 or min(self.width, self.samples, self.gated_width, self.gated_samples, self.features) < 8:
            raise ValueError(
                "x_1 x_2 x_3 needs inputs of at least 3, and width, samples, gated_width, gated_samples and features must be at least "
                f"8, got {self.inputs}, {self.width}, {self.samples}, {self.gated_width}, {self.gated_samples} and {self.features}."
            )
        for name in ("relu_rates", "gated_rates", "linear_rates"):
            rates = getattr(self, name)
            if len(rates) < 2 or len(set(rates)) < len(rates) or not all(0 < rate < np.inf for rate in rates):
                raise ValueError(f"{name} needs two or more different positive rates, got {rates}.")
        for name in ("iterations", "linear_iterations"):
            if getattr(self, name) < RECORDS or getattr(self, name) % RECORDS:
                raise ValueError(f"{name} must be a multiple of {RECORDS}, got {getattr(self, name)}.")
        if self.seeds < 4 or self.seeds % 2:
            raise ValueError(f"seeds must be an even number from 4 on, for two halves, got {self.seeds}.")
        check_root_seed(self.seed)


def run(config: Config) -> Data:
    """Losses, ranks and choices of every method, rate and draw: two networks and the linear maps, one program each."""

    def descend(
        params: mlp.Params, batch: tuple[Array, Array], activation: str, rate: Array, methods: Iterable[str], steps: int
    ) -> dict[str, Array]:
        def one(thresholds: Array) -> layerwise_descent.Descent:
            return layerwise_descent.descend(
                params,
                batch,
                activation,
                rate,
                thresholds=thresholds,
                records=RECORDS,
                every=steps // RECORDS,
                limit=LIMIT,
            )

        runs = jax.vmap(one)(jnp.asarray([THRESHOLDS[method][: len(params)] for method in methods]))
        share = jnp.mean(runs.took_spectral.astype(jnp.float32), axis=1)
        ranks = {"stable_rank": runs.stable_rank, "nuclear_rank": runs.nuclear_rank}
        return {
            "loss": runs.loss,
            "lasted": runs.lasted,
            "share": share * steps / runs.lasted.astype(share.dtype)[:, None],
            **ranks,
        }

    def network(key: Array, rate: Array, name: str) -> dict[str, Array]:
        activation, samples, width = {
            "relu": ("relu_squared", config.samples, config.width),
            "gated": ("swiglu", config.gated_samples, config.gated_width),
        }[name]
        params, batch = network_problem(key, activation, samples, config.inputs, width)
        return descend(params, batch, activation, rate, methods_of(name), config.iterations)

    def linear(key: Array, rate: Array, control: Array) -> dict[str, Array]:
        params, batch = linear_problem(key, config.features, control)
        return descend(params, batch, "relu", rate, methods_of("control"), config.linear_iterations)

    def over(name: str) -> dict[str, sweep.axes.Axis]:
        return {"rate": sweep.values(*rates_of(config, name))}

    key = jax.random.key(config.seed)
    found = {
        name: sweep.run(partial(network, name=name), over(name), seeds=config.seeds, key=key)
        for name in config.networks
    }
    both = over("control") | {"control": sweep.values(0, 1)}
    return found | {"linear": sweep.run(linear, both, seeds=config.seeds, key=sizes.stream(key, "linear"))}


def network_problem(
    key: Array, activation: str, n: int, d: int, h: int
) -> tuple[mlp.Params, tuple[Float[Array, "n d"], Float[Array, "n 1"]]]:
    """The networks and data of `sparse_training.draw`: weights U(-1, 1)/√fan_in, Gaussian inputs, targets x_1 x_2 x_3."""
    wide = 2 * h if activation in mlp.GATED else h
    shapes = ((wide, d), (wide, h), (wide, h), (1, h))
    weight_key, x_key = jax.random.split(key)
    values = _cut(jax.random.uniform(weight_key, (sum(map(prod, shapes)),), minval=-1), shapes)
    params = tuple(w / jnp.sqrt(jnp.float32(w.shape[1])) for w in values)
    x = jax.random.normal(x_key, (n * d,)).reshape(n, d)
    return params, (x, jnp.prod(x[:, :3], axis=1, keepdims=True))


def linear_problem(
    key: Array, k: int, control: Array
) -> tuple[tuple[Float[Array, "k k"]], tuple[Float[Array, "n k"], Float[Array, "n k"]]]:
    """W_0 = 0, inputs and targets, samples in rows; the two problems differ by a traced number, so that they share a program.

    Features (0): SwiGLU of Gaussian inputs in k/2 dimensions, and a Gaussian W_# (Figure 11). Control (1): Gaussian inputs, of a stable
    rank near that of whitened ones, and a W_# whose i-th column is a Gaussian one over i, so that the gradient has a low nuclear rank.
    """
    n, d = 4 * k, k // 2
    shapes = ((n, d), (2 * k, d), (n, k), (k, k))
    inputs, weights, gaussian, target = _cut(jax.random.normal(key, (sum(map(prod, shapes)),)), shapes)
    features = mlp.activated(inputs @ (weights / jnp.sqrt(jnp.float32(d))).T, "swiglu")
    x = jnp.where(control == 1, gaussian, features)
    scale = jnp.where(control == 1, 1 / jnp.arange(1, k + 1, dtype=x.dtype), 1 / jnp.sqrt(jnp.float32(k)))
    return (jnp.zeros((k, k)),), (x, x @ (target * scale[None]).T)


def _cut(values: Float[Array, " total"], shapes: Sequence[tuple[int, int]]) -> list[Float[Array, "_ _"]]:
    """Matrices of one draw: a generator for each would take longer to compile than the training."""
    ends = np.cumsum([prod(shape) for shape in shapes])[:-1]
    return [piece.reshape(shape) for piece, shape in zip(jnp.split(values, ends), shapes, strict=True)]


def regimes_of(config: Config) -> tuple[str, ...]:
    """The regimes that are run."""
    return tuple(regime for regime in REGIMES if regime not in NETWORKS or regime in config.networks)


def methods_of(regime: str) -> tuple[str, ...]:
    """The methods that differ in a regime: a map of one block has no internal ones."""
    return tuple(method for method in THRESHOLDS if regime in NETWORKS or method != "internal")


def rates_of(config: Config, regime: str) -> tuple[float, ...]:
    """The rates of a regime, the shared one first."""
    return {"relu": config.relu_rates, "gated": config.gated_rates}.get(regime, config.linear_rates)


class Outcome(NamedTuple):
    """What came of every run of a regime, (rates, methods, draws)."""

    gain: Float[np.ndarray, "rates methods draws"]
    """log10 of the first over the last loss, from 0, which a diverged run has, to `LARGEST_GAIN`."""
    reached: Float[np.ndarray, "rates methods draws"]
    """The first iteration with a loss of `TARGETS` times the first one; the number of iterations where there is none."""
    diverged: np.ndarray


def dataset_of(data: Data, regime: str) -> xr.Dataset:
    """The runs of a regime: (rate, seed, method, …)."""
    runs = data[regime] if regime in NETWORKS else data["linear"].sel(control=int(regime == "control"))
    return runs.transpose("rate", "seed", ...)


def outcome_of(data: Data, regime: str) -> Outcome:
    """See the class."""
    runs = dataset_of(data, regime)
    loss, steps = np.moveaxis(runs["loss"].values, 1, 2), runs["loss"].shape[-1]
    diverged = np.moveaxis(runs["lasted"].values, 1, 2) < steps
    # A control that a step solves exactly has the loss 0.
    gain = np.log10(loss[..., 0]) - np.log10(np.maximum(loss[..., -1], np.finfo(np.float32).tiny))
    below = loss <= TARGETS[regime] * loss[..., :1]
    reached = np.where(below.any(axis=-1), below.argmax(axis=-1), steps).astype(float)
    return Outcome(np.where(diverged, 0, np.clip(gain, 0, LARGEST_GAIN)), reached, diverged)


def chosen_rates(gain: np.ndarray) -> np.ndarray:
    """The rate of every method for every draw, (methods, draws): the one of the largest mean gain in the other half of the draws.

    Halves are the even and the odd draws; so no draw is judged at a rate that it helped to choose.
    """
    best = np.stack([gain[..., 1 - half :: 2].mean(axis=-1).argmax(axis=0) for half in (0, 1)], axis=-1)
    return np.asarray(best[:, np.arange(gain.shape[-1]) % 2])


def with_rates(values: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """Entries of (rates, methods, draws) at a rate for every method and draw."""
    return np.asarray(np.take_along_axis(values, rates[None], axis=0)[0])


def rates_by(way: str, outcome: Outcome) -> np.ndarray:
    """Which rate every method and draw has: the shared one, the first, or its own."""
    return np.zeros(outcome.gain.shape[1:], int) if way == "shared" else chosen_rates(outcome.gain)


def lead(outcome: Outcome, regime: str, way: str, method: str, other: str) -> Mean:
    """How far a method ends ahead of another with the shared rate or with its own: mean over draws, each capped at `CAP`."""
    gain = dict(zip(methods_of(regime), with_rates(outcome.gain, rates_by(way, outcome)), strict=True))
    return mean_of(np.clip(gain[method] - gain[other], -CAP, CAP))


def sooner(outcome: Outcome, regime: str, way: str, method: str, other: str) -> Mean:
    """How much sooner a method reaches the target than another: mean log2 of the ratio of their iterations."""
    reached = dict(zip(methods_of(regime), with_rates(outcome.reached, rates_by(way, outcome)), strict=True))
    return mean_of(np.log2(np.maximum(reached[other], 1) / np.maximum(reached[method], 1)))
