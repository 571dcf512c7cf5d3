"""Row and column normalization, and the distance between two directions."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Inexact

from specjax.arguments import as_array
from specjax.spectral.float_range import frobenius, inner, ratio, scaled, squares


def normalize_rows(x: Inexact[Array, "*batch m n"]) -> Inexact[Array, "*batch m n"]:
    """Each row divided by its Euclidean norm; a zero row stays zero (outer-product, eq. 53). The
    dtype is kept.

    The derivative at a zero row is zero. A row with a NaN is NaN.
    """
    x = _matrices(x, "normalize_rows")
    return unit_rows(x).astype(x.dtype)


def normalize_columns(x: Inexact[Array, "*batch m n"]) -> Inexact[Array, "*batch m n"]:
    """Each column divided by its Euclidean norm; a zero column stays zero."""
    x = _matrices(x, "normalize_columns")
    return jnp.swapaxes(normalize_rows(jnp.swapaxes(x, -1, -2)), -1, -2)


def unit_rows(x: Inexact[Array, "*batch n"]) -> Inexact[Array, "*batch n"]:
    """Vectors divided by their norms, in at least float32; zero stays zero."""
    unit, _ = scaled(x, axis=-1)
    return ratio(unit, frobenius(unit, axis=-1)[..., None])


def direction_error(
    x: Inexact[Array, "*batch m n"], target: Inexact[Array, "*batch m n"]
) -> Float[Array, "*batch"]:
    """min_c ‖c x - target‖_F / ‖target‖_F = √(1 - cos²) over real c, the distance of two steps when
    the step size is free.

    0 when x is a multiple of the target, 1 when they are orthogonal or x is zero; NaN for a zero
    target. In at least float32.
    """
    # Compute the residual itself, since 1 - cos² loses half the digits where the two directions are
    # close.
    (x, _), (target, _) = (scaled(_matrices(each, "direction_error")) for each in (x, target))
    residual = ratio(inner(x, target), inner(x, x))[..., None, None].astype(x.dtype) * x - target
    return jnp.sqrt(
        jnp.sum(squares(residual), axis=(-2, -1)) / jnp.sum(squares(target), axis=(-2, -1))
    )


def _matrices(x: Array, by: str) -> Array:
    x = as_array(x, "x", by)
    if x.ndim < 2:
        raise ValueError(
            f"Rows and columns are those of matrices in the last two axes, got shape {x.shape}; add"
            " an axis with x[None, :]."
        )
    return x
