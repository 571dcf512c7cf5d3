"""A matrix on vec(W), W ∈ R^{m×n} read row by row, as m×m blocks of size n×n: the row-block view of a layer's Hessian."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def row_blocks(h: Float[Array, "mn mn"], rows: int) -> Float[Array, "m m n n"]:
    """The blocks H_ab = ∂²L/∂w_a∂w_b of a matrix on vec(W), for W with `rows` rows.

    Raises ValueError if the extent of h is not a multiple of `rows`.
    """
    extent = h.shape[0]
    if extent % rows:
        raise ValueError(f"A matrix of extent {extent} has no {rows} rows of blocks; pass the number of rows of W.")
    columns = extent // rows
    return jnp.transpose(h.reshape(rows, columns, rows, columns), (0, 2, 1, 3))


def block_energy(h: Float[Array, "mn mn"], rows: int) -> Float[Array, "m m"]:
    """‖H_ab‖_F for each pair of rows: the picture of a Hessian's row-block structure."""
    return jnp.sqrt(jnp.sum(row_blocks(h, rows) ** 2, axis=(-2, -1)))


def diagonal_block_share(h: Float[Array, "mn mn"], rows: int) -> Float[Array, ""]:
    """Σ_a ‖H_aa‖_F² / ‖H‖_F²: 1 for a matrix that is block-diagonal in the rows of W."""
    energy = block_energy(h, rows) ** 2
    return jnp.trace(energy) / jnp.sum(energy)


def psd_power(p: Float[Array, "m m"], power: float) -> Float[Array, "m m"]:
    """P^power of a symmetric positive semidefinite matrix, on its range for negative powers.

    Eigenvalues up to 64 machine epsilons of the largest count as zero.
    """
    values, vectors = jnp.linalg.eigh(p)
    kept = values > 64 * jnp.finfo(p.dtype).eps * values[-1]
    powered = jnp.where(kept, jnp.where(kept, values, 1) ** power, 0)
    return (vectors * powered[None, :]) @ vectors.T


def muon_metric(v: Float[Array, "m n"]) -> Float[Array, "mn mn"]:
    """H_Muon = (V Vᵀ)^{1/2} ⊗ I_n, the metric in which the polar step descends (outer-product, eq. 2)."""
    return jnp.kron(psd_power(v @ v.T, 0.5), jnp.eye(v.shape[1], dtype=v.dtype))
