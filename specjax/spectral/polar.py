"""The polar factor of a matrix: the map that Muon applies to its momentum.

For x = U S Vᵀ (compact singular value decomposition) the polar factor is U Vᵀ = (x xᵀ)^(-1/2) x.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.spectral.methods import SVD, AbstractPolar
from specjax.spectral.scaling import divided_by


def polar(x: Float[Array, "*batch m n"], method: AbstractPolar = SVD()) -> Float[Array, "*batch m n"]:  # noqa: B008
    """The orthogonal factor U Vᵀ of the compact singular value decomposition of each matrix.

    Zero singular values stay zero, a zero matrix goes to zero, and zero padding commutes with it. The result depends on the
    direction of x alone: x is divided by its largest entry first, so no gradient is too small or too large (XLA reads subnormal
    entries, in float32 those below 1.2e-38, as zero). A NaN or infinite entry makes the matrix NaN.

    Args:
        x: Matrices in the last two axes, tall or wide; leading axes are batch axes. A floating dtype, which is kept.
        method: How the factor is computed, and hence how exactly: see `specjax.spectral.methods`.

    Returns:
        An array of the shape and dtype of x.

    Raises:
        ValueError: if x has fewer than two axes or not a floating dtype.

    """
    if x.ndim < 2:
        raise ValueError(
            f"polar needs matrices in the last two axes, got shape {x.shape}; add an axis with x[None, :]."
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"polar needs a real floating dtype, got {x.dtype}; convert with x.astype(float).")
    return jnp.vectorize(partial(_polar_of_matrix, method), signature="(m,n)->(m,n)")(x)


def _polar_of_matrix(method: AbstractPolar, x: Array) -> Array:
    if 0 in x.shape:
        return x
    unit = divided_by(x, jnp.max(jnp.abs(x), keepdims=True))
    return method(unit) if x.shape[0] <= x.shape[1] else jax.lax.transpose(method(unit.T), (1, 0))
