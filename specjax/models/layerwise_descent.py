"""Full-batch training of a multilayer perceptron, with step sizes from each block's inputs.

Block ℓ has inputs A_{ℓ-1} and the gradient G_ℓ of the loss (1/n)‖Ŷ - Y‖_F². It moves by

    -rate · (n/‖A_{ℓ-1}‖_op²) G_ℓ                                a Euclidean step, or
    -rate · (n/‖A_{ℓ-1}‖_F²) ‖G_ℓ‖_* polar(G_ℓ)                  a spectral step,

all blocks at once, with the activations of the current iteration (spectral-criterion, Section 1.2.1
and Figures 1, 4 and 18). The choice is fixed per block, or made by rule (1.5) in every iteration:
spectral where nr(G_ℓ) ≥ st(A_{ℓ-1}).
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from specjax import spectral
from specjax.models import mlp
from specjax.sizes import AnySize, active
from specjax.spectral.gram_power_norm import squared_norm, stable_rank_above
from specjax.theory.one_step import spectral_direction

SPECTRAL, CRITERION, EUCLIDEAN = 0.0, 1.0, inf
"""Thresholds: a block steps spectrally where nr(G_ℓ) is at least this multiple of st(A_{ℓ-1})."""


class Descent(NamedTuple):
    """A training run.

    `loss` is the loss at iterations 0, 1, …, and `limit` from the first one at which it exceeds
    `limit` or is not finite; there the parameters stop. `lasted` is the number of iterations before
    that. Ranks are recorded for every block at iterations 0, every, 2 every, …, and are 0 once the
    run has stopped.
    """

    loss: Float[Array, " steps"]
    lasted: Int[Array, ""]
    stable_rank: Float[Array, "records blocks"]
    """st(A_{ℓ-1}), of the inputs of W_ℓ, by `spectral.squaring`."""
    nuclear_rank: Float[Array, "records blocks"]
    """nr(G_ℓ)."""
    took_spectral: Bool[Array, "steps blocks"]
    """Whether each block took a spectral step; False once the run has stopped."""


def descend(
    params: mlp.Params,
    batch: tuple[Float[Array, "n d0"], Float[Array, "n dL"]],
    activation: str,
    rate: Float[Array, ""],
    *,
    thresholds: Sequence[float] | Float[Array, " blocks"],
    records: int,
    every: int,
    limit: float,
    samples: AnySize | None = None,
) -> Descent:
    """Run `records · every` iterations. A diverging run stops, and under `vmap` stops no other run.

    Args:
        params: W_1, …, W_L of `specjax.models.mlp`.
        batch: Inputs and targets, samples in rows.
        activation: Its name.
        rate: The factor on the step sizes of all blocks.
        thresholds: One for each block: `SPECTRAL`, `EUCLIDEAN`, `CRITERION` or any other multiple
            of st(A_{ℓ-1}), such that nr(G_ℓ) above it means a spectral step. An array may be
            traced, and every block computes both steps; floats save the steps that are never taken.
        records: The number of times that ranks are computed.
        every: Iterations from one record to the next.
        limit: The loss above which a run has diverged.
        samples: The number of sample rows, if rows behind them are zero padding.

    Raises:
        ValueError: a number of thresholds other than that of blocks, fewer than one record or
            iteration, or an unknown activation.

    """
    if len(thresholds) != len(params):
        raise ValueError(
            f"Each of the {len(params)} blocks needs a threshold, got {len(thresholds)}."
        )
    if records < 1 or every < 1:
        raise ValueError(f"A run needs records >= 1 and every >= 1, got {records} and {every}.")
    known = [level if isinstance(level, float) else None for level in thresholds]
    may_be_spectral = [i for i, level in enumerate(known) if level != EUCLIDEAN]
    may_be_euclidean = [i for i, level in enumerate(known) if level != SPECTRAL]
    x, y = batch
    count = jnp.asarray(x.shape[0] if samples is None else active(samples), x.dtype)
    highest, input_norm = jnp.asarray(limit, x.dtype), squared_norm(x)

    def loss_of(params: mlp.Params) -> tuple[Float[Array, ""], list[Array]]:
        inputs = mlp.layer_inputs(params, x, activation)
        return jnp.sum((inputs[-1] @ params[-1].T - y) ** 2) / count, inputs

    def evaluate(
        params: mlp.Params, alive: Array
    ) -> tuple[Array, list[Array], list[Array], Bool[Array, ""]]:
        (loss, inputs), gradients = jax.value_and_grad(loss_of, has_aux=True)(params)
        alive = alive & (loss <= highest)  # also False for NaN
        # Diverged values must not reach a decomposition.
        safe_inputs, safe_gradients = (
            [jnp.where(alive, a, 0) for a in arrays] for arrays in (inputs, gradients)
        )
        return jnp.where(alive, loss, highest), safe_inputs, safe_gradients, alive

    def ranks_of(inputs: list[Array], gradients: list[Array]) -> Float[Array, "2 blocks"]:
        everything = dict(enumerate(inputs)), dict(enumerate(gradients))
        ranks = map(_map_by_shape, (stable_rank_above, spectral.nuclear_rank), everything)
        return jnp.stack(
            [jnp.stack([of_blocks[block] for block in range(len(params))]) for of_blocks in ranks]
        )

    def step(
        state: tuple[mlp.Params, Array], recorded: Array
    ) -> tuple[tuple[mlp.Params, Array], tuple[Array, ...]]:
        params, alive = state
        loss, inputs, gradients, alive = evaluate(params, alive)
        ranks = jax.lax.cond(
            recorded, ranks_of, lambda *_: jnp.zeros((2, len(params)), x.dtype), inputs, gradients
        )
        # Ranks that a block never needs are zero, and its threshold decides without them.
        norms = {0: input_norm} | _map_by_shape(
            squared_norm, {i: inputs[i] for i in may_be_euclidean if i > 0}
        )
        directions = _map_by_shape(spectral_direction, {i: gradients[i] for i in may_be_spectral})
        moves, took = [], []
        for i, (a, g) in enumerate(zip(inputs, gradients, strict=True)):
            norm, direction = (
                norms.get(i, jnp.zeros_like(loss)),
                directions.get(i, jnp.zeros_like(g)),
            )
            size = jnp.sum(a**2)
            # nr(G) ≥ c st(A) without quotients, with ‖G‖_*² = ⟨G, ‖G‖_* polar(G)⟩.
            took.append(jnp.sum(g * direction) * norm >= thresholds[i] * size * jnp.sum(g**2))
            moves.append(jnp.where(took[-1], _quotient(direction, size), _quotient(g, norm)))
        moved = tuple(
            jnp.where(alive, w - rate * count * move, w)
            for w, move in zip(params, moves, strict=True)
        )
        return (moved, alive), (loss, jnp.where(alive, ranks, 0), jnp.stack(took) & alive)

    steps = jnp.arange(records * every)
    _, (loss, ranks, took) = jax.lax.scan(step, (params, jnp.asarray(True)), steps % every == 0)
    return Descent(loss, jnp.sum(loss < highest), ranks[::every, 0], ranks[::every, 1], took)


def _map_by_shape(
    function: Callable[[Array], Array], matrices: Mapping[int, Array]
) -> dict[int, Array]:
    """Apply `function` to every matrix, with one call per shape, which compiles faster."""
    results: dict[int, Array] = {}
    for shape in dict.fromkeys(matrix.shape for matrix in matrices.values()):
        alike = [i for i, matrix in matrices.items() if matrix.shape == shape]
        results |= zip(alike, function(jnp.stack([matrices[i] for i in alike])), strict=True)
    return results


def _quotient(x: Float[Array, "..."], y: Float[Array, ""]) -> Float[Array, "..."]:
    """The quotient x/y, 0 for y = 0 as in a diverged run."""
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1), 0)
