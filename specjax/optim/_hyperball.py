"""Steps of a fixed length on a sphere of matrices of fixed norm (Wen, Dang, Lyu, Ma and Liang 2026,
Hyperball, arXiv 2606.16899).

    W ← R · unit(W - η R · unit(u)),   unit(X) = X / ‖X‖_F,   R = ‖W_0‖_F

for a direction u from any optimizer: R replaces weight decay, and each step turns W by an angle of
at most η, up to second order.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from specjax.arguments import REAL, check_number, checked
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.matrices import IN_OUT, DimensionNumbers, matrices_of
from specjax.spectral.float_range import frobenius, ratio, scaled


class HyperballState(NamedTuple):
    """For each leaf the Frobenius norms R of its matrices at the start, on the batch axes of the
    leaf.
    """

    radius: PyTree


@takes_schedules
@checked
def hyperball(
    learning_rate: Number, *, dimension_numbers: DimensionNumbers = IN_OUT
) -> optax.GradientTransformationExtraArgs:
    """W ← R unit(W - η R unit(u)) for each matrix W and its update u, with unit(X) = X / ‖X‖_F and
    R = ‖W‖_F at the start.

    Put it last in a chain, in place of weight decay and learning rate, as in
    `optax.chain(optim.momentum(0.95, nesterov=True), optim.orthogonalize(),
    optim.hyperball(0.01))`. The size of u, hence a scale by shape, has no effect. `init` stores R
    in the state.

    Args:
        learning_rate: η, a number, a scalar array or a schedule.
        dimension_numbers: As for `orthogonalize`. All other axes are batch axes, and each matrix
            along them has its own norm.

    Returns:
        A complete step: its updates are added to the parameters. Half precision is computed in
        float32; parameters in half precision keep their norm to rounding. A matrix that starts at
        zero stays zero. NaN or infinite entries make only their own matrix NaN. `update` needs
        `params`.

    Raises:
        ValueError: at init and update for a leaf that is not a matrix; at update without
            parameters.

    """
    check_number(learning_rate, "learning_rate", REAL, "hyperball")

    def init(params: PyTree) -> HyperballState:
        matrices = matrices_of(params, dimension_numbers, "hyperball")
        norms = [
            frobenius(stack).reshape(view.batch)
            for stack, view in zip(matrices.stacks(), matrices.views, strict=True)
        ]
        return HyperballState(matrices.treedef.unflatten(norms))

    def update(
        updates: PyTree, state: HyperballState, params: PyTree | None = None
    ) -> tuple[PyTree, HyperballState]:
        directions = matrices_of(updates, dimension_numbers, "hyperball")
        if params is None:
            raise ValueError("hyperball needs the parameters: update(updates, state, params).")
        weights = matrices_of(params, dimension_numbers, "hyperball").stacks()
        steps = [
            _moved(w, u, radius.reshape(-1, 1, 1), jnp.asarray(learning_rate, w.dtype)) - w
            for w, u, radius in zip(
                weights, directions.stacks(), jax.tree.leaves(state.radius), strict=True
            )
        ]
        return directions.tree(steps), state

    return in_float32(optax.GradientTransformation(init, update))


def _moved(
    w: Float[Array, "batch m n"],
    u: Float[Array, "batch m n"],
    radius: Float[Array, "batch 1 1"],
    rate: Array,
) -> Float[Array, "batch m n"]:
    return radius * _unit(w - rate * radius * _unit(u))


def _unit(x: Float[Array, "batch m n"]) -> Float[Array, "batch m n"]:
    """x / ‖x‖_F; zero stays zero."""
    in_range, _ = scaled(x)
    return ratio(in_range, frobenius(in_range)[:, None, None])
