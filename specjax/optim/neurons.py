"""A second moment for each neuron after orthogonalization (Li et al. 2025, NorMuon, arXiv 2510.05491).

A polar factor has singular values 1, but rows of very different norms. NorMuon keeps v_t = β v_{t-1} + (1 - β) mean(O_t ⊙ O_t), the mean
over the inputs of each neuron, and divides: Ô_t = O_t / √v_t.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax.optim.matrices import IN_OUT, DimensionNumbers, Matrices, MatrixView, matrices_of
from specjax.optim.precision import in_float32
from specjax.spectral.scaling import frobenius, ratio

Per = Literal["output", "longer"]


class NeuronMomentState(NamedTuple):
    """For each leaf the second moments v of its neurons: the batch axes of the leaf, then one axis of the neurons; at least float32."""

    moment: PyTree


def scale_by_neuron_moment(
    decay: ArrayLike = 0.95, per: Per = "output", *, dimension_numbers: DimensionNumbers = IN_OUT
) -> optax.GradientTransformationExtraArgs:
    """O ← O / √v for each neuron, brought back to the Frobenius norm of O; v is the average of the neuron's mean squares.

    It goes after `orthogonalize`, with or without a scale. The paper sets the norm of the result to 0.2 √(in · out), which is that of a
    factor of full rank with the scale "point_two_sqrt_max"; keeping the norm is what its published code does, and takes any scale.
    A correction of v for its start at zero would be one number for the whole matrix, which the norm takes out again: there is none.

    Args:
        decay: β in [0, 1), a number or a scalar array.
        per: What has a moment of its own: each "output" (the paper, a row of torch's weights), or each entry of the "longer" side, outputs
            if both are equal (modded-nanogpt, nanochat).
        dimension_numbers: As for `orthogonalize`; they say which axes are the outputs.

    Returns:
        A transformation that keeps the sign, shapes and dtypes. A neuron that is zero stays zero; a NaN or an infinity makes its own matrix
        NaN, and its moments from then on. Zero padding stays zero and changes nothing, where the longer padded side is the longer one.

    Raises:
        ValueError: at once for a decay outside [0, 1) or an unknown `per`; at init and update for a leaf that is not a matrix.

    """
    if isinstance(decay, int | float) and not 0 <= decay < 1:
        raise ValueError(f"scale_by_neuron_moment needs a decay in [0, 1), got {decay}.")
    if per not in ("output", "longer"):
        raise ValueError(f'Unknown per={per!r}; choose "output" or "longer".')

    def matrices_in(tree: PyTree) -> Matrices:
        return matrices_of(tree, dimension_numbers, "scale_by_neuron_moment")

    def init(params: PyTree) -> NeuronMomentState:
        matrices = matrices_in(params)
        zeros = [
            jnp.zeros((*view.batch, _neurons(view, per)), leaf.dtype)
            for leaf, view in zip(matrices.leaves, matrices.views, strict=True)
        ]
        return NeuronMomentState(matrices.treedef.unflatten(zeros))

    def update(
        updates: PyTree, state: NeuronMomentState, params: PyTree | None = None
    ) -> tuple[PyTree, NeuronMomentState]:
        del params
        matrices = matrices_in(updates)
        moments, steps = [], []
        for stack, view, moment in zip(matrices.stacks(), matrices.views, jax.tree.leaves(state.moment), strict=True):
            squares = jnp.mean(stack**2, axis=_reduced(view, per))
            new = _averaged(moment.reshape(squares.shape), squares, decay)
            moments.append(new.reshape(moment.shape))
            per_neuron = jnp.expand_dims(_inverse_root(new), _reduced(view, per))
            steps.append(_same_norm(stack * per_neuron, stack))
        return matrices.tree(steps), NeuronMomentState(matrices.treedef.unflatten(moments))

    return in_float32(optax.GradientTransformation(init, update))


def _reduced(view: MatrixView, per: Per) -> int:
    """The axis of (batch, in, out) that the mean is over."""
    fan_in, fan_out = view.fans
    return 1 if per == "output" or fan_out >= fan_in else 2  # type: ignore[operator]


def _neurons(view: MatrixView, per: Per) -> int:
    return int(view.fans[2 - _reduced(view, per)])  # type: ignore[arg-type]


def _averaged(moment: Array, squares: Array, decay: ArrayLike) -> Array:
    beta = jnp.asarray(decay, moment.dtype)
    return beta * moment + (1 - beta) * squares


def _inverse_root(moment: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """1/√v, and 0 for 0, whose neurons have been zero in every step."""
    zero = moment == 0
    return jnp.where(zero, 0, 1 / jnp.sqrt(jnp.where(zero, 1, moment)))


def _same_norm(x: Float[Array, "batch m n"], like: Float[Array, "batch m n"]) -> Float[Array, "batch m n"]:
    return x * ratio(frobenius(like), frobenius(x))[:, None, None]
