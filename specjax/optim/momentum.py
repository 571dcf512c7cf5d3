"""Momentum, with its convention named.

For a gradient g_t and the decay β = β_t of that step, which a schedule may change:

    sgd            m_t = β m_{t-1} + g_t                u_t = m_t                  Nesterov: g_t + β m_t
    ema            m_t = β m_{t-1} + (1 - β) g_t        u_t = m_t                  Nesterov: (1 - β) g_t + β m_t
    ema, corrected (same m_t)                           u_t = m_t / w_t            Nesterov: (1 - β) g_t / w_t + β m_t / (β w_t + 1 - β)

with w_t = β w_{t-1} + 1 - β, the sum of the weights that m_t gives to the gradients: 1 - β^t for a constant β. While β is constant the
first two differ by the factor 1 - β alone, so a polar factor does not tell them apart; the last Nesterov form is another direction
(Dozat 2016, whose average one step ahead is taken with the β of this step).
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax.spectral.scaling import at_least_float32

Convention = Literal["ema", "sgd"]


class MomentumState(NamedTuple):
    """The sum or average m of the gradients, in the dtypes of the parameters, and w, the sum of its weights, if it is corrected."""

    moment: PyTree
    weight: Float[Array, ""] | None


def momentum(
    decay: ArrayLike, convention: Convention = "ema", *, nesterov: bool = False, bias_correction: bool = False
) -> optax.GradientTransformation:
    """Momentum in one of the conventions of the table above.

    Args:
        decay: β in [0, 1), a number or a scalar array; a schedule by `specjax.optim.inject_hyperparams`.
        convention: "ema" (Keller Jordan's and torch's Muon, optax.contrib.muon) or "sgd" (torch's SGD, `optax.trace`).
        nesterov: Whether the gradient is looked ahead.
        bias_correction: Whether the average is divided by the sum of its weights, as optax.contrib.muon and Adam do; "ema" only.

    Returns:
        A transformation that keeps the sign; its state has the structure and dtypes of the parameters, as its updates have those of the
        gradients. Half precision is computed in float32 and rounded.

    Raises:
        ValueError: for an unknown convention, a decay outside [0, 1), or a bias correction of the "sgd" sum.

    """
    if isinstance(decay, int | float) and not 0 <= decay < 1:
        raise ValueError(f"momentum needs a decay in [0, 1), got {decay}.")
    if convention not in ("ema", "sgd"):
        raise ValueError(f'Unknown momentum convention {convention!r}; choose "ema" or "sgd".')
    if convention == "sgd" and bias_correction:
        raise ValueError('The "sgd" sum has no bias correction; take convention="ema".')
    of_gradient = 1 - decay if convention == "ema" else 1

    def mixed(moment: Array, gradient: Array) -> Array:
        beta, rest = (jnp.asarray(x, moment.dtype) for x in (decay, of_gradient))
        return rest * gradient + beta * moment

    def init(params: PyTree) -> MomentumState:
        weight = jnp.zeros((), jnp.result_type(float)) if bias_correction else None
        return MomentumState(optax.tree.zeros_like(params), weight)

    def update(updates: PyTree, state: MomentumState, params: PyTree | None = None) -> tuple[PyTree, MomentumState]:
        del params
        weight = None if state.weight is None else mixed(state.weight, jnp.ones_like(state.weight))

        def over(x: Array, weight: Array | None) -> Array:
            return x if weight is None else x / weight.astype(x.dtype)

        def new_moment(gradient: Array, moment: Array) -> Array:
            return mixed(at_least_float32(moment), gradient.astype(at_least_float32(moment).dtype))

        def step(gradient: Array, moment: Array) -> Array:
            if not nesterov:
                return over(moment, weight)
            ahead = None if weight is None else mixed(weight, jnp.ones_like(weight))
            return mixed(over(moment, ahead), over(gradient.astype(moment.dtype), weight))

        moments = jax.tree.map(new_moment, updates, state.moment)
        steps = jax.tree.map(step, updates, moments)
        return optax.tree.cast_like(steps, updates), MomentumState(optax.tree.cast_like(moments, state.moment), weight)

    return optax.GradientTransformation(init, update)
