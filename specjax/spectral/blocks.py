"""A matrix on vec(W), W ∈ R^{m×n} read row by row, as m×m blocks of size n×n: the row-block view of a layer's Hessian."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.one_by_one import svd
from specjax.spectral.scaling import frobenius, scaled


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
    return frobenius(row_blocks(h, rows))


def diagonal_block_share(h: Float[Array, "mn mn"], rows: int) -> Float[Array, ""]:
    """Σ_a ‖H_aa‖_F² / ‖H‖_F²: 1 for a matrix that is block-diagonal in the rows of W, NaN for a zero one."""
    energy = block_energy(scaled(h)[0], rows) ** 2
    return jnp.trace(energy) / jnp.sum(energy)


def row_metric(v: Float[Array, "m n"]) -> Float[Array, "m m"]:
    """(V Vᵀ)^{1/2}: how Muon's metric couples the rows of a weight. From the SVD of V, which keeps all digits of small values."""
    unit, power = scaled(v)
    u, s, _ = svd(unit)
    return (power * ((u * s[None, :]) @ u.T)).astype(v.dtype)


def muon_metric(v: Float[Array, "m n"]) -> Float[Array, "mn mn"]:
    """H_Muon = (V Vᵀ)^{1/2} ⊗ I_n, the metric in which the polar step descends (outer-product, eq. 2)."""
    return jnp.kron(row_metric(v), jnp.eye(v.shape[1], dtype=v.dtype))
