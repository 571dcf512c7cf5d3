"""Takes the spectral step where its guaranteed decrease is larger, and the Euclidean one elsewhere.

For a layer W A with activations A, a loss whose curvature in the layer's output is L obeys two
bounds, with the constants L ‖A‖_F² in the spectral norm of the step and L ‖A‖_op² in the Frobenius
norm. The guaranteed decreases are ‖G‖_*² / (2 L ‖A‖_F²) and ‖G‖_F² / (2 L ‖A‖_op²), so the spectral
step is the better one exactly where the nuclear rank nr(G) = ‖G‖_*² / ‖G‖_F² is at least the stable
rank st(A) = ‖A‖_F² / ‖A‖_op² (spectral-criterion, Section 1).
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from specjax import spectral
from specjax.arguments import checked_but
from specjax.optim._float32_wrapper import with_params
from specjax.optim._orthogonal import Method
from specjax.optim.matrices import IN_OUT, DimensionNumbers, map_stacked, matrices_of, prefix_leaves
from specjax.spectral.float_range import inner, ratio, scaled
from specjax.spectral.polar import method_of


class RankSwitchState(NamedTuple):
    """The states of both steps, and for each leaf which of its matrices took the spectral step last
    (False before the first).
    """

    spectral: Any
    euclidean: Any
    took_spectral: PyTree


@checked_but("method")
def rank_switch(
    spectral_step: optax.GradientTransformation,
    euclidean_step: optax.GradientTransformation,
    method: Method | None = None,
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
) -> optax.GradientTransformationExtraArgs:
    """For each matrix and at each step `spectral_step` if nr(G) >= st(A), else `euclidean_step`;
    the states of both advance at every step.

    The stable ranks are an argument of the update, `update(updates, state, params,
    stable_ranks=...)`: a prefix tree of numbers or arrays, scalar or with the batch axes of the
    leaf. G is the incoming update: put momentum before this transformation, or in the steps.

    Args:
        spectral_step: For example `spectral_descent(curvature)` or `orthogonalize()`.
        euclidean_step: For example `optax.sgd(learning_rate)` or `optax.identity()`.
        method: The method for the nuclear norm in nr(G), computed as ⟨G, polar(G)⟩. The default
            `SVD()` is exact; on a CPU an iteration that converges, such as `NewtonSchulz(30,
            CUBIC)`, is faster.
        dimension_numbers: As for `orthogonalize`.

    Returns:
        A transformation whose state records the choices. A matrix with NaN or infinite entries, one
        whose stable rank is NaN, and a zero matrix take the Euclidean step.

    Raises:
        ValueError: at init and update for a leaf that is not a matrix; at update for missing stable
            ranks or ones of another shape.

    """
    chosen = spectral.SVD() if method is None else method_of(method, "rank_switch")
    steps = [optax.with_extra_args_support(step) for step in (spectral_step, euclidean_step)]

    def init(params: PyTree) -> RankSwitchState:
        matrices = matrices_of(params, dimension_numbers, "rank_switch")
        nothing = matrices.treedef.unflatten(
            [jnp.zeros(view.batch, bool) for view in matrices.views]
        )
        return RankSwitchState(steps[0].init(params), steps[1].init(params), nothing)

    def update(
        updates: PyTree, state: RankSwitchState, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, RankSwitchState]:
        if "stable_ranks" not in extra_args:
            raise ValueError(
                "rank_switch needs the stable ranks of the activations: update(updates, state,"
                " params, stable_ranks=tree)."
            )
        updates, like = with_params(updates, params)
        matrices = matrices_of(updates, dimension_numbers, "rank_switch")
        stable_ranks = prefix_leaves(extra_args["stable_ranks"], updates, Array, "stable_ranks")
        stacks = [
            view.matrices(leaf) for leaf, view in zip(matrices.leaves, matrices.views, strict=True)
        ]
        ranks = map_stacked(lambda x: nuclear_rank(x, chosen), stacks)
        choices = [
            (rank.reshape(view.batch) >= _on_batch(stable_rank, view.batch, rank.dtype))
            & (rank.reshape(view.batch) > 0)
            for rank, stable_rank, view in zip(ranks, stable_ranks, matrices.views, strict=True)
        ]
        by_spectral, spectral_state = steps[0].update(updates, state.spectral, params, **extra_args)
        by_euclidean, euclidean_state = steps[1].update(
            updates, state.euclidean, params, **extra_args
        )
        selected = [
            view.leaf(
                jnp.where(
                    choice.reshape(math.prod(view.batch), 1, 1), view.matrices(s), view.matrices(e)
                )
            )
            for choice, view, s, e in zip(
                choices,
                matrices.views,
                jax.tree.leaves(optax.tree.cast_like(by_spectral, like)),
                jax.tree.leaves(optax.tree.cast_like(by_euclidean, like)),
                strict=True,
            )
        ]
        taken = matrices.treedef.unflatten(choices)
        return matrices.treedef.unflatten(selected), RankSwitchState(
            spectral_state, euclidean_state, taken
        )

    return optax.GradientTransformationExtraArgs(init, update)


def nuclear_rank(x: Float[Array, "batch m n"], method: Method) -> Float[Array, " batch"]:
    """nr(x) as ⟨x, polar(x)⟩²/‖x‖_F², with the polar factor by `method`, in at least float32; 0 for
    zero and for an empty matrix.
    """
    unit, _ = scaled(x)
    return ratio(inner(unit, spectral.polar(unit, method)) ** 2, jnp.sum(unit**2, axis=(-2, -1)))


def _on_batch(stable_rank: Any, batch: tuple[int, ...], dtype: Any) -> Array:
    if stable_rank is None or jnp.shape(stable_rank) not in ((), batch):
        got = "None" if stable_rank is None else f"shape {jnp.shape(stable_rank)}"
        raise ValueError(
            f"A stable rank must be a scalar or have the batch shape {batch} of its leaf, got"
            f" {got}."
        )
    return jnp.broadcast_to(jnp.asarray(stable_rank, dtype), batch)
