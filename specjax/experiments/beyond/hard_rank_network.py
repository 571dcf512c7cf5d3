"""Small networks that learn a linear map by steps of one Frobenius norm, and the hard rank of their
hidden layer.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Key

from specjax import sizes, spectral
from specjax.theory.angles import arc_cosine_1_of, arccos

OPTIMIZERS = ("gradient", "Adam", "top eighth", "Muon")
"""Directions of a step: momentum, Adam's, an eighth of the singular directions, and all of them."""
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
        u, _, vt = jnp.linalg.svd(momentum, full_matrices=False)
        last = eighth if optimizer == "top eighth" else len(vt)
        momentum = u[:, :last] @ vt[:last]
    return momentum / jnp.linalg.norm(momentum)


def train(
    optimizer: str,
    key: Key[Array, ""],
    d: int,
    width: int,
    power: Array,
    trained: Array,
    ends: tuple[int, ...],
) -> dict[str, Float[Array, " length"]]:
    """Logarithms of hard rank and loss, and size and overlap of the update, after some steps.

    Args:
        optimizer: One of `OPTIMIZERS`.
        key: Of start, target and batches, which all optimizers share.
        d: Inputs and outputs.
        width: Hidden units.
        power: Of the width in the norm of a step of the hidden layer.
        trained: 1 for a readout that is trained too, else 0.
        ends: Steps after which to measure.
    """
    batch = 8 * d
    rows, columns = (
        spectral.polar(sizes.normal(sizes.stream(key, name), (d, d)))
        for name in ("rows", "columns")
    )
    target = rows @ (columns / jnp.arange(1, d + 1)[:, None])
    first = {
        "w": sizes.normal(sizes.stream(key, "w"), (width, d)) / d**0.5,
        "v": sizes.normal(sizes.stream(key, "v"), (d, width)) / width,
    }
    lengths = {"w": d**0.5 * (width / d) ** power, "v": trained * (d / width) ** 0.5}
    moments = optax.scale_by_adam(0.9, 0.95) if optimizer == "Adam" else optax.trace(0.9)

    def loss(weights: Weights, i: Array | int) -> Float[Array, ""]:
        x = sizes.normal(jax.random.fold_in(sizes.stream(key, "inputs"), i), (batch, d))
        found = jax.nn.relu(x @ weights["w"].T) @ weights["v"].T
        return jnp.mean((found - x @ target.T) ** 2) / jnp.mean(target**2) / d

    def step(carry: tuple[Weights, optax.OptState], i: Array) -> tuple[tuple, None]:
        weights, state = carry
        updates, state = moments.update(jax.grad(loss)(weights, i), state)
        return (
            {
                name: w - RATE * lengths[name] * direction(optimizer, updates[name], d // 8)
                for name, w in weights.items()
            },
            state,
        ), None

    def measured(weights: Weights, i: int) -> dict[str, Array]:
        delta = weights["w"] - first["w"]
        gram, norms = delta @ delta.T, jnp.mean(jnp.sum(delta**2, axis=1))
        pairs = jnp.sum(gram**2) - jnp.sum(jnp.diag(gram) ** 2)
        overlap = pairs / (width * (width - 1) * norms**2)
        return {
            "log rank": jnp.log(hard_rank(weights["w"])),
            "log start": jnp.log(hard_rank(first["w"])),
            "log loss": jnp.log(loss(weights, i)),
            "size": norms,
            "overlap": overlap,
        }

    carry, found, last = (first, moments.init(first)), [], 0
    for length in ends:
        carry = jax.lax.scan(step, carry, jnp.arange(last, length))[0]
        found, last = [*found, measured(carry[0], length)], length
    return jax.tree.map(lambda *at: jnp.stack(at), *found)
