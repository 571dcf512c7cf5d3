"""Training a multilayer perceptron on all samples at once, every block with the step size that its
own inputs allow.

Block ℓ has inputs A_{ℓ-1} and the gradient G_ℓ of the loss (1/n)‖Ŷ - Y‖_F². It moves by

    -rate · (n/‖A_{ℓ-1}‖_op²) G_ℓ                                a Euclidean step, or
    -rate · (n/‖A_{ℓ-1}‖_F²) ‖G_ℓ‖_* polar(G_ℓ)                  a spectral step,

all blocks at once, with the activations of the current iteration (spectral-criterion, Section 1.2.1
and Figures 1, 4 and 18). Which of the two is up to the block, or to the rule (1.5) in every
iteration: spectral where nr(G_ℓ) ≥ st(A_{ℓ-1}).
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
"""Thresholds: a block takes a spectral step where nr(G_ℓ) is at least this many times
st(A_{ℓ-1}).
"""


class Descent(NamedTuple):
    """A training run.

    `loss` has the loss at iterations 0, 1, …, and `limit` from the one on at which it first is
    above that or not finite; there the parameters stop. `lasted` is the number of iterations before
    that. Ranks are those of every block at the iterations 0, every, 2 every, …, and 0 once the run
    has stopped.
    """

    loss: Float[Array, " steps"]
    lasted: Int[Array, ""]
    stable_rank: Float[Array, "records blocks"]
    """st(A_{ℓ-1}), of the inputs of W_ℓ, by `spectral.squaring`."""
    nuclear_rank: Float[Array, "records blocks"]
    """nr(G_ℓ)."""
    took_spectral: Bool[Array, "steps blocks"]
    """Which blocks took a spectral step; after a run has stopped, False."""


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
    """Runs `records · every` iterations. A run that diverges stops itself and, under `vmap`, no
    other.

    Args:
        params: W_1, …, W_L of `specjax.models.mlp`.
        batch: Inputs and targets, samples in rows.
        activation: Its name.
        rate: The factor on the step sizes of all blocks.
        thresholds: One for each block, `SPECTRAL`, `EUCLIDEAN`, `CRITERION` or any other multiple
            of st(A_{ℓ-1}) from which nr(G_ℓ) on it takes a spectral step. In an array they may be
            traced, and every block computes both steps; floats save those that are never taken.
        records: How often ranks are computed.
        every: Iterations from one record to the next.
        limit: The loss above which a run has diverged.
        samples: How many of the rows are samples, where those behind them are zero, as in padding.

    Raises:
        ValueError: another number of thresholds than blocks, or fewer than one record or iteration;
            for an unknown activation.

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
        # What has diverged must not reach a decomposition.
        safe_inputs, safe_gradients = (
            [jnp.where(alive, a, 0) for a in arrays] for arrays in (inputs, gradients)
        )
        return jnp.where(alive, loss, highest), safe_inputs, safe_gradients, alive

    def ranks_of(inputs: list[Array], gradients: list[Array]) -> Float[Array, "2 blocks"]:
        everything = dict(enumerate(inputs)), dict(enumerate(gradients))
        ranks = map(_of_each, (stable_rank_above, spectral.nuclear_rank), everything)
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
        # What a block never needs is zero, and its threshold decides as if it were known.
        norms = {0: input_norm} | _of_each(
            squared_norm, {i: inputs[i] for i in may_be_euclidean if i > 0}
        )
        directions = _of_each(spectral_direction, {i: gradients[i] for i in may_be_spectral})
        moves, took = [], []
        for i, (a, g) in enumerate(zip(inputs, gradients, strict=True)):
            norm, direction = (
                norms.get(i, jnp.zeros_like(loss)),
                directions.get(i, jnp.zeros_like(g)),
            )
            size = jnp.sum(a**2)
            # nr(G) ≥ c st(A) without quotients, with ‖G‖_*² = ⟨G, ‖G‖_* polar(G)⟩.
            took.append(jnp.sum(g * direction) * norm >= thresholds[i] * size * jnp.sum(g**2))
            moves.append(jnp.where(took[-1], _over(direction, size), _over(g, norm)))
        moved = tuple(
            jnp.where(alive, w - rate * count * move, w)
            for w, move in zip(params, moves, strict=True)
        )
        return (moved, alive), (loss, jnp.where(alive, ranks, 0), jnp.stack(took) & alive)

    steps = jnp.arange(records * every)
    _, (loss, ranks, took) = jax.lax.scan(step, (params, jnp.asarray(True)), steps % every == 0)
    return Descent(loss, jnp.sum(loss < highest), ranks[::every, 0], ranks[::every, 1], took)


def _of_each(function: Callable[[Array], Array], matrices: Mapping[int, Array]) -> dict[int, Array]:
    """`function` of every matrix; those of one shape in one call, which compiles sooner."""
    results: dict[int, Array] = {}
    for shape in dict.fromkeys(matrix.shape for matrix in matrices.values()):
        alike = [i for i, matrix in matrices.items() if matrix.shape == shape]
        results |= zip(alike, function(jnp.stack([matrices[i] for i in alike])), strict=True)
    return results


def _over(x: Float[Array, "..."], y: Float[Array, ""]) -> Float[Array, "..."]:
    """The quotient x/y, 0 for y = 0, which a diverged run has."""
    return jnp.where(y > 0, x / jnp.where(y > 0, y, 1), 0)
