"""Inverse roots of positive semidefinite matrices."""

import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Inexact

from specjax.arguments import as_array, check_number, checked_but
from specjax.spectral._spectral_functions import spectral_map
from specjax.spectral.products import adjoint


@checked_but("h")
def inverse_root(
    h: Inexact[Array, "*batch n n"],
    order: ArrayLike,
    damping: ArrayLike = 0.0,
    rtol: float | None = None,
) -> Inexact[Array, "*batch n n"]:
    """(H + damping · I)^(-1/order) of each Hermitian positive semidefinite matrix, on its range.

    Eigenvalues up to `rtol` times the largest (by default 64 times the machine epsilon) count as
    zero and stay zero. The result is the root of the pseudo-inverse, so zero padding commutes with
    it. For H = X Xᵀ and order 2 the product with X is the polar factor of X. Derivatives are those
    of `spectral_map`, finite at repeated eigenvalues.

    Args:
        h: Hermitian (symmetric, if real) and positive semidefinite, which is not checked; leading
            axes are batch axes. float32, float64 or complex of either, which is kept.
        order: A positive number or scalar array: 2 for H^(-1/2), 4 for H^(-1/4).
        damping: Added to the eigenvalues that do not count as zero; not negative.
        rtol: The cut, relative to the largest eigenvalue of each matrix.

    A matrix with a NaN or infinite entry goes to NaN.

    Raises:
        ValueError: if h is not square in its last two axes or its dtype is neither float32 nor
            float64, or the order is a number that is not positive.

    """
    h = as_array(h, "h", "inverse_root")
    if h.ndim < 2 or h.shape[-1] != h.shape[-2]:
        raise ValueError(
            f"inverse_root needs square matrices in the last two axes, got shape {h.shape}."
        )
    check_number(order, "order", "(0, inf)", "inverse_root")
    check_number(damping, "damping", "[0, inf)", "inverse_root")
    real = jnp.real(h).dtype
    exponent, added = -1 / jnp.asarray(order, real), jnp.asarray(damping, real)
    # The singular value decomposition of such a matrix is its eigendecomposition, up to rounding.
    root = spectral_map(h, lambda s: (s + added) ** exponent, rtol)
    return 0.5 * (root + adjoint(root))
