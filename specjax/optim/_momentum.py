"""Momentum, with its convention named.

For a gradient g_t and the decay β = β_t of that step, which a schedule may change:

    sgd              m_t = β m_{t-1} + g_t            u_t = m_t
        Nesterov                                      u_t = g_t + β m_t
    ema              m_t = β m_{t-1} + (1 - β) g_t    u_t = m_t
        Nesterov                                      u_t = (1 - β) g_t + β m_t
    ema, corrected   the same m_t                     u_t = m_t / w_t
        Nesterov                           u_t = (1 - β) g_t / w_t + β m_t / (β w_t + 1 - β)

with w_t = β w_{t-1} + 1 - β, the sum of the weights that m_t gives to the gradients: 1 - β^t for a
constant β. While β is constant the first two differ by the factor 1 - β alone, so both have the
same polar factor; the last Nesterov form has another direction (Dozat 2016; its average one step
ahead uses the β of this step).
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int, Key, PyTree

from specjax.arguments import check_number, checked, shown
from specjax.optim._block_int8 import Int8Blocks, decoded, encoded
from specjax.optim._float32_wrapper import check_arrays, kept_dtype, with_params
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim._stochastic_rounding import stochastic_bfloat16
from specjax.spectral.float_range import at_least_float32

Convention = Literal["ema", "sgd"]


class MomentumState(NamedTuple):
    """The state of `momentum`; `mu` has the name and place of the momentum in optax's Muon.

    Attributes:
        count: The number of updates; None unless the accumulator is rounded at random.
        mu: The sum or average m of the gradients; with `mu_dtype="int8"` an `Int8Blocks` for each
            leaf.
        weight: w, the sum of the weights of the gradients in m; None without a bias correction.
    """

    count: Int[Array, ""] | None  # type: ignore[assignment]  # hides tuple.count, as in optax
    mu: PyTree
    weight: Float[Array, ""] | None


@takes_schedules
@checked
def momentum(
    beta: Number,
    convention: Convention = "ema",
    *,
    nesterov: bool = False,
    bias_correction: bool = False,
    mu_dtype: DTypeLike | None = None,
    key: Key[Array, ""] | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Replaces the gradients g by their accumulator m, or by Nesterov's step from it, in a named
    convention.

    - "sgd": m ← β m + g; the update is m, with `nesterov` g + β m.
    - "ema": m ← β m + (1 - β) g; the update is m, with `nesterov` (1 - β) g + β m.
    - "ema" with `bias_correction`: w ← β w + 1 - β from 0; the update is m / w, with `nesterov` (1
      - β) g / w + β m / (β w + 1 - β).

    Args:
        beta: β in [0, 1), a number, a scalar array or a schedule.
        convention: "ema" (Keller Jordan's and torch's Muon, optax.contrib.muon) or "sgd" (torch's
            SGD, `optax.trace`).
        nesterov: Whether the update looks one step ahead.
        bias_correction: Whether the average is divided by the sum of its weights, as
            optax.contrib.muon and Adam do; "ema" only.
        mu_dtype: The dtype of the accumulator m: int8, bfloat16, float32 or float64. The default is
            that of the parameters, or float32 for float16, in which gradients below 1e-7 are zero.
            int8 has a float32 scale for each block of 256 entries along the last axis, see
            `specjax.optim._block_int8`.
        key: The random key for accumulators in bfloat16 and int8, which are rounded at random (see
            `specjax.optim._stochastic_rounding`). bfloat16 needs one; int8 without one is rounded
            to the nearest.

    Returns:
        A transformation that keeps the sign; its state has the structure of the parameters. Its
        updates have the dtypes of the parameters where `update` gets these, else those of the
        gradients. Half precision is computed in float32, and the
        update uses the accumulator before it is rounded. In float16 the update itself may round to
        zero, which `muon` and `in_float32` around a whole chain avoid.

    Raises:
        ValueError: for an unknown convention, a beta outside [0, 1), a bias correction of the
            "sgd" sum, another dtype, or bfloat16 without a key; at init for a dtype where leaves
            are complex, and for a leaf that is not an array.

    Examples:
        >>> import jax.numpy as jnp
        >>> from specjax import optim
        >>> transform = optim.momentum(0.75)
        >>> gradient = jnp.ones(2)
        >>> step, state = transform.update(gradient, transform.init(gradient))
        >>> step.tolist()
        [0.25, 0.25]

    """
    check_number(beta, "beta", "[0, 1)", "momentum")
    if convention == "sgd" and bias_correction:
        raise ValueError('The "sgd" sum has no bias correction; take convention="ema".')
    kinds = jnp.int8, jnp.bfloat16, jnp.float32, jnp.float64
    if mu_dtype is not None and not _is_one_of(mu_dtype, *kinds):
        raise ValueError(
            "momentum keeps its accumulator in int8, bfloat16, float32 or float64, got"
            f" mu_dtype={shown(mu_dtype)}."
        )
    in_blocks = in_int8(mu_dtype)
    if _is_one_of(mu_dtype, jnp.bfloat16) and key is None:
        raise ValueError(
            "momentum in bfloat16 needs a key, since rounding to the nearest number makes it stand"
            " still; pass key=jax.random.key(0)."
        )
    of_gradient = 1 - beta if convention == "ema" else 1

    def mixed(mu: Array, gradient: Array) -> Array:
        old, new = (jnp.asarray(x, mu.dtype) for x in (beta, of_gradient))
        return new * gradient + old * mu

    def init(params: PyTree) -> MomentumState:
        check_arrays(params)
        if mu_dtype is not None and any(
            jnp.issubdtype(x.dtype, jnp.complexfloating) for x in jax.tree.leaves(params)
        ):
            raise ValueError(
                f"momentum of complex leaves keeps their dtype, got mu_dtype={jnp.dtype(mu_dtype)};"
                " leave it out."
            )
        dtype = None if in_blocks else mu_dtype
        mu = jax.tree.map(lambda x: jnp.zeros_like(x, dtype=dtype or kept_dtype(x)), params)
        return MomentumState(
            None if key is None else jnp.zeros((), jnp.int32),
            jax.tree.map(encoded, mu) if in_blocks else mu,
            jnp.zeros((), jnp.result_type(float)) if bias_correction else None,
        )

    def update(
        updates: PyTree, state: MomentumState, params: PyTree | None = None, **extra_args: object
    ) -> tuple[PyTree, MomentumState]:
        del extra_args
        updates, like = with_params(updates, params)
        weight = None if state.weight is None else mixed(state.weight, jnp.ones_like(state.weight))
        ahead = None if weight is None else mixed(weight, jnp.ones_like(weight))

        def divided(x: Array, weight: Array | None) -> Array:
            return x if weight is None else x / weight.astype(x.dtype)

        def accumulated(gradient: Array, mu: Array) -> Array:
            wide = np.promote_types(at_least_float32(mu).dtype, at_least_float32(gradient).dtype)
            return mixed(mu.astype(wide), gradient.astype(wide))

        def looked_ahead(gradient: Array, mu: Array) -> Array:
            return mixed(divided(mu, ahead), divided(gradient.astype(mu.dtype), weight))

        before = state.mu
        if in_blocks:
            before = jax.tree.map(lambda g, mu: decoded(mu, g.shape), updates, state.mu)
        wide = jax.tree.map(accumulated, updates, before)
        if nesterov:
            steps = jax.tree.map(looked_ahead, updates, wide)
        else:
            steps = jax.tree.map(lambda mu: divided(mu, weight), wide)
        steps = optax.tree.cast_like(steps, like)
        count, now = state.count, None
        if key is not None and count is not None:
            count, now = optax.safe_increment(count), jax.random.fold_in(key, count)
        kept = _rounded(now, wide, before, in_blocks=in_blocks)
        return steps, MomentumState(count, kept, weight)

    return optax.GradientTransformationExtraArgs(init, update)


def in_int8(dtype: DTypeLike | None) -> bool:
    """Whether a momentum of this dtype is stored as `Int8Blocks`."""
    return _is_one_of(dtype, jnp.int8)


def _is_one_of(dtype: DTypeLike | None, *dtypes: DTypeLike) -> bool:
    """False for None and for anything that is not a dtype."""
    try:
        return dtype is not None and jnp.dtype(dtype) in dtypes
    except (TypeError, ValueError):
        return False


def _rounded(key: Key[Array, ""] | None, wide: PyTree, like: PyTree, *, in_blocks: bool) -> PyTree:
    """The accumulators in the dtypes of `like`, or in eight bits with scales of these dtypes; a key
    rounds those in eight bits and in bfloat16 at random, each leaf by a key of its own.
    """

    def rounded(i: int, new: Array, old: Array) -> Array | Int8Blocks:
        own = None if key is None else jax.random.fold_in(key, i)
        if in_blocks:
            return encoded(new.astype(old.dtype), own)
        if own is not None and old.dtype == jnp.bfloat16:
            return stochastic_bfloat16(own, new)
        return new.astype(old.dtype)

    pairs = zip(jax.tree.leaves(wide), jax.tree.leaves(like), strict=True)
    kept = [rounded(i, *pair) for i, pair in enumerate(pairs)]
    return jax.tree.unflatten(jax.tree.structure(wide), kept)
