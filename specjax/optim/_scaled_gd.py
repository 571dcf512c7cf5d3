"""ScaledGD (Tong, Ma and Chi 2021): the gradient of a symmetric factorization, preconditioned by
the factor's own Gram matrix.
"""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree

from specjax.arguments import check_number, checked
from specjax.optim._float32_wrapper import check_alike, check_arrays, with_params
from specjax.optim._hyperparameters import Number, takes_schedules
from specjax.optim.matrices import IN_OUT, matrices_of
from specjax.programs.one_at_a_time import compiled_one_at_a_time
from specjax.spectral.float_range import scaled
from specjax.spectral.products import product


@takes_schedules
@checked
def scale_by_factor_gram(damping: Number = 0.0) -> optax.GradientTransformationExtraArgs:
    """G ← G (XᵀX + damping · I)⁻¹ for each matrix X ∈ R^{d×k}, the factor (preconditioning, eq.
    80); leading axes are batch axes.

    The sign is kept: chain with `optax.scale_by_learning_rate`; with rates near 1/2 for the
    gradient (X Xᵀ - M) X the number of steps does not depend on the condition number. If X has more
    columns than the rank of the target, XᵀX becomes singular at convergence, which damping
    prevents. `update` needs `params`. Half-precision leaves are solved in float32; updates keep
    shape and dtype.

    Raises:
        ValueError: at once for a negative damping; at init and update for a leaf that is not a
            matrix; at update without parameters.

    """
    check_number(damping, "damping", "[0, inf)", "scale_by_factor_gram")

    def init(params: PyTree) -> optax.EmptyState:
        matrices_of(params, IN_OUT, "scale_by_factor_gram")
        return optax.EmptyState()

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None, **extra_args: object
    ) -> tuple[PyTree, optax.EmptyState]:
        del extra_args
        matrices_of(updates, IN_OUT, "scale_by_factor_gram")
        if params is None:
            raise ValueError(
                "scale_by_factor_gram needs the factors themselves: pass params to update(updates,"
                " state, params)."
            )
        check_arrays(params)
        check_alike(updates, params)
        wide, like = with_params(updates, params)
        steps = jax.tree.map(lambda g, x: _preconditioned(g, x, damping), wide, params)
        return optax.tree.cast_like(steps, like), state

    return optax.GradientTransformationExtraArgs(init, update)


def _preconditioned(
    g: Float[Array, "*n d k"], x: Float[Array, "*n d k"], damping: ArrayLike
) -> Float[Array, "*n d k"]:
    if not g.size:
        return g
    gradient, power = scaled(g)
    factor, lengths = scaled(x.astype(gradient.dtype), axis=-2)
    root = jnp.sqrt(jnp.asarray(damping, gradient.dtype))
    # With the columns in units D of their size, XᵀX + λ = D (X̂ᵀX̂ + λ D⁻²) D, whose terms all stay
    # in the range of floats.
    units = jnp.maximum(lengths, root)
    factor = factor * (lengths / units)
    gram = product(factor.mT, factor) + jnp.vectorize(jnp.diag, signature="(k)->(k,k)")(
        (root / units[..., 0, :]) ** 2
    )
    solve = jnp.vectorize(
        partial(compiled_one_at_a_time, jnp.linalg.solve), signature="(k,k),(k,d)->(k,d)"
    )
    least = jnp.min(units, axis=-1, keepdims=True)
    solved = solve(gram, (gradient * (least / units)).mT).mT
    # Keep this order: XLA turns a / b / c into a / (b c), whose denominator may leave the range.
    return (solved * (power / least) / units).astype(g.dtype)
