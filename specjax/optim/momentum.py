"""Momentum, with its convention named.

For a gradient g_t and the decay β = β_t of that step, which a schedule may change:

    sgd              m_t = β m_{t-1} + g_t            u_t = m_t
        Nesterov                                      u_t = g_t + β m_t
    ema              m_t = β m_{t-1} + (1 - β) g_t    u_t = m_t
        Nesterov                                      u_t = (1 - β) g_t + β m_t
    ema, corrected   the same m_t                     u_t = m_t / w_t
        Nesterov                           u_t = (1 - β) g_t / w_t + β m_t / (β w_t + 1 - β)

with w_t = β w_{t-1} + 1 - β, the sum of the weights that m_t gives to the gradients: 1 - β^t for a
constant β. While β is constant the first two differ by the factor 1 - β alone, so a polar factor
does not tell them apart; the last Nesterov form is another direction (Dozat 2016, whose average one
step ahead is taken with the β of this step).
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, ArrayLike, Float, Int, Key, PyTree

from specjax.arguments import check_number, checked, shown
from specjax.optim.float32_wrapper import check_arrays, kept_dtype
from specjax.optim.stochastic_rounding import stochastic_bfloat16
from specjax.spectral.float_range import at_least_float32

Convention = Literal["ema", "sgd"]


class MomentumState(NamedTuple):
    """The sum or average m of the gradients; w, the sum of its weights, if it is corrected; the
    count of updates, if rounding is random.
    """

    moment: PyTree
    weight: Float[Array, ""] | None
    step: Int[Array, ""] | None


@checked
def momentum(
    decay: ArrayLike,
    convention: Convention = "ema",
    *,
    nesterov: bool = False,
    bias_correction: bool = False,
    dtype: DTypeLike | None = None,
    key: Key[Array, ""] | None = None,
) -> optax.GradientTransformation:
    """The accumulator m of the gradients g, or what Nesterov makes of it, in a convention with a
    name.

    - "sgd": m ← β m + g; the update is m, with `nesterov` g + β m.
    - "ema": m ← β m + (1 - β) g; the update is m, with `nesterov` (1 - β) g + β m.
    - "ema" with `bias_correction`: w ← β w + 1 - β from 0; the update is m / w, with `nesterov` (1
      - β) g / w + β m / (β w + 1 - β).

    Args:
        decay: β in [0, 1), a number or a scalar array; a schedule by
            `specjax.optim.inject_hyperparams`.
        convention: "ema" (Keller Jordan's and torch's Muon, optax.contrib.muon) or "sgd" (torch's
            SGD, `optax.trace`).
        nesterov: Whether the gradient is looked ahead.
        bias_correction: Whether the average is divided by the sum of its weights, as
            optax.contrib.muon and Adam do; "ema" only.
        dtype: Of the accumulator m, bfloat16, float32 or float64; by default the parameters', and
            float32 for those in float16, in which gradients below 1e-7 are zero.
        key: For accumulators in bfloat16, which are then rounded at random, see
            `specjax.optim.stochastic_rounding`; needed with that `dtype`.

    Returns:
        A transformation that keeps the sign; its state has the structure of the parameters, its
        updates have the dtypes of the gradients. Half precision is computed in float32 and rounded;
        what leaves in this step is of the accumulator before it is rounded. In float16 it may round
        to zero, which `muon`, and `in_float32` around a whole chain, avoid.

    Raises:
        ValueError: for an unknown convention, a decay outside [0, 1), a bias correction of the
            "sgd" sum, another dtype, or bfloat16 without a key; at init for a dtype where leaves
            are complex, and for a leaf that is not an array.

    """
    check_number(decay, "decay", "[0, 1)", "momentum")
    if convention == "sgd" and bias_correction:
        raise ValueError('The "sgd" sum has no bias correction; take convention="ema".')
    if dtype is not None and not _is_kept(dtype):
        raise ValueError(
            "momentum keeps its accumulator in bfloat16, float32 or float64, got"
            f" dtype={shown(dtype)}."
        )
    if dtype is not None and jnp.dtype(dtype) == jnp.bfloat16 and key is None:
        raise ValueError(
            "momentum in bfloat16 needs a key, since rounded to the nearest number it stands still;"
            " pass key=jax.random.key(0)."
        )
    of_gradient = 1 - decay if convention == "ema" else 1

    def mixed(moment: Array, gradient: Array) -> Array:
        beta, rest = (jnp.asarray(x, moment.dtype) for x in (decay, of_gradient))
        return rest * gradient + beta * moment

    def init(params: PyTree) -> MomentumState:
        check_arrays(params)
        if dtype is not None and any(
            jnp.issubdtype(x.dtype, jnp.complexfloating) for x in jax.tree.leaves(params)
        ):
            raise ValueError(
                f"momentum of complex leaves keeps their dtype, got dtype={jnp.dtype(dtype)}; leave"
                " it out."
            )
        weight = jnp.zeros((), jnp.result_type(float)) if bias_correction else None
        step = None if key is None else jnp.zeros((), jnp.int32)
        return MomentumState(
            jax.tree.map(lambda x: jnp.zeros_like(x, dtype=dtype or kept_dtype(x)), params),
            weight,
            step,
        )

    def update(
        updates: PyTree, state: MomentumState, params: PyTree | None = None
    ) -> tuple[PyTree, MomentumState]:
        del params
        check_arrays(updates)
        weight = None if state.weight is None else mixed(state.weight, jnp.ones_like(state.weight))

        def over(x: Array, weight: Array | None) -> Array:
            return x if weight is None else x / weight.astype(x.dtype)

        def new_moment(gradient: Array, moment: Array) -> Array:
            wide = np.promote_types(
                at_least_float32(moment).dtype, at_least_float32(gradient).dtype
            )
            return mixed(moment.astype(wide), gradient.astype(wide))

        def ahead_or_not(gradient: Array, moment: Array) -> Array:
            if not nesterov:
                return over(moment, weight)
            ahead = None if weight is None else mixed(weight, jnp.ones_like(weight))
            return mixed(over(moment, ahead), over(gradient.astype(moment.dtype), weight))

        moments = jax.tree.map(new_moment, updates, state.moment)
        steps = optax.tree.cast_like(jax.tree.map(ahead_or_not, updates, moments), updates)
        if key is None or state.step is None:
            return steps, MomentumState(optax.tree.cast_like(moments, state.moment), weight, None)
        kept = _rounded(jax.random.fold_in(key, state.step), moments, state.moment)
        return steps, MomentumState(kept, weight, optax.safe_increment(state.step))

    return optax.GradientTransformation(init, update)


def _is_kept(dtype: DTypeLike) -> bool:
    try:
        return jnp.dtype(dtype) in (jnp.bfloat16, jnp.float32, jnp.float64)
    except (TypeError, ValueError):
        return False


def _rounded(key: Key[Array, ""], moments: PyTree, like: PyTree) -> PyTree:
    """The moments in the dtypes of `like`, those in bfloat16 rounded at random, each leaf with a
    key of its own.
    """
    kept = [
        (
            stochastic_bfloat16(jax.random.fold_in(key, i), wide)
            if old.dtype == jnp.bfloat16
            else wide.astype(old.dtype)
        )
        for i, (wide, old) in enumerate(
            zip(jax.tree.leaves(moments), jax.tree.leaves(like), strict=True)
        )
    ]
    return jax.tree.unflatten(jax.tree.structure(moments), kept)
