"""Cautious weight decay, which decays an entry only where that agrees with the step (Chen et al.
2025, arXiv 2510.12402, Algorithm 1).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from specjax.arguments import REAL, check_number, checked, shown
from specjax.optim._float32_wrapper import in_float32
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.matrices import prefix_leaves


@takes_schedules
@checked
def add_cautious_decay(
    weight_decay: Number, mask: PyTree | Callable[[PyTree], PyTree] | None = None
) -> optax.GradientTransformationExtraArgs:
    """Adds weight_decay · 1(u ⊙ x >= 0) ⊙ x to the updates u, entry by entry, for the parameters x.

    Use it in place of `optax.add_decayed_weights`, before the learning rate: x ← x - η u then
    decays an entry only where the step does not move it away from zero. Leaves may have any shape.
    The signs are compared, since the product of two small numbers could underflow to zero.

    Args:
        weight_decay: A number, a scalar array or a schedule.
        mask: Which leaves decay, as for `optax.add_decayed_weights`.

    Returns:
        A transformation that keeps shapes and dtypes; half precision is computed in float32.
        `update` needs `params`.

    Raises:
        ValueError: at once for a decay that is not finite, or a mask that is an array; at init for
            a mask that is not a prefix of the parameters; at update without parameters.

    """
    check_number(weight_decay, "weight_decay", REAL, "add_cautious_decay")
    if hasattr(mask, "dtype"):
        raise ValueError(
            "add_cautious_decay needs a tree of booleans as mask, or a function, got"
            f" {shown(mask)}."
        )

    def init(params: PyTree) -> Any:
        prefix_leaves(mask, params, bool, "mask")
        return decayed.init(params)

    decayed = optax.with_extra_args_support(optax.add_decayed_weights(weight_decay, mask))

    def update(
        updates: PyTree, state: Any, params: PyTree | None = None, **extra_args: Any
    ) -> tuple[PyTree, Any]:
        if params is None:
            raise ValueError(
                "add_cautious_decay needs the parameters: update(updates, state, params)."
            )
        agreeing = jax.tree.map(
            lambda u, x: jnp.where(jnp.sign(u) * jnp.sign(x) >= 0, x, 0), updates, params
        )
        return decayed.update(updates, state, agreeing, **extra_args)

    return in_float32(optax.GradientTransformationExtraArgs(init, update))
