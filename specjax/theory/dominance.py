"""Limits on how diagonal one Gram matrix can be, whatever its expectation."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

from specjax.arguments import checked


@checked
def off_diagonal_energy_bound(
    p: Float[Array, "*batch m m"], rank: ArrayLike
) -> Float[Array, "*batch"]:
    """1 - rank Σ_a P_aa² / (tr P)² ≤ Σ_{a≠c} P_ac² / ‖P‖_F² for a positive semidefinite P.

    By Cauchy–Schwarz on the eigenvalues ‖P‖_F² >= (tr P)²/rank. For a flat diagonal of m entries
    the bound is 1 - rank/m: a Gram matrix G Gᵀ of bounded rank is far from diagonal at large m even
    where E[G Gᵀ] is diagonal, as in the hidden layers of a linear network, where only the signs of
    the off-diagonal entries average out. [ours]
    """
    diagonal = jnp.diagonal(p, axis1=-2, axis2=-1)
    return (
        1
        - jnp.asarray(rank, p.dtype)
        * jnp.sum(diagonal**2, axis=-1)
        / jnp.sum(diagonal, axis=-1) ** 2
    )
