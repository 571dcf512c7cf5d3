"""Momentum, with its convention named.

For a gradient g_t and a decay β:

    sgd            m_t = β m_{t-1} + g_t                u_t = m_t                  Nesterov: g_t + β m_t
    ema            m_t = β m_{t-1} + (1 - β) g_t        u_t = m_t                  Nesterov: (1 - β) g_t + β m_t
    ema, corrected (same m_t)                           u_t = m_t / (1 - β^t)      Nesterov: (1 - β) g_t / (1 - β^t) + β m_t / (1 - β^{t+1})

The first two differ by the factor 1 - β alone, so a polar factor does not tell them apart; the last Nesterov form is another direction
(Dozat 2016). All but the last are optax's own `trace` and `ema`.
"""

from typing import Literal, NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Int, PyTree

Convention = Literal["ema", "sgd"]


class CorrectedNesterovState(NamedTuple):
    """The number of steps taken and the exponential moving average of the gradients."""

    count: Int[Array, ""]  # type: ignore[assignment]  # a tuple has a method of that name; optax uses it all the same
    ema: PyTree


def momentum(
    decay: ArrayLike, convention: Convention = "ema", *, nesterov: bool = False, bias_correction: bool = False
) -> optax.GradientTransformation:
    """Momentum in one of the conventions of the table above.

    Args:
        decay: β in [0, 1), a number or a scalar array.
        convention: "ema" (Keller Jordan's and torch's Muon, optax.contrib.muon) or "sgd" (torch's SGD, `optax.trace`).
        nesterov: Whether the gradient is looked ahead.
        bias_correction: Whether the average is divided by the sum of its weights, as optax.contrib.muon and Adam do; "ema" only.

    Returns:
        A transformation that keeps the sign; its state has the structure of the parameters.

    Raises:
        ValueError: for an unknown convention, a decay outside [0, 1), or a bias correction of the "sgd" sum.

    """
    if isinstance(decay, int | float) and not 0 <= decay < 1:
        raise ValueError(f"momentum needs a decay in [0, 1), got {decay}.")
    if convention == "sgd":
        if bias_correction:
            raise ValueError('The "sgd" sum has no bias correction; take convention="ema".')
        return optax.trace(decay, nesterov=nesterov)
    if convention != "ema":
        raise ValueError(f'Unknown momentum convention {convention!r}; choose "ema" or "sgd".')
    if not nesterov:
        return optax.ema(decay, debias=bias_correction)
    if not bias_correction:
        return optax.chain(optax.trace(decay, nesterov=True), optax.scale(1 - decay))
    return _corrected_nesterov(decay)


def _corrected_nesterov(decay: ArrayLike) -> optax.GradientTransformation:
    def init(params: PyTree) -> CorrectedNesterovState:
        return CorrectedNesterovState(jnp.zeros((), jnp.int32), optax.tree.zeros_like(params))

    def update(
        updates: PyTree, state: CorrectedNesterovState, params: PyTree | None = None
    ) -> tuple[PyTree, CorrectedNesterovState]:
        del params
        count = optax.safe_increment(state.count)
        ema = optax.tree.update_moment(updates, state.ema, decay, 1)
        ahead = optax.tree.bias_correction(ema, decay, optax.safe_increment(count))
        now = optax.tree.bias_correction(updates, decay, count)
        return optax.tree.update_moment(now, ahead, decay, 1), CorrectedNesterovState(count, ema)

    return optax.GradientTransformation(init, update)
