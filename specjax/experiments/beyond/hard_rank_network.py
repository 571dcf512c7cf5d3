"""Networks that learn a linear map by steps of one Frobenius norm, and their hard ranks."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from jaxtyping import Array, Float, Key

from specjax import fits, linalg, sizes, sweep
from specjax.theory.angles import arc_cosine_1_of, arccos

OPTIMIZERS = ("gradient", "Adam", "top eighth", "Muon")
"""Directions of a step: momentum, Adam's, an eighth of the singular directions, and all of them."""
RULE, NONE = "√(out/in)", "no scale"
RULES = {RULE: 0.5, NONE: 0.0}
"""Powers of the width in the Frobenius norm of a step of the hidden layer."""
RATE = 0.05
"""The norm of a step over that of the start, at d hidden units."""
Weights = dict[str, Float[Array, "_ _"]]


def hard_rank(w: Float[Array, "D d"]) -> Float[Array, ""]:
    """(tr C)²/tr C² of the covariance C of relu(w x), exact for x ~ N(0, 1)."""
    own, norms = jnp.eye(len(w), dtype=bool), jnp.linalg.norm(w, axis=1)
    cosine = jnp.where(own, 1, jnp.clip(w @ w.T / (norms[:, None] * norms[None, :]), -1, 1))
    theta, sine = jnp.where(own, 0, arccos(cosine)), jnp.sqrt((1 - cosine) * (1 + cosine))
    means = arc_cosine_1_of(theta, sine, cosine) - 1 / (2 * np.pi)
    c = norms[:, None] * norms[None, :] * means
    return jnp.trace(c) ** 2 / jnp.sum(c**2)


def direction(optimizer: str, momentum: Float[Array, "m n"], eighth: int) -> Float[Array, "m n"]:
    """Of a step, with Frobenius norm 1."""
    if optimizer in ("top eighth", "Muon"):
        wide = momentum.shape[0] < momentum.shape[1]
        tall = momentum.T if wide else momentum
        squares, v = linalg.eigh(tall.T @ tall)
        first = 0 if optimizer == "Muon" else len(squares) - eighth
        floor = jnp.finfo(squares.dtype).eps * squares[-1]
        lengths = jnp.sqrt(jnp.maximum(squares[first:], floor))
        tall = tall @ (v[:, first:] / lengths[None, :]) @ v[:, first:].T
        momentum = tall.T if wide else tall
    return momentum / jnp.linalg.norm(momentum)


class Problem(NamedTuple):
    """A start w, v with D hidden units, d inputs and outputs, a target and the key of batches."""

    first: Weights
    target: Float[Array, "d d"]
    batches: Key[Array, ""]

    def loss(self, weights: Weights, i: Array | int) -> Float[Array, ""]:
        """The mean squared error on batch i over the mean square of the outputs."""
        d = len(self.target)
        x = jax.random.normal(jax.random.fold_in(self.batches, i), (8 * d, d))
        error = jax.nn.relu(x @ weights["w"].T) @ weights["v"].T - x @ self.target.T
        return jnp.mean(error**2) / jnp.mean(self.target**2) / d


def sample_problem(key: Key[Array, ""], d: int, width: int) -> Problem:
    """A target with singular values 1/k, and a start at which outputs are small."""
    normal = sizes.normal(sizes.stream(key, "target"), (2 * d, d))
    rows, columns = linalg.qr(normal[:d])[0], linalg.qr(normal[d:])[0]
    w = sizes.normal(sizes.stream(key, "w"), (width, d)) / d**0.5
    v = sizes.normal(sizes.stream(key, "v"), (width, d)).T / width
    target = rows @ (columns / jnp.arange(1.0, d + 1)[:, None])
    return Problem({"w": w, "v": v}, target, sizes.stream(key, "batches"))


def train(
    optimizer: str, problem: Problem, power: Array, trained: Array, ends: tuple[int, ...]
) -> dict[str, Float[Array, " length"]]:
    """Logarithms of loss and hard rank, before and after relu, size and overlap of the update, and
    its alignment to the start, after some steps; `trained` is 1 for a readout that learns, too.
    """
    width, d = problem.first["w"].shape
    lengths = {"w": d**0.5 * (width / d) ** power, "v": trained * (d / width) ** 0.5}
    moments = optax.scale_by_adam(0.9, 0.95) if optimizer == "Adam" else optax.trace(0.9)

    def step(i: Array, carry: tuple[Weights, optax.OptState]) -> tuple[Weights, optax.OptState]:
        weights, state = carry
        updates, state = moments.update(jax.grad(problem.loss)(weights, i), state)
        return {
            name: w - RATE * lengths[name] * direction(optimizer, updates[name], d // 8)
            for name, w in weights.items()
        }, state

    def until(carry: tuple, between: Array) -> tuple[tuple, dict[str, Array]]:
        weights, _ = carry = jax.lax.fori_loop(between[0], between[1], step, carry)
        first, w = problem.first["w"], weights["w"]
        delta = w - first
        gram, size = delta @ delta.T, jnp.sum(delta**2) / width
        pairs = jnp.sum(gram**2) - jnp.sum(jnp.diag(gram) ** 2)
        return carry, {
            "log rank": jnp.log(hard_rank(w)),
            "log before": 2 * jnp.log(jnp.sum(w**2) / jnp.linalg.norm(w.T @ w)),
            "log loss": jnp.log(problem.loss(weights, between[1])),
            "size": size,
            "overlap": pairs / (width * (width - 1) * size**2),
            "alignment": jnp.sum(first * delta) / jnp.sum(first**2),
        }

    between = jnp.stack([jnp.array((0, *ends[:-1])), jnp.array(ends)], axis=1)
    return jax.lax.scan(until, (problem.first, moments.init(problem.first)), between)[1]


def run(config: Any, key: Key[Array, ""]) -> xr.Dataset:
    """Every optimizer, rule, readout and width, with exponents of the width for each network."""

    def measure(key: Array, width: int, power: Array, trained: Array) -> dict[str, Array]:
        problem = sample_problem(key, config.d, width)
        each = [train(name, problem, power, trained, config.lengths) for name in OPTIMIZERS]
        stacked = jax.tree.map(lambda *at: jnp.stack(at), *each)
        return stacked | {"log start": jnp.log(hard_rank(problem.first["w"]))}

    over = {
        "width": sweep.choices(*(multiple * config.d for multiple in (1, 2, 4, 8))),
        "power": sweep.values(*RULES.values()),
        "trained": sweep.values(0.0, 1.0),
    }
    found = sweep.run(measure, over, num_seeds=config.seeds, key=key)
    labels = {"optimizer": list(OPTIMIZERS), "length": list(config.lengths)}
    data = sweep.labelled(found, *labels, **labels).rename(power="rule", trained="readout")
    data = data.assign_coords(rule=list(RULES), readout=["fixed", "trained"])
    slopes = {"exponent": "log rank", "start": "log start", "before": "log before"}
    return data.assign({name: fits.log_slopes(data[of], "width") for name, of in slopes.items()})
