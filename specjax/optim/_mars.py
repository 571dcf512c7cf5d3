"""MARS' correction of the gradient by its last change (Yuan, Liu, Wu, Zhou and Gu 2025, arXiv
2411.10438).

    c_t = g_t + γ β / (1 - β) (g_t - g'_t)

where g'_t is the gradient at the previous parameters on the current batch (MARS), or the gradient
of the previous step, on its own batch (MARS-approx, the default of the published code).
`optax.clip_by_global_norm(1.0)`, momentum with the same β and any preconditioner follow it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, PyTree

from specjax.arguments import REAL, check_number, checked
from specjax.optim._float32_wrapper import check_arrays, kept_dtype, with_params
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.spectral.float_range import at_least_float32


class MarsState(NamedTuple):
    """The last gradient, in the dtypes of the parameters (float32 for float16), and whether there
    was one.
    """

    previous: PyTree
    started: Bool[Array, ""]


@takes_schedules
@checked
def mars_correction(
    gamma: Number = 0.025, beta: Number = 0.95, *, exact: bool = False
) -> optax.GradientTransformationExtraArgs:
    """g_t + γ β / (1 - β) (g_t - g'_t), the gradient corrected by its last change (MARS). Put it
    first in a chain.

    g'_t is the gradient of the previous step or, if `exact`, the gradient at the previous
    parameters on the current batch. The first gradient is not corrected. (The published code starts
    from a zero gradient, so it multiplies the first one by 1 + γ β / (1 - β) before its clip.)

    Args:
        gamma: γ, the strength of the correction; 0 switches it off and 1 gives STORM.
        beta: β of the momentum that follows, in [0, 1).
        exact: Whether the caller passes g'_t, by `update(updates, state, params,
            previous_gradient=tree)`; the state is then empty.

    Returns:
        A transformation of leaves of any shape; half precision is computed in float32 and rounded.

    Raises:
        ValueError: at once for a beta outside [0, 1); at update for a missing `previous_gradient`
            where it is exact.

    """
    check_number(gamma, "gamma", REAL, "mars_correction")
    check_number(beta, "beta", "[0, 1)", "mars_correction")

    def corrected(gradient: Array, before: Array) -> Array:
        now = at_least_float32(gradient)
        strength = jnp.asarray(gamma, now.dtype) * jnp.asarray(beta / (1 - beta), now.dtype)
        return (now + strength * (now - before.astype(now.dtype))).astype(gradient.dtype)

    def init(params: PyTree) -> MarsState | optax.EmptyState:
        check_arrays(params)
        if exact:
            return optax.EmptyState()
        return MarsState(
            jax.tree.map(lambda x: jnp.zeros_like(x, dtype=kept_dtype(x)), params),
            jnp.zeros((), bool),
        )

    def update(
        updates: PyTree,
        state: MarsState | optax.EmptyState,
        params: PyTree | None = None,
        **extra_args: object,
    ) -> tuple[PyTree, MarsState | optax.EmptyState]:
        updates, like = with_params(updates, params)
        if isinstance(state, MarsState):
            before = jax.tree.map(
                lambda g, p: jnp.where(state.started, p.astype(g.dtype), g), updates, state.previous
            )
            new = MarsState(optax.tree.cast_like(updates, state.previous), jnp.ones((), bool))
            return optax.tree.cast_like(jax.tree.map(corrected, updates, before), like), new
        if "previous_gradient" not in extra_args:
            raise ValueError(
                "mars_correction(exact=True) needs the gradient at the last parameters on this"
                " batch: update(updates, state, params, previous_gradient=tree)."
            )
        steps = jax.tree.map(corrected, updates, extra_args["previous_gradient"])
        return optax.tree.cast_like(steps, like), state

    return optax.GradientTransformationExtraArgs(init, update)
