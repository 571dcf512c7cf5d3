"""Learning rates for steps of a fixed length: a polar factor or a sign does not shrink near the
target, so the rate must.

`geometric` and `random_geometric` are optax schedules, functions of the step count;
`decay_on_plateau` watches the loss and is a transformation, chained last. The theorems of the
preconditioning paper use the first two, its figures the third.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, Int, Key, PyTree

from specjax.arguments import check_number, checked
from specjax.optim._float32_wrapper import check_arrays, with_params
from specjax.optim._hyperparameters import Number, takes_schedules


class PlateauState(NamedTuple):
    """The factor on the updates, the smallest loss so far, and the number of updates since the last
    new minimum or decay.
    """

    scale: Float[Array, ""]
    best: Float[Array, ""]
    bad: Int[Array, ""]


@checked
def geometric(prefactor: ArrayLike, rho: ArrayLike) -> optax.Schedule:
    """η_t = prefactor · ρ^t (preconditioning, Theorem 3). Both may be traced.

    Raises ValueError for a prefactor that is not positive or ρ outside (0, 1), where they are
    known.
    """
    check_number(prefactor, "prefactor", "(0, inf)", "geometric")
    check_number(rho, "rho", "(0, 1)", "geometric")

    def rate(count: ArrayLike) -> Array:
        c, decay = (jnp.asarray(x, jnp.result_type(float)) for x in (prefactor, rho))
        return c * decay ** jnp.asarray(count).astype(decay.dtype)

    return rate


@checked
def random_geometric(
    key: Key[Array, ""], low: ArrayLike, high: ArrayLike, rho: ArrayLike, *, each_step: bool
) -> optax.Schedule:
    """η_t = C_t ρ^t with C_t uniform in [low, high]: sampled in each step (Theorem 1b), or once
    (Theorem 1a).

    The sample of step t depends only on the key and on t. Independent samples also keep rounding
    from being amplified step after step near the end, as happens with a single prefactor and ρ of
    at least 0.8. low, high and ρ may be traced.

    Raises ValueError unless 0 < low <= high and ρ is in (0, 1), where they are known.
    """
    for name, value, interval in (
        ("low", low, "(0, inf)"),
        ("high", high, "(0, inf)"),
        ("rho", rho, "(0, 1)"),
    ):
        check_number(value, name, interval, "random_geometric")
    if all(isinstance(x, int | float) for x in (low, high)) and low > high:  # type: ignore[operator]
        raise ValueError(
            f"random_geometric needs low <= high, got low={low} and high={high}; exchange them."
        )

    def rate(count: ArrayLike) -> Array:
        at = jax.random.fold_in(key, count) if each_step else key
        dtype = jnp.result_type(float)
        least, most, decay = (jnp.asarray(x, dtype) for x in (low, high, rho))
        prefactor = least + (most - least) * jax.random.uniform(at, (), dtype)
        return prefactor * decay ** jnp.asarray(count).astype(dtype)

    return rate


@takes_schedules
@checked
def decay_on_plateau(
    factor: Number = 0.5, patience: Number = 10
) -> optax.GradientTransformationExtraArgs:
    """Multiplies updates by a scale that falls by `factor` whenever the loss has found no new
    minimum for `patience` updates.

    `update(updates, state, params, value=loss)` takes the loss at the current parameters. A NaN
    never counts as a new minimum. The scale and the smallest loss are stored in float32 (float64
    where that is enabled); the scale is rounded to the dtype of the parameters where it is applied.
    `optax.contrib.reduce_on_plateau` stores both in that dtype, so in bfloat16 it misses a decrease
    below 1/256 of the loss; it ignores improvements below a tolerance, such as those of a loss that
    falls to rounding; and it does not run under strict dtype promotion.

    Both arguments may be traced, so that a sweep maps over them. Raises ValueError at once for a
    factor outside (0, 1) or a patience below 1, where they are known.
    """
    check_number(factor, "factor", "(0, 1)", "decay_on_plateau")
    check_number(patience, "patience", "[1, inf)", "decay_on_plateau")

    def init(params: PyTree) -> PlateauState:
        check_arrays(params)
        dtype = jnp.result_type(float)
        return PlateauState(
            jnp.ones((), dtype), jnp.full((), jnp.inf, dtype), jnp.zeros((), jnp.int32)
        )

    def update(
        updates: PyTree, state: PlateauState, params: PyTree | None = None, **extra_args: object
    ) -> tuple[PyTree, PlateauState]:
        updates, like = with_params(updates, params)
        if "value" not in extra_args:
            raise ValueError(
                "decay_on_plateau needs the loss: update(updates, state, params, value=loss)."
            )
        value = jnp.asarray(extra_args["value"]).astype(state.best.dtype)
        # jnp.minimum would keep a NaN as the best loss to the end.
        improved = value < state.best
        bad = jnp.where(improved, 0, state.bad + 1)
        stuck = bad >= jnp.asarray(patience, bad.dtype)
        scale = jnp.where(stuck, state.scale * jnp.asarray(factor, state.scale.dtype), state.scale)
        scaled = jax.tree.map(lambda u: scale.astype(u.dtype) * u, updates)
        return optax.tree.cast_like(scaled, like), PlateauState(
            scale, jnp.where(improved, value, state.best), jnp.where(stuck, 0, bad)
        )

    return optax.GradientTransformationExtraArgs(init, update)
