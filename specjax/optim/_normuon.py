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
from jaxtyping import Array, Float, PyTree

from specjax.arguments import check_number, checked
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.fused_projections import Splits
from specjax.optim.matrices import IN_OUT, DimensionNumbers, Fans, Matrices, matrices_of
from specjax.spectral.float_range import averaged_rms, frobenius, ratio

Per = Literal["output", "longer"]


class NeuronMomentState(NamedTuple):
    """The roots √v of the second moments of each leaf's neurons, with the batch axes of the leaf
    and then an axis of neurons; a tuple of them for a leaf with splits.
    """

    rms: PyTree


@takes_schedules
@checked
def scale_by_neuron_moment(
    beta: Number = 0.95,
    per: Per = "output",
    *,
    dimension_numbers: DimensionNumbers = IN_OUT,
    splits: Splits | None = None,
) -> optax.GradientTransformationExtraArgs:
    """O ← O / √v for each neuron, brought back to the Frobenius norm of O; v is the average of the
    neuron's mean squares.

    It goes after `orthogonalize`, with or without a scale. The paper sets the norm of the result to
    0.2 √(in · out), the norm of a factor of full rank with the scale "point_two_sqrt_max". The
    published code keeps the norm of O, as here, which works with any scale. A bias correction of v
    would multiply the whole matrix by one number and cancel in the norm, so it is left out.

    Args:
        beta: β in [0, 1), a number, a scalar array or a schedule.
        per: Whether each "output" has its own moment (the paper; a row of torch's weights), or each
            index of the "longer" side (modded-nanogpt, nanochat; the outputs if both sides are
            equal).
        dimension_numbers: As for `orthogonalize`; they say which axes are the outputs.
        splits: As for `orthogonalize`: each of the matrices in a leaf keeps its own norm.

    Returns:
        A transformation that keeps the sign, shapes and dtypes. A zero neuron stays zero; a NaN or
        an infinity makes its own matrix NaN, and its moments from then on. Zero padding stays zero
        and does not change the result, as long as it does not change which side is longer.

    Raises:
        ValueError: at once for a beta outside [0, 1) or an unknown `per`; at init and update for a
            leaf that is not a matrix.

    Examples:
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
        return matrices_of(tree, dimension_numbers, "scale_by_neuron_moment", splits)

    def init(params: PyTree) -> NeuronMomentState:
        matrices = matrices_in(params)
        zeros = []
        for leaf, view in zip(matrices.leaves, matrices.views, strict=True):
            own = tuple(
                jnp.zeros((*view.batch, _neurons(fans, per)), leaf.dtype) for fans in view.parts
            )
            zeros.append(own if view.split else own[0])
        return NeuronMomentState(matrices.treedef.unflatten(zeros))

    def update(
        updates: PyTree, state: NeuronMomentState, params: PyTree | None = None
    ) -> tuple[PyTree, NeuronMomentState]:
        del params
        matrices = matrices_in(updates)
        fans = [each for view in matrices.views for each in view.parts]
        moments, steps = [], []
        for stack, each, old in zip(
            matrices.parts(), fans, jax.tree.leaves(state.rms), strict=True
        ):
            axis = _reduced(each, per)
            rms = frobenius(stack, axis) / math.sqrt(max(stack.shape[axis], 1))
            new = averaged_rms(old.reshape(rms.shape), rms, jnp.asarray(beta, old.dtype))
            moments.append(new.reshape(old.shape))
            steps.append(_same_norm(ratio(stack, jnp.expand_dims(new, axis)), stack))
        kept = jax.tree.unflatten(jax.tree.structure(state.rms), moments)
        return matrices.join(steps), NeuronMomentState(kept)

    return in_float32(optax.GradientTransformation(init, update))


def _reduced(fans: Fans, per: Per) -> int:
    """The axis of (batch, in, out) over which the mean is taken."""
    return 1 if per == "output" or fans.fan_out >= fans.fan_in else 2  # type: ignore[operator]


def _neurons(fans: Fans, per: Per) -> int:
    return int(fans[2 - _reduced(fans, per)])  # type: ignore[arg-type]


def _same_norm(
    x: Float[Array, "batch m n"], like: Float[Array, "batch m n"]
) -> Float[Array, "batch m n"]:
    return x * ratio(frobenius(like), frobenius(x))[:, None, None]
