"""ScaledGD (Tong, Ma and Chi 2021): the gradient of a symmetric factorization, preconditioned by the factor's own Gram matrix."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, ArrayLike, Float, PyTree


def scale_by_factor_gram(damping: ArrayLike = 0.0) -> optax.GradientTransformation:
    """G ← G (XᵀX + damping · I)⁻¹ for each matrix X ∈ R^{d×k}, the factor (preconditioning, eq. 80).

    The sign is kept: chain with `optax.scale_by_learning_rate`; rates near 1/2 for the gradient (X Xᵀ - M) X converge in a number of
    steps without the condition number. XᵀX is singular where X has more columns than the target's rank and has arrived, which
    damping prevents. `update` needs `params`.

    Raises:
        ValueError: at once for a negative damping; at update without parameters, or for a leaf that is not a matrix.

    """
    if isinstance(damping, int | float) and not damping >= 0:
        raise ValueError(f"scale_by_factor_gram needs a damping that is not negative, got {damping}.")

    def update(
        updates: PyTree, state: optax.EmptyState, params: PyTree | None = None
    ) -> tuple[PyTree, optax.EmptyState]:
        if params is None:
            raise ValueError(
                "scale_by_factor_gram needs the factors themselves: pass params to update(updates, state, params)."
            )
        return jax.tree.map(lambda g, x: _preconditioned(g, x, damping), updates, params), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def _preconditioned(g: Float[Array, "..."], x: Float[Array, "..."], damping: ArrayLike) -> Float[Array, "..."]:
    if x.ndim != 2:
        raise ValueError(
            f"scale_by_factor_gram needs matrices, got a leaf of shape {x.shape}; route it to another transformation with optax.partition."
        )
    gram = x.T @ x + jnp.asarray(damping, x.dtype) * jnp.eye(x.shape[1], dtype=x.dtype)
    return jnp.linalg.solve(gram, g.T).T
