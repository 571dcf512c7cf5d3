"""A lower bound on updates: the update of each neuron, or of the whole matrix, is lifted to at
least a share τ of the norm of its weights.

    u_i ← max(1, τ ‖w_i‖ / ‖u_i‖) u_i

for the weights w_i and the update u_i of neuron i (RowFloor, modded-nanogpt's pull request 328,
whose τ is 0.3825), or with Frobenius norms for a matrix (the "u/w floor" of pull request 274,
0.35). It replaces weight decay, which also keeps updates and weights in proportion.
"""

from typing import Literal

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from specjax.arguments import check_number, checked
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.matrices import IN_OUT, DimensionNumbers, matrices_of
from specjax.spectral.float_range import frobenius, ratio, scaled

Per = Literal["output", "matrix"]


@takes_schedules
@checked
def lift_to_floor(
    floor: Number, per: Per = "output", *, dimension_numbers: DimensionNumbers = IN_OUT
) -> optax.GradientTransformationExtraArgs:
    """u_i ← max(1, τ ‖w_i‖ / ‖u_i‖) u_i for the update u_i and the weights w_i of each neuron, or
    of each matrix.

    Put it after `orthogonalize` and before the learning rate, which multiplies the share τ.

    Args:
        floor: τ, a number, a scalar array or a schedule.
        per: Whether the floor holds for each "output" (a row of torch's weights) or for each
            "matrix".
        dimension_numbers: As for `orthogonalize`; they say which axes are the outputs.

    Returns:
        A transformation without state that keeps the sign, shapes and dtypes. A zero update stays
        zero, and so does padding; NaN and infinite updates pass unchanged. `update` needs `params`.

    Raises:
        ValueError: at once for a floor that is not positive or an unknown `per`; at init and update
            for a leaf that is not a matrix; at update without parameters.

    """
    check_number(floor, "floor", "(0, inf)", "lift_to_floor")
    axes = (1,) if per == "output" else (1, 2)

    def init(params: PyTree) -> optax.EmptyState:
        matrices_of(params, dimension_numbers, "lift_to_floor")
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        matrices = matrices_of(updates, dimension_numbers, "lift_to_floor")
        if params is None:
            raise ValueError("lift_to_floor needs the parameters: update(updates, state, params).")
        weights = matrices_of(params, dimension_numbers, "lift_to_floor").stacks()
        return (
            matrices.tree(
                _lifted(u, w, jnp.asarray(floor, u.dtype), axes)
                for u, w in zip(matrices.stacks(), weights, strict=True)
            ),
            state,
        )

    return in_float32(optax.GradientTransformation(init, update))


def _lifted(
    u: Float[Array, "batch m n"],
    w: Float[Array, "batch m n"],
    floor: Float[Array, ""],
    axes: tuple[int, ...],
) -> Float[Array, "batch m n"]:
    norm, least = (jnp.expand_dims(frobenius(x, axes), axes) for x in (u, w))
    least = floor * least
    # Divide by the largest entry first, since squares of small entries underflow in float32.
    unit, _ = scaled(u, axes)
    lifted = least * ratio(unit, jnp.expand_dims(frobenius(unit, axes), axes))
    return jnp.where(norm < least, lifted, u)
