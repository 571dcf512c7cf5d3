"""Training a multilayer perceptron on all samples at once, every block with the step size that its own inputs allow.

Block ℓ has inputs A_{ℓ-1} and the gradient G_ℓ of the loss (1/n)‖Ŷ - Y‖_F². It moves by

    -rate · (n/‖A_{ℓ-1}‖_op²) G_ℓ                                a Euclidean step, or
    -rate · (n/‖A_{ℓ-1}‖_F²) ‖G_ℓ‖_* polar(G_ℓ)                  a spectral step,

all blocks at once, with the activations of the current iteration (spectral-criterion, Section 1.2.1 and Figures 1, 4 and 18).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from specjax import spectral
from specjax.models import mlp
from specjax.sizes import AnySize, active
from specjax.spectral.squaring import squared_norm, stable_rank_above
from specjax.theory.one_step import spectral_direction


class Descent(NamedTuple):
    """A training run.

    `loss` has the loss at iterations 0, 1, …, and `limit` from the one on at which it first is above that or not finite; there the
    parameters stop. `lasted` is the number of iterations before that. Ranks are those of every block at the iterations 0, every,
    2 every, …, and 0 once the run has stopped.
    """

    loss: Float[Array, " steps"]
    lasted: Int[Array, ""]
    stable_rank: Float[Array, "records blocks"]
    """st(A_{ℓ-1}), of the inputs of W_ℓ, by `spectral.squaring`."""
    nuclear_rank: Float[Array, "records blocks"]
    """nr(G_ℓ)."""


def descend(
    params: mlp.Params,
    batch: tuple[Float[Array, "n d0"], Float[Array, "n dL"]],
    activation: str,
    rate: Float[Array, ""],
    *,
    spectral_blocks: Sequence[int],
    records: int,
    every: int,
    limit: float,
    samples: AnySize | None = None,
) -> Descent:
    """Runs `records · every` iterations. A run that diverges stops itself and, under `vmap`, no other.

    Args:
        params: W_1, …, W_L of :mod:`specjax.models.mlp`.
        batch: Inputs and targets, samples in rows.
        activation: Its name.
        rate: The factor on the step sizes of all blocks.
        spectral_blocks: The numbers ℓ, from 1, of the blocks that take spectral steps; the others take Euclidean ones.
        records: How often ranks are computed.
        every: Iterations from one record to the next.
        limit: The loss above which a run has diverged.
        samples: How many of the rows are samples, where those behind them are zero, as in padding.

    Raises:
        ValueError: a block that there is not, or fewer than one record or iteration; for an unknown activation.

    """
    blocks = range(1, len(params) + 1)
    if not set(spectral_blocks) <= set(blocks):
        raise ValueError(f"The blocks of this network are 1 to {len(params)}, got {tuple(spectral_blocks)}.")
    if records < 1 or every < 1:
        raise ValueError(f"A run needs records >= 1 and every >= 1, got {records} and {every}.")
    x, y = batch
    count = jnp.asarray(x.shape[0] if samples is None else active(samples), x.dtype)
    highest, input_norm = jnp.asarray(limit, x.dtype), squared_norm(x)

    def loss_of(params: mlp.Params) -> tuple[Float[Array, ""], list[Array]]:
        inputs = mlp.layer_inputs(params, x, activation)
        return jnp.sum((inputs[-1] @ params[-1].T - y) ** 2) / count, inputs

    def evaluate(params: mlp.Params, alive: Array) -> tuple[Array, list[Array], list[Array], Bool[Array, ""]]:
        (loss, inputs), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        alive = alive & (loss <= highest)  # also False for NaN
        # What has diverged must not reach a decomposition.
        safe_inputs, safe_gradients = ([jnp.where(alive, a, 0) for a in arrays] for arrays in (inputs, gradients))
        return jnp.where(alive, loss, highest), safe_inputs, safe_gradients, alive

    def step(state: tuple[mlp.Params, Array], _: None) -> tuple[tuple[mlp.Params, Array], Array]:
        params, alive = state
        loss, inputs, gradients, alive = evaluate(params, alive)
        moves = []
        for block, a, g in zip(blocks, inputs, gradients, strict=True):
            if block in spectral_blocks:
                moves.append(_over(count * spectral_direction(g), jnp.sum(a**2)))
            else:
                moves.append(_over(count * g, input_norm if block == 1 else squared_norm(a)))
        moved = tuple(jnp.where(alive, w - rate * move, w) for w, move in zip(params, moves, strict=True))
        return (moved, alive), loss

    def stretch(state: tuple[mlp.Params, Array], _: None) -> tuple[tuple[mlp.Params, Array], tuple[Array, ...]]:
        inputs, gradients, alive = evaluate(*state)[1:]
        ranks = [
            jnp.where(alive, jnp.stack([rank(matrix) for matrix in matrices]), 0)
            for rank, matrices in ((stable_rank_above, inputs), (spectral.nuclear_rank, gradients))
        ]
        state, losses = jax.lax.scan(step, state, length=every)
        return state, (losses, *ranks)

    (_, _), (losses, stable, nuclear) = jax.lax.scan(stretch, (params, jnp.asarray(True)), length=records)
    loss = losses.reshape(-1)
    return Descent(loss, jnp.sum(loss < highest), stable, nuclear)


def _over(x: Float[Array, "..."], y: Float[Array, ""]) -> Float[Array, "..."]:
    """The quotient x/y, 0 for y = 0, which a diverged run has."""
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1), 0)
