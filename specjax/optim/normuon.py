"""A second moment for each neuron after orthogonalization (Li et al. 2025, NorMuon, arXiv
2510.05491).

A polar factor has singular values 1, but rows of very different norms. NorMuon keeps v_t = β
v_{t-1} + (1 - β) mean(O_t ⊙ O_t), the mean over the inputs of each neuron, and divides: Ô_t = O_t /
√v_t.
"""

import math
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax.arguments import check_number, checked
from specjax.optim.float32_wrapper import in_float32
from specjax.optim.matrices import IN_OUT, DimensionNumbers, Matrices, MatrixView, matrices_of
from specjax.spectral.float_range import averaged_rms, frobenius, ratio

Per = Literal["output", "longer"]


class NeuronMomentState(NamedTuple):
    """For each leaf the roots √v of the second moments of its neurons: the batch axes of the leaf,
    then one axis of the neurons.
    """

    rms: PyTree


@checked
def scale_by_neuron_moment(
    beta: ArrayLike = 0.95, per: Per = "output", *, dimension_numbers: DimensionNumbers = IN_OUT
) -> optax.GradientTransformationExtraArgs:
    """O ← O / √v for each neuron, brought back to the Frobenius norm of O; v is the average of the
    neuron's mean squares.

    It goes after `orthogonalize`, with or without a scale. The paper sets the norm of the result to
    0.2 √(in · out), which is that of a factor of full rank with the scale "point_two_sqrt_max";
    keeping the norm is what its published code does, and takes any scale. A correction of v for its
    start at zero would be one number for the whole matrix, which the norm takes out again: there is
    none.

    Args:
        beta: β in [0, 1), a number or a scalar array.
        per: What has a moment of its own: each "output" (the paper, a row of torch's weights), or
            each entry of the "longer" side, outputs if both are equal (modded-nanogpt, nanochat).
        dimension_numbers: As for `orthogonalize`; they say which axes are the outputs.

    Returns:
        A transformation that keeps the sign, shapes and dtypes. A neuron that is zero stays zero; a
        NaN or an infinity makes its own matrix NaN, and its moments from then on. Zero padding
        stays zero and changes nothing, where the longer padded side is the longer one.

    Raises:
        ValueError: at once for a beta outside [0, 1) or an unknown `per`; at init and update for a
            leaf that is not a matrix.

    Example:
        >>> import jax.numpy as jnp
        >>> import optax
        >>> from specjax import optim
        >>> transform = optax.chain(optim.orthogonalize(), optim.scale_by_neuron_moment())
        >>> gradient = jnp.array([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]])
        >>> step, _ = transform.update(gradient, transform.init(gradient))
        >>> norms = jnp.linalg.norm(step, axis=0)
        >>> bool(jnp.isclose(norms[0], norms[1]))
        True

    """
    check_number(beta, "beta", "[0, 1)", "scale_by_neuron_moment")

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
        for stack, view, old in zip(
            matrices.stacks(), matrices.views, jax.tree.leaves(state.rms), strict=True
        ):
            axis = _reduced(view, per)
            rms = frobenius(stack, axis) / math.sqrt(max(stack.shape[axis], 1))
            new = averaged_rms(old.reshape(rms.shape), rms, jnp.asarray(beta, old.dtype))
            moments.append(new.reshape(old.shape))
            steps.append(_same_norm(ratio(stack, jnp.expand_dims(new, axis)), stack))
        return matrices.tree(steps), NeuronMomentState(matrices.treedef.unflatten(moments))

    return in_float32(optax.GradientTransformation(init, update))


def _reduced(view: MatrixView, per: Per) -> int:
    """The axis of (batch, in, out) that the mean is over."""
    fan_in, fan_out = view.fans
    return 1 if per == "output" or fan_out >= fan_in else 2  # type: ignore[operator]


def _neurons(view: MatrixView, per: Per) -> int:
    return int(view.fans[2 - _reduced(view, per)])  # type: ignore[arg-type]


def _same_norm(
    x: Float[Array, "batch m n"], like: Float[Array, "batch m n"]
) -> Float[Array, "batch m n"]:
    return x * ratio(frobenius(like), frobenius(x))[:, None, None]
